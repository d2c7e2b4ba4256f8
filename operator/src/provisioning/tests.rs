use serde_json::json;

use super::*;
use crate::testing::idle::{Idle, machine, operator, pending, pool};

mod triggers;

async fn planned(operator: &Arc<Operator<Idle>>) -> Plan {
    plan(operator, 1, &CancellationToken::new()).await.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn pods_that_fit_nowhere_get_machines_and_are_remembered_as_theirs() {
    let objects = vec![pool("default", json!({})), pending("a", "1"), pending("b", "200")];
    let (operator, api) = operator(objects).await;
    let (plan, absent) = plan(&operator, 1, &CancellationToken::new()).await.unwrap();
    let n_launches = plan.launches.len();
    assert!(n_launches > 0);
    carry_out(&operator, &plan, &absent, &CancellationToken::new()).await;
    assert_eq!(api.load().0, n_launches);
    let state = operator.state.read();
    assert_eq!(state.claims().count(), n_launches);
    let claims: Vec<_> = state.claims().map(|claim| claim.metadata.name.clone().unwrap()).collect();
    let onto = |claim: &String| state.planned_onto(claim).count();
    assert_eq!(claims.iter().map(onto).sum::<usize>(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_on_a_node_is_expected_there_and_nothing_is_launched() {
    let [claim, node] = machine("n1", "default");
    let (operator, api) =
        operator(vec![pool("default", json!({})), claim, node, pending("a", "1")]).await;
    let (plan, absent) = plan(&operator, 1, &CancellationToken::new()).await.unwrap();
    carry_out(&operator, &plan, &absent, &CancellationToken::new()).await;
    assert_eq!((api.load().0, plan.nominations.len()), (0, 1));
    assert!(operator.state.read().nominated_until("n1").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_machine_takes_is_counted_as_waiting() {
    let (operator, _) = operator(vec![pool("default", json!({})), pending("a", "10000")]).await;
    let (plan, absent) = plan(&operator, 1, &CancellationToken::new()).await.unwrap();
    carry_out(&operator, &plan, &absent, &CancellationToken::new()).await;
    let told = operator.context.metrics.encode().unwrap();
    assert!(
        told.contains("karpenter_scheduler_unschedulable_pods_count{controller=\"provisioner\"} 1"),
        "{told}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_dropped_when_the_operator_is_told_to_stop_and_no_launch_is_begun() {
    let (operator, api) = operator(vec![pool("default", json!({})), pending("a", "1")]).await;
    let (made, absent) = plan(&operator, 1, &CancellationToken::new()).await.unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    assert!(plan(&operator, 1, &stop).await.is_none());
    carry_out(&operator, &made, &absent, &stop).await;
    assert_eq!(api.load().0, 0);
}

#[tokio::test(start_paused = true)]
async fn pods_that_the_planner_can_not_cope_with_are_left_out_and_the_others_planned_for() {
    let (operator, _) =
        operator(vec![pool("default", json!({})), pending("a", "1"), pending("b", "2")]).await;
    assert_eq!(n_pods(&planned(&operator).await), 2);
    let snapshot = operator.snapshot();
    let bad = snapshot.pods.iter().find(|pod| *pod.name == *"b").unwrap();
    let until = operator.now() + quarantine::PERIOD;
    operator.quarantine.add(Arc::clone(&snapshot.shapes[bad.shape.0 as usize]), until);
    assert_eq!(n_pods(&planned(&operator).await), 1);
    tokio::time::advance(quarantine::PERIOD.unsigned_abs()).await;
    assert_eq!(n_pods(&planned(&operator).await), 2);
}

#[tokio::test(start_paused = true)]
async fn the_pods_that_make_planning_panic_are_found_and_left_out() {
    let mut objects = vec![pool("default", json!({}))];
    objects.extend((1..=9).map(|cores| pending(&format!("pod-{cores}"), &cores.to_string())));
    let (operator, _) = operator(objects).await;
    let (stop, panicked) = (CancellationToken::new(), Panicked::new(&"out of bounds"));
    let fails_for = |bad: &'static str| {
        move |_: &Operator<Idle>, some: &Snapshot, _: &Until| {
            let mut waiting = some.pods.iter().filter(|pod| quarantine::waits(pod));
            assert!(!waiting.any(|pod| *pod.name == *bad), "a defect");
            Plan::default()
        }
    };
    assert!(!set_aside(&operator, fails_for("pod-0"), &stop, &panicked).await);
    assert!(set_aside(&operator, fails_for("pod-7"), &stop, &panicked).await);
    let snapshot = operator.snapshot();
    let left_out: Vec<_> = snapshot.pods.iter().filter(|pod| !quarantine::waits(pod)).collect();
    assert_eq!(left_out.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["pod-7"]);
    // Whatever fails without any of them is not their fault.
    let always = |_: &Operator<Idle>, _: &Snapshot, _: &Until| panic!("a defect");
    assert!(!set_aside(&operator, always, &stop, &panicked).await);
    assert_eq!(n_pods(&planned(&operator).await), 8);
}

#[tokio::test(start_paused = true)]
async fn a_nodepool_that_makes_planning_panic_is_left_out_and_the_others_planned_with() {
    let objects = ["a", "b", "c"].map(|name| pool(name, json!({})));
    let pods = [pending("x", "1"), pending("y", "2")];
    let (operator, _) = operator(objects.into_iter().chain(pods).collect()).await;
    let (stop, panicked) = (CancellationToken::new(), Panicked::new(&"out of bounds"));
    let has = |some: &Snapshot, name: &str| some.node_pools.iter().any(|pool| pool.name == name);
    let names = |operator: &Operator<Idle>| {
        let pools = operator.snapshot().node_pools;
        pools.into_iter().map(|pool| pool.name).collect::<Vec<_>>()
    };
    // Whether pods wait or not, and when one does.
    let idly = move |_: &Operator<Idle>, some: &Snapshot, _: &Until| {
        assert!(!has(some, "b"), "a defect");
        Plan::default()
    };
    assert!(set_aside(&operator, idly, &stop, &panicked).await);
    assert_eq!(names(&operator), ["a", "c"]);
    let with_pods = move |_: &Operator<Idle>, some: &Snapshot, _: &Until| {
        let waits = some.pods.iter().any(quarantine::waits);
        assert!(!(waits && has(some, "a")), "a defect");
        Plan::default()
    };
    assert!(set_aside(&operator, with_pods, &stop, &panicked).await);
    assert_eq!(names(&operator), ["c"]);
    let plan = planned(&operator).await;
    assert_eq!(n_pods(&plan), 2);
    assert!(plan.launches.iter().all(|launch| launch.node_pool == "c"));
    tokio::time::advance(quarantine::PERIOD.unsigned_abs()).await;
    assert_eq!(names(&operator), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_nodepool_that_only_disruption_can_not_cope_with_still_gets_machines() {
    let objects = ["a", "b"].map(|name| pool(name, json!({})));
    let (operator, _) = operator(objects.into_iter().collect()).await;
    let until = operator.now() + quarantine::PERIOD;
    operator.quarantine.add_node_pool(Work::Disruption, "a".to_owned(), until);
    let names = |work| {
        let pools = operator.snapshot_for(work, |_| true).node_pools;
        pools.into_iter().map(|pool| pool.name).collect::<Vec<_>>()
    };
    assert_eq!(names(Work::All), ["a", "b"]);
    assert_eq!(names(Work::Disruption), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn pods_for_which_every_nodepool_fails_are_to_blame_themselves() {
    let objects = ["a", "b"].map(|name| pool(name, json!({})));
    let pods = [pending("x", "1"), pending("y", "2")];
    let (operator, _) = operator(objects.into_iter().chain(pods).collect()).await;
    let (stop, panicked) = (CancellationToken::new(), Panicked::new(&"out of bounds"));
    let fails = |_: &Operator<Idle>, some: &Snapshot, _: &Until| {
        let waits = some.pods.iter().any(quarantine::waits);
        assert!(!waits || some.node_pools.is_empty(), "a defect");
        Plan::default()
    };
    assert!(set_aside(&operator, fails, &stop, &panicked).await);
    let snapshot = operator.snapshot();
    assert_eq!(snapshot.node_pools.len(), 2);
    assert!(!snapshot.pods.iter().any(quarantine::waits));
}

fn n_pods(plan: &Plan) -> usize {
    plan.launches.iter().map(|launch| launch.pods.len()).sum()
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_used_up_meanwhile_keeps_back_a_launch() {
    let limited = pool("default", json!({"limits": {"nodes": "1"}}));
    let (operator, api) = operator(vec![limited.clone(), pending("a", "1")]).await;
    let (plan, absent) = plan(&operator, 1, &CancellationToken::new()).await.unwrap();
    assert_eq!(plan.launches.len(), 1);
    let machines = ["n1", "n2"].into_iter().flat_map(|name| machine(name, "default"));
    let objects = std::iter::once(limited).chain(machines).collect();
    let (full, other) = crate::testing::idle::operator(objects).await;
    carry_out(&full, &plan, &absent, &CancellationToken::new()).await;
    assert_eq!(other.load().0, 0);
    carry_out(&operator, &plan, &absent, &CancellationToken::new()).await;
    assert_eq!(api.load().0, 1);
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_start_a_batch_again_and_again_until_told_to_stop() {
    let (operator, api) = operator(vec![pool("default", json!({})), pending("a", "1")]).await;
    let stop = CancellationToken::new();
    let (_woken, wake) = watch::channel(0);
    let running = run(Arc::clone(&operator), Outcomes::default(), wake, stop.clone());
    let watching = async {
        while api.load().0 == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stop.cancel();
    };
    tokio::join!(running, watching);
    assert_eq!(operator.state.read().claims().count(), 1);
}
