//! What costs are grouped by: something of nodes, or something of pods.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenon_crds::labels;
use tenon_planner::snapshot::{Node, Pod};
use tenon_state::wire;

use super::super::prices::capacity_type;
use super::{label, node_pool};

/// What costs are grouped by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CostBy {
    /// The NodePool of nodes.
    #[default]
    NodePool,
    /// `spot`, `on-demand` or `reserved`.
    CapacityType,
    /// The zone of nodes.
    Zone,
    /// The instance type of nodes.
    InstanceType,
    /// The namespace of pods.
    Namespace,
    /// What creates the pods: Deployment, StatefulSet, DaemonSet, CronJob, Job, or something else.
    Workload,
    /// A label of pods.
    Label(String),
}

/// The values that have no key.
const PLAIN: [(&str, CostBy); 6] = [
    ("nodepool", CostBy::NodePool),
    ("capacity-type", CostBy::CapacityType),
    ("zone", CostBy::Zone),
    ("instance-type", CostBy::InstanceType),
    ("namespace", CostBy::Namespace),
    ("workload", CostBy::Workload),
];

impl FromStr for CostBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(key) = text.strip_prefix("label=") {
            if key.is_empty() || key.contains(char::is_whitespace) {
                return Err("name a label of pods, such as label=team".to_owned());
            }
            return Ok(Self::Label(key.to_owned()));
        }
        let known = PLAIN.into_iter().find(|(name, _)| *name == text);
        known.map(|(_, by)| by).ok_or_else(|| {
            let names = PLAIN.map(|(name, _)| name).join(", ");
            format!("use {names}, or label=KEY with a label of pods")
        })
    }
}

impl fmt::Display for CostBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key) => write!(f, "label={key}"),
            other => {
                let known = PLAIN.iter().find(|(_, by)| by == other);
                f.write_str(known.map_or("", |(name, _)| name))
            }
        }
    }
}

impl CostBy {
    /// The group of a node; none where pods are grouped.
    pub(super) fn of_node(&self, node: &Node) -> Option<String> {
        match self {
            Self::NodePool => Some(node_pool(node)),
            Self::CapacityType => {
                Some(capacity_type(&node.labels).unwrap_or("(unknown)").to_owned())
            }
            Self::Zone => Some(label(node, labels::ZONE)),
            Self::InstanceType => Some(label(node, labels::INSTANCE_TYPE)),
            Self::Namespace | Self::Workload | Self::Label(_) => None,
        }
    }

    /// Whether more has to be known of pods than the planner does.
    pub(super) fn needs_pods(&self) -> bool {
        matches!(self, Self::Workload | Self::Label(_))
    }
}

/// The groups of pods whose planner's input does not tell them.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// By namespace and name.
    of_pods: BTreeMap<String, BTreeMap<String, String>>,
    /// Of pods that belong nowhere.
    other: String,
}

impl Groups {
    pub(super) fn new(by: &CostBy, pods: &[wire::Pod]) -> Self {
        let of: &dyn Fn(&ObjectMeta) -> Option<String> = match by {
            CostBy::Workload => &workload,
            CostBy::Label(key) => &|pod| pod.labels.as_ref()?.get(key).cloned(),
            _ => return Self::default(),
        };
        let mut of_pods: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for pod in pods.iter().map(|pod| &pod.metadata) {
            let (Some(name), Some(group)) = (&pod.name, of(pod)) else { continue };
            let in_namespace = of_pods.entry(namespace(pod).to_owned()).or_default();
            in_namespace.insert(name.clone(), group);
        }
        let other = match by {
            CostBy::Label(key) => format!("(no label {key})"),
            _ => "(no controller)".to_owned(),
        };
        Self { of_pods, other }
    }

    /// The group of a pod.
    pub(super) fn of<'a>(&'a self, by: &CostBy, pod: &'a Pod) -> &'a str {
        match by {
            CostBy::Namespace => &pod.namespace,
            _ => {
                let known = self.of_pods.get(&*pod.namespace);
                known.and_then(|pods| pods.get(&*pod.name)).unwrap_or(&self.other)
            }
        }
    }
}

/// As the API server fills it in.
fn namespace(pod: &ObjectMeta) -> &str {
    pod.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
}

/// What creates a pod: its controller, or what created that, which the names tell.
fn workload(pod: &ObjectMeta) -> Option<String> {
    let owner = wire::controller(pod)?;
    let labelled = |key: &str| pod.labels.as_ref()?.get(key);
    let of_replica_set = || {
        let hash = labelled("pod-template-hash")?;
        owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')
    };
    let (kind, name) = match owner.kind.as_str() {
        // Mirror pods.
        "Node" => ("Node", "static pods"),
        "ReplicaSet" => of_replica_set()
            .map_or(("ReplicaSet", &*owner.name), |deployment| ("Deployment", deployment)),
        "Job" => {
            of_cron_job(&owner.name).map_or(("Job", &*owner.name), |cron_job| ("CronJob", cron_job))
        }
        kind => (kind, &*owner.name),
    };
    Some(format!("{}/{kind}/{name}", namespace(pod)))
}

/// The CronJob of a Job. Its controller names Jobs by the minute since 1970 that they are due in,
/// which has eight digits from 1989 to 2160.
fn of_cron_job(job: &str) -> Option<&str> {
    let (cron_job, minute) = job.rsplit_once('-')?;
    let is_minute = minute.len() == 8 && minute.bytes().all(|byte| byte.is_ascii_digit());
    is_minute.then_some(cron_job)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    #[test]
    fn groups_are_written_as_they_are_read() {
        for text in [
            "nodepool",
            "capacity-type",
            "zone",
            "instance-type",
            "namespace",
            "workload",
            "label=team",
        ] {
            let by: CostBy = text.parse().expect("it is known");
            assert_eq!(by.to_string(), text);
        }
        let error = "team".parse::<CostBy>().expect_err("it is none");
        assert!(error.contains("label=KEY"), "{error}");
        let error = "label=".parse::<CostBy>().expect_err("it has no key");
        assert!(error.contains("label=team"), "{error}");
    }

    fn pod(kind: &str, name: &str, hash: Option<&str>) -> ObjectMeta {
        let owner = OwnerReference {
            kind: kind.to_owned(),
            name: name.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let labels = hash.map(|hash| [("pod-template-hash".to_owned(), hash.to_owned())].into());
        ObjectMeta {
            namespace: Some("shop".to_owned()),
            owner_references: Some(vec![owner]),
            labels,
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_workload_is_what_a_person_has_created() {
        for (kind, name, hash, found) in [
            ("ReplicaSet", "web-6b7f9", Some("6b7f9"), "shop/Deployment/web"),
            ("ReplicaSet", "bare", None, "shop/ReplicaSet/bare"),
            ("StatefulSet", "db", None, "shop/StatefulSet/db"),
            ("Job", "report-29412345", None, "shop/CronJob/report"),
            ("Job", "import-2026", None, "shop/Job/import-2026"),
            ("Node", "ip-10-0-0-1", None, "shop/Node/static pods"),
        ] {
            assert_eq!(workload(&pod(kind, name, hash)).as_deref(), Some(found));
        }
        assert_eq!(workload(&ObjectMeta::default()), None);
    }
}
