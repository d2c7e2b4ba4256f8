//! The cluster as it was read last. It is read when a page asks and the last reading is old: a page
//! in the background costs nothing.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::{Value, json};
use tenon_simulate::{SimulateError, Simulation, Subject, WhatIf};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::{Backend, Failure};

/// A reading is used for so long, at least.
const FRESH: Duration = Duration::from_secs(3);

/// Reading a large cluster takes its API server longer: it is left alone for so many times that
/// long.
const REST: u32 = 5;

/// Reads the cluster, and answers about what was read.
#[derive(Clone)]
pub(crate) struct Reader<B> {
    backend: B,
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
pub(crate) struct State {
    /// JSON.
    pub(crate) body: Bytes,
    /// Changes with the body.
    pub(crate) tag: String,
}

impl<B: Backend> Reader<B> {
    /// Nothing is read yet.
    pub(crate) fn new(backend: B) -> Self {
        Self { backend, last: Arc::default(), state: watch::Sender::default() }
    }

    /// What there is: not older than a few times what it takes to read it, or than a plan takes
    /// that is being made.
    pub(crate) async fn state(&self) -> Result<State, Failure> {
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

    async fn reading(&self) -> Result<(Reading, State), Failure> {
        let began = Instant::now();
        Ok(self.kept(self.backend.read().await?, began))
    }

    /// Plans, and keeps what the page is drawn from.
    fn kept(
        &self,
        (mut simulation, warnings): (Simulation, Vec<String>),
        began: Instant,
    ) -> (Reading, State) {
        let fleet = simulation.fleet();
        let body = serde_json::to_vec(&json!({
            "source": self.backend.name(),
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
        (Reading { simulation, until }, state)
    }

    /// Takes over what has been read.
    pub(crate) async fn begin(&self, read: (Simulation, Vec<String>)) {
        let this = self.clone();
        let work = async move {
            let mut last = this.last.lock().await;
            *last = Some(this.kept(read, Instant::now()).0);
        };
        aside(work).await;
    }

    /// Answers about the last reading; reads if there is none.
    async fn ask<T: Send + 'static>(
        &self,
        about: impl FnOnce(&mut Simulation) -> T + Send + 'static,
    ) -> Result<T, Failure> {
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
    pub(crate) async fn explain(&self, subject: Subject) -> Result<Value, Failure> {
        let this = self.clone();
        let work = async move {
            let mut last = this.last.lock().await;
            if last.is_none() {
                *last = Some(this.reading().await?.0);
            }
            let reading = last.as_mut().expect("it was read above");
            this.backend.observe(&mut reading.simulation, &subject).await;
            let answer = reading.simulation.explain(&subject)?;
            Ok(json!({ "text": answer.text(None), "answer": answer }))
        };
        aside(work).await
    }

    /// The pods on a machine, by its key.
    pub(crate) async fn pods(&self, node: String) -> Result<Value, Failure> {
        let pods = self.ask({
            let node = node.clone();
            move |simulation| simulation.pods_on(&node)
        });
        let pods = pods.await?.ok_or_else(|| missing("Node", &node))?;
        Ok(json!(pods))
    }

    /// The manifest of a NodePool, in YAML.
    pub(crate) async fn node_pool(&self, name: String) -> Result<Value, Failure> {
        let manifest = self.ask({
            let name = name.clone();
            move |simulation| simulation.node_pool_manifest(&name)
        });
        let yaml = manifest.await?.ok_or_else(|| missing("NodePool", &name))?;
        Ok(json!({ "name": name, "yaml": yaml }))
    }

    /// What the operator would do with other NodePools. It reads again: both sides of the
    /// comparison are of the same objects, which are not kept.
    pub(crate) async fn what_if(&self, manifests: String) -> Result<WhatIf, Failure> {
        let backend = self.backend.clone();
        aside(async move { backend.what_if(manifests).await }).await
    }
}

fn missing(kind: &str, name: &str) -> Failure {
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
