//! The cluster as it was read last. It is read when a page asks and the last reading is old: a page
//! in the background costs the API server nothing.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tenon_installer_core::clock;
use tenon_simulate::{Options, SimulateError, Simulation, Subject, WhatIf};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::errors::ExpectedError;
use crate::prices::SpotPrices;

/// A reading is used for so long, at least.
const FRESH: Duration = Duration::from_secs(3);

/// Reading a large cluster takes its API server longer: it is left alone for so many times that
/// long.
const REST: u32 = 5;

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

    async fn read(&self) -> Result<(Simulation, Vec<String>), ExpectedError> {
        let client = self.client.as_ref();
        let mut spot = self.spot.lock().await;
        let read = tenon_simulate::read(self.options(), client, &|_| ());
        let (simulation, ()) = tokio::join!(read, spot.ask_all());
        let mut simulation = simulation?;
        let mut warnings = simulation.warnings().to_vec();
        warnings.extend(spot.price(&mut simulation).warning);
        drop(spot);
        if let Some(client) = client
            && let Err(error) = simulation.observe_nodes(client).await
        {
            let why = ExpectedError::from(error).message();
            warnings.push(format!("{why}; what keeps nodes from disruption is not shown"));
        }
        Ok((simulation, warnings))
    }

    /// In one word, for people.
    fn name(&self) -> &'static str {
        if self.client.is_some() { "cluster" } else { "files" }
    }
}

/// Reads the cluster, and answers about what was read.
#[derive(Clone)]
pub(super) struct FleetReader {
    source: Source,
    last: Arc<Mutex<Option<Reading>>>,
    /// The last reading's, for those who would have to wait for a plan or another reading.
    state: watch::Sender<Option<State>>,
}

struct Reading {
    simulation: Simulation,
    /// Until when it is used.
    until: Instant,
}

/// What the page is drawn from.
#[derive(Clone)]
pub(super) struct State {
    /// JSON.
    pub(super) body: Bytes,
    /// Changes with the body.
    pub(super) tag: String,
}

impl FleetReader {
    /// Nothing is read yet.
    pub(super) fn new(source: Source) -> Self {
        Self { source, last: Arc::default(), state: watch::Sender::default() }
    }

    /// What there is: not older than a few times what it takes to read it, or than a plan takes
    /// that is being made.
    pub(super) async fn state(&self) -> Result<State, ExpectedError> {
        let known = || self.state.borrow().clone();
        let last = match (Arc::clone(&self.last).try_lock_owned(), known()) {
            (Ok(last), _) => last,
            (Err(_), Some(state)) => return Ok(state),
            (Err(_), None) => Arc::clone(&self.last).lock_owned().await,
        };
        if last.as_ref().is_some_and(|reading| Instant::now() < reading.until)
            && let Some(state) = known()
        {
            return Ok(state);
        }
        let this = self.clone();
        aside(async move {
            let mut last = last;
            let (reading, state) = this.reading().await?;
            *last = Some(reading);
            Ok(state)
        })
        .await
    }

    async fn reading(&self) -> Result<(Reading, State), ExpectedError> {
        let began = Instant::now();
        let (mut simulation, warnings) = self.source.read().await?;
        let fleet = simulation.fleet();
        let body = serde_json::to_vec(&json!({
            "source": self.source.name(),
            "fleet": fleet,
            "nodes": simulation.machines(),
            "notes": simulation.notes(),
            "warnings": warnings,
        }));
        let body = Bytes::from(body.expect("maps, lists and scalars always serialise"));
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let tag = format!("\"{:016x}\"", hasher.finish());
        let until = Instant::now() + FRESH.max(began.elapsed() * REST);
        let state = State { body, tag };
        self.state.send_replace(Some(state.clone()));
        Ok((Reading { simulation, until }, state))
    }

    /// Answers about the last reading; reads if there is none.
    async fn ask<T: Send + 'static>(
        &self,
        about: impl FnOnce(&mut Simulation) -> T + Send + 'static,
    ) -> Result<T, ExpectedError> {
        let this = self.clone();
        let work = async move {
            let mut last = this.last.lock().await;
            let reading = match last.take() {
                Some(reading) => reading,
                None => this.reading().await?.0,
            };
            Ok(about(&mut last.insert(reading).simulation))
        };
        aside(work).await
    }

    /// Why an object is as it is: data and text.
    pub(super) async fn explain(&self, subject: Subject) -> Result<Value, ExpectedError> {
        let this = self.clone();
        let work = async move {
            let mut last = this.last.lock().await;
            if last.is_none() {
                *last = Some(this.reading().await?.0);
            }
            let reading = last.as_mut().expect("it was read above");
            // Without events, explanations know less of failed launches, and say the rest.
            if let Some(client) = &this.source.client
                && let Err(error) = reading.simulation.observe(client, &subject).await
            {
                tracing::debug!(%error, "explaining without events");
            }
            let answer = reading.simulation.explain(&subject)?;
            Ok(json!({ "text": answer.text(None), "answer": answer }))
        };
        aside(work).await
    }

    /// The pods on a machine, by its key.
    pub(super) async fn pods(&self, node: String) -> Result<Value, ExpectedError> {
        let pods = self.ask({
            let node = node.clone();
            move |simulation| simulation.pods_on(&node)
        });
        let pods = pods.await?.ok_or_else(|| missing("Node", &node))?;
        Ok(json!(pods))
    }

    /// The manifest of a NodePool, in YAML.
    pub(super) async fn node_pool(&self, name: String) -> Result<Value, ExpectedError> {
        let manifest = self.ask({
            let name = name.clone();
            move |simulation| simulation.node_pool_manifest(&name)
        });
        let yaml = manifest.await?.ok_or_else(|| missing("NodePool", &name))?;
        Ok(json!({ "name": name, "yaml": yaml }))
    }

    /// What the operator would do with other NodePools. It reads again: both sides of the
    /// comparison are of the same objects, which are not kept.
    pub(super) async fn what_if(&self, manifests: String) -> Result<WhatIf, ExpectedError> {
        let source = self.source.clone();
        let work = async move {
            let client = source.client.as_ref();
            let mut spot = source.spot.lock().await;
            spot.ask_all().await;
            let spot = spot.known().cloned();
            let options = source.options();
            Ok(tenon_simulate::what_if(options, client, &manifests, spot.as_ref()).await?)
        };
        aside(work).await
    }
}

fn missing(kind: &str, name: &str) -> ExpectedError {
    SimulateError::NotFound { what: format!("{kind} {name}"), similar: Vec::new() }.into()
}

/// Runs what reads and computes on a thread where it keeps nothing else waiting.
async fn aside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = Handle::current();
    match tokio::task::spawn_blocking(move || runtime.block_on(work)).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
