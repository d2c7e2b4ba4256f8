//! The default NodePool and EC2NodeClass of the seeds, made to fit this bed.

use serde_json::{Value, json};

const NODE_POOL: &str = include_str!("../../../fixtures/seeds/default-nodepool.yaml");
const NODE_CLASS: &str = include_str!("../../../fixtures/seeds/default-ec2nodeclass.yaml");

/// The pair, as objects.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) node_pool: Value,
    pub(super) node_class: Value,
}

/// What changes: the cluster's name in the discovery tags, the zones, the node role that the
/// installer made instead of an instance profile that somebody else made, and, so that the demo
/// does not take an hour, a short `consolidateAfter` and no budget that rests in working hours.
pub(super) fn pair(cluster: &str, zones: &[String], role: &str) -> Pair {
    let parse =
        |text: &str| -> Value { serde_saphyr::from_str(text).expect("the fixture is YAML") };
    let (mut node_pool, mut node_class) = (parse(NODE_POOL), parse(NODE_CLASS));
    let spec = &mut node_class["spec"];
    for terms in ["subnetSelectorTerms", "securityGroupSelectorTerms"] {
        spec[terms] = json!([{ "tags": { "karpenter.sh/discovery": cluster } }]);
    }
    spec["tags"]["karpenter.sh/discovery"] = json!(cluster);
    spec.as_object_mut().expect("a spec is a map").remove("instanceProfile");
    spec["role"] = json!(role);
    let requirements = node_pool["spec"]["template"]["spec"]["requirements"].as_array_mut();
    for requirement in requirements.into_iter().flatten() {
        if requirement["key"] == "topology.kubernetes.io/zone" {
            requirement["values"] = json!(zones);
        }
    }
    node_pool["spec"]["disruption"]["consolidateAfter"] = json!("2s");
    node_pool["spec"]["disruption"]["budgets"] = json!([{ "nodes": "50%" }]);
    Pair { node_pool, node_class }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_fits_the_bed_and_is_otherwise_as_it_was_given() {
        let zones = ["eu-central-1a".to_owned()];
        let Pair { node_pool, node_class } = pair("bed", &zones, "node-role");
        let text = node_pool.to_string() + &node_class.to_string();
        assert!(!text.contains("my-cluster") && !text.contains("eu-north-1"), "{text}");
        assert_eq!(node_class["spec"]["role"], "node-role");
        assert_eq!(node_class["spec"]["instanceProfile"], Value::Null);
        assert_eq!(node_class["spec"]["metadataOptions"]["httpPutResponseHopLimit"], 1);
        assert_eq!(node_pool["spec"]["weight"], 10);
    }
}
