//! NodeOverlays as the planner takes them.

use jiff::Timestamp;
use tenon_crds::labels::LabelRules;
use tenon_crds::{NodeOverlay, Requirement, validation};
use tenon_planner::snapshot as plan;

use super::{Catalogs, requirements};
use crate::cluster::{Cluster, name};
use crate::resources;

impl Cluster {
    /// What NodeOverlays are about: NodePools, what can be launched for them, and the overlays.
    /// Without machines and pods, so it is made quickly.
    pub fn offers(&self, catalogs: &impl Catalogs, now: Timestamp) -> plan::Snapshot {
        let pools: Vec<_> = self.pools.values().collect();
        let catalogs = Self::catalogs(&pools, catalogs);
        plan::Snapshot {
            node_pools: pools.iter().map(|pool| self.pool_in(pool, &catalogs, now)).collect(),
            catalogs: catalogs.into_values().collect(),
            overlays: self.overlays_in(),
            ..plan::Snapshot::default()
        }
    }

    /// The overlays that are valid by themselves, in the planner's order.
    pub(super) fn overlays_in(&self) -> Vec<plan::NodeOverlay> {
        let overlays = self.overlays().filter_map(|object| overlay(object, self.rules()).ok());
        let mut overlays: Vec<plan::NodeOverlay> = overlays.collect();
        overlays.sort_by(|a, b| (b.weight, &b.name).cmp(&(a.weight, &a.name)));
        overlays
    }
}

/// An overlay as the planner takes it; `Err` says what is wrong with it.
pub fn overlay(object: &NodeOverlay, rules: &LabelRules) -> Result<plan::NodeOverlay, String> {
    let spec = &object.spec;
    let wanted: Vec<Requirement> = spec.requirements.iter().cloned().map(Into::into).collect();
    for (index, requirement) in wanted.iter().enumerate() {
        // Its NodePool is what an overlay may ask for, and users may not set.
        if requirement.key == tenon_crds::labels::NODEPOOL {
            continue;
        }
        if let Some(problem) = validation::requirement(requirement, rules).first() {
            return Err(format!("spec.requirements[{index}]: {problem}"));
        }
    }
    let change = plan::PriceChange::parse(spec.price.as_deref(), spec.price_adjustment.as_deref())?;
    let capacity = spec.capacity.iter().flatten();
    Ok(plan::NodeOverlay {
        name: name(&object.metadata),
        weight: spec.weight.unwrap_or(0),
        requirements: requirements(&wanted, rules),
        price: change,
        capacity: capacity
            .map(|(name, &amount)| (name.clone(), resources::amount(name, amount)))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Change, Object};
    use serde_json::{Value, json};

    fn parsed(name: &str, spec: &Value) -> NodeOverlay {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
            "metadata": {"name": name}, "spec": spec,
        }))
        .unwrap()
    }

    fn arch() -> Value {
        json!([{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["b", "a"]}])
    }

    #[test]
    fn overlays_come_by_weight_and_those_that_mean_nothing_are_left_out() {
        let mut cluster = Cluster::new(&[], LabelRules::core());
        for (name, spec) in [
            ("light", json!({"requirements": [], "price": "1"})),
            ("a", json!({"requirements": [], "weight": 5, "price": "1"})),
            ("b", json!({"requirements": [], "weight": 5, "price": "1"})),
            ("broken", json!({"requirements": [], "weight": 9, "priceAdjustment": "+x"})),
        ] {
            cluster.apply(Change::Applied(Object::NodeOverlay(Box::new(parsed(name, &spec)))));
        }
        let names: Vec<String> = cluster.overlays_in().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["b", "a", "light"]);
    }

    #[test]
    fn an_overlay_is_normalised_as_everything_that_the_planner_compares() {
        let spec = json!({"requirements": arch(), "priceAdjustment": "-10%",
            "capacity": {"smarter-devices/fuse": "2", "hugepages-2Mi": "1Gi"}});
        let overlay = overlay(&parsed("a", &spec), &LabelRules::core()).unwrap();
        assert_eq!(overlay.requirements[0].key, "kubernetes.io/arch");
        assert_eq!(overlay.requirements[0].values, ["a", "b"]);
        assert_eq!(overlay.price, Some(plan::PriceChange::Scale(-100_000)));
        let amounts: Vec<_> = overlay.capacity.into_iter().collect();
        let fuse = ("smarter-devices/fuse".to_owned(), 2);
        assert_eq!(amounts, [("hugepages-2Mi".to_owned(), 1 << 30), fuse]);
    }

    #[test]
    fn what_is_wrong_with_an_overlay_is_said() {
        let why = |spec: Value| overlay(&parsed("a", &spec), &LabelRules::core()).unwrap_err();
        let of_pool = json!([{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}]);
        assert!(
            overlay(&parsed("a", &json!({"requirements": of_pool})), &LabelRules::core()).is_ok()
        );
        let hostname = json!([{"key": "kubernetes.io/hostname", "operator": "Exists"}]);
        assert!(why(json!({"requirements": hostname})).starts_with("spec.requirements[0]: "));
        assert!(
            why(json!({"requirements": [], "price": "1", "priceAdjustment": "+1"}))
                .contains("exclude each other")
        );
    }
}
