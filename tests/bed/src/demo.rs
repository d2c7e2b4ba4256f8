//! Stories on a bed, chapter by chapter: the demo of Tenon, which `cargo sandbox` shows, and Tenon
//! beside each of its neighbours, which `cargo sandbox neighbours` shows. Tests prove all of them.
//!
//! A chapter does what a person would do, waits for what must come of it, and notes what happened.
//! The first expectation that fails ends the story, with the place of the logs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use futures::future::BoxFuture;
use kube::Client;
use owo_colors::OwoColorize;
use serde::Serialize;
use tenon_aws_double::consistency::Delays;
use tenon_aws_double::progress::Progress;
use tokio::time::Instant;

use crate::argocd::ArgoCd;
use crate::bed::{Bed, BedConfig, BedError};
use crate::cli::{INTERRUPTED, Output, interrupted};
use crate::cluster_autoscaler::Groups;
use crate::failure::Failure;
use crate::flux::Flux;
use crate::policy_coverage::{self, Statement};
use crate::prometheus::Prometheus;
use crate::termination_handler::TerminationHandler;
use crate::user::{NodeClass, User};
use crate::wait::{NotYet, chain};

mod adoption;
mod argocd;
mod chapters;
mod cluster;
mod cluster_autoscaler;
mod flux;
mod gitops;
mod inventory;
mod keda;
mod kops;
mod pools;
mod prometheus;
mod termination_handler;

pub use chapters::install;

/// A chapter did not go as it must.
#[derive(Debug, thiserror::Error)]
pub enum StoryError {
    /// What must come did not come in time.
    #[error(transparent)]
    NotYet(#[from] NotYet),
    /// A program of Tenon ended with another exit code than it must.
    #[error("`tenon {args}` ended with exit code {code}; its last lines:\n{said}")]
    Tenon {
        /// Its arguments.
        args: String,
        /// Its exit code.
        code: i32,
        /// The end of its stderr.
        said: String,
    },
    /// The API server refuses something that the demo does by hand.
    #[error("can't {doing}")]
    Kubernetes {
        /// What was being done.
        doing: String,
        /// Why not.
        source: kube::Error,
    },
    /// A part of the bed refuses.
    #[error("can't {doing}")]
    Bed {
        /// What was being done.
        doing: String,
        /// Why not.
        source: Failure,
    },
    /// Something is other than it must be.
    #[error("{0}")]
    Unexpected(String),
    /// A part of the bed ended.
    #[error(transparent)]
    Ended(#[from] tenon_aws_double::process::ProcessError),
}

/// Says what was being done when a part of the bed refused.
fn bed<E: Into<Failure>>(doing: &str) -> impl FnOnce(E) -> StoryError + use<E> {
    let doing = doing.to_owned();
    move |source| StoryError::Bed { doing, source: source.into() }
}

/// Who makes NodePools and workloads in a story.
fn user(scene: &Scene<'_>) -> User {
    User::new(scene.client.clone(), NodeClass::Ec2)
}

/// What a chapter has to work with.
pub struct Scene<'a> {
    /// The bed that the story is told on.
    pub bed: &'a Bed,
    /// An administrator's client.
    pub client: Client,
    /// What there was before Tenon came.
    before: Option<inventory::Inventory>,
    /// KEDA and its workers, from the chapter on in which they start.
    keda: Option<keda::Scaled>,
    /// What Flux or Argo CD reads, from the chapter on in which they start.
    delivery: Option<gitops::Delivery>,
    flux: Option<Flux>,
    /// What Cluster Autoscaler scales, from the chapter on in which it starts.
    groups: Option<Groups<'a>>,
    /// Node Termination Handler, from the chapter on in which it starts.
    handler: Option<TerminationHandler<'a>>,
    /// What watches Tenon, from the chapter on in which it starts.
    prometheus: Option<Prometheus>,
    argocd: Option<ArgoCd>,
    notes: Vec<String>,
    narrator: &'a Narrator,
}

impl Scene<'_> {
    /// Notes something that the reader should see.
    fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.narrator.note(&text);
        self.notes.push(text);
    }
}

type Tell = for<'a, 'b> fn(&'a mut Scene<'b>) -> BoxFuture<'a, Result<(), StoryError>>;

#[derive(Clone, Copy)]
struct Chapter {
    title: &'static str,
    shows: &'static str,
    tell: Tell,
}

/// A chapter as it went.
#[derive(Debug, Serialize)]
pub struct ChapterReport {
    /// As it is shown.
    pub title: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// What happened.
    pub notes: Vec<String>,
    /// The expectation that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A program beside which Tenon runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Neighbour {
    /// A kOps cluster gets Tenon by one command, and never asks for EKS
    Kops,
    /// Groups of Cluster Autoscaler become NodePools, and back
    #[value(name = "cas")]
    ClusterAutoscaler,
    /// Node Termination Handler ends while an instance is interrupted
    #[value(name = "nth")]
    TerminationHandler,
    /// Prometheus and Alertmanager with the chart's rules and dashboards
    Prometheus,
    /// KEDA scales workers of an SQS queue from and to zero
    Keda,
    /// Flux installs Tenon from a git repository
    Flux,
    /// Flux takes over what `tenon install` has installed
    FluxTakeOver,
    /// Karpenter that Flux installed is adopted, and comes back
    FluxAdopt,
    /// Argo CD installs Tenon from a git repository
    #[value(name = "argocd")]
    ArgoCd,
    /// Argo CD takes over what `tenon install` has installed
    #[value(name = "argocd-take-over")]
    ArgoCdTakeOver,
    /// Karpenter that Argo CD installed is adopted, and comes back
    #[value(name = "argocd-adopt")]
    ArgoCdAdopt,
}

impl Neighbour {
    const fn chapters(self) -> &'static [Chapter] {
        match self {
            Self::Kops => kops::CHAPTERS,
            Self::ClusterAutoscaler => cluster_autoscaler::CHAPTERS,
            Self::TerminationHandler => termination_handler::CHAPTERS,
            Self::Prometheus => prometheus::CHAPTERS,
            Self::Keda => keda::CHAPTERS,
            Self::Flux => flux::CHAPTERS,
            Self::FluxTakeOver => flux::TAKE_OVER,
            Self::FluxAdopt => adoption::FLUX,
            Self::ArgoCd => argocd::CHAPTERS,
            Self::ArgoCdTakeOver => argocd::TAKE_OVER,
            Self::ArgoCdAdopt => adoption::ARGO_CD,
        }
    }
}

/// A story as it went.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether all expectations held.
    pub ok: bool,
    /// How long it took, from nothing to nothing.
    pub seconds: f64,
    /// The chapters that were told.
    pub chapters: Vec<ChapterReport>,
    /// The statements of the policies that the operator's role was given, and the calls that needed
    /// them.
    pub statements: Vec<Statement>,
    /// Where the logs are, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<PathBuf>,
}

impl Report {
    /// Prints what happened, for tests.
    ///
    /// # Panics
    /// When an expectation failed; with the place of the logs.
    pub fn must_be_ok(&self) {
        for chapter in &self.chapters {
            anstream::println!("{} ({:.1} s)", chapter.title, chapter.seconds);
            for note in &chapter.notes {
                anstream::println!("  {note}");
            }
        }
        let last = self.chapters.last().expect("at least the first chapter");
        let failure = last.failure.as_deref().unwrap_or_default();
        assert!(self.ok, "chapter {}: {failure}; the logs are in {:?}", last.title, self.logs);
    }
}

/// Prints a story while it is told.
struct Narrator {
    output: Output,
    progress: Progress,
}

impl Narrator {
    fn say(&self, line: &str) {
        match self.output {
            Output::Text => self.progress.print(line),
            Output::Json => self.progress.say(line),
        }
    }

    fn begin(&self, number: usize, chapter: &Chapter) {
        self.say(&format!("\n{} {}", format!("{number}.").dimmed(), chapter.title.bold()));
        self.say(&format!("   {}", chapter.shows.dimmed()));
    }

    fn note(&self, text: &str) {
        self.say(&format!("   • {text}"));
    }

    fn end(&self, report: &ChapterReport) {
        match &report.failure {
            None => self.say(&format!("   {} {:.1} s", "✔".green(), report.seconds)),
            Some(failure) => self.say(&format!("   {} {failure}", "✗".red())),
        }
    }
}

/// Tells the whole demo on a bed of its own, and prints it; exit code 1 if an expectation fails.
///
/// # Errors
/// When the bed can't be started or stopped.
pub async fn run(output: Output, progress: &Progress) -> Result<ExitCode, Failure> {
    let Some(report) = tell_and_print(chapters::ALL, output, progress).await? else {
        return Ok(INTERRUPTED.into());
    };
    match output {
        Output::Json => anstream::println!("{}", serde_json::to_string_pretty(&report)?),
        Output::Text if report.ok => {
            permissions(&report.statements);
            anstream::println!("\nDone after {:.0} s. Nothing is left.", report.seconds);
        }
        Output::Text => {}
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tells the stories of these neighbours, each on a bed of its own, and prints them; exit code 1 if
/// an expectation fails.
///
/// # Errors
/// When a bed can't be started or stopped.
pub async fn neighbours(
    all: &[Neighbour],
    output: Output,
    progress: &Progress,
) -> Result<ExitCode, Failure> {
    let mut reports = Vec::new();
    for neighbour in all {
        let told = tell_and_print(neighbour.chapters(), output, progress).await?;
        let Some(report) = told else { return Ok(INTERRUPTED.into()) };
        if report.ok && output == Output::Text {
            anstream::println!("\nDone after {:.0} s.", report.seconds);
        }
        reports.push(report);
    }
    if output == Output::Json {
        anstream::println!("{}", serde_json::to_string_pretty(&reports)?);
    }
    let ok = reports.iter().all(|report| report.ok);
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tells chapters on a bed of their own, and says where the logs are if they fail; `None` if they
/// were interrupted.
async fn tell_and_print(
    chapters: &[Chapter],
    output: Output,
    progress: &Progress,
) -> Result<Option<Report>, Failure> {
    let narrator = Narrator { output, progress: progress.clone() };
    let config = BedConfig { progress: progress.clone(), ..BedConfig::default() };
    let told = whole(chapters, config, Delays::default(), &narrator).await?;
    if let Some(report) = told.as_ref().filter(|report| !report.ok) {
        if output == Output::Text {
            anstream::println!("\nStopped after {:.0} s.", report.seconds);
        }
        if let Some(logs) = &report.logs {
            anstream::eprintln!("The logs are in {}.", logs.display());
        }
    }
    Ok(told)
}

/// Says which permissions the operator needed, and why it has the others.
fn permissions(statements: &[Statement]) {
    let needed = statements.iter().filter(|it| !it.calls.is_empty()).count();
    let of = statements.len();
    anstream::println!("\nThe operator needed {needed} of the {of} statements of its policies.");
    for statement in statements.iter().filter(|it| it.calls.is_empty()) {
        let why = statement.shipped_because.unwrap_or("no reason recorded");
        anstream::println!("   • not {}: {why}", statement.sid);
    }
}

/// Tells the whole demo in silence, in an AWS where what is new stays invisible for so long: for
/// tests.
///
/// # Errors
/// When the bed can't be started or stopped.
pub async fn prove(delays: Delays) -> Result<Report, Failure> {
    in_silence(chapters::ALL, delays).await
}

/// Tells the story of a neighbour in silence: for tests.
///
/// # Errors
/// When the bed can't be started or stopped.
pub async fn prove_neighbour(neighbour: Neighbour) -> Result<Report, Failure> {
    in_silence(neighbour.chapters(), Delays::default()).await
}

async fn in_silence(chapters: &[Chapter], delays: Delays) -> Result<Report, Failure> {
    let narrator = Narrator { output: Output::Json, progress: Progress::hidden() };
    let report = whole(chapters, BedConfig::default(), delays, &narrator).await?;
    report.ok_or_else(|| "interrupted".into())
}

/// A story from an empty machine to an empty machine; `None` if it was interrupted.
async fn whole(
    chapters: &[Chapter],
    config: BedConfig,
    delays: Delays,
    narrator: &Narrator,
) -> Result<Option<Report>, Failure> {
    let started = Instant::now();
    let mut reports = Vec::new();
    let bed = tokio::select! {
        bed = open(narrator, config, &mut reports) => bed?,
        () = interrupted() => return Ok(None),
    };
    bed.aws()?.gateway().control().consistency(delays);
    let told = tokio::select! {
        told = tell(chapters, &bed, narrator, &mut reports) => Some(told),
        () = interrupted() => None,
    };
    let statements =
        policy_coverage::of_controller(bed.aws()?.guard().authorization.usage().statements());
    let logs = if told == Some(false) {
        Some(bed.stop_and_keep().await.join("logs"))
    } else {
        bed.stop().await?;
        None
    };
    let seconds = started.elapsed().as_secs_f64();
    Ok(told.map(|ok| Report { ok, seconds, chapters: reports, statements, logs }))
}

/// The first chapter is the bed itself.
async fn open(
    narrator: &Narrator,
    config: BedConfig,
    reports: &mut Vec<ChapterReport>,
) -> Result<Bed, BedError> {
    let chapter = Chapter {
        title: "A cluster",
        shows: "A real control plane, an AWS double and two system nodes start on this machine.",
        tell: |_| Box::pin(std::future::ready(Ok(()))),
    };
    narrator.begin(1, &chapter);
    let started = Instant::now();
    let bed = Bed::start(config).await?;
    let seconds = started.elapsed().as_secs_f64();
    let report = ChapterReport {
        title: chapter.title,
        shows: chapter.shows,
        seconds,
        notes: Vec::new(),
        failure: None,
    };
    narrator.end(&report);
    reports.push(report);
    Ok(bed)
}

/// Tells the chapters on a running bed; returns whether all expectations held.
async fn tell(
    chapters: &[Chapter],
    bed: &Bed,
    narrator: &Narrator,
    reports: &mut Vec<ChapterReport>,
) -> bool {
    let mut scene = Scene {
        bed,
        client: bed.client(),
        before: None,
        keda: None,
        delivery: None,
        flux: None,
        groups: None,
        handler: None,
        prometheus: None,
        argocd: None,
        notes: Vec::new(),
        narrator,
    };
    for (index, chapter) in chapters.iter().enumerate() {
        narrator.begin(index + 2, chapter);
        let started = Instant::now();
        let result = tokio::select! {
            result = (chapter.tell)(&mut scene) => result,
            ended = bed.failed() => Err(ended.into()),
        };
        let report = ChapterReport {
            title: chapter.title,
            shows: chapter.shows,
            seconds: started.elapsed().as_secs_f64(),
            notes: std::mem::take(&mut scene.notes),
            failure: result.err().map(|error| chain(&error)),
        };
        narrator.end(&report);
        let failed = report.failure.is_some();
        reports.push(report);
        if failed {
            return false;
        }
    }
    true
}
