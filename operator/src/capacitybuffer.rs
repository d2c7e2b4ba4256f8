//! The controller of CapacityBuffers: says on each what it comes to, and whether there is room for
//! it. Decisions do not wait for it: snapshots hold the virtual pods as the state has them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenon_crds::capacitybuffer::LocalReference;
use tenon_crds::conditions::capacitybuffer::{
    LIMITED_BY_QUOTAS, PROVISIONING, READY_FOR_PROVISIONING, TYPES,
};
use tenon_crds::conditions::{Conditions, Subject};
use tenon_crds::{CapacityBuffer, CapacityBufferStatus};
use tenon_planner::plan::Plan;
use tenon_planner::snapshot::{PodShape, Snapshot};

use crate::cloud_provider::CloudProvider;
use crate::controller::{Affected, Controller, Reconciler};
use crate::metrics::transitions::{ConditionState, Kind};
use crate::operator::Operator;
use crate::state::State;
use crate::state::change::{Kind as StateKind, ObjectKey, Touched};
use crate::state::cluster::{Cluster, Limited, Room, Unresolved};
use crate::work_queue::{Action, WorkQueue};
use crate::write::WriteError;

/// How often buffers are looked at when nothing tells of a change.
const EVERY: Duration = Duration::from_secs(30);

/// How soon they are looked at again while not everything was listed.
const UNLISTED: Duration = Duration::from_secs(1);

/// The virtual pods of a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct VirtualPods {
    /// Their buffers, by their uid.
    buffers: BTreeMap<Arc<str>, ObjectKey>,
    /// What scheduling sees of them, by buffer.
    shapes: BTreeMap<ObjectKey, Arc<PodShape>>,
}

impl VirtualPods {
    /// Those of a snapshot.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let mut pods = Self::default();
        for pod in &snapshot.pods {
            let Some(buffer) = pod.buffer.as_deref() else { continue };
            let buffer = ObjectKey::new(Arc::clone(&pod.namespace), buffer);
            let shape = &snapshot.shapes[pod.shape.0 as usize];
            pods.shapes.entry(buffer.clone()).or_insert_with(|| Arc::clone(shape));
            pods.buffers.insert(Arc::clone(&pod.uid), buffer);
        }
        pods
    }

    /// Whether the pod with this uid is one of them.
    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.buffers.contains_key(uid)
    }
}

/// How the pods of a buffer fared when provisioning was planned last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// What was planned for.
    pub shape: Arc<PodShape>,
    /// Pods that there is room for, on machines that exist or are on their way.
    pub fitting: usize,
    /// Pods that there is no room for yet.
    pub others: usize,
}

impl Outcome {
    /// Whether it is about what the buffer comes to now.
    fn is_about(&self, room: &Room) -> bool {
        u32::try_from(self.fitting + self.others) == Ok(room.replicas) && self.shape == room.shape
    }
}

/// Outcomes by buffer. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    by_buffer: Arc<Mutex<BTreeMap<ObjectKey, Outcome>>>,
    /// Buffers to look at.
    queue: WorkQueue<ObjectKey>,
}

impl Outcomes {
    /// Takes in what was planned.
    pub(crate) fn record(&self, pods: &VirtualPods, plan: &Plan) {
        let planned = pods.shapes.iter().map(|(buffer, shape)| {
            let shape = Arc::clone(shape);
            (buffer.clone(), Outcome { shape, fitting: 0, others: 0 })
        });
        let mut outcomes: BTreeMap<ObjectKey, Outcome> = planned.collect();
        for buffer in pods.buffers.values() {
            outcomes.entry(buffer.clone()).or_default().others += 1;
        }
        for nomination in &plan.buffered {
            let outcome = pods.buffers.get(&nomination.pod.uid);
            if let Some(outcome) = outcome.and_then(|buffer| outcomes.get_mut(buffer)) {
                outcome.others -= 1;
                outcome.fitting += 1;
            }
        }
        let before = std::mem::replace(&mut *self.by_buffer.lock(), outcomes.clone());
        for (buffer, outcome) in outcomes {
            if before.get(&buffer) != Some(&outcome) {
                self.queue.add(buffer);
            }
        }
    }

    /// What writes the status of buffers.
    pub(crate) fn controller<P: CloudProvider>(
        &self,
        operator: Arc<Operator<P>>,
    ) -> Controller<CapacityBuffers<P>> {
        let reconciler = CapacityBuffers { operator, outcomes: self.clone() };
        Controller::fed_by(reconciler, self.queue.clone())
    }

    fn of(&self, buffer: &ObjectKey) -> Option<Outcome> {
        self.by_buffer.lock().get(buffer).cloned()
    }
}

/// Writes the status of buffers.
pub(crate) struct CapacityBuffers<P> {
    operator: Arc<Operator<P>>,
    outcomes: Outcomes,
}

impl<P: CloudProvider> Reconciler for CapacityBuffers<P> {
    const NAME: &'static str = "capacitybuffer";
    type Key = ObjectKey;
    type Error = WriteError;

    fn workers(&self) -> usize {
        10
    }

    fn affected(&self, touched: &Touched, _: &State) -> Affected<ObjectKey> {
        // What they refer to does not say whose it is, and there are few.
        if is_about_buffers(touched) { Affected::All } else { Affected::None }
    }

    fn all(&self, state: &Cluster) -> Vec<ObjectKey> {
        state.buffers().map(|(buffer, _)| buffer.clone()).collect()
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, WriteError> {
        reconcile(&self.operator, &self.outcomes, key).await
    }
}

/// A CapacityBuffer, something that one may refer to, or a ResourceQuota that bounds one.
pub(crate) fn is_about_buffers(touched: &Touched) -> bool {
    matches!(touched, Touched::Other(kind) if StateKind::BUFFERS.contains(kind))
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    outcomes: &Outcomes,
    key: &ObjectKey,
) -> Result<Action, WriteError> {
    // Dereference.
    let (object, room) = {
        let state = operator.state.read();
        if !state.has_listed_all() {
            return Ok(Action::After(UNLISTED));
        }
        let Some((_, object)) = state.buffers().find(|(found, _)| *found == key) else {
            return Ok(Action::Wait);
        };
        (Arc::clone(object), state.room(object))
    };

    // Update the status.
    let status = judged(&object, &room, outcomes.of(key).as_ref(), operator.now());
    if object.status.as_ref() != Some(&status) {
        match operator.write.patch_buffer_status(&object, &status).await {
            Ok(_) => count_changes(operator, &object, &status),
            Err(error) if error.is_not_found() => return Ok(Action::Wait),
            Err(error) => return Err(error),
        }
    }
    Ok(Action::After(EVERY))
}

/// Nobody else changes the conditions of buffers.
fn count_changes<P: CloudProvider>(
    operator: &Operator<P>,
    before: &CapacityBuffer,
    after: &CapacityBufferStatus,
) {
    if operator.options.disable_cluster_state_observability {
        return;
    }
    let before = before.status.iter().flat_map(|status| &status.conditions);
    let before: Vec<ConditionState<'_>> = before.map(ConditionState::from).collect();
    let after: Vec<ConditionState<'_>> =
        after.conditions.iter().map(ConditionState::from).collect();
    let transitions = &operator.context.metrics.transitions;
    transitions.changed(Kind::CapacityBuffer, &Vec::new(), &before, &after);
}

/// The status of a buffer. `outcome` is missing before provisioning was planned with it.
fn judged(
    object: &CapacityBuffer,
    room: &Result<Room, Unresolved>,
    outcome: Option<&Outcome>,
    now: jiff::Timestamp,
) -> CapacityBufferStatus {
    let before = object.status.clone().unwrap_or_default();
    let mut status = before.clone();
    status.provisioning_strategy.clone_from(&object.spec.provisioning_strategy);
    let (template, replicas) = match room {
        Ok(Room { template, replicas, .. }) => (template.clone(), i32::try_from(*replicas).ok()),
        Err(_) => (None, None),
    };
    let (name, generation) = template.map_or((None, None), |(name, it)| (Some(name), it));
    status.pod_template_ref = name.map(|name| LocalReference { name });
    status.pod_template_generation = generation;
    status.replicas = replicas;
    let comes_to = |status: &CapacityBufferStatus| {
        (status.replicas, status.pod_template_ref.clone(), status.pod_template_generation)
    };
    let still_holds = comes_to(&before) == comes_to(&status)
        && before.conditions.iter().any(|condition| {
            condition.type_ == PROVISIONING
                && condition.observed_generation == object.metadata.generation
        });

    let subject = Subject::of(&object.metadata);
    let mut set = Conditions::new(TYPES, &mut status.conditions, subject, now);
    match room {
        Err(unresolved) => {
            let (reason, message) = unresolved.condition();
            set.set_false(READY_FOR_PROVISIONING, reason, message);
            set.set_false(PROVISIONING, "NotReadyForProvisioning", message);
            // Nobody knows of what they would leave too little.
            set.clear(LIMITED_BY_QUOTAS).expect("it is independent");
        }
        Ok(room) => {
            set.set_true_because(READY_FOR_PROVISIONING, "Resolved", "The pods are known");
            quotas(&mut set, room);
            provisioning(&mut set, room, outcome, still_holds);
        }
    }
    status
}

/// Says whether quotas leave less than the buffer asks for, in the words that other autoscalers
/// use.
fn quotas(set: &mut Conditions<'_>, room: &Room) {
    const REASON: &str = "ResourceQuotasAllocated";
    match &room.limited {
        None => set.set_false(LIMITED_BY_QUOTAS, REASON, ""),
        Some(Limited { wanted, quotas }) => {
            let (pods, quotas) = (room.replicas, quotas.join(", "));
            let message = format!(
                "Room is reserved for {pods} of {wanted} pod(s), because more could not be \
                 created: ResourceQuota {quotas}"
            );
            set.set_true_because(LIMITED_BY_QUOTAS, REASON, &message)
        }
    };
}

/// Says whether there is room. `still_holds` when what was said before is about the buffer as it is
/// now.
fn provisioning(
    set: &mut Conditions<'_>,
    room: &Room,
    outcome: Option<&Outcome>,
    still_holds: bool,
) {
    match outcome {
        _ if room.replicas == 0 => {
            set.set_false(PROVISIONING, "BufferEmpty", "The buffer has no pods");
        }
        _ if room.problem.is_some() => {
            let problem = room.problem.as_deref().unwrap_or_default();
            set.set_false(PROVISIONING, "RequiresNewCapacity", problem);
        }
        Some(outcome @ Outcome { fitting, others: 0, .. }) if outcome.is_about(room) => {
            let message = format!("There is room for {fitting} pod(s)");
            set.set_true_because(PROVISIONING, "FitsExistingCapacity", &message);
        }
        Some(outcome @ Outcome { fitting, others, .. }) if outcome.is_about(room) => {
            let n = fitting + others;
            let message = format!("There is no room for {others} of {n} pod(s) yet");
            set.set_false(PROVISIONING, "RequiresNewCapacity", &message);
        }
        // The operator has just started.
        None if still_holds => {}
        None | Some(_) => {
            let message = "The current pods have not been planned for yet";
            set.set_unknown(PROVISIONING, "AwaitingReconciliation", message);
        }
    }
}

#[cfg(test)]
mod tests {
    use tenon_crds::{CapacityBufferSpec, ConditionStatus};
    use tenon_planner::plan::{Nomination, PodRef};

    use super::*;

    fn lines(status: &CapacityBufferStatus) -> Vec<String> {
        let conditions = status.conditions.iter();
        conditions.map(|c| format!("{} {} {}", c.type_, c.status, c.reason)).collect()
    }

    fn said(status: &CapacityBufferStatus, type_: &str) -> String {
        lines(status).into_iter().find(|line| line.starts_with(type_)).unwrap()
    }

    fn shape(cpu: i64) -> Arc<PodShape> {
        let mut shape = PodShape::default();
        shape.requests.set("cpu", cpu);
        Arc::new(shape)
    }

    fn room(replicas: u32) -> Room {
        Room {
            shape: shape(1),
            replicas,
            template: Some(("unit".to_owned(), Some(2))),
            limited: None,
            claims: Vec::new(),
            problem: None,
        }
    }

    fn planned(cpu: i64, fitting: usize, others: usize) -> Outcome {
        Outcome { shape: shape(cpu), fitting, others }
    }

    fn object(generation: i64, status: Option<CapacityBufferStatus>) -> CapacityBuffer {
        let mut object = CapacityBuffer::new("spare", CapacityBufferSpec::default());
        object.metadata.generation = Some(generation);
        object.status = status;
        object
    }

    fn judge(room: &Result<Room, Unresolved>, outcome: Option<&Outcome>) -> CapacityBufferStatus {
        judged(&object(7, None), room, outcome, jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_buffer_says_what_it_comes_to_and_whether_there_is_room() {
        let not_planned = judge(&Ok(room(3)), None);
        assert_eq!(
            lines(&not_planned),
            [
                "ReadyForProvisioning True Resolved",
                "LimitedByQuotas False ResourceQuotasAllocated",
                "Provisioning Unknown AwaitingReconciliation",
            ]
        );
        assert_eq!(not_planned.replicas, Some(3));
        assert_eq!(not_planned.pod_template_ref.unwrap().name, "unit");
        assert_eq!(not_planned.pod_template_generation, Some(2));
        assert_eq!(not_planned.conditions[0].observed_generation, Some(7));
        for (replicas, outcome, expected) in [
            (3, planned(1, 3, 0), "Provisioning True FitsExistingCapacity"),
            (3, planned(1, 2, 1), "Provisioning False RequiresNewCapacity"),
            (0, planned(1, 3, 0), "Provisioning False BufferEmpty"),
        ] {
            assert_eq!(said(&judge(&Ok(room(replicas)), Some(&outcome)), PROVISIONING), expected);
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
    fn a_buffer_claims_no_room_for_pods_that_nobody_has_planned_for() {
        let fits = planned(1, 3, 0);
        let before = judge(&Ok(room(3)), Some(&fits));
        let unknown = "Provisioning Unknown AwaitingReconciliation";
        let say = |object: &CapacityBuffer, room: Room, outcome: Option<&Outcome>| {
            let now = jiff::Timestamp::UNIX_EPOCH;
            said(&judged(object, &Ok(room), outcome, now), PROVISIONING)
        };
        let same = object(7, Some(before.clone()));
        let of_others = Room { shape: shape(2), ..room(3) };
        assert_eq!(say(&same, room(4), Some(&fits)), unknown, "more pods");
        assert_eq!(say(&same, of_others, Some(&fits)), unknown, "other pods");
        // After a restart nothing is planned yet.
        assert_eq!(say(&same, room(3), None), said(&before, PROVISIONING));
        assert_eq!(say(&same, room(4), None), unknown);
        assert_eq!(say(&object(8, Some(before)), room(3), None), unknown, "it was edited");
    }

    #[test]
    fn a_buffer_says_which_quotas_limit_it_as_long_as_its_pods_are_known() {
        let quotas = vec!["compute".to_owned(), "pods".to_owned()];
        let limited = Room { limited: Some(Limited { wanted: 5, quotas }), ..room(2) };
        let status = judge(&Ok(limited), None);
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|it| it.type_ == LIMITED_BY_QUOTAS).unwrap();
        assert_eq!((found.status, status.replicas), (ConditionStatus::True, Some(2)));
        assert!(
            found.message.starts_with("Room is reserved for 2 of 5 pod(s)"),
            "{}",
            found.message
        );
        assert!(found.message.ends_with("ResourceQuota compute, pods"), "{}", found.message);
        let gone = Unresolved::PodTemplateNotFound("PodTemplate unit does not exist".to_owned());
        let after = judged(&object(7, Some(status)), &Err(gone), None, jiff::Timestamp::UNIX_EPOCH);
        assert!(after.conditions.iter().all(|it| it.type_ != LIMITED_BY_QUOTAS));
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let early: jiff::Timestamp = "2026-11-20T00:00:00Z".parse().unwrap();
        let late: jiff::Timestamp = "2026-11-20T01:00:00Z".parse().unwrap();
        let fits = planned(1, 3, 0);
        let first = judged(&object(7, None), &Ok(room(3)), Some(&fits), early);
        let object = object(7, Some(first));
        let again = judged(&object, &Ok(room(3)), Some(&fits), late);
        assert_eq!(object.status.as_ref(), Some(&again));
        let gone = Unresolved::ScalableRefNotFound("Deployment web does not exist".to_owned());
        let other = judged(&object, &Err(gone), None, late);
        assert!(other.conditions.iter().all(|it| it.last_transition_time.0 == late));
    }

    #[test]
    fn what_was_planned_for_virtual_pods_is_counted_by_buffer() {
        let pod = |index: u32| tenon_planner::snapshot::Pod {
            namespace: "default".into(),
            name: format!("capacity-buffer-spare-{index}").into(),
            uid: index.to_string().into(),
            buffer: Some("spare".to_owned()),
            ..Default::default()
        };
        let real = tenon_planner::snapshot::Pod { uid: "real".into(), ..Default::default() };
        let snapshot = Snapshot {
            shapes: vec![shape(1)],
            pods: vec![pod(1), pod(2), pod(3), real],
            ..Snapshot::default()
        };
        let key = ObjectKey::new("default", "spare");
        let pods = VirtualPods::of(&snapshot);
        assert!(pods.contains("1") && !pods.contains("real"));
        let reference = PodRef {
            namespace: "default".into(),
            name: "capacity-buffer-spare-2".into(),
            uid: "2".into(),
        };
        let nomination = Nomination { pod: reference, node: "a".to_owned() };
        let plan = Plan { buffered: vec![nomination], ..Plan::default() };
        let outcomes = Outcomes::default();
        outcomes.record(&pods, &plan);
        assert_eq!(outcomes.of(&key), Some(planned(1, 1, 2)));
        outcomes.record(&VirtualPods::default(), &plan);
        assert_eq!(outcomes.of(&key), None);
    }
}
