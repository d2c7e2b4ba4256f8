//! Would AWS launch with this NodeClass? Resolved out with dry runs, so that a missing permission
//! shows on the NodeClass and not on the first pod.
//!
//! A good verdict counts for half an hour, as upstream's. A bad one is in the way of every pod that
//! needs the class, and whoever mends its cause waits for it to go: it is looked into again after
//! seconds, and never later than after a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tenon_crds::ec2nodeclass::AmiFamily;
use tenon_crds::labels::aws;
use tenon_crds::nodepool::NodePool;
use tenon_crds::{EC2NodeClass, EC2NodeClassStatus};
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{CapacityType, Catalog, InstanceType};

use super::status::Verdict;
use crate::aws::backoff::{Backoff, Waits};
use crate::aws::cluster::Cluster;
use crate::aws::ec2::requests::{
    AllocationOptions, CreateFleet, DryRunInstances, DryRunInterface, LaunchTemplateConfig,
    LaunchTemplateSpecification, Override, TargetCapacity,
};
use crate::aws::ec2::{Ec2, send};
use crate::aws::error::{Error, Kind};
use crate::aws::launcher::placement::Placed;
use crate::aws::launcher::template::{self, TemplateScope, tagged};
use crate::aws::launcher::templates::Templates;
use crate::aws::matching::Requirements;
use crate::aws::tags::{self, Tags};
use crate::aws::ttl::TtlMap;
use crate::aws::user_data::UserDataError;

/// How long a good verdict counts.
const TTL: Duration = Duration::from_secs(30 * 60);
/// When a class is looked at again that can't be tried out yet, for want of something that comes by
/// itself and costs no call.
const NOT_YET: Duration = Duration::from_secs(2);

/// Tries out NodeClasses.
#[derive(Debug)]
pub(crate) struct Validator {
    ec2: Ec2,
    region: String,
    dry_runs: bool,
    verdicts: TtlMap<Question, Judgement>,
    failures: Backoff<Question>,
}

/// What a verdict is about: the name of a class, and a fingerprint of all that the verdict depends
/// on.
type Question = (String, String);

/// A verdict, and when to ask for the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// What the dry runs said.
    pub verdict: Verdict,
    /// Whether EC2 does not know the instance profile: what is remembered about it may be wrong.
    pub profile_unknown: bool,
    /// How long to wait before the class is looked at again; `None` when nothing changes by itself
    /// soon.
    pub again: Option<Duration>,
}

/// What a validation looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValidationInput<'a> {
    /// The class with its new status.
    pub class: &'a EC2NodeClass,
    /// What can be launched with it.
    pub catalog: Option<&'a Catalog>,
    /// NodePools that use it.
    pub node_pools: &'a [NodePool],
    /// The placement group that it names.
    pub placement_group: Option<&'a str>,
}

/// How a step of the validation ended without success.
enum Obstacle {
    /// This is the verdict.
    Verdict(Verdict),
    /// A call failed for a reason that passes by itself.
    Later,
    /// EC2 does not know the instance profile, which may not have got around yet.
    ProfileUnknown(Verdict),
    /// Something is not known that the validation needs; nothing was called.
    NotYet,
}

impl From<Verdict> for Judgement {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, profile_unknown: false, again: None }
    }
}

impl Validator {
    /// A validator for a region.
    pub(crate) fn new(ec2: Ec2, region: String, dry_runs: bool) -> Self {
        Self {
            ec2,
            region,
            dry_runs,
            verdicts: TtlMap::new(TTL),
            failures: Backoff::new(Waits::QUESTIONS),
        }
    }

    /// Keeps the verdicts about these classes, and forgets the others.
    pub(crate) fn keep(&self, known: impl Fn(&str) -> bool) {
        self.verdicts.retain(|(name, _)| known(name));
        self.failures.forget(|(name, _)| !known(name));
    }

    /// The verdict about a class.
    pub(crate) async fn validate(
        &self,
        input: ValidationInput<'_>,
        cluster: &Cluster,
        templates: &Templates,
    ) -> Judgement {
        let class = input.class;
        let family = class.spec.resolved_ami_family();
        if family == AmiFamily::Al2023
            && let Some(judgement) = self.without_cidr(class, cluster).await
        {
            return judgement;
        }
        if let Some(verdict) = class.status.as_ref().and_then(super::status::dependencies) {
            return verdict.into();
        }
        let tags = match tags::launch_tags(class, &cluster.facts().name, "") {
            Ok(tags) => tags,
            Err(reserved) => return invalid("TagValidationFailed", reserved.to_string()).into(),
        };
        let question = (key_name(class).to_owned(), fingerprint(class));
        if let Some(known) = self.known(&question) {
            return known;
        }
        if !self.dry_runs {
            return self.remember(question, Verdict::Valid, false);
        }
        match self.dry_runs(input, cluster, templates, &tags).await {
            Ok(()) => self.remember(question, Verdict::Valid, false),
            Err(Obstacle::Verdict(verdict)) => self.remember(question, verdict, false),
            Err(Obstacle::Later) => self.remember(question, Verdict::Failed, false),
            Err(Obstacle::ProfileUnknown(verdict)) => self.remember(question, verdict, true),
            Err(Obstacle::NotYet) => {
                Judgement { again: Some(NOT_YET), ..Judgement::from(Verdict::Failed) }
            }
        }
    }

    /// The verdict about a class whose machines have to be told the range of the cluster's
    /// Services, if that can't be found out.
    async fn without_cidr(&self, class: &EC2NodeClass, cluster: &Cluster) -> Option<Judgement> {
        let question = (key_name(class).to_owned(), "cluster CIDR".to_owned());
        if cluster.facts().service_cidr.is_none()
            && let Some(known) = self.known(&question)
        {
            return Some(known);
        }
        let error = cluster.resolve_service_cidr().await.err()?;
        if error.is_retryable() {
            tracing::warn!(%error, "failed to discover the service CIDR, retrying");
            return Some(self.remember(question, Verdict::Failed, false));
        }
        let message = format!("Failed to detect the cluster CIDR: {error}");
        let verdict = invalid("ClusterCIDRResolutionFailed", message);
        Some(self.remember(question, verdict, false))
    }

    fn known(&self, question: &Question) -> Option<Judgement> {
        let known = self.verdicts.get(question)?;
        Some(Judgement { again: self.failures.wait(question), ..known })
    }

    fn remember(&self, question: Question, verdict: Verdict, profile_unknown: bool) -> Judgement {
        let mut judgement = Judgement { profile_unknown, ..Judgement::from(verdict) };
        if judgement.verdict == Verdict::Valid {
            self.failures.succeeded(&question);
            self.verdicts.insert(question, judgement.clone());
        } else {
            let wait = self.failures.failed(question.clone());
            judgement.again = Some(wait);
            self.verdicts.insert_for(question, judgement.clone(), wait);
        }
        judgement
    }

    async fn dry_runs(
        &self,
        input: ValidationInput<'_>,
        cluster: &Cluster,
        templates: &Templates,
        tags: &Tags,
    ) -> Result<(), Obstacle> {
        let class = input.class;
        let status = class.status.as_ref().ok_or(Obstacle::NotYet)?;
        let catalog = input.catalog.ok_or(Obstacle::NotYet)?;
        let chosen = choose(catalog, status, input.node_pools).ok_or_else(|| {
            tracing::warn!(nodeclass = key_name(class), "no instance type fits the AMIs");
            Obstacle::Later
        })?;
        let facts = cluster.facts();
        let nothing = BTreeMap::new();
        let placed =
            input.placement_group.map(|group| Placed { group: group.to_owned(), partition: None });
        let scope = TemplateScope {
            class,
            cluster: &facts,
            region: &self.region,
            tags,
            labels: &nothing,
            taints: &[],
            startup_taints: &[],
            wants_efa: false,
            wants_enclave: false,
            tenancy: tenancy(input.node_pools),
            capacity_type: CapacityType::OnDemand,
            // What may be launched at all may be launched without a reservation.
            reserved_capacity: true,
            placed: placed.as_ref(),
        };
        let made = template::templates(scope, [chosen]).map_err(|error| match error {
            template::TemplateError::UserData(UserDataError::NoServiceCidr) => Obstacle::NotYet,
            error => Obstacle::Verdict(invalid("UserDataInvalid", error.to_string())),
        })?;
        let template = &made.first().ok_or(Obstacle::NotYet)?.request;
        let name = template.launch_template_name.as_str();
        let made = templates
            .ensure(template)
            .await
            .map_err(|error| obstacle("CreateLaunchTemplateAuthCheckFailed", class, &error))?;
        let tried = async {
            self.create_fleet(status, &chosen.name, name, tags)
                .await
                .map_err(|error| ("CreateFleetAuthCheckFailed", error))?;
            self.run_instances(class, status, &chosen.name, name, tags)
                .await
                .map_err(|error| ("RunInstancesAuthCheckFailed", error))
        };
        tried.await.map_err(|(reason, error)| {
            if error.is_launch_template_not_found() {
                templates.invalidate(name, made);
            }
            obstacle(reason, class, &error)
        })
    }

    async fn create_fleet(
        &self,
        status: &EC2NodeClassStatus,
        instance_type: &str,
        template: &str,
        tags: &Tags,
    ) -> Result<(), Error> {
        let request = fleet_dry_run(status, instance_type, template, tags);
        match send::create_fleet(&self.ec2, &request, None).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == Kind::DryRun => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// One subnet in which it would work is enough; else the first subnet's answer counts.
    async fn run_instances(
        &self,
        class: &EC2NodeClass,
        status: &EC2NodeClassStatus,
        instance_type: &str,
        template: &str,
        tags: &Tags,
    ) -> Result<(), Error> {
        let mut first = None;
        for subnet in &status.subnets {
            let request = instances_dry_run(class, instance_type, template, &subnet.id, tags);
            match send::dry_run_instances(&self.ec2, &request).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(()), Err)
    }
}

fn invalid(reason: &'static str, message: String) -> Verdict {
    Verdict::Invalid { reason, message }
}

fn key_name(class: &EC2NodeClass) -> &str {
    class.metadata.name.as_deref().unwrap_or_default()
}

/// A refusal is a verdict; anything that passes by itself is not.
fn obstacle(reason: &'static str, class: &EC2NodeClass, error: &Error) -> Obstacle {
    let (cause, message) = error.launch_reason();
    // AWS's own words are in the log as a whole: the encoded part of a refusal is another one each
    // time, and not for conditions.
    tracing::info!(nodeclass = key_name(class), %error, "a dry run of the EC2NodeClass failed");
    if error.is_instance_profile_not_found() {
        // Who names a profile may have mistyped it; one that was made here gets around in seconds.
        return Obstacle::ProfileUnknown(match &class.spec.instance_profile {
            Some(name) => invalid(
                "InstanceProfileNotFound",
                format!(
                    "Instance profile {name:?} does not exist: create it or correct spec.instanceProfile"
                ),
            ),
            None => Verdict::Failed,
        });
    }
    let verdict =
        |reason, base: &str| Obstacle::Verdict(invalid(reason, format!("{base}: {message}")));
    match (error.kind, cause) {
        (_, "UserDataSizeLimitExceeded") => {
            verdict("UserDataSizeLimitExceeded", "User data is too large")
        }
        (Kind::Unauthorized, _) => {
            let base = match reason {
                "CreateLaunchTemplateAuthCheckFailed" => {
                    "Controller isn't authorized to call ec2:CreateLaunchTemplate"
                }
                "CreateFleetAuthCheckFailed" => {
                    "Controller isn't authorized to call ec2:CreateFleet"
                }
                _ => "Controller isn't authorized to call ec2:RunInstances",
            };
            verdict(reason, base)
        }
        _ => Obstacle::Later,
    }
}

fn fleet_dry_run(
    status: &EC2NodeClassStatus,
    instance_type: &str,
    template: &str,
    tags: &Tags,
) -> CreateFleet {
    let overrides = status
        .subnets
        .iter()
        .map(|subnet| Override {
            instance_type: instance_type.to_owned(),
            subnet_id: subnet.id.clone(),
            ..Override::default()
        })
        .collect();
    CreateFleet {
        kind: "instant".to_owned(),
        context: None,
        launch_template_configs: vec![LaunchTemplateConfig {
            launch_template_specification: LaunchTemplateSpecification::latest(template),
            overrides,
        }],
        target_capacity_specification: TargetCapacity {
            default_target_capacity_type: "on-demand".to_owned(),
            total_target_capacity: 1,
        },
        spot_options: None,
        on_demand_options: Some(AllocationOptions {
            allocation_strategy: "lowest-price".to_owned(),
        }),
        reserved_capacity_options: None,
        tag_specifications: ["instance", "volume", "fleet"].map(|kind| tagged(kind, tags)).into(),
        dry_run: true,
    }
}

fn instances_dry_run(
    class: &EC2NodeClass,
    instance_type: &str,
    template: &str,
    subnet: &str,
    tags: &Tags,
) -> DryRunInstances {
    let configured = class.spec.network_interfaces.as_deref().unwrap_or_default();
    let mut network_interfaces: Vec<DryRunInterface> = configured
        .iter()
        .map(|interface| DryRunInterface {
            network_card_index: Some(interface.network_card_index),
            device_index: interface.device_index,
            interface_type: Some(interface.interface_type.as_str().to_owned()),
            subnet_id: subnet.to_owned(),
        })
        .collect();
    if network_interfaces.is_empty() {
        network_interfaces
            .push(DryRunInterface { subnet_id: subnet.to_owned(), ..DryRunInterface::default() });
    }
    DryRunInstances {
        launch_template: LaunchTemplateSpecification::latest(template),
        instance_type: instance_type.to_owned(),
        network_interfaces,
        tag_specifications: ["instance", "volume", "network-interface"]
            .map(|kind| tagged(kind, tags))
            .into(),
    }
}

/// A type to try with: the smallest that a NodePool of the class could launch and whose image is an
/// ordinary one; else a common type; else the smallest of all. Whoever restricts what may be
/// launched restricts the large ones.
fn choose<'c>(
    catalog: &'c Catalog,
    status: &EC2NodeClassStatus,
    node_pools: &[NodePool],
) -> Option<&'c InstanceType> {
    let mut usable: Vec<&InstanceType> = catalog
        .instance_types
        .iter()
        .filter(|instance_type| {
            template::ami_for(&status.amis, instance_type).is_some()
                && instance_type.offerings.iter().any(|offering| offering.available)
        })
        .collect();
    usable.sort_by_key(|instance_type| {
        let Resources { cpu, memory, .. } = instance_type.capacity;
        (is_accelerated(instance_type), cpu, memory, &instance_type.name)
    });
    let wanted: Vec<Requirements> = node_pools.iter().map(pool_requirements).collect();
    let of_pool = usable.iter().find(|instance_type| {
        wanted.iter().any(|wanted| {
            wanted.meet_type(instance_type)
                && instance_type
                    .offerings
                    .iter()
                    .any(|offering| offering.available && wanted.meet_offering(offering))
        })
    });
    let common = || {
        let named = |name| usable.iter().find(|instance_type| instance_type.name == name);
        ["m5.large", "m6g.large"].into_iter().find_map(named)
    };
    of_pool.or_else(common).or_else(|| usable.first()).copied()
}

fn is_accelerated(instance_type: &InstanceType) -> bool {
    ["aws.amazon.com/neuron", "nvidia.com/gpu", "amd.com/gpu"]
        .iter()
        .any(|accelerator| instance_type.capacity.get(accelerator) > 0)
}

fn pool_requirements(pool: &NodePool) -> Requirements {
    Requirements::from_api(&pool.spec.template.spec.requirements)
}

fn tenancy(node_pools: &[NodePool]) -> &'static str {
    let dedicated = node_pools.iter().any(|pool| {
        pool.spec
            .template
            .spec
            .requirements
            .iter()
            .any(|requirement| requirement.key == aws::INSTANCE_TENANCY)
            && pool_requirements(pool).allow(aws::INSTANCE_TENANCY, Some("dedicated"))
    });
    if dedicated { "dedicated" } else { "default" }
}

/// Changes with everything that a dry run depends on. The order of subnets is that of their free
/// addresses, which change all the time.
fn fingerprint(class: &EC2NodeClass) -> String {
    let status = class.status.as_ref();
    let content = serde_json::json!({
        "spec": class.spec,
        "annotations": class.metadata.annotations,
        "subnets": status.map(|status| sorted(status.subnets.iter().map(|it| &it.id))),
        "securityGroups":
            status.map(|status| sorted(status.security_groups.iter().map(|it| &it.id))),
        "amis": status.map(|status| &status.amis),
        "instanceProfile": status.map(|status| &status.instance_profile),
    });
    hex::encode(Sha256::digest(content.to_string()))
}

fn sorted<'i>(ids: impl Iterator<Item = &'i String>) -> BTreeSet<&'i str> {
    ids.map(String::as_str).collect()
}

#[cfg(test)]
mod tests;
