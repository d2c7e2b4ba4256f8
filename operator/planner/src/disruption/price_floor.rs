//! What a machine costs at least that holds a given amount: a bound to give up on a candidate
//! without planning its replacement.

use crate::solver::Solver;

/// Types of all NodePools, the cheapest first, without those that a cheaper one beats in every
/// resource. What pods ask for besides amounts is not looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct PriceFloor {
    /// Price and what is left for pods.
    offers: Vec<(i64, Vec<i64>)>,
}

impl PriceFloor {
    pub(super) fn new(solver: &mut Solver<'_, '_>) -> Self {
        let problem = solver.problem;
        let mut all: Vec<(i64, &[i64])> = Vec::new();
        for (index, template) in problem.tables.templates.iter().enumerate() {
            let base = solver.specs.base(&problem.tables, index);
            let spec = &solver.specs[base];
            all.extend(
                spec.frontier(&problem.tables)
                    .iter()
                    .map(|&kind| (spec.price(kind), template.net(kind))),
            );
        }
        all.sort_unstable();
        let mut offers: Vec<(i64, Vec<i64>)> = Vec::new();
        for (price, net) in all {
            if !offers.iter().any(|(_, other)| holds(other, net)) {
                offers.push((price, net.to_vec()));
            }
        }
        Self { offers }
    }

    /// The price of the cheapest machine that could hold an amount; `None` when there is none.
    pub(super) fn holding(&self, need: &[i64]) -> Option<i64> {
        self.offers.iter().find(|(_, net)| holds(net, need)).map(|&(price, _)| price)
    }
}

fn holds(net: &[i64], need: &[i64]) -> bool {
    net.iter().zip(need).all(|(have, want)| have >= want)
}
