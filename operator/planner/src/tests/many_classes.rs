//! Pods of which each requires something else of its machine.

use super::behaviour::{ZONE, app, spread};
use super::fixtures::*;
use proptest::prelude::*;

use crate::compile::Problem;
use crate::machine_specs::{MOST, MachineSpecs, SPARED, SpecId, VALUES};
use crate::policy::Policy;
use crate::snapshot::{NodePhase, Operator, PodShape, Requirement, Snapshot};
use crate::topology::both_ways;

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Pods that are spread over zones; each does without a type of its own, as far as `own` says.
fn pods(n: usize, own: impl Fn(usize) -> bool) -> Snapshot {
    let pod = |number: usize| -> PodShape {
        let mut shape = spread(app(&format!("app-{number:04}"), 300), ZONE, 1);
        if own(number) {
            let but = format!("type-{number}");
            shape.required_affinity = vec![vec![need(INSTANCE_TYPE, Operator::NotIn, &[&but])]];
        }
        shape
    };
    let world = builder().pool(on_demand("default"));
    (0..n).fold(world, |world, number| world.pending(&format!("{number:04}"), pod(number))).build()
}

#[test]
fn there_are_only_so_many_specs_and_every_class_still_has_its_own() {
    let (flooding, late) = (200, 20);
    let (snapshot, policy) = (pods(flooding + late, |_| true), Policy::default());
    let problem = Problem::new(&snapshot, &policy);
    assert_eq!(problem.tables.classes.len(), flooding + late);
    let mut specs = MachineSpecs::default();
    let base = specs.base(&problem.tables, 0);
    let home = |specs: &mut MachineSpecs, class| {
        specs.join(&problem.tables, base, class, 0).expect("it opens")
    };
    for class in 0..flooding {
        let own = home(&mut specs, class);
        for other in 0..flooding {
            let _ = specs.join(&problem.tables, own, other, 0);
        }
    }
    assert!(flooding * (flooding - 1) / 2 > MOST, "as many specs as pairs of classes");
    for class in flooding..flooding + late {
        let own = home(&mut specs, class);
        assert_eq!(specs.join(&problem.tables, own, class, 0), Ok(own));
        assert!(specs.join(&problem.tables, own, 0, 0).is_err(), "that would be another spec");
        let key = problem.tables.symbols.find_key(ZONE).expect("rules are about it");
        let there: Vec<SpecId> = ZONES
            .iter()
            .filter_map(|zone| {
                specs.at(&problem.tables, own, key, problem.tables.symbols.find_value(zone)?)
            })
            .collect();
        assert_eq!(there.len(), ZONES.len());
        for spec in there {
            assert_eq!(specs.join(&problem.tables, spec, class, 0), Ok(spec));
        }
    }
    let owners = problem.tables.classes.len() + problem.tables.templates.len();
    assert!(specs.len() <= MOST + owners * SPARED as usize);
}

#[test]
fn specs_list_only_so_many_values_and_every_class_still_has_its_own() {
    let (n, each) = (60, 4_000);
    let world = builder().pool(on_demand("default"));
    let world = (0..n).fold(world, |world, number| {
        let but: Vec<String> = (0..each).map(|at| format!("type-{number}-{at}")).collect();
        let but: Vec<&str> = but.iter().map(String::as_str).collect();
        let mut shape = app("x", 300);
        shape.required_affinity = vec![vec![need(INSTANCE_TYPE, Operator::NotIn, &but)]];
        world.pending(&format!("{number:02}"), shape)
    });
    let (snapshot, policy) = (world.build(), Policy::default());
    let problem = Problem::new(&snapshot, &policy);
    let mut specs = MachineSpecs::default();
    let base = specs.base(&problem.tables, 0);
    let mut shared = base;
    for class in 0..n {
        shared = specs.join(&problem.tables, shared, class, 0).unwrap_or(shared);
        assert!(specs.join(&problem.tables, base, class, 0).is_ok(), "a machine of its own");
    }
    assert!(n * (n + 1) / 2 * each > VALUES, "as many as if all shared a machine");
    assert!(specs.n_values() <= VALUES + n * (each + 1) * 2);
}

#[test]
fn pods_that_differ_in_what_they_do_without_share_machines() {
    let n = 300;
    let (alike, different) = (plan(&pods(n, |_| false)), plan(&pods(n, |_| true)));
    assert_eq!(different.report.pods, []);
    let price = |plan: &crate::Plan| plan.launches.iter().map(|it| it.price.0).sum::<i64>();
    assert!(price(&different) * 100 <= price(&alike) * 102);
}

fn any_need() -> impl Strategy<Value = Requirement> {
    prop::sample::select(vec![
        need(ZONE, Operator::In, &["zone-a", "zone-b"]),
        need(ZONE, Operator::In, &["zone-c", "elsewhere"]),
        need(ZONE, Operator::NotIn, &["zone-a"]),
        need("karpenter.sh/capacity-type", Operator::In, &["spot"]),
        need("example.com/cpu", Operator::Gt, &["4"]),
        need("example.com/cpu", Operator::Lte, &["8"]),
        need(INSTANCE_TYPE, Operator::In, &["c.large", "m.large", "no-such-type"]),
        need(INSTANCE_TYPE, Operator::NotIn, &["c.large", "c.xlarge", "r.8xlarge"]),
        need("team", Operator::In, &["a"]),
        need("team", Operator::NotIn, &["a"]),
        need("team", Operator::Exists, &[]),
        need("team", Operator::DoesNotExist, &[]),
        need("topology.kubernetes.io/region", Operator::In, &["here"]),
    ])
}

/// A pod's terms, whether its constraint honours them and taints, whether it tolerates these,
/// whether it is spread over teams, too, and its cores.
type Drawn = (Vec<Vec<Requirement>>, [bool; 4], i64);

fn any_pods() -> impl Strategy<Value = Vec<Drawn>> {
    let terms = prop::collection::vec(prop::collection::vec(any_need(), 0..4), 0..3);
    prop::collection::vec((terms, any::<[bool; 4]>(), 1..17_i64), 30..40)
}

/// Pods that count each other, each on nodes of its own, and a few nodes.
fn counting_each_other(drawn: Vec<Drawn>, labels: &[Option<&str>]) -> Snapshot {
    let mut teams = on_demand("teams");
    teams.template.requirements.push(need("team", Operator::In, &["a", "b"]));
    teams.template.taints.push(taint("dedicated", "NoSchedule"));
    let mut world = builder().pool(pool("plain")).pool(teams);
    for (number, team) in labels.iter().enumerate() {
        let mut node = node(&format!("n{number}"), "plain", "m.large", ZONES[number % 3]);
        node.labels.extend(team.map(|team| ("team".to_owned(), team.to_owned())));
        if number % 2 == 1 {
            node.taints.push(taint("dedicated", "NoSchedule"));
        }
        if number % 4 > 1 {
            (node.phase, node.name) = (NodePhase::Pending, None);
            node.labels.remove(INSTANCE_TYPE);
            node.requirements.push(need(INSTANCE_TYPE, Operator::In, &["m.large", "c.large"]));
        }
        world = world.node(node);
    }
    for (number, (terms, [affinity, taints, tolerates, by_team], cores)) in
        drawn.into_iter().enumerate()
    {
        let mut shape = spread(app("x", cores * 1000), ZONE, 1);
        if by_team {
            shape = spread(shape, "team", 1);
        }
        for rule in &mut shape.topology_spread {
            (rule.honor_affinity, rule.honor_taints) = (affinity, taints);
        }
        shape.required_affinity = terms;
        if tolerates {
            shape.tolerations.push(tolerate("dedicated"));
        }
        world = world.pending(&format!("pod-{number:02}"), shape);
    }
    world.build()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_counts_is_the_same_for_all_families_at_once_and_for_each(
        drawn in any_pods(),
        labels in prop::collection::vec(prop::sample::select(vec![None, Some("a"), Some("b")]), 0..6),
    ) {
        let (snapshot, policy) = (counting_each_other(drawn, &labels), Policy::default());
        let problem = Problem::new(&snapshot, &policy);
        prop_assume!(problem.rules.has_crowds());
        for machine in 0..labels.len() {
            let [each, all] = both_ways::on_machine(&problem.topology(), machine);
            prop_assert_eq!(each, all);
        }
        let mut specs = MachineSpecs::default();
        for template in 0..problem.tables.templates.len() {
            let base = specs.base(&problem.tables, template);
            let mut found = vec![base];
            for class in 0..problem.tables.classes.len() {
                let last = found[found.len() - 1];
                let joined = [base, last].map(|spec| specs.joined(&problem.tables, spec, class, 0));
                found.extend(joined.into_iter().flatten());
            }
            let key = problem.tables.symbols.find_key(ZONE).expect("rules are about it");
            for spec in found {
                let zones = ZONES.iter().filter_map(|zone| problem.tables.symbols.find_value(zone));
                let narrower = zones.filter_map(|zone| specs.at(&problem.tables, spec, key, zone));
                for spec in narrower.chain([spec]).collect::<Vec<_>>() {
                    for shape in 0..problem.tables.shapes.len() {
                        let [each, all] = both_ways::in_spec(&problem.topology(), &mut specs, spec, shape);
                        prop_assert_eq!(each, all);
                    }
                }
            }
        }
    }
}
