//! The nodes and pods of the cluster, as `tenon status` shows them.

use kube::Client;
use tenon_installer_core::aws::Aws;
use tenon_installer_core::clock;
use tenon_installer_core::observe::ec2;
use tenon_simulate::{Fleet, Options, read};
use tenon_state::options::FeatureGates;

use crate::errors::ExpectedError;

/// What was read, and what was assumed about it.
pub(super) struct Seen {
    pub(super) fleet: Fleet,
    pub(super) notes: Vec<String>,
    /// What could not be read, and why.
    pub(super) warnings: Vec<String>,
}

/// Lists nodes and pods and what says something about them, and asks EC2 what spot nodes cost.
pub(super) async fn observe(client: &Client, aws: &Aws) -> Result<Seen, ExpectedError> {
    // Which gates are on makes no difference to what is there.
    let options = Options::live(clock::now(), FeatureGates::default());
    let mut simulation = read(options, Some(client), &|_| ()).await?;
    let types = simulation.unpriced_spot_types().into_iter().map(str::to_owned).collect();
    let (events, prices) =
        tokio::join!(simulation.observe_nodes(client), ec2::spot_prices(aws, types));
    let mut warnings = Vec::new();
    if let Err(error) = events {
        let why = ExpectedError::from(error).message();
        warnings.push(format!("{why}; what keeps nodes from disruption is not shown"));
    }
    match prices {
        Ok(prices) => simulation.price_spot(&prices),
        Err(why) => warnings.push(format!("{why}; spot nodes are priced as on-demand ones")),
    }
    let fleet = simulation.fleet();
    Ok(Seen { fleet, notes: simulation.notes().to_vec(), warnings })
}
