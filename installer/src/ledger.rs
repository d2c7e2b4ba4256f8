//! The operator's decision ledger, as it is reached from here: the Deployment is found, then the
//! pod that leads, then a port of it is forwarded, and questions are asked with the caller's own
//! token.

mod connection;
mod error;
mod websocket;
pub(crate) mod words;

use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tenon_installer_core::kubernetes::client::{Cluster, failed};
use tenon_installer_core::kubernetes::lease;
use tenon_installer_core::kubernetes::object::Key;
use tenon_installer_core::kubernetes::operator_deployment::{self, OperatorDeployment};
use tenon_installer_core::plugin::Bearer;
use tenon_state::decision::{AUDIENCE, Decisions, PATH, PORT, PORT_VARIABLE};
use tokio::time::Instant;

use self::connection::Connection;
pub use self::error::LedgerError;

/// How long an answer may take, beside what it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it is tried to reach a leader: it may change in between.
const TRIES: u32 = 4;

/// Rest after a try.
const REST: Duration = Duration::from_secs(1);

/// How long a token is used that was requested; it lasts twice as long.
const TOKEN: Duration = Duration::from_mins(5);

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Question {
    /// Only changes after this revision.
    pub(crate) after: Option<u64>,
    /// At most so many decisions.
    pub(crate) limit: usize,
    /// About this NodePool.
    pub(crate) node_pool: Option<String>,
    /// About this node or NodeClaim.
    pub(crate) node: Option<String>,
    /// About this pod.
    pub(crate) pod: Option<String>,
    /// Of this kind.
    pub(crate) kind: Option<&'static str>,
    /// How long to wait for a change, in seconds.
    pub(crate) wait: u64,
}

impl Question {
    /// Path and query.
    fn path(&self) -> String {
        let Self { after, limit, node_pool, node, pod, kind, wait } = self;
        let mut path = format!("{PATH}?limit={limit}");
        let mut add = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
                path = format!("{path}&{name}={value}");
            }
        };
        add("after", after.map(|after| after.to_string()).as_deref());
        add("nodepool", node_pool.as_deref());
        add("node", node.as_deref());
        add("pod", pod.as_deref());
        add("kind", *kind);
        add("wait", (*wait > 0).then(|| wait.to_string()).as_deref());
        path
    }
}

/// The ledger of one cluster.
pub(crate) struct Ledger {
    cluster: Cluster,
    bearer: Bearer,
    /// Where it is reached, if it is not to be found.
    address: Option<String>,
    operator: Option<OperatorDeployment>,
    connection: Option<Connection>,
    /// A token that was requested, and when.
    requested: Option<(String, Instant)>,
}

impl Ledger {
    /// Nothing is reached yet. With a `url` the ledger is there, and no pod is looked for.
    ///
    /// # Errors
    /// When the URL is not on loopback: a token would go over a network in the clear.
    pub(crate) fn new(
        client: Client,
        bearer: Bearer,
        url: Option<&str>,
    ) -> Result<Self, LedgerError> {
        let address = url.map(address).transpose()?;
        let cluster = Cluster::new(client, tenon_installer_core::audit::Audit::default());
        Ok(Self { cluster, bearer, address, operator: None, connection: None, requested: None })
    }

    /// Asks; waits for another leader if there is none at the moment.
    pub(crate) async fn ask(&mut self, question: &Question) -> Result<Decisions, LedgerError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.try_ask(question).await {
                Err(error) if error.may_pass() && tries < TRIES => error,
                answer => return answer,
            };
            // The pod is gone, or leads no more.
            tracing::debug!("{error}; trying again");
            self.connection = None;
            tokio::time::sleep(REST).await;
        }
    }

    async fn try_ask(&mut self, question: &Question) -> Result<Decisions, LedgerError> {
        let mut connection = match self.connection.take() {
            Some(connection) if connection.is_open() => connection,
            _ => self.connect().await?,
        };
        let token = self.token().await?;
        let patience = PATIENCE + Duration::from_secs(question.wait);
        let (status, body) = connection.get(&question.path(), &token, patience).await?;
        self.connection = Some(connection);
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(|_| LedgerError::Unreadable);
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        Err(match (status, text("error").as_str()) {
            (StatusCode::UNAUTHORIZED, _) => LedgerError::Unauthorized,
            (StatusCode::FORBIDDEN, _) => LedgerError::Forbidden {
                user: text("user"),
                name: self.operator.as_ref().map(|it| it.name().to_owned()),
                namespace: self.operator.as_ref().map(|it| it.namespace().to_owned()),
            },
            (_, "notLeader") => LedgerError::NoLeader,
            (StatusCode::NOT_FOUND, _) => LedgerError::Refused {
                status: 404,
                message: "another of its servers uses the port".to_owned(),
            },
            (status, _) => {
                LedgerError::Refused { status: status.as_u16(), message: text("message") }
            }
        })
    }

    /// Opens a connection to the replica that leads.
    async fn connect(&mut self) -> Result<Connection, LedgerError> {
        if let Some(address) = &self.address {
            return Connection::to(address).await;
        }
        let operator = self.find().await?;
        let port = match lease::variable(&operator.live, PORT_VARIABLE) {
            None => PORT,
            Some(port) => port.parse().unwrap_or(PORT),
        };
        if port == 0 {
            return Err(LedgerError::Disabled);
        }
        let pod = self.leader(&operator).await?;
        let version = operator.version().map(str::to_owned);
        let client = self.cluster.client();
        self.operator = Some(operator);
        let namespace = pod.namespace().unwrap_or_default();
        Connection::forwarded(&client, (&namespace, &pod.name_any()), port, version).await
    }

    /// The operator's Deployment.
    async fn find(&self) -> Result<OperatorDeployment, LedgerError> {
        // Where `tenon install` and Helm put it unless they are told otherwise.
        let expected = Key {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: Some("kube-system".to_owned()),
            name: "karpenter".to_owned(),
        };
        operator_deployment::find(&self.cluster, &expected).await?.ok_or(LedgerError::NoOperator)
    }

    /// The pod that leads; without leader election the one that is ready.
    async fn leader(&self, operator: &OperatorDeployment) -> Result<Pod, LedgerError> {
        let api: Api<Pod> = Api::namespaced(self.cluster.client(), operator.namespace());
        let params = ListParams::default().labels(&operator.selector());
        let pods = api.list(&params).await;
        let pods = pods.map_err(|source| failed("list", "pods".to_owned(), source))?;
        let mut alive = pods.items.into_iter().filter(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            pod.metadata.deletion_timestamp.is_none() && phase == Some("Running")
        });
        let elects =
            lease::variable(&operator.live, lease::DISABLED_VARIABLE).as_deref() != Some("true");
        if !elects {
            return alive.next().ok_or(LedgerError::NoLeader);
        }
        let leader = operator.leader(&self.cluster).await?.ok_or(LedgerError::NoLeader)?;
        alive.find(|pod| lease::holds(&leader.pod, pod)).ok_or(LedgerError::NoLeader)
    }

    /// The caller's token, or one for this only.
    async fn token(&mut self) -> Result<String, LedgerError> {
        if let Some(token) = self.bearer.token().await? {
            return Ok(token);
        }
        if let Some((token, since)) = &self.requested
            && since.elapsed() < TOKEN
        {
            return Ok(token.clone());
        }
        let operator = match &self.operator {
            Some(operator) => operator.clone(),
            None => self.find().await?,
        };
        let account = operator.live.pointer("/spec/template/spec/serviceAccountName");
        let account = account.and_then(Value::as_str).unwrap_or("default").to_owned();
        let namespace = operator.namespace().to_owned();
        let token = request_token(self.cluster.client(), &namespace, &account).await;
        let token = token.map_err(|source| LedgerError::NoToken {
            source: failed("create", format!("a token for {namespace}/{account}"), source),
        })?;
        self.requested = Some((token.clone(), Instant::now()));
        Ok(token)
    }
}

/// A token that is good for reading decisions only.
async fn request_token(
    client: Client,
    namespace: &str,
    account: &str,
) -> Result<String, kube::Error> {
    let api: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(vec![AUDIENCE.to_owned()]),
            expiration_seconds: Some(2 * i64::try_from(TOKEN.as_secs()).unwrap_or(600)),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = api.create_token_request(account, &PostParams::default(), &request).await?;
    Ok(answer.status.and_then(|status| status.token).unwrap_or_default())
}

/// Host and port of a URL on loopback.
fn address(url: &str) -> Result<String, LedgerError> {
    let wrong = || LedgerError::Url { url: url.to_owned() };
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let authority = rest.trim_end_matches('/');
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    let on_loopback = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
    if on_loopback { Ok(format!("{host}:{port}")) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests;
