//! Stopping a pass before its end.

/// Polled during a pass to learn whether the caller wants it to stop. A plan that is cut short is
/// valid; [`crate::plan::Report::cancelled`] marks it.
pub trait Cancel: Sync {
    /// Whether to stop.
    fn is_cancelled(&self) -> bool;
}

/// Never cancelled: for callers without a deadline.
impl Cancel for () {
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl<F: Fn() -> bool + Sync> Cancel for F {
    fn is_cancelled(&self) -> bool {
        self()
    }
}
