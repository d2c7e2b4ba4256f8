//! The parts of the screen, and the order of nodes.

/// A part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pane {
    /// NodePools.
    Pools,
    /// Nodes.
    Nodes,
    /// Pending pods.
    Pending,
    /// Nodes that are removed, interrupted, or kept.
    Disruptions,
    /// The operator's decisions.
    Decisions,
}

impl Pane {
    /// From the top of the screen to its bottom.
    pub(super) const ALL: [Self; 5] =
        [Self::Pools, Self::Nodes, Self::Pending, Self::Disruptions, Self::Decisions];

    /// Its place from the top.
    pub(super) fn index(self) -> usize {
        Self::ALL.iter().position(|pane| *pane == self).unwrap_or(0)
    }

    /// The one so many places further down, and from the last one to the first.
    pub(super) fn after(self, places: usize) -> Self {
        Self::ALL[(self.index() + places) % Self::ALL.len()]
    }
}

/// What nodes are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// Name.
    #[default]
    Name,
    /// Price, the most expensive first.
    Price,
    /// Requested processors, the emptiest first.
    Cpu,
    /// Age, the oldest first.
    Age,
}

impl Sort {
    /// The next one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::Price,
            Self::Price => Self::Cpu,
            Self::Cpu => Self::Age,
            Self::Age => Self::Name,
        }
    }

    /// For the heading, unless it is the order that is expected.
    pub(super) fn word(self) -> Option<&'static str> {
        match self {
            Self::Name => None,
            Self::Price => Some("price"),
            Self::Cpu => Some("cpu"),
            Self::Age => Some("age"),
        }
    }
}
