//! How long pods wait: for a decision, for a node, and until they run.
//!
//! What the state knows is computed when it is scraped ([`Pods`]). What only the operator knows,
//! when it first saw a pod wait and when it found a place for it, is kept in a [`Tracker`].

use std::sync::Arc;

use jiff::Timestamp;
use tenon_crds::labels;
use tenon_state::wire::Node;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::declare::Declared;
use crate::metrics::exposition::{Exposed, Exposition, Gone, LabelText, Number, Type};
use crate::metrics::pods::Tracker;
use crate::state::State;
use crate::state::change::{ObjectKey, Touched};
use crate::state::cluster::Cluster;
use crate::state::pod::Pod;

/// Objects that are looked at while the state is locked once.
const PAGE: usize = 200;

const STATE: Declared = Declared {
    name: "karpenter_pods_state",
    labels: &[
        "name",
        "namespace",
        "owner",
        "node",
        "scheduled",
        "nodepool",
        "zone",
        "arch",
        "capacity_type",
        "instance_type",
        "phase",
        "ready",
        "managed",
    ],
    help: "Pods that have not terminated, each 1",
};
const UNBOUND: Declared = Declared {
    name: "karpenter_pods_unbound_time_seconds",
    labels: &["name", "namespace", "dynamic_resources"],
    help: "Age of pods that are not bound",
};
const UNSTARTED: Declared = Declared {
    name: "karpenter_pods_unstarted_time_seconds",
    labels: &["name", "namespace"],
    help: "Age of pods that do not run",
};
const PROVISIONING_UNBOUND: Declared = Declared {
    name: "karpenter_pods_provisioning_unbound_time_seconds",
    labels: &["name", "namespace", "dynamic_resources"],
    help: "Time since a plan first had a place for pods that are not bound",
};
const PROVISIONING_UNSTARTED: Declared = Declared {
    name: "karpenter_pods_provisioning_unstarted_time_seconds",
    labels: &["name", "namespace"],
    help: "Time since a plan first had a place for pods that do not run",
};
const UNDECIDED: Declared = Declared {
    name: "karpenter_pods_provisioning_scheduling_undecided_time_seconds",
    labels: &["name", "namespace"],
    help: "Time since pods were first seen that no plan has decided on",
};

/// All of them.
#[cfg(test)]
pub(crate) const DECLARED: [Declared; 6] =
    [STATE, UNBOUND, UNSTARTED, PROVISIONING_UNBOUND, PROVISIONING_UNSTARTED, UNDECIDED];

/// Observes pods from now on.
pub fn observe(state: &State, metrics: Metrics, clock: Clock) {
    let cluster = state.clone();
    state.subscribe(move |touched| {
        let Touched::Pod(key, event) = touched else { return };
        let now = clock.now();
        let pod = cluster.read().pod(key).map(|pod| (uses_claims(pod), pod.pending));
        let dynamic = pod.is_some_and(|(dynamic, _)| dynamic).to_string();
        let placed = metrics.pods.observe(key, event.provisionable, pod.map(|(_, it)| it), now);
        let since = |then: Timestamp| now.duration_since(then).as_secs_f64().max(0.0);
        if let Some(created) = event.bound {
            metrics.pod_bound_duration.observe([&dynamic], since(created));
            if let Some(placed) = placed {
                metrics.pod_provisioning_bound_duration.observe([&dynamic], since(placed));
            }
        }
        if let Some(as_planned) = event.as_planned {
            metrics.planned_pods_bound.inc([&as_planned.to_string()]);
        }
        if let Some(created) = event.started {
            metrics.pod_startup_duration.observe([], since(created));
            if let Some(placed) = placed {
                metrics.pod_provisioning_startup_duration.observe([], since(placed));
            }
        }
    });
}

fn uses_claims(pod: &Pod) -> bool {
    !pod.claims.is_empty()
}

/// Exposes the gauges of pods.
#[derive(Debug)]
pub struct Pods {
    state: State,
    clock: Clock,
    tracker: Tracker,
}

impl Pods {
    /// Of this state, and of what these metrics know.
    pub fn new(state: State, clock: Clock, metrics: &Metrics) -> Self {
        Self { state, clock, tracker: metrics.pods.clone() }
    }

    /// Writes a gauge of the pods with these keys, page by page. `value` is what it says of one,
    /// and `labels` adds to those of its name.
    fn of_pods(
        &self,
        Declared { name, help, .. }: Declared,
        keys: &[ObjectKey],
        out: &mut Exposition<'_>,
        sample: impl Fn(&Cluster, &ObjectKey, &Pod, &mut LabelText) -> Option<f64>,
    ) -> Result<(), Gone> {
        let (mut begun, mut labels) = (false, LabelText::default());
        for page in keys.chunks(PAGE) {
            {
                let state = self.state.read();
                for key in page {
                    let Some(pod) = state.pod(key) else { continue };
                    labels.clear();
                    labels.push("name", &key.name);
                    labels.push("namespace", &key.namespace);
                    let Some(value) = sample(&state, key, pod, &mut labels) else { continue };
                    if !std::mem::replace(&mut begun, true) {
                        out.family(name, Type::Gauge, help);
                    }
                    out.sample(name, "", &labels, Number::Real(value));
                }
            }
            out.rest()?;
        }
        Ok(())
    }

    /// Writes the state of all pods: node by node, then of those that are on no node that is known.
    fn states(&self, out: &mut Exposition<'_>) -> Result<(), Gone> {
        let Declared { name, help, .. } = STATE;
        let (nodes, others) = {
            let state = self.state.read();
            let nodes: Vec<Arc<Node>> = state.nodes().cloned().collect();
            let elsewhere =
                |pod: &Pod| pod.node.as_deref().is_none_or(|node| state.node(node).is_none());
            let others = state.pods().filter(|(_, pod)| elsewhere(pod));
            let others: Vec<ObjectKey> = others.map(|(key, _)| key.clone()).collect();
            (nodes, others)
        };
        if nodes.is_empty() && others.is_empty() {
            return Ok(());
        }
        out.family(name, Type::Gauge, help);
        let mut labels = LabelText::default();
        // A node has about ten pods.
        for page in nodes.chunks(PAGE / 10) {
            {
                let state = self.state.read();
                for node in page {
                    for (key, pod) in state.pods_on(node.name()) {
                        describe(&state, key, pod, Some(node), &mut labels);
                        out.sample(name, "", &labels, Number::Real(1.0));
                    }
                }
            }
            out.rest()?;
        }
        for page in others.chunks(PAGE) {
            {
                let state = self.state.read();
                for key in page {
                    let Some(pod) = state.pod(key) else { continue };
                    describe(&state, key, pod, None, &mut labels);
                    out.sample(name, "", &labels, Number::Real(1.0));
                }
            }
            out.rest()?;
        }
        Ok(())
    }
}

impl Exposed for Pods {
    fn expose(&self, out: &mut Exposition<'_>) -> Result<(), Gone> {
        let now = self.clock.now();
        let age = |since: Timestamp| now.duration_since(since).as_secs_f64().max(0.0);
        self.states(out)?;
        let pending: Vec<ObjectKey> = {
            let state = self.state.read();
            state.pods().filter(|(_, pod)| pod.pending).map(|(key, _)| key.clone()).collect()
        };
        let dynamic = |pod: &Pod, labels: &mut LabelText| {
            labels.push("dynamic_resources", if uses_claims(pod) { "true" } else { "false" });
        };
        let known = |key: &ObjectKey| self.tracker.get(key);
        self.of_pods(UNBOUND, &pending, out, |_, _, pod, labels| {
            dynamic(pod, labels);
            pod.node.is_none().then(|| age(pod.created_at))
        })?;
        self.of_pods(UNSTARTED, &pending, out, |_, _, pod, _| Some(age(pod.created_at)))?;
        self.of_pods(PROVISIONING_UNBOUND, &pending, out, |_, key, pod, labels| {
            dynamic(pod, labels);
            pod.node.is_none().then(|| known(key)?.placed.map(age)).flatten()
        })?;
        self.of_pods(PROVISIONING_UNSTARTED, &pending, out, |_, key, _, _| {
            known(key)?.placed.map(age)
        })?;
        self.of_pods(UNDECIDED, &pending, out, |_, key, pod, _| {
            let waiting = known(key).filter(|it| !it.decided && pod.node.is_none())?;
            Some(age(waiting.seen))
        })
    }
}

/// The labels of a pod's state.
fn describe(
    state: &Cluster,
    key: &ObjectKey,
    pod: &Pod,
    node: Option<&Node>,
    text: &mut LabelText,
) {
    const OF_NODE: [(&str, &str); 5] = [
        ("nodepool", labels::NODEPOOL),
        ("zone", labels::ZONE),
        ("arch", labels::ARCH),
        ("capacity_type", labels::CAPACITY_TYPE),
        ("instance_type", labels::INSTANCE_TYPE),
    ];
    let managed = node.is_some_and(|node| state.claim_of(node).is_some());
    text.clear();
    text.push("name", &key.name);
    text.push("namespace", &key.namespace);
    text.push("owner", pod.owner_path.as_deref().unwrap_or_default());
    text.push("node", pod.node.as_deref().unwrap_or_default());
    text.push("scheduled", if pod.node.is_some() { "true" } else { "false" });
    for (name, label) in OF_NODE {
        text.push(name, node.and_then(|node| node.label(label)).unwrap_or_default());
    }
    text.push("phase", if pod.pending { "Pending" } else { "Running" });
    text.push("ready", if pod.ready { "true" } else { "false" });
    text.push("managed", if managed { "true" } else { "false" });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tenon_crds::labels::LabelRules;
    use tenon_planner::plan::{Nomination, Plan, PodRef, WaitingPod};
    use tokio::time::advance;

    use super::*;
    use crate::metrics::declare::assert_exposed_as_declared;
    use crate::metrics::pods::decided;
    use crate::state::change::{Change, Object};
    use crate::testing;

    fn pod(version: u64, node: Option<&str>, phase: &str, conditions: &Value) -> Change {
        let pod = json!({
            "metadata": {"namespace": "default", "name": "a", "uid": "1", "resourceVersion": version.to_string(),
                "creationTimestamp": "1970-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": true}]},
            "spec": {"nodeName": node}, "status": {"phase": phase, "conditions": conditions},
        });
        Change::Applied(Object::Pod(Box::new(serde_json::from_value(pod).unwrap())))
    }

    fn lines(metrics: &Metrics, of: &str) -> Vec<String> {
        let text = metrics.encode().unwrap();
        let lines = text.lines().filter(|line| line.starts_with(of) && !line.contains("_bucket"));
        lines.map(str::to_owned).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_measured_from_the_moment_that_it_waits_until_it_runs() {
        let (state, task) = State::new(Cluster::new(&[], LabelRules::core()));
        testing::spawn(task.run());
        let (metrics, clock) = (Metrics::new(), Clock::anchored(Timestamp::UNIX_EPOCH));
        observe(&state, metrics.clone(), clock);
        metrics.expose(Arc::new(Pods::new(state.clone(), clock, &metrics)));
        let refused =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);

        advance(Duration::from_secs(2)).await;
        state.apply(pod(1, None, "Pending", &refused)).await;
        advance(Duration::from_secs(3)).await;
        let waiting = [STATE, UNBOUND, UNSTARTED, UNDECIDED];
        assert_exposed_as_declared(&metrics.encode().unwrap(), &waiting);
        let names = r#"name="a",namespace="default""#;
        let seconds = "_time_seconds";
        assert_eq!(
            lines(&metrics, "karpenter_pods_"),
            [
                format!(
                    r#"karpenter_pods_state{{{names},owner="/apis/apps/v1/namespaces/default/replicasets/web",node="",scheduled="false",nodepool="",zone="",arch="",capacity_type="",instance_type="",phase="Pending",ready="false",managed="false"}} 1.0"#
                ),
                format!(
                    r#"karpenter_pods_unbound{seconds}{{{names},dynamic_resources="false"}} 5.0"#
                ),
                format!("karpenter_pods_unstarted{seconds}{{{names}}} 5.0"),
                format!("karpenter_pods_provisioning_scheduling_undecided{seconds}{{{names}}} 3.0"),
            ]
        );

        let reference = PodRef { namespace: "default".into(), name: "a".into(), uid: "1".into() };
        let mut plan = Plan::default();
        plan.report.pods = vec![WaitingPod { pod: reference.clone(), reasons: Vec::new() }];
        decided(&metrics, &plan, clock.now());
        advance(Duration::from_secs(4)).await;
        let nominations = vec![Nomination { pod: reference, node: "n".into() }];
        let plan = Plan { nominations, ..Plan::default() };
        decided(&metrics, &plan, clock.now());
        advance(Duration::from_secs(1)).await;
        let placed = [PROVISIONING_UNBOUND, PROVISIONING_UNSTARTED];
        assert_exposed_as_declared(&metrics.encode().unwrap(), &placed);
        assert_eq!(
            lines(&metrics, "karpenter_pods_provisioning"),
            [
                format!(
                    r#"karpenter_pods_provisioning_unbound{seconds}{{{names},dynamic_resources="false"}} 1.0"#
                ),
                format!("karpenter_pods_provisioning_unstarted{seconds}{{{names}}} 1.0"),
            ]
        );

        state.apply(pod(2, Some("n"), "Pending", &json!([]))).await;
        advance(Duration::from_secs(6)).await;
        state.apply(pod(3, Some("n"), "Running", &json!([]))).await;
        let sums: Vec<String> = lines(&metrics, "karpenter_pods")
            .into_iter()
            .filter(|line| line.contains("_sum"))
            .collect();
        assert_eq!(
            sums,
            [
                "karpenter_pods_startup_duration_seconds_sum 16.0",
                r#"karpenter_pods_bound_duration_seconds_sum{dynamic_resources="false"} 10.0"#,
                r#"karpenter_pods_provisioning_bound_duration_seconds_sum{dynamic_resources="false"} 1.0"#,
                "karpenter_pods_provisioning_startup_duration_seconds_sum 7.0",
                "karpenter_pods_scheduling_decision_duration_seconds_sum 3.0",
            ]
        );
        assert_eq!(metrics.pods.len(), 0, "what runs is not kept");
    }
}
