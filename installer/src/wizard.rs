//! Asks for what cannot be found out, and only for that; ends with a configuration that does the
//! same without asking.
//!
//! Every question can be explained (`?`) and gone back from (`<`). What was given by flag is not
//! asked. What follows from the cluster is accepted with one answer, or asked piece by piece.

use std::io;

use answers::{AnswerError, accepted};
use ask::{Ask, Question, Reply};
use known::Known;
use step::{Answers, REST, Step, TARGET};

mod answers;
pub(crate) mod ask;
mod help;
pub(crate) mod known;
mod questions;
pub(crate) mod step;
pub(crate) mod survey;

/// The questions ended without settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The terminal could not be read.
    #[error(transparent)]
    Terminal(#[from] io::Error),
    /// The person decided against an installation; what to do instead.
    #[error("{0}")]
    Declined(&'static str),
}

/// Asks for the target, unless it is known. `clusters` lists the clusters of a region; what it
/// can't list is typed.
pub(crate) async fn ask_target(
    ask: &mut impl Ask,
    answers: &mut Answers,
    known: &mut Known,
    mut clusters: impl AsyncFnMut(&str) -> Result<Vec<String>, String>,
) -> Result<(), Unanswered> {
    walk(ask, TARGET, answers, known, async |step, answers, known, ask| {
        let Some(region) = answers.config.cluster.region.clone().filter(|_| step == Step::Cluster)
        else {
            return;
        };
        match clusters(&region).await {
            Ok(found) if found.is_empty() => {
                known.clusters.clear();
                ask.say(&format!("EKS lists no cluster in {region}; < leads back to the region."));
            }
            Ok(found) => known.clusters = found,
            Err(why) => {
                known.clusters.clear();
                ask.say(&format!("The clusters can't be listed: {why}"));
            }
        }
    })
    .await
}

/// Asks for the rest, knowing the cluster. The settings in `answers` are the defaults.
pub(crate) async fn ask_rest(
    ask: &mut impl Ask,
    answers: &mut Answers,
    known: &mut Known,
) -> Result<(), Unanswered> {
    walk(ask, REST, answers, known, async |_, _, _, _| {}).await
}

/// Asks one question after the other; back leads to the last one that was answered. `discover`
/// finds out what a question needs to know.
async fn walk<A: Ask>(
    ask: &mut A,
    steps: &[Step],
    answers: &mut Answers,
    known: &mut Known,
    mut discover: impl AsyncFnMut(Step, &Answers, &mut Known, &mut A),
) -> Result<(), Unanswered> {
    let mut answered: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        if !step.applies(answers, known) {
            at += 1;
            continue;
        }
        discover(*step, answers, known, ask).await;
        match ask.ask(&question(*step, answers, known)).await? {
            Reply::Back => match answered.pop() {
                Some(last) => at = last,
                None => ask.say("This is the first question."),
            },
            Reply::Answer(answer) => match step.take(&answer, answers, known) {
                Ok(()) => {
                    if *step == Step::Recommended && !answers.is_detailed {
                        *answers = accepted(answers, known).0;
                    }
                    if let Some(remark) = step.remark(answers, known) {
                        ask.say(&remark);
                    }
                    answered.push(at);
                    at += 1;
                }
                Err(AnswerError::Declined(hint)) => return Err(Unanswered::Declined(hint)),
                Err(error) => ask.say(&error.to_string()),
            },
        }
    }
    Ok(())
}

/// A question, with what it is about.
fn question(step: Step, answers: &Answers, known: &Known) -> Question {
    let mut question = step.question(answers, known);
    if step == Step::Recommended {
        question.notes = accepted(answers, known).1;
    }
    question
}

#[cfg(test)]
mod tests;
