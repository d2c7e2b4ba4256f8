use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tenon_planner::snapshot::DisruptionReason;

use super::*;
use crate::testing::idle::{Idle, LATENCY, machine, operator, pool};

const N: usize = 300;

/// So many empty nodes of one NodePool.
fn empty(n: usize) -> Vec<Value> {
    let machines = (0..n).flat_map(|index| machine(&format!("n{index:04}"), "default"));
    std::iter::once(pool("default", json!({}))).chain(machines).collect()
}

fn going(operator: &Operator<Idle>) -> usize {
    let state = operator.state.read();
    state.claims().filter(|claim| state.is_going(claim)).count()
}

#[tokio::test(start_paused = true)]
async fn many_empty_nodes_are_checked_together_and_go_side_by_side() {
    let (operator, api) = operator(empty(N)).await;
    let (commands, stop) = (Commands::new(), CancellationToken::new());
    let began = Instant::now();
    let started = pass(&operator, &commands, 1, &mut None, &stop).await;
    assert_eq!((started, going(&operator)), (N, N));
    // Two writes for each.
    let (writes, at_once) = api.load();
    assert_eq!((writes, at_once), (600, CONCURRENCY));
    let took = began.elapsed();
    assert!(took < VALIDATION_DELAY + LATENCY * 30, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_begun_in_time_is_checked_once_more() {
    let (operator, _) = operator(empty(N)).await;
    let (commands, stop) = (Commands::new(), CancellationToken::new());
    let plan = plan(&operator, 1, None, &stop).await.unwrap();
    let mut left = VecDeque::from(plan.commands);
    let late = Instant::now();
    let started = start_all(&operator, &commands, &mut left, Some(late), &stop).await;
    assert_eq!((started, left.len()), (CONCURRENCY, N - CONCURRENCY));
    let verdicts = validate(&operator, left.into(), &stop).await.unwrap();
    assert!(verdicts.iter().all(|(_, verdict)| verdict.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn budgets_count_the_former_commands_of_the_same_plan() {
    let mut objects = empty(10);
    let (operator, _) = operator(objects.clone()).await;
    let stop = CancellationToken::new();
    let plan = plan(&operator, 1, None, &stop).await.unwrap();
    assert_eq!(plan.commands.len(), 10);
    // The budget is a smaller one by the time that they are checked.
    objects[0] = pool("default", json!({"disruption": {"budgets": [{"nodes": "3"}]}}));
    let (operator, _) = crate::testing::idle::operator(objects).await;
    let verdicts = validate(&operator, plan.commands, &stop).await.unwrap();
    let verdicts: Vec<_> = verdicts.into_iter().map(|(_, verdict)| verdict).collect();
    assert_eq!(verdicts[..3], [const { Ok(()) }; 3]);
    assert!(verdicts[3..].iter().all(|it| *it == Err(StayReason::Budget(DisruptionReason::Empty))));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_begun_after_the_operator_is_told_to_stop() {
    let (operator, api) = operator(empty(3)).await;
    let (commands, stop) = (Commands::new(), CancellationToken::new());
    let calm = stop.clone();
    let stopping = async {
        tokio::time::sleep(VALIDATION_DELAY / 2).await;
        stop.cancel();
    };
    let began = Instant::now();
    let mut resume = None;
    let passing = pass(&operator, &commands, 1, &mut resume, &calm);
    let (started, ()) = tokio::join!(passing, stopping);
    assert_eq!((started, api.load().0, going(&operator)), (0, 0, 0));
    assert!(began.elapsed() < VALIDATION_DELAY);
    assert!(plan(&operator, 1, None, &stop).await.is_none());
    assert!(validate(&operator, Vec::new(), &stop).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn while_a_nodeclaim_has_no_machine_no_command_holds() {
    let (operator, _) = operator(empty(2)).await;
    let stop = CancellationToken::new();
    let commands = plan(&operator, 1, None, &stop).await.unwrap().commands;
    let mut launching = machine("launching", "default")[0].clone();
    launching["status"] = json!({});
    let claim = serde_json::from_value(launching).unwrap();
    operator.state.apply(crate::state::change::Change::Created(Box::new(claim))).await;
    let verdicts = validate(&operator, commands, &stop).await.unwrap();
    assert_eq!(verdicts.len(), 2);
    assert!(verdicts.iter().all(|(_, verdict)| matches!(verdict, Err(StayReason::Changed(_)))));
}

#[tokio::test(start_paused = true)]
async fn what_a_former_operator_left_behind_is_taken_back() {
    let mut objects = empty(2);
    let taint = json!([{"key": labels::DISRUPTED_TAINT, "effect": "NoSchedule"}]);
    objects[2]["spec"]["taints"] = taint;
    let reason = json!({"type": DISRUPTION_REASON, "status": "True", "reason": "Empty", "message": "", "lastTransitionTime": "2026-11-20T11:00:00Z"});
    objects[1]["status"]["conditions"].as_array_mut().unwrap().push(reason);
    let (operator, api) = operator(objects).await;
    clean_up(&operator, &Commands::new()).await;
    assert_eq!(api.load().0, 2);
    let state = operator.state.read();
    assert!(!state.node("n0000").unwrap().has_taint(labels::DISRUPTED_TAINT, "NoSchedule"));
    assert!(!is_true(state.claim("n0000").unwrap(), DISRUPTION_REASON));
}

#[test]
fn an_event_about_a_node_that_stays_is_a_warning_only_where_a_pool_is_sick() {
    let node = crate::watch::wire::Node::default();
    let words = |reason| Words {
        reason,
        message: "because".to_owned(),
        window: jiff::SignedDuration::from_mins(1),
    };
    let same = |reason| {
        words(reason).about(&node)
            == Event::normal(&node, reason, "because").within(words(reason).window)
    };
    assert!(same(Reason::Unconsolidatable));
    assert!(!same(Reason::NodeRepairBlocked));
    // Another obstacle is another event.
    assert!(!same(Reason::DisruptionBlocked));
}

#[test]
fn that_a_node_is_still_being_made_is_no_news() {
    let now = jiff::Timestamp::UNIX_EPOCH;
    let made = |seconds: i64| {
        let mut claim = NodeClaim::new("a", tenon_crds::NodeClaimSpec::default());
        let created = now.checked_sub(jiff::SignedDuration::from_secs(seconds)).unwrap();
        claim.metadata.creation_timestamp = Some(Time(created));
        claim
    };
    for stay in [StayReason::NotInitialized, StayReason::Nominated] {
        assert!(is_being_made(&made(30), &stay, now));
        assert!(!is_being_made(&made(60), &stay, now));
    }
    assert!(!is_being_made(&made(30), &StayReason::DoNotDisrupt, now));
}
