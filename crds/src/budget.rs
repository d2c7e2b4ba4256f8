//! Disruption budgets: how many nodes of a pool may be disrupted at once, for which reasons, and
//! when.
//!
//! Pure arithmetic over the API type; who counts the nodes and the disruptions under way is the
//! planner's business.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cron::{ParseScheduleError, Schedule, Window};
use crate::duration::Duration;
use crate::text_enum::text_enum;

text_enum! {
    /// Why a node is disrupted, as far as budgets distinguish.
    pub enum DisruptionReason {
        /// Its pods fit elsewhere or on a cheaper node.
        Underutilized = "Underutilized",
        /// It runs nothing that counts.
        Empty = "Empty",
        /// It no longer matches its NodePool or its NodeClass.
        Drifted = "Drifted",
        /// It is broken and is repaired.
        Unhealthy = "Unhealthy",
    }
}

/// Maximum number of nodes of a NodePool that may be disrupted at once while the budget is active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Time for which the budget is active from each time of `schedule` on; hours and minutes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// Number of nodes, or percentage of the NodePool's nodes, rounded up. `0` forbids disruption.
    #[serde(default = "Budget::default_nodes")]
    pub nodes: String,
    /// Reasons that the budget limits; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// When the budget becomes active: five cron fields or a nickname such as `@daily`, in UTC.
    /// Absent means always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
}

impl Budget {
    fn default_nodes() -> String {
        "10%".to_owned()
    }

    /// An always active budget for all reasons.
    pub fn always(nodes: impl Into<String>) -> Self {
        Self { duration: None, nodes: nodes.into(), reasons: None, schedule: None }
    }
}

/// A budget that cannot be evaluated. Nothing may be disrupted then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// `nodes` is neither a count nor a percentage.
    #[error(
        "budget: nodes `{nodes}` is neither a count such as `5` nor a percentage such as `10%`"
    )]
    Nodes {
        /// What was given.
        nodes: String,
    },
    /// `schedule` cannot be read.
    #[error("budget: {0}")]
    Schedule(#[source] ParseScheduleError),
}

/// How many nodes `nodes` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetLimit {
    /// A number of nodes, which may exceed that of the NodePool.
    Count(u32),
    /// Percentage of the NodePool's nodes, to be rounded up.
    Percent(u32),
}

impl Budget {
    /// Whether the budget is active.
    pub fn is_active(&self, now: Timestamp) -> Result<bool, BudgetError> {
        Ok(self.windows()?.is_none_or(|(schedule, length)| schedule.is_open(length, now)))
    }

    /// Whether the budget is active, and when that changes.
    pub fn window(&self, now: Timestamp) -> Result<Window, BudgetError> {
        Ok(self.windows()?.map_or(Window::Open { until: None }, |(schedule, length)| {
            schedule.window(length, now)
        }))
    }

    /// How many nodes may be disrupted at once as far as this budget is concerned: none means that
    /// it sets no limit now.
    pub fn limit(&self, now: Timestamp) -> Result<Option<BudgetLimit>, BudgetError> {
        let limit = match self.nodes.strip_suffix('%') {
            Some(percent) => percent.parse().map(BudgetLimit::Percent),
            None => self.nodes.parse().map(BudgetLimit::Count),
        };
        let limit = limit.map_err(|_| BudgetError::Nodes { nodes: self.nodes.clone() })?;
        Ok(self.is_active(now)?.then_some(limit))
    }

    fn windows(&self) -> Result<Option<(Schedule, jiff::SignedDuration)>, BudgetError> {
        let Some(schedule) = &self.schedule else { return Ok(None) };
        let schedule = schedule.parse().map_err(BudgetError::Schedule)?;
        let length = self.duration.as_ref().map_or(jiff::SignedDuration::ZERO, Duration::as_signed);
        Ok(Some((schedule, length)))
    }
}

impl Default for Budget {
    /// 10 % of the nodes, always, for all reasons.
    fn default() -> Self {
        Self::always(Self::default_nodes())
    }
}

#[cfg(test)]
mod tests;
