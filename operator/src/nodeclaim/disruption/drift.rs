//! Drift: what a machine is, against what its NodePool asks for now.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tenon_crds::conditions::nodeclaim::LAUNCHED;
use tenon_crds::labels::{self, LabelRules};
use tenon_crds::{NodeClaim, NodePool, Requirement};
use tenon_planner::snapshot as plan;

use crate::state::cluster::{annotation, is_true, label};
use crate::watch::wire::created_at;

/// Whether there is a machine that could differ.
pub(super) fn is_launched(claim: &NodeClaim) -> bool {
    is_true(claim, LAUNCHED)
}

/// Why the NodeClaim differs from its NodePool.
pub(super) fn by_pool(
    claim: &NodeClaim,
    pool: &NodePool,
    rules: &LabelRules,
) -> Option<&'static str> {
    if hash_differs(claim, pool) {
        return Some("NodePoolDrifted");
    }
    let empty = BTreeMap::new();
    let labels = claim.metadata.labels.as_ref().unwrap_or(&empty);
    let requirements = &pool.spec.template.spec.requirements;
    let meets = |requirement| satisfies(labels, requirement, rules);
    (!requirements.iter().all(meets)).then_some("RequirementsDrifted")
}

/// Hashes of different versions say nothing about each other.
fn hash_differs(claim: &NodeClaim, pool: &NodePool) -> bool {
    let on_pool = |key| pool.metadata.annotations.as_ref()?.get(key).map(String::as_str);
    let hash = (on_pool(labels::NODEPOOL_HASH), annotation(claim, labels::NODEPOOL_HASH));
    let version =
        (on_pool(labels::NODEPOOL_HASH_VERSION), annotation(claim, labels::NODEPOOL_HASH_VERSION));
    match (hash, version) {
        ((Some(pool), Some(claim)), (Some(pool_version), Some(claim_version))) => {
            pool_version == claim_version && pool != claim
        }
        _ => false,
    }
}

/// Whether labels that are known exactly meet a requirement. A label that is missing meets only
/// what asks for its absence.
fn satisfies(
    labels: &BTreeMap<String, String>,
    requirement: &Requirement,
    rules: &LabelRules,
) -> bool {
    let value = labels.get(rules.normalize(&requirement.key)).map(String::as_str);
    requirement.operator.admits(&requirement.values, value)
}

/// Whether to look the machine up in the catalog: it is an hour old, and was not found there in the
/// last half hour.
pub(super) fn is_catalog_due(
    claim: &NodeClaim,
    checked: &Mutex<BTreeMap<String, Timestamp>>,
    now: Timestamp,
) -> bool {
    const OLD: SignedDuration = SignedDuration::from_hours(1);
    const FRESH: SignedDuration = SignedDuration::from_mins(30);
    let mut checked = checked.lock();
    checked.retain(|_, at| now.duration_since(*at) < FRESH);
    let known = claim.metadata.uid.as_ref().is_some_and(|uid| checked.contains_key(uid));
    now.duration_since(created_at(&claim.metadata)) > OLD && !known
}

/// Whether the machine's type, or the way in which it was bought, is not on offer any more.
pub(super) fn by_catalog(claim: &NodeClaim, catalog: &plan::Catalog) -> bool {
    let name = label(claim, labels::INSTANCE_TYPE).unwrap_or_default();
    let types = &catalog.instance_types;
    let Ok(index) = types.binary_search_by(|it| it.name.as_str().cmp(name)) else { return true };
    let zone = label(claim, labels::ZONE);
    let capacity_type = label(claim, labels::CAPACITY_TYPE).and_then(plan::CapacityType::parse);
    // A reservation that has ended leaves the machine as if it had been bought on demand.
    let alike = |offered: plan::CapacityType| match capacity_type {
        None => true,
        Some(plan::CapacityType::Reserved) => offered != plan::CapacityType::Spot,
        Some(capacity_type) => offered == capacity_type,
    };
    !types[index].offerings.iter().any(|offering| {
        zone.is_none_or(|zone| zone == offering.zone) && alike(offering.capacity_type)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tenon_planner::resources::{MicroUsd, Resources};

    fn pool(hash: &str, version: &str, requirements: &serde_json::Value) -> NodePool {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "default", "annotations": {
                "karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": version}},
            "spec": {"template": {"spec": {
                "requirements": requirements, "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}},
        }))
        .unwrap()
    }

    fn claim(hash: &str, version: &str) -> NodeClaim {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut claim = NodeClaim::new("a", tenon_crds::NodeClaimSpec::default());
        claim.metadata.annotations = Some(
            [pair(labels::NODEPOOL_HASH, hash), pair(labels::NODEPOOL_HASH_VERSION, version)]
                .into(),
        );
        claim.metadata.labels = Some(
            [
                pair(labels::INSTANCE_TYPE, "c-4x"),
                pair(labels::ZONE, "a"),
                pair(labels::CAPACITY_TYPE, "spot"),
                pair("cpu", "4"),
            ]
            .into(),
        );
        claim
    }

    #[test]
    fn hashes_count_only_within_one_version() {
        let rules = LabelRules::core();
        let none = json!([]);
        let by = |claim: &NodeClaim, pool: &NodePool| by_pool(claim, pool, &rules);
        assert_eq!(by(&claim("1", "v3"), &pool("1", "v3", &none)), None);
        assert_eq!(by(&claim("1", "v3"), &pool("2", "v3", &none)), Some("NodePoolDrifted"));
        assert_eq!(by(&claim("1", "v2"), &pool("2", "v3", &none)), None);
    }

    #[test]
    fn requirements_are_met_by_labels_alone() {
        let rules = LabelRules::core();
        for (key, operator, values, drifted) in [
            ("topology.kubernetes.io/zone", "In", json!(["a", "b"]), false),
            ("failure-domain.beta.kubernetes.io/zone", "In", json!(["b"]), true),
            ("cpu", "Gt", json!(["3"]), false),
            ("cpu", "Gte", json!(["5"]), true),
            ("cpu", "Lte", json!(["4"]), false),
            ("absent", "Exists", json!([]), true),
            ("absent", "DoesNotExist", json!([]), false),
            ("absent", "NotIn", json!(["x"]), false),
            ("absent", "Lt", json!(["4"]), true),
        ] {
            let requirements = json!([{"key": key, "operator": operator, "values": values}]);
            let reason = by_pool(&claim("1", "v3"), &pool("1", "v3", &requirements), &rules);
            assert_eq!(reason.is_some(), drifted, "{requirements}");
        }
    }

    #[test]
    fn a_type_or_offering_that_is_gone_is_drift_and_one_that_is_only_sold_out_is_not() {
        let offering = |zone: &str, capacity_type| plan::Offering {
            zone: zone.to_owned(),
            capacity_type,
            requirements: Vec::new(),
            price: MicroUsd(1),
            available: false,
            reservation_capacity: None,
            unpriced: None,
        };
        let catalog = |name: &str, offerings| plan::Catalog {
            node_class: plan::NodeClassRef::default(),
            instance_types: vec![plan::InstanceType {
                name: name.to_owned(),
                requirements: Vec::new(),
                capacity: Resources::default(),
                overhead: Resources::default(),
                offerings,
                ..plan::InstanceType::default()
            }],
        };
        use plan::CapacityType::{OnDemand, Spot};
        assert!(!by_catalog(&claim("", ""), &catalog("c-4x", vec![offering("a", Spot)])));
        assert!(by_catalog(
            &claim("", ""),
            &catalog("c-4x", vec![offering("b", Spot), offering("a", OnDemand)])
        ));
        assert!(by_catalog(&claim("", ""), &catalog("c-8x", vec![offering("a", Spot)])));
        let mut reserved = claim("", "");
        let own = reserved.metadata.labels.as_mut().unwrap();
        own.insert(labels::CAPACITY_TYPE.to_owned(), "reserved".to_owned());
        assert!(!by_catalog(&reserved, &catalog("c-4x", vec![offering("a", OnDemand)])));
    }
}
