//! Launching: from a NodeClaim to a CreateFleet call, and from its answer to what the claim is
//! told.
//!
//! The order is that of the contract: filters, capacity type, subnets, launch templates, fleet.
//! What EC2 could not deliver is remembered, so that the planner, which is asked again at once,
//! plans with what is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenon_crds::labels;
use tenon_crds::{EC2NodeClass, NodeClaim};
use tenon_planner::snapshot::{CapacityType, Catalog};

use self::candidate::Candidate;
use self::filters::Wanted;
use self::fleet::FleetScope;
use self::fleets::{FleetFailure, Fleets, Order};
use self::placement::Placed;
use self::reserved::Reservation;
use self::subnets::{Chosen, FreeAddresses};
use self::template::{Place, Template, TemplateError, TemplateScope};
use self::templates::{Made, Templates};
use super::catalog::Catalogs;
use super::ec2::send::{FleetAnswer, FleetError, FleetInstance};
use super::ec2::{Ec2, PlacementGroup};
use super::error::{Error, launch_reason};
use super::matching::Requirements;
use super::metrics::AwsMetrics;
use super::tags;
use super::user_data::{ClusterFacts, UserDataError};
use crate::cloud_provider::CloudError;
use crate::state::resources;

pub(super) mod candidate;
pub(super) mod filters;
pub(super) mod fleet;
mod fleets;
pub(super) mod placement;
pub(super) mod reserved;
pub(super) mod subnets;
pub(super) mod template;
pub(super) mod templates;

/// What a claim is launched with; all of it read at one moment.
#[derive(Clone, Debug)]
pub(super) struct LaunchInput<'a> {
    /// The NodeClaim to launch an instance for.
    pub claim: &'a NodeClaim,
    /// Its NodeClass, ready.
    pub class: &'a EC2NodeClass,
    /// What can be launched with the class.
    pub catalog: &'a Catalog,
    pub cluster: &'a ClusterFacts,
    /// The placement group of the class.
    pub placement_group: Option<&'a PlacementGroup>,
}

/// A machine that was launched.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaunchedInstance {
    /// What EC2 answered.
    pub instance: FleetInstance,
    /// How it was bought.
    pub capacity_type: CapacityType,
    /// `default` or `dedicated`.
    pub tenancy: &'static str,
    /// The capacity reservation that it was launched into.
    pub reservation: Option<Reservation>,
    /// The partition of its placement group that it was launched into; nothing where EC2 chose one.
    pub partition: Option<i32>,
}

/// Launches machines.
#[derive(Debug)]
pub(super) struct Launcher {
    region: String,
    /// Launch templates.
    pub templates: Templates,
    /// Free addresses of subnets.
    pub addresses: FreeAddresses,
    fleets: Fleets,
    reserved_capacity: bool,
    metrics: AwsMetrics,
}

/// What a claim may be launched as, and what all of it has in common.
#[derive(Clone, Copy)]
struct Candidates<'a> {
    scope: TemplateScope<'a>,
    candidates: &'a [Candidate<'a>],
}

/// A launch that can be sent.
struct Ready {
    /// Nothing when there is no place for it.
    order: Option<Order>,
    chosen: Chosen,
    /// The launch templates that it names.
    made: Vec<(String, Made)>,
}

impl Launcher {
    /// A launcher for a region. Without `reserved_capacity` launches leave it to EC2 whether they
    /// use open reservations.
    pub(super) fn new(
        ec2: Ec2,
        region: String,
        cluster: Arc<str>,
        subnet_refresh_interval: Duration,
        reserved_capacity: bool,
        metrics: AwsMetrics,
    ) -> Self {
        Self {
            templates: Templates::new(ec2.clone(), cluster),
            fleets: Fleets::new(ec2, metrics.clone()),
            region,
            addresses: FreeAddresses::new(subnet_refresh_interval),
            reserved_capacity,
            metrics,
        }
    }

    /// Whether a launch of the claim got no answer, so that a machine may exist that nobody knows.
    pub(super) fn is_unfinished(&self, claim_uid: &str) -> bool {
        self.fleets.is_unfinished(claim_uid)
    }

    /// Repeats the claim's last call, if that got no answer.
    pub(super) async fn resume(
        &self,
        claim_uid: &str,
        catalogs: &Catalogs,
    ) -> Option<Result<LaunchedInstance, CloudError>> {
        let learn = |answer: &FleetAnswer, order: &Order| self.learn(answer, order, catalogs);
        let resumed = self.fleets.resume(claim_uid, learn).await?;
        Some(resumed.map_err(|failure| Attempt::from(failure).into_cloud_error()))
    }

    /// Launches one machine for a claim.
    pub(super) async fn launch(
        &self,
        input: &LaunchInput<'_>,
        catalogs: &Catalogs,
    ) -> Result<LaunchedInstance, CloudError> {
        let spec = &input.claim.spec;
        let wanted = wanted(input.claim);
        let mut candidates = filters::candidates(input.catalog, &wanted)
            .map_err(|exhausted| CloudError::InsufficientCapacity(exhausted.to_string()))?;
        let placed = input
            .placement_group
            .map(|group| placement::place(group, &wanted.requirements, &mut candidates));
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
            reserved_capacity: self.reserved_capacity,
            placed: placed.as_ref(),
        };
        let prepared = Candidates { scope, candidates: &candidates };
        match self.try_once(input, prepared, catalogs).await {
            // A template that was deleted behind our back is created again, once.
            Err(Attempt::TemplateGone) => self.try_once(input, prepared, catalogs).await,
            other => other,
        }
        .map_err(Attempt::into_cloud_error)
    }

    async fn try_once(
        &self,
        input: &LaunchInput<'_>,
        prepared: Candidates<'_>,
        catalogs: &Catalogs,
    ) -> Result<LaunchedInstance, Attempt> {
        let Ready { order, chosen, made } = self.prepare(input, prepared).await?;
        let learn = |answer: &FleetAnswer, order: &Order| self.learn(answer, order, catalogs);
        let result = match order {
            Some(order) => {
                self.fleets.create_instance(input.claim, order, learn).await.map_err(Attempt::from)
            }
            None => Err(Attempt::NoOfferings),
        };
        let used = result.as_ref().ok().map(|launched| launched.instance.subnet_id.as_str());
        self.addresses.settle(&chosen, used);
        if matches!(result, Err(Attempt::TemplateGone)) {
            for (name, made) in made {
                self.templates.invalidate(&name, made);
            }
        }
        result
    }

    /// Makes sure that the launch templates exist, and puts the call together. The templates are
    /// large, and end here: what follows may take seconds.
    async fn prepare(
        &self,
        input: &LaunchInput<'_>,
        prepared: Candidates<'_>,
    ) -> Result<Ready, Attempt> {
        let Candidates { scope, candidates } = prepared;
        let TemplateScope { tags, capacity_type, tenancy, .. } = scope;
        let places = candidates.iter().flat_map(Place::all_of);
        let templates = template::templates(scope, places).map_err(Attempt::Template)?;
        self.observe_user_data(input.class, &templates);
        let requests = templates.iter().map(|template| self.templates.ensure(&template.request));
        let made = futures::future::try_join_all(requests).await.map_err(Attempt::Call)?;
        let names = templates.iter().map(|it| it.request.launch_template_name.clone());
        let made = names.zip(made).collect();

        let status = input.class.status.as_ref();
        let subnets = status.map(|status| status.subnets.as_slice()).unwrap_or_default();
        let chosen =
            self.addresses.choose(subnets, |zone| min_pods(candidates, zone, capacity_type));
        let context = input.class.spec.context.as_deref();
        let request = fleet::request(FleetScope {
            templates: &templates,
            candidates,
            capacity_type,
            subnets: &chosen.by_zone,
            tags,
            context: context.filter(|_| !annotated(input.claim, labels::MIN_VALUES_RELAXED)),
            by_priority: annotated(input.claim, labels::PRICE_OVERLAY_APPLIED),
        });
        let order = request.map(|request| Order {
            request,
            capacity_type,
            tenancy,
            placed: scope.placed.cloned(),
            reservations: reserved::by_place(candidates),
        });
        Ok(Ready { order, chosen, made })
    }

    fn learn(&self, answer: &FleetAnswer, order: &Order, catalogs: &Catalogs) {
        let unavailable = &catalogs.unavailable;
        let capacity_type = order.capacity_type;
        let group = order.placed.as_ref().map(Placed::scope);
        let group = group.as_deref();
        for error in &answer.errors {
            let (reason, _) = launch_reason(&error.code, &error.message);
            let zone = error.zone.as_deref().unwrap_or_default();
            let zone_id = catalogs.shifts.zone_id(zone).unwrap_or_default();
            self.metrics.launch_failures.inc([zone, &zone_id, capacity_type.as_str(), reason]);
        }
        let lessons = fleet::lessons(&answer.errors);
        for (instance_type, zone, code) in &lessons.offerings {
            // That a reservation is full says nothing about what is not reserved.
            if let Some(reservation) = order.reservation(instance_type, zone) {
                tracing::info!(reservation = reservation.id, code, "capacity reservation is full");
                catalogs.reservations.exhaust(&reservation.id);
                continue;
            }
            unavailable.mark_offering(instance_type, zone, capacity_type, group, code);
        }
        for subnet in &lessons.subnets {
            unavailable.mark_subnet(subnet);
            self.addresses.mark_full(subnet);
        }
        if lessons.no_spot {
            unavailable.mark_capacity_type(CapacityType::Spot, super::error::SPOT_ROLE_MISSING);
        }
        let places = order.request.launch_template_configs.iter().flat_map(|one| &one.overrides);
        for place in places.filter(|_| group.is_some()) {
            let Some(zone) = &place.availability_zone else { continue };
            if lessons.full_zones.contains(zone) {
                let name = &place.instance_type;
                unavailable.mark_offering(name, zone, capacity_type, group, "SpreadLimit");
            }
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
    Template(TemplateError),
    TemplateGone,
    NoOfferings,
    Call(Error),
    Short(Arc<Vec<FleetError>>),
}

impl From<FleetFailure> for Attempt {
    fn from(failure: FleetFailure) -> Self {
        match failure {
            FleetFailure::Call(error) if error.is_launch_template_not_found() => Self::TemplateGone,
            FleetFailure::Call(error) => Self::Call(error),
            FleetFailure::Short(errors) => Self::Short(errors),
        }
    }
}

impl Attempt {
    fn into_cloud_error(self) -> CloudError {
        match self {
            Self::Template(error) => template_error(&error),
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
            Self::Call(error) => call_failed(error),
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

/// A launch that failed because this call did.
pub(super) fn call_failed(error: Error) -> CloudError {
    let (reason, message) = error.launch_reason();
    create_error(reason, message, Some(error))
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
        TemplateError::UserData(UserDataError::NoServiceCidr) => {
            CloudError::NodeClassNotReady(error.to_string())
        }
        _ => create_error(reason, error.to_string(), None),
    }
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
