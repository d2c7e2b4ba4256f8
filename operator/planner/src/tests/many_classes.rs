//! Pods of which each requires something else of its machine.

use super::behaviour::{ZONE, app, spread};
use super::world::*;
use crate::cells::{CellId, Cells, MOST, SPARED};
use crate::compile::Problem;
use crate::policy::Policy;
use crate::snapshot::{Operator, PodShape, Snapshot};

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
fn there_are_only_so_many_cells_and_every_class_still_has_its_own() {
    let (flooding, late) = (200, 20);
    let (snapshot, policy) = (pods(flooding + late, |_| true), Policy::default());
    let problem = Problem::new(&snapshot, &policy);
    assert_eq!(problem.classes.len(), flooding + late);
    let mut cells = Cells::default();
    let base = cells.base(&problem, 0);
    let home = |cells: &mut Cells, class| cells.join(&problem, base, class, 0).expect("it opens");
    for class in 0..flooding {
        let own = home(&mut cells, class);
        for other in 0..flooding {
            let _ = cells.join(&problem, own, other, 0);
        }
    }
    assert!(flooding * (flooding - 1) / 2 > MOST, "as many cells as pairs of classes");
    for class in flooding..flooding + late {
        let own = home(&mut cells, class);
        assert_eq!(cells.join(&problem, own, class, 0), Ok(own));
        assert!(cells.join(&problem, own, 0, 0).is_err(), "that would be another cell");
        let key = problem.symbols.find_key(ZONE).expect("rules are about it");
        let there: Vec<CellId> = ZONES
            .iter()
            .filter_map(|zone| cells.at(&problem, own, key, problem.symbols.find_value(zone)?))
            .collect();
        assert_eq!(there.len(), ZONES.len());
        for cell in there {
            assert_eq!(cells.join(&problem, cell, class, 0), Ok(cell));
        }
    }
    let owners = problem.classes.len() + problem.templates.len();
    assert!(cells.len() <= MOST + owners * SPARED as usize);
}

#[test]
fn pods_that_differ_in_what_they_do_without_share_machines() {
    let n = 300;
    let (alike, different) = (plan(&pods(n, |_| false)), plan(&pods(n, |_| true)));
    assert_eq!(different.report.pods, []);
    let price = |plan: &crate::Plan| plan.launches.iter().map(|it| it.price.0).sum::<i64>();
    assert!(price(&different) * 100 <= price(&alike) * 102);
}
