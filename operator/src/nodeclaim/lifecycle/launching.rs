//! Launch: the provider makes the machine; the NodeClaim says what came out of it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::json;
use tenon_crds::conditions::nodeclaim::LAUNCHED;
use tenon_crds::{ConditionStatus, NodeClaim};
use tenon_state::decision::State;

use super::Error;
use super::reticence::STANDSTILL;
use crate::actuate::claims::give_up;
use crate::claims::conditions;
use crate::cloud_provider::{CloudError, CloudProvider, Launched};
use crate::decisions::Cause;
use crate::events::{Event, Reason};
use crate::operator::Operator;
use crate::state::cluster::name;
use crate::state::resources;
use crate::text::chain;
use crate::text::truncate;
use crate::write::Precondition;

/// Longest message in a condition or an event.
const MESSAGE: usize = 1024;

/// What came out of a launch.
pub(super) enum Outcome {
    /// The launch ended earlier, well or not.
    Settled,
    /// The machine exists, which is to be written down and then told ([`tell`]).
    Launched(Box<Launched>),
    /// The NodeClaim was deleted: its pods are planned for again.
    GivenUp,
    /// It is tried again.
    Failed(CloudError),
}

/// Machines that were launched and are not in a status yet: if writing the status fails, the launch
/// need not be repeated.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// By uid of the NodeClaim, with the time of the launch.
    machines: Mutex<BTreeMap<String, (Launched, Timestamp)>>,
}

/// Launches the machine, unless that is settled.
pub(super) async fn ensure<P: CloudProvider>(
    operator: &Operator<P>,
    launches: &Launches,
    claim: &mut NodeClaim,
) -> Result<Outcome, Error> {
    let now = operator.now();
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    if settle(claim, now) {
        launches.machines.lock().remove(&uid);
        return Ok(Outcome::Settled);
    }
    let known = launches.known(&uid, now);
    let launched = match known {
        Some(launched) => Ok(launched),
        None => {
            let overlaid = operator.overlaid(claim).await;
            awaited(operator, claim, operator.cloud.create(claim, overlaid)).await
        }
    };
    match launched {
        Ok(launched) => {
            launches.machines.lock().insert(uid, (launched.clone(), now));
            let merged = merge(claim, &launched);
            let body =
                json!({"metadata": {"labels": merged.labels, "annotations": merged.annotations}});
            // What the status says, and what comes in the same pass, is computed from the newest
            // version.
            *claim = operator.write.patch_claim(claim, body, Precondition::SameUid).await?;
            record(claim, &launched, operator.now());
            Ok(Outcome::Launched(Box::new(launched)))
        }
        Err(CloudError::InsufficientCapacity(reason)) => {
            let error = CloudError::InsufficientCapacity(reason);
            // Its pods are planned for again, without what was asked for here.
            tracing::warn!(
                nodeclaim = name(&claim.metadata),
                error = chain(&error),
                "failed launching nodeclaim"
            );
            publish(operator, claim, &error);
            let why = chain(&error);
            give_up(operator, claim, "insufficient_capacity", Cause::NotLaunched(&why)).await?;
            operator.context.wake.notify_one();
            Ok(Outcome::GivenUp)
        }
        Err(error @ CloudError::NodeClassNotReady(_)) => {
            // Its conditions say why, and it is there that it can be mended.
            tracing::warn!(
                nodeclaim = name(&claim.metadata),
                error = chain(&error),
                "failed launching nodeclaim"
            );
            let message = truncate(&chain(&error), MESSAGE);
            operator.context.recorder.publish(Event::warning(
                claim,
                Reason::NodeClassNotReady,
                message.as_str(),
            ));
            let cause = Cause::NotLaunched(&message);
            give_up(operator, claim, "nodeclass_not_ready", cause).await?;
            Ok(Outcome::GivenUp)
        }
        Err(error) => {
            let reason = match &error {
                CloudError::Create { reason, .. } => reason.clone(),
                _ => "LaunchFailed".to_owned(),
            };
            let message = truncate(&chain(&error), MESSAGE);
            let event = Event::warning(claim, Reason::LaunchFailed, format!("{reason}, {message}"));
            operator.context.recorder.publish(event.distinct_by(&reason));
            let why = format!("the launch fails and is retried: {message}");
            operator.context.decisions.progress(&name(&claim.metadata), State::Pending, &why);
            conditions(claim, now).set_unknown(LAUNCHED, &reason, &message);
            Ok(Outcome::Failed(error))
        }
    }
}

/// Waits for a launch. Where that lasts, the NodeClaim gets its conditions before there is anything
/// to say in them.
async fn awaited<P: CloudProvider, T>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    launch: impl Future<Output = T>,
) -> T {
    let told = async {
        tokio::time::sleep(STANDSTILL.unsigned_abs()).await;
        tell_awaited(operator, claim.clone()).await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        launched = launch => launched,
        never = told => match never {},
    }
}

/// Says that a NodeClaim waits to be launched. That it could not be said is no loss: the launch
/// will say more.
async fn tell_awaited<P: CloudProvider>(operator: &Operator<P>, mut claim: NodeClaim) {
    let before = claim.status.clone();
    conditions(&mut claim, operator.now());
    if claim.status != before
        && let Err(error) = operator.write.patch_claim_status(&claim).await
    {
        let (nodeclaim, error) = (name(&claim.metadata), chain(&error));
        tracing::debug!(
            nodeclaim,
            error,
            "failed to update the condition of a nodeclaim that \
             waits to be launched"
        );
    }
}

/// Says that a NodeClaim has been launched, once its status does.
pub(super) fn tell<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    launched: &Launched,
) {
    let labels = &launched.instance.labels;
    let of = |key| labels.get(key).map_or("unknown", String::as_str);
    let what = format!(
        "{} in {}, {}",
        of(tenon_crds::labels::INSTANCE_TYPE),
        of(tenon_crds::labels::ZONE),
        of(tenon_crds::labels::CAPACITY_TYPE)
    );
    operator.context.decisions.progress(&name(&claim.metadata), State::Launched, &what);
    tracing::info!(
        nodeclaim = name(&claim.metadata),
        provider_id = launched.instance.provider_id,
        instance_type = labels.get(tenon_crds::labels::INSTANCE_TYPE),
        zone = labels.get(tenon_crds::labels::ZONE),
        capacity_type = labels.get(tenon_crds::labels::CAPACITY_TYPE),
        "launched nodeclaim"
    );
}

impl Launches {
    /// The machine of a NodeClaim whose status could not be written any more.
    pub(super) fn provider_id(&self, uid: &str) -> Option<String> {
        self.machines.lock().get(uid).map(|(launched, _)| launched.instance.provider_id.clone())
    }

    fn known(&self, uid: &str, now: Timestamp) -> Option<Launched> {
        let mut machines = self.machines.lock();
        machines.retain(|_, (_, at)| now.duration_since(*at) < SignedDuration::from_hours(1));
        machines.get(uid).map(|(launched, _)| launched.clone())
    }
}

/// Whether the launch has ended, well or not; then the condition is confirmed for this generation.
fn settle(claim: &mut NodeClaim, now: Timestamp) -> bool {
    let mut conditions = conditions(claim, now);
    let Some(launched) = conditions.get(LAUNCHED).cloned() else { return false };
    match launched.status {
        ConditionStatus::Unknown => false,
        ConditionStatus::True => {
            conditions.set_true_because(LAUNCHED, &launched.reason, &launched.message);
            true
        }
        ConditionStatus::False => {
            conditions.set_false(LAUNCHED, &launched.reason, &launched.message);
            true
        }
    }
}

/// Labels and annotations of a launched NodeClaim.
struct Merged {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// The provider's labels, where the NodeClaim has none of its own; the provider's annotations, over
/// those of the NodeClaim.
fn merge(claim: &NodeClaim, launched: &Launched) -> Merged {
    let mut labels = launched.instance.labels.clone();
    labels.extend(claim.metadata.labels.clone().unwrap_or_default());
    let mut annotations = claim.metadata.annotations.clone().unwrap_or_default();
    annotations.extend(launched.annotations.clone());
    Merged { labels, annotations }
}

/// Puts what was launched into the status.
fn record(claim: &mut NodeClaim, launched: &Launched, now: Timestamp) {
    let Launched { instance, annotations: _, capacity, allocatable } = launched;
    let status = claim.status.get_or_insert_default();
    status.provider_id = Some(instance.provider_id.clone());
    status.image_id.clone_from(&instance.image_id);
    status.capacity = resources::to_list(capacity).into();
    status.allocatable = resources::to_list(allocatable).into();
    conditions(claim, now).set_true(LAUNCHED);
}

/// Tells the NodeClaim, and the pods that were planned onto it, that it can't be had.
fn publish<P: CloudProvider>(operator: &Operator<P>, claim: &NodeClaim, error: &CloudError) {
    const REASON: Reason = Reason::InsufficientCapacityError;
    let name = name(&claim.metadata);
    let recorder = &operator.context.recorder;
    let message = format!("NodeClaim {name} event: {}", chain(error));
    recorder.publish(Event::warning(claim, REASON, truncate(&message, MESSAGE)));
    let pods: Vec<_> = {
        let state = operator.state.read();
        let planned = state.planned_onto(&name);
        planned.map(|(key, pod)| key.pod(Arc::clone(&pod.uid))).collect()
    };
    let message =
        format!("NodeClaim {name} nominated for this pod failed to launch: {}", chain(error));
    for reference in pods {
        let pod = crate::events::pod(&reference);
        let event = Event::warning(&pod, REASON, truncate(&message, MESSAGE));
        recorder.publish(event.limited(5.0, 10.0));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenon_planner::resources::Resources;

    use super::*;
    use crate::cloud_provider::Instance;
    use crate::testing::idle::{machine, operator, pool};

    fn claim() -> NodeClaim {
        let mut claim = NodeClaim::new("a", tenon_crds::NodeClaimSpec::default());
        claim.metadata.labels = Some([("own".to_owned(), "claim".to_owned())].into());
        claim.metadata.annotations = Some([("both".to_owned(), "claim".to_owned())].into());
        claim
    }

    fn launched() -> Launched {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Launched {
            instance: Instance {
                provider_id: "test:///a".to_owned(),
                claim: None,
                node_pool: None,
                created_at: None,
                terminating: false,
                labels: [pair("own", "provider"), pair("zone", "a")].into(),
                image_id: Some("image".to_owned()),
            },
            annotations: [pair("both", "provider")].into(),
            capacity: Resources { cpu: 4000, ..Resources::default() },
            allocatable: Resources { cpu: 3900, ..Resources::default() },
        }
    }

    #[test]
    fn existing_labels_win_and_the_providers_annotations_win() {
        let merged = merge(&claim(), &launched());
        assert_eq!(merged.labels["own"], "claim");
        assert_eq!(merged.labels["zone"], "a");
        assert_eq!(merged.annotations["both"], "provider");
    }

    #[test]
    fn a_launch_is_recorded_once_and_then_settled() {
        let now = Timestamp::from_second(1000).unwrap();
        let mut claim = claim();
        assert!(!settle(&mut claim, now));
        record(&mut claim, &launched(), now);
        assert_eq!(claim.provider_id(), Some("test:///a"));
        assert!(settle(&mut claim, now));
    }

    #[test]
    fn settling_confirms_the_condition_for_a_newer_generation() {
        let now = Timestamp::from_second(1000).unwrap();
        let mut claim = claim();
        record(&mut claim, &launched(), now);
        claim.metadata.generation = Some(7);
        assert!(settle(&mut claim, now));
        let conditions = conditions(&mut claim, now);
        assert_eq!(conditions.get(LAUNCHED).unwrap().observed_generation, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_nodeclaim_gets_its_conditions_before_its_launch_only_where_that_lasts() {
        for (seconds, told) in [(9, None), (60, Some("AwaitingReconciliation"))] {
            let [mut claim, _] = machine("a", "default");
            claim["status"] = json!({});
            let (operator, api) = operator(vec![pool("default", json!({})), claim]).await;
            let claim = operator.state.read().claim("a").cloned().unwrap();
            let launch = tokio::time::sleep(Duration::from_secs(seconds));
            awaited(&operator, &claim, launch).await;
            let stored = api.get::<NodeClaim>("a");
            assert_eq!(stored["status"]["conditions"][0]["reason"].as_str(), told, "{seconds}");
            assert_eq!(api.requests().len(), usize::from(told.is_some()));
        }
    }
}
