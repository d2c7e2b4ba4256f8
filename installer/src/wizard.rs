//! Asks for what cannot be found out, and only for that; ends with a configuration that does the
//! same without asking.
//!
//! Every question can be explained (`?`) and gone back from (`<`). What was given by flag is not
//! asked.

use std::io;

use ask::{Ask, Reply};
use questions::{Known, REST, Step, TARGET};
use tenon_installer_core::observe::facts::Facts;
use tenon_installer_core::settings::Inferred;
use tenon_installer_core::settings::config::Config;

pub(crate) mod ask;
mod questions;

/// Asks for the target, unless it is known.
pub(crate) async fn ask_target(
    ask: &mut impl Ask,
    config: &mut Config,
    inferred: &Inferred,
) -> io::Result<()> {
    let known = Known { inferred: inferred.clone(), ..Known::default() };
    let given = config.clone();
    walk(ask, TARGET, &given, config, &known).await
}

/// Asks for the rest, knowing the cluster. What `given` has is not asked; the settings in `config`
/// are the defaults. `agent_is_missing`: the cluster has no Pod Identity agent. `subnets`: the
/// cluster's, each with a few words about it.
pub(crate) async fn ask_rest(
    ask: &mut impl Ask,
    given: &Config,
    config: &mut Config,
    facts: &Facts,
    agent_is_missing: bool,
    subnets: &[(String, String)],
) -> io::Result<()> {
    let subnets = if subnets.is_empty() {
        facts.cluster.subnet_ids.iter().map(|id| (id.clone(), id.clone())).collect()
    } else {
        subnets.to_vec()
    };
    let known = Known { agent_is_missing, subnets, ..Known::default() };
    walk(ask, REST, given, config, &known).await
}

/// Asks one question after the other; back leads to the last one that was answered.
async fn walk(
    ask: &mut impl Ask,
    steps: &[Step],
    given: &Config,
    config: &mut Config,
    known: &Known,
) -> io::Result<()> {
    let mut answered: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        if !step.applies(given, config, known) {
            at += 1;
            continue;
        }
        match ask.ask(&step.question(config, known)).await? {
            Reply::Back => match answered.pop() {
                Some(last) => at = last,
                None => ask.say("This is the first question."),
            },
            Reply::Answer(answer) => match step.take(&answer, config, known) {
                Ok(()) => {
                    answered.push(at);
                    at += 1;
                }
                Err(error) => ask.say(&error.to_string()),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
