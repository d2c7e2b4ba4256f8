//! Whether the nodes of a NodePool register: the last four outcomes decide about the condition
//! NodeRegistrationHealthy, which is for people only.
//!
//! The outcomes are in memory; the condition outlives the leader, and its successor goes on from
//! there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use parking_lot::Mutex;
use serde_json::json;
use tenon_crds::conditions::nodepool::{NODE_REGISTRATION_HEALTHY, TYPES};
use tenon_crds::conditions::{Conditions, Subject, nodeclaim};
use tenon_crds::{ConditionStatus, NodeClaim};

use crate::claims::pool_of;
use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;
use crate::write::{Precondition, WriteError};

/// So many outcomes are remembered.
const WINDOW: usize = 4;

/// The last outcomes per NodePool, by uid.
#[derive(Debug, Default)]
pub(crate) struct Health {
    outcomes: Mutex<BTreeMap<String, VecDeque<bool>>>,
    /// One writes at a time: of hundreds of machines that register at once all but the first find
    /// that everything is said.
    writing: tokio::sync::Mutex<()>,
}

impl Health {
    /// Remembers an outcome; answers whether half of the window or more are failures. `known` is
    /// the condition that the first outcome meets: a NodePool that was unhealthy for the former
    /// leader is not healthy because one node registers.
    fn remember(&self, pool: &str, known: ConditionStatus, registered: bool) -> bool {
        let mut all = self.outcomes.lock();
        let outcomes = all.entry(pool.to_owned()).or_insert_with(|| match known {
            ConditionStatus::False => [false; WINDOW / 2].into(),
            _ => VecDeque::new(),
        });
        if outcomes.len() == WINDOW {
            outcomes.pop_front();
        }
        outcomes.push_back(registered);
        let failures = outcomes.iter().filter(|&&registered| !registered).count();
        failures * 2 >= WINDOW
    }

    /// Keeps what is known of these NodePools, by uid, and forgets the others.
    fn keep(&self, pools: &BTreeSet<String>) {
        self.outcomes.lock().retain(|pool, _| pools.contains(pool));
    }

    /// Starts anew: the NodePool or its NodeClass has changed.
    pub(crate) fn forget(&self, pool: &str) {
        self.outcomes.lock().remove(pool);
    }

    /// Whether what is known is about an older NodePool or NodeClass.
    pub(crate) fn is_stale(
        set: &Conditions<'_>,
        generation: i64,
        observed_class: Option<i64>,
        class: Option<i64>,
    ) -> bool {
        let known = set.get(NODE_REGISTRATION_HEALTHY);
        let same_pool = known.is_some_and(|known| known.observed_generation == Some(generation));
        !same_pool || (class.is_some() && class != observed_class)
    }

    /// A NodeClaim's machine has, or has not, registered: the condition of its NodePool follows.
    pub(crate) async fn record<P: CloudProvider>(
        &self,
        operator: &Operator<P>,
        claim: &NodeClaim,
        registered: bool,
    ) -> Result<(), WriteError> {
        let _turn = self.writing.lock().await;
        let pool = {
            let state = operator.state.read();
            self.keep(&state.pools().filter_map(|pool| pool.metadata.uid.clone()).collect());
            state.pool(pool_of(claim)).cloned()
        };
        let Some(pool) = pool else { return Ok(()) };
        let owned = claim.metadata.owner_references.iter().flatten();
        if !owned.into_iter().any(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref()) {
            return Ok(());
        }
        let mut after = (*pool).clone();
        let subject = Subject::of(&after.metadata);
        let status = after.status.get_or_insert_default();
        let mut set = Conditions::new(TYPES, &mut status.conditions, subject, operator.now());
        let uid = pool.metadata.uid.as_deref().unwrap_or_default();
        let unhealthy = self.remember(uid, set.status(NODE_REGISTRATION_HEALTHY), registered);
        match (registered, unhealthy) {
            (true, false) => set.set_true(NODE_REGISTRATION_HEALTHY),
            (false, true) if set.status(NODE_REGISTRATION_HEALTHY) != ConditionStatus::False => {
                let (reason, message) = why(claim);
                set.set_false(NODE_REGISTRATION_HEALTHY, &reason, &message)
            }
            _ => false,
        };
        if after.status != pool.status {
            let conditions = after.status.map(|status| status.conditions).unwrap_or_default();
            let body = json!({ "conditions": conditions });
            operator.write.patch_pool_status(&pool, body, Precondition::Unchanged).await?;
        }
        Ok(())
    }
}

fn why(claim: &NodeClaim) -> (String, String) {
    let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice());
    let launched = conditions.unwrap_or_default().iter().find(|c| c.type_ == nodeclaim::LAUNCHED);
    match launched {
        Some(launched) if launched.status != ConditionStatus::True => {
            (launched.reason.clone(), launched.message.clone())
        }
        _ => ("RegistrationFailed".to_owned(), "Failed to register node".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failures_of_the_last_four_are_unhealthy() {
        let health = Health::default();
        let outcomes = [true, false, true, false, true, true, true];
        let remember = |registered| health.remember("pool", ConditionStatus::Unknown, registered);
        let unhealthy = outcomes.map(remember);
        assert_eq!(unhealthy, [false, false, false, true, true, false, false]);
    }

    #[test]
    fn a_new_leader_goes_on_from_what_the_condition_says() {
        let after = |known, outcomes: [bool; 3]| {
            let health = Health::default();
            outcomes.map(|registered| health.remember("pool", known, registered))
        };
        // As for the former leader: what failed twice needs three successes.
        assert_eq!(after(ConditionStatus::False, [true, true, true]), [true, true, false]);
        assert_eq!(after(ConditionStatus::True, [true, false, true]), [false, false, false]);
        assert_eq!(after(ConditionStatus::Unknown, [false, true, false]), [false, false, true]);
    }

    #[test]
    fn nothing_is_kept_of_nodepools_that_are_gone() {
        let health = Health::default();
        for pool in ["a", "b"] {
            health.remember(pool, ConditionStatus::Unknown, true);
        }
        health.keep(&["b".to_owned()].into());
        assert_eq!(health.outcomes.lock().keys().collect::<Vec<_>>(), ["b"]);
    }
}
