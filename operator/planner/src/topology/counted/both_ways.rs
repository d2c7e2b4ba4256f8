//! For tests: what is asked of each family by itself, next to what is asked of all at once.

use fixedbitset::FixedBitSet;

use super::{Counted, OnMachines};
use crate::compile::Problem;
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::topology::families::About;
use crate::topology::standing::Place;

/// The groups that count pods of a shape on machines of a spec.
pub(crate) fn in_spec(
    problem: &Problem<'_>,
    specs: &mut MachineSpecs,
    spec: SpecId,
    shape: usize,
) -> [FixedBitSet; 2] {
    let mut place = Place::new(spec, shape);
    let each = groups(problem, |about| about.counts_in(problem, specs, &mut place));
    let types = place.types(problem, specs).clone();
    let all = Counted::in_spec(problem, specs, spec, types);
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
