//! What should be there: a pure function of the settings and the facts. No call is made here, and nothing is decided later.

use std::collections::BTreeMap;

use serde_json::json;
use tenon_iam_policies::controller::controller_policies;
use tenon_iam_policies::identity::{self, ServiceAccount};
use tenon_iam_policies::interruption::{self, InterruptionRule};
use tenon_iam_policies::{Document, Features, Scope, size};

use crate::kubernetes::defaults::Account;
use crate::kubernetes::object::Object;
use crate::kubernetes::operator::{self, Release};
use crate::kubernetes::values::Values;
use crate::kubernetes::{crds, defaults};
use crate::names;
use crate::observe::facts::Facts;
use crate::ownership::{DISCOVERY, DISCOVERY_MARK, Installation, Tags};
use crate::settings::Settings;
use crate::settings::config::{Discovery, Event};

/// The name of the EKS add-on that hands role credentials to pods.
pub const AGENT: &str = "eks-pod-identity-agent";

/// Everything that should be there.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// Which installation it is.
    pub installation: Installation,
    /// What the IAM documents are rendered for.
    pub scope: Scope,
    /// The nodes' role.
    pub node_role: RoleUse,
    /// The operator's role.
    pub controller_role: RoleUse,
    /// Install the Pod Identity agent if it is missing.
    pub install_agent: bool,
    /// Who gets the operator's role.
    pub association: Association,
    /// What lets nodes into the cluster.
    pub access_entry: AccessEntry,
    /// The name that a queue of ours has or would have.
    pub queue_name: String,
    /// The queue.
    pub queue: Option<Queue>,
    /// The rules that feed it.
    pub rules: Vec<Rule>,
    /// The names of all rules that could be ours, wanted or not.
    pub rule_names: Vec<String>,
    /// Subnets and security groups that get the discovery tag.
    pub discovery: Vec<String>,
    /// The discovery tag and our mark.
    pub discovery_tags: Tags,
    /// Namespace of the operator.
    pub namespace: Object,
    /// CRDs.
    pub crds: Vec<Object>,
    /// The operator's objects, the Deployment last.
    pub operator: Vec<Object>,
    /// EC2NodeClasses and NodePools.
    pub node_objects: Vec<Object>,
    /// The operator's values, complete.
    pub values: Values,
}

/// A role: somebody else's, or one of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleUse {
    /// Its ARN.
    pub arn: String,
    /// Its name.
    pub name: String,
    /// What it should be like, if it is ours.
    pub spec: Option<Role>,
}

/// A role of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Its path, with slashes at both ends.
    pub path: String,
    /// Who may take it.
    pub trust: Document,
    /// ARNs of attached policies.
    pub attached: Vec<String>,
    /// Inline policies by name.
    pub inline: BTreeMap<String, Document>,
    /// ARN of its boundary.
    pub boundary: Option<String>,
    /// Its tags.
    pub tags: Tags,
}

/// A Pod Identity association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub service_account: String,
    /// The role.
    pub role_arn: String,
    /// Its tags.
    pub tags: Tags,
}

/// An access entry for nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessEntry {
    /// The nodes' role.
    pub principal_arn: String,
    /// `EC2_LINUX`.
    pub kind: &'static str,
    /// Its tags.
    pub tags: Tags,
}

/// The interruption queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Its ARN.
    pub arn: String,
    /// Its attributes but the policy.
    pub attributes: BTreeMap<String, String>,
    /// Who may send.
    pub policy: Document,
    /// Its tags.
    pub tags: Tags,
}

/// A rule that sends events to the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Its ARN.
    pub arn: String,
    /// Which events, as JSON.
    pub pattern: String,
    /// Id of the target.
    pub target_id: String,
    /// The queue's ARN.
    pub target_arn: String,
    /// Its tags.
    pub tags: Tags,
}

impl Desired {
    /// What should be there, or every reason why this cluster is not fit for it.
    pub fn new(settings: &Settings, facts: &Facts) -> Result<Self, Vec<String>> {
        let reasons = unfit(settings, facts);
        if !reasons.is_empty() {
            return Err(reasons);
        }
        let cluster = &facts.cluster;
        let installation = Installation::new(
            &cluster.arn,
            cluster.created_at,
            &settings.cluster,
            settings.tags.clone(),
        );
        let mut scope = Scope {
            partition: cluster.partition,
            region: settings.region.clone(),
            account: facts.caller.account.clone(),
            cluster: settings.cluster.clone(),
            queue: settings.queue_name.clone(),
            node_roles: Vec::new(),
            features: Features {
                zonal_shift: settings.values.settings.enable_zonal_shift,
                ..Features::default()
            },
        };
        let node_role = node_role(settings, facts, &scope, &installation);
        scope.node_roles = vec![node_role.arn.clone()];
        let mut values = settings.values.clone();
        values.settings.cluster_name.clone_from(&settings.cluster);
        values.settings.interruption_queue = settings.queue_name.clone().unwrap_or_default();
        let service_account = ServiceAccount {
            namespace: settings.namespace.clone(),
            name: values.service_account_name().to_owned(),
        };
        let controller_role = controller_role(settings, &scope, &installation, &service_account)
            .map_err(|error| vec![error.to_string()])?;
        let (queue, rules) = interruption(settings, &scope, &installation);
        let release = Release {
            name: "tenon".to_owned(),
            namespace: settings.namespace.clone(),
            managed_by: "tenon".to_owned(),
        };
        let account = Account {
            node_role: node_role.name.clone(),
            cluster: settings.cluster.clone(),
            discovery: settings.discovery,
            subnet_ids: subnets(settings, facts),
            security_group_ids: security_groups(settings, facts),
            tags: settings.tags.clone(),
        };
        let stamped = |mut objects: Vec<Object>| {
            for object in &mut objects {
                object.stamp(&installation.id);
            }
            objects
        };
        let mut namespace = Object::from_json(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": settings.namespace}}),
            "namespaces",
        );
        namespace.stamp(&installation.id);
        Ok(Self {
            install_agent: settings.install_agent,
            association: Association {
                role_arn: controller_role.arn.clone(),
                tags: installation.tags("association", &controller_role.arn),
                namespace: service_account.namespace,
                service_account: service_account.name,
            },
            access_entry: AccessEntry {
                principal_arn: node_role.arn.clone(),
                kind: "EC2_LINUX",
                tags: installation.tags("access-entry", "EC2_LINUX"),
            },
            queue_name: settings
                .queue_name
                .clone()
                .unwrap_or_else(|| names::queue_name(&[&settings.name_prefix, &settings.cluster])),
            queue,
            rules,
            rule_names: Event::ALL
                .into_iter()
                .map(|event| rule_name(settings, event.rule()))
                .collect(),
            discovery: match settings.discovery {
                Discovery::Tags => {
                    account.subnet_ids.iter().chain(&account.security_group_ids).cloned().collect()
                }
                Discovery::Ids => Vec::new(),
            },
            discovery_tags: Tags::from([
                (DISCOVERY.to_owned(), settings.cluster.clone()),
                (DISCOVERY_MARK.to_owned(), installation.id.clone()),
            ]),
            namespace,
            crds: if settings.manage_crds { stamped(crds::objects()) } else { Vec::new() },
            operator: stamped(operator::objects(&values, &release)),
            node_objects: stamped(defaults::objects(&settings.defaults, &account)),
            node_role,
            controller_role,
            scope,
            values,
            installation,
        })
    }

    /// Every Kubernetes object, in the order in which it is applied.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        std::iter::once(&self.namespace)
            .chain(&self.crds)
            .chain(&self.operator)
            .chain(&self.node_objects)
    }

    /// The operator's Deployment.
    pub fn deployment(&self) -> Option<&Object> {
        self.operator.iter().find(|object| object.resource.kind == "Deployment")
    }
}

fn unfit(settings: &Settings, facts: &Facts) -> Vec<String> {
    let cluster = &facts.cluster;
    let mut reasons = Vec::new();
    if let Some(account) =
        settings.account_id.as_ref().filter(|account| **account != facts.caller.account)
    {
        reasons.push(format!("the credentials belong to account {}, and cluster.accountId is {account}: use other credentials", facts.caller.account));
    }
    if cluster.status != "ACTIVE" && cluster.status != "UPDATING" {
        reasons.push(format!("the cluster is {}: wait until it is ACTIVE", cluster.status));
    }
    if cluster.authentication_mode == "CONFIG_MAP" {
        reasons.push(format!(
            "the cluster knows no access entries: run `aws eks update-cluster-config --region {} --name {} --access-config \
             authenticationMode=API_AND_CONFIG_MAP` (this can't be undone)",
            cluster.region, cluster.name
        ));
    }
    if let Some(name) = settings.node_role_name.as_ref().filter(|_| facts.node_role_arn.is_none()) {
        reasons.push(format!(
            "there is no role {name}: correct nodes.roleName, or leave it out to have one made"
        ));
    }
    if subnets(settings, facts).is_empty() {
        reasons.push("the cluster names no subnets: set network.subnetIds".to_owned());
    }
    if security_groups(settings, facts).is_empty() {
        reasons.push(
            "the cluster has no security group of its own: set network.securityGroupIds".to_owned(),
        );
    }
    reasons
}

fn subnets(settings: &Settings, facts: &Facts) -> Vec<String> {
    if settings.subnet_ids.is_empty() {
        facts.cluster.subnet_ids.clone()
    } else {
        settings.subnet_ids.clone()
    }
}

fn security_groups(settings: &Settings, facts: &Facts) -> Vec<String> {
    if settings.security_group_ids.is_empty() {
        facts.cluster.security_group.clone().into_iter().collect()
    } else {
        settings.security_group_ids.clone()
    }
}

fn node_role(
    settings: &Settings,
    facts: &Facts,
    scope: &Scope,
    installation: &Installation,
) -> RoleUse {
    if let (Some(name), Some(arn)) = (&settings.node_role_name, &facts.node_role_arn) {
        return RoleUse { arn: arn.clone(), name: name.clone(), spec: None };
    }
    let mut attached = identity::node_managed_policies(scope.partition);
    let mut inline = BTreeMap::new();
    if facts.cluster.ipv6 {
        attached.retain(|arn| !arn.ends_with("/AmazonEKS_CNI_Policy"));
        inline.insert("TenonIPv6CNI".to_owned(), identity::node_ipv6_cni(scope.partition));
    }
    attached.extend(settings.node_extra_policies.iter().cloned());
    role(
        settings,
        scope,
        installation,
        "node",
        identity::node_trust(scope.partition),
        attached,
        inline,
    )
}

fn controller_role(
    settings: &Settings,
    scope: &Scope,
    installation: &Installation,
    service_account: &ServiceAccount,
) -> Result<RoleUse, size::SizeError> {
    if let Some(arn) = &settings.controller_role_arn {
        let name = arn.rsplit('/').next().unwrap_or(arn).to_owned();
        return Ok(RoleUse { arn: arn.clone(), name, spec: None });
    }
    let policies = controller_policies(scope);
    size::check_inline(&policies)?;
    let trust = identity::pod_identity_trust(scope, service_account);
    size::check_trust(&trust)?;
    let inline = policies
        .into_iter()
        .map(|policy| (policy.part.name().to_owned(), policy.document))
        .collect();
    Ok(role(settings, scope, installation, "controller", trust, Vec::new(), inline))
}

fn role(
    settings: &Settings,
    scope: &Scope,
    installation: &Installation,
    suffix: &str,
    trust: Document,
    attached: Vec<String>,
    inline: BTreeMap<String, Document>,
) -> RoleUse {
    let name = names::name(&[&settings.name_prefix, &settings.cluster, suffix], names::ROLE);
    let spec = format!(
        "{trust}{attached:?}{}",
        inline.values().map(Document::to_json).collect::<String>()
    );
    let mut tags = installation.tags(&format!("{suffix}-role"), &spec);
    tags.insert(scope.cluster_tag(), "owned".to_owned());
    RoleUse {
        arn: scope.role_arn(&settings.role_path, &name),
        name: name.clone(),
        spec: Some(Role {
            name,
            path: settings.role_path.clone(),
            trust,
            attached,
            inline,
            boundary: settings.permissions_boundary.clone(),
            tags,
        }),
    }
}

fn rule_name(settings: &Settings, rule: InterruptionRule) -> String {
    names::name(&[&settings.name_prefix, &settings.cluster, rule.suffix()], names::RULE)
}

fn interruption(
    settings: &Settings,
    scope: &Scope,
    installation: &Installation,
) -> (Option<Queue>, Vec<Rule>) {
    let (Some(name), Some(arn)) = (&settings.queue_name, scope.queue_arn()) else {
        return (None, Vec::new());
    };
    let rules = settings
        .events
        .iter()
        .map(|event| {
            let rule = event.rule();
            let name = rule_name(settings, rule);
            let pattern = rule.pattern().to_json();
            Rule {
                arn: scope.rule_arn(&name),
                tags: installation.tags(&format!("rule-{}", rule.suffix()), &pattern),
                name,
                pattern,
                target_id: interruption::TARGET_ID.to_owned(),
                target_arn: arn.clone(),
            }
        })
        .collect::<Vec<_>>();
    let names = rules.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>();
    let Some(policy) = interruption::queue_policy(scope, &names) else { return (None, Vec::new()) };
    let attributes = BTreeMap::from([
        ("MessageRetentionPeriod".to_owned(), interruption::MESSAGE_RETENTION_SECONDS.to_string()),
        ("SqsManagedSseEnabled".to_owned(), "true".to_owned()),
    ]);
    let tags = installation.tags("queue", &format!("{attributes:?}{policy}"));
    (Some(Queue { name: name.clone(), arn, attributes, policy, tags }), rules)
}
