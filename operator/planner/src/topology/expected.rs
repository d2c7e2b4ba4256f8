//! From which NodePools machines may come for some pod of the cluster.
//!
//! kube-scheduler counts the domains of all nodes that there are, whoever they were launched for.
//! So a domain matters to the evenness of pods although none of them can have a machine launched
//! there: when others can. Pods that run count as those that wait do, so that nothing changes once
//! a plan is carried out; a NodePool that none of them can use does not keep anybody waiting.

use fixedbitset::FixedBitSet;

use super::Topology;
use crate::intern::Key;
use crate::machine_specs::MachineSpecs;
use crate::tables::Tables;

/// So many pods and NodePools are compared at most; beyond that every machine may come.
const QUESTIONS: usize = 1 << 16;

/// Whether a machine of a template may come. Where it's asked because the template leaves a
/// label open, pods with a rule about that label get none.
pub(super) fn may_come(
    topology: &Topology<'_, '_>,
    specs: &mut MachineSpecs,
    template: usize,
    left_open: Option<Key>,
) -> bool {
    if let Some(&known) = specs.expected.known.get(&(template, left_open)) {
        return known;
    }
    let base = specs.base(topology.tables, template);
    let shapes = specs.expected.shapes.take().unwrap_or_else(|| planned(topology.tables));
    let compiled = &topology.tables.templates[template];
    let mut types = specs[base].types.clone();
    let mut asked = 0;
    let has = specs.expected.questions >= QUESTIONS
        || shapes.iter().any(|&shape| {
            asked += 1;
            let about = |key| topology.rules.about(shape, key).next().is_some();
            if left_open.is_some_and(about)
                || !specs.may_join(topology.tables, base, topology.tables.shapes[shape].class)
            {
                return false;
            }
            types.clone_from(&specs[base].types);
            compiled.fitting.keep(&mut types, &topology.tables.shapes[shape].requests);
            !types.is_clear()
        });
    let expected = &mut specs.expected;
    expected.questions += asked;
    expected.shapes = Some(shapes);
    expected.known.insert((template, left_open), has);
    has
}

/// The shapes of pods that machines may be launched for.
fn planned(tables: &Tables<'_>) -> Vec<usize> {
    let mut has_pods = FixedBitSet::with_capacity(tables.shapes.len());
    for pod in tables.snapshot.pods.iter().filter(|pod| !pod.daemon && !pod.mirror) {
        has_pods.insert(pod.shape.0 as usize);
    }
    let is_planned = |shape: &usize| {
        let shape = &tables.shapes[*shape];
        !shape.opted_out && shape.problem.is_none()
    };
    has_pods.ones().filter(is_planned).collect()
}
