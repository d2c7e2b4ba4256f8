//! The NodePool of which a demand opens machines: the heaviest that admits it and, of equally heavy
//! ones, the one in which its pods cost least.

use fixedbitset::FixedBitSet;

use super::Solver;
use crate::compile::Problem;
use crate::demands::Demand;
use crate::machine_specs::{SpecId, share_price};

impl Solver<'_, '_> {
    /// The template of which a demand opens machines, with the spec.
    pub(crate) fn launch_option(&mut self, demand: &Demand) -> Option<(usize, SpecId)> {
        let problem = self.problem;
        let mut best: Option<(i64, usize, SpecId)> = None;
        for template in self.admitting(demand).ones() {
            if best.is_some_and(|(_, other, _)| weight(problem, other) != weight(problem, template))
            {
                break;
            }
            let Some(spec) = self.opens(demand, template) else { continue };
            let price = self.place_price(spec, demand);
            if best.is_none_or(|(least, ..)| price < least) {
                best = Some((price, template, spec));
            }
        }
        best.map(|(_, template, spec)| (template, spec))
    }

    /// All templates in the order in which a demand tries them: the heaviest first, of equally
    /// heavy ones that in which its pods cost least.
    pub(crate) fn templates_for(&mut self, demand: &Demand) -> Vec<usize> {
        let problem = self.problem;
        let mut order: Vec<usize> = (0..problem.tables.templates.len()).collect();
        if order.windows(2).all(|pair| weight(problem, pair[0]) != weight(problem, pair[1])) {
            return order;
        }
        let admitting = self.admitting(demand);
        // The weights keep the order in which templates come.
        order.sort_by_cached_key(|&template| {
            let spec = if admitting[template] { self.opens(demand, template) } else { None };
            let price = spec.map(|spec| self.place_price(spec, demand));
            (std::cmp::Reverse(weight(problem, template)), price.unwrap_or(i64::MAX), template)
        });
        order
    }

    /// The templates that may meet what a demand requires.
    fn admitting(&self, demand: &Demand) -> FixedBitSet {
        let problem = self.problem;
        let variants = &problem.tables.classes[problem.tables.shapes[demand.shape].class].variants;
        let wanted = variants.at(demand.variant, &problem.tables.symbols);
        problem.tables.by_value.admitting(&wanted.requirements)
    }

    /// The cost of each of a demand's pods on machines of a spec without other pods: on the type
    /// where it is least, of which at least one is bought.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn place_price(&self, spec: SpecId, demand: &Demand) -> i64 {
        let requests = &self.problem.tables.shapes[demand.shape].requests;
        let one = 1.0 / demand.left().max(1) as f64;
        share_price(&self.problem.tables, &self.specs[spec], requests, one)
    }
}

fn weight(problem: &Problem<'_>, template: usize) -> i32 {
    problem.tables.snapshot.node_pools[problem.tables.templates[template].pool].weight
}
