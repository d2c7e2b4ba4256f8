//! Node repair as it was before Karpenter 1.15 (`--legacy-node-repair`): a sick node goes at once,
//! whatever budgets, pods and annotations say.
//!
//! Nodes are looked at when one falls ill or gets well, and when the time ends for which a
//! condition is tolerated. As long as all are well nothing is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use tenon_crds::labels;
use tenon_planner::plan::StayReason;
use tenon_planner::repair::{Forced, forced, next_due};
use tenon_planner::snapshot::NodeCondition;
use tenon_state::explain;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::actuate::claims::{bound_drain, count_unhealthy};
use crate::actuate::claims::{give_up, pods_to_move};
use crate::claims::{capacity_type_of, pool_of, termination_mode};
use crate::cloud_provider::CloudProvider;
use crate::decisions::Cause;
use crate::events::{Event, Reason};
use crate::liveness;
use crate::operator::Operator;
use crate::planning::{self, unless_stopped};
use crate::state::State;
use crate::state::change::Touched;
use crate::tasks::isolated;
use crate::work_queue::{Failure as _, log_concern};
use crate::write::WriteError;

/// What breaks many nodes shows on them within moments: they are looked at together.
const BATCH: Duration = Duration::from_secs(1);
/// A repair that failed is tried again after this time.
const RETRY: Duration = Duration::from_secs(10);
/// Sick nodes are looked at again after this time, whatever is known of them: where too many are
/// sick, others may have come meanwhile.
const AGAIN: Duration = Duration::from_mins(5);

/// Why these NodeClaims go, as metrics label it.
const UNHEALTHY: &str = "unhealthy";

/// Deletes sick nodes until told to stop.
pub(crate) async fn run<P: CloudProvider>(operator: Arc<Operator<P>>, stop: CancellationToken) {
    let changed = Arc::new(Notify::new());
    listen(&operator.state, &changed);
    loop {
        if stop.run_until_cancelled(operator.state.synced()).await.is_none() {
            return;
        }
        let pass = liveness::turn(liveness::WORK, pass(&operator, &stop));
        let again = isolated(pass).await.unwrap_or_else(|panicked| {
            planning::tell(&panicked);
            Some(RETRY)
        });
        let due = async {
            match again {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let batch = async {
            changed.notified().await;
            tokio::time::sleep(BATCH).await;
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = due => {}
            () = batch => {}
        }
    }
}

/// What there is to know of a Node before it can be judged: its ailments, and whether it has
/// joined.
type Seen = (Vec<NodeCondition>, bool);

/// Tells when a Node falls ill, gets well, or joins sick. Kubelets write the status of their Nodes
/// again and again; that is no news.
fn listen(state: &State, changed: &Arc<Notify>) {
    let (cluster, changed) = (state.clone(), Arc::clone(changed));
    let sick: Mutex<BTreeMap<String, Seen>> = Mutex::default();
    state.subscribe(move |touched| {
        let Touched::Node(name) = touched else { return };
        let now = {
            let state = cluster.read();
            state.node(name).and_then(|node| {
                let ailments = state.ailments(node);
                let joined = node.label(labels::INSTANCE_TYPE).is_some();
                (!ailments.is_empty()).then_some((ailments, joined))
            })
        };
        let mut sick = sick.lock();
        if sick.get(name) == now.as_ref() {
            return;
        }
        match now {
            Some(now) => sick.insert(name.clone(), now),
            None => sick.remove(name),
        };
        changed.notify_one();
    });
}

/// Treats those that are due; answers when to look again, if anything is known to come.
async fn pass<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    stop: &CancellationToken,
) -> Option<Duration> {
    let looking = Arc::clone(operator);
    let looked = unless_stopped(stop, move || {
        let (snapshot, now) = (looking.snapshot_with_health(), looking.now());
        let is_sick = snapshot.nodes.iter().any(|node| !node.health.conditions.is_empty());
        (forced(&snapshot, now), next_due(&snapshot, now), is_sick)
    });
    let (sick, due, is_sick) = looked.await?;
    let mut again = is_sick.then_some(AGAIN);
    for sick in sick {
        if stop.is_cancelled() {
            return None;
        }
        if let Err(error) = treat(operator, &sick).await {
            operator.context.metrics.reconcile_errors.inc(["node.health", error.category()]);
            let (concern, error) = (error.concern(), crate::text::chain(&error));
            log_concern!(concern, nodeclaim = sick.claim, error, "failed to repair a node");
            again = Some(RETRY);
        }
    }
    let due = due.map(|due| due.duration_since(operator.now()));
    let due = due.map(|left| Duration::try_from(left).unwrap_or_default());
    [again, due].into_iter().flatten().min()
}

async fn treat<P: CloudProvider>(operator: &Operator<P>, sick: &Forced) -> Result<(), WriteError> {
    let (claim, node) = {
        let state = operator.state.read();
        let claim = state.claim(&sick.claim).filter(|claim| !state.is_going(claim)).cloned();
        let node = claim.as_ref().and_then(|claim| state.node_of(claim).cloned());
        (claim, node)
    };
    let (Some(claim), Some(node)) = (claim, node) else { return Ok(()) };
    if let Some((unhealthy, nodes)) = sick.blocked {
        let node_pool = sick.node_pool.clone().unwrap_or_default();
        let stay = StayReason::TooManyUnhealthy { node_pool, unhealthy, nodes };
        if let Some(((_, mut message), window)) = explain::staying(&stay) {
            if sick.node_pool.is_none() {
                // A decision of the planner is always about a NodePool; this one need not be.
                "more than 20% of nodes in the cluster are unhealthy".clone_into(&mut message);
            }
            let event = Event::warning(&*node, Reason::NodeRepairBlocked, message);
            operator.context.recorder.publish(event.within(window));
        }
        return Ok(());
    }
    let n_pods = pods_to_move(operator, &claim);
    if !bound_drain(operator, &claim, SignedDuration::ZERO).await? {
        return Ok(());
    }
    let condition = &sick.condition;
    tracing::info!(
        nodeclaim = sick.claim,
        condition = condition.type_,
        status = condition.status,
        reason = condition.reason,
        "the node is unhealthy"
    );
    let why = format!("{} is {}", condition.type_, condition.status);
    give_up(operator, &claim, UNHEALTHY, Cause::Unhealthy(&why)).await?;
    let labels =
        [UNHEALTHY, pool_of(&claim), capacity_type_of(&claim), "", termination_mode(&claim)];
    operator.context.metrics.pods_disruption_initiated.add(labels, n_pods);
    count_unhealthy(operator, &claim, &condition.type_, "forceful");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenon_crds::labels::LabelRules;
    use tenon_planner::snapshot::{RepairAction, RepairPolicy};
    use tokio::time::Instant;

    use super::*;
    use crate::kwok::Kwok;
    use crate::state::change::{Change, Kind, Object};
    use crate::state::cluster::Cluster;
    use crate::testing::{self, ApiServer, KINDS};

    const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/a";

    fn claim() -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "a", "uid": "1", "resourceVersion": "1",
                "creationTimestamp": "1970-01-01T00:00:00Z",
                "finalizers": ["karpenter.sh/termination"]},
            "spec": {"requirements": [],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
            "status": {"providerID": "kwok://a"},
        })
    }

    /// The Node, sick since this second.
    fn node(version: u32, sick_since: Option<u32>) -> Value {
        let since = sick_since.map(|second| format!("1970-01-01T00:00:{second:02}Z"));
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "uid": "2", "resourceVersion": version.to_string(),
                "creationTimestamp": "1970-01-01T00:00:00Z", "labels": {
                    "node.kubernetes.io/instance-type": "small", "karpenter.sh/registered": "true",
                    "karpenter.sh/initialized": "true"}},
            "spec": {"providerID": "kwok://a"},
            "status": {"conditions": [
                {"type": "Broken", "status": if since.is_some() { "True" } else { "False" },
                    "lastTransitionTime": since.unwrap_or("1970-01-01T00:00:00Z".to_owned())},
                {"type": "Ready", "status": "True", "lastHeartbeatTime": format!("1970-01-01T00:00:{version:02}Z")},
            ]},
        })
    }

    struct Fixture {
        operator: Arc<Operator<Kwok>>,
        server: ApiServer,
        stop: CancellationToken,
    }

    impl Fixture {
        /// A machine, on which the condition `Broken` is tolerated for half a minute.
        async fn new(sick_since: Option<u32>) -> Self {
            let mut cluster = Cluster::new(KINDS, LabelRules::core());
            cluster.repair_by(vec![RepairPolicy {
                condition: "Broken".to_owned(),
                status: "True".to_owned(),
                reason: None,
                toleration: SignedDuration::from_secs(30),
                termination_grace_period: None,
                priority: 0,
                action: RepairAction::ReplaceNode,
            }]);
            let server = ApiServer::default();
            server.put_at(CLAIM, claim());
            let (operator, _publisher) = testing::operator(&server, cluster);
            let fixture = Self { operator, server, stop: CancellationToken::new() };
            for kind in Kind::ALL {
                let change = Change::Listed(kind, std::collections::BTreeSet::new());
                fixture.operator.state.apply(change).await;
            }
            let claim = serde_json::from_value(claim()).unwrap();
            fixture.see(Object::NodeClaim(Box::new(claim))).await;
            fixture.see_node(2, sick_since).await;
            testing::spawn(run(Arc::clone(&fixture.operator), fixture.stop.clone()));
            fixture
        }

        async fn see(&self, object: Object) {
            self.operator.state.apply(Change::Applied(object)).await;
        }

        async fn see_node(&self, version: u32, sick_since: Option<u32>) {
            let node = serde_json::from_value(node(version, sick_since)).unwrap();
            self.see(Object::Node(Box::new(node))).await;
        }

        fn is_deleted(&self) -> bool {
            !self.server.at(CLAIM).unwrap()["metadata"]["deletionTimestamp"].is_null()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_goes_when_the_time_ends_for_which_it_is_tolerated() {
        for (fell_ill, seen_after) in [(0, 0), (3, 3), (3, 50)] {
            let began = Instant::now();
            let fixture = Fixture::new((seen_after == 0).then_some(fell_ill)).await;
            if seen_after > 0 {
                tokio::time::sleep_until(began + Duration::from_secs(seen_after)).await;
                fixture.see_node(3, Some(fell_ill)).await;
            }
            let due = u64::from(fell_ill + 30).max(seen_after);
            let slack = Duration::from_millis(1100);
            tokio::time::sleep_until(began + Duration::from_secs(due) - Duration::from_millis(1))
                .await;
            assert!(!fixture.is_deleted(), "{fell_ill} {seen_after}: too early");
            tokio::time::sleep(slack).await;
            assert!(fixture.is_deleted(), "{fell_ill} {seen_after}: too late");
            fixture.stop.cancel();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_gets_well_in_time_stays() {
        let fixture = Fixture::new(Some(0)).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        fixture.see_node(3, None).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(!fixture.is_deleted());
        fixture.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_has_to_do_with_illness_is_news() {
        let fixture = Fixture::new(None).await;
        let news = Arc::new(Notify::new());
        listen(&fixture.operator.state, &news);
        let is_news = || futures::FutureExt::now_or_never(news.notified()).is_some();
        for (version, sick_since, expected) in [
            (3, None, false),
            (4, Some(4), true),
            (5, Some(4), false),
            (6, Some(6), true),
            (7, None, true),
            (8, None, false),
        ] {
            fixture.see_node(version, sick_since).await;
            assert_eq!(is_news(), expected, "version {version}");
        }
        fixture.see_node(9, Some(9)).await;
        assert!(is_news());
        let gone = Change::Deleted(Kind::Node, crate::state::change::ObjectKey::cluster("n"), 10);
        fixture.operator.state.apply(gone).await;
        assert!(is_news());
        fixture.stop.cancel();
    }
}
