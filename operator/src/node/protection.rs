//! Events about the annotation `karpenter.sh/do-not-disrupt` of pods: until when it protects, that
//! it has ended, and that its value means nothing.

use std::convert::Infallible;
use std::sync::Arc;

use jiff::Timestamp;

use crate::cloud_provider::CloudProvider;
use crate::controller::{Affected, Reconciler};
use crate::events::{Event, EventType, Reason, pod};
use crate::operator::Operator;
use crate::state::State;
use crate::state::change::{ObjectKey, Touched};
use crate::state::cluster::Cluster;
use crate::state::pod::Protection;
use crate::work_queue::Action;

/// Publishes the events.
pub(crate) struct ProtectionEvents<P>(pub(crate) Arc<Operator<P>>);

impl<P: CloudProvider> Reconciler for ProtectionEvents<P> {
    const NAME: &'static str = "node.protection";
    type Key = ObjectKey;
    type Error = Infallible;

    fn workers(&self) -> usize {
        self.0.options.workers(10, 100)
    }

    fn affected(&self, touched: &Touched, state: &State) -> Affected<ObjectKey> {
        match touched {
            Touched::Pod(key, _) if protected(&state.read(), key).is_some() => {
                Affected::One(key.clone())
            }
            _ => Affected::None,
        }
    }

    fn all(&self, state: &Cluster) -> Vec<ObjectKey> {
        let keys = state.pods().map(|(key, _)| key);
        keys.filter(|key| protected(state, key).is_some()).cloned().collect()
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Infallible> {
        Ok(tell(&self.0, key))
    }
}

/// The protection of a pod on a node of ours, and the pod's uid.
fn protected(state: &Cluster, key: &ObjectKey) -> Option<(Protection, Arc<str>)> {
    let pod = state.pod(key).filter(|pod| pod.protection != Protection::None)?;
    let node = state.node(pod.node.as_deref()?)?;
    state.claim_of(node)?;
    Some((pod.protection, Arc::clone(&pod.uid)))
}

fn tell<P: CloudProvider>(operator: &Operator<P>, key: &ObjectKey) -> Action {
    let Some((protection, uid)) = protected(&operator.state.read(), key) else {
        return Action::Wait;
    };
    let now = operator.now();
    if let Some((event_type, reason, message)) = say(protection, now) {
        let reference = key.pod(uid);
        let event = match event_type {
            EventType::Normal => Event::normal(&pod(&reference), reason, message),
            EventType::Warning => Event::warning(&pod(&reference), reason, message),
        };
        operator.context.recorder.publish(event);
    }
    match protection {
        Protection::Until(end) if now < end => {
            Action::After(end.duration_since(now).unsigned_abs())
        }
        _ => Action::Wait,
    }
}

/// What is said about a protection.
fn say(protection: Protection, now: Timestamp) -> Option<(EventType, Reason, String)> {
    match protection {
        Protection::Until(end) if now < end => Some((
            EventType::Normal,
            Reason::DoNotDisruptUntil,
            format!("Pod must not be disrupted until {end}"),
        )),
        Protection::Until(end) => Some((
            EventType::Normal,
            Reason::DoNotDisruptGracePeriodElapsed,
            format!("Pod may be disrupted since {end}"),
        )),
        Protection::Invalid => Some((
            EventType::Warning,
            Reason::InvalidDoNotDisruptAnnotation,
            "The value of the annotation karpenter.sh/do-not-disrupt is invalid and ignored: use \"true\" or a duration such as \"2h\"".to_owned(),
        )),
        Protection::None | Protection::Always | Protection::For(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protection_that_ends_is_told_before_and_after_and_a_wrong_value_always() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let reason = |protection| say(protection, at(100)).map(|(_, reason, _)| reason);
        assert_eq!(reason(Protection::Until(at(101))), Some(Reason::DoNotDisruptUntil));
        assert_eq!(
            reason(Protection::Until(at(100))),
            Some(Reason::DoNotDisruptGracePeriodElapsed)
        );
        assert_eq!(reason(Protection::Invalid), Some(Reason::InvalidDoNotDisruptAnnotation));
        assert_eq!(reason(Protection::Always), None);
        assert_eq!(reason(Protection::None), None);
    }
}
