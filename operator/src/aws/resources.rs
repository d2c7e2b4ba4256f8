//! Between the API's quantities and the planner's integers.

use tenon_crds::{Quantity, ResourceList};
use tenon_planner::resources::Resources;

/// Amounts in the planner's units; fractions are rounded up.
pub fn from_list(list: &ResourceList) -> Resources {
    let mut resources = Resources::default();
    for (name, quantity) in list {
        let amount = if name == "cpu" { quantity.millis() } else { quantity.units() };
        resources.set(name, amount);
    }
    resources
}

/// Quantities of the amounts that are not zero.
pub fn to_list(resources: &Resources) -> ResourceList {
    resources
        .iter()
        .map(|(name, amount)| {
            let quantity = match name {
                "cpu" => Quantity::from_millis(amount),
                "memory" | "ephemeral-storage" => Quantity::from_bytes(amount),
                _ => Quantity::from_units(amount),
            };
            (name.to_owned(), quantity)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_survive_the_round_trip() {
        let list: ResourceList = [("cpu", "1930m"), ("memory", "6903Mi"), ("nvidia.com/gpu", "1")]
            .into_iter()
            .map(|(name, quantity)| (name.to_owned(), quantity.parse().unwrap()))
            .collect();
        let resources = from_list(&list);
        assert_eq!((resources.cpu, resources.memory), (1930, 6903 << 20));
        assert_eq!(to_list(&resources), list);
    }
}
