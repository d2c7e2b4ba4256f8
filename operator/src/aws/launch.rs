//! Launching: from a NodeClaim to a CreateFleet call, and from its answer to what the claim is told.
//!
//! The order is that of the contract: filters, capacity type, subnets, launch templates, fleet. What EC2 could not deliver is remembered, so that the
//! planner, which is asked again at once, plans with what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_ec2::Client;
use sha2::{Digest as _, Sha256};
use tenon_crds::labels::{self, aws};
use tenon_crds::{EC2NodeClass, NodeClaim};
use tenon_planner::snapshot::{CapacityType, Catalog, InstanceType};

use self::filters::{Candidate, Wanted};
use self::fleet::FleetScope;
use self::subnets::{Chosen, FreeAddresses};
use self::template::{Template, TemplateError, TemplateScope};
use self::templates::Templates;
use super::batcher::{Batcher, Window};
use super::catalog::unavailable::Unavailable;
use super::ec2::requests::CreateFleet;
use super::ec2::send::{self, FleetAnswer, FleetError, FleetInstance};
use super::error::{Error, launch_reason};
use super::matching::Requirements;
use super::metrics::AwsMetrics;
use super::resources;
use super::tags::{self, Tags};
use super::ttl::TtlMap;
use super::user_data::ClusterFacts;
use crate::cloud_provider::CloudError;

pub mod filters;
pub mod fleet;
pub mod subnets;
pub mod template;
pub mod templates;

const WINDOW: Window =
    Window { idle: Duration::from_millis(35), max: Duration::from_secs(1), max_items: 1000 };

/// What a claim is launched with; all of it read at one moment.
#[derive(Clone, Debug)]
pub struct LaunchInput<'a> {
    /// The claim.
    pub claim: &'a NodeClaim,
    /// Its NodeClass, ready.
    pub class: &'a EC2NodeClass,
    /// What can be launched with the class.
    pub catalog: &'a Catalog,
    /// The cluster.
    pub cluster: &'a ClusterFacts,
    /// The placement group of the class.
    pub placement_group: Option<&'a str>,
}

/// A machine that was launched.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchedInstance {
    /// What EC2 answered.
    pub instance: FleetInstance,
    /// How it was bought.
    pub capacity_type: CapacityType,
    /// `default` or `dedicated`.
    pub tenancy: &'static str,
}

/// Launches machines.
#[derive(Debug)]
pub struct Launcher {
    ec2: Client,
    region: String,
    /// Launch templates.
    pub templates: Templates,
    /// Free addresses of subnets.
    pub addresses: FreeAddresses,
    fleets: Batcher<String, FleetItem, Result<FleetInstance, FleetFailure>>,
    /// How often a claim's launch was answered: part of the token, so that an answer is never played back for a later try.
    answered: TtlMap<String, u32>,
    metrics: AwsMetrics,
}

/// One claim's share of a fleet.
#[derive(Clone, Debug)]
struct FleetItem {
    claim: String,
    uid: String,
}

/// Why a claim got no machine from a fleet.
#[derive(Clone, Debug)]
enum FleetFailure {
    /// The call failed.
    Call(Error),
    /// The call succeeded, but launched too little.
    Short(Arc<Vec<FleetError>>),
}

impl Launcher {
    /// A launcher for a region.
    pub fn new(
        ec2: Client,
        region: String,
        cluster: Arc<str>,
        subnet_refresh_interval: Duration,
        metrics: AwsMetrics,
    ) -> Self {
        Self {
            templates: Templates::new(ec2.clone(), cluster),
            ec2,
            region,
            addresses: FreeAddresses::new(subnet_refresh_interval),
            fleets: Batcher::new(WINDOW),
            answered: TtlMap::new(Duration::from_secs(3600)),
            metrics,
        }
    }

    /// Launches one machine for a claim.
    pub async fn launch(
        &self,
        input: &LaunchInput<'_>,
        unavailable: &Unavailable,
    ) -> Result<LaunchedInstance, CloudError> {
        let spec = &input.claim.spec;
        let wanted = wanted(input.claim);
        let candidates = filters::candidates(input.catalog, &wanted)
            .map_err(|exhausted| CloudError::InsufficientCapacity(exhausted.to_string()))?;
        let capacity_type = filters::capacity_type(&candidates);
        warn_about_fallback(&wanted, capacity_type, candidates.len(), input.claim);

        let tags = tags::launch_tags(input.class, &input.cluster.name, node_pool(input.claim))
            .map_err(|reserved| CloudError::NodeClassNotReady(reserved.to_string()))?;
        let no_labels = BTreeMap::new();
        let tenancy = wanted.requirements.tenancy();
        let scope = TemplateScope {
            class: input.class,
            cluster: input.cluster,
            region: &self.region,
            tags: &tags,
            labels: input.claim.metadata.labels.as_ref().unwrap_or(&no_labels),
            taints: &spec.taints,
            startup_taints: &spec.startup_taints,
            wants_efa: wanted.requests.get(template::EFA_RESOURCE) > 0,
            wants_enclave: template::wants_enclave(&wanted.requests),
            tenancy,
            capacity_type,
            placement_group: input.placement_group,
        };
        let types: Vec<&InstanceType> =
            candidates.iter().map(|candidate| candidate.instance_type).collect();
        let templates =
            template::templates(scope, types).map_err(|error| template_error(&error))?;
        self.observe_user_data(input.class, &templates);

        // A template that was deleted behind our back is created again, once.
        match self.try_once(input, &candidates, &templates, &tags, capacity_type, unavailable).await
        {
            Err(Attempt::TemplateGone) => {
                for template in &templates {
                    self.templates.invalidate(&template.request.launch_template_name);
                }
                self.try_once(input, &candidates, &templates, &tags, capacity_type, unavailable)
                    .await
            }
            other => other,
        }
        .map_err(Attempt::into_cloud_error)
        .map(|instance| LaunchedInstance { instance, capacity_type, tenancy })
    }

    async fn try_once(
        &self,
        input: &LaunchInput<'_>,
        candidates: &[Candidate<'_>],
        templates: &[Template<'_>],
        tags: &Tags,
        capacity_type: CapacityType,
        unavailable: &Unavailable,
    ) -> Result<FleetInstance, Attempt> {
        for template in templates {
            self.templates.ensure(&template.request).await.map_err(Attempt::Call)?;
        }
        let status = input.class.status.as_ref();
        let subnets = status.map(|status| status.subnets.as_slice()).unwrap_or_default();
        let chosen =
            self.addresses.choose(subnets, |zone| min_pods(candidates, zone, capacity_type));
        let request =
            Self::fleet_request(input, candidates, templates, tags, capacity_type, &chosen);
        let result = match request {
            Some(request) => self.fleet(input.claim, request, capacity_type, unavailable).await,
            None => Err(Attempt::NoOfferings),
        };
        let used = result.as_ref().ok().map(|instance| instance.subnet_id.as_str());
        self.addresses.settle(&chosen, used);
        result
    }

    fn fleet_request(
        input: &LaunchInput<'_>,
        candidates: &[Candidate<'_>],
        templates: &[Template<'_>],
        tags: &Tags,
        capacity_type: CapacityType,
        chosen: &Chosen,
    ) -> Option<CreateFleet> {
        let context = input.class.spec.context.as_deref();
        fleet::request(FleetScope {
            templates,
            candidates,
            capacity_type,
            subnets: &chosen.by_zone,
            tags,
            context: context.filter(|_| !annotated(input.claim, labels::MIN_VALUES_RELAXED)),
            by_priority: annotated(input.claim, labels::PRICE_OVERLAY_APPLIED),
        })
    }

    /// One claim's share of a CreateFleet call that other claims with the same request join.
    async fn fleet(
        &self,
        claim: &NodeClaim,
        request: CreateFleet,
        capacity_type: CapacityType,
        unavailable: &Unavailable,
    ) -> Result<FleetInstance, Attempt> {
        let bucket =
            serde_json::to_string(&request).expect("plain structs with text keys serialise");
        let item = FleetItem {
            claim: claim.metadata.name.clone().unwrap_or_default(),
            uid: claim.metadata.uid.clone().unwrap_or_default(),
        };
        let observe = |size: super::batcher::BatchSize| {
            self.metrics.batch_time.observe(["create_fleet"], size.open.as_secs_f64());
            #[expect(clippy::cast_precision_loss, reason = "batches have at most 1000 items")]
            self.metrics.batch_size.observe(["create_fleet"], size.items as f64);
        };
        let fingerprint = bucket.clone();
        let result = self
            .fleets
            .submit(bucket, item, observe, |items| {
                self.create(items, request, fingerprint, capacity_type, unavailable)
            })
            .await;
        result.map_err(|failure| match failure {
            FleetFailure::Call(error) if error.is_launch_template_not_found() => {
                Attempt::TemplateGone
            }
            FleetFailure::Call(error) => Attempt::Call(error),
            FleetFailure::Short(errors) => Attempt::Short(errors),
        })
    }

    async fn create(
        &self,
        items: Vec<FleetItem>,
        mut request: CreateFleet,
        fingerprint: String,
        capacity_type: CapacityType,
        unavailable: &Unavailable,
    ) -> Vec<Result<FleetInstance, FleetFailure>> {
        request.target_capacity_specification.total_target_capacity =
            i32::try_from(items.len()).unwrap_or(i32::MAX);
        // A machine that is launched alone carries its claim's name from the start: after a crash it is found by it.
        if let ([item], Some(instance)) = (
            items.as_slice(),
            request.tag_specifications.iter_mut().find(|tags| tags.resource_type == "instance"),
        ) {
            instance.tags.insert(aws::NODECLAIM_TAG.to_owned(), item.claim.clone());
        }
        let token = self.token(&items, &fingerprint);
        match send::create_fleet(&self.ec2, &request, Some(&token)).await {
            Ok(answer) => {
                for item in &items {
                    let count = self.answered.get(&item.uid).unwrap_or(0);
                    self.answered.insert(item.uid.clone(), count + 1);
                }
                self.learn(&answer, capacity_type, unavailable);
                share(answer, items.len())
            }
            Err(error) => {
                if !error.is_retryable() {
                    for item in &items {
                        let count = self.answered.get(&item.uid).unwrap_or(0);
                        self.answered.insert(item.uid.clone(), count + 1);
                    }
                }
                items.iter().map(|_| Err(FleetFailure::Call(error.clone()))).collect()
            }
        }
    }

    /// The same for the same claims, request and try; EC2 launches once for it, however often it is asked.
    fn token(&self, items: &[FleetItem], fingerprint: &str) -> String {
        let claims: BTreeSet<(&str, u32)> = items
            .iter()
            .map(|item| (item.uid.as_str(), self.answered.get(&item.uid).unwrap_or(0)))
            .collect();
        let mut hash = Sha256::new();
        for (uid, count) in claims {
            hash.update(format!("{uid}/{count}\n"));
        }
        hash.update(fingerprint);
        hex::encode(hash.finalize())
    }

    fn learn(&self, answer: &FleetAnswer, capacity_type: CapacityType, unavailable: &Unavailable) {
        for error in &answer.errors {
            let (reason, _) = launch_reason(&error.code, &error.message);
            let zone = error.zone.as_deref().unwrap_or_default();
            self.metrics.launch_failures.inc([zone, "", capacity_type.as_str(), reason]);
        }
        let lessons = fleet::lessons(&answer.errors);
        for (instance_type, zone, code) in &lessons.offerings {
            unavailable.mark_offering(instance_type, zone, capacity_type, code);
        }
        for subnet in &lessons.subnets {
            unavailable.mark_subnet(subnet);
            self.addresses.mark_full(subnet);
        }
        if lessons.no_spot {
            unavailable.mark_capacity_type(CapacityType::Spot, super::error::SPOT_ROLE_MISSING);
        }
    }

    fn observe_user_data(&self, class: &EC2NodeClass, templates: &[Template<'_>]) {
        let largest = templates
            .iter()
            .map(|template| template.request.launch_template_data.user_data.len() / 4 * 3)
            .max();
        if let (Some(bytes), Some(name)) = (largest, class.metadata.name.as_deref()) {
            #[expect(clippy::cast_precision_loss, reason = "user data is some kilobytes")]
            self.metrics.user_data_bytes.set([name], bytes as f64);
            if bytes * 10 >= super::user_data::LIMIT * 9 {
                tracing::info!(
                    nodeclass = name,
                    bytes,
                    limit = super::user_data::LIMIT,
                    "user data is close to EC2's limit"
                );
            }
        }
    }
}

/// How a try ended without a machine.
#[derive(Debug)]
enum Attempt {
    TemplateGone,
    NoOfferings,
    Call(Error),
    Short(Arc<Vec<FleetError>>),
}

impl Attempt {
    fn into_cloud_error(self) -> CloudError {
        match self {
            Self::TemplateGone => create_error(
                "LaunchTemplateNotFound",
                "the launch template was deleted while it was used".to_owned(),
                None,
            ),
            Self::NoOfferings => create_error(
                "LaunchFailed",
                "no capacity offerings are currently available given the constraints".to_owned(),
                None,
            ),
            Self::Call(error) => {
                let (reason, message) =
                    launch_reason(error.code.as_deref().unwrap_or_default(), &error.message);
                create_error(reason, message, Some(error))
            }
            Self::Short(errors) if fleet::is_insufficient_capacity(&errors) => {
                CloudError::InsufficientCapacity(fleet::summary(&errors))
            }
            Self::Short(errors) => {
                let (reason, message) = fleet::reason(&errors);
                create_error(reason, message, None)
            }
        }
    }
}

fn create_error(reason: &str, message: String, source: Option<Error>) -> CloudError {
    CloudError::Create {
        reason: reason.to_owned(),
        message,
        source: source.map(|error| Box::new(error) as Box<dyn std::error::Error + Send + Sync>),
    }
}

fn template_error(error: &TemplateError) -> CloudError {
    let reason = match error {
        TemplateError::UserData(_) => "LaunchTemplateResolutionFailed",
        _ => "LaunchFailed",
    };
    match error {
        TemplateError::UserData(super::user_data::UserDataError::NoServiceCidr) => {
            CloudError::NodeClassNotReady(error.to_string())
        }
        _ => create_error(reason, error.to_string(), None),
    }
}

/// Hands the fleet's instances to the claims, in order; those that got none share the errors.
fn share(answer: FleetAnswer, n_claims: usize) -> Vec<Result<FleetInstance, FleetFailure>> {
    let FleetAnswer { fleet_id, instances, errors } = answer;
    if instances.len() > n_claims {
        let surplus: Vec<&str> =
            instances[n_claims..].iter().map(|instance| instance.id.as_str()).collect();
        tracing::error!(fleet = fleet_id, ?surplus, "a fleet launched more than was asked for");
    }
    let errors = Arc::new(errors);
    let missing = std::iter::repeat_with(|| Err(FleetFailure::Short(Arc::clone(&errors))));
    instances.into_iter().map(Ok).chain(missing).take(n_claims).collect()
}

fn wanted(claim: &NodeClaim) -> Wanted {
    Wanted {
        requirements: Requirements::from_api(&claim.spec.requirements),
        requests: resources::from_list(&claim.spec.resources.requests),
        min_values_relaxed: annotated(claim, labels::MIN_VALUES_RELAXED),
    }
}

fn annotated(claim: &NodeClaim, key: &str) -> bool {
    claim
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(key))
        .is_some_and(|value| value == "true")
}

fn node_pool(claim: &NodeClaim) -> &str {
    claim
        .metadata
        .labels
        .as_ref()
        .and_then(|all| all.get(labels::NODEPOOL))
        .map_or("", String::as_str)
}

/// Pods, and so addresses, of the smallest type that may be launched in a zone.
fn min_pods(candidates: &[Candidate<'_>], zone: &str, capacity_type: CapacityType) -> Option<i64> {
    candidates
        .iter()
        .filter(|candidate| {
            candidate
                .offerings
                .iter()
                .any(|offering| offering.zone == zone && offering.capacity_type == capacity_type)
        })
        .map(|candidate| candidate.instance_type.capacity.pods)
        .min()
}

fn warn_about_fallback(wanted: &Wanted, chosen: CapacityType, n_types: usize, claim: &NodeClaim) {
    if chosen == CapacityType::OnDemand
        && wanted.requirements.allow_capacity_type(CapacityType::Spot)
        && n_types < filters::FEW_TYPES
    {
        tracing::warn!(
            nodeclaim = claim.metadata.name.as_deref().unwrap_or_default(),
            n_types,
            "at least 5 instance types are recommended when flexible to spot but requesting on-demand"
        );
    }
}

#[cfg(test)]
mod tests;
