//! AWS Node Termination Handler: its workloads, the events that it handles, and what feeds its
//! queue.
//!
//! What it is told is read from its workloads, and what it gets from the rules that send to its
//! queue. Nothing is known by names.

pub(crate) mod fit;
mod handler;
mod nodes;
pub(crate) mod steps;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node;
use tenon_iam_policies::Scope;
use tenon_installer_core::apply::wait::deployment_lacks;
use tenon_installer_core::aws::{Aws, AwsError};
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::{Cluster, KubeError};
use tenon_installer_core::kubernetes::object::{Key, Object};
use tenon_installer_core::kubernetes::operator_deployment::OperatorDeployment;
use tenon_installer_core::observe::auto_scaling::{self, HookState};
use tenon_installer_core::observe::messaging;
use tenon_installer_core::observe::state::{QueueState, RuleState};

pub(crate) use self::handler::{Handler, Kind};
use crate::options::{Options, Sources};

/// A queue, and what sends to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Feed {
    /// Name in SQS.
    pub name: String,
    /// The queue.
    pub state: QueueState,
    /// Rules of the default bus that send to it, by name.
    pub rules: BTreeMap<String, RuleState>,
    /// Lifecycle hooks that announce to it.
    pub hooks: Vec<HookState>,
}

impl Feed {
    async fn read(aws: &Aws, name: &str) -> Result<Option<Self>, AwsError> {
        let Some(state) = messaging::queue(aws, name).await? else { return Ok(None) };
        let (name, hooks) = (name.to_owned(), Vec::new());
        let mut feed = Self { name, state, rules: BTreeMap::new(), hooks };
        let rules = messaging::rules_to(aws, feed.arn()).await?;
        feed.rules = messaging::rules(aws, &rules).await?;
        Ok(Some(feed))
    }

    /// ARN of the queue.
    pub(crate) fn arn(&self) -> &str {
        self.state.attributes.get("QueueArn").map_or("", String::as_str)
    }

    /// Kinds of events that reach it.
    pub(crate) fn kinds(&self) -> BTreeSet<Kind> {
        let rules = self.rules.values().filter(|rule| rule.enabled);
        let patterns = rules.filter_map(|rule| rule.pattern.as_deref());
        let of_hooks = (!self.hooks.is_empty()).then_some(Kind::Lifecycle);
        patterns.flat_map(Kind::of_pattern).chain(of_hooks).collect()
    }
}

/// Tenon, as far as it handles interruptions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ours {
    /// Where its Deployment is.
    pub deployment: String,
    /// What is missing until its pods serve.
    pub lacks: Option<String>,
    /// Name of the queue that it reads.
    pub queue: Option<String>,
    /// The queue, if it exists.
    pub feed: Option<Feed>,
}

impl Ours {
    /// It is not there.
    pub(crate) fn missing(expected: &Key) -> Self {
        let lacks = Some("there is no Deployment of Tenon's operator".to_owned());
        Self { deployment: expected.path(), lacks, ..Self::default() }
    }

    /// Reads it from the operator's Deployment, whoever applied that.
    pub(crate) async fn read(
        aws: &Aws,
        kube: &Cluster,
        operator: &OperatorDeployment,
    ) -> Result<Self, Failure> {
        let container = &operator.live["spec"]["template"]["spec"]["containers"][0];
        let sources = Sources::read(kube, operator.namespace(), container).await?;
        let options = Options::of(container, &sources);
        let queue = options.value("INTERRUPTION_QUEUE").map(str::to_owned);
        let mut feed = None;
        if let Some(name) = &queue {
            feed = Feed::read(aws, name).await?;
        }
        let deployment = format!("{}/{}", operator.namespace(), operator.name());
        let is_stopped = operator.live["spec"]["replicas"] == 0;
        let stopped = || is_stopped.then(|| "it is scaled to 0 replicas".to_owned());
        let lacks = deployment_lacks(Some(&operator.live)).or_else(stopped);
        Ok(Self { deployment, lacks, queue, feed })
    }
}

/// Node Termination Handler as it is, and the nodes that only it looks after.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// Its workloads: there may be one for each operating system.
    pub handlers: Vec<Handler>,
    /// Its queues, by name. One that is gone is not among them, nor is one of another account or
    /// region.
    pub feeds: BTreeMap<String, Feed>,
    /// Nodes that neither Tenon nor EKS drains, by name.
    pub unhandled: BTreeSet<String>,
}

impl Found {
    /// The kinds of events that it handles.
    pub(crate) fn kinds(&self) -> BTreeSet<Kind> {
        let running = self.handlers.iter().filter(|one| !one.is_stopped());
        running.flat_map(|one| self.kinds_of(one)).collect()
    }

    fn kinds_of(&self, handler: &Handler) -> BTreeSet<Kind> {
        match handler.queue() {
            Some(_) => self.feed_of(handler).map(Feed::kinds).unwrap_or_default(),
            None => handler.kinds_of_metadata(),
        }
    }

    /// The queue that one of its workloads reads.
    pub(crate) fn feed_of(&self, handler: &Handler) -> Option<&Feed> {
        self.feeds.get(name_of(handler.queue()?))
    }
}

/// Its workloads, stopped ones as well.
pub(crate) async fn handlers(kube: &Cluster) -> Result<Vec<Handler>, Failure> {
    let (deployments, sets): (Vec<Deployment>, Vec<DaemonSet>) =
        tokio::try_join!(kube.all(), kube.all())?;
    let objects = deployments.iter().map(Object::new).chain(sets.iter().map(Object::new));
    let mut handlers = Vec::new();
    for object in objects {
        if let Some(container) = handler::container_of(&object.body).cloned() {
            handlers.push(Handler::read(kube, object, &container).await?);
        }
    }
    Ok(handlers)
}

/// Everything about it. `with_hooks`: lifecycle hooks are looked for as well, in all Auto Scaling
/// groups of the region.
pub(crate) async fn read(
    aws: &Aws,
    kube: &Cluster,
    handlers: Vec<Handler>,
    scope: &Scope,
    with_hooks: bool,
) -> Result<Found, Failure> {
    let mut feeds = BTreeMap::new();
    let urls = handlers.iter().filter_map(Handler::queue).filter(|url| is_here(url, scope));
    for name in urls.map(name_of).collect::<BTreeSet<_>>() {
        let Some(mut feed) = Feed::read(aws, name).await? else { continue };
        if with_hooks {
            feed.hooks = auto_scaling::hooks_to(aws, feed.arn()).await?;
        }
        feeds.insert(name.to_owned(), feed);
    }
    let unhandled = nodes::unhandled(&nodes(kube).await?);
    Ok(Found { handlers, feeds, unhandled })
}

async fn nodes(kube: &Cluster) -> Result<Vec<Node>, KubeError> {
    kube.all().await
}

/// Name of a queue, by its URL.
fn name_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

/// Whether a queue is of this account and region, by its URL.
pub(crate) fn is_here(url: &str, scope: &Scope) -> bool {
    let mut parts = url.rsplit('/');
    let (_, account, host) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
    // The first hosts of SQS had the region before the service, or none at all.
    let is_first = host == "queue.amazonaws.com" && scope.region == "us-east-1";
    let has_region = host.split('.').any(|label| label == scope.region);
    // An endpoint of one's own says nothing against it.
    let is_own = !host.contains(".amazonaws.com") && !host.ends_with(".api.aws");
    account == Some(scope.account.as_str()) && (is_first || has_region || is_own)
}

#[cfg(test)]
mod tests;
