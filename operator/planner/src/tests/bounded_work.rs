//! What hundreds of pods that differ must not make the planner do, which no plan tells.

use super::behaviour::{HOSTNAME, app, spread};
use super::fixtures::*;
use crate::compile::Problem;
use crate::demands::demands;
use crate::pack::constrained::Placing;
use crate::pack::stepwise::place;
use crate::pack::{Bins, Strategy, pack};
use crate::policy::Policy;
use crate::snapshot::{Operator, PodShape, Snapshot};
use crate::solver::Solver;
use crate::topology::Host;

fn pending(n: usize, pod: impl Fn(usize) -> PodShape) -> Snapshot {
    let world = builder().pool(on_demand("default"));
    (0..n).fold(world, |world, number| world.pending(&format!("{number:04}"), pod(number))).build()
}

#[test]
fn machines_for_pods_that_each_require_something_else_make_few_specs() {
    let n = 1_500;
    let snapshot = pending(n, |number| {
        let but = format!("type-{number}");
        let but = need("node.kubernetes.io/instance-type", Operator::NotIn, &[&but]);
        let (cpu, memory) = (number * 37 % 101, number * 53 % 97);
        let size = |part: usize| i64::try_from(part).expect("a small number");
        let pod = shape(200 + 10 * size(cpu), (256 + 64 * size(memory)) << 20);
        PodShape { required_affinity: vec![vec![but]], ..pod }
    });
    let policy = Policy::default();
    let problem = Problem::new(&snapshot, &policy);
    let (mut solver, (mut demands, _)) = (Solver::new(&problem), demands(&problem, |_| true));
    let waiting = pack(&mut solver, &mut demands, Strategy::Cheapest, &|_| true, &());
    assert!(waiting.is_empty());
    // One for each pod as it comes to its machine, one for it alone, and those of the last few
    // hundred pods: for each type that a machine might be there would be twice as many.
    let specs = solver.specs.len();
    assert!(specs <= 4 * n, "{specs} specs");
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
        solver.counts.room_on_host(&problem.topology(), last.shape, 0, Host::Claim(*claim)) > 0
    };
    let open: Vec<usize> = (0..solver.claims.len()).filter(has_room).collect();
    assert!(open.len() < solver.claims.len() / 2, "most of them are full");
    assert_eq!(placing.looked_at(solver.claims.len()), open);
}
