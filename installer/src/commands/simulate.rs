//! `tenon simulate` and `tenon explain`: what the operator would do and why, without doing it.

use std::path::Path;

use dialoguer::console::Term;
use futures::future::OptionFuture;
use kube::Client;
use tenon_installer_core::{clock, target};
use tenon_planner::Policy;
use tenon_planner::policy::{MinValuesPolicy, PreferencePolicy};
use tenon_simulate::{
    CatalogOptions, Events, Freshness, Kind, Loops, Options, SimulateError, Simulation, Subject,
};

use crate::cli::GlobalArgs;
use crate::cli::simulate::{
    ExplainArgs, Explained, MinValues, PolicyArgs, Preferences, SimulateArgs, SourceArgs, What,
};
use crate::errors::ExpectedError;
use crate::prices::SpotPrices;
use crate::printer::{Printer, columns};

/// Says what would be launched, placed, removed, and what stays, with the reasons.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &SimulateArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let mut options = options(&args.source, Freshness::Latest);
    options.drain.clone_from(&args.drain);
    let live = args.source.live;
    options.check(live)?;
    let changed = args.what_if.as_deref().map(changed).transpose()?;
    let client = client(global, live).await?;
    let mut spot = prices(global, &args.source, client.as_ref()).await?;
    if let Some((file, manifests)) = &changed {
        let change = (*file, manifests.as_str());
        return compare(options, client.as_ref(), change, &mut spot, *printer).await;
    }
    let mut simulation = read(options, client.as_ref(), &mut spot, printer).await?;
    if let Some(path) = &args.save {
        simulation.save(path)?;
    }
    let loops = match args.what {
        What::Provision => Loops::Provision,
        What::Disrupt => Loops::Disrupt,
        What::Both => Loops::Both,
    };
    let outcome = simulation.outcome(loops);
    printer.note(&outcome.duration_in_words());
    printer.json(&outcome);
    printer.text(&outcome.text());
    simulation.notes().iter().for_each(|note| printer.note(note));
    Ok(0)
}

/// A file with changed NodePools, and its text.
fn changed(file: &Path) -> Result<(&Path, String), SimulateError> {
    let manifests = std::fs::read_to_string(file)
        .map_err(|source| SimulateError::Read { path: file.to_owned(), source })?;
    Ok((file, manifests))
}

/// Says what the NodePools of a file would change.
async fn compare(
    options: Options,
    client: Option<&Client>,
    (file, manifests): (&Path, &str),
    spot: &mut SpotPrices,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    spot.ask_all().await;
    let compared = tenon_simulate::what_if(options, client, manifests, spot.known());
    let compared = compared.await.map_err(|error| error.of_file(file))?;
    spot.warning().iter().chain(&compared.warnings).for_each(|warning| printer.warn(warning));
    printer.json(&compared);
    printer.text(&compared.text());
    compared.notes.iter().for_each(|note| printer.note(note));
    Ok(0)
}

/// Says why one object is as it is.
pub(crate) async fn explain(
    global: &GlobalArgs,
    args: &ExplainArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let live = args.source.live || args.source.files.is_empty();
    let subject = Subject {
        kind: match args.kind {
            Explained::Pod => Kind::Pod,
            Explained::Node => Kind::Node,
            Explained::NodeClaim => Kind::NodeClaim,
            Explained::NodePool => Kind::NodePool,
        },
        namespace: args.namespace.clone(),
        name: args.name.clone(),
    };
    let of = |freshness| options(&args.source, freshness);
    of(Freshness::Cached).check(live)?;
    let client = client(global, live).await?;
    let client = client.as_ref();
    let mut spot = prices(global, &args.source, client).await?;
    let mut look = async |freshness| {
        let events = OptionFuture::from(client.map(|client| Events::about(client, &subject)));
        let (simulation, events) =
            tokio::join!(read(of(freshness), client, &mut spot, printer), events);
        let mut simulation = simulation?;
        match events {
            Some(Ok(events)) => simulation.add_events(&events),
            Some(Err(error)) => {
                let why = ExpectedError::from(error).message();
                printer.warn(&format!("{why}; failed launches are recognized by conditions only"));
            }
            None => {}
        }
        let answer = simulation.explain(&subject);
        Ok::<_, ExpectedError>((simulation, answer))
    };
    let (simulation, answer) = match look(Freshness::Cached).await? {
        // It may have been made just now.
        (_, Err(SimulateError::NotFound { .. })) if live => look(Freshness::Latest).await?,
        found => found,
    };
    let answer = answer?;
    printer.json(&answer);
    printer.text(&answer.text(columns(&Term::stdout())));
    simulation.notes().iter().for_each(|note| printer.note(note));
    Ok(0)
}

/// What spot instances cost, if a cluster is read and no catalog has prices. One answer is waited
/// for, so EC2 has to be quick.
async fn prices(
    global: &GlobalArgs,
    source: &SourceArgs,
    client: Option<&Client>,
) -> Result<SpotPrices, ExpectedError> {
    let spot = spot_prices(global, source, client).await?;
    Ok(spot.briefly())
}

/// What spot instances cost, if a cluster is read and no catalog has prices.
pub(super) async fn spot_prices(
    global: &GlobalArgs,
    source: &SourceArgs,
    client: Option<&Client>,
) -> Result<SpotPrices, ExpectedError> {
    match client {
        Some(client) if source.catalog.files.is_empty() => global.spot_prices(client).await,
        _ => Ok(SpotPrices::new(None)),
    }
}

/// The client of the cluster, if one is read.
async fn client(global: &GlobalArgs, live: bool) -> Result<Option<Client>, ExpectedError> {
    Ok(if live { Some(target::client(&global.kubeconfig()).await?) } else { None })
}

/// Reads what there is to read, and talks about it.
async fn read(
    options: Options,
    client: Option<&Client>,
    spot: &mut SpotPrices,
    printer: &Printer,
) -> Result<Simulation, ExpectedError> {
    let read = async {
        let note = |note: &str| printer.note(note);
        Ok::<_, ExpectedError>(tenon_simulate::read(options, client, &note).await?)
    };
    // A cluster that can't be read is not waited for EC2 with.
    let asked = async {
        spot.ask_all().await;
        Ok(())
    };
    let (mut simulation, ()) = tokio::try_join!(read, asked)?;
    price(&mut simulation, spot, *printer);
    Ok(simulation)
}

/// Prices spot nodes, and says what to know about prices and input.
pub(super) fn price(simulation: &mut Simulation, spot: &SpotPrices, printer: Printer) {
    if let Some(warning) = spot.price(simulation).warning {
        printer.warn(&warning);
    }
    for warning in simulation.warnings() {
        printer.warn(warning);
    }
}

/// What a simulation starts from, as it was typed.
pub(super) fn options(args: &SourceArgs, freshness: Freshness) -> Options {
    Options {
        files: args.files.clone(),
        catalog: CatalogOptions {
            files: args.catalog.files.clone(),
            vm_memory_overhead_percent: args.catalog.vm_memory_overhead_percent,
            reserved_enis: args.catalog.reserved_enis,
        },
        now: args.now.unwrap_or_else(clock::now),
        seed: args.seed,
        ignore_dra_requests: args.ignore_dra_requests,
        feature_gates: args.policy.feature_gates.clone(),
        scheduler_config: args.policy.scheduler_config.clone(),
        policy: policy(&args.policy),
        freshness,
        drain: Vec::new(),
    }
}

/// The options as the planner takes them.
fn policy(args: &PolicyArgs) -> Policy {
    let PolicyArgs {
        feature_gates,
        preference_policy,
        min_values_policy,
        node_price,
        largest_share,
        few_nodes,
        nominate_pods,
        // It is part of the snapshot.
        scheduler_config: _,
    } = args;
    let default = feature_gates.policy();
    Policy {
        preferences: match preference_policy {
            Preferences::Respect => PreferencePolicy::Respect,
            Preferences::Ignore => PreferencePolicy::Ignore,
        },
        min_values: match min_values_policy {
            MinValues::Strict => MinValuesPolicy::Strict,
            MinValues::BestEffort => MinValuesPolicy::BestEffort,
        },
        node_price: node_price.unwrap_or(default.node_price),
        largest_share: largest_share.unwrap_or(default.largest_share),
        few_nodes: few_nodes.unwrap_or(default.few_nodes),
        nominations: *nominate_pods,
        ..default
    }
}
