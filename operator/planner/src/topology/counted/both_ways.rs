//! For tests: what is asked of each family by itself, next to what is asked of all at once.

use fixedbitset::FixedBitSet;

use super::OnMachines;
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::topology::Topology;
use crate::topology::families::About;
use crate::topology::standing::Place;

/// The groups that count pods of a shape on machines of a spec.
pub(crate) fn in_spec(
    topology: &Topology<'_, '_>,
    specs: &mut MachineSpecs,
    spec: SpecId,
    shape: usize,
) -> [FixedBitSet; 2] {
    let mut place = Place::new(spec, shape);
    let each = groups(topology, |about| about.counts_in(topology.tables, specs, &mut place));
    let types = place.types(topology.tables, specs).clone();
    let all = super::in_spec(topology, specs, spec, types);
    [each, FixedBitSet::clone(&all)]
}

/// The groups that count pods on a machine.
pub(crate) fn on_machine(topology: &Topology<'_, '_>, machine: usize) -> [FixedBitSet; 2] {
    let each = groups(topology, |about| about.counts_on(topology, machine));
    let all = OnMachines::default().groups(topology, machine);
    [each, FixedBitSet::clone(&all)]
}

fn groups(topology: &Topology<'_, '_>, mut count: impl FnMut(&About) -> bool) -> FixedBitSet {
    let rules = &topology.rules;
    let mut groups = FixedBitSet::with_capacity(rules.len());
    for family in rules.families.iter().filter(|it| it.about.key != topology.tables.keys.hostname) {
        if count(&family.about) {
            family.groups.add_to(&mut groups);
        }
    }
    groups
}
