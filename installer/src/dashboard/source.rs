//! Where the objects come from: files, or a cluster that is read.

use std::sync::Arc;

use futures::future::OptionFuture;
use jiff::Timestamp;
use kube::Client;
use tenon_installer_core::clock;
use tenon_simulate::{Events, Options, Simulation, Subject, WhatIf};
use tokio::sync::Mutex;

use crate::errors::ExpectedError;
use crate::prices::SpotPrices;

/// Where the objects come from.
#[derive(Clone)]
pub(crate) struct Source {
    /// For every reading, with the time of the reading.
    options: Options,
    /// The time to plan for, if it is not that of the reading.
    now: Option<Timestamp>,
    /// A running cluster, if it is read.
    client: Option<Client>,
    /// What spot instances cost.
    spot: Arc<Mutex<SpotPrices>>,
}

impl Source {
    pub(crate) fn new(
        options: Options,
        now: Option<Timestamp>,
        client: Option<Client>,
        spot: SpotPrices,
    ) -> Self {
        Self { options, now, client, spot: Arc::new(Mutex::new(spot)) }
    }

    fn options(&self) -> Options {
        Options { now: self.now.unwrap_or_else(clock::now), ..self.options.clone() }
    }

    pub(super) async fn read(&self) -> Result<(Simulation, Vec<String>), ExpectedError> {
        let client = self.client.as_ref();
        let mut spot = self.spot.lock().await;
        let read = tenon_simulate::read(self.options(), client, &|_| ());
        let events = OptionFuture::from(client.map(Events::of_nodes));
        let (simulation, events, ()) = tokio::join!(read, events, spot.ask_all());
        let mut simulation = simulation?;
        let mut warnings = simulation.warnings().to_vec();
        warnings.extend(spot.price(&mut simulation).warning);
        drop(spot);
        match events {
            Some(Ok(events)) => simulation.add_events(&events),
            Some(Err(error)) => {
                let why = ExpectedError::from(error).message();
                warnings.push(format!("{why}; what keeps nodes from disruption is not shown"));
            }
            None => {}
        }
        Ok((simulation, warnings))
    }

    /// Adds events, which explanations use.
    pub(super) async fn observe(&self, simulation: &mut Simulation, subject: &Subject) {
        let Some(client) = &self.client else { return };
        match Events::about(client, subject).await {
            Ok(events) => simulation.add_events(&events),
            Err(error) => tracing::debug!(%error, "explaining without events"),
        }
    }

    /// What the operator would do with other NodePools. It reads again: both sides of the
    /// comparison are of the same objects, which are not kept.
    pub(super) async fn what_if(&self, manifests: &str) -> Result<WhatIf, ExpectedError> {
        let mut spot = self.spot.lock().await;
        spot.ask_all().await;
        let spot = spot.known().cloned();
        let (options, client) = (self.options(), self.client.as_ref());
        Ok(tenon_simulate::what_if(options, client, manifests, spot.as_ref()).await?)
    }

    /// In one word, for people.
    pub(super) fn name(&self) -> &'static str {
        if self.client.is_some() { "cluster" } else { "files" }
    }
}
