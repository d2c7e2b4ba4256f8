//! The nodes and pods of the cluster, as `tenon status` and `tenon top` show them.

use kube::Client;
use tenon_installer_core::clock;
use tenon_simulate::{Events, Fleet, Options, read};
use tenon_state::options::FeatureGates;

use crate::errors::ExpectedError;
use crate::prices::{Pricing, SpotPrices};

/// What was read, and what was assumed about it.
pub(super) struct Seen {
    pub(super) fleet: Fleet,
    pub(super) notes: Vec<String>,
    /// What could not be read, and why.
    pub(super) warnings: Vec<String>,
    /// Whether spot nodes have EC2's prices, and not those of on-demand nodes.
    pub(super) has_spot_prices: bool,
}

/// Lists nodes and pods and what says something about them, and asks EC2 what spot nodes cost.
pub(super) async fn observe(client: &Client, spot: &mut SpotPrices) -> Result<Seen, ExpectedError> {
    // Which gates are on makes no difference to what is there.
    let options = Options::live(clock::now(), FeatureGates::default());
    let (simulation, events) =
        tokio::join!(read(options, Some(client), &|_| ()), Events::of_nodes(client));
    let mut simulation = simulation?;
    let mut warnings = Vec::new();
    match events {
        Ok(events) => simulation.add_events(&events),
        Err(error) => {
            let why = ExpectedError::from(error).message();
            warnings.push(format!("{why}; what keeps nodes from disruption is not shown"));
        }
    }
    let types = simulation.unpriced_spot_types().into_iter().map(str::to_owned).collect();
    spot.ask(types).await;
    let Pricing { has_spot_prices, warning } = spot.price(&mut simulation);
    warnings.extend(warning);
    let fleet = simulation.fleet();
    Ok(Seen { fleet, notes: simulation.notes().to_vec(), warnings, has_spot_prices })
}
