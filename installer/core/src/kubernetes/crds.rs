//! The CRDs, embedded into the program as they are generated from the API types.

pub mod compatibility;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use self::compatibility::Known;
use super::object::Object;

/// Those that the AWS provider needs; KWOKNodeClass is for trying Tenon without AWS, and
/// CapacityBuffer may belong to another autoscaler.
const MANIFESTS: [&str; 4] = [
    include_str!("../../../../crds/manifests/karpenter.sh_nodepools.yaml"),
    include_str!("../../../../crds/manifests/karpenter.sh_nodeclaims.yaml"),
    include_str!("../../../../crds/manifests/karpenter.sh_nodeoverlays.yaml"),
    include_str!("../../../../crds/manifests/karpenter.k8s.aws_ec2nodeclasses.yaml"),
];

/// The CRDs.
///
/// # Panics
/// Never: the manifests are part of the program, and a test reads them.
pub fn objects() -> Vec<Object> {
    let read = |text: &str| {
        serde_saphyr::from_str::<Value>(text).expect("the embedded manifests are YAML")
    };
    MANIFESTS
        .iter()
        .map(|text| Object::from_json(read(text), "customresourcedefinitions"))
        .collect()
}

/// What this version knows of the CRDs' objects.
pub fn known() -> BTreeMap<String, Known> {
    static KNOWN: LazyLock<BTreeMap<String, Known>> =
        LazyLock::new(|| compatibility::known(&objects()));
    KNOWN.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_manifests_are_the_generated_definitions() {
        let mut embedded = objects().into_iter().map(|object| object.body).collect::<Vec<_>>();
        let mut generated = tenon_crds::manifests::all()
            .iter()
            .map(|crd| Object::new(crd).body)
            .filter(|body| {
                let kind = body["spec"]["names"]["kind"].as_str();
                !matches!(kind, Some("KWOKNodeClass" | "CapacityBuffer"))
            })
            .collect::<Vec<_>>();
        for list in [&mut embedded, &mut generated] {
            list.sort_by_key(|body| body["metadata"]["name"].to_string());
        }
        assert_eq!(embedded, generated);
    }
}
