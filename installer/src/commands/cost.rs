//! `tenon cost`: what the cluster costs, for what, and what consolidation saved.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tenon_installer_core::words::count;
use tenon_installer_core::{clock, target};
use tenon_simulate::{Commitments, Cost, Costs, Freshness, Options, Savings, read_costs};
use tenon_state::decision::{Kind, MOST};
use tokio::time::Instant;

use super::simulate::{options, price, spot_prices};
use crate::cli::GlobalArgs;
use crate::cli::cost::CostArgs;
use crate::errors::ExpectedError;
use crate::ledger::{Ledger, Question};
use crate::prices::SpotPrices;
use crate::printer::{Frame, Printer};

/// How often the cluster is read while somebody watches.
const EVERY: Duration = Duration::from_secs(10);

/// Reading a large cluster takes its API server longer: it is left alone for so many times that
/// long.
const REST: u32 = 5;

/// Shows what the cluster costs.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &CostArgs,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let live = args.source.live || args.source.files.is_empty();
    let now = args.source.now.unwrap_or_else(clock::now);
    let commitments = Commitments::read(&args.commitments, now)?;
    let (client, ledger) = if live {
        let (client, bearer) = target::client_and_bearer(&global.kubeconfig()).await?;
        let ledger = Ledger::new(client.clone(), bearer, args.reach.url.as_deref())?;
        (Some(client), Some(ledger))
    } else {
        (None, None)
    };
    let spot = spot_prices(global, &args.source, client.as_ref()).await?.briefly();
    let mut sources = Sources { commitments, spot, client, ledger };
    if let Some(account) = &args.focus {
        let options = options(&args.source, Freshness::Cached);
        let costs = read(args, options, sources.client.as_ref(), printer).await?;
        let mut costs = costs.with(sources.commitments);
        let notes = priced(&mut costs, &mut sources.spot, printer).await;
        let focus = costs.focus(account);
        printer.raw(&focus.csv);
        for note in &notes {
            printer.note(note);
        }
        if focus.without_price > 0 {
            let nodes = count(focus.without_price, "node");
            printer.warn(&format!("the price of {nodes} is not known; they have no rows"));
        }
        return Ok(0);
    }
    let (cost, notes) = look(args, &mut sources, printer).await?;
    if args.watch {
        return watch(args, sources, cost, printer).await;
    }
    if args.csv {
        printer.raw(&cost.csv());
    } else {
        printer.json(&cost);
        printer.text(&cost.text(printer.width()));
    }
    for note in &notes {
        printer.note(note);
    }
    Ok(0)
}

/// What is read.
struct Sources {
    /// Savings Plans and reserved instances that are active.
    commitments: Commitments,
    spot: SpotPrices,
    /// A running cluster, if it is read.
    client: Option<Client>,
    /// Its operator's.
    ledger: Option<Ledger>,
}

/// What it costs now, and what was assumed about it.
async fn look(
    args: &CostArgs,
    sources: &mut Sources,
    printer: Printer,
) -> Result<(Cost, Vec<String>), ExpectedError> {
    let Sources { commitments, spot, client, ledger } = sources;
    let options = options(&args.source, Freshness::Cached);
    let from = args.since.map(|since| before(options.now, since));
    let read = read(args, options, client.as_ref(), printer);
    let saved = async {
        let Some(ledger) = ledger else { return Ok(None) };
        Ok(match savings(ledger, from).await {
            Ok(savings) => Some(savings),
            Err(why) => {
                printer.warn(&format!("{why}; what consolidation saved is not shown"));
                None
            }
        })
    };
    // A cluster that can't be read is waited for neither EC2 nor the operator with.
    let (costs, savings) = tokio::try_join!(read, saved)?;
    let mut costs = costs.with(commitments.clone()).on(args.node_group.clone())?;
    let notes = priced(&mut costs, spot, printer).await;
    Ok((Cost { savings, ..costs.cost() }, notes))
}

/// Reads what there is to read.
async fn read(
    args: &CostArgs,
    options: Options,
    client: Option<&Client>,
    printer: Printer,
) -> Result<Costs, ExpectedError> {
    let note = |note: &str| printer.note(note);
    Ok(read_costs(options, client, args.by.clone(), &note).await?)
}

/// Prices spot nodes; answers what was assumed.
async fn priced(costs: &mut Costs, spot: &mut SpotPrices, printer: Printer) -> Vec<String> {
    let simulation = costs.simulation();
    let types = simulation.unpriced_spot_types().into_iter().map(str::to_owned).collect();
    spot.ask(types).await;
    price(simulation, spot, printer);
    simulation.notes().to_vec()
}

/// What consolidation saved, or why that is not known.
async fn savings(ledger: &mut Ledger, from: Option<Timestamp>) -> Result<Savings, String> {
    let kind = Some(Kind::Consolidation.as_str());
    let question = Question { limit: MOST, kind, ..Question::default() };
    let answer = ledger.ask(&question).await;
    let answer = answer.map_err(|error| ExpectedError::from(error).message())?;
    Ok(Savings::new(&answer, from))
}

/// The time so long before another; the first there is, if it would be before that.
fn before(now: Timestamp, since: Duration) -> Timestamp {
    let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
    now.checked_sub(since).unwrap_or(Timestamp::MIN)
}

/// Shows the costs whenever they change, until the command is interrupted.
async fn watch(
    args: &CostArgs,
    mut sources: Sources,
    first: Cost,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let mut frame = Frame::new(printer, args.term.as_deref());
    // What it notes and warns of was said already.
    let silent = Printer::new(printer.format(), true);
    let mut cost = first;
    let mut shown = None;
    let mut began = Instant::now();
    loop {
        let is_new = shown.as_ref() != Some(&Cost { now: Timestamp::UNIX_EPOCH, ..cost.clone() });
        if is_new {
            printer.json(&cost);
        }
        if is_new || frame.is_in_place() {
            let time = cost.now.strftime("%H:%M:%SZ").to_string();
            frame.show(&time, &[], Some(&cost.text(printer.width())));
        }
        shown = Some(Cost { now: Timestamp::UNIX_EPOCH, ..cost });
        tokio::time::sleep(EVERY.max(began.elapsed() * REST)).await;
        began = Instant::now();
        (cost, _) = look(args, &mut sources, silent).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_all_time_is_its_beginning() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().expect("a time");
        let day = before(now, Duration::from_hours(24));
        assert_eq!(day.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(before(now, Duration::MAX), Timestamp::MIN);
    }
}
