//! One price table for the whole double: CreateFleet's choice, spot price history and the Pricing
//! service all answer from it.
//!
//! On-demand list prices are a table of facts (`prices.tsv`: type, USD per hour); a type that isn't
//! in it gets a price from its size. Spot prices are a share of the on-demand price that differs by
//! type and zone and is the same in every run. Both can be changed while the bed runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use super::catalog::InstanceType;

const TABLE: &str = include_str!("prices.tsv");

/// On-demand prices by type.
static LISTED: LazyLock<BTreeMap<&'static str, MicroUsd>> = LazyLock::new(|| {
    TABLE
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(name, price)| Some((name, MicroUsd::dollars(price.parse().ok()?))))
        .collect()
});

/// A price in millionths of a US dollar per hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// A price in dollars; fractions below a millionth are cut.
    pub fn dollars(dollars: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "prices are positive and far below 2^53 millionths"
        )]
        Self((dollars.max(0.0) * 1e6).round() as u64)
    }
}

impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// How capacity is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// At list price.
    OnDemand,
    /// At spot price, until it is taken back.
    Spot,
}

impl CapacityType {
    /// As AWS and Karpenter write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
        }
    }
}

/// The prices of one region.
#[derive(Debug, Default)]
pub struct Prices {
    /// By type, zone (`*`: every zone) and capacity type.
    set: RwLock<BTreeMap<(String, String, CapacityType), MicroUsd>>,
}

impl Prices {
    /// The on-demand price of a type.
    pub fn on_demand(&self, instance_type: &InstanceType) -> MicroUsd {
        let name = &instance_type.name;
        if let Some(price) =
            self.set.read().get(&(name.clone(), "*".to_owned(), CapacityType::OnDemand))
        {
            return *price;
        }
        LISTED.get(name.as_str()).copied().unwrap_or_else(|| by_size(instance_type))
    }

    /// The spot price of a type in a zone.
    pub fn spot(&self, instance_type: &InstanceType, zone: &str) -> MicroUsd {
        let set = self.set.read();
        for zone in [zone, "*"] {
            if let Some(price) =
                set.get(&(instance_type.name.clone(), zone.to_owned(), CapacityType::Spot))
            {
                return *price;
            }
        }
        drop(set);
        // 28 to 47 % of the on-demand price.
        let percent = 28 + fnv(&[&instance_type.name, zone]) % 20;
        MicroUsd((self.on_demand(instance_type).0 * percent / 100).max(1))
    }

    /// The price of a type in a zone.
    pub fn of(
        &self,
        instance_type: &InstanceType,
        zone: &str,
        capacity_type: CapacityType,
    ) -> MicroUsd {
        match capacity_type {
            CapacityType::OnDemand => self.on_demand(instance_type),
            CapacityType::Spot => self.spot(instance_type, zone),
        }
    }

    /// Changes a price; `zone` `*` means every zone (on-demand prices have no zone).
    pub fn set(
        &self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
        price: MicroUsd,
    ) {
        let zone = if capacity_type == CapacityType::OnDemand { "*" } else { zone };
        self.set.write().insert((instance_type.to_owned(), zone.to_owned(), capacity_type), price);
    }
}

/// Plausible where no list price is known: so much per vCPU, GiB and accelerator.
fn by_size(instance_type: &InstanceType) -> MicroUsd {
    let arm = instance_type.architectures.iter().any(|arch| arch == "arm64");
    let per_vcpu = if arm { 30_000 } else { 36_000 };
    MicroUsd(
        u64::from(instance_type.vcpus) * per_vcpu
            + instance_type.memory_mib / 1024 * 4_500
            + u64::from(instance_type.accelerators) * 900_000,
    )
}

fn fnv(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_type(name: &str) -> InstanceType {
        InstanceType {
            name: name.to_owned(),
            vcpus: 2,
            memory_mib: 8192,
            ..InstanceType::default()
        }
    }

    #[test]
    fn spot_is_cheaper_than_on_demand_and_differs_by_zone() {
        let prices = Prices::default();
        let m5 = mk_type("m5.large");
        let zones: Vec<MicroUsd> =
            ["a", "b", "c"].iter().map(|zone| prices.spot(&m5, zone)).collect();
        assert!(zones.iter().all(|price| *price < prices.on_demand(&m5)));
        assert!(zones.windows(2).any(|pair| pair[0] != pair[1]), "{zones:?}");
    }

    #[test]
    fn a_type_without_a_list_price_gets_one_by_size() {
        assert_eq!(
            Prices::default().on_demand(&mk_type("z9.large")),
            MicroUsd(2 * 36_000 + 8 * 4_500)
        );
    }

    #[test]
    fn a_price_that_was_set_wins() {
        let prices = Prices::default();
        let m5 = mk_type("m5.large");
        prices.set("m5.large", "a", CapacityType::Spot, MicroUsd(7));
        prices.set("m5.large", "a", CapacityType::OnDemand, MicroUsd(9));
        assert_eq!((prices.spot(&m5, "a"), prices.on_demand(&m5)), (MicroUsd(7), MicroUsd(9)));
        assert_ne!(prices.spot(&m5, "b"), MicroUsd(7));
        assert_eq!(MicroUsd::dollars(0.102).to_string(), "0.102000");
    }
}
