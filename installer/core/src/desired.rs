//! What should be there: a pure function of the settings and the facts. No call is made here, and
//! nothing is decided later.

mod fit;
mod interruption;
mod lookup;
mod roles;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::json;
pub use tenon_iam_policies::identity::ServiceAccount;
use tenon_iam_policies::identity::{IRSA_AUDIENCE, irsa_trust, pod_identity_trust};
use tenon_iam_policies::{Document, Features, InstanceProfiles, Scope};

use crate::kubernetes::aws_auth::Mapping;
use crate::kubernetes::defaults::{Account, NodeIdentity};
use crate::kubernetes::object::Object;
use crate::kubernetes::operator;
use crate::kubernetes::release::Release;
use crate::kubernetes::revision::Content;
use crate::kubernetes::{canary, crds, defaults, helm};
use crate::names::{self, ROLE_ANNOTATION};
use crate::observe::facts::Facts;
use crate::ownership::{DISCOVERY, DISCOVERY_MARK, Installation, Tags};
use crate::settings::Settings;
use crate::settings::config::{Discovery, Event, Host, ProfileMode};
use crate::settings::values::Values;
pub use fit::by_pod_identity;
use fit::{Mechanism, security_groups, subnets};
pub use interruption::{queue_and_rules, rule_name};

/// Names of the roles that an installation makes unless it is given others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRoles {
    /// Of the nodes.
    pub node: String,
    /// Of the operator.
    pub controller: String,
}

impl OwnRoles {
    /// All of them.
    pub fn names(&self) -> [&String; 2] {
        [&self.node, &self.controller]
    }
}

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
    /// What roles are called that are ours, whether or not the settings ask for them.
    pub own_roles: OwnRoles,
    /// The operator's service account: who gets its role.
    pub service_account: ServiceAccount,
    /// How it gets it.
    pub identity: Identity,
    /// ARN that the cluster's identity provider has or would have.
    pub provider_arn: Option<String>,
    /// What lets nodes into the cluster.
    pub authorization: NodeAuthorization,
    /// The name that an instance profile of ours has or would have.
    pub profile_name: String,
    /// The nodes' instance profile, if the operator is not to make them.
    pub profile: Option<Profile>,
    /// EC2 Spot needs its service-linked role.
    pub spot_role: bool,
    /// The role of Fargate's pods, if the operator runs there.
    pub fargate_role: RoleUse,
    /// The name that a Fargate profile of ours has or would have.
    pub fargate_name: String,
    /// What makes the operator run on Fargate.
    pub fargate: Option<FargateProfile>,
    /// The name that a queue of ours has or would have.
    pub queue_name: String,
    /// The interruption queue; `None` if interruption handling is off.
    pub queue: Option<Queue>,
    /// The rules that feed it.
    pub rules: Vec<Rule>,
    /// The names of all rules that could be ours, wanted or not.
    pub rule_names: Vec<String>,
    /// Subnets and security groups that get the discovery tag.
    pub discovery: Vec<String>,
    /// The discovery tag and our mark.
    pub discovery_tags: Tags,
    /// Whether the installer writes what follows; otherwise another tool does.
    pub manage_operator: bool,
    /// Namespace of the operator.
    pub namespace: Object,
    /// CRDs.
    pub crds: Vec<Object>,
    /// The operator's objects, the Deployment last.
    pub operator: Vec<Object>,
    /// The record by which Helm knows the operator's objects for a release.
    pub helm: Option<helm::Record>,
    /// EC2NodeClasses and NodePools.
    pub node_objects: Vec<Object>,
    /// The operator's values, complete.
    pub values: Values,
}

/// A role: somebody else's, or one of ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoleUse {
    /// Its ARN.
    pub arn: String,
    /// Name in IAM, unique in the account.
    pub name: String,
    /// What it should be like, if it is ours.
    pub spec: Option<Role>,
}

/// A role of ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Role {
    /// Name in IAM, unique in the account.
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
    /// Tags, the mark of the installation among them.
    pub tags: Tags,
}

/// How the operator's service account gets its role.
#[derive(Debug, Clone, PartialEq)]
pub enum Identity {
    /// By EKS Pod Identity.
    PodIdentity {
        /// Names the role.
        association: Association,
        /// Install the Pod Identity agent if it is missing.
        install_agent: bool,
    },
    /// By IRSA: an annotation of the service account names the role.
    Irsa {
        /// IAM must know the cluster's issuer.
        provider: Provider,
    },
}

/// What lets nodes into the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeAuthorization {
    /// An access entry of EKS.
    AccessEntry(AccessEntry),
    /// An element of the ConfigMap `aws-auth`.
    AwsAuth(Mapping),
}

impl Desired {
    /// The Pod Identity association, if there is to be one.
    pub fn association(&self) -> Option<&Association> {
        match &self.identity {
            Identity::PodIdentity { association, .. } => Some(association),
            Identity::Irsa { .. } => None,
        }
    }

    /// Whether the Pod Identity agent is installed if it is missing.
    pub fn installs_agent(&self) -> bool {
        matches!(self.identity, Identity::PodIdentity { install_agent: true, .. })
    }

    /// The identity provider, if IRSA needs one.
    pub fn provider(&self) -> Option<&Provider> {
        match &self.identity {
            Identity::Irsa { provider } => Some(provider),
            Identity::PodIdentity { .. } => None,
        }
    }

    /// The access entry, if it lets nodes in.
    pub fn access_entry(&self) -> Option<&AccessEntry> {
        match &self.authorization {
            NodeAuthorization::AccessEntry(entry) => Some(entry),
            NodeAuthorization::AwsAuth(_) => None,
        }
    }

    /// The element of `aws-auth`, if that lets nodes in.
    pub fn aws_auth(&self) -> Option<&Mapping> {
        match &self.authorization {
            NodeAuthorization::AwsAuth(mapping) => Some(mapping),
            NodeAuthorization::AccessEntry(_) => None,
        }
    }
}

/// A Pod Identity association.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Association {
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub service_account: String,
    /// The role.
    pub role_arn: String,
    /// Tags, the mark of the installation among them.
    pub tags: Tags,
}

/// The identity provider of IAM for the cluster's issuer. Other service accounts use it, too: made
/// when it is missing, and shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provider {
    /// Its ARN.
    pub arn: String,
    /// The issuer's URL.
    pub url: String,
    /// The audience of the tokens.
    pub audience: String,
    /// Tags, the mark of the installation among them.
    pub tags: Tags,
}

/// An instance profile for all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// Name in IAM, unique in the account.
    pub name: String,
    /// Its ARN.
    pub arn: String,
    /// Its path, with slashes at both ends.
    pub path: String,
    /// Name of the one role in it.
    pub role: String,
    /// ARN of that role.
    pub role_arn: String,
    /// Tags, the mark of the installation among them.
    pub tags: Tags,
}

/// What makes pods run on Fargate. Nothing of it can be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FargateProfile {
    /// Name in the cluster.
    pub name: String,
    /// The role of its pods.
    pub role_arn: String,
    /// Its subnets, which have to be private.
    pub subnet_ids: Vec<String>,
    /// Namespace of its pods.
    pub namespace: String,
    /// Labels of its pods.
    pub labels: BTreeMap<String, String>,
    /// Tags, the mark of the installation among them.
    pub tags: Tags,
}

/// An access entry for nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccessEntry {
    /// The nodes' role.
    pub principal_arn: String,
    /// `EC2_LINUX`, or `EC2_WINDOWS`, which authorizes nodes of both.
    pub kind: &'static str,
    /// Tags, the mark of the installation among them.
    pub tags: Tags,
}

/// The interruption queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Queue {
    /// Name in SQS, unique in account and region.
    pub name: String,
    /// Its ARN.
    pub arn: String,
    /// Its attributes but the policy.
    pub attributes: BTreeMap<String, String>,
    /// Who may send.
    pub policy: Document,
    /// Tags, the mark of the installation among them.
    pub tags: Tags,
}

impl Queue {
    /// The KMS key that encrypts it, and for how many seconds one data key is used; `None` where
    /// SQS has a key of its own.
    pub fn key(&self) -> Option<(&str, u32)> {
        let key = self.attributes.get("KmsMasterKeyId").filter(|key| !key.is_empty())?;
        let reuse = self.attributes.get("KmsDataKeyReusePeriodSeconds")?.parse().ok()?;
        Some((key, reuse))
    }
}

/// A rule that sends events to the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Name in EventBridge, unique in account and region.
    pub name: String,
    /// Its ARN.
    pub arn: String,
    /// Which events, as JSON.
    pub pattern: String,
    /// Id of the target.
    pub target_id: String,
    /// The queue's ARN.
    pub target_arn: String,
    /// Tags, the mark of the installation among them.
    pub tags: Tags,
}

impl Desired {
    /// What should be there, or every reason why this cluster is not fit for it.
    pub fn new(settings: &Settings, facts: &Facts) -> Result<Self, Vec<String>> {
        let reasons = fit::unfit(settings, facts);
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
        let mut scope = scope(settings, facts);
        let node_role = roles::node_role(settings, facts, &scope, &installation);
        scope.node_roles = vec![node_role.arn.clone()];
        let profile_name =
            names::name(&[&settings.name_prefix, &settings.cluster, "node"], names::PROFILE);
        let profile = (settings.instance_profile == ProfileMode::Static)
            .then(|| profile(settings, &scope, &installation, &profile_name, &node_role));
        let mut values = settings.values.clone();
        values.settings.cluster_name.clone_from(&settings.cluster);
        values.settings.interruption_queue = settings.queue_name.clone().unwrap_or_default();
        values.settings.static_instance_profiles |= profile.is_some();
        let service_account = ServiceAccount {
            namespace: settings.namespace.clone(),
            name: values.service_account_name().into_owned(),
        };
        let issuer = cluster.oidc_issuer.as_deref().unwrap_or_default();
        let mechanism = fit::mechanism(settings);
        let trust = match mechanism {
            Mechanism::PodIdentity => pod_identity_trust(&scope, &service_account),
            Mechanism::Irsa => irsa_trust(&scope, issuer, &service_account),
        };
        let controller_role = roles::controller_role(settings, &scope, &installation, trust)
            .map_err(|error| vec![error.to_string()])?;
        let identity = match mechanism {
            Mechanism::PodIdentity => Identity::PodIdentity {
                association: Association {
                    role_arn: controller_role.arn.clone(),
                    tags: installation.tags("association", &controller_role.arn),
                    namespace: service_account.namespace.clone(),
                    service_account: service_account.name.clone(),
                },
                install_agent: settings.install_agent,
            },
            Mechanism::Irsa => {
                let annotations = &mut values.service_account.annotations;
                annotations.insert(ROLE_ANNOTATION.to_owned(), controller_role.arn.clone());
                Identity::Irsa { provider: provider(&scope, &installation, issuer) }
            }
        };
        let authorization = if fit::by_aws_auth(settings, facts) {
            let mapping = Mapping::of_nodes(&node_role.arn);
            NodeAuthorization::AwsAuth(if settings.windows_nodes {
                mapping.including_windows()
            } else {
                mapping
            })
        } else {
            let kind = if settings.windows_nodes { "EC2_WINDOWS" } else { "EC2_LINUX" };
            NodeAuthorization::AccessEntry(AccessEntry {
                principal_arn: node_role.arn.clone(),
                kind,
                tags: installation.tags("access-entry", kind),
            })
        };
        let fargate_role = roles::fargate_role(settings, &scope, &installation);
        let fargate_name =
            names::name(&[&settings.name_prefix, &settings.cluster], names::FARGATE_PROFILE);
        let fargate = (settings.host == Host::Fargate).then(|| FargateProfile {
            name: fargate_name.clone(),
            role_arn: fargate_role.arn.clone(),
            subnet_ids: subnets(settings, facts),
            namespace: settings.namespace.clone(),
            labels: [("app.kubernetes.io/name".to_owned(), values.app_name().to_owned())].into(),
            tags: installation.tags("fargate-profile", &fargate_role.arn),
        });
        let (queue, rules) = interruption::interruption(settings, &scope, &installation);
        let release = Release {
            name: "tenon".to_owned(),
            namespace: settings.namespace.clone(),
            managed_by: if settings.helm_record { helm::MANAGED_BY } else { "tenon" }.to_owned(),
        };
        let mut operator = operator::objects(&values, &release);
        let helm = settings.helm_record.then(|| {
            let policies = controller_role.spec.as_ref().map(|role| role.inline.clone());
            let content =
                Content::new(&settings.config, policies.unwrap_or_default(), crds::known());
            let (namespace, id) = (&settings.namespace, &installation.id);
            helm::Record::new(&values, &operator, namespace, id, &content)
        });
        if helm.is_some() {
            for object in &mut operator {
                object.annotate(helm::ownership(&settings.namespace));
            }
        }
        let account = Account {
            nodes: match &profile {
                Some(profile) => NodeIdentity::Profile(profile.name.clone()),
                None => NodeIdentity::Role(node_role.name.clone()),
            },
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
            provider_arn: cluster.oidc_issuer.as_ref().map(|url| scope.oidc_provider_arn(url)),
            identity,
            own_roles: OwnRoles {
                node: roles::own(settings, &scope, "node").1,
                controller: roles::own(settings, &scope, "controller").1,
            },
            service_account,
            authorization,
            profile_name,
            profile,
            spot_role: settings.spot_role && settings.defaults.may_use_spot(),
            fargate_role,
            fargate_name,
            fargate,
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
            manage_operator: settings.manage_operator,
            namespace,
            crds: if settings.manage_crds { stamped(crds::objects()) } else { Vec::new() },
            operator: stamped(operator),
            helm,
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

    /// Which of these objects nobody asks for. The canary has steps of its own.
    pub fn surplus<'o>(&self, objects: &'o [Object]) -> impl Iterator<Item = &'o Object> {
        let canary = self.canary();
        let wanted = self.objects().chain(&canary).map(Object::key).collect::<BTreeSet<_>>();
        objects.iter().filter(move |object| !wanted.contains(&object.key()))
    }

    /// The canary of the operator's Deployment, with our marks. It is there only while the
    /// operator's version changes.
    pub fn canary(&self) -> Option<Object> {
        let mut canary = canary::of(self.deployment()?);
        canary.stamp(&self.installation.id);
        Some(canary)
    }

    /// The operator's Deployment.
    pub fn deployment(&self) -> Option<&Object> {
        self.operator.iter().find(|object| object.is_deployment())
    }
}

fn scope(settings: &Settings, facts: &Facts) -> Scope {
    Scope {
        partition: facts.cluster.partition,
        region: settings.region.clone(),
        account: facts.caller.account.clone(),
        cluster: settings.cluster.clone(),
        queue: settings.queue_name.clone(),
        node_roles: Vec::new(),
        features: Features {
            instance_profiles: match settings.instance_profile {
                ProfileMode::Static => InstanceProfiles::Static,
                ProfileMode::Dynamic => InstanceProfiles::OfCluster,
            },
            zonal_shift: settings.values.settings.enable_zonal_shift,
            queue_key: settings.queue_key.clone().filter(|_| settings.queue_name.is_some()),
            ..Features::default()
        },
    }
}

fn profile(
    settings: &Settings,
    scope: &Scope,
    installation: &Installation,
    name: &str,
    role: &RoleUse,
) -> Profile {
    let mut tags = installation.tags("instance-profile", &role.arn);
    tags.insert(scope.cluster_tag(), "owned".to_owned());
    Profile {
        name: name.to_owned(),
        arn: scope.instance_profile_arn(&settings.role_path, name),
        path: settings.role_path.clone(),
        role: role.name.clone(),
        role_arn: role.arn.clone(),
        tags,
    }
}

fn provider(scope: &Scope, installation: &Installation, issuer: &str) -> Provider {
    Provider {
        arn: scope.oidc_provider_arn(issuer),
        url: issuer.to_owned(),
        audience: IRSA_AUDIENCE.to_owned(),
        tags: installation.tags("oidc-provider", issuer),
    }
}
