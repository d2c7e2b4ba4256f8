//! What Karpenter uses, found by its Deployment and not by names.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;
use tenon_iam_policies::Document;
use tenon_iam_policies::identity::ServiceAccount;
use tenon_installer_core::aws::Aws;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::{Cluster, KubeError};
use tenon_installer_core::kubernetes::correction::{self, Correction};
use tenon_installer_core::kubernetes::git_source::GitSource;
use tenon_installer_core::kubernetes::lease::{self, Place};
use tenon_installer_core::kubernetes::object::{Object, annotation, label};
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::names::ROLE_ANNOTATION;
use tenon_installer_core::observe::state::{AssociationState, QueueState, RoleState, RuleState};
use tenon_installer_core::observe::{eks, granted, iam, messaging};
use tenon_installer_core::ownership::{ADOPTED_BY, INSTALL_ID, REPLICAS};

use super::host_ports;
use crate::options::{Options, Sources};

/// Which tool made Karpenter's roles and queue. Only a name for people: what is adopted does not
/// depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The template of Karpenter's documentation.
    CloudFormation,
    /// `eksctl`.
    Eksctl,
    /// The Terraform module for EKS.
    Terraform,
    /// By hand, or by a tool that leaves no trace.
    Unknown,
}

impl Layout {
    /// By the names and tags that each tool gives.
    pub(crate) fn of(
        cluster: &str,
        role: &str,
        tags: &BTreeMap<String, String>,
        queue: &str,
    ) -> Self {
        let stack = tags.get("aws:cloudformation:stack-name").map_or("", String::as_str);
        let by_eksctl = tags.contains_key("alpha.eksctl.io/cluster-name");
        if by_eksctl || stack.starts_with("eksctl-") || role.starts_with("eksctl-") {
            Self::Eksctl
        } else if !stack.is_empty()
            || role == format!("{cluster}-karpenter")
            || role == format!("KarpenterControllerRole-{cluster}")
        {
            Self::CloudFormation
        } else if role.starts_with("KarpenterController-")
            || queue == format!("Karpenter-{cluster}")
        {
            Self::Terraform
        } else {
            Self::Unknown
        }
    }

    /// For people.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::CloudFormation => "CloudFormation, as in Karpenter's documentation",
            Self::Eksctl => "eksctl",
            Self::Terraform => "Terraform",
            Self::Unknown => "an unknown method",
        }
    }
}

/// Karpenter's Deployment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Operator {
    /// As it is.
    pub live: Object,
    /// What its container is told.
    pub options: Options,
    /// Whose token the pods carry.
    pub service_account: ServiceAccount,
    /// How many replicas it has, or had before it was handed over.
    pub replicas: i64,
    /// The installation that it was handed over to.
    pub adopted_by: Option<String>,
    /// What applies it from git, and what that does when its replicas change.
    pub in_git: Option<(GitSource, Correction)>,
}

impl Operator {
    /// If a Deployment is Karpenter's.
    pub(crate) fn of(live: Value) -> Option<Self> {
        if label(&live, INSTALL_ID).is_some() {
            return None;
        }
        let pod = live.pointer("/spec/template/spec")?;
        let container = container_of(&live)?;
        let options = Options::of(container, &Sources::default());
        let account = pod["serviceAccountName"].as_str().unwrap_or("default").to_owned();
        let namespace = live.pointer("/metadata/namespace")?.as_str()?.to_owned();
        let before = annotation(&live, REPLICAS).and_then(|text| text.parse().ok());
        let replicas = live.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        Some(Self {
            options,
            service_account: ServiceAccount { namespace, name: account },
            replicas: before.unwrap_or(replicas),
            adopted_by: annotation(&live, ADOPTED_BY).map(str::to_owned),
            in_git: GitSource::of(&live).map(|source| (source, Correction::OnChange)),
            live: Object::from_json(live, "deployments"),
        })
    }

    /// Its container in the Deployment.
    pub(crate) fn container(&self) -> &Value {
        container_of(&self.live.body).unwrap_or(&Value::Null)
    }

    /// With what ConfigMaps and Secrets add to what its container is told, and what the tool that
    /// applies it from git would do.
    ///
    /// # Errors
    /// What the caller may not read.
    pub(crate) async fn with_sources(mut self, kube: &Cluster) -> Result<Self, Failure> {
        let namespace = &self.service_account.namespace;
        let sources = Sources::read(kube, namespace, self.container()).await?;
        self.options = Options::of(self.container(), &sources);
        if let Some((source, correction)) = &mut self.in_git {
            *correction = correction::of_replicas(kube, source, &self.live).await?;
        }
        Ok(self)
    }

    /// The Lease that its replicas hold in turn.
    pub(crate) fn lease(&self) -> Place {
        let usual = Place::usual(&self.service_account.namespace);
        let told = |variable: &str| self.options.value(variable).map(str::to_owned);
        Place {
            namespace: told(lease::NAMESPACE_VARIABLE).unwrap_or(usual.namespace),
            name: told(lease::NAME_VARIABLE).unwrap_or(usual.name),
        }
    }

    /// Whether it works without any Lease, so that none says who leads.
    pub(crate) fn is_without_lease(&self) -> bool {
        self.options.value(lease::DISABLED_VARIABLE) == Some("true")
    }

    /// Whether its pods use the network of their nodes, so that their ports are the nodes'.
    pub(crate) fn is_on_host_network(&self) -> bool {
        self.live.body["spec"]["template"]["spec"]["hostNetwork"] == true
    }

    /// Replicas that are asked for now.
    pub(crate) fn replicas_now(&self) -> i64 {
        self.live.body.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
    }
}

/// The container that is Karpenter: others may stand beside it, and before it.
fn container_of(deployment: &Value) -> Option<&Value> {
    let containers = deployment.pointer("/spec/template/spec/containers")?.as_array()?;
    let by_image = |container: &&Value| {
        container["image"].as_str().is_some_and(|image| image.contains("karpenter/controller"))
    };
    let by_variable = |container: &&Value| {
        let mut env = container["env"].as_array().into_iter().flatten();
        env.any(|entry| entry["name"] == "KARPENTER_SERVICE")
    };
    containers.iter().find(by_image).or_else(|| containers.iter().find(by_variable))
}

/// Karpenter and everything that it uses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Karpenter {
    /// Its Deployment.
    pub operator: Operator,
    /// Its role's name, and the role.
    pub role: (String, RoleState),
    /// What the role allows.
    pub granted: BTreeMap<String, Document>,
    /// How the pods get it, if it is by Pod Identity.
    pub association: Option<AssociationState>,
    /// The roles of its nodes by name.
    pub node_roles: BTreeMap<String, RoleState>,
    /// The first of them is let in by an access entry.
    pub has_access_entry: bool,
    /// Name of its queue, and the queue.
    pub queue: Option<(String, QueueState)>,
    /// Rules that feed the queue.
    pub rules: BTreeMap<String, RuleState>,
    /// Ports of nodes that pods use, where Karpenter's pods are on the nodes' network. Tenon's own
    /// are left out.
    pub host_ports: BTreeSet<u16>,
}

impl Karpenter {
    /// Which tool made it.
    pub(crate) fn layout(&self, cluster: &str) -> Layout {
        let queue = self.queue.as_ref().map_or("", |(name, _)| name.as_str());
        Layout::of(cluster, &self.role.0, &self.role.1.tags, queue)
    }
}

/// All Deployments of Karpenter.
pub(crate) async fn operators(cluster: &Cluster) -> Result<Vec<Operator>, KubeError> {
    let all: Vec<Deployment> = cluster.all().await?;
    Ok(all.iter().filter_map(|one| Operator::of(Object::new(one).body)).collect())
}

/// Why there is no Deployment that can be taken over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoOperator {
    /// Karpenter is not there.
    #[error("there is no Karpenter in this cluster: use `tenon install` for a new installation")]
    Missing,
    /// It is not clear which one works.
    #[error("there are several Deployments of Karpenter: {0}; remove the unused ones")]
    Several(String),
}

/// Karpenter's Deployment, or why none can be taken over.
pub(crate) async fn operator(cluster: &Cluster) -> Result<Result<Operator, NoOperator>, Failure> {
    let mut found = operators(cluster).await?;
    Ok(match found.len() {
        1 => Ok(found.remove(0).with_sources(cluster).await?),
        0 => Err(NoOperator::Missing),
        _ => Err(NoOperator::Several(names(&found))),
    })
}

/// Where Deployments are, for people.
pub(crate) fn names(operators: &[Operator]) -> String {
    let names = operators.iter().map(|one| one.live.key().path()).collect::<Vec<_>>();
    names.join(", ")
}

/// Everything that it uses; or what is missing, with what to do about it.
pub(crate) async fn read(
    aws: &Aws,
    kube: &Cluster,
    cluster: &str,
    operator: Operator,
) -> Result<Result<Karpenter, Vec<String>>, Failure> {
    let account = &operator.service_account;
    let association = eks::association(aws, cluster, account).await?;
    let role_arn = match &association {
        Some(association) => Some(association.role_arn.clone()),
        None => annotated_role(kube, account).await?,
    };
    let Some(role_arn) = role_arn else {
        return Ok(Err(vec![format!(
            "the service account {}/{} has neither a Pod Identity association nor the annotation \
             {ROLE_ANNOTATION}, so Karpenter's role can't be determined",
            account.namespace, account.name
        )]));
    };
    let role_name = role_arn.rsplit('/').next().unwrap_or(&role_arn).to_owned();
    let Some(role) = iam::role(aws, &role_name).await? else {
        return Ok(Err(vec![format!("Karpenter's role {role_arn} does not exist")]));
    };
    let granted = granted::documents(aws, &role).await?;
    let node_roles = iam::roles(aws, &node_roles(aws, kube).await?).await?;
    let has_access_entry = match node_roles.values().next() {
        Some(first) => eks::access_entry(aws, cluster, &first.arn).await?.is_some(),
        None => false,
    };
    let name = operator.options.get("INTERRUPTION_QUEUE");
    if let Some(name) = name.filter(|name| name.is_secret()) {
        return Ok(Err(vec![format!(
            "INTERRUPTION_QUEUE is {}, and Tenon would have to record it: move the queue's name to \
             Karpenter's Deployment or a ConfigMap",
            name.shown()
        )]));
    }
    let name = name.map(|name| name.value().to_owned());
    let (mut queue, mut rules) = (None, BTreeMap::new());
    if let Some(name) = name {
        let Some(state) = messaging::queue(aws, &name).await? else {
            return Ok(Err(vec![format!("Karpenter's queue {name} does not exist")]));
        };
        let arn = state.attributes.get("QueueArn").cloned().unwrap_or_default();
        rules = messaging::rules(aws, &messaging::rules_to(aws, &arn).await?).await?;
        queue = Some((name, state));
    }
    let mut host_ports = BTreeSet::new();
    if operator.is_on_host_network() {
        host_ports = host_ports::in_use(kube, account).await?;
    }
    let role = (role_name, role);
    Ok(Ok(Karpenter {
        operator,
        role,
        granted,
        association,
        node_roles,
        has_access_entry,
        queue,
        rules,
        host_ports,
    }))
}

async fn annotated_role(
    kube: &Cluster,
    account: &ServiceAccount,
) -> Result<Option<String>, Failure> {
    use k8s_openapi::api::core::v1::ServiceAccount as Account;
    let mut place = Account::default();
    place.metadata.name = Some(account.name.clone());
    place.metadata.namespace = Some(account.namespace.clone());
    let place = Object::new(&place);
    let live = kube.get(&place.resource, &place.key()).await?;
    Ok(live.as_ref().and_then(|live| annotation(live, ROLE_ANNOTATION)).map(str::to_owned))
}

/// Roles that the EC2NodeClasses name, themselves or by an instance profile.
async fn node_roles(aws: &Aws, kube: &Cluster) -> Result<Vec<String>, Failure> {
    let mut roles = BTreeSet::new();
    for class in kube.list(&resources::node_classes()).await? {
        let spec = &class.data["spec"];
        if let Some(role) = spec["role"].as_str() {
            roles.insert(role.to_owned());
        } else if let Some(profile) = spec["instanceProfile"].as_str()
            && let Some(state) = iam::profile(aws, profile).await?
        {
            roles.extend(state.roles);
        }
    }
    Ok(roles.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(image: &str, env: &[(&str, &str)]) -> Value {
        let env = env.iter().map(|(name, value)| json!({"name": name, "value": value}));
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "karpenter", "namespace": "kube-system"},
            "spec": {"replicas": 2, "template": {"spec": {
                "serviceAccountName": "karpenter",
                "containers": [{"image": image, "env": env.collect::<Value>()}],
            }}},
        })
    }

    #[test]
    fn karpenter_is_known_by_its_image_or_its_environment_and_ours_is_not_it() {
        let by_image = Operator::of(deployment("public.ecr.aws/karpenter/controller:1.14.1", &[]));
        assert_eq!(by_image.expect("Karpenter").replicas, 2);
        let env = [("KARPENTER_SERVICE", "karpenter"), ("INTERRUPTION_QUEUE", "prod")];
        let mut live = deployment("mirror/k:1", &env);
        let by_env = Operator::of(live.clone()).expect("Karpenter");
        assert_eq!(by_env.options.value("INTERRUPTION_QUEUE"), Some("prod"));
        assert_eq!(Operator::of(deployment("nginx:1", &[])), None);
        live["metadata"]["labels"] = json!({(INSTALL_ID): "00000000"});
        assert_eq!(Operator::of(live), None);
    }

    #[test]
    fn what_was_handed_over_remembers_its_replicas() {
        let mut live = deployment("public.ecr.aws/karpenter/controller:1.14.1", &[]);
        live["spec"]["replicas"] = 0.into();
        live["metadata"]["annotations"] = json!({(REPLICAS): "3", (ADOPTED_BY): "00000000"});
        let operator = Operator::of(live).expect("Karpenter");
        assert_eq!((operator.replicas, operator.replicas_now()), (3, 0));
        assert_eq!(operator.adopted_by.as_deref(), Some("00000000"));
    }

    #[test]
    fn layouts_are_told_by_what_each_tool_leaves() {
        let tags = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let of = |role: &str, all: &[(&str, &str)], queue: &str| {
            Layout::of("prod", role, &tags(all), queue)
        };
        assert_eq!(of("prod-karpenter", &[], "prod"), Layout::CloudFormation);
        assert_eq!(of("KarpenterControllerRole-prod", &[], "prod"), Layout::CloudFormation);
        let stack = [("aws:cloudformation:stack-name", "Karpenter-prod")];
        assert_eq!(of("x", &stack, "prod"), Layout::CloudFormation);
        assert_eq!(of("eksctl-prod-iamservice-role", &[], "prod"), Layout::Eksctl);
        assert_eq!(of("x", &[("alpha.eksctl.io/cluster-name", "prod")], "prod"), Layout::Eksctl);
        assert_eq!(of("KarpenterController-2024", &[], "Karpenter-prod"), Layout::Terraform);
        assert_eq!(of("mine", &[], "mine"), Layout::Unknown);
    }
}
