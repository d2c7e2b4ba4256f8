//! The controller of CapacityBuffers: says on each what it comes to, and whether there is room for it. Decisions do not wait for it: snapshots hold the
//! virtual pods as the state has them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenon_crds::conditions::capacitybuffer::{PROVISIONING, READY_FOR_PROVISIONING};
use tenon_crds::{CapacityBuffer, CapacityBufferStatus, ConditionStatus, Timestamp};
use tenon_planner::plan::Plan;
use tenon_planner::snapshot::Snapshot;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;
use crate::state::change::{Kind, ObjectKey, Touched};
use crate::state::cluster::{Room, Unresolved};
use crate::work::{Backoff, Failure as _};
use crate::write::WriteError;

/// How often buffers are looked at when nothing tells of a change.
const EVERY: Duration = Duration::from_secs(30);

const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_mins(1) };

/// The virtual pods of a snapshot, by uid, with their buffers.
pub type VirtualPods = BTreeMap<String, ObjectKey>;

/// How the pods of a buffer fared when provisioning was planned last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Pods that there is room for, on machines that exist or are on their way.
    pub fitting: usize,
    /// Pods that there is no room for yet.
    pub others: usize,
}

/// Outcomes by buffer. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    by_buffer: Arc<Mutex<BTreeMap<ObjectKey, Outcome>>>,
    changed: Arc<Notify>,
}

impl Outcomes {
    /// Takes in what was planned.
    pub fn record(&self, pods: &VirtualPods, plan: &Plan) {
        let mut outcomes: BTreeMap<ObjectKey, Outcome> = BTreeMap::new();
        for buffer in pods.values() {
            outcomes.entry(buffer.clone()).or_default().others += 1;
        }
        for nomination in &plan.buffered {
            let outcome = pods.get(&nomination.pod.uid).and_then(|it| outcomes.get_mut(it));
            if let Some(outcome) = outcome {
                outcome.others -= 1;
                outcome.fitting += 1;
            }
        }
        let mut known = self.by_buffer.lock();
        if *known != outcomes {
            *known = outcomes;
            self.changed.notify_one();
        }
    }

    fn of(&self, buffer: &ObjectKey) -> Option<Outcome> {
        self.by_buffer.lock().get(buffer).copied()
    }
}

/// The virtual pods of a snapshot.
pub fn virtual_pods(snapshot: &Snapshot) -> VirtualPods {
    let of_buffers = snapshot.pods.iter().filter_map(|pod| {
        let buffer = ObjectKey::new(pod.namespace.as_str(), pod.buffer.as_deref()?);
        Some((pod.uid.clone(), buffer))
    });
    of_buffers.collect()
}

/// Writes the status of buffers until told to stop.
pub async fn run<P: CloudProvider>(
    operator: Arc<Operator<P>>,
    outcomes: Outcomes,
    stop: CancellationToken,
) {
    let changed = Arc::clone(&outcomes.changed);
    let notify = Arc::clone(&changed);
    operator.state.subscribe(move |touched| {
        if is_about_buffers(touched) {
            notify.notify_one();
        }
    });
    let mut failures = 0;
    loop {
        let wait = match reconcile(&operator, &outcomes).await {
            Ok(()) => {
                failures = 0;
                EVERY
            }
            Err(error) => {
                failures += 1;
                if !error.is_conflict() {
                    operator.context.metrics.reconcile_errors.inc(["capacitybuffer", "error"]);
                    let error = crate::logging::chain(&error);
                    tracing::error!(error, "failed to write the status of CapacityBuffers");
                }
                BACKOFF.delay(failures)
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// A CapacityBuffer, or something that one may refer to.
pub fn is_about_buffers(touched: &Touched) -> bool {
    matches!(touched, Touched::Other(kind) if Kind::BUFFERS.contains(kind))
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    outcomes: &Outcomes,
) -> Result<(), WriteError> {
    let buffers: Vec<_> = {
        let state = operator.state.read();
        if !state.has_listed_all() {
            return Ok(());
        }
        let with_room = |(key, object): (&ObjectKey, &Arc<CapacityBuffer>)| {
            (key.clone(), Arc::clone(object), state.room(object))
        };
        state.buffers().map(with_room).collect()
    };
    for (key, object, room) in buffers {
        let status = judged(&object, &room, outcomes.of(&key), Timestamp(operator.now()));
        if object.status.as_ref() != Some(&status) {
            match operator.write.patch_buffer_status(&object, &status).await {
                Ok(()) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The status of a buffer. `outcome` is missing before provisioning was planned with it.
fn judged(
    object: &CapacityBuffer,
    room: &Result<Room, Unresolved>,
    outcome: Option<Outcome>,
    now: Timestamp,
) -> CapacityBufferStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let at = (object.metadata.generation, now);
    status.provisioning_strategy.clone_from(&object.spec.provisioning_strategy);
    let (ready, provisioning) = match room {
        Err(unresolved) => {
            let (reason, message) = unresolved.told();
            (status.pod_template_ref, status.pod_template_generation) = (None, None);
            status.replicas = None;
            let message = message.to_owned();
            (
                (ConditionStatus::False, reason, message.clone()),
                Some((ConditionStatus::False, "NotReadyForProvisioning", message)),
            )
        }
        Ok(room) => {
            let template = room.template.clone();
            let (name, generation) = template.map_or((None, None), |(name, it)| (Some(name), it));
            status.pod_template_ref =
                name.map(|name| tenon_crds::capacitybuffer::LocalReference { name });
            status.pod_template_generation = generation;
            status.replicas = i32::try_from(room.replicas).ok();
            let resolved = (ConditionStatus::True, "Resolved", "The pods are known".to_owned());
            (resolved, provisioning(room, outcome))
        }
    };
    status.set(READY_FOR_PROVISIONING, ready, at);
    if let Some(provisioning) = provisioning {
        status.set(PROVISIONING, provisioning, at);
    }
    status
}

fn provisioning(
    room: &Room,
    outcome: Option<Outcome>,
) -> Option<(ConditionStatus, &'static str, String)> {
    if room.replicas == 0 {
        let message = "The buffer has no pods".to_owned();
        return Some((ConditionStatus::False, "BufferEmpty", message));
    }
    if let Some(problem) = &room.problem {
        return Some((ConditionStatus::False, "RequiresNewCapacity", problem.clone()));
    }
    let Outcome { fitting, others } = outcome?;
    let said = if others == 0 {
        let message = format!("There is room for {fitting} pod(s)");
        (ConditionStatus::True, "FitsExistingCapacity", message)
    } else {
        let n = fitting + others;
        let message = format!("There is no room for {others} of {n} pod(s) yet");
        (ConditionStatus::False, "RequiresNewCapacity", message)
    };
    Some(said)
}

#[cfg(test)]
mod tests {
    use tenon_crds::CapacityBufferSpec;
    use tenon_planner::plan::{Nomination, PodRef};

    use super::*;

    fn lines(status: &CapacityBufferStatus) -> Vec<String> {
        let conditions = status.conditions.iter();
        conditions.map(|c| format!("{} {} {}", c.type_, c.status, c.reason)).collect()
    }

    fn room(replicas: u32) -> Room {
        Room {
            shape: Arc::default(),
            replicas,
            template: Some(("unit".to_owned(), Some(2))),
            problem: None,
        }
    }

    fn judge(room: &Result<Room, Unresolved>, outcome: Option<Outcome>) -> CapacityBufferStatus {
        let mut object = CapacityBuffer::new("spare", CapacityBufferSpec::default());
        object.metadata.generation = Some(7);
        judged(&object, room, outcome, Timestamp(jiff::Timestamp::UNIX_EPOCH))
    }

    #[test]
    fn a_buffer_says_what_it_comes_to_and_whether_there_is_room() {
        let not_planned = judge(&Ok(room(3)), None);
        assert_eq!(lines(&not_planned), ["ReadyForProvisioning True Resolved"]);
        assert_eq!(not_planned.replicas, Some(3));
        assert_eq!(not_planned.pod_template_ref.unwrap().name, "unit");
        assert_eq!(not_planned.pod_template_generation, Some(2));
        assert_eq!(not_planned.conditions[0].observed_generation, Some(7));
        for (replicas, outcome, expected) in [
            (3, Outcome { fitting: 3, others: 0 }, "Provisioning True FitsExistingCapacity"),
            (3, Outcome { fitting: 2, others: 1 }, "Provisioning False RequiresNewCapacity"),
            (0, Outcome::default(), "Provisioning False BufferEmpty"),
        ] {
            assert_eq!(lines(&judge(&Ok(room(replicas)), Some(outcome)))[1], expected);
        }
        let gone = Unresolved::PodTemplateNotFound("PodTemplate unit does not exist".to_owned());
        assert_eq!(
            lines(&judge(&Err(gone), None)),
            [
                "ReadyForProvisioning False PodTemplateNotFound",
                "Provisioning False NotReadyForProvisioning"
            ]
        );
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let mut object = CapacityBuffer::new("spare", CapacityBufferSpec::default());
        let (early, late) = (jiff::Timestamp::UNIX_EPOCH, jiff::Timestamp::MAX);
        object.status = Some(judged(&object, &Ok(room(3)), None, Timestamp(early)));
        let again = judged(&object, &Ok(room(3)), None, Timestamp(late));
        assert_eq!(object.status.as_ref(), Some(&again));
        let gone = Unresolved::ScalableRefNotFound("Deployment web does not exist".to_owned());
        let other = judged(&object, &Err(gone), None, Timestamp(late));
        assert_eq!(other.conditions[0].last_transition_time.0, late);
    }

    #[test]
    fn what_was_planned_for_virtual_pods_is_counted_by_buffer() {
        let pod = |uid: &str| PodRef {
            namespace: "default".to_owned(),
            name: format!("capacity-buffer-spare-{uid}"),
            uid: uid.to_owned(),
        };
        let key = ObjectKey::new("default", "spare");
        let pods: VirtualPods =
            ["1", "2", "3"].map(|uid| (uid.to_owned(), key.clone())).into_iter().collect();
        let nomination = Nomination { pod: pod("2"), node: "a".to_owned() };
        let plan = Plan { buffered: vec![nomination], ..Plan::default() };
        let outcomes = Outcomes::default();
        outcomes.record(&pods, &plan);
        assert_eq!(outcomes.of(&key), Some(Outcome { fitting: 1, others: 2 }));
        outcomes.record(&VirtualPods::new(), &plan);
        assert_eq!(outcomes.of(&key), None);
    }
}
