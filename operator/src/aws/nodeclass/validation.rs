//! Would AWS launch with this NodeClass? Found out with dry runs, so that a missing permission shows on the NodeClass and not on the first pod.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tenon_crds::ec2nodeclass::AmiFamily;
use tenon_crds::labels::aws;
use tenon_crds::nodepool::NodePool;
use tenon_crds::{EC2NodeClass, EC2NodeClassStatus};
use tenon_planner::snapshot::{CapacityType, Catalog, InstanceType};
use tenon_state::ec2::family::Family as _;

use super::status::Verdict;
use crate::aws::cluster::Cluster;
use crate::aws::ec2::requests::{
    AllocationOptions, CreateFleet, DryRunInstances, DryRunInterface, LaunchTemplateConfig,
    LaunchTemplateSpecification, Override, TargetCapacity,
};
use crate::aws::ec2::send;
use crate::aws::error::{Error, Kind};
use crate::aws::launch::template::{self, TemplateScope, tagged};
use crate::aws::launch::templates::Templates;
use crate::aws::matching::Requirements;
use crate::aws::tags::{self, Tags};
use crate::aws::ttl::TtlMap;
use crate::aws::user_data::UserDataError;

/// How long a verdict counts, a bad one too.
const TTL: Duration = Duration::from_secs(30 * 60);

/// Tries out NodeClasses.
#[derive(Debug)]
pub struct Validator {
    ec2: aws_sdk_ec2::Client,
    region: String,
    dry_runs: bool,
    verdicts: TtlMap<(String, String), Verdict>,
}

/// What a validation looks at.
#[derive(Clone, Copy, Debug)]
pub struct ValidationInput<'a> {
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
    /// Ask again soon; nothing is remembered.
    Later,
}

impl Validator {
    /// A validator for a region.
    pub fn new(ec2: aws_sdk_ec2::Client, region: String, dry_runs: bool) -> Self {
        Self { ec2, region, dry_runs, verdicts: TtlMap::new(TTL) }
    }

    /// Forgets the verdicts about a class.
    pub fn forget(&self, class: &str) {
        for ((name, hash), _) in self.verdicts.entries() {
            if name == class {
                self.verdicts.remove(&(name, hash));
            }
        }
    }

    /// The verdict about a class.
    pub async fn validate(
        &self,
        input: ValidationInput<'_>,
        cluster: &Cluster,
        templates: &Templates,
    ) -> Verdict {
        let class = input.class;
        let family = class.spec.resolved_ami_family();
        if let Some(refusal) = family.refusal() {
            return invalid("UnsupportedAMIFamily", refusal);
        }
        if family == AmiFamily::Al2023
            && let Err(error) = cluster.resolve_service_cidr().await
        {
            if error.is_retryable() {
                tracing::warn!(%error, "failed to discover the service CIDR, trying again");
                return Verdict::Failed;
            }
            return invalid(
                "ClusterCIDRResolutionFailed",
                format!("Failed to detect the cluster CIDR: {error}"),
            );
        }
        if let Some(verdict) = class.status.as_ref().and_then(super::status::dependencies) {
            return verdict;
        }
        let tags = match tags::launch_tags(class, &cluster.facts().name, "") {
            Ok(tags) => tags,
            Err(reserved) => return invalid("TagValidationFailed", reserved.to_string()),
        };
        let key = (class.metadata.name.clone().unwrap_or_default(), fingerprint(class));
        if let Some(verdict) = self.verdicts.get(&key) {
            return verdict;
        }
        let verdict = if self.dry_runs {
            match self.dry_runs(input, cluster, templates, &tags).await {
                Ok(()) => Verdict::Valid,
                Err(Obstacle::Verdict(verdict)) => verdict,
                Err(Obstacle::Later) => return Verdict::Failed,
            }
        } else {
            Verdict::Valid
        };
        self.verdicts.insert(key, verdict.clone());
        verdict
    }

    async fn dry_runs(
        &self,
        input: ValidationInput<'_>,
        cluster: &Cluster,
        templates: &Templates,
        tags: &Tags,
    ) -> Result<(), Obstacle> {
        let class = input.class;
        let status = class.status.as_ref().ok_or(Obstacle::Later)?;
        let catalog = input.catalog.ok_or(Obstacle::Later)?;
        let chosen = choose(catalog, status, input.node_pools).ok_or_else(|| {
            tracing::warn!(nodeclass = key_name(class), "no instance type fits the AMIs");
            Obstacle::Later
        })?;
        let facts = cluster.facts();
        let nothing = BTreeMap::new();
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
            placement_group: input.placement_group,
        };
        let made = template::templates(scope, [chosen]).map_err(|error| match error {
            template::TemplateError::UserData(UserDataError::NoServiceCidr) => Obstacle::Later,
            error => Obstacle::Verdict(invalid("UserDataInvalid", error.to_string())),
        })?;
        let template = &made.first().ok_or(Obstacle::Later)?.request;
        let name = template.launch_template_name.as_str();
        templates
            .ensure(template)
            .await
            .map_err(|error| obstacle("CreateLaunchTemplateAuthCheckFailed", &error))?;
        self.create_fleet(status, &chosen.name, name, tags)
            .await
            .map_err(|error| obstacle("CreateFleetAuthCheckFailed", &error))?;
        self.run_instances(class, status, &chosen.name, name, tags).await
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
    ) -> Result<(), Obstacle> {
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
        match first {
            None => Ok(()),
            Some(error) => Err(obstacle("RunInstancesAuthCheckFailed", &error)),
        }
    }
}

fn invalid(reason: &'static str, message: String) -> Verdict {
    Verdict::Invalid { reason, message }
}

fn key_name(class: &EC2NodeClass) -> &str {
    class.metadata.name.as_deref().unwrap_or_default()
}

/// A refusal is a verdict; anything that passes by itself is not.
fn obstacle(reason: &'static str, error: &Error) -> Obstacle {
    let (cause, message) = error.launch_reason();
    if error.is_instance_profile_not_found() {
        tracing::info!("EC2 does not know the instance profile yet, trying again");
        return Obstacle::Later;
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
        _ => {
            tracing::warn!(%error, "a dry run failed, trying again");
            Obstacle::Later
        }
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

/// A type to try with: one that a NodePool of the class could launch and whose image is an ordinary one; else a common type; else any.
fn choose<'c>(
    catalog: &'c Catalog,
    status: &EC2NodeClassStatus,
    node_pools: &[NodePool],
) -> Option<&'c InstanceType> {
    let usable = |instance_type: &&InstanceType| {
        template::ami_for(&status.amis, instance_type).is_some()
            && instance_type.offerings.iter().any(|offering| offering.available)
    };
    let ordinary = |instance_type: &&InstanceType| {
        ["aws.amazon.com/neuron", "nvidia.com/gpu", "amd.com/gpu"]
            .iter()
            .all(|accelerator| instance_type.capacity.get(accelerator) == 0)
    };
    let wanted: Vec<Requirements> = node_pools.iter().map(pool_requirements).collect();
    let of_pools: Vec<&InstanceType> = catalog
        .instance_types
        .iter()
        .filter(usable)
        .filter(|instance_type| wanted.iter().any(|wanted| wanted.meet_type(instance_type)))
        .collect();
    let common = || {
        ["m5.large", "m6g.large"].iter().find_map(|name| {
            catalog.instance_types.iter().filter(usable).find(|it| it.name == *name)
        })
    };
    of_pools
        .iter()
        .copied()
        .find(|instance_type| ordinary(instance_type))
        .or_else(|| of_pools.first().copied())
        .or_else(common)
        .or_else(|| catalog.instance_types.iter().find(usable))
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

/// Changes with everything that a dry run depends on.
fn fingerprint(class: &EC2NodeClass) -> String {
    let status = class.status.as_ref();
    let content = serde_json::json!({
        "spec": class.spec,
        "annotations": class.metadata.annotations,
        "subnets": status.map(|status| &status.subnets),
        "securityGroups": status.map(|status| &status.security_groups),
        "amis": status.map(|status| &status.amis),
        "instanceProfile": status.map(|status| &status.instance_profile),
    });
    hex::encode(Sha256::digest(content.to_string()))
}

#[cfg(test)]
mod tests;
