//! `tenon decisions`: what the operator decided last, why, and what became of it.

use std::collections::BTreeSet;

use tenon_installer_core::plan::text::Line;
use tenon_installer_core::target;
use tenon_state::decision::{Decision, Decisions, Kind};

use crate::cli::GlobalArgs;
use crate::cli::decisions::DecisionsArgs;
use crate::errors::ExpectedError;
use crate::ledger::{Ledger, Question, words};
use crate::printer::{OutputFormat, Printer};

/// How long a question waits for something new, in seconds: less than proxies give up after.
const WAIT: u64 = 25;

/// The most decisions of one answer while they are followed.
const BATCH: usize = 500;

/// Shows the last decisions, and with `--follow` those that come.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &DecisionsArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let (client, bearer) = target::client_and_bearer(&global.kubeconfig()).await?;
    let mut ledger = Ledger::new(client, bearer, args.reach.url.as_deref())?;
    let question = Question {
        after: None,
        limit: usize::from(args.limit),
        node_pool: args.nodepool.clone(),
        node: args.node.clone(),
        pod: args.pod.clone(),
        kind: args.kind.as_deref().and_then(known_kind),
        wait: 0,
    };
    let first = ledger.ask(&question).await?;
    if !args.follow {
        show(&first, &question, *printer);
        return Ok(0);
    }
    let mut log = Log::default();
    log.begin(&first, &question, *printer);
    let mut known = first;
    loop {
        let next =
            Question { after: Some(known.revision), limit: BATCH, wait: WAIT, ..question.clone() };
        let mut answer = ledger.ask(&next).await?;
        if (&answer.leader, answer.since) != (&known.leader, known.since) {
            printer.note(&format!("{} leads now, with a new ledger", leading(&answer)));
            answer = ledger.ask(&Question { after: Some(0), wait: 0, ..next }).await?;
            log = Log::default();
        }
        log.add(&answer.decisions, *printer);
        known = Decisions { decisions: Vec::new(), ..answer };
    }
}

/// A kind as the operator knows it.
fn known_kind(text: &str) -> Option<&'static str> {
    Kind::ALL.iter().map(|kind| kind.as_str()).find(|known| *known == text)
}

fn show(answer: &Decisions, question: &Question, printer: Printer) {
    printer.json(answer);
    if answer.decisions.is_empty() {
        printer.prose(&none(answer, question));
    }
    let mut log = Log::default();
    printer.lines(&log.lines(&answer.decisions));
}

fn none(answer: &Decisions, question: &Question) -> String {
    let Question { node_pool, node, pod, kind, .. } = question;
    let is_filtered = node_pool.is_some() || node.is_some() || pod.is_some() || kind.is_some();
    let what = if is_filtered { "No such decisions" } else { "No decisions" };
    let since = answer
        .since
        .map(|since| format!(" since {since:.0}, when {} began to lead", leading(answer)));
    format!("{what}{}.", since.unwrap_or_default())
}

/// The pod of a leader.
fn leading(answer: &Decisions) -> &str {
    answer.leader.split('_').next().unwrap_or_default()
}

/// What was shown.
#[derive(Default)]
struct Log {
    /// The numbers of decisions whose results are told alone.
    known: BTreeSet<u64>,
    day: String,
}

impl Log {
    fn begin(&mut self, answer: &Decisions, question: &Question, printer: Printer) {
        if answer.decisions.is_empty() && printer.format() == OutputFormat::Text {
            printer.note(&none(answer, question));
        }
        self.add(&answer.decisions, printer);
    }

    fn add(&mut self, decisions: &[Decision], printer: Printer) {
        match printer.format() {
            OutputFormat::Text => printer.lines(&self.lines(decisions)),
            // One a line, for programs that read as they come.
            OutputFormat::Json => decisions.iter().for_each(|it| {
                printer.raw(&serde_json::to_string(it).unwrap_or_default());
            }),
            OutputFormat::Yaml => decisions.iter().for_each(|it| {
                printer.raw("---");
                printer.json(it);
            }),
        }
    }

    fn lines(&mut self, decisions: &[Decision]) -> Vec<Line> {
        let mut lines = Vec::new();
        for decision in decisions {
            let is_new = self.known.insert(decision.seq);
            let at = if is_new { decision.time } else { decision.result.at };
            let day = at.strftime("%Y-%m-%d").to_string();
            if day != self.day {
                lines.push(Line::plain(&day));
                self.day = day;
            }
            if is_new {
                lines.extend(words::lines(decision));
            } else {
                lines.push(words::news(decision));
            }
        }
        // The ledger has fewer.
        while self.known.len() > 5000 {
            self.known.pop_first();
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use tenon_installer_core::plan::text::plain;
    use tenon_state::decision::{Action, Outcome, State};

    use super::*;

    #[test]
    fn a_log_says_the_day_when_it_changes_and_a_result_alone() {
        let mut log = Log::default();
        let decision = |seq, time: &str, state| Decision {
            seq,
            time: time.parse().expect("a time"),
            kind: Kind::Launch,
            action: Action::Launch,
            result: Outcome { state, at: time.parse().expect("a time"), ..Outcome::default() },
            ..Decision::default()
        };
        let late = "2026-11-25T23:59:59Z";
        let first = [decision(1, late, State::Pending), decision(2, late, State::Pending)];
        let lines = log.lines(&first);
        assert_eq!(
            plain(&lines, None),
            "2026-11-25\n23:59:59Z  launch a node\n          pending\n23:59:59Z  launch a node\n          pending"
        );
        let lines = log.lines(&[decision(1, "2026-11-26T00:00:01Z", State::Done)]);
        assert_eq!(plain(&lines, None), "2026-11-26\n00:00:01Z  launch a node: done after 0.0 s");
    }

    #[test]
    fn an_empty_ledger_says_since_when() {
        let answer = Decisions {
            leader: "karpenter-x_1".to_owned(),
            since: "2026-11-25T12:00:00Z".parse().ok(),
            ..Decisions::default()
        };
        let any = Question::default();
        assert_eq!(
            none(&answer, &any),
            "No decisions since 2026-11-25T12:00:00Z, when karpenter-x began to lead."
        );
        let of_node = Question { node: Some("a".to_owned()), ..any };
        assert!(none(&answer, &of_node).starts_with("No such decisions since "));
    }
}
