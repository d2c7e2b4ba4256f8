//! What places are worth to the pods that are left: the dual prices of what is still to be packed.

use fixedbitset::FixedBitSet;

use crate::demands::{Demand, LaunchOption};
use crate::dual::{Deals, Item, Kind, exact, improve};
use crate::machine_specs::SpecId;
use crate::solver::Solver;

/// How often the splits of prices are improved when only the amounts of pods have changed.
const ROUNDS: u32 = 25;

/// How much the best splits may cost at first: see [`exact`].
const WORK: u64 = 6_000_000;

/// With more than so many pairs of shapes and types the pods' own best prices have to do.
const PAIRS: usize = 40_000;

/// With more types than this only some stand for the others.
const KINDS: usize = 64;

/// Values that follow what is left.
#[derive(Clone, Debug, Default)]
pub(super) struct Valuation {
    /// For which template and how many pods the values are.
    valid: Option<(usize, usize)>,
    /// The types that were compared, and the splits of their prices.
    types: Vec<usize>,
    splits: Vec<f64>,
}

impl Valuation {
    /// Works the values out anew when a part of the pods has been packed.
    pub(super) fn refresh(
        &mut self,
        solver: &Solver<'_, '_>,
        demands: &mut [Demand],
        given_up: &[bool],
        template: usize,
    ) {
        let left = demands.iter().map(Demand::left).sum();
        let valid = self.valid.is_some_and(|(of, pods)| of == template && left > pods / 8 * 7);
        if !valid {
            self.valid = Some((template, left));
            self.revalue(solver, demands, given_up, template);
        }
    }

    /// Sets the values of the demands that open machines of a template.
    fn revalue(
        &mut self,
        solver: &Solver<'_, '_>,
        demands: &mut [Demand],
        given_up: &[bool],
        template: usize,
    ) {
        let options: Vec<(usize, SpecId)> = (0..demands.len())
            .filter(|&index| !given_up[index] && demands[index].left() > 0)
            .filter_map(|index| match demands[index].launch_option {
                LaunchOption::Feasible(opens, spec) if opens == template => Some((index, spec)),
                _ => None,
            })
            .collect();
        let Some(&(_, first)) = options.first() else { return };
        let mut known = FixedBitSet::with_capacity(solver.specs[first].types.len());
        let mut specs: Vec<SpecId> = options.iter().map(|&(_, spec)| spec).collect();
        specs.sort_unstable();
        specs.dedup();
        for spec in specs {
            known.extend(solver.specs[spec].frontier(&solver.problem.tables).iter().copied());
        }
        let node_price = solver.problem.tables.policy.node_price.0;
        // A type costs the least that any of the demands pays for it.
        let price = |kind: usize| {
            let prices = options.iter().map(|&(_, spec)| solver.specs[spec].price(kind));
            prices.min().unwrap_or(0).saturating_add(node_price).max(1)
        };
        let types = thinned(solver, template, known.ones().collect(), &price);
        if types.len() * options.len() > PAIRS {
            return;
        }
        let kinds: Vec<Kind> = types
            .iter()
            .map(|&kind| {
                Kind::new(solver.problem.tables.templates[template].net(kind), price(kind))
            })
            .collect();
        let net = &solver.problem.tables.templates[template];
        let items: Vec<Item> = options
            .iter()
            .map(|&(index, spec)| {
                let requests = &solver.problem.tables.shapes[demands[index].shape].requests;
                let holds = |kind: usize| {
                    solver.specs[spec].types[kind] && crate::tables::fits(requests, net.net(kind))
                };
                let holding = (0..types.len()).filter(|&at| holds(types[at])).collect();
                Item::new(demands[index].left(), requests, holding)
            })
            .collect();
        let deals = Deals::default();
        let values = if types == self.types {
            improve(&kinds, &items, &deals, std::mem::take(&mut self.splits), ROUNDS)
        } else {
            exact(&kinds, &items, &deals, WORK)
        };
        (self.types, self.splits) = (types, values.splits);
        for (&(index, _), &value) in options.iter().zip(&values.items) {
            // Pods that none of the types holds, or that ask for nothing that has a price, keep
            // their own.
            if value.is_finite() && value > 0.0 {
                demands[index].value = Some(value);
            }
        }
    }
}

/// So few types that they can be compared for every machine: of each proportion of memory to
/// processors sizes in even steps, of each step the largest and the one whose processors cost the
/// least. These are two where prices don't follow sizes: of reservations, spot capacity and
/// overlays.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "proportions for comparison"
)]
pub(super) fn thinned(
    solver: &Solver<'_, '_>,
    template: usize,
    kinds: Vec<usize>,
    price: &dyn Fn(usize) -> i64,
) -> Vec<usize> {
    if kinds.len() <= KINDS {
        return kinds;
    }
    let template = &solver.problem.tables.templates[template];
    let log = |amount: i64| (amount.max(1) as f64).log2();
    let mut steps: Vec<(i64, i64, usize)> = kinds
        .iter()
        .map(|&kind| {
            let net = template.net(kind);
            let (cpu, memory) = (log(net[0]), log(net[1]));
            ((memory - cpu).round() as i64, (cpu * 4.0).round() as i64, kind)
        })
        .collect();
    steps.sort_unstable();
    let per_processor = |kind: usize| price(kind) as f64 / template.net(kind)[0].max(1) as f64;
    let mut kept = Vec::new();
    for step in steps.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let kinds = step.iter().map(|&(_, _, kind)| kind);
        // The largest of a step has the least overhead.
        let largest = kinds.clone().max_by_key(|&kind| template.net(kind));
        let cheapest = kinds.min_by(|&a, &b| per_processor(a).total_cmp(&per_processor(b)));
        kept.extend(largest.into_iter().chain(cheapest));
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}
