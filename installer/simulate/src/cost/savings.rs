//! What consolidation saved, by the operator's decision ledger.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use tenon_state::decision::{Decision, Decisions, Kind, State};

/// Commands of consolidation that were carried out, in USD.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Savings {
    /// From when on the ledger was read.
    pub since: Option<Timestamp>,
    /// Older decisions gave way to newer ones: the sums are too small.
    pub is_incomplete: bool,
    /// How many commands.
    pub commands: usize,
    /// How many nodes they removed.
    pub nodes: usize,
    /// How many pods they moved.
    pub pods: usize,
    /// The price of the removed nodes less that of their replacements.
    pub saved_per_hour: f64,
    /// The same by reason, the largest first.
    pub by_reason: Vec<SavedBy>,
}

/// What was saved for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedBy {
    /// The operator's.
    pub reason: String,
    /// How many commands.
    pub commands: usize,
    /// In USD.
    pub saved_per_hour: f64,
}

impl Savings {
    /// Sums up what was decided at `from` or later; without it, all of the answer.
    pub fn new(answer: &Decisions, from: Option<Timestamp>) -> Self {
        let counts = |it: &&Decision| {
            it.kind == Kind::Consolidation
                && it.result.state == State::Done
                && from.is_none_or(|from| it.time >= from)
        };
        let is_cut = answer.more || answer.dropped > 0;
        let mut savings = Self {
            since: answer.since.max(from),
            is_incomplete: is_cut,
            commands: 0,
            nodes: 0,
            pods: 0,
            saved_per_hour: 0.0,
            by_reason: Vec::new(),
        };
        let mut by_reason: BTreeMap<&str, SavedBy> = BTreeMap::new();
        for decision in answer.decisions.iter().filter(counts) {
            let saved = decision.price.map_or(0.0, |price| price.before - price.after);
            savings.commands += 1;
            savings.nodes += decision.node_claims.count.max(decision.nodes.count);
            savings.pods += decision.pods.count;
            savings.saved_per_hour += saved;
            let reason = decision.reason.as_str();
            let sum = by_reason.entry(reason).or_insert_with(|| SavedBy {
                reason: reason.to_owned(),
                commands: 0,
                saved_per_hour: 0.0,
            });
            sum.commands += 1;
            sum.saved_per_hour += saved;
        }
        savings.by_reason = by_reason.into_values().collect();
        savings.by_reason.sort_by(|a, b| b.saved_per_hour.total_cmp(&a.saved_per_hour));
        savings
    }
}

#[cfg(test)]
mod tests {
    use tenon_state::decision::{Names, Outcome, Price};

    use super::*;

    fn decision(time: &str, kind: Kind, state: State, reason: &str, price: (f64, f64)) -> Decision {
        Decision {
            time: time.parse().expect("a time"),
            kind,
            reason: reason.to_owned(),
            node_claims: Names { count: 2, names: Vec::new() },
            pods: Names { count: 5, names: Vec::new() },
            price: Some(Price { before: price.0, after: price.1 }),
            result: Outcome { state, ..Outcome::default() },
            ..Decision::default()
        }
    }

    #[test]
    fn only_what_consolidation_carried_out_counts() {
        let early = "2026-01-01T10:00:00Z";
        let late = "2026-01-01T12:00:00Z";
        let answer = Decisions {
            since: early.parse().ok(),
            decisions: vec![
                decision(early, Kind::Consolidation, State::Done, "Empty", (0.5, 0.0)),
                decision(late, Kind::Consolidation, State::Done, "Underutilized", (2.0, 0.75)),
                decision(late, Kind::Consolidation, State::Pending, "Underutilized", (9.0, 0.0)),
                decision(late, Kind::Consolidation, State::Failed, "Underutilized", (9.0, 0.0)),
                decision(late, Kind::Drift, State::Done, "Drifted", (9.0, 0.0)),
            ],
            ..Decisions::default()
        };
        let all = Savings::new(&answer, None);
        assert_eq!((all.commands, all.nodes, all.pods), (2, 4, 10));
        assert!((all.saved_per_hour - 1.75).abs() < 1e-9, "{all:?}");
        let reasons: Vec<&str> = all.by_reason.iter().map(|it| it.reason.as_str()).collect();
        assert_eq!(reasons, ["Underutilized", "Empty"]);
        assert!(!all.is_incomplete);
        let from = "2026-01-01T11:00:00Z".parse().ok();
        let some = Savings::new(&answer, from);
        assert_eq!((some.commands, some.since), (1, from));
        let cut = Decisions { dropped: 3, ..answer };
        assert!(Savings::new(&cut, None).is_incomplete);
    }
}
