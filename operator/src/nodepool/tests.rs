use super::*;
use jiff::Timestamp;
use tenon_crds::ConditionStatus;

use tenon_crds::conditions::nodepool::PLANNING_ACTIVE;
use tokio_util::sync::CancellationToken;

use crate::controller::Controller;
use crate::events::Reason;
use crate::pauses::{Source, Why};
use crate::testing::idle::{machine, operator, pool};

fn judged(class: Option<&NodeClassState>) -> (ConditionStatus, String) {
    let mut list = Vec::new();
    let subject = Subject { generation: 1, created: Timestamp::UNIX_EPOCH.into(), deleting: false };
    let mut set = Conditions::new(TYPES, &mut list, subject, Timestamp::UNIX_EPOCH);
    judge_class(&mut set, class);
    let condition = set.get(NODE_CLASS_READY).unwrap();
    (condition.status, condition.reason.clone())
}

#[test]
fn a_pool_is_ready_when_its_class_exists_stays_and_is_ready() {
    let ready = || NodeClassState { ready: Ok(()), unknown: false, deleting: false, generation: 1 };
    let not_ready = Err(("NoSubnets".to_owned(), "none match".to_owned()));
    for (class, status, reason) in [
        (None, ConditionStatus::False, "NodeClassNotFound"),
        (Some(ready()), ConditionStatus::True, "NodeClassReady"),
        (
            Some(NodeClassState { deleting: true, ..ready() }),
            ConditionStatus::False,
            "NodeClassTerminating",
        ),
        (
            Some(NodeClassState { unknown: true, ready: not_ready.clone(), ..ready() }),
            ConditionStatus::False,
            "NodeClassReadinessUnknown",
        ),
        (Some(NodeClassState { ready: not_ready, ..ready() }), ConditionStatus::False, "NoSubnets"),
    ] {
        assert_eq!(judged(class.as_ref()), (status, reason.to_owned()));
    }
}

#[test]
fn all_problems_of_a_pool_are_told() {
    let mut list = Vec::new();
    let subject = Subject { generation: 1, created: Timestamp::UNIX_EPOCH.into(), deleting: false };
    let mut set = Conditions::new(TYPES, &mut list, subject, Timestamp::UNIX_EPOCH);
    judge_validation(&mut set, &["one".to_owned(), "two".to_owned()]);
    assert_eq!(set.get(VALIDATION_SUCCEEDED).unwrap().message, "one; two");
    judge_validation(&mut set, &[]);
    assert!(set.is_true(VALIDATION_SUCCEEDED));
}

#[tokio::test(start_paused = true)]
async fn a_pool_gets_its_hash_and_conditions_once() {
    let (operator, api) = operator(vec![pool("default", json!({}))]).await;
    let health = Health::default();
    for _ in 0..2 {
        let action = reconcile(&operator, &health, "default").await.unwrap();
        assert_eq!(action, Action::After(POLL));
        assert_eq!(api.load().0, 2, "annotations and status");
    }
    let pool = operator.state.read().pool("default").cloned().unwrap();
    let annotations = pool.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[labels::NODEPOOL_HASH], hash::node_pool(&pool.spec));
    assert_eq!(annotations[labels::NODEPOOL_HASH_VERSION], hash::NODE_POOL_HASH_VERSION);
    let status = pool.status.as_ref().unwrap();
    let of = |type_: &str| status.conditions.iter().find(|it| it.type_ == type_).unwrap().status;
    assert_eq!(of(VALIDATION_SUCCEEDED), ConditionStatus::True);
    assert_eq!(of(NODE_CLASS_READY), ConditionStatus::True);
    assert_eq!(of(NODE_REGISTRATION_HEALTHY), ConditionStatus::Unknown);
    assert_eq!(status.node_class_observed_generation, Some(1));
    assert_eq!(reconcile(&operator, &health, "gone").await.unwrap(), Action::Wait);
}

#[tokio::test(start_paused = true)]
async fn a_new_version_of_the_hash_reaches_the_nodeclaims_and_drift_stays_drift() {
    let mut old = pool("default", json!({}));
    old["metadata"]["annotations"] =
        json!({labels::NODEPOOL_HASH: "1", labels::NODEPOOL_HASH_VERSION: "v0"});
    let claim = |name: &str, pool: &str| {
        let mut claim = machine(name, pool)[0].clone();
        claim["metadata"]["annotations"] =
            json!({labels::NODEPOOL_HASH: "1", labels::NODEPOOL_HASH_VERSION: "v0"});
        claim
    };
    let mut drifted = claim("drifted", "default");
    let condition = json!({"type": DRIFTED, "status": "True", "reason": DRIFTED, "message": "", "lastTransitionTime": "2026-11-20T11:00:00Z"});
    drifted["status"]["conditions"].as_array_mut().unwrap().push(condition);
    let objects = vec![old, drifted, claim("same", "default"), claim("other", "another")];
    let (operator, _) = operator(objects).await;
    reconcile(&operator, &Health::default(), "default").await.unwrap();
    let state = operator.state.read();
    let new = hash::node_pool(&state.pool("default").unwrap().spec);
    let of = |name: &str| {
        let claim = state.claim(name).unwrap();
        let get = |key: &str| annotation(claim, key).unwrap().to_owned();
        (get(labels::NODEPOOL_HASH), get(labels::NODEPOOL_HASH_VERSION))
    };
    let version = hash::NODE_POOL_HASH_VERSION.to_owned();
    assert_eq!(of("same"), (new, version.clone()));
    assert_eq!(of("drifted"), ("1".to_owned(), version));
    assert_eq!(of("other"), ("1".to_owned(), "v0".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_health_of_a_pool_follows_the_nodeclaims_that_it_owns() {
    let mut objects = vec![pool("default", json!({}))];
    objects.push(machine("a", "default")[0].clone());
    objects[1]["metadata"]["ownerReferences"] = json!([{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": "default"}]);
    objects.push(machine("b", "default")[0].clone());
    let (operator, api) = operator(objects).await;
    let health = Health::default();
    let claim = |name: &str| operator.state.read().claim(name).cloned().unwrap();
    let status = || {
        let pool = operator.state.read().pool("default").cloned().unwrap();
        let conditions = pool.status.clone().unwrap().conditions;
        conditions.into_iter().find(|it| it.type_ == NODE_REGISTRATION_HEALTHY).map(|it| it.status)
    };
    // It is owned by none, or by a pool of the same name that was deleted.
    health.record(&operator, &claim("b"), false).await.unwrap();
    health.record(&operator, &claim("b"), false).await.unwrap();
    assert_eq!((status(), api.load().0), (None, 0));
    for (registered, expected) in [
        (false, None),
        (false, Some(ConditionStatus::False)),
        (true, Some(ConditionStatus::False)),
        (true, Some(ConditionStatus::False)),
        (true, Some(ConditionStatus::True)),
    ] {
        health.record(&operator, &claim("a"), registered).await.unwrap();
        assert_eq!(status(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_machines_that_register_at_once_one_makes_the_pool_healthy() {
    let mut objects = vec![pool("default", json!({}))];
    let owner = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": "default"});
    for name in ["a", "b", "c", "d"] {
        let [mut claim, _] = machine(name, "default");
        claim["metadata"]["ownerReferences"] = json!([owner]);
        objects.push(claim);
    }
    let (operator, api) = operator(objects).await;
    let health = Health::default();
    let claims: Vec<Arc<NodeClaim>> = operator.state.read().claims().cloned().collect();
    let all = claims.iter().map(|claim| health.record(&operator, claim, true));
    futures::future::try_join_all(all).await.unwrap();
    assert_eq!(api.load().0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pool_tells_that_planning_is_paused_in_a_condition_and_once_in_an_event() {
    let (operator, mut events, _) =
        crate::testing::idle::watched(vec![pool("default", json!({}))]).await;
    let (health, stop) = (Arc::new(Health::default()), CancellationToken::new());
    let (_woken, wake) = tokio::sync::watch::channel(0);
    let controller = Controller::new(NodePools::new(Arc::clone(&operator), health));
    let controller = controller.on(wake).on(operator.pauses.changes());
    let running = operator.run(controller, stop.clone());
    let mut told = Vec::new();
    let looking = async {
        let why = Why { reason: "AwaitingLaunches", message: "waiting for a".to_owned() };
        let active = || {
            let pool = operator.state.read().pool("default").cloned().unwrap();
            let conditions = pool.status.clone().unwrap_or_default().conditions;
            let active = conditions.iter().find(|it| it.type_ == PLANNING_ACTIVE);
            active.map(|it| (it.status, it.reason.clone()))
        };
        for (why, status, reason) in [
            (None, ConditionStatus::True, "PlanningActive"),
            (Some(why), ConditionStatus::False, "AwaitingLaunches"),
            (None, ConditionStatus::True, "PlanningActive"),
        ] {
            operator.pauses.note(Source::State, why);
            while active() != Some((status, reason.to_owned())) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(Duration::from_mins(10)).await;
            told.extend(std::iter::from_fn(|| events.try_next()).map(|it| it.reason()));
        }
        stop.cancel();
    };
    tokio::join!(running, looking);
    assert_eq!(told, [Reason::PlanningPaused, Reason::PlanningResumed]);
}
