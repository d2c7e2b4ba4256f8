//! Reads one [`Observed`] value. Every part is read on its own: a denied call makes one part
//! unknown and leaves the others as they are.

use std::path::PathBuf;

use tenon_installer_core::aws::{Aws, AwsError};
use tenon_installer_core::desired::{self, Desired};
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::observe::facts::{self, Facts};
use tenon_installer_core::observe::state::AgentState;
use tenon_installer_core::plan::Plan;
use tenon_installer_core::settings::config::Host;
use tenon_installer_core::settings::{Defaults, Settings};
use tenon_installer_core::target::Target;
use tenon_installer_core::{clock, names};

use super::observed::{Asked, IdentityView, NameView, Observed, Seen};

mod account;
mod ec2;
mod iam;
mod inside;
mod kubernetes;
mod operator;
mod queue;
mod raw;
mod registry;
mod rivals;
mod unread;
mod volumes;

/// What can be read from.
pub struct Sources<'a> {
    /// What was asked for.
    pub settings: &'a Settings,
    /// AWS.
    pub aws: &'a Aws,
    /// Caller and cluster, or why they can't be read.
    pub facts: Result<&'a Facts, &'a AwsError>,
    /// The cluster, or why it can't be reached.
    pub target: Result<&'a Target, &'a Unreached>,
    /// What should be there, or why that can't be said.
    pub desired: Result<&'a Desired, Vec<String>>,
    /// What is there.
    pub actual: Option<&'a Actual>,
    /// What would be done.
    pub plan: Option<&'a Plan>,
    /// What is in the way of a plan.
    pub conflicts: Vec<String>,
    /// The file in which calls that deleted something of this installation were written down, if it
    /// is known where that would be.
    pub audit: Option<PathBuf>,
    /// Proxies that this program was given: for HTTPS, and what goes past it.
    pub proxies: (Option<String>, Option<String>),
    /// Also look at the operator at work.
    pub installed: bool,
    /// Also ask from inside the cluster, by a Job.
    pub inside: bool,
}

/// Reads everything, side by side.
pub async fn observe(sources: &Sources<'_>) -> Observed {
    let mut seen =
        Observed { now: clock::now().as_second(), asked: asked(sources), ..Observed::default() };
    let (caller, cluster, network, compute, iam, (kubernetes, rbac), operator, key, image) = tokio::join!(
        account::read(sources),
        account::cluster(sources),
        ec2::network(sources),
        ec2::compute(sources),
        iam::read(sources),
        kubernetes::read(sources),
        operator::read(sources),
        queue::key(sources),
        registry::image(sources),
    );
    (seen.caller, seen.cluster, seen.network) = (caller, cluster, network);
    (seen.compute, seen.iam, seen.kubernetes, seen.operator) = (compute, iam, kubernetes, operator);
    seen.caller.rbac = rbac;
    seen.caller.identity = identity(sources).await;
    seen.caller.endpoint = sources.target.map(|target| target.endpoint.clone()).into();
    (seen.caller.https_proxy, seen.caller.no_proxy) = sources.proxies.clone();
    (seen.queue, seen.rules) = queue::read(sources);
    (seen.queue_key, seen.image) = (key, image.into());
    seen.queue_deleted = queue::deleted(sources);
    seen.inside = inside::read(sources).await;
    seen
}

/// Reads what Kubernetes says, for a pod that has no credentials for AWS, and for kOps clusters.
/// What the caller may do is not looked at: it is there to look. Before an installation, also what
/// the registry says of the operator's image.
pub async fn observe_cluster(sources: &Sources<'_>) -> Observed {
    let image = async {
        if sources.installed { Seen::default() } else { registry::image(sources).await.into() }
    };
    let ((kubernetes, _), operator, image) =
        tokio::join!(kubernetes::read(sources), operator::read(sources), image);
    let mut asked = asked(sources);
    asked.unfit = Seen::default();
    // The settings are not known at work, but what runs is.
    let mut deployments = kubernetes.deployments.known().into_iter().flatten();
    let own = operator.deployment.as_ref().and_then(|own| {
        deployments.find(|one| one.namespace == own.namespace && one.name == own.name)
    });
    if let Some(image) = own.and_then(|one| one.images.first()).filter(|_| sources.installed) {
        let name = image.split('@').next().unwrap_or_default();
        let tag = name.rfind(':').filter(|at| !name[*at..].contains('/'));
        name[..tag.unwrap_or(name.len())].clone_into(&mut asked.image);
        asked.image_digest = image.contains('@');
    }
    let now = clock::now().as_second();
    let mut seen = Observed { now, asked, kubernetes, image, operator, ..Observed::default() };
    seen.caller.endpoint = sources.target.map(|target| target.endpoint.clone()).into();
    seen
}

/// Who calls. It was read with the facts, unless another part of them could not be read.
async fn identity(sources: &Sources<'_>) -> Seen<IdentityView> {
    let caller = match &sources.facts {
        Ok(facts) => Ok(facts.caller.clone()),
        Err(_) => facts::read_caller(sources.aws).await,
    };
    caller.map(|caller| IdentityView { account: caller.account, arn: caller.arn }).into()
}

fn asked(sources: &Sources<'_>) -> Asked {
    let settings = sources.settings;
    let values = &settings.values;
    let pair = match &settings.defaults {
        Defaults::Pair(pair) => Some(pair),
        Defaults::None | Defaults::Manifests(_) => None,
    };
    let mut asked = Asked {
        cluster: settings.cluster.clone(),
        region: settings.region.clone(),
        account: settings.account_id.clone(),
        namespace: settings.namespace.clone(),
        service_account: values.service_account_name().into_owned(),
        replicas: values.replicas,
        pod_identity: desired::by_pod_identity(settings),
        fargate: settings.host == Host::Fargate,
        interruption_queue: settings.queue_name.clone().unwrap_or_default(),
        discovery_by_tag: settings.discovery
            == tenon_installer_core::settings::config::Discovery::Tags,
        spot: pair.is_none_or(|pair| {
            pair.capacity_types
                .contains(&tenon_installer_core::settings::config::CapacityType::Spot)
        }),
        architectures: pair.map_or_else(Vec::new, |pair| {
            pair.architectures.iter().map(|arch| format!("{arch:?}").to_lowercase()).collect()
        }),
        cpu_limit: pair.map(|pair| pair.cpu_limit),
        ami_alias: pair.map(|pair| pair.ami_alias.clone()),
        image: values.controller.image.repository.clone(),
        image_digest: !values.controller.image.digest.is_empty(),
        zonal_shift: values.settings.enable_zonal_shift,
        isolated_vpc: values.settings.isolated_vpc,
        manage_operator: settings.manage_operator,
        manage_crds: settings.manage_crds,
        conflicts: sources.conflicts.clone(),
        ..Asked::default()
    };
    match &sources.desired {
        Ok(desired) => {
            let name = |kind: &str, name: &str, limit| NameView {
                kind: kind.to_owned(),
                name: name.to_owned(),
                limit,
            };
            asked.names = [&desired.node_role, &desired.controller_role]
                .map(|role| name("role", &role.name, names::ROLE))
                .into();
            asked
                .names
                .extend(desired.rule_names.iter().map(|rule| name("rule", rule, names::RULE)));
            asked.names.push(name("queue", &desired.queue_name, names::QUEUE));
            asked.unfit = Seen::Known(Vec::new());
        }
        Err(problems) if sources.facts.is_ok() => {
            let (sizes, unfit) =
                problems.iter().cloned().partition(|problem| problem.contains("characters"));
            asked.document_problems = sizes;
            asked.unfit = Seen::Known(unfit);
        }
        Err(problems) => asked.unfit = Seen::Unknown(problems.join("; ")),
    }
    asked
}

/// Status of the agent, as the checks name it.
fn agent(actual: Option<&Actual>, desired: &Result<&Desired, Vec<String>>) -> Seen<Option<String>> {
    let Some(actual) = actual else { return Seen::default() };
    Seen::Known(match &actual.agent {
        AgentState::Addon(status) => Some(status.clone()),
        AgentState::BuiltIn => Some("DaemonSet".to_owned()),
        AgentState::Missing if desired.as_ref().is_ok_and(|desired| desired.installs_agent()) => {
            Some("to be installed".to_owned())
        }
        AgentState::Missing => None,
    })
}

pub use ec2::{subnet_views, vcpu_quotas};
pub use iam::gap_in_words;
pub use rivals::{Rival, RivalKind, rivals};
pub use unread::Unreached;
