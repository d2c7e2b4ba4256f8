//! `--dashboard`: the page of `tenon dashboard`, from what the operator has in memory, for those
//! who may read it.
//!
//! It listens on the pod's loopback address only, as the
//! [ledger's server](crate::http::decisions) does; `kubectl port-forward` reaches it.
//! `docs/src/design/dashboard.md` says why.

use std::sync::Arc;

use axum::http::StatusCode;
use kube::Client;
use tenon_dashboard::{App, Backend, Failure};
use tenon_simulate::{Options, Simulation, Subject, WhatIf};
use tenon_state::decision::{AUDIENCE, Decisions, MOST};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::decisions::Query;
use crate::http::access::{Access, Verdict};
use crate::http::decisions::LONGEST_TOKEN;
use crate::leader::Election;
use crate::operator::Operator;
use crate::state::cluster::Cluster;

/// What callers must be permitted to `get`.
const PATH: &str = "/dashboard";

/// A what-if copies what it changes and plans twice: on more nodes that would take more memory and
/// time than planning can spare.
const MOST_NODES: usize = 2000;

/// What the page is made of.
pub(crate) struct Fleet<P> {
    /// The cluster, what can be launched, and decisions.
    pub(crate) operator: Arc<Operator<P>>,
    /// The API server that knows who asks.
    pub(crate) client: Client,
    /// Tells who leads instead; none where this replica always does.
    pub(crate) election: Option<Election>,
    /// The operator's own namespace.
    pub(crate) namespace: String,
    /// The port that it listens on.
    pub(crate) port: u16,
    /// The name of the ServiceAccount and the ClusterRole whose holders may see it.
    pub(crate) reader: String,
}

/// Answers until `stop`.
pub(crate) async fn serve<P: CloudProvider>(
    listener: TcpListener,
    fleet: Fleet<P>,
    stop: CancellationToken,
) {
    let app = App::new(Page(Arc::new((fleet, Access::new(PATH)))));
    stop.run_until_cancelled(tenon_dashboard::serve(listener, Arc::new(app))).await;
}

/// The page's backend. Clones share it.
struct Page<P>(Arc<(Fleet<P>, Access)>);

impl<P> Clone for Page<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: CloudProvider> Fleet<P> {
    fn options(&self) -> Options {
        let Operator { policy, options, .. } = &*self.operator;
        let live = Options::live(self.operator.now(), options.feature_gates.clone());
        Options { policy: policy.clone(), ..live }
    }

    /// Only the leader has decisions and plans.
    async fn is_leading(&self) -> Result<(), Failure> {
        if self.operator.context.decisions.leads() {
            return Ok(());
        }
        let holder = match &self.election {
            Some(election) => election.holder().await,
            None => None,
        };
        let unavailable = |message: &str| Failure::new(StatusCode::SERVICE_UNAVAILABLE, message);
        Err(match holder {
            Some(leader) => {
                // The pod and a number that tells its processes apart.
                let pod = leader.split('_').next().unwrap_or_default();
                let failure = unavailable(&format!("this replica does not lead; {pod} does"));
                let Self { namespace, port, .. } = self;
                failure.hint(format!("kubectl -n {namespace} port-forward pod/{pod} 7070:{port}"))
            }
            None => unavailable("no replica of the operator leads").hint("try again in a moment"),
        })
    }

    fn how_to_get_a_token(&self) -> String {
        let Self { namespace, reader, .. } = self;
        format!("enter a token: kubectl -n {namespace} create token {reader} --audience={AUDIENCE}")
    }
}

impl<P: CloudProvider> Backend for Page<P> {
    fn name(&self) -> &'static str {
        "operator"
    }

    fn port(&self) -> Option<u16> {
        None
    }

    fn how_to_open(&self) -> &'static str {
        "forward a port of this machine to the pod with kubectl port-forward, and open it as \
         http://127.0.0.1:PORT"
    }

    async fn authorize(&self, token: &str) -> Result<(), Failure> {
        let (fleet, access) = &*self.0;
        let unauthorized = |message: &str| {
            let failure = Failure::new(StatusCode::UNAUTHORIZED, message);
            Err(failure.hint(fleet.how_to_get_a_token()))
        };
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return unauthorized("a bearer token of the Kubernetes API is required");
        }
        match access.check(&fleet.client, token).await {
            Ok(Verdict::Allowed) => fleet.is_leading().await,
            Ok(Verdict::Unknown) => unauthorized("the API server does not accept the token"),
            Ok(Verdict::Forbidden { user }) => {
                let message = format!("user {user:?} may not get the non-resource URL {PATH}");
                let failure = Failure::new(StatusCode::FORBIDDEN, message);
                Err(failure.hint(format!("bind the ClusterRole {} to that user", fleet.reader)))
            }
            Err(error) => {
                let error = crate::text::chain(&error);
                tracing::warn!(error, "can't check who asks for the dashboard");
                let message = format!("the operator can't check the token: {error}");
                Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, message))
            }
        }
    }

    async fn read(&self) -> Result<(Simulation, Vec<String>), Failure> {
        let fleet = &self.0.0;
        let cluster = fleet.operator.state.read();
        let snapshot = fleet.operator.snapshot_in(&cluster);
        Ok((Simulation::of(&cluster, snapshot, fleet.options()), Vec::new()))
    }

    async fn observe(&self, _: &mut Simulation, _: &Subject) {
        // The operator writes events, and reads none.
    }

    async fn what_if(&self, manifests: String) -> Result<WhatIf, Failure> {
        let fleet = &self.0.0;
        // The state goes on changing while this plans.
        let cluster = {
            let cluster = fleet.operator.state.read();
            let nodes = cluster.nodes().count().max(cluster.claims().count());
            if nodes > MOST_NODES {
                let message = format!("the operator plans what-ifs for {MOST_NODES} nodes");
                let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, message);
                return Err(failure.hint("start tenon dashboard on your machine instead"));
            }
            cluster.clone()
        };
        let snapshot = |cluster: &Cluster| fleet.operator.snapshot_in(cluster);
        Ok(tenon_simulate::what_if_of(&cluster, &snapshot, &fleet.options(), &manifests)?)
    }

    async fn decisions(&self, after: Option<u64>) -> Result<Decisions, Failure> {
        let query = Query { after, limit: MOST, ..Query::default() };
        Ok(self.0.0.operator.context.decisions.answer(&query))
    }
}

#[cfg(test)]
mod tests;
