//! What a reboot needs next, from the NodeClaim, its Node and the time: drain, ask the cloud, wait
//! for the new boot, or give up.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenon_crds::conditions::nodeclaim::{INITIALIZED, REBOOTING};
use tenon_crds::conditions::{Condition, ConditionStatus};
use tenon_crds::{NodeClaim, labels};

use crate::node::drain::Urge;
use crate::state::cluster::annotation;
use crate::watch::wire::Node;

/// Reason of the condition Rebooting: it was decided.
pub(crate) const REQUESTED: &str = "RebootRequested";
/// The cloud has accepted it.
pub(super) const ISSUED: &str = "RebootIssued";

/// A machine is looked at again so often.
const POLL: SignedDuration = SignedDuration::from_secs(15);
/// The cloud is asked for so long. Before that, a Node that is missing may come back for so long.
const ISSUANCE: SignedDuration = SignedDuration::from_mins(5);
/// The new boot is waited for so long.
const RECOVERY: SignedDuration = SignedDuration::from_mins(20);
/// A drain takes this time at least, so that every pod that was on its way to the node is seen.
const LEAST_DRAIN: SignedDuration = SignedDuration::from_secs(5);

/// A reboot that is under way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reboot {
    /// When it was decided.
    pub(super) requested_at: Timestamp,
    /// Since when the machine restarts; nothing before the cloud has accepted that.
    issued_at: Option<Timestamp>,
    /// For what, for people.
    pub(super) message: String,
    /// How long the drain may take; `None` is as long as it takes. `Err` says what is wrong with
    /// what is written there.
    bound: Result<Option<SignedDuration>, String>,
    /// The boot that is to end, once the cloud was to be asked.
    pre_boot_id: Option<String>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Ask the pods to go, and look again after this time.
    Drain(Urge, Duration),
    /// Ask the cloud to end this boot. The boot's id is written down first.
    Issue(String),
    /// Write down that the machine restarts.
    Issued,
    /// Look again after this time. Whether the new boot has been seen: pods may come to it again.
    Wait(Duration, bool),
    /// The machine is back.
    Succeed,
    /// It will not be.
    Fail(Failed),
}

/// Why a reboot fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// What is asked for makes no sense; nothing happened to the machine.
    Invalid(String),
    /// The cloud does not reboot machines.
    NotSupported,
    /// The cloud refuses the reboot, with this message: the node is replaced.
    Rejected(String),
    /// The cloud could not be asked in time.
    NotIssued,
    /// The machine did not come back in time.
    NotRecovered,
}

impl Failed {
    /// As metrics label it.
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid_request",
            Self::NotSupported | Self::Rejected(_) | Self::NotIssued => "provider_error",
            Self::NotRecovered => "recovery_timeout",
        }
    }

    /// As the event tells it.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Invalid(why) => format!("invalid reboot request: {why}"),
            Self::NotSupported => "reboot not implemented by the cloud provider".to_owned(),
            Self::Rejected(why) => format!("reboot rejected by the cloud provider: {why}"),
            Self::NotIssued => "reboot was not issued within the issuance timeout".to_owned(),
            Self::NotRecovered => "node did not recover within the observation window".to_owned(),
        }
    }
}

impl Reboot {
    /// The reboot of a NodeClaim that is not going.
    pub(super) fn of(claim: &NodeClaim) -> Option<Self> {
        if claim.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let rebooting = condition(claim, REBOOTING)?;
        if rebooting.status != ConditionStatus::True {
            return None;
        }
        let initialized = condition(claim, INITIALIZED);
        let requested_at = rebooting.last_transition_time.0;
        let is_issued = rebooting.reason == ISSUED;
        Some(Self {
            requested_at,
            issued_at: is_issued.then(|| match initialized {
                Some(initialized) if initialized.status == ConditionStatus::Unknown => {
                    initialized.last_transition_time.0
                }
                _ => requested_at,
            }),
            message: rebooting.message.clone(),
            bound: bound(annotation(claim, labels::REBOOT_TERMINATION_GRACE_PERIOD)),
            pre_boot_id: annotation(claim, labels::REBOOT_PRE_BOOT_ID).map(str::to_owned),
        })
    }

    /// How long the drain may take, where that is bounded.
    pub(super) fn drain_bound(&self) -> Option<SignedDuration> {
        self.bound.clone().ok().flatten()
    }

    /// Since when the machine restarts.
    pub(super) fn issued_at(&self) -> Option<Timestamp> {
        self.issued_at
    }

    /// By this name the cloud knows the reboot: the same however often it is asked.
    pub(super) fn operation(&self, uid: &str, boot: &str) -> String {
        format!("{uid}-{}-{boot}", self.requested_at.as_nanosecond())
    }

    /// What to do next. `waiting` is how many pods the drain waits for.
    pub(super) fn step(&self, node: Option<&Node>, waiting: usize, now: Timestamp) -> Step {
        let bound = match &self.bound {
            Ok(bound) => *bound,
            Err(why) => return Step::Fail(Failed::Invalid(why.clone())),
        };
        if self.issued_at.is_some() {
            self.recovering(node, now)
        } else {
            self.issuing(bound, node, waiting, now)
        }
    }

    fn issuing(
        &self,
        bound: Option<SignedDuration>,
        node: Option<&Node>,
        waiting: usize,
        now: Timestamp,
    ) -> Step {
        let Some(node) = node else {
            let deadline = after(self.requested_at, ISSUANCE);
            let gone = Step::Fail(Failed::NotIssued);
            return if now < deadline { Step::Wait(until(deadline, now), false) } else { gone };
        };
        let boot = &node.status.node_info.boot_id;
        if let Some(before) = &self.pre_boot_id {
            // The operator was restarted, or the cloud did not answer: the machine may have been
            // rebooted all the same.
            return if before == boot { Step::Issue(boot.clone()) } else { Step::Issued };
        }
        let settled = after(self.requested_at, LEAST_DRAIN);
        let deadline = bound.map(|bound| after(self.requested_at, bound.max(LEAST_DRAIN)));
        if bound.is_some_and(|bound| bound.is_zero())
            || deadline.is_some_and(|deadline| now >= deadline)
            || (waiting == 0 && now >= settled)
        {
            return Step::Issue(boot.clone());
        }
        let again = if waiting == 0 { settled } else { deadline.unwrap_or(Timestamp::MAX) };
        Step::Drain(Urge::Ask(deadline), until(again, now))
    }

    fn recovering(&self, node: Option<&Node>, now: Timestamp) -> Step {
        let before = self.pre_boot_id.as_deref().unwrap_or_default();
        let is_new = node.is_some_and(|node| node.status.node_info.boot_id != before);
        if is_new && node.is_some_and(Node::is_ready) {
            return Step::Succeed;
        }
        let deadline = after(self.issued_at.unwrap_or(self.requested_at), RECOVERY);
        if now >= deadline {
            return Step::Fail(Failed::NotRecovered);
        }
        Step::Wait(until(deadline, now), is_new)
    }
}

/// Whether the cloud was asked for long enough, since this moment.
pub(super) fn asked_long_enough(since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(since) > ISSUANCE
}

/// How long to wait for a moment: no longer than machines are left alone.
fn until(moment: Timestamp, now: Timestamp) -> Duration {
    now.duration_until(moment).clamp(SignedDuration::from_millis(1), POLL).unsigned_abs()
}

fn after(moment: Timestamp, time: SignedDuration) -> Timestamp {
    moment.checked_add(time).unwrap_or(Timestamp::MAX)
}

fn condition<'c>(claim: &'c NodeClaim, type_: &str) -> Option<&'c Condition> {
    claim.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}

/// The bound that is written on a NodeClaim.
fn bound(text: Option<&str>) -> Result<Option<SignedDuration>, String> {
    let Some(text) = text else { return Ok(None) };
    let key = labels::REBOOT_TERMINATION_GRACE_PERIOD;
    let bound: tenon_crds::Duration =
        text.parse().map_err(|error| format!("annotation {key} is {text:?}: {error}"))?;
    if bound.as_nanos() < 0 {
        return Err(format!("annotation {key} is {text:?}, which is negative"));
    }
    Ok(Some(bound.as_signed()))
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "objects are written down where they are used")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn time(second: i64) -> String {
        at(second).to_string()
    }

    /// A NodeClaim whose reboot was decided at second 1000.
    fn claim(reason: &str, annotations: Value) -> NodeClaim {
        let condition = |type_: &str, status: &str, reason: &str, since| json!({"type": type_, "status": status, "reason": reason, "message": "for Ready/Hung", "lastTransitionTime": time(since)});
        let issued = reason == ISSUED;
        let initialized = if issued { ("Unknown", 1100) } else { ("True", 10) };
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "a", "uid": "u", "annotations": annotations},
            "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []},
            "status": {"conditions": [
                condition("Rebooting", "True", reason, 1000),
                condition("Initialized", initialized.0, "Rebooting", initialized.1),
            ]},
        }))
        .unwrap()
    }

    fn bounded(text: &str) -> Value {
        json!({ "karpenter.sh/reboot-termination-grace-period": text })
    }

    fn node(boot: &str, ready: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {
            "nodeInfo": {"bootID": boot}, "conditions": [{"type": "Ready", "status": ready}]}}))
        .unwrap()
    }

    fn requested(annotations: Value, waiting: usize, now: i64) -> Step {
        let reboot = Reboot::of(&claim(REQUESTED, annotations)).unwrap();
        reboot.step(Some(&node("one", "False")), waiting, at(now))
    }

    fn issue() -> Step {
        Step::Issue("one".to_owned())
    }

    fn drain(deadline: Option<i64>, seconds: u64) -> Step {
        Step::Drain(Urge::Ask(deadline.map(at)), Duration::from_secs(seconds))
    }

    #[test]
    fn a_drain_takes_as_long_as_it_is_bounded_and_what_is_left_rides_along() {
        assert_eq!(requested(bounded("1m"), 2, 1001), drain(Some(1060), 15));
        assert_eq!(requested(bounded("1m"), 2, 1050), drain(Some(1060), 10));
        assert_eq!(requested(bounded("1m"), 2, 1060), issue());
        assert_eq!(
            requested(bounded("2s"), 2, 1003),
            drain(Some(1005), 2),
            "five seconds at least"
        );
        assert_eq!(requested(bounded("0s"), 2, 1000), issue(), "at once, with pods on board");
    }

    #[test]
    fn without_a_bound_a_drain_takes_as_long_as_it_takes() {
        assert_eq!(requested(json!({}), 1, 1_000_000), drain(None, 15));
        assert_eq!(requested(json!({}), 0, 1_000_000), issue());
    }

    #[test]
    fn also_an_empty_node_is_left_five_seconds() {
        assert_eq!(requested(json!({}), 0, 1002), drain(None, 3));
        assert_eq!(requested(json!({}), 0, 1005), issue());
        assert_eq!(requested(bounded("1m"), 0, 1005), issue());
    }

    #[test]
    fn a_bound_that_means_nothing_fails_the_request_and_nothing_else() {
        for text in ["soon", "-1m", ""] {
            let Step::Fail(failed) = requested(bounded(text), 0, 2000) else { panic!("{text}") };
            assert_eq!(failed.result(), "invalid_request");
            assert!(failed.message().contains(&format!("{text:?}")), "{failed:?}");
        }
    }

    #[test]
    fn a_reboot_that_was_asked_for_is_asked_for_again_without_a_drain_unless_it_has_happened() {
        let asked = |boot: &str| {
            let reboot =
                Reboot::of(&claim(REQUESTED, json!({"karpenter.sh/reboot-pre-boot-id": "one"})))
                    .unwrap();
            reboot.step(Some(&node(boot, "True")), 7, at(1001))
        };
        assert_eq!(asked("one"), issue());
        assert_eq!(asked("two"), Step::Issued);
    }

    #[test]
    fn a_machine_is_back_when_it_is_ready_in_another_boot() {
        let annotations = json!({"karpenter.sh/reboot-pre-boot-id": "one"});
        let reboot = Reboot::of(&claim(ISSUED, annotations)).unwrap();
        let step = |boot, ready, now| reboot.step(Some(&node(boot, ready)), 3, at(now));
        let poll = Duration::from_secs(15);
        assert_eq!(step("one", "True", 1200), Step::Wait(poll, false));
        assert_eq!(step("two", "False", 1200), Step::Wait(poll, true));
        assert_eq!(step("two", "True", 1200), Step::Succeed);
        // Counted from when it was issued.
        assert_eq!(step("two", "False", 1100 + 1199), Step::Wait(Duration::from_secs(1), true));
        assert_eq!(step("two", "False", 1100 + 1200), Step::Fail(Failed::NotRecovered));
        assert_eq!(step("two", "True", 1100 + 1200), Step::Succeed, "late is back, too");
    }

    #[test]
    fn a_node_that_is_missing_is_waited_for_until_its_phase_ends() {
        let step =
            |reason, now| Reboot::of(&claim(reason, json!({}))).unwrap().step(None, 0, at(now));
        assert_eq!(step(REQUESTED, 1299), Step::Wait(Duration::from_secs(1), false));
        assert_eq!(step(REQUESTED, 1300), Step::Fail(Failed::NotIssued));
        assert_eq!(step(ISSUED, 2299), Step::Wait(Duration::from_secs(1), false));
        assert_eq!(step(ISSUED, 2300), Step::Fail(Failed::NotRecovered));
    }

    #[test]
    fn the_cloud_knows_a_reboot_by_what_is_written_on_the_nodeclaim() {
        let reboot = Reboot::of(&claim(REQUESTED, json!({}))).unwrap();
        assert_eq!(reboot.operation("u", "one"), "u-1000000000000-one");
    }

    #[test]
    fn what_is_over_or_going_is_left_alone() {
        let mut over = claim(REQUESTED, json!({}));
        over.status.as_mut().unwrap().conditions[0].status = ConditionStatus::False;
        assert_eq!(Reboot::of(&over), None);
        let mut going = claim(REQUESTED, json!({}));
        going.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
        assert_eq!(Reboot::of(&going), None);
    }
}
