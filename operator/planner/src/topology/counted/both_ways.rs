//! For tests: what is asked of each family by itself, next to what is asked of all at once.

use fixedbitset::FixedBitSet;

use super::{Counted, OnMachines};
use crate::cells::{CellId, Cells};
use crate::compile::Problem;
use crate::topology::families::About;
use crate::topology::standing::Place;

/// The groups that count pods of a shape on machines of a cell.
pub(crate) fn in_cell(
    problem: &Problem<'_>,
    cells: &mut Cells,
    cell: CellId,
    shape: usize,
) -> [FixedBitSet; 2] {
    let mut place = Place::new(cell, shape);
    let each = groups(problem, |about| about.counts_in(problem, cells, &mut place));
    let types = place.types(problem, cells).clone();
    let all = Counted::in_cell(problem, cells, cell, types);
    [each, FixedBitSet::clone(&all)]
}

/// The groups that count pods on a machine.
pub(crate) fn on_machine(problem: &Problem<'_>, machine: usize) -> [FixedBitSet; 2] {
    let each = groups(problem, |about| about.counts_on(problem, machine));
    let all = OnMachines::default().groups(problem, machine);
    [each, FixedBitSet::clone(&all)]
}

fn groups(problem: &Problem<'_>, mut count: impl FnMut(&About) -> bool) -> FixedBitSet {
    let rules = &problem.rules;
    let mut groups = FixedBitSet::with_capacity(rules.len());
    for family in rules.families.iter().filter(|it| it.about.key != problem.keys.hostname) {
        if count(&family.about) {
            family.groups.add_to(&mut groups);
        }
    }
    groups
}
