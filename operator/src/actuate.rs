//! Carrying plans out: NodeClaims are created, pods told where they are expected. Nothing is chosen
//! here; the plan says everything.

pub(crate) mod claims;

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use tenon_crds::{
    NillableDuration, NodeClaim, NodeClaimSpec, NodeClassReference, ResourceRequirements, labels,
};
use tenon_planner::plan::{Launch, LaunchReason, Nomination, PodRef};
use tenon_planner::snapshot::{self, DisruptionReason, Requirement};
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::events::{Event, Reason, pod};
use crate::ledger::LimitError;
use crate::operator::Operator;
use crate::state::change::{Change, ObjectKey};
use crate::state::resources;
use crate::tasks::isolated;
use crate::work_queue::{Concern, Failure as _, log_concern};
use crate::write::WriteError;

/// How many NodeClaims are created at once: as many as the API server answers without queueing
/// them.
const CONCURRENCY: usize = 32;

/// A NodeClaim that could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The NodePool may not have more.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The plan holds a value that the API can't express.
    #[error("field {field} of a nodeclaim for nodepool {pool} can't be {text:?}")]
    Field {
        /// The field of the template, as in the API.
        field: &'static str,
        /// The NodePool.
        pool: String,
        /// The value that does not parse.
        text: String,
    },
    /// The API server refused it.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl LaunchError {
    /// Who has to know. That the cluster is not what it was when the launch was planned is nobody's
    /// failure: the next plan goes by what it is now.
    pub(crate) fn concern(&self) -> Concern {
        match self {
            Self::Limit(_) => Concern::Nobody,
            Self::Field { .. } => Concern::Administrator,
            Self::Write(error) => error.concern(),
        }
    }
}

/// Creates the NodeClaims of a plan; what fails is logged, and planned again while its pods wait.
/// After `stop` none is begun.
pub(crate) async fn launch_all<P: CloudProvider>(
    operator: &Operator<P>,
    launches: &[Launch],
    stop: &CancellationToken,
) {
    let mut launches = launches.iter();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < CONCURRENCY && !stop.is_cancelled() {
            let Some(launch) = launches.next() else { break };
            // One that panics must not cut off the others, which are created but not noted yet.
            running.push(async move { (launch, isolated(create_claim(operator, launch)).await) });
        }
        let Some((launch, result)) = running.next().await else { return };
        let nodepool = &launch.node_pool;
        match result {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let (concern, error) = (error.concern(), crate::text::chain(&error));
                if concern != Concern::Nobody {
                    operator.context.decisions.launch_failed(launch, &error);
                }
                log_concern!(concern, nodepool, error, "failed to create a nodeclaim");
            }
            Err(panicked) => {
                tracing::error!(nodepool, error = %panicked, "failed to create a nodeclaim");
            }
        }
    }
}

/// Creates one NodeClaim, unless its NodePool has used up its limits meanwhile.
pub(crate) async fn create_claim<P: CloudProvider>(
    operator: &Operator<P>,
    launch: &Launch,
) -> Result<NodeClaim, LaunchError> {
    operator.ledger.within_limits(&operator.state.read(), &launch.node_pool)?;
    let claim = operator.write.create_claim(&node_claim(launch)?).await?;
    let name = claim.metadata.name.clone().unwrap_or_default();
    operator.ledger.created(&launch.node_pool, &name);
    let types: Vec<&str> = launch.instance_types.iter().take(5).map(String::as_str).collect();
    tracing::info!(
        nodepool = launch.node_pool,
        nodeclaim = name,
        requests = %resources::text(&launch.requests),
        instance_types = types.join(", "),
        n_instance_types = launch.instance_types.len(),
        "created nodeclaim"
    );
    let relaxed = claim.metadata.annotations.as_ref();
    let relaxed = relaxed.and_then(|annotations| annotations.get(labels::MIN_VALUES_RELAXED));
    let relaxed = relaxed.map_or("false", String::as_str);
    let reason = reason(&launch.reason);
    operator.context.metrics.nodeclaims_created.inc([reason, &launch.node_pool, relaxed]);
    let planned: BTreeMap<ObjectKey, String> =
        launch.pods.iter().map(|pod| (ObjectKey::from(pod), name.clone())).collect();
    operator.state.apply(Change::Planned(planned, operator.now())).await;
    // One that replaces nodes is part of their command.
    if launch.reason == LaunchReason::Provisioned {
        operator.context.decisions.launched(launch, &name);
        for reference in &launch.pods {
            let message = format!("Pod should schedule on: nodeclaim/{name}");
            nominated(operator, reference, message);
        }
    }
    Ok(claim)
}

/// Until when a machine is left alone on which pods are expected from now on.
pub(crate) fn nominated_until<P: CloudProvider>(operator: &Operator<P>) -> jiff::Timestamp {
    let window =
        (operator.options.batch_max_duration.0 * 2).max(std::time::Duration::from_secs(10));
    operator.now().checked_add(window).unwrap_or(jiff::Timestamp::MAX)
}

/// Tells pods, and the state, on which machines they are expected.
pub(crate) async fn nominate<P: CloudProvider>(operator: &Operator<P>, nominations: &[Nomination]) {
    if nominations.is_empty() {
        return;
    }
    let until = nominated_until(operator);
    let machines: BTreeSet<String> = nominations.iter().map(|n| n.node.clone()).collect();
    operator.state.apply(Change::Nominated(machines, until)).await;
    let planned = nominations
        .iter()
        .map(|nomination| (ObjectKey::from(&nomination.pod), nomination.node.clone()));
    operator.state.apply(Change::Planned(planned.collect(), operator.now())).await;
    let messages: Vec<String> = {
        let state = operator.state.read();
        let message = |key: &str| match state.claim(key) {
            Some(claim) => match state.node_of(claim) {
                Some(node) => {
                    format!("Pod should schedule on: nodeclaim/{key}, node/{}", node.name())
                }
                None => format!("Pod should schedule on: nodeclaim/{key}"),
            },
            None => format!("Pod should schedule on: node/{key}"),
        };
        nominations.iter().map(|nomination| message(&nomination.node)).collect()
    };
    for (nomination, message) in nominations.iter().zip(messages) {
        nominated(operator, &nomination.pod, message);
    }
}

fn nominated<P>(operator: &Operator<P>, reference: &PodRef, message: String) {
    let event = Event::normal(&pod(reference), Reason::Nominated, message).limited(5.0, 10.0);
    operator.context.recorder.publish(event);
}

/// The NodeClaim of a launch.
fn node_claim(launch: &Launch) -> Result<NodeClaim, LaunchError> {
    let Launch {
        node_pool,
        node_pool_uid,
        labels,
        annotations,
        requirements,
        // Both are in the requirements.
        instance_types: _,
        capacity_types: _,
        requests,
        taints: own_taints,
        startup_taints,
        node_class: snapshot::NodeClassRef { group, kind, name },
        expire_after,
        termination_grace_period,
        pods: _,
        buffer_pods: _,
        // kube-scheduler allocates.
        devices: _,
        price: _,
        reason: _,
    } = launch;
    let invalid = |field: &'static str, text: &str| LaunchError::Field {
        field,
        pool: node_pool.clone(),
        text: text.to_owned(),
    };
    let taints = |field, taints: &[k8s_openapi::api::core::v1::Taint]| {
        let parse = |taint: &k8s_openapi::api::core::v1::Taint| {
            tenon_crds::Taint::try_from(taint.clone()).map_err(|_| invalid(field, &taint.effect))
        };
        taints.iter().map(parse).collect::<Result<Vec<_>, _>>()
    };
    let spec = NodeClaimSpec {
        expire_after: match expire_after.as_deref() {
            None | Some("Never") => NillableDuration::Never,
            Some(text) => {
                NillableDuration::After(text.parse().map_err(|_| invalid("expireAfter", text))?)
            }
        },
        node_class_ref: NodeClassReference {
            group: group.clone(),
            kind: kind.clone(),
            name: name.clone(),
        },
        requirements: requirements.iter().map(requirement).collect(),
        resources: ResourceRequirements { requests: resources::to_list(requests).into() },
        startup_taints: taints("startupTaints", startup_taints)?,
        taints: taints("taints", own_taints)?,
        termination_grace_period: match termination_grace_period {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| invalid("terminationGracePeriod", text))?),
        },
    };
    let mut claim = NodeClaim::new("", spec);
    claim.metadata = ObjectMeta {
        generate_name: Some(format!("{node_pool}-")),
        labels: Some((**labels).clone()),
        annotations: Some((**annotations).clone()),
        // Put on later, it would cost a write before each launch.
        finalizers: Some(vec![labels::TERMINATION_FINALIZER.to_owned()]),
        owner_references: Some(vec![OwnerReference {
            api_version: "karpenter.sh/v1".to_owned(),
            kind: "NodePool".to_owned(),
            name: node_pool.clone(),
            uid: node_pool_uid.clone(),
            block_owner_deletion: Some(true),
            controller: None,
        }]),
        ..ObjectMeta::default()
    };
    Ok(claim)
}

fn requirement(requirement: &Requirement) -> tenon_crds::Requirement {
    tenon_crds::Requirement {
        key: requirement.key.clone(),
        operator: requirement.operator,
        values: requirement.values.clone(),
        min_values: requirement.min_values.and_then(|n| i32::try_from(n).ok()),
    }
}

fn reason(reason: &LaunchReason) -> &'static str {
    match reason {
        LaunchReason::Provisioned => "provisioned",
        LaunchReason::Replacement(reason) => lower(*reason),
    }
}

/// A disruption reason as metrics label it.
pub(crate) fn lower(reason: DisruptionReason) -> &'static str {
    match reason {
        DisruptionReason::Empty => "empty",
        DisruptionReason::Drifted => "drifted",
        DisruptionReason::Underutilized => "underutilized",
        DisruptionReason::Unhealthy => "unhealthy",
    }
}

#[cfg(test)]
mod tests;
