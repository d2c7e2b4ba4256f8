//! The operator's decisions, as the page lists them: the ledger's answer, and with each decision
//! the words of `tenon decisions`.

use serde_json::{Value, json};
use tenon_state::decision::{Decision, MOST};
use tokio::sync::Mutex;

use crate::errors::ExpectedError;
use crate::ledger::{Ledger, Question, words};

/// Reads decisions.
pub(super) struct Log {
    /// One question at a time, as its connection takes them.
    ledger: Option<Mutex<Ledger>>,
}

impl Log {
    /// Without a ledger there is nothing to read.
    pub(super) fn new(ledger: Option<Ledger>) -> Self {
        Self { ledger: ledger.map(Mutex::new) }
    }

    /// Decisions that changed after a revision, or the newest ones; `None` without a ledger.
    pub(super) async fn decisions(
        &self,
        after: Option<u64>,
    ) -> Result<Option<Value>, ExpectedError> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        let question = Question { after, limit: MOST, ..Question::default() };
        let answer = ledger.lock().await.ask(&question).await?;
        let decisions = answer.decisions.iter().map(in_words).collect::<Vec<_>>();
        Ok(Some(json!({
            "leader": answer.leader,
            "since": answer.since,
            "revision": answer.revision,
            "dropped": answer.dropped,
            "more": answer.more,
            "decisions": decisions,
        })))
    }
}

/// A decision as it is, with what was decided and what became of it in words.
fn in_words(decision: &Decision) -> Value {
    let mut value = json!(decision);
    value["what"] = words::what(decision).into();
    value["outcome"] = words::result(decision).1.into();
    value
}
