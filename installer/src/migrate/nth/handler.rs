//! One workload of Node Termination Handler, and the events that it handles.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use tenon_installer_core::apply::handler::NOWHERE;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::settings::config::Event;

use crate::migrate::stopped::Stopped as _;
use crate::options::{Options, Sources};

/// A kind of event that it can handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// A spot instance will be interrupted.
    Spot,
    /// An instance stops or is terminated.
    State,
    /// Maintenance is planned.
    Health,
    /// A spot instance has an elevated risk of interruption.
    Rebalance,
    /// An Auto Scaling group launches or terminates an instance.
    Lifecycle,
}

/// The detail types by which EventBridge knows them.
const DETAIL_TYPES: [(&str, Kind); 6] = [
    ("EC2 Spot Instance Interruption Warning", Kind::Spot),
    ("EC2 Instance State-change Notification", Kind::State),
    ("AWS Health Event", Kind::Health),
    ("EC2 Instance Rebalance Recommendation", Kind::Rebalance),
    ("EC2 Instance-terminate Lifecycle Action", Kind::Lifecycle),
    ("EC2 Instance-launch Lifecycle Action", Kind::Lifecycle),
];

impl Kind {
    /// What a rule lets through, of what Node Termination Handler understands. A pattern without
    /// detail types lets everything of its sources through.
    pub(crate) fn of_pattern(pattern: &str) -> Vec<Self> {
        let pattern = serde_json::from_str::<Value>(pattern).unwrap_or_default();
        let listed = |key: &str| {
            let values = pattern[key].as_array()?;
            Some(values.iter().filter_map(Value::as_str).collect::<Vec<_>>())
        };
        if let Some(types) = pattern["detail-type"].as_array() {
            let lets = |name: &str| types.iter().any(|matcher| may_match(matcher, name));
            let known = DETAIL_TYPES.iter().filter(|(name, _)| lets(name));
            return known.map(|(_, kind)| *kind).collect();
        }
        let sources = listed("source");
        let lets = |source: &str| sources.as_ref().is_none_or(|all| all.contains(&source));
        let of = |kind: &Self| match kind {
            Self::Spot | Self::State | Self::Rebalance => lets("aws.ec2"),
            Self::Health => lets("aws.health"),
            Self::Lifecycle => lets("aws.autoscaling"),
        };
        let all = [Self::Spot, Self::State, Self::Health, Self::Rebalance, Self::Lifecycle];
        all.into_iter().filter(of).collect()
    }

    /// The setting by which Tenon handles it; none for what only Auto Scaling groups have.
    pub(crate) fn event(self) -> Option<Event> {
        match self {
            Self::Spot => Some(Event::Spot),
            Self::State => Some(Event::State),
            Self::Health => Some(Event::Health),
            Self::Rebalance => Some(Event::Rebalance),
            Self::Lifecycle => None,
        }
    }

    /// For people.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Spot => "spot interruptions",
            Self::State => "state changes of instances",
            Self::Health => "scheduled events",
            Self::Rebalance => "rebalance recommendations",
            Self::Lifecycle => "lifecycle hooks of Auto Scaling groups",
        }
    }
}

/// Whether a matcher of an EventBridge pattern lets a text through. One that is not known here may:
/// it is better to ask for one event too many than to lose one.
fn may_match(matcher: &Value, text: &str) -> bool {
    let of = |key: &str| matcher.get(key).and_then(Value::as_str);
    if let Some(exact) = matcher.as_str() {
        exact == text
    } else if let Some(prefix) = of("prefix") {
        text.starts_with(prefix)
    } else if let Some(suffix) = of("suffix") {
        text.ends_with(suffix)
    } else if let Some(other) = of("equals-ignore-case") {
        other.eq_ignore_ascii_case(text)
    } else if let Some(but) = of("anything-but") {
        but != text
    } else if let Some(but) = matcher.get("anything-but").and_then(Value::as_array) {
        !but.iter().any(|one| one == text)
    } else {
        true
    }
}

/// A Deployment or DaemonSet of Node Termination Handler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Handler {
    /// As it is.
    pub live: Object,
    /// What its container is told.
    pub options: Options,
}

impl Handler {
    /// With what ConfigMaps and Secrets add to what its container is told.
    pub(super) async fn read(
        kube: &Cluster,
        live: Object,
        container: &Value,
    ) -> Result<Self, Failure> {
        let namespace = live.namespace.as_deref().unwrap_or_default();
        let sources = Sources::read(kube, namespace, container).await?;
        Ok(Self { options: Options::of(container, &sources), live })
    }

    /// Of these objects, without what ConfigMaps and Secrets add.
    #[cfg(test)]
    pub(super) fn of(live: Object) -> Option<Self> {
        let container = container_of(&live.body)?;
        Some(Self { options: Options::of(container, &Sources::default()), live })
    }

    /// A switch, as Go reads it.
    pub(crate) fn is_on(&self, variable: &str, default: bool) -> bool {
        match self.options.value(variable) {
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            _ => default,
        }
    }

    /// Whether it reads a queue, and not the metadata of its node.
    pub(crate) fn reads_queue(&self) -> bool {
        self.is_on("ENABLE_SQS_TERMINATION_DRAINING", false)
    }

    /// URL of the queue that it reads.
    pub(crate) fn queue(&self) -> Option<&str> {
        self.options.value("QUEUE_URL").filter(|_| self.reads_queue())
    }

    /// What it handles where it reads the metadata of its node. A rebalance recommendation counts
    /// also where it only cordons the node.
    pub(super) fn kinds_of_metadata(&self) -> BTreeSet<Kind> {
        if self.reads_queue() {
            return BTreeSet::new();
        }
        let switches = [
            ("ENABLE_SPOT_INTERRUPTION_DRAINING", true, Kind::Spot),
            ("ENABLE_SCHEDULED_EVENT_DRAINING", true, Kind::Health),
            ("ENABLE_REBALANCE_MONITORING", false, Kind::Rebalance),
            ("ENABLE_REBALANCE_DRAINING", false, Kind::Rebalance),
            ("ENABLE_ASG_LIFECYCLE_DRAINING", false, Kind::Lifecycle),
        ];
        let on = switches.into_iter().filter(|(name, default, _)| self.is_on(name, *default));
        on.map(|(_, _, kind)| kind).collect()
    }

    /// Whether it is a DaemonSet.
    pub(crate) fn is_daemon_set(&self) -> bool {
        self.live.resource.kind == "DaemonSet"
    }

    /// Whether no pod of it is wanted.
    pub(crate) fn is_stopped(&self) -> bool {
        let body = &self.live.body;
        if self.is_daemon_set() {
            return body["spec"]["template"]["spec"]["nodeSelector"].get(NOWHERE).is_some();
        }
        self.live.replicas_now() == 0
    }
}

/// The container that is Node Termination Handler, if a workload has one.
pub(super) fn container_of(workload: &Value) -> Option<&Value> {
    let containers = workload.pointer("/spec/template/spec/containers")?.as_array()?;
    containers.iter().find(|container| {
        let image = container["image"].as_str().unwrap_or_default();
        image.contains("node-termination-handler")
    })
}
