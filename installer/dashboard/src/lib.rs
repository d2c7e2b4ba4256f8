//! A page in a browser that shows a cluster's nodes, the operator's decisions and what-ifs. It
//! reads and plans, and writes nothing. `docs/src/design/dashboard.md` describes page and
//! endpoints.
//!
//! `tenon dashboard` and `tenon-operator --dashboard` serve it. What differs between them is a
//! [`Backend`]: where the objects and the decisions come from, and who may ask. The rest is here:
//! [`serve()`] answers requests, [`assets`] is the page, and [`words`] says decisions in one line
//! each.

pub mod assets;
mod failure;
mod guard;
mod reader;
mod server;
pub mod words;

use std::future::Future;

use tenon_simulate::{Simulation, Subject, WhatIf};
use tenon_state::decision::Decisions;

pub use self::failure::Failure;
pub use self::server::{App, BODY, serve};

/// Where the page's data comes from, and who may see it. [`Self::read`], [`Self::observe`] and
/// [`Self::what_if`] run on a thread where they may compute.
pub trait Backend: Clone + Send + Sync + 'static {
    /// In one word, for people: `cluster`, `files`.
    fn name(&self) -> &'static str;

    /// The port that requests must name in `Host`; any, where another program forwards a port of
    /// its choice.
    fn port(&self) -> Option<u16>;

    /// What to do about a request that is refused because of where it comes from.
    fn how_to_open(&self) -> &'static str;

    /// Whether whoever has this token may see data now; it is empty where there is none.
    fn authorize(&self, token: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The cluster as it is now, and warnings about what could not be read.
    fn read(&self) -> impl Future<Output = Result<(Simulation, Vec<String>), Failure>> + Send;

    /// Adds what only explanations use. Without it they know less, and say the rest.
    fn observe(
        &self,
        simulation: &mut Simulation,
        subject: &Subject,
    ) -> impl Future<Output = ()> + Send;

    /// What the operator would do with the NodePools of these manifests.
    fn what_if(&self, manifests: String) -> impl Future<Output = Result<WhatIf, Failure>> + Send;

    /// Decisions that changed after a revision, or the newest ones.
    fn decisions(
        &self,
        after: Option<u64>,
    ) -> impl Future<Output = Result<Decisions, Failure>> + Send;
}
