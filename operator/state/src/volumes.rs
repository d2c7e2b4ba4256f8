//! Where a pod can run because of its volumes, and how many volumes its machine has to attach.
//!
//! A bound PersistentVolumeClaim restricts its pods to where its volume can be attached; an unbound
//! one to where its StorageClass can make a volume. Several volumes restrict together. The rules
//! are kube-scheduler's: what it would wait for, we can't plan for either.
//!
//! Volumes are counted per CSI driver, as Karpenter counts them: each claim once per machine, and
//! what no driver is known for not at all.

use std::collections::{BTreeMap, BTreeSet};

use tenon_crds::labels::{HOSTNAME, LabelRules};
use tenon_planner::snapshot::{Operator, Requirement, SharedVolume};

use crate::change::ObjectKey;
use crate::cluster::Cluster;
use crate::shape;
use crate::wire::{PersistentVolume, PersistentVolumeClaim, StorageClass};

/// Alternatives, each a conjunction of requirements. Empty is anywhere.
pub type Topology = Vec<Vec<Requirement>>;

/// Why it can't be known where a pod with volumes can run, in Karpenter's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// A PersistentVolumeClaim that does not exist.
    #[error("persistentvolumeclaim \"{0}\" not found")]
    NoClaim(String),
    /// A PersistentVolumeClaim that is on its way out.
    #[error("persistentvolumeclaim \"{0}\" is being deleted")]
    ClaimDeleted(String),
    /// A PersistentVolumeClaim in the phase Lost.
    #[error("persistentvolumeclaim \"{0}\" bound to non-existent volume")]
    ClaimLost(String),
    /// The PersistentVolume that a claim is bound to.
    #[error("persistentvolume \"{0}\" not found")]
    NoVolume(String),
    /// A PersistentVolumeClaim that nothing makes a volume for.
    #[error("unbound pvc \"{0}\" must define a storage class")]
    NoClass(String),
    /// The StorageClass of a claim.
    #[error("storage class \"{0}\" not found")]
    ClassNotFound(String),
    /// A PersistentVolumeClaim whose volume does not wait for a pod.
    #[error("pvc \"{0}\" has immediate binding mode and must be bound first")]
    BoundFirst(String),
}

/// Where a pod with these PersistentVolumeClaims can run.
pub fn topology(
    cluster: &Cluster,
    namespace: &str,
    claims: &[String],
    rules: &LabelRules,
) -> Result<Topology, VolumeError> {
    let mut all = Topology::new();
    for name in claims {
        let key = ObjectKey::new(namespace, name.as_str());
        let Some(claim) = cluster.volume_claim(&key) else {
            return Err(VolumeError::NoClaim(name.clone()));
        };
        let alternatives = claim_topology(cluster, name, claim, rules)?;
        if !alternatives.is_empty() {
            all = combine(&all, &alternatives);
        }
    }
    Ok(all)
}

/// The volumes that a pod's machine has to attach.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mounted {
    /// By CSI driver, how many that no other pod uses.
    pub own: BTreeMap<String, u32>,
    /// Those that other pods use, too. Sorted.
    pub shared: Vec<SharedVolume>,
}

impl Mounted {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }
}

/// PersistentVolumeClaims that more than one pod uses, by namespace and name.
#[derive(Clone, Debug)]
pub struct Mounts<'a> {
    shared: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Mounts<'a> {
    /// Those of all pods.
    pub fn of(cluster: &'a Cluster) -> Self {
        let (mut seen, mut shared) = (BTreeSet::new(), BTreeSet::new());
        for (key, pod) in cluster.pods() {
            let claims: BTreeSet<&str> = pod.volume_claims.iter().map(String::as_str).collect();
            for claim in claims {
                let claim = (&*key.namespace, claim);
                if !seen.insert(claim) {
                    shared.insert(claim);
                }
            }
        }
        Self { shared }
    }

    /// The volumes of a pod with these claims. A claim that is missing counts as none: its pod has
    /// other problems.
    pub fn mounted(&self, cluster: &Cluster, namespace: &str, claims: &[String]) -> Mounted {
        let claims: BTreeSet<&str> = claims.iter().map(String::as_str).collect();
        let mut mounted = Mounted::default();
        for claim in claims {
            let Some(driver) = driver(cluster, namespace, claim) else { continue };
            if self.shared.contains(&(namespace, claim)) {
                let driver = driver.to_owned();
                mounted.shared.push(SharedVolume { driver, claim: claim.to_owned() });
            } else {
                *mounted.own.entry(driver.to_owned()).or_default() += 1;
            }
        }
        mounted.shared.sort();
        mounted
    }
}

/// The CSI driver that attaches the volume of a claim, or will: its volume's, else its class's.
fn driver<'a>(cluster: &'a Cluster, namespace: &str, claim: &str) -> Option<&'a str> {
    let claim = cluster.volume_claim(&ObjectKey::new(namespace, claim))?;
    if let Some(volume) = claim.spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
        let spec = &cluster.volume(volume)?.spec;
        let csi = spec.csi.as_ref().map(|csi| csi.driver.as_str());
        return csi.or(spec.aws_elastic_block_store.map(|_| EBS));
    }
    let class = cluster.storage_class(claim.spec.storage_class_name.as_deref()?)?;
    Some(migrated(&class.provisioner)).filter(|driver| !driver.is_empty())
}

/// The CSI driver of EBS.
const EBS: &str = "ebs.csi.aws.com";

/// The CSI driver that took over from a plugin of Kubernetes' own; other provisioners are drivers
/// themselves.
fn migrated(provisioner: &str) -> &str {
    match provisioner {
        "kubernetes.io/aws-ebs" => EBS,
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/azure-file" => "file.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        driver => driver,
    }
}

fn claim_topology(
    cluster: &Cluster,
    name: &str,
    claim: &PersistentVolumeClaim,
    rules: &LabelRules,
) -> Result<Topology, VolumeError> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(VolumeError::ClaimDeleted(name.to_owned()));
    }
    if claim.status.phase.as_deref() == Some("Lost") {
        return Err(VolumeError::ClaimLost(name.to_owned()));
    }
    if let Some(volume) = claim.spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
        let volume =
            cluster.volume(volume).ok_or_else(|| VolumeError::NoVolume(volume.to_owned()))?;
        return Ok(volume_topology(volume, rules));
    }
    let class = claim.spec.storage_class_name.as_deref().filter(|name| !name.is_empty());
    let class = class.ok_or_else(|| VolumeError::NoClass(name.to_owned()))?;
    let class =
        cluster.storage_class(class).ok_or_else(|| VolumeError::ClassNotFound(class.to_owned()))?;
    class_topology(name, class, rules)
}

fn volume_topology(volume: &PersistentVolume, rules: &LabelRules) -> Topology {
    let terms = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    // The machine of a local volume is not a constraint on new machines: its pod can only run there
    // or has lost its data anyway.
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
) -> Result<Topology, VolumeError> {
    if class.volume_binding_mode.as_deref().unwrap_or("Immediate") == "Immediate" {
        return Err(VolumeError::BoundFirst(claim.to_owned()));
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

/// Every pair of alternatives that can hold at once. When there is none, all pairs: the pod then
/// fits nowhere, for a reason that can be told.
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

/// Whether two `In` requirements on one key share no value. Other contradictions are left to the
/// planner.
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

    fn zones(cluster: &Cluster, claims: &[&str]) -> Result<Vec<String>, VolumeError> {
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
        let why = |claim: &str| zones(&cluster, &[claim]).unwrap_err();
        assert_eq!(why("now"), VolumeError::BoundFirst("now".to_owned()));
        assert_eq!(why("none"), VolumeError::ClassNotFound("none".to_owned()));
        assert_eq!(why("absent"), VolumeError::NoClaim("absent".to_owned()));
    }

    fn with_pods(mut cluster: Cluster, pods: &[(&str, &[&str])]) -> Cluster {
        for (name, claims) in pods {
            let volumes: Vec<Value> = claims
                .iter()
                .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
                .collect();
            let pod = json!({"metadata": {"namespace": "default", "name": name}, "spec": {"volumes": volumes}});
            let pod = serde_json::from_value(pod).unwrap();
            cluster.apply(Change::Applied(Object::Pod(pod)));
        }
        cluster
    }

    fn mounted(cluster: &Cluster, claims: &[&str]) -> (Vec<(String, u32)>, Vec<String>) {
        let claims: Vec<String> = claims.iter().map(|&claim| claim.to_owned()).collect();
        let Mounted { own, shared } = Mounts::of(cluster).mounted(cluster, "default", &claims);
        let shared = shared.into_iter().map(|volume| volume.driver + " " + &volume.claim);
        (own.into_iter().collect(), shared.collect())
    }

    #[test]
    fn a_volume_counts_for_the_driver_that_attaches_it_and_once_for_each_machine() {
        let volume =
            |name: &str, source: Value| json!({"metadata": {"name": name}, "spec": source});
        let cluster = cluster(
            vec![
                volume("csi", json!({"csi": {"driver": "efs.csi.aws.com"}})),
                volume("old", json!({"awsElasticBlockStore": {"volumeID": "vol-1"}})),
                volume("nfs", json!({"nfs": {"server": "s"}})),
            ],
            vec![
                bound("efs", "csi"),
                bound("ebs", "old"),
                bound("nfs", "nfs"),
                bound("lost", "absent"),
                unbound("new", "gp3"),
                unbound("plugin", "gp2"),
                unbound("classless", ""),
            ],
            vec![
                json!({"metadata": {"name": "gp3"}, "provisioner": "ebs.csi.aws.com"}),
                json!({"metadata": {"name": "gp2"}, "provisioner": "kubernetes.io/aws-ebs"}),
            ],
        );
        let cluster = with_pods(cluster, &[("a", &["efs", "ebs", "new"]), ("b", &["efs"])]);
        let (own, shared) = mounted(&cluster, &["efs", "ebs", "new", "new", "plugin"]);
        assert_eq!(own, [("ebs.csi.aws.com".to_owned(), 3)], "a claim that is named twice is one");
        assert_eq!(shared, ["efs.csi.aws.com efs"], "two pods use it");
        let uncounted = ["nfs", "lost", "classless", "absent"];
        assert_eq!(mounted(&cluster, &uncounted), (vec![], vec![]));
    }
}
