//! Zones in which waiting pods can run: the number of pods that depend on a zone that is short of
//! capacity.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use crate::compile::Problem;
use crate::demands::Demand;
use crate::intern::{Key, Value};
use crate::label;
use crate::machine_specs::MachineSpecs;
use crate::plan::{ANY_ZONE, NO_ZONE};
use crate::requirements::ValueSet;
use crate::snapshot::{Placement, Pod};
use crate::topology::Counts;

/// The number of waiting pods that can run in one zone only, by zone; in several; in none. The
/// requirements of pods and their volumes count, and required topology rules before the plan, with
/// only `running` pods counted; the offerings of NodePools do not.
pub(crate) fn count(
    problem: &Problem<'_>,
    running: &mut Counts,
    demands: &[Demand],
) -> BTreeMap<String, u32> {
    let waits = |pod: &Pod| pod.buffer.is_none() && pod.placement == Placement::Unschedulable;
    let zone = problem.tables.symbols.find_key(label::ZONE);
    // Of its own: which specs a plan makes first is not to depend on this.
    let mut specs = MachineSpecs::default();
    let mut counts = BTreeMap::new();
    for demand in demands {
        let n_waiting =
            demand.pods.iter().filter(|&&pod| waits(&problem.tables.snapshot.pods[pod])).count();
        if n_waiting == 0 {
            continue;
        }
        let zones =
            zone.and_then(|zone| zones(problem, (&mut *running, &mut specs), demand.shape, zone));
        let name = match zones.as_deref() {
            Some([]) => NO_ZONE,
            Some(&[zone]) => problem.tables.symbols.value_name(zone),
            Some(_) | None => ANY_ZONE,
        };
        *counts.entry(name.to_owned()).or_default() += u32::try_from(n_waiting).unwrap_or(u32::MAX);
    }
    counts
}

/// The zones that a shape is limited to; `None` when nothing says which.
fn zones(
    problem: &Problem<'_>,
    running: (&mut Counts, &mut MachineSpecs),
    shape: usize,
    zone: Key,
) -> Option<Vec<Value>> {
    let variants = &problem.tables.classes[problem.tables.shapes[shape].class].variants;
    let required = variants.plain().map(|variant| variants.at(variant, &problem.tables.symbols));
    let asked: FxHashSet<Option<ValueSet>> =
        required.map(|variant| variant.requirements.get(zone).cloned()).collect();
    let admits = |zone: &Value| {
        asked
            .iter()
            .any(|set| set.as_ref().is_none_or(|set| set.has(*zone, &problem.tables.symbols)))
    };
    let listed = || {
        let sets = asked.iter().map(|set| set.as_ref().and_then(ValueSet::listed));
        let sets: BTreeSet<Value> =
            sets.collect::<Option<Vec<_>>>()?.concat().into_iter().collect();
        Some(sets.into_iter().collect())
    };
    let mut zones: Vec<Value> = left(problem, running, shape, zone).or_else(listed)?;
    zones.retain(admits);
    Some(zones)
}

/// The domains that a shape's own required rules about a key leave it; `None` when it has none.
fn left(
    problem: &Problem<'_>,
    (running, specs): (&mut Counts, &mut MachineSpecs),
    shape: usize,
    key: Key,
) -> Option<Vec<Value>> {
    let rules = problem.rules.about(shape, key);
    rules
        .map(|rule| running.domains_left(&problem.topology(), specs, rule))
        .reduce(|left, also| left.into_iter().filter(|zone| also.contains(zone)).collect())
}
