//! What kube-scheduler makes of a plan, and what is planned then.

use std::collections::BTreeSet;

use super::*;
use crate::plan::PodRef;
use crate::testing::dealing::{Scheduler, deal_out, refused};

/// In so many orders pods are let onto their machines.
const ORDERS: u64 = 96;

/// The pods that wait for a place, virtual ones left out.
fn waiting(snapshot: &Snapshot) -> BTreeSet<PodRef> {
    let waits = |pod: &&crate::snapshot::Pod| {
        pod.placement == Placement::Unschedulable && pod.buffer.is_none()
    };
    snapshot.pods.iter().filter(waits).map(crate::launch::pod_ref).collect()
}

/// Where pods are planned, in few words.
pub(super) fn told(plan: &Plan) -> String {
    let pods = |pods: &[PodRef]| pods.iter().map(|pod| &*pod.name).collect::<Vec<_>>().join(" ");
    let launches = plan.launches.iter().map(|it| {
        let needs = it.requirements.iter().filter(|need| need.values.len() == 1);
        let needs: Vec<&str> = needs.map(|need| need.values[0].as_str()).collect();
        let first = &it.instance_types[0];
        format!("{} {first} {needs:?} {:?}: {}", it.node_pool, it.labels, pods(&it.pods))
    });
    let nominations = plan.nominations.iter().map(|it| format!("{}: {}", it.node, it.pod.name));
    launches.chain(nominations).collect::<Vec<_>>().join("\n")
}

fn placed(plan: &Plan) -> impl Iterator<Item = PodRef> {
    let nominated = plan.nominations.iter().map(|it| it.pod.clone());
    nominated.chain(plan.launches.iter().flat_map(|launch| launch.pods.clone()))
}

proptest! {

    #[test]
    fn kube_scheduler_would_bind_every_pod_where_it_is_planned(scene in any_scene()) {
        let snapshot = scene.snapshot();
        for nominations in [true, false] {
            let policy = Policy { nominations, ..Policy::default() };
            let plan = provision(&snapshot, &policy, now(), 1, &());
            prop_assert_eq!(refused(&snapshot, &plan, ORDERS), vec![], "{}", told(&plan));
        }
    }

    #[test]
    fn dealing_a_plan_out_and_planning_again_changes_little(mut scene in any_scene(), seed in any::<u64>()) {
        scene.spare = 0;
        let snapshot = scene.snapshot();
        let first = provision(&snapshot, &Policy::default(), now(), 1, &());
        let planned: BTreeSet<PodRef> = placed(&first).collect();
        let (dealt, left) = deal_out(&snapshot, &first, Scheduler::new(seed));
        let queue = waiting(&dealt);
        prop_assert_eq!(queue.len(), left);
        let second = provision(&dealt, &Policy::default(), now(), 1, &());
        prop_assert_eq!(check(&dealt, &second), vec![]);
        if queue.is_empty() {
            prop_assert_eq!(&second.launches, &vec![]);
        }
        prop_assert!(second.launches.len() <= queue.len());
        let again: BTreeSet<PodRef> = placed(&second).collect();
        prop_assert!(again.is_subset(&queue));
        // Where pods that kube-scheduler put elsewhere than planned closed a domain, or a limited
        // pool is used up, others may have to wait.
        let constrained = snapshot.shapes.iter().any(|shape| !shape.pod_affinity.is_empty() || !shape.topology_spread.is_empty());
        if !constrained && scene.pools.iter().all(is_unbounded) {
            let homeless: Vec<_> = queue.difference(&again).filter(|pod| planned.contains(pod)).collect();
            prop_assert_eq!(homeless, Vec::<&PodRef>::new());
        }
    }
}
