//! Deletion costs of pods (feature gate `PodDeletionCostManagement`): ReplicaSets that shrink give
//! up first what runs on the nodes that would go next, so that these empty by themselves.
//!
//! The planner ranks nodes once a minute; here its values are written to pods, by server-side apply
//! with a field manager of its own. So the API server refuses where somebody else has set a value,
//! and pods say by their managers whose value they have. Without the gate what was written is taken
//! away again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenon_planner::snapshot::{Pod, Snapshot};
use tenon_planner::{DeletionCost as Change, PresentCost};
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::controller::Reconciler;
use crate::operator::Operator;
use crate::planning::{self, on_snapshot};
use crate::state::change::ObjectKey;
use crate::state::cluster::Cluster;
use crate::state::pod::DeletionCost;
use crate::tasks::isolated;
use crate::work_queue::{Action, Backoff, Failure as _, WorkQueue};
use crate::write::WriteError;

/// How often nodes are ranked.
const EVERY: Duration = Duration::from_mins(1);

/// Ten pods are written at a time, and each takes a tenth of a second at least: a hundred writes in
/// a second, which no API server notices.
const WORKERS: usize = 10;
const PACE: Duration = Duration::from_millis(100);

/// Name of the feature gate, as in `--feature-gates`.
pub(crate) const GATE: &str = "PodDeletionCostManagement";

/// What a pod is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    uid: Arc<str>,
    /// `None` takes the annotation away.
    value: Option<i32>,
}

/// What the last pass wants written.
#[derive(Debug, Default)]
struct Writes(Mutex<BTreeMap<ObjectKey, Wanted>>);

impl Writes {
    /// Wants this from now on, and nothing that was wanted before.
    fn want(&self, wanted: BTreeMap<ObjectKey, Wanted>) {
        *self.0.lock() = wanted;
    }

    /// This needs no further work, unless something else is wanted by now.
    fn done(&self, key: &ObjectKey, wanted: &Wanted) {
        let mut all = self.0.lock();
        if all.get(key) == Some(wanted) {
            all.remove(key);
        }
    }
}

/// Ranks nodes, and writes deletion costs.
pub(crate) struct DeletionCosts<P> {
    operator: Arc<Operator<P>>,
    /// Ends a pass that is being planned.
    stop: CancellationToken,
    writes: Writes,
}

impl<P> DeletionCosts<P> {
    /// Nothing is wanted yet.
    pub(crate) fn new(operator: Arc<Operator<P>>, stop: CancellationToken) -> Self {
        Self { operator, stop, writes: Writes::default() }
    }
}

impl<P: CloudProvider> Reconciler for DeletionCosts<P> {
    const NAME: &'static str = "pod.deletioncost";
    const BACKOFF: Backoff =
        Backoff { min: Duration::from_millis(100), max: Duration::from_secs(10) };
    type Key = ObjectKey;
    type Error = WriteError;

    fn workers(&self) -> usize {
        WORKERS
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, WriteError> {
        let wanted = self.writes.0.lock().get(key).cloned();
        let Some(wanted) = wanted else { return Ok(Action::Wait) };
        let (label, result) = write(&self.operator, key, &wanted).await;
        self.operator.context.metrics.pod_deletion_cost_writes.inc([label]);
        result?;
        self.writes.done(key, &wanted);
        Ok(Action::Wait)
    }

    async fn beside(&self, queue: &WorkQueue<ObjectKey>) {
        loop {
            self.operator.state.synced().await;
            match isolated(pass(&self.operator, &self.stop)).await {
                Ok(Some(wanted)) => {
                    let keys: Vec<ObjectKey> = wanted.keys().cloned().collect();
                    self.writes.want(wanted);
                    for key in keys {
                        queue.add(key);
                    }
                }
                Ok(None) => {}
                Err(panicked) => planning::tell(&panicked),
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

/// What is to be written; `None` when the operator is told to stop.
async fn pass<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    stop: &CancellationToken,
) -> Option<BTreeMap<ObjectKey, Wanted>> {
    let known = known(&operator.state.read());
    let pending = &operator.context.metrics.pod_deletion_cost_pending;
    pending.clear();
    if !operator.options.feature_gates.is_on(GATE) {
        return Some(withdrawn(&known));
    }
    let (changes, pools) = on_snapshot(operator, stop, move |operator, snapshot| {
        let (policy, now) = (&operator.policy, operator.now());
        let present = |pod: &Pod| present(&known, &pod.uid);
        let changes = tenon_planner::deletion_costs(&snapshot, policy, now, &present);
        let pools = by_pool(&snapshot, &changes);
        (changes, pools)
    })
    .await?;
    for (pool, nodes) in pools {
        pending.set([&pool], f64::from(nodes));
    }
    Some(wanted(changes))
}

/// The pods that have a deletion cost, by uid.
type Known = BTreeMap<Arc<str>, (ObjectKey, DeletionCost)>;

fn known(state: &Cluster) -> Known {
    let with_cost = state.pods().filter(|(_, pod)| pod.deletion_cost != DeletionCost::Unset);
    with_cost.map(|(key, pod)| (Arc::clone(&pod.uid), (key.clone(), pod.deletion_cost))).collect()
}

/// Everything of ours goes.
fn withdrawn(known: &Known) -> BTreeMap<ObjectKey, Wanted> {
    let ours = known.iter().filter(|(_, (_, cost))| matches!(cost, DeletionCost::Ours(_)));
    ours.map(|(uid, (key, _))| (key.clone(), Wanted { uid: Arc::clone(uid), value: None }))
        .collect()
}

fn present(known: &Known, uid: &str) -> PresentCost {
    match known.get(uid).map(|(_, cost)| *cost) {
        None | Some(DeletionCost::Unset) => PresentCost::Unset,
        Some(DeletionCost::Ours(value)) => PresentCost::Written(value),
        Some(DeletionCost::Given(_)) => PresentCost::Foreign,
    }
}

/// How many nodes of each NodePool have pods to write.
fn by_pool(snapshot: &Snapshot, changes: &[Change]) -> BTreeMap<String, u32> {
    let mut pools = BTreeMap::new();
    for change in changes {
        let at = snapshot.nodes.binary_search_by(|node| node.key.cmp(&change.node));
        let node = at.ok().map(|at| &snapshot.nodes[at]);
        let pool = node.and_then(|node| node.claim.as_ref()?.node_pool.clone());
        *pools.entry(pool.unwrap_or_default()).or_default() += 1;
    }
    pools
}

fn wanted(changes: Vec<Change>) -> BTreeMap<ObjectKey, Wanted> {
    let pods = changes.into_iter().flat_map(|Change { pods, value, .. }| {
        pods.into_iter().map(move |pod| {
            (ObjectKey::new(pod.namespace, pod.name), Wanted { uid: pod.uid, value })
        })
    });
    pods.collect()
}

/// Writes what is wanted; answers what became of it as metrics label it, and the error after which
/// it has to be tried again.
async fn write<P: CloudProvider>(
    operator: &Operator<P>,
    key: &ObjectKey,
    wanted: &Wanted,
) -> (&'static str, Result<(), WriteError>) {
    let skipped = reason_to_skip(&operator.state.read(), key, wanted);
    if let Some(reason) = skipped {
        return (reason, Ok(()));
    }
    let written = operator.write.apply_deletion_cost(key, &wanted.uid, wanted.value);
    let (written, ()) = tokio::join!(written, tokio::time::sleep(PACE));
    match written {
        Ok(()) => ("updated", Ok(())),
        Err(error) if error.is_not_found() => ("skipped_notfound", Ok(())),
        // Somebody else has set a value, or another pod has the name by now.
        Err(error) if error.is_conflict() => ("skipped_conflict", Ok(())),
        Err(error) => ("error", Err(error)),
    }
}

/// Why a pod is not written after all, as metrics label it.
fn reason_to_skip(state: &Cluster, key: &ObjectKey, wanted: &Wanted) -> Option<&'static str> {
    let pod = state.pod(key).filter(|pod| pod.uid == wanted.uid);
    match (pod.map(|pod| pod.deletion_cost), wanted.value) {
        (None, _) => Some("skipped_notfound"),
        (Some(DeletionCost::Given(_)), _) => Some("skipped_conflict"),
        (Some(DeletionCost::Unset), None) => Some("skipped_unchanged"),
        (Some(DeletionCost::Ours(is)), Some(wanted)) if is == wanted => Some("skipped_unchanged"),
        (Some(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenon_crds::labels::LabelRules;
    use tenon_planner::plan::PodRef;

    use super::*;
    use crate::state::change::{Change as StateChange, Object};
    use crate::state::pod::{DELETION_COST, DELETION_COST_MANAGER};

    fn put(cluster: &mut Cluster, name: &str, cost: Option<(&str, &str)>) {
        let mut metadata = json!({"namespace": "default", "name": name, "uid": name});
        if let Some((value, manager)) = cost {
            metadata["annotations"] = json!({DELETION_COST: value});
            metadata["managedFields"] = json!([{"manager": manager, "operation": "Apply"}]);
        }
        let pod: Value = json!({"metadata": metadata});
        let pod = serde_json::from_value(pod).unwrap();
        cluster.apply(StateChange::Applied(Object::Pod(Box::new(pod))));
    }

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new(&[], LabelRules::core());
        put(&mut cluster, "none", None);
        put(&mut cluster, "ours", Some(("-3", DELETION_COST_MANAGER)));
        put(&mut cluster, "given", Some(("-3", "kubectl")));
        cluster
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    fn want(uid: &str, value: Option<i32>) -> Wanted {
        Wanted { uid: uid.into(), value }
    }

    #[test]
    fn without_the_gate_what_was_written_goes_and_what_others_wrote_stays() {
        let all = withdrawn(&known(&cluster()));
        assert_eq!(all, BTreeMap::from([(key("ours"), want("ours", None))]));
    }

    #[test]
    fn only_pods_that_have_another_value_of_ours_or_none_are_written() {
        let cluster = cluster();
        for (name, uid, value, expected) in [
            ("none", "none", Some(-3), None),
            ("none", "none", None, Some("skipped_unchanged")),
            ("none", "another", Some(-3), Some("skipped_notfound")),
            ("gone", "gone", Some(-3), Some("skipped_notfound")),
            ("ours", "ours", Some(-3), Some("skipped_unchanged")),
            ("ours", "ours", Some(-2), None),
            ("ours", "ours", None, None),
            ("given", "given", Some(-2), Some("skipped_conflict")),
            ("given", "given", None, Some("skipped_conflict")),
        ] {
            let skipped = reason_to_skip(&cluster, &key(name), &want(uid, value));
            assert_eq!(skipped, expected, "{name} {uid} {value:?}");
        }
    }

    #[test]
    fn the_planner_is_told_whose_costs_there_are() {
        let known = known(&cluster());
        let of = |name: &str| present(&known, name);
        let told = [of("none"), of("ours"), of("given")];
        assert_eq!(told, [PresentCost::Unset, PresentCost::Written(-3), PresentCost::Foreign]);
    }

    #[test]
    fn a_pass_replaces_what_the_one_before_wanted() {
        let change = |name: &str, value| Change {
            node: "a".to_owned(),
            value,
            pods: vec![PodRef { namespace: "default".into(), name: name.into(), uid: name.into() }],
        };
        let writes = Writes::default();
        writes.want(wanted(vec![change("x", Some(-2)), change("y", Some(-1))]));
        writes.want(wanted(vec![change("y", None)]));
        assert_eq!(*writes.0.lock(), BTreeMap::from([(key("y"), want("y", None))]));
        writes.done(&key("y"), &want("y", Some(-1)));
        assert!(writes.0.lock().contains_key(&key("y")), "something else is wanted by now");
        writes.done(&key("y"), &want("y", None));
        assert!(writes.0.lock().is_empty());
    }
}
