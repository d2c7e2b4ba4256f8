//! The nodes and pods of the cluster, as `tenon status` shows them.

use kube::Client;
use tenon_installer_core::clock;
use tenon_simulate::{Fleet, Options, read};
use tenon_state::options::FeatureGates;

use crate::errors::ExpectedError;

/// What was read, and what was assumed about it.
pub(super) struct Seen {
    pub(super) fleet: Fleet,
    pub(super) notes: Vec<String>,
    /// Why events could not be read.
    pub(super) warning: Option<String>,
}

/// Lists nodes and pods and what says something about them.
pub(super) async fn look(client: &Client) -> Result<Seen, ExpectedError> {
    // Which gates are on makes no difference to what is there.
    let options = Options::live(clock::now(), FeatureGates::default());
    let mut simulation = read(options, Some(client), &|_| ()).await?;
    let events = simulation.observe_nodes(client).await.err();
    let warning = events.map(|error| {
        let why = ExpectedError::from(error).message();
        format!("{why}; what keeps nodes from disruption is not shown")
    });
    let fleet = simulation.fleet();
    Ok(Seen { fleet, notes: simulation.notes().to_vec(), warning })
}
