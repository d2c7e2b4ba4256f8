//! What the operator would do, without doing it: the same way from objects to a Snapshot, the same planner, and the plan as a report.
//!
//! Objects come from files ([`read`](self::read)), from a running cluster ([`live`](self::live)), or both; what the API server and the controllers would
//! have filled in is filled in; the planner plans; [`outcome::Outcome`] is the answer. Nothing is ever written to a cluster.

pub mod args;
mod buffers;
mod catalogs;
mod complete;
mod decode;
mod documents;
pub mod error;
mod expand;
mod explain;
mod funnel;
pub mod input;
mod live;
pub mod outcome;
pub mod problem;
mod prune;
mod read;
mod table;
mod words;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use tenon_planner::plan::Plan;
use tenon_planner::snapshot::Placement;
use tenon_planner::{Policy, Snapshot, lower_bound_within, overlays};

use self::args::{ExplainArgs, SimulateArgs, SourceArgs, What};
use self::error::SimulateError;
use self::outcome::{Outcome, Plans};
use self::read::Files;
use self::words::counted;
use crate::cli::GlobalArgs;
use crate::clock;
use crate::errors::{ExpectedError, count};
use crate::printer::Printer;
use crate::target;

/// For how long the operator expects pods on a machine that it planned them onto.
const NOMINATION: SignedDuration = SignedDuration::from_secs(20);

/// What a lower bound of the price may cost: about 0.3 s, enough for the full bound of 12 shapes and for a good one of 350, with a thousand instance types.
const BOUND_STEPS: u64 = 36_000_000;

/// What a command starts from.
struct Start {
    snapshot: Snapshot,
    warnings: Vec<String>,
    skipped: BTreeMap<String, usize>,
    now: Timestamp,
}

/// `tenon simulate`
pub(crate) async fn simulate(
    global: &GlobalArgs,
    args: &SimulateArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    if args.source.files.is_empty() && !args.source.live {
        return Err(SimulateError::NoInput.into());
    }
    let mut start = start(global, &args.source, args.source.live, printer).await?;
    if let Some(path) = &args.save {
        save(&start.snapshot, path)?;
    }
    start.snapshot = overlays::applied(start.snapshot);
    let (now, seed) = (start.now, args.source.seed);
    let plans = plan(
        &mut start.snapshot,
        &args.source.policy(),
        Asked { what: args.what, now, seed, bound: true },
    );
    let mut outcome = Outcome::new(&start.snapshot, &plans, start.now, args.source.seed);
    printer.note(&format!(
        "planned {} and {} in {:.2} s",
        counted(outcome.totals.pods, "pod"),
        counted(outcome.totals.nodes_before, "node"),
        outcome.totals.plan_seconds
    ));
    outcome.warnings = start.warnings;
    outcome.skipped_kinds = start.skipped;
    printer.json(&outcome);
    printer.text(&table::text(&outcome));
    Ok(0)
}

/// `tenon explain`
pub(crate) async fn explain(
    global: &GlobalArgs,
    args: &ExplainArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let live = args.source.live || args.source.files.is_empty();
    let mut start = start(global, &args.source, live, printer).await?;
    start.snapshot = overlays::applied(start.snapshot);
    let (now, seed) = (start.now, args.source.seed);
    let plans = plan(
        &mut start.snapshot,
        &args.source.policy(),
        Asked { what: What::Both, now, seed, bound: false },
    );
    let answer = explain::explain(args, &start.snapshot, &plans)?;
    printer.json(&answer);
    printer.text(&answer.text());
    Ok(0)
}

/// Reads what there is to read, and talks about it.
async fn start(
    global: &GlobalArgs,
    args: &SourceArgs,
    live: bool,
    printer: &Printer,
) -> Result<Start, ExpectedError> {
    let now = args.now.unwrap_or_else(clock::now);
    let mut input = input::Input::default();
    if live {
        let begun = Instant::now();
        let client = target::client(global).await?;
        input = live::read(&client, args).await?;
        printer.note(&format!(
            "read {} of the cluster in {:.2} s",
            counted(input.count, "object"),
            begun.elapsed().as_secs_f64()
        ));
    }
    if !args.files.is_empty() {
        let begun = Instant::now();
        match read::read(&args.files)? {
            Files::Snapshot(snapshot) => {
                if live || !args.catalog.files.is_empty() {
                    return Err(SimulateError::SnapshotAlone.into());
                }
                printer.note("read a saved snapshot");
                return Ok(Start {
                    snapshot: *snapshot,
                    warnings: Vec::new(),
                    skipped: BTreeMap::new(),
                    now,
                });
            }
            Files::Objects { input: read, files, bytes } => {
                #[expect(clippy::cast_precision_loss, reason = "for people, to a tenth")]
                let megabytes = bytes as f64 / 1e6;
                printer.note(&format!(
                    "read {} from {} ({megabytes:.1} MB) in {:.2} s",
                    counted(read.count, "object"),
                    count(files, "file"),
                    begun.elapsed().as_secs_f64()
                ));
                input.extend(*read);
            }
        }
    }
    for (kind, n) in &input.skipped {
        printer.note(&format!("left out {} of kind {kind}", count(*n, "object")));
    }
    let skipped = std::mem::take(&mut input.skipped);
    let world = world::build(input, args, now)?;
    for note in &world.notes {
        printer.note(note);
    }
    for warning in &world.warnings {
        printer.warn(warning);
    }
    Ok(Start { snapshot: world.snapshot, warnings: world.warnings, skipped, now })
}

/// What is asked of the planner.
#[derive(Clone, Copy)]
struct Asked {
    what: What,
    now: Timestamp,
    seed: u64,
    /// Whether a lower bound of the price is wanted.
    bound: bool,
}

/// Plans as the operator's two loops would, one after the other: nodes on which pending pods are expected are not disrupted.
fn plan(snapshot: &mut Snapshot, policy: &Policy, asked: Asked) -> Plans {
    let Asked { what, now, seed, bound } = asked;
    let mut plans = Plans::default();
    let begun = Instant::now();
    let mut served = None;
    if what != What::Disrupt {
        let plan = tenon_planner::provision(snapshot, policy, now, seed, &());
        plans.seconds = begun.elapsed().as_secs_f64();
        served = bound.then(|| served_by(&plan, snapshot));
        nominate(snapshot, &plan, now);
        plans.provision = Some(plan);
    }
    let disrupt = || {
        let begun = Instant::now();
        let plan = (what != What::Provision)
            .then(|| tenon_planner::disrupt(snapshot, policy, now, seed, &()));
        (plan, begun.elapsed().as_secs_f64())
    };
    let bound = || lower_bound_within(&served?, policy, BOUND_STEPS);
    let ((plan, seconds), bound) = rayon::join(disrupt, bound);
    plans.disrupt = plan;
    plans.seconds += seconds;
    plans.bound = bound;
    plans
}

/// The snapshot with those pending pods only that the plan has places for: the others cost nothing, so they don't belong into a bound of the price.
fn served_by(plan: &Plan, snapshot: &Snapshot) -> Snapshot {
    let mut served = snapshot.clone();
    let waiting: BTreeSet<(&str, &str)> =
        plan.report.pods.iter().map(|it| (&*it.pod.namespace, &*it.pod.name)).collect();
    for pod in &mut served.pods {
        if waiting.contains(&(&*pod.namespace, &*pod.name)) {
            pod.placement = Placement::Waiting;
        }
    }
    served
}

fn nominate(snapshot: &mut Snapshot, plan: &Plan, now: Timestamp) {
    let until = now.checked_add(NOMINATION).unwrap_or(Timestamp::MAX);
    let nominated: BTreeSet<&str> =
        plan.nominations.iter().map(|nomination| nomination.node.as_str()).collect();
    for node in &mut snapshot.nodes {
        if nominated.contains(node.key.as_str()) {
            node.nominated_until = node.nominated_until.max(Some(until));
        }
    }
}

fn save(snapshot: &Snapshot, path: &std::path::Path) -> Result<(), ExpectedError> {
    let mut text = serde_json::to_string(snapshot)
        .expect("a snapshot is maps, lists and scalars, which always serialise");
    text.push('\n');
    std::fs::write(path, text).map_err(|source| ExpectedError::File {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}
