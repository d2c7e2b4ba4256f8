//! What hundreds of pods that differ must not make the planner do, which no plan tells.

use super::behaviour::{HOSTNAME, app, spread};
use super::world::*;
use crate::compile::Problem;
use crate::pack::{Bins, Strategy};
use crate::policy::Policy;
use crate::provision::demands;
use crate::ruled::{Placing, place};
use crate::snapshot::{PodShape, Snapshot};
use crate::solver::Solver;
use crate::topology::Host;

fn pending(n: usize, pod: impl Fn(usize) -> PodShape) -> Snapshot {
    let world = builder().pool(on_demand("default"));
    (0..n).fold(world, |world, number| world.pending(&format!("{number:04}"), pod(number))).build()
}

#[test]
fn machines_that_hold_as_many_pods_as_spread_over_hosts_allows_are_passed_by() {
    let (n, skew) = (40, 2);
    let snapshot = pending(n, |number| {
        let mut pod = spread(app("x", 300), HOSTNAME, skew);
        pod.labels.insert("number".to_owned(), number.to_string());
        pod
    });
    let policy = Policy::default();
    let problem = Problem::new(&snapshot, &policy);
    let (mut solver, (mut demands, _)) = (Solver::new(&problem), demands(&problem, |_| true));
    let strategy = Strategy::Plain;
    let mut bins = Bins::new(&solver, strategy);
    let last = demands.pop().expect("there are pods");
    for demand in &mut demands {
        let waiting = place(&mut solver, &mut bins, demand, strategy, &|_| true, &());
        assert!(waiting.is_none());
    }
    let placing = Placing::new(&bins, &solver, &last);
    let has_room = |claim: &usize| {
        solver.counts.room_on_host(&problem, last.shape, 0, Host::Claim(*claim)) > 0
    };
    let open: Vec<usize> = (0..solver.claims.len()).filter(has_room).collect();
    assert!(open.len() < solver.claims.len() / 2, "most of them are full");
    assert_eq!(placing.looked_at(solver.claims.len()), open);
}
