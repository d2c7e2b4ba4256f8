//! How machines are filled, and how often a load is bought.

/// How machines are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// By price per what is packed, with dual prices.
    Cheapest,
    /// All machines at once, where there are not too many different pods: loads are weighed against
    /// each other.
    Columns,
    /// By price per what is packed, with the pods' own best prices: a second opinion where a plan
    /// is small and the last machines decide.
    Plain,
    /// As Karpenter does.
    Fill,
}

impl Strategy {
    /// Whether pods have dual prices.
    pub(super) fn has_values(self) -> bool {
        matches!(self, Self::Cheapest | Self::Columns)
    }
}

/// How often a load is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    /// As often as there are pods for it.
    All,
    /// Half as often, as what is scarce changes on the way; then values are looked at again.
    Half,
    /// As often as there are pods for it, up to so many times.
    AtMost(usize),
}
