//! Figures about the network of instance types that EC2's API doesn't tell: baseline bandwidth and
//! branch interfaces.

use std::collections::BTreeMap;

/// Published figures per instance type.
#[derive(Clone, Debug)]
pub struct NetworkTable {
    figures: BTreeMap<&'static str, (Option<i64>, i64)>,
}

impl NetworkTable {
    /// The table that comes with this version.
    pub fn bundled() -> Self {
        Self::parse(include_str!("network.tsv"))
    }

    fn parse(text: &'static str) -> Self {
        let figures = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let mut fields = line.split('\t');
                let name = fields.next()?;
                let mbps = fields.next()?.parse().ok();
                let branches = fields.next()?.parse().ok()?;
                Some((name, (mbps, branches)))
            })
            .collect();
        Self { figures }
    }

    /// Baseline bandwidth in Mbps.
    pub fn baseline_mbps(&self, instance_type: &str) -> Option<i64> {
        self.figures.get(instance_type)?.0
    }

    /// Branch interfaces (security groups for pods); 0 when the type can't have any.
    pub(crate) fn branch_interfaces(&self, instance_type: &str) -> i64 {
        self.figures.get(instance_type).map_or(0, |figures| figures.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_table_has_the_published_figures() {
        let table = NetworkTable::bundled();
        let figures = |name| (table.baseline_mbps(name), table.branch_interfaces(name));
        assert_eq!(figures("m5.large"), (Some(750), 9));
        assert_eq!(figures("trn1.32xlarge").0, Some(800_000));
        assert_eq!(figures("c7i-flex.large"), (Some(390), 3));
        assert_eq!(figures("c1.medium"), (None, 0));
        assert_eq!(figures("nothing.large"), (None, 0));
    }
}
