//! Which offering a pretended launch gets: the cheapest that the claim allows.

use tenon_crds::{NodeClaim, Requirement, labels};
use tenon_planner::snapshot::{Catalog, InstanceType, Offering};

/// The cheapest available offering among the claim's instance types that meets its requirements.
/// Ties go to the type that comes first in the catalog.
pub(super) fn cheapest<'c>(
    catalog: &'c Catalog,
    claim: &NodeClaim,
) -> Option<(&'c InstanceType, &'c Offering)> {
    let requirements = &claim.spec.requirements;
    catalog
        .instance_types
        .iter()
        .filter(|kind| {
            // Of several values, which a type has for its zones and ways to buy it, the offering
            // picks one.
            kind.requirements.iter().all(|has| match has.values.as_slice() {
                [] => allows(requirements, &has.key, None),
                values => values.iter().any(|value| allows(requirements, &has.key, Some(value))),
            })
        })
        .flat_map(|kind| kind.offerings.iter().map(move |offering| (kind, offering)))
        .filter(|(_, offering)| offering.available)
        .filter(|(_, offering)| {
            allows(requirements, labels::ZONE, Some(&offering.zone))
                && allows(
                    requirements,
                    labels::CAPACITY_TYPE,
                    Some(offering.capacity_type.as_str()),
                )
                && offering
                    .requirements
                    .iter()
                    .all(|has| allows(requirements, &has.key, single(&has.values)))
        })
        .min_by_key(|(_, offering)| offering.price)
}

fn single(values: &[String]) -> Option<&str> {
    match values {
        [only] => Some(only),
        _ => None,
    }
}

/// Whether all requirements on `key` allow this value (`None`: the label is absent).
fn allows(requirements: &[Requirement], key: &str, value: Option<&str>) -> bool {
    requirements
        .iter()
        .filter(|requirement| requirement.key == key)
        .all(|requirement| requirement.operator.admits(&requirement.values, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_crds::Operator;

    fn claim(requirements: &[(&str, Operator, &[&str])]) -> NodeClaim {
        let mut claim = NodeClaim::new("c", tenon_crds::NodeClaimSpec::default());
        claim.spec.requirements = requirements
            .iter()
            .map(|(key, operator, values)| Requirement {
                key: (*key).to_owned(),
                operator: *operator,
                values: values.iter().map(|&value| value.to_owned()).collect(),
                min_values: None,
            })
            .collect();
        claim
    }

    fn catalog() -> Catalog {
        Catalog {
            node_class: super::super::class_reference("default"),
            instance_types: tenon_state::catalog::generate(),
        }
    }

    #[test]
    fn takes_the_cheapest_offering_that_the_claim_allows() {
        let catalog = catalog();
        let linux = (labels::OS, Operator::In, &["linux"][..]);
        let (kind, offering) = cheapest(&catalog, &claim(&[linux])).unwrap();
        assert_eq!(kind.capacity.cpu, 1000, "the smallest type");
        assert_eq!(offering.capacity_type.as_str(), "spot");
        let on_demand = (labels::CAPACITY_TYPE, Operator::NotIn, &["spot"][..]);
        let large = (labels::kwok::INSTANCE_CPU, Operator::Gt, &["8"][..]);
        let zone = (labels::ZONE, Operator::In, &["test-zone-c"][..]);
        let (kind, offering) =
            cheapest(&catalog, &claim(&[linux, on_demand, large, zone])).unwrap();
        assert_eq!((kind.capacity.cpu, offering.zone.as_str()), (16_000, "test-zone-c"));
        assert_eq!(offering.capacity_type.as_str(), "on-demand");
    }

    #[test]
    fn a_claim_that_leaves_zone_and_capacity_type_open_gets_the_cheapest_of_them() {
        let both = (labels::CAPACITY_TYPE, Operator::In, &["on-demand", "spot"][..]);
        let zones = (labels::ZONE, Operator::In, &["test-zone-b", "test-zone-c"][..]);
        let catalog = catalog();
        let (_, offering) = cheapest(&catalog, &claim(&[both, zones])).unwrap();
        assert_eq!(
            (offering.zone.as_str(), offering.capacity_type.as_str()),
            ("test-zone-b", "spot")
        );
    }

    #[test]
    fn finds_nothing_where_nothing_is_allowed() {
        let nowhere = (labels::ZONE, Operator::In, &["elsewhere"][..]);
        assert_eq!(cheapest(&catalog(), &claim(&[nowhere])), None);
        let absent = (labels::kwok::INSTANCE_SIZE, Operator::DoesNotExist, &[][..]);
        assert_eq!(cheapest(&catalog(), &claim(&[absent])), None);
    }
}
