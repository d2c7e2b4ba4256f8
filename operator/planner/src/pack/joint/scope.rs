//! Which machines of a plan may be packed anew together, and which pods are on them.

use std::collections::{BTreeMap, BTreeSet};

use crate::compile::Problem;
use crate::demands::{Demand, LaunchOption};
use crate::intern::Key;
use crate::snapshot::CapacityType;
use crate::solver::{Claim, Solver};
use crate::topology::{Evenly, Mobility};

/// With more machines than this the price of one hardly counts, and the search takes long.
const MACHINES: usize = 96;

/// With more shapes than this the search takes long.
const SHAPES: usize = 24;

/// Machines of one NodePool that may change pods.
pub(super) struct Scope {
    /// Indices of [`Solver::claims`].
    pub(super) claims: Vec<usize>,
    /// The pods on them, the largest first.
    pub(super) crews: Vec<Crew>,
    /// The label that they are spread over, if any are.
    pub(super) key: Option<Key>,
}

/// Pods of one shape.
pub(super) struct Crew {
    pub(super) shape: usize,
    /// Indices of [`crate::Snapshot::pods`].
    pub(super) pods: Vec<usize>,
    /// The spread constraint over zones, or domains of another label, if there is one. The pods of
    /// this crew are not counted.
    pub(super) spread: Option<Evenly>,
}

impl Scope {
    /// Nothing when there are too many machines or pods, or fewer than two machines.
    pub(super) fn of(solver: &mut Solver<'_, '_>, template: usize) -> Option<Self> {
        let problem = solver.problem;
        let of_template: Vec<bool> = solver
            .claims
            .iter()
            .map(|claim| solver.specs[claim.spec].template == template)
            .collect();
        if of_template.iter().filter(|&&is_own| is_own).count() > MACHINES {
            return None;
        }
        let shape_of = |pod: usize| shape_of(problem, pod);
        let placed: BTreeSet<usize> = solver.placed.iter().map(|it| shape_of(it.pod)).collect();
        let mut planned: BTreeMap<usize, usize> = BTreeMap::new();
        let mut own: BTreeSet<usize> = BTreeSet::new();
        for (claim, &is_own) in solver.claims.iter().zip(&of_template) {
            for &pod in &claim.pods {
                *planned.entry(shape_of(pod)).or_default() += 1;
                if is_own && own.len() <= SHAPES {
                    own.insert(shape_of(pod));
                }
            }
        }
        if own.len() > SHAPES {
            return None;
        }
        let counted = |shape: usize| planned.contains_key(&shape) || placed.contains(&shape);
        let mut plain: BTreeMap<usize, Option<Zonal>> = BTreeMap::new();
        for shape in own {
            plain.insert(shape, rules_of(solver, shape, &counted));
        }
        let key_of = |zonal: &Zonal| match zonal {
            Zonal::Spread(evenly) => Some(evenly.key),
            Zonal::Free => None,
        };
        let key = plain.values().flatten().filter_map(key_of).min();
        let fits_key = |shape: &usize| match plain.get(shape) {
            Some(Some(zonal)) => key_of(zonal).is_none_or(|it| Some(it) == key),
            _ => false,
        };
        let mut claims: Vec<usize> = (0..solver.claims.len())
            .filter(|&index| {
                let claim = &solver.claims[index];
                of_template[index]
                    && is_free(solver, claim)
                    && claim.pods.iter().all(|&pod| fits_key(&shape_of(pod)))
            })
            .collect();
        // Pods that are spread take part together or not at all: those that stay where they are
        // would count for the others.
        loop {
            let before = claims.len();
            let mut inside: BTreeMap<usize, usize> = BTreeMap::new();
            for &pod in claims.iter().flat_map(|&claim| &solver.claims[claim].pods) {
                *inside.entry(shape_of(pod)).or_default() += 1;
            }
            let is_whole = |shape: usize| {
                let is_spread = matches!(plain.get(&shape), Some(Some(Zonal::Spread(_))));
                !is_spread || inside.get(&shape) == planned.get(&shape) && !placed.contains(&shape)
            };
            claims.retain(|&claim| {
                solver.claims[claim].pods.iter().all(|&pod| is_whole(shape_of(pod)))
            });
            if claims.len() == before {
                break;
            }
        }
        if claims.len() < 2 {
            return None;
        }
        let mut by_shape: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &pod in claims.iter().flat_map(|&claim| &solver.claims[claim].pods) {
            by_shape.entry(shape_of(pod)).or_default().push(pod);
        }
        if by_shape.len() > SHAPES {
            return None;
        }
        let mut crews = Vec::new();
        for (shape, mut pods) in by_shape {
            pods.sort_unstable();
            let mut spread = match plain.remove(&shape)?? {
                Zonal::Spread(evenly) => Some(evenly),
                Zonal::Free => None,
            };
            if let Some(evenly) = &mut spread {
                uncount(solver, evenly, shape, &claims)?;
            }
            crews.push(Crew { shape, pods, spread });
        }
        crews.sort_by_key(|crew| {
            let requests = &problem.tables.shapes[crew.shape].requests;
            (std::cmp::Reverse((requests[0], requests[1])), crew.pods[0])
        });
        let key = crews.iter().find_map(|crew| crew.spread.as_ref().map(|evenly| evenly.key));
        Some(Self { claims, crews, key })
    }

    /// The pods as demands, crew by crew, for machines of a template.
    pub(super) fn demands(&self, solver: &mut Solver<'_, '_>, template: usize) -> Vec<Demand> {
        let spec = solver.specs.base(&solver.problem.tables, template);
        let launch_option = LaunchOption::Feasible(template, spec);
        let demand = |crew: &Crew| {
            let (shape, pods) = (crew.shape, crew.pods.clone());
            Demand { shape, pods, next: 0, variant: 0, dropped: 0, value: None, launch_option }
        };
        self.crews.iter().map(demand).collect()
    }
}

/// Takes the pods of a shape on some machines out of the domains where they are counted. Nothing
/// where it isn't settled in which domain one of them is.
fn uncount(
    solver: &mut Solver<'_, '_>,
    evenly: &mut Evenly,
    shape: usize,
    claims: &[usize],
) -> Option<()> {
    let problem = solver.problem;
    let shape_of = |pod: usize| shape_of(problem, pod);
    for &claim in claims {
        let claim = &solver.claims[claim];
        let here = claim.pods.iter().filter(|&&pod| shape_of(pod) == shape).count();
        if here == 0 {
            continue;
        }
        let [domain] = *solver.specs.values(&problem.tables, claim.spec, evenly.key) else {
            return None;
        };
        let counted = evenly.domains.iter_mut().find(|(value, _)| *value == domain)?;
        counted.1 = counted.1.checked_sub(u32::try_from(here).ok()?)?;
    }
    Some(())
}

/// What rules about zones say of a shape's pods.
#[derive(Clone, Debug)]
enum Zonal {
    Free,
    /// By one spread constraint, by which only these pods count.
    Spread(Evenly),
}

/// What rules about zones say of a shape's pods. `None` for pods whose place depends on more.
fn rules_of(
    solver: &mut Solver<'_, '_>,
    shape: usize,
    placed: &dyn Fn(usize) -> bool,
) -> Option<Zonal> {
    let problem = solver.problem;
    let rules = &problem.rules;
    let compiled = &problem.tables.shapes[shape];
    let is_plain = compiled.ports.is_empty()
        && !compiled.has_claims
        && compiled.requests[..2].iter().any(|&amount| amount > 0)
        && problem.tables.classes[compiled.class].variants.len() == 1
        && rules.preferences(shape) == (0, 0)
        && rules.is_alone_on_hosts(shape);
    if !is_plain {
        return None;
    }
    match rules.mobility(shape) {
        Mobility::Stays => None,
        Mobility::InTemplate => Some(Zonal::Free),
        Mobility::InSpec => {
            if rules.n_about_domains(shape) != 1 {
                return None;
            }
            let Solver { specs, counts, .. } = solver;
            let mut found = rules.evenly(&problem.topology(), specs, counts, shape, placed);
            found.pop().filter(|_| found.is_empty()).map(Zonal::Spread)
        }
    }
}

/// Whether nothing but room, prices and the rules of its pods decides about a machine.
fn is_free(solver: &Solver<'_, '_>, claim: &Claim) -> bool {
    let problem = solver.problem;
    let spec = &solver.specs[claim.spec];
    let table = &problem.tables.catalogs[problem.tables.templates[spec.template].catalog];
    let is_reserved = |market: usize| table.markets[market].capacity_type == CapacityType::Reserved;
    claim.relaxed.is_empty()
        && !spec.requirements.has_min_values()
        && !spec.markets.ones().any(is_reserved)
        && claim.pods.iter().all(|&pod| problem.tables.snapshot.pods[pod].buffer.is_none())
}

pub(super) fn shape_of(problem: &Problem<'_>, pod: usize) -> usize {
    problem.tables.snapshot.pods[pod].shape.0 as usize
}
