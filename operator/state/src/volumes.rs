//! Where a pod can run because of its volumes.
//!
//! A bound PersistentVolumeClaim restricts its pods to where its volume can be attached; an unbound one to where its StorageClass can make a volume.
//! Several volumes restrict together. The rules are kube-scheduler's: what it would wait for, we can't plan for either.

use tenon_crds::labels::{HOSTNAME, LabelRules};
use tenon_planner::snapshot::{Operator, Requirement};

use crate::change::ObjectKey;
use crate::cluster::Cluster;
use crate::shape;
use crate::wire::{PersistentVolume, PersistentVolumeClaim, StorageClass};

/// Alternatives, each a conjunction of requirements. Empty is anywhere.
pub type Topology = Vec<Vec<Requirement>>;

/// Where a pod with these PersistentVolumeClaims can run; `Err` says why that can't be known, in Karpenter's words.
pub fn topology(
    cluster: &Cluster,
    namespace: &str,
    claims: &[String],
    rules: &LabelRules,
) -> Result<Topology, String> {
    let mut all = Topology::new();
    for name in claims {
        let key = ObjectKey::new(namespace, name.as_str());
        let Some(claim) = cluster.volume_claim(&key) else {
            return Err(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        let alternatives = claim_topology(cluster, name, claim, rules)?;
        if !alternatives.is_empty() {
            all = combine(&all, &alternatives);
        }
    }
    Ok(all)
}

fn claim_topology(
    cluster: &Cluster,
    name: &str,
    claim: &PersistentVolumeClaim,
    rules: &LabelRules,
) -> Result<Topology, String> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
    }
    if claim.status.phase.as_deref() == Some("Lost") {
        return Err(format!("persistentvolumeclaim \"{name}\" bound to non-existent volume"));
    }
    if let Some(volume) = claim.spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
        let volume = cluster
            .volume(volume)
            .ok_or_else(|| format!("persistentvolume \"{volume}\" not found"))?;
        return Ok(volume_topology(volume, rules));
    }
    let class = claim.spec.storage_class_name.as_deref().filter(|name| !name.is_empty());
    let class =
        class.ok_or_else(|| format!("unbound pvc \"{name}\" must define a storage class"))?;
    let class = cluster
        .storage_class(class)
        .ok_or_else(|| format!("storage class \"{class}\" not found"))?;
    class_topology(name, class, rules)
}

fn volume_topology(volume: &PersistentVolume, rules: &LabelRules) -> Topology {
    let terms = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    // The machine of a local volume is not a constraint on new machines: its pod can only run there or has lost its data anyway.
    let local = volume.spec.local.is_some() || volume.spec.host_path.is_some();
    let Some(terms) = terms else { return Topology::new() };
    let mut alternatives: Topology =
        terms.node_selector_terms.iter().map(|term| shape::conjunction(term, rules)).collect();
    if local {
        for alternative in &mut alternatives {
            alternative.retain(|requirement| requirement.key != HOSTNAME);
        }
    }
    alternatives
}

fn class_topology(
    claim: &str,
    class: &StorageClass,
    rules: &LabelRules,
) -> Result<Topology, String> {
    if class.volume_binding_mode.as_deref().unwrap_or("Immediate") == "Immediate" {
        return Err(format!("pvc \"{claim}\" has immediate binding mode and must be bound first"));
    }
    let terms = class.allowed_topologies.iter().map(|term| {
        let expressions = term.match_label_expressions.iter().flatten();
        let requirement = |key: &str, values: &[String]| {
            let mut values = values.to_vec();
            values.sort();
            values.dedup();
            let key = rules.normalize(key).to_owned();
            Requirement { key, operator: Operator::In, values, min_values: None }
        };
        expressions.into_iter().map(|e| requirement(&e.key, &e.values)).collect()
    });
    Ok(terms.collect())
}

/// Every pair of alternatives that can hold at once. When there is none, all pairs: the pod then fits nowhere, for a reason that can be told.
fn combine(left: &Topology, right: &Topology) -> Topology {
    if left.is_empty() {
        return right.clone();
    }
    let pairs = || {
        left.iter().flat_map(|a| {
            right.iter().map(move |b| a.iter().chain(b).cloned().collect::<Vec<Requirement>>())
        })
    };
    let possible: Topology =
        pairs().filter(|alternative| !contradicts_itself(alternative)).collect();
    if possible.is_empty() { pairs().collect() } else { possible }
}

/// Whether two `In` requirements on one key share no value. Other contradictions are left to the planner.
fn contradicts_itself(alternative: &[Requirement]) -> bool {
    alternative.iter().enumerate().any(|(i, a)| {
        alternative[..i].iter().any(|b| {
            a.key == b.key
                && a.operator == Operator::In
                && b.operator == Operator::In
                && !a.values.iter().any(|value| b.values.contains(value))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Change, Object};
    use serde_json::{Value, json};

    fn cluster(volumes: Vec<Value>, claims: Vec<Value>, classes: Vec<Value>) -> Cluster {
        let mut cluster = Cluster::new(&[], LabelRules::core());
        for value in volumes {
            let object: Box<PersistentVolume> = serde_json::from_value(value).unwrap();
            cluster.apply(Change::Applied(Object::PersistentVolume(object)));
        }
        for value in claims {
            let object: Box<PersistentVolumeClaim> = serde_json::from_value(value).unwrap();
            cluster.apply(Change::Applied(Object::PersistentVolumeClaim(object)));
        }
        for value in classes {
            let object: Box<StorageClass> = serde_json::from_value(value).unwrap();
            cluster.apply(Change::Applied(Object::StorageClass(object)));
        }
        cluster
    }

    fn zonal(name: &str, zones: &[&str]) -> Value {
        let terms: Vec<Value> = zones
            .iter()
            .map(|zone| {
                json!({"matchExpressions": [
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
                ]})
            })
            .collect();
        json!({"metadata": {"name": name}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}})
    }

    fn bound(name: &str, volume: &str) -> Value {
        json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"volumeName": volume}, "status": {"phase": "Bound"},
        })
    }

    fn unbound(name: &str, class: &str) -> Value {
        json!({"metadata": {"namespace": "default", "name": name}, "spec": {"storageClassName": class}})
    }

    fn zones(cluster: &Cluster, claims: &[&str]) -> Result<Vec<String>, String> {
        let claims: Vec<String> = claims.iter().map(|&claim| claim.to_owned()).collect();
        let topology = topology(cluster, "default", &claims, &LabelRules::core())?;
        let text = |alternative: &Vec<Requirement>| {
            alternative.iter().map(|r| r.values.join(",")).collect::<Vec<_>>().join("&")
        };
        Ok(topology.iter().map(text).collect())
    }

    #[test]
    fn bound_volumes_restrict_to_where_all_of_them_can_be_attached() {
        let cluster = cluster(
            vec![zonal("v1", &["a", "b"]), zonal("v2", &["b", "c"])],
            vec![bound("c1", "v1"), bound("c2", "v2")],
            vec![],
        );
        assert_eq!(zones(&cluster, &["c1"]).unwrap(), ["a", "b"]);
        assert_eq!(zones(&cluster, &["c1", "c2"]).unwrap(), ["b&b"]);
    }

    #[test]
    fn volumes_that_can_be_nowhere_together_still_say_where_each_could_be() {
        let cluster = cluster(
            vec![zonal("v1", &["a"]), zonal("v2", &["c"])],
            vec![bound("c1", "v1"), bound("c2", "v2")],
            vec![],
        );
        assert_eq!(zones(&cluster, &["c1", "c2"]).unwrap(), ["a&c"]);
    }

    #[test]
    fn a_local_volume_does_not_ask_for_its_machine() {
        let local = json!({"metadata": {"name": "v"}, "spec": {"local": {"path": "/"}, "nodeAffinity": {"required":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}]}]}}}});
        let cluster = cluster(vec![local], vec![bound("c", "v")], vec![]);
        assert_eq!(zones(&cluster, &["c"]).unwrap(), [""]);
    }

    #[test]
    fn an_unbound_claim_follows_its_class_or_says_why_it_can_not() {
        let cluster = cluster(
            vec![],
            vec![unbound("late", "late"), unbound("now", "now"), unbound("none", "none")],
            vec![
                json!({"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [
                    {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["b", "a"]}]},
                ]}),
                json!({"metadata": {"name": "now"}, "volumeBindingMode": "Immediate"}),
            ],
        );
        assert_eq!(zones(&cluster, &["late"]).unwrap(), ["a,b"]);
        assert!(zones(&cluster, &["now"]).unwrap_err().contains("must be bound first"));
        assert!(
            zones(&cluster, &["none"]).unwrap_err().contains("storage class \"none\" not found")
        );
        assert!(zones(&cluster, &["absent"]).unwrap_err().contains("\"absent\" not found"));
    }
}
