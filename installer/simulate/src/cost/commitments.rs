//! Savings Plans and reserved instances, as AWS's own commands print them.

mod aws;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use self::aws::Document;
use crate::error::SimulateError;

/// Families whose reserved instances apply to their own size only, besides `u7i`, by AWS's page on
/// [how discounts are applied](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/apply_ri.html).
const OF_ONE_SIZE: [&str; 13] =
    ["g4ad", "g4dn", "g5", "g5g", "g6", "g6e", "g6f", "gr6", "gr6f", "hpc7a", "inf1", "inf2", "p5"];

/// What was bought in advance.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Commitments {
    /// Whether any file was read.
    pub(super) are_known: bool,
    pub(super) reserved: Vec<ReservedInstances>,
    pub(super) plans: Vec<SavingsPlan>,
}

/// Kinds of commitments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CommitmentKind {
    /// Instances of one type, or of one family.
    ReservedInstances,
    /// An amount per hour for one family in one region.
    #[serde(rename = "EC2InstanceSavingsPlan")]
    Ec2InstanceSavingsPlan,
    /// An amount per hour for any instance.
    ComputeSavingsPlan,
}

impl CommitmentKind {
    /// As AWS calls it.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::ReservedInstances => "Reserved Instances",
            Self::Ec2InstanceSavingsPlan => "EC2 Instance Savings Plan",
            Self::ComputeSavingsPlan => "Compute Savings Plan",
        }
    }
}

/// Reserved instances that were bought together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReservedInstances {
    pub(super) id: String,
    pub(super) instance_type: String,
    /// Of zonal ones.
    pub(super) zone: Option<String>,
    pub(super) count: f64,
    /// In USD per hour, of one instance: what is paid every hour and its share of what was paid at
    /// first.
    pub(super) price: f64,
    pub(super) end: Option<Timestamp>,
}

/// A Savings Plan for EC2.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SavingsPlan {
    pub(super) id: String,
    pub(super) kind: CommitmentKind,
    /// In USD per hour.
    pub(super) commitment: f64,
    pub(super) end: Option<Timestamp>,
    /// In USD per hour.
    pub(super) rates: BTreeMap<RateKey, f64>,
}

/// What a rate of a Savings Plan is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RateKey {
    pub(super) region: String,
    pub(super) instance_type: String,
    /// Whether instances have their hardware for themselves.
    pub(super) dedicated: bool,
}

impl ReservedInstances {
    /// Whether they apply to all sizes of their family: most regional ones do.
    pub(super) fn is_flexible(&self) -> bool {
        let family = family(&self.instance_type);
        let is_of_one_size = OF_ONE_SIZE.contains(&family) || family.starts_with("u7i");
        self.zone.is_none() && !is_of_one_size
    }
}

/// `m7i` of `m7i.large`
pub(super) fn family(instance_type: &str) -> &str {
    instance_type.split_once('.').map_or(instance_type, |(family, _)| family)
}

/// How large an instance is beside others of its family, in AWS's normalized units: 4 for `large`,
/// 8 for `xlarge`. `metal` without a size has two units per processor, as other sizes from `large`
/// on.
pub(super) fn units(instance_type: &str, processors: f64) -> Option<f64> {
    let (_, size) = instance_type.split_once('.')?;
    let of_xlarge = |count: &str| Some(8.0 * f64::from(count.parse::<u16>().ok()?));
    match size {
        "nano" => Some(0.25),
        "micro" => Some(0.5),
        "small" => Some(1.0),
        "medium" => Some(2.0),
        "large" => Some(4.0),
        "xlarge" => Some(8.0),
        "metal" => (processors > 0.0).then_some(2.0 * processors),
        other => match other.strip_prefix("metal-") {
            Some(size) => of_xlarge(size.strip_suffix("xl")?),
            None => of_xlarge(other.strip_suffix("xlarge")?),
        },
    }
}

impl Commitments {
    /// Reads files that AWS's commands have printed. What is not active at `now`, and what does not
    /// apply to instances of EC2 with Linux, counts for nothing.
    ///
    /// # Errors
    /// When a file can't be read or is in another format, when prices are not in USD, and when the
    /// rates of a Savings Plan are missing.
    pub fn read(files: &[PathBuf], now: Timestamp) -> Result<Self, SimulateError> {
        let mut commitments = Self { are_known: !files.is_empty(), ..Self::default() };
        let mut rates: BTreeMap<String, (BTreeMap<RateKey, f64>, bool)> = BTreeMap::new();
        let mut from: BTreeMap<String, &Path> = BTreeMap::new();
        for path in files {
            let text = std::fs::read_to_string(path)
                .map_err(|source| SimulateError::Read { path: path.clone(), source })?;
            match Document::parse(&text, now).map_err(|problem| unusable(path, problem))? {
                Document::Reserved(reserved) => commitments.reserved.extend(reserved),
                Document::Plans(plans) => {
                    from.extend(plans.iter().map(|plan| (plan.id.clone(), &**path)));
                    commitments.plans.extend(plans);
                }
                Document::Rates { plan, rates: more, is_last } => {
                    let (known, ends) = rates.entry(plan).or_default();
                    known.extend(more);
                    *ends |= is_last;
                }
            }
        }
        unique(&mut commitments.reserved, |it| it.id.clone());
        unique(&mut commitments.plans, |it| it.id.clone());
        for plan in &mut commitments.plans {
            let missing = |problem: &str| {
                let path = from.get(&plan.id).copied().unwrap_or(Path::new(""));
                unusable(path, format!("{problem} of Savings Plan {}", plan.id))
            };
            match rates.remove(&plan.id) {
                None => return Err(missing("no file has the rates")),
                Some((_, false)) => return Err(missing("no file has the last page of the rates")),
                Some((known, true)) => plan.rates = known,
            }
        }
        Ok(commitments)
    }
}

fn unusable(path: &Path, problem: String) -> SimulateError {
    SimulateError::Commitments { path: path.to_owned(), problem }
}

/// Keeps the first of those with one id: the same file may be named twice.
fn unique<T>(items: &mut Vec<T>, id: impl Fn(&T) -> String) {
    let mut seen = BTreeSet::new();
    items.retain(|item| seen.insert(id(item)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_units_of_the_documentation() {
        for (instance_type, expected) in [
            ("t4g.nano", Some(0.25)),
            ("m7i.large", Some(4.0)),
            ("m7i.xlarge", Some(8.0)),
            ("m7i.12xlarge", Some(96.0)),
            ("m7i.metal-24xl", Some(192.0)),
            ("m5.metal", Some(192.0)),
            ("m7i.huge", None),
            ("m7i", None),
        ] {
            assert_eq!(units(instance_type, 96.0), expected, "{instance_type}");
        }
    }

    #[test]
    fn regional_ones_of_most_families_apply_to_all_sizes() {
        let of = |instance_type: &str, zone: Option<&str>| ReservedInstances {
            id: String::new(),
            instance_type: instance_type.to_owned(),
            zone: zone.map(str::to_owned),
            count: 1.0,
            price: 0.1,
            end: None,
        };
        assert!(of("m7i.large", None).is_flexible());
        assert!(!of("m7i.large", Some("eu-west-1a")).is_flexible());
        assert!(!of("g5.xlarge", None).is_flexible());
        assert!(!of("u7i-12tb.224xlarge", None).is_flexible());
    }
}
