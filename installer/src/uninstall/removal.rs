//! One thing that an uninstall removes, as a value: what it is, and how it goes.

use kube::api::PropagationPolicy;
use tenon_installer_core::apply::{Context, aws_auth, ec2, eks, iam, messaging, release};
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::ownership::Tags;

use super::objects::delete_and_wait;
use super::{Inventory, Nodes};

/// One thing to remove. Removing it twice does no harm.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Removal {
    /// A Kubernetes object.
    Object(Object),
    /// All revisions of the Helm release.
    Release {
        namespace: String,
        /// Names of the Secrets.
        secrets: Vec<String>,
    },
    /// A launch template, by id.
    LaunchTemplate(String),
    /// An instance profile, by name.
    InstanceProfile(String),
    /// A Pod Identity association, by id.
    Association(String),
    /// A Fargate profile, by name.
    Fargate(String),
    /// Our element of `aws-auth`, by the role that it lets in.
    AwsAuth(String),
    /// An access entry, by its principal.
    AccessEntry(String),
    Rule {
        name: String,
        /// Ids of its targets.
        targets: Vec<String>,
    },
    /// The tags by which NodeClasses find a subnet or security group.
    DiscoveryTag {
        id: String,
        /// The tags, key and value.
        tags: Tags,
    },
    /// An identity provider, by ARN.
    Provider(String),
    Queue {
        name: String,
        /// How it is called.
        url: String,
    },
    /// A role, by name.
    Role(String),
}

impl Removal {
    /// The id of its step, for the record.
    pub(super) fn id(&self) -> String {
        match self {
            Self::Object(object) => format!("{}/{}", object.resource.kind, object.name),
            Self::Release { .. } => "helm-release".to_owned(),
            Self::LaunchTemplate(id) => format!("launch-template/{id}"),
            Self::InstanceProfile(name) => format!("instance-profile/{name}"),
            Self::Association(_) => "association".to_owned(),
            Self::Fargate(_) => "fargate".to_owned(),
            Self::AwsAuth(_) => "aws-auth".to_owned(),
            Self::AccessEntry(arn) => format!("access-entry/{arn}"),
            Self::Rule { name, .. } => format!("rule/{name}"),
            Self::DiscoveryTag { id, .. } => format!("discovery/{id}"),
            Self::Provider(_) => "oidc-provider".to_owned(),
            Self::Queue { .. } => "queue".to_owned(),
            Self::Role(name) => format!("role/{name}"),
        }
    }

    /// What it is, for people.
    pub(super) fn what(&self) -> String {
        match self {
            Self::Object(object) => object.key().to_string(),
            Self::Release { .. } => "Helm release".to_owned(),
            Self::LaunchTemplate(id) => format!("launch template {id}"),
            Self::InstanceProfile(name) => format!("instance profile {name}"),
            Self::Association(_) => "Pod Identity association".to_owned(),
            Self::Fargate(name) => format!("Fargate profile {name}"),
            Self::AwsAuth(role) => format!("{role} in aws-auth"),
            Self::AccessEntry(_) => "EKS access entry".to_owned(),
            Self::Rule { name, .. } => format!("EventBridge rule {name}"),
            Self::DiscoveryTag { id, .. } => format!("discovery tag of {id}"),
            Self::Provider(_) => "identity provider".to_owned(),
            Self::Queue { name, .. } => format!("SQS queue {name}"),
            Self::Role(name) => format!("IAM role {name}"),
        }
    }

    /// Removes it, and waits until it is gone.
    pub(super) async fn perform(
        &self,
        context: &Context,
        timeout: std::time::Duration,
    ) -> Result<(), Failure> {
        let aws = &context.aws;
        match self {
            Self::Object(object) => {
                // A Deployment is gone when its pods are: nobody is left then who needs the rest.
                let propagation = if object.is_deployment() {
                    PropagationPolicy::Foreground
                } else {
                    PropagationPolicy::Background
                };
                delete_and_wait(context, object, propagation, timeout).await
            }
            Self::Release { namespace, secrets } => {
                release::delete(context, namespace, secrets).await
            }
            Self::LaunchTemplate(id) => ec2::delete_launch_template(aws, id).await,
            Self::InstanceProfile(name) => iam::delete_instance_profile(aws, name).await,
            Self::Association(id) => eks::delete_association(context, id).await,
            Self::Fargate(name) => eks::delete_fargate(context, name).await,
            Self::AwsAuth(_) => aws_auth::unmap(context).await,
            Self::AccessEntry(arn) => eks::delete_access_entry(context, arn).await,
            Self::Rule { name, targets } => messaging::delete_rule(aws, name, targets).await,
            Self::DiscoveryTag { id, tags } => ec2::untag(context, id, tags).await,
            Self::Provider(arn) => iam::delete_provider(context, arn).await,
            Self::Queue { name, url } => messaging::delete_queue(aws, url, name).await,
            Self::Role(name) => iam::delete_role(aws, &context.install_id, name).await,
        }
    }
}

impl Inventory {
    /// The operator's Deployments.
    pub(crate) fn deployments(&self) -> Vec<Removal> {
        let deployments = self.operator.iter().filter(|object| object.is_deployment());
        deployments.cloned().map(Removal::Object).collect()
    }

    /// What the operator lived on and nothing else needs: in any order, once its pods are gone.
    /// CRDs and what the operator made in AWS are not in it.
    pub(crate) fn free(&self) -> Vec<Removal> {
        let others = self.operator.iter().filter(|object| !object.is_deployment());
        let objects = others.chain(&self.leases).cloned().map(Removal::Object);
        let mut all = objects.collect::<Vec<_>>();
        if !self.releases.is_empty() {
            let (namespace, secrets) = (self.release_namespace.clone(), self.releases.clone());
            all.push(Removal::Release { namespace, secrets });
        }
        all.extend(self.association.iter().cloned().map(Removal::Association));
        all.extend(self.fargate.iter().cloned().map(Removal::Fargate));
        all.extend(self.aws_auth.iter().cloned().map(Removal::AwsAuth));
        all.extend(self.access_entries.iter().cloned().map(Removal::AccessEntry));
        all.extend(
            self.rules.iter().map(|(name, targets)| Removal::Rule {
                name: name.clone(),
                targets: targets.clone(),
            }),
        );
        all.extend(
            self.marked.iter().map(|id| Removal::DiscoveryTag {
                id: id.clone(),
                tags: self.discovery_tags.clone(),
            }),
        );
        all.extend(self.profile.iter().cloned().map(Removal::InstanceProfile));
        all.extend(self.provider.iter().cloned().map(Removal::Provider));
        all
    }

    /// What others hold on to: the queue after the rules that send to it, roles after what holds
    /// them.
    pub(crate) fn last(&self) -> Vec<Removal> {
        let queue = self
            .queue
            .iter()
            .map(|(name, url)| Removal::Queue { name: name.clone(), url: url.clone() });
        queue.chain(self.roles.iter().cloned().map(Removal::Role)).collect()
    }
}

impl Nodes {
    /// What the operator made in AWS for its nodes.
    pub(crate) fn made_by_operator(&self) -> Vec<Removal> {
        let templates = self.launch_templates.iter().cloned().map(Removal::LaunchTemplate);
        let profiles = self.instance_profiles.iter().cloned().map(Removal::InstanceProfile);
        templates.chain(profiles).collect()
    }
}
