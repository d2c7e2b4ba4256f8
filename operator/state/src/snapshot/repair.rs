//! What the planner learns about sick machines and their reboots.

use tenon_crds::conditions::nodeclaim::REBOOTING;
use tenon_crds::{ConditionStatus, NodeClaim, labels};
use tenon_planner::snapshot as plan;

use crate::cluster::{Cluster, condition_of};
use crate::wire;

impl Cluster {
    /// From now on snapshots carry the provider's repair policies, and the conditions of Nodes that
    /// have to do with them.
    pub fn repair_by(&mut self, policies: Vec<plan::RepairPolicy>) {
        self.repair_policies = policies;
    }

    pub(super) fn health(
        &self,
        claim: Option<&NodeClaim>,
        node: Option<&wire::Node>,
    ) -> plan::Health {
        let veto = node.and_then(|node| node.annotation(labels::DO_NOT_REPAIR));
        plan::Health {
            conditions: node.map(|node| self.ailments(node)).unwrap_or_default(),
            joined_at: node.map(|node| wire::created_at(&node.metadata)),
            do_not_repair: veto == Some("true"),
            reboots: self.reboots(claim),
        }
    }

    /// Conditions of a Node that a repair policy is about, and of which is known how old they are.
    pub fn ailments(&self, node: &wire::Node) -> Vec<plan::NodeCondition> {
        let known = |it: &&wire::Condition| {
            let mut policies = self.repair_policies.iter();
            policies.any(|policy| policy.condition == it.type_ && policy.status == it.status)
        };
        let conditions = node.status.conditions.iter().filter(known).filter_map(|it| {
            Some(plan::NodeCondition {
                type_: it.type_.clone(),
                status: it.status.clone(),
                reason: it.reason.clone().unwrap_or_default(),
                since: it.last_transition_time?,
            })
        });
        conditions.collect()
    }

    /// What its NodeClaim says about reboots, and what is remembered of them.
    fn reboots(&self, claim: Option<&NodeClaim>) -> plan::Reboots {
        let rebooting = claim.and_then(|claim| condition_of(claim, REBOOTING));
        let is = |status| rebooting.filter(|(is, _)| *is == status).map(|(_, since)| since);
        let uid = claim.and_then(|claim| claim.metadata.uid.as_deref());
        plan::Reboots {
            in_progress: is(ConditionStatus::True).is_some(),
            ended_at: is(ConditionStatus::False),
            decided_at: uid.and_then(|uid| self.reboots.get(uid)).cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenon_crds::labels::LabelRules;

    use super::*;
    use crate::change::{Change, Kind, Object, ObjectKey};
    use crate::node_class::NodeClassKind;

    #[test]
    fn only_conditions_that_a_policy_is_about_come_into_the_snapshot() {
        let policy = plan::RepairPolicy {
            condition: "KernelReady".to_owned(),
            status: "False".to_owned(),
            reason: None,
            toleration: jiff::SignedDuration::ZERO,
            termination_grace_period: None,
            priority: 0,
            action: plan::RepairAction::ReplaceNode,
        };
        let node = serde_json::from_value(json!({"status": {"conditions": [
            {"type": "KernelReady", "status": "False", "reason": "Hung", "lastTransitionTime": "1970-01-01T00:01:00Z"},
            {"type": "KernelReady", "status": "False"},
            {"type": "KernelReady", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:01:00Z"},
        ]}})).expect("a Node");
        let mut cluster = Cluster::new(&[], LabelRules::core());
        assert_eq!(cluster.ailments(&node), []);
        cluster.repair_by(vec![policy]);
        let found = cluster.ailments(&node);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&*found[0].reason, found[0].since.as_second()), ("Hung", 60));
    }

    #[test]
    fn a_reboot_is_in_progress_or_has_ended() {
        let told = |status: &str| {
            let claim = serde_json::from_value(json!({
                "metadata": {"name": "a"},
                "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []},
                "status": {"conditions": [{"type": "Rebooting", "status": status, "reason": "r", "message": "",
                    "lastTransitionTime": "1970-01-01T00:01:00Z"}]},
            }));
            Cluster::new(&[], LabelRules::core()).reboots(Some(&claim.expect("a NodeClaim")))
        };
        assert!(told("True").in_progress && told("True").ended_at.is_none());
        assert!(!told("False").in_progress && told("False").ended_at.is_some());
        let none = Cluster::new(&[], LabelRules::core()).reboots(None);
        assert_eq!(none, plan::Reboots::default());
    }

    #[test]
    fn reboots_are_remembered_as_long_as_their_nodeclaim_is_there() {
        const KINDS: &[NodeClassKind] = &[NodeClassKind { group: "g", kind: "k", label: "g/k" }];
        let mut cluster = Cluster::new(KINDS, LabelRules::core());
        let claim = |uid: &str| -> NodeClaim {
            let claim = json!({
                "metadata": {"name": "a", "uid": uid},
                "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []},
            });
            serde_json::from_value(claim).expect("a NodeClaim")
        };
        let at = |second| jiff::Timestamp::from_second(second).expect("a moment");
        cluster.apply(Change::Applied(Object::NodeClaim(Box::new(claim("1")))));
        for second in 0..20 {
            cluster.apply(Change::Rebooting("1".to_owned(), at(second)));
        }
        let remembered = cluster.reboots(Some(&claim("1"))).decided_at;
        assert_eq!((remembered.len(), remembered.last()), (8, Some(&at(19))));
        assert_eq!(cluster.reboots(Some(&claim("2"))).decided_at, [], "another machine");
        cluster.apply(Change::Deleted(Kind::NodeClaim, ObjectKey::cluster("a"), 0));
        assert_eq!(cluster.reboots(Some(&claim("1"))).decided_at, []);
    }
}
