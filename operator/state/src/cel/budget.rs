//! What an evaluation may cost, and how it fails.

use super::EvalError;

/// How many steps an evaluation may take. A step is a node of the expression, an element that is
/// made, or some bytes of a string.
const STEPS: usize = 100_000;

/// The steps that are left.
pub(super) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(STEPS)
    }
}

impl Budget {
    /// Takes steps off the budget.
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), EvalError> {
        self.0 = self.0.checked_sub(steps).ok_or(EvalError::Budget)?;
        Ok(())
    }
}

/// The error of an operation that does not fit its values.
pub(super) fn wrong<T>(what: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError::Value(what.into()))
}
