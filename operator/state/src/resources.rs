//! Between the quantities of the API and the integers of the planner.

use tenon_crds::{Quantity, ResourceList};
use tenon_planner::resources::Resources;

/// An amount of a resource in the planner's unit: CPU in millicores, everything else in whole
/// units, rounded up.
pub fn amount(name: &str, quantity: Quantity) -> i64 {
    if name == "cpu" { quantity.millis() } else { quantity.units() }
}

/// Amounts in the planner's units.
pub fn from_list(list: &ResourceList) -> Resources {
    let mut resources = Resources::default();
    for (name, &quantity) in list {
        resources.set(name, amount(name, quantity));
    }
    resources
}

/// An amount as the API writes it.
pub fn quantity(name: &str, amount: i64) -> Quantity {
    match name {
        "cpu" => Quantity::from_millis(amount),
        "memory" | "ephemeral-storage" => Quantity::from_bytes(amount),
        _ if name.starts_with("hugepages-") => Quantity::from_bytes(amount),
        _ => Quantity::from_units(amount),
    }
}

/// The resources that are not zero, as the API writes them.
pub fn to_list(resources: &Resources) -> ResourceList {
    resources.iter().map(|(name, amount)| (name.to_owned(), quantity(name, amount))).collect()
}

/// The resources that are not zero, for logs: `cpu=1500m, memory=3Gi`.
pub fn text(resources: &Resources) -> String {
    let pairs: Vec<String> = resources
        .iter()
        .map(|(name, amount)| format!("{name}={}", quantity(name, amount)))
        .collect();
    pairs.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_survive_the_way_there_and_back() {
        let list: ResourceList =
            [("cpu", "1500m"), ("memory", "3Gi"), ("pods", "110"), ("nvidia.com/gpu", "2")]
                .map(|(name, text)| (name.to_owned(), text.parse().unwrap()))
                .into();
        let resources = from_list(&list);
        assert_eq!(resources.cpu, 1500);
        assert_eq!(resources.memory, 3 << 30);
        assert_eq!(resources.get("nvidia.com/gpu"), 2);
        assert_eq!(to_list(&resources), list);
    }
}
