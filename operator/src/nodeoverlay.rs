//! The controller of NodeOverlays: says on each whether it counts. Decisions do not wait for it:
//! the planner leaves out by itself what is in conflict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tenon_crds::conditions::nodeoverlay::{TYPES, VALIDATION_SUCCEEDED};
use tenon_crds::conditions::{Conditions, Subject};
use tenon_crds::{NodeOverlay, NodeOverlayStatus};

use crate::cloud_provider::CloudProvider;
use crate::controller::{Affected, Everything, Reconciler};
use crate::operator::Operator;
use crate::state::change::{Kind, Touched};
use crate::state::cluster::{Cluster, name};
use crate::state::{State, snapshot};
use crate::tasks::blocking;
use crate::work_queue::Action;
use crate::write::WriteError;

/// How often overlays are judged when nothing tells of a change.
const EVERY: Duration = Duration::from_secs(6 * 60 * 60);

/// How soon they are looked at again while not everything was listed.
const UNLISTED: Duration = Duration::from_secs(1);

/// Why an overlay does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// It means nothing.
    Invalid(String),
    /// One of the same weight, with this name, says something about the same.
    Conflict(String),
}

/// Which overlays there were when they were judged last, in which generation.
type Generations = BTreeMap<String, Option<i64>>;

/// Judges overlays whenever one of them or a NodePool has changed. It has to be run again when what
/// can be launched has.
pub(crate) struct NodeOverlays<P> {
    operator: Arc<Operator<P>>,
    known: Mutex<Generations>,
}

impl<P> NodeOverlays<P> {
    /// None was judged yet.
    pub(crate) fn new(operator: Arc<Operator<P>>) -> Self {
        Self { operator, known: Mutex::default() }
    }
}

impl<P: CloudProvider> Reconciler for NodeOverlays<P> {
    const NAME: &'static str = "nodeoverlay";
    // Each may be in conflict with each.
    type Key = Everything;
    type Error = WriteError;

    fn workers(&self) -> usize {
        1
    }

    fn affected(&self, touched: &Touched, _: &State) -> Affected<Everything> {
        match touched {
            Touched::NodePool(_) | Touched::Other(Kind::NodeOverlay) => Affected::One(Everything),
            _ => Affected::None,
        }
    }

    fn all(&self, _: &Cluster) -> Vec<Everything> {
        vec![Everything]
    }

    async fn reconcile(&self, _: &Everything) -> Result<Action, WriteError> {
        reconcile(&self.operator, &self.known).await
    }
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    known: &Mutex<Generations>,
) -> Result<Action, WriteError> {
    // Dereference.
    let (objects, offers) = {
        let state = operator.state.read();
        if !state.has_listed_all() {
            return Ok(Action::After(UNLISTED));
        }
        let objects: Vec<Arc<NodeOverlay>> = state.overlays().cloned().collect();
        (objects, operator.offers(&state))
    };
    let generations: Generations =
        objects.iter().map(|it| (name(&it.metadata), it.metadata.generation)).collect();
    let before = std::mem::replace(&mut *known.lock(), generations.clone());
    if before != generations {
        // Prices and capacity are others now.
        operator.context.wake.notify_one();
    }

    // Validate.
    let rules = operator.cloud.label_rules();
    let judging = objects.clone();
    let faults = blocking(move || {
        let invalid = |object: &NodeOverlay| snapshot::overlay::overlay(object, &rules).err();
        // Without overlays there is nothing that could be in conflict.
        let conflicts = if judging.is_empty() { &[] } else { offers.conflicts() };
        faults(&judging, conflicts, invalid)
    });
    let Some(faults) = faults.await else { return Ok(Action::Wait) };

    // Update the status.
    for object in objects {
        let status = judged(&object, faults.get(&name(&object.metadata)), operator.now());
        if object.status.as_ref() != Some(&status) {
            let body = json!({ "conditions": status.conditions });
            match operator.write.patch_overlay_status(&object, body).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Action::After(EVERY))
}

/// What is wrong with each overlay that does not count, by name.
fn faults(
    objects: &[Arc<NodeOverlay>],
    conflicts: &[(String, String)],
    invalid: impl Fn(&NodeOverlay) -> Option<String>,
) -> BTreeMap<String, Fault> {
    let invalid = objects
        .iter()
        .filter_map(|object| Some((name(&object.metadata), Fault::Invalid(invalid(object)?))));
    let conflicts =
        conflicts.iter().map(|(name, other)| (name.clone(), Fault::Conflict(other.clone())));
    invalid.chain(conflicts).collect()
}

/// The status of an overlay.
fn judged(object: &NodeOverlay, fault: Option<&Fault>, now: jiff::Timestamp) -> NodeOverlayStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let subject = Subject::of(&object.metadata);
    let mut set = Conditions::new(TYPES, &mut status.conditions, subject, now);
    match fault {
        None => set.set_true(VALIDATION_SUCCEEDED),
        Some(Fault::Invalid(why)) => set.set_false(VALIDATION_SUCCEEDED, "RuntimeValidation", why),
        Some(Fault::Conflict(other)) => set.set_false(
            VALIDATION_SUCCEEDED,
            "Conflict",
            &format!("conflict with NodeOverlay {other}, which has the same weight"),
        ),
    };
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_crds::{ConditionStatus, NodeOverlaySpec};

    fn object(name: &str) -> Arc<NodeOverlay> {
        let mut object = NodeOverlay::new(name, NodeOverlaySpec::default());
        object.metadata.generation = Some(3);
        Arc::new(object)
    }

    fn lines(status: &NodeOverlayStatus) -> Vec<String> {
        let conditions = status.conditions.iter();
        conditions.map(|c| format!("{} {} {} {}", c.type_, c.status, c.reason, c.message)).collect()
    }

    #[test]
    fn an_overlay_says_whether_it_counts_and_if_not_why() {
        let objects = ["a", "b", "c"].map(object);
        let conflicts = vec![("b".to_owned(), "a".to_owned())];
        let invalid = |object: &NodeOverlay| {
            (name(&object.metadata) == "c").then(|| "price is no number".to_owned())
        };
        let faults = faults(&objects, &conflicts, invalid);
        let now = "2026-11-20T00:00:00Z".parse().unwrap();
        let [a, b, c] = objects
            .each_ref()
            .map(|object| judged(object, faults.get(&name(&object.metadata)), now));
        assert_eq!(
            lines(&a),
            ["ValidationSucceeded True ValidationSucceeded ", "Ready True Ready "]
        );
        assert_eq!(
            lines(&b),
            [
                "ValidationSucceeded False Conflict conflict with NodeOverlay a, which has the same weight",
                "Ready False UnhealthyDependents ValidationSucceeded=False",
            ]
        );
        assert_eq!(lines(&c)[0], "ValidationSucceeded False RuntimeValidation price is no number");
        assert_eq!(a.conditions[0].observed_generation, Some(3));
        assert_eq!(a.conditions[0].status, ConditionStatus::True);
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written_again() {
        let mut object = NodeOverlay::clone(&object("a"));
        let first = judged(&object, None, "2026-11-20T00:00:00Z".parse().unwrap());
        object.status = Some(first.clone());
        assert_eq!(judged(&object, None, "2026-11-20T01:00:00Z".parse().unwrap()), first);
    }
}
