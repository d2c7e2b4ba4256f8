//! What a plan does to nodes: how many NodeClaims drift, because their NodePool or EC2NodeClass becomes another one.
//!
//! Only hashes of the same version are compared, as the operator does; it rewrites those of older versions without calling that a drift.

use serde::Serialize;
use serde_json::Value;
use tenon_crds::hash::{
    EC2_NODE_CLASS_HASH_VERSION, NODE_POOL_HASH_VERSION, ec2_node_class, node_pool,
};
use tenon_crds::labels::{self, aws};
use tenon_crds::{EC2NodeClass, NodePool};

use crate::kubernetes::object::{Object, annotation, label};
use crate::plan::{Action, Plan};

/// NodeClaims that drift by one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// The NodePool or EC2NodeClass.
    pub object: String,
    /// Names of its NodeClaims that no longer fit.
    pub node_claims: Vec<String>,
}

/// What drifts when the plan is carried out. `certificate_authority` of the cluster is a part of what nodes are started with.
pub fn drifting(plan: &Plan, claims: &[Value], certificate_authority: Option<&str>) -> Vec<Drift> {
    let changed = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Apply(object) => Some(object),
        _ => None,
    });
    let drift = |object: &Object| {
        let fits: Box<dyn Fn(&Value) -> bool> = match object.resource.kind.as_str() {
            "NodePool" => {
                let pool: NodePool = serde_json::from_value(object.body.clone()).ok()?;
                let hash = node_pool(&pool.spec);
                let name = object.name.clone();
                Box::new(move |claim| {
                    label(claim, labels::NODEPOOL) != Some(&name)
                        || annotation(claim, labels::NODEPOOL_HASH_VERSION)
                            != Some(NODE_POOL_HASH_VERSION)
                        || annotation(claim, labels::NODEPOOL_HASH) == Some(&hash)
                })
            }
            "EC2NodeClass" => {
                let class: EC2NodeClass = serde_json::from_value(object.body.clone()).ok()?;
                let hash = ec2_node_class(&class.spec, certificate_authority);
                let name = object.name.clone();
                Box::new(move |claim| {
                    claim["spec"]["nodeClassRef"]["name"] != name.as_str()
                        || annotation(claim, aws::EC2NODECLASS_HASH_VERSION)
                            != Some(EC2_NODE_CLASS_HASH_VERSION)
                        || annotation(claim, aws::EC2NODECLASS_HASH) == Some(&hash)
                })
            }
            _ => return None,
        };
        let name = |claim: &Value| {
            claim.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let node_claims = claims.iter().filter(|claim| !fits(claim)).map(name).collect::<Vec<_>>();
        (!node_claims.is_empty()).then(|| Drift { object: object.key().to_string(), node_claims })
    };
    changed.filter_map(drift).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Op, Step};
    use serde_json::json;

    fn pool(expire_after: &str) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {"template": {"spec": {
                "expireAfter": expire_after,
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            }}},
        })
    }

    fn claim(name: &str, pool: &str, hash: &str, version: &str) -> Value {
        json!({"metadata": {
            "name": name,
            "labels": {(labels::NODEPOOL): pool},
            "annotations": {(labels::NODEPOOL_HASH): hash, (labels::NODEPOOL_HASH_VERSION): version},
        }})
    }

    #[test]
    fn claims_of_a_changed_pool_drift_and_others_don_t() {
        let before: NodePool = serde_json::from_value(pool("720h")).expect("a pool");
        let before = node_pool(&before.spec);
        let claims = [
            claim("a", "default", &before, NODE_POOL_HASH_VERSION),
            claim("other-pool", "other", &before, NODE_POOL_HASH_VERSION),
            claim("older-hash", "default", "0", "v1"),
        ];
        let of = |body: Value| {
            let object = Object::from_json(body, "nodepools");
            let step = Step::new("x", "NodePool", "default", Op::Update, Action::Apply(object));
            drifting(&Plan { steps: vec![step], ..Plan::default() }, &claims, None)
        };
        assert_eq!(of(pool("720h")), []);
        let drifts = of(pool("24h"));
        assert_eq!(drifts.len(), 1);
        assert_eq!(drifts[0].node_claims, ["a"]);
    }
}
