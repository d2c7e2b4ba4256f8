//! Abandons a strategy of packing once it costs as much as a plan that has a place for every pod.

use super::{Claim, Solver};
use crate::Cancel;

/// The price of another plan, in micro-dollars. Planned machines only become more expensive, so
/// their current price is a lower bound of the final one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    price: i64,
    /// The number of machines at which prices are summed again: an eighth more each time, so that
    /// the sum costs little.
    look_at: usize,
    spent: bool,
}

impl Budget {
    pub(crate) fn new(price: i64) -> Self {
        Self { price, look_at: 0, spent: false }
    }
}

impl Solver<'_, '_> {
    /// The price of a claim: that of the cheapest type that holds its pods.
    pub(crate) fn price(&self, claim: &Claim) -> i64 {
        let spec = &self.specs[claim.spec];
        spec.cheapest(&claim.types).map_or(0, |kind| spec.price(kind))
    }

    /// The price of all planned machines, `node_price` included.
    pub(crate) fn cost(&self) -> i64 {
        let node_price = self.problem.tables.policy.node_price.0;
        self.claims.iter().map(|claim| self.price(claim) + node_price).sum()
    }

    /// Whether to stop: the pass was cancelled, or the plan is too expensive.
    pub(crate) fn stops(&mut self, cancel: &dyn Cancel) -> bool {
        cancel.is_cancelled() || self.is_too_dear()
    }

    fn is_too_dear(&mut self) -> bool {
        let Some(budget) = self.budget else { return false };
        if budget.spent || self.claims.len() < budget.look_at {
            return budget.spent;
        }
        let spent = self.cost() >= budget.price;
        let look_at = self.claims.len() + self.claims.len() / 8 + 1;
        self.budget = Some(Budget { look_at, spent, ..budget });
        spent
    }
}
