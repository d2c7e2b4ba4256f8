use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tenon_crds::conditions::Subject;
use tenon_crds::conditions::nodepool::{NODE_CLASS_READY, TYPES, VALIDATION_SUCCEEDED};

use super::*;
use crate::state::change::{Change, Object};
use crate::testing::idle::{machine, operator, pool};

/// A NodeClaim whose launch was refused.
fn launching(name: &str) -> Value {
    let mut claim = machine(name, "default")[0].clone();
    claim["status"] = json!({"conditions": [{
        "type": "Launched", "status": "Unknown", "reason": "LaunchFailed", "message": "", "lastTransitionTime": "2026-11-20T11:59:00Z",
    }]});
    claim
}

/// What the watch brings, in this version.
fn seen(mut claim: Value, version: u32) -> Change {
    claim["metadata"]["resourceVersion"] = json!(version.to_string());
    Change::Applied(Object::NodeClaim(serde_json::from_value(claim).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_hangs_is_a_pause_after_its_time_and_no_more_once_its_machine_is_known() {
    let (operator, _) = operator(vec![launching("a")]).await;
    let pauses = operator.pauses.clone();
    let watching = watch_state(&operator.state, &pauses);
    let looking = async {
        tokio::time::sleep(PATIENCE / 2).await;
        assert_eq!(pauses.why(), None);
        tokio::time::sleep(PATIENCE / 2 + Duration::from_secs(1)).await;
        let why = pauses.why().unwrap();
        assert_eq!(why.reason, "AwaitingLaunches");
        assert!(why.message.ends_with("launch nodes twice: a (LaunchFailed)"), "{why:?}");
        let mut changes = pauses.changes();
        changes.borrow_and_update();
        operator.state.apply(seen(machine("a", "default")[0].clone(), 2)).await;
        tokio::time::timeout(Duration::from_secs(1), changes.changed()).await.unwrap().unwrap();
        assert_eq!(pauses.why(), None);
    };
    tokio::select! {
        () = watching => {}
        () = looking => {}
    }
}

#[tokio::test(start_paused = true)]
async fn launches_that_come_and_go_are_no_pause() {
    let (operator, _) = operator(vec![]).await;
    let told = AtomicUsize::new(0);
    let mut changes = operator.pauses.changes();
    let counting = async {
        while changes.changed().await.is_ok() {
            told.fetch_add(1, Ordering::Relaxed);
        }
    };
    let launches = async {
        for version in 1..=10 {
            operator.state.apply(seen(launching("a"), 2 * version)).await;
            assert!(!operator.state.read().is_synced());
            tokio::time::sleep(PATIENCE / 2).await;
            operator.state.apply(seen(machine("a", "default")[0].clone(), 2 * version + 1)).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = watch_state(&operator.state, &operator.pauses) => {}
        () = counting => {}
        () = launches => {}
    }
    assert_eq!(told.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn of_many_launches_a_few_are_named() {
    let claims = ["a", "b", "c", "d", "e"].map(launching);
    let (operator, _) = operator(claims.into()).await;
    let why = incomplete(&operator.state.read()).unwrap();
    assert!(why.message.contains("c (LaunchFailed), and 2 more"), "{why:?}");
}

#[test]
fn what_ends_a_pause_first_is_told_first_and_what_has_ended_is_not_told() {
    let pauses = Pauses::default();
    pauses.note(Source::Disruption, Some(panics(Source::Disruption)));
    let state = Why { reason: LAUNCHING, message: "a".to_owned() };
    pauses.note(Source::State, Some(state.clone()));
    assert_eq!(pauses.why(), Some(state));
    pauses.note(Source::State, None);
    assert_eq!(pauses.why(), Some(panics(Source::Disruption)));
    pauses.note(Source::Disruption, None);
    assert_eq!(pauses.why(), None);
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

/// A NodePool after it was judged once more.
fn judged(mut pool: NodePool, found: &Findings, ready: bool, now: Timestamp) -> NodePool {
    let subject = Subject::of(&pool.metadata);
    let status = pool.status.get_or_insert_default();
    let mut set = Conditions::new(TYPES, &mut status.conditions, subject, now);
    set.set_true(VALIDATION_SUCCEEDED);
    if ready {
        set.set_true(NODE_CLASS_READY);
    } else {
        set.set_false(NODE_CLASS_READY, "NoSubnets", "none match");
    }
    judge(&mut set, found);
    pool
}

fn said(pool: &NodePool) -> (ConditionStatus, String, String) {
    let condition = active(&pool.status.as_ref().unwrap().conditions).unwrap();
    (condition.status, condition.reason.clone(), condition.message.clone())
}

fn fresh() -> NodePool {
    let mut pool = pool("default", json!({}));
    pool["status"] = json!({});
    serde_json::from_value(pool).unwrap()
}

fn paused() -> Findings {
    let why = Why { reason: LAUNCHING, message: "waiting for a".to_owned() };
    Findings { everywhere: Some(why), ..Findings::default() }
}

#[test]
fn the_condition_tells_what_has_to_be_mended_first_and_leaves_ready_alone() {
    let no_catalog = || Findings {
        no_catalog: Some("no prices are known yet".to_owned()),
        ..Findings::default()
    };
    let left_out = Findings { left_out: Some(at(600)), ..Findings::default() };
    for (found, ready, status, reason) in [
        (Findings::default(), true, ConditionStatus::True, "PlanningActive"),
        (left_out, true, ConditionStatus::True, "PodsLeftOut"),
        (no_catalog(), true, ConditionStatus::False, "InstanceTypesUnknown"),
        (
            Findings { no_catalog: no_catalog().no_catalog, ..paused() },
            true,
            ConditionStatus::False,
            "AwaitingLaunches",
        ),
        (paused(), false, ConditionStatus::False, "NodePoolNotReady"),
    ] {
        let pool = judged(fresh(), &found, ready, at(0));
        let (is, why, _) = said(&pool);
        assert_eq!((is, why.as_str()), (status, reason));
        let conditions = &pool.status.as_ref().unwrap().conditions;
        let root = conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        assert_eq!(root.status == ConditionStatus::True, ready, "{reason}");
    }
    let (.., message) = said(&judged(fresh(), &Findings::default(), false, at(0)));
    assert_eq!(message, "NodeClassReady=False");
}

#[test]
fn a_pause_has_one_event_when_it_lasts_and_one_when_it_ends() {
    let conditions = |pool: &NodePool| pool.status.clone().unwrap().conditions;
    let active = judged(fresh(), &Findings::default(), true, at(0));
    assert_eq!(news(&[], &active, at(0)), (None, None));
    let pool = judged(active.clone(), &paused(), true, at(10));
    // Not at once, and somebody has to look again.
    assert_eq!(news(&conditions(&active), &pool, at(10)), (None, Some(TOLD_AFTER)));
    let (event, again) = news(&conditions(&pool), &pool, at(25));
    let event = event.unwrap();
    assert_eq!((event.reason(), again), (Reason::PlanningPaused, None));
    assert_eq!(event.message(), "Planning is paused, AwaitingLaunches: waiting for a");
    let resumed = judged(pool.clone(), &Findings::default(), true, at(60));
    let (event, _) = news(&conditions(&pool), &resumed, at(60));
    assert_eq!(event.unwrap().reason(), Reason::PlanningResumed);
    assert_eq!(news(&conditions(&resumed), &resumed, at(61)), (None, None));
    // What was not told does not end either.
    let short = judged(pool.clone(), &Findings::default(), true, at(20));
    assert_eq!(news(&conditions(&pool), &short, at(20)), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_does_not_say_that_planning_goes_on_while_it_does_not() {
    let pool = judged(fresh(), &paused(), true, at(0));
    let left = pool.status.unwrap().conditions;
    let (operator, _) = operator(vec![launching("a")]).await;
    let why = inherited(&left, &operator.state.read());
    assert_eq!(why.map(|why| why.reason), Some("AwaitingLaunches"));
    operator.state.apply(seen(machine("a", "default")[0].clone(), 2)).await;
    assert_eq!(inherited(&left, &operator.state.read()), None);
}
