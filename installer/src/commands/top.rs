//! `tenon top`: reads the cluster and follows the decisions, and does what the view asks for.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tenon_installer_core::apply::StepError;
use tenon_installer_core::audit::Audit;
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::target::{self, KubeconfigOptions};
use tenon_installer_core::words::{chain, without_types};
use tenon_installer_core::{clock, words};
use tenon_simulate::{Events, Options, Subject, read};
use tenon_state::options::FeatureGates;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fleet::{self, Seen};
use super::session::take_lock_of;
use crate::cli::GlobalArgs;
use crate::cli::top::TopArgs;
use crate::errors::ExpectedError;
use crate::ledger::{Ledger, Question};
use crate::prices::SpotPrices;
use crate::printer::{OutputFormat, Printer};
use crate::top::{Action, Inputs, News, Palette, Pause, Screen, State, keys, run as show};
use crate::uninstall::{Motion, set_motion_of};

/// Reading a large cluster takes its API server longer: it is left alone for so many times that
/// long.
const REST: u32 = 5;

/// How long a question for decisions waits for something new, in seconds: less than proxies give up
/// after.
const WAIT: u64 = 25;

/// Decisions of the first answer; the log is as long as it gets from then on.
const FIRST: usize = 200;

/// The most decisions of each answer after it.
const BATCH: usize = 500;

/// Rest after a question for decisions that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// News that may wait to be drawn.
const NEWS: usize = 64;

/// Shows the cluster until the user quits.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &TopArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if let Some(why) = unfit(has_terminal, args.term.as_deref(), printer.format()) {
        return Err(ExpectedError::NoTerminal { why });
    }
    // Nobody sees the questions of a credential plugin while the screen is drawn.
    let kubeconfig = KubeconfigOptions { attended: false, ..global.kubeconfig() };
    let (client, bearer) = target::client_and_bearer(&kubeconfig).await?;
    let ledger = Ledger::new(client.clone(), bearer, args.reach.url.as_deref())?;
    let inferred = target::infer(&kubeconfig);
    let mut spot = global.spot_prices(&client).await?;
    let explained_prices = Arc::new(Mutex::new(global.spot_prices(&client).await?));
    // What can't be read at all is an error like any other.
    let first = fleet::observe(&client, &mut spot).await?;
    let cluster = global.cluster.clone().or(inferred.cluster).or(global.context.clone());
    let state = State::new(cluster.as_deref().unwrap_or("cluster"), clock::now());

    let (news, told) = channel(NEWS);
    let (resize, resized) = channel(1);
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_cluster(client.clone(), spot, args.interval, first, news.clone()));
    tasks.spawn(follow_decisions(ledger, news.clone()));
    let mut sizes = signal(SignalKind::window_change()).map_err(ExpectedError::Draw)?;
    tasks.spawn(
        async move { while sizes.recv().await.is_some() && resize.send(()).await.is_ok() {} },
    );
    let mut terminated = signal(SignalKind::terminate()).map_err(ExpectedError::Draw)?;
    let mut hung_up = signal(SignalKind::hangup()).map_err(ExpectedError::Draw)?;

    // Written to the cluster: not given up half-way.
    let mut pauses = JoinSet::new();
    let ended = {
        let mut screen = Screen::take().map_err(ExpectedError::Draw)?;
        let lost = screen.lost();
        let inputs = Inputs { keys: keys(), news: told, resized };
        let (explained, paused) = (news.clone(), news);
        let mut explaining = JoinSet::new();
        let act = |action| match action {
            Action::Quit => {}
            Action::Explain(subject, width) => {
                // Only the last one is waited for.
                explaining.abort_all();
                while explaining.try_join_next().is_some() {}
                let (client, news) = (client.clone(), explained.clone());
                let spot = Arc::clone(&explained_prices);
                explaining.spawn(async move {
                    let answer = explain(&client, &spot, &subject, width).await;
                    let answer = answer.map_err(|error| error.message());
                    let _ = news.send(News::Explained(subject, answer)).await;
                });
            }
            Action::Pause(pause) => {
                while pauses.try_join_next().is_some() {}
                let (client, news, global) = (client.clone(), paused.clone(), global.clone());
                pauses.spawn(async move {
                    let done = set_pause(&client, &global, &pause).await;
                    let done = done.map_err(|error| error.message());
                    let _ = news.send(News::Paused(pause, done)).await;
                });
            }
        };
        let palette = match args.no_color.as_deref() {
            None | Some("") => Palette::Colored,
            Some(_) => Palette::Monochrome,
        };
        tokio::select! {
            ended = show(&mut screen, state, palette, inputs, clock::now, act) => ended,
            // A task has panicked, and said so.
            () = lost => Err(std::io::Error::other("a part of tenon failed")),
            _ = terminated.recv() => Ok(()),
            _ = hung_up.recv() => Ok(()),
        }
    };
    while pauses.join_next().await.is_some() {}
    ended.map_err(ExpectedError::Draw)?;
    Ok(0)
}

/// Why there is nothing to draw on, if there is not.
fn unfit(has_terminal: bool, term: Option<&str>, format: OutputFormat) -> Option<&'static str> {
    if format != OutputFormat::Text {
        return Some("what it draws can't be printed as JSON or YAML");
    }
    if !has_terminal {
        return Some("its input or output is a file or a pipe");
    }
    (term == Some("dumb")).then_some("TERM=dumb is one that moves no cursor")
}

/// Reads the cluster again and again, and says what there is.
async fn follow_cluster(
    client: Client,
    mut spot: SpotPrices,
    every: Duration,
    first: Seen,
    news: Sender<News>,
) {
    let mut seen = Ok(first);
    let mut began = Instant::now();
    loop {
        let read = match seen {
            Ok(Seen { fleet, mut notes, warnings, has_spot_prices }) => {
                notes.extend(warnings);
                News::Fleet { fleet: Box::new(fleet), notes, has_spot_prices }
            }
            Err(error) => News::Unread(ExpectedError::message(&error)),
        };
        if news.send(read).await.is_err() {
            return;
        }
        tokio::time::sleep(every.max(began.elapsed() * REST)).await;
        began = Instant::now();
        seen = fleet::observe(&client, &mut spot).await;
    }
}

/// Asks the operator for what it has decided, and then for what is new.
async fn follow_decisions(mut ledger: Ledger, news: Sender<News>) {
    let mut known = None;
    loop {
        let question = match known {
            None => Question { limit: FIRST, ..Question::default() },
            Some((_, _, revision)) => {
                Question { after: Some(revision), limit: BATCH, wait: WAIT, ..Question::default() }
            }
        };
        let told = match ledger.ask(&question).await {
            Ok(answer) => {
                let now = (answer.leader.clone(), answer.since, answer.revision);
                let is_another = known.as_ref().is_some_and(|(leader, since, _)| {
                    (leader, *since) != (&answer.leader, answer.since)
                });
                if is_another {
                    // Its numbers start again: what it was asked for means nothing.
                    known = None;
                    continue;
                }
                known = Some(now);
                News::Decisions(answer)
            }
            Err(error) => {
                let why = without_types(&chain(&error));
                if news.send(News::NoDecisions(why)).await.is_err() {
                    return;
                }
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        if news.send(told).await.is_err() {
            return;
        }
    }
}

/// What `tenon explain` says, in so many columns.
async fn explain(
    client: &Client,
    spot: &Mutex<SpotPrices>,
    subject: &Subject,
    width: usize,
) -> Result<String, ExpectedError> {
    let options = Options::live(clock::now(), FeatureGates::default());
    let mut spot = spot.lock().await;
    let (simulation, events, ()) = tokio::join!(
        read(options, Some(client), &|_| ()),
        Events::about(client, subject),
        spot.ask_all()
    );
    let mut simulation = simulation?;
    // The view says so already where EC2 gives no prices.
    spot.price(&mut simulation);
    drop(spot);
    let added = events.map(|events| simulation.add_events(&events));
    let mut text = simulation.explain(subject)?.text(Some(width));
    if let Err(error) = added {
        let why = ExpectedError::from(error).message();
        text.push_str("\n\nwarning: ");
        text.push_str(&why);
        text.push_str("; failed launches are recognized by conditions only");
    }
    Ok(text)
}

/// Pauses or resumes NodePools, under the lock of all commands that change something.
async fn set_pause(
    client: &Client,
    global: &GlobalArgs,
    pause: &Pause,
) -> Result<String, ExpectedError> {
    let Pause { motion, pools } = pause;
    let cluster = Cluster::new(client.clone(), Audit::default());
    let operation = match motion {
        Motion::Still => "freeze",
        Motion::Free => "unfreeze",
    };
    let cleanup = Cleanup::default();
    let lock = take_lock_of(&cluster, None, global, operation, &cleanup).await?;
    let mut changed = Vec::new();
    let done = set_motion_of(&cluster, *motion, pools, &mut changed).await;
    drop(lock);
    cleanup.run().await;
    done.map_err(|error| {
        ExpectedError::Step(StepError {
            step: operation.to_owned(),
            done: changed.len(),
            source: error.into(),
        })
    })?;
    let names = words::some(&changed, 5);
    Ok(match (changed.is_empty(), motion) {
        (true, Motion::Still) => "they were paused already".to_owned(),
        (true, Motion::Free) => "they were not paused".to_owned(),
        (false, Motion::Still) => format!("paused: {names}"),
        (false, Motion::Free) => format!("resumed: {names}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_drawn_on_is_said() {
        use OutputFormat::{Json, Text, Yaml};
        assert_eq!(unfit(true, Some("xterm"), Text), None);
        assert_eq!(unfit(true, None, Text), None);
        for (terminal, term, format, why) in [
            (true, Some("dumb"), Text, "TERM=dumb"),
            (false, Some("xterm"), Text, "a file or a pipe"),
            (true, Some("xterm"), Json, "JSON"),
            (true, Some("xterm"), Yaml, "YAML"),
        ] {
            assert!(unfit(terminal, term, format).is_some_and(|said| said.contains(why)));
        }
    }
}
