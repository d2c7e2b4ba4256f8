//! Pods that may change places with each other.
//!
//! With spot prices each zone has other types that are cheap, so it matters which pods are where.
//! No rule can tell pods of one class apart that the same rules about domains count: as long as
//! there are as many of them in each domain, any of them may be there. Spread that is even does not
//! mind where the pods are that carry it, either: they can come in turn.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::super::columns::{Candidate, Crew};
use super::{demand, shape_of};
use crate::compile::Problem;
use crate::demands::Demand;
use crate::machine_specs::SpecId;
use crate::solver::Solver;
use crate::tables::shapes::ClassId;

/// So many spread groups are asked whether their pods are spread evenly.
const GROUPS: usize = 64;

/// The pods of some claims that may change places.
#[derive(Default)]
pub(super) struct Crews {
    pub(super) list: Vec<Crew>,
    /// By shape: index of `list`. Virtual pods belong to none, as kube-scheduler doesn't count
    /// them.
    of_shape: FxHashMap<usize, usize>,
    /// The spec that each pod was on.
    before: FxHashMap<usize, SpecId>,
}

/// A crew to be.
#[derive(Default)]
struct Draft {
    places: BTreeMap<SpecId, usize>,
    pods: Vec<(usize, SpecId)>,
    shapes: BTreeSet<usize>,
}

impl Crews {
    /// None where machines cost the same in all specs: then nothing is to be gained.
    pub(super) fn of(solver: &mut Solver<'_, '_>, claims: &[usize]) -> Self {
        let problem = solver.problem;
        let mut crews = Self::default();
        for Draft { places, pods, shapes } in drafts(solver, claims) {
            let mut requests = shapes.iter().map(|&shape| &problem.tables.shapes[shape].requests);
            let first = requests.next();
            if places.len() > 1 && requests.any(|requests| Some(requests) != first) {
                crews.of_shape.extend(shapes.iter().map(|&shape| (shape, crews.list.len())));
                crews.list.push(Crew { places: places.into_iter().collect() });
                crews.before.extend(pods);
            }
        }
        let differs = |crew: &Crew| {
            let first = crew.places[0].0;
            crew.places.iter().any(|&(spec, _)| !have_same_prices(solver, first, spec))
        };
        if crews.list.iter().any(differs) { crews } else { Self::default() }
    }

    /// The crew of a pod, if it belongs to one.
    pub(super) fn of_pod(&self, solver: &Solver<'_, '_>, pod: usize) -> Option<usize> {
        let crew = self.of_shape.get(&shape_of(solver, pod)).copied();
        crew.filter(|_| !is_virtual(solver.problem, pod))
    }

    /// Puts pods that are on none of the claims from `kept` on into the places that are left: in
    /// the spec where they were, if there is one. They are demands of their own then.
    pub(super) fn seat(
        &self,
        solver: &Solver<'_, '_>,
        demands: &mut Vec<Demand>,
        parts: &[Candidate],
        kept: usize,
    ) {
        let mut places: Vec<Vec<(SpecId, usize)>> =
            self.list.iter().map(|crew| crew.places.clone()).collect();
        for claim in &solver.claims[kept..] {
            for &pod in &claim.pods {
                let Some(crew) = self.of_pod(solver, pod) else { continue };
                let here = places[crew].iter_mut().find(|places| places.0 == claim.spec);
                here.expect("pods of a crew are where it has places").1 -= 1;
            }
        }
        let mut seated: BTreeMap<(usize, SpecId), Vec<usize>> = BTreeMap::new();
        for part in parts {
            let Some(crew) = part.crew else { continue };
            let Demand { pods, next, .. } = &mut demands[part.demand];
            for pod in pods.split_off(*next) {
                let was = self.before.get(&pod);
                let open = places[crew].iter_mut().filter(|places| places.1 > 0);
                let (spec, left) = open
                    .max_by_key(|(spec, left)| (Some(spec) == was, *left))
                    .expect("a crew has as many places as pods");
                *left -= 1;
                seated.entry((part.demand, *spec)).or_default().push(pod);
            }
        }
        for ((of, spec), pods) in seated {
            demands.push(demand(solver, demands[of].shape, spec, pods));
        }
    }
}

/// Pods that no rule about domains can tell apart, and how many of them are on claims of which
/// spec.
fn drafts(solver: &mut Solver<'_, '_>, claims: &[usize]) -> Vec<Draft> {
    let problem = solver.problem;
    let Solver { claims: all, specs, counts, .. } = solver;
    // Counts of virtual pods say nothing of when the others come.
    let is_real = !problem.tables.snapshot.pods.iter().any(|pod| pod.buffer.is_some());
    let mut even: FxHashMap<usize, bool> = FxHashMap::default();
    let mut is_even = |group: usize| {
        let is_asked = is_real && even.len() < GROUPS;
        *even.entry(group).or_insert_with(|| {
            is_asked && problem.rules.is_even(&problem.topology(), specs, counts, group)
        })
    };
    let mut drafts: Vec<Draft> = Vec::new();
    let mut alike: FxHashMap<(ClassId, Vec<(usize, bool)>), usize> = FxHashMap::default();
    let mut known: FxHashMap<usize, Option<usize>> = FxHashMap::default();
    for claim in claims.iter().map(|&claim| &all[claim]) {
        for &pod in claim.pods.iter().filter(|&&pod| !is_virtual(problem, pod)) {
            let shape = problem.tables.snapshot.pods[pod].shape.0 as usize;
            let draft = *known.entry(shape).or_insert_with(|| {
                let class = problem.tables.shapes[shape].class;
                if problem.tables.classes[class].variants.len() > 1 {
                    return None;
                }
                let rules = problem.rules.in_domains(shape, &mut is_even)?;
                Some(*alike.entry((class, rules)).or_insert_with(|| {
                    drafts.push(Draft::default());
                    drafts.len() - 1
                }))
            });
            if let Some(draft) = draft {
                let draft = &mut drafts[draft];
                *draft.places.entry(claim.spec).or_default() += 1;
                draft.pods.push((pod, claim.spec));
                draft.shapes.insert(shape);
            }
        }
    }
    drafts
}

fn is_virtual(problem: &Problem<'_>, pod: usize) -> bool {
    problem.tables.snapshot.pods[pod].buffer.is_some()
}

/// Whether the types that are worth it cost the same in two specs.
fn have_same_prices(solver: &Solver<'_, '_>, one: SpecId, other: SpecId) -> bool {
    let specs = [&solver.specs[one], &solver.specs[other]];
    let [a, b] = specs.map(|spec| spec.frontier(&solver.problem.tables));
    a.iter().chain(b).all(|&kind| {
        specs.iter().all(|spec| spec.types[kind]) && specs[0].price(kind) == specs[1].price(kind)
    })
}
