//! NodePools as the planner sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use tenon_crds::conditions::READY;
use tenon_crds::labels::{self, LabelRules};
use tenon_crds::{BudgetLimit, ConditionStatus, Duration, NodePool, hash};
use tenon_planner::snapshot as plan;
use tenon_planner::snapshot::{CatalogId, NodeClassRef};

use super::{class_of, id, requirements};
use crate::cluster::{self, Cluster};
use crate::resources;

impl Cluster {
    pub(super) fn pool_in(
        &self,
        pool: &NodePool,
        catalogs: &BTreeMap<NodeClassRef, Arc<plan::Catalog>>,
        now: Timestamp,
    ) -> plan::NodePool {
        let name = cluster::name(&pool.metadata);
        let class = class_of(&pool.spec.template.spec.node_class_ref);
        let catalog = catalogs.keys().position(|known| *known == class);
        plan::NodePool {
            uid: pool.metadata.uid.clone().unwrap_or_default(),
            not_ready: not_ready(pool),
            weight: pool.weight(),
            replicas: pool.spec.replicas,
            catalog: catalog.map(|index| CatalogId(id(index))),
            template: template(pool, &name, class, self.rules()),
            limits: pool
                .spec
                .limits
                .iter()
                .flatten()
                .map(|(name, &limit)| (name.clone(), resources::amount(name, limit)))
                .collect(),
            disruption: disruption(pool, now),
            name,
        }
    }
}

fn not_ready(pool: &NodePool) -> Option<String> {
    if pool.metadata.deletion_timestamp.is_some() {
        return Some("NodePool is being deleted".to_owned());
    }
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice());
    let ready = conditions.unwrap_or_default().iter().find(|condition| condition.type_ == READY);
    match ready {
        Some(ready) if ready.status == ConditionStatus::True => None,
        Some(ready) => {
            let why = [ready.reason.as_str(), ready.message.as_str()];
            let why: Vec<&str> = why.into_iter().filter(|part| !part.is_empty()).collect();
            let separator = if why.is_empty() { "" } else { ", " };
            Some(format!("NodePool is not ready{separator}{}", why.join(": ")))
        }
        None => Some("NodePool is not ready, it has no condition Ready yet".to_owned()),
    }
}

fn template(
    pool: &NodePool,
    name: &str,
    class: NodeClassRef,
    rules: &LabelRules,
) -> plan::Template {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let spec = &pool.spec.template.spec;
    let mut labels: BTreeMap<_, _> = pool.spec.template.labels().map(owned).collect();
    labels.insert(labels::NODEPOOL.to_owned(), name.to_owned());
    labels.insert(spec.node_class_ref.label_key(), spec.node_class_ref.name.clone());
    let mut annotations: BTreeMap<_, _> = pool.spec.template.annotations().map(owned).collect();
    annotations.insert(labels::NODEPOOL_HASH.to_owned(), hash::node_pool(&pool.spec));
    annotations
        .insert(labels::NODEPOOL_HASH_VERSION.to_owned(), hash::NODE_POOL_HASH_VERSION.to_owned());
    let core = |taints: &[tenon_crds::Taint]| taints.iter().cloned().map(Taint::from).collect();
    plan::Template {
        labels,
        annotations,
        requirements: requirements(&spec.requirements, rules),
        taints: core(spec.taints()),
        startup_taints: core(spec.startup_taints()),
        node_class: class,
        expire_after: Some(spec.expire_after.as_str().to_owned()),
        termination_grace_period: spec
            .termination_grace_period
            .as_ref()
            // Karpenter copies the length and not the text: a NodeClaim has `1h0m0s` where the
            // NodePool has `1h`. A lifetime keeps its text there as well.
            .map(|period| Duration::from_nanos(period.as_nanos()).as_str().to_owned()),
    }
}

fn disruption(pool: &NodePool, now: Timestamp) -> plan::DisruptionPolicy {
    use tenon_crds::ConsolidationPolicy as Api;
    let disruption = &pool.spec.disruption;
    plan::DisruptionPolicy {
        consolidation_policy: match disruption.consolidation_policy {
            Api::WhenEmpty => plan::ConsolidationPolicy::WhenEmpty,
            Api::WhenEmptyOrUnderutilized => plan::ConsolidationPolicy::WhenEmptyOrUnderutilized,
            Api::Balanced => plan::ConsolidationPolicy::Balanced,
        },
        consolidate_after: disruption.consolidate_after.duration().map(Duration::as_signed),
        budgets: budgets(&disruption.budgets, now),
    }
}

/// The budgets that are in force. One that can't be evaluated forbids everything.
fn budgets(budgets: &[tenon_crds::Budget], now: Timestamp) -> Vec<plan::Budget> {
    let mut in_force = Vec::new();
    for budget in budgets {
        let nodes = match budget.limit(now) {
            Ok(Some(BudgetLimit::Count(count))) => plan::BudgetNodes::Count(count),
            Ok(Some(BudgetLimit::Percent(percent))) => plan::BudgetNodes::Percent(percent),
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(%error, "a disruption budget can't be evaluated, nothing is disrupted");
                let nodes = plan::BudgetNodes::Count(0);
                return vec![plan::Budget { nodes, reasons: Vec::new() }];
            }
        };
        let reasons: Option<Vec<_>> = budget
            .reasons
            .as_ref()
            .map(|reasons| reasons.iter().copied().map(disruption_reason).collect());
        // A list of no reasons covers nothing; to the planner an empty list is all.
        if reasons.as_ref().is_none_or(|reasons| !reasons.is_empty()) {
            in_force.push(plan::Budget { nodes, reasons: reasons.unwrap_or_default() });
        }
    }
    in_force
}

fn disruption_reason(reason: tenon_crds::DisruptionReason) -> plan::DisruptionReason {
    use tenon_crds::DisruptionReason as Api;
    match reason {
        Api::Underutilized => plan::DisruptionReason::Underutilized,
        Api::Empty => plan::DisruptionReason::Empty,
        Api::Drifted => plan::DisruptionReason::Drifted,
        Api::Unhealthy => plan::DisruptionReason::Unhealthy,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_claim_gets_a_grace_period_as_karpenter_spells_it_and_a_lifetime_as_it_was_written() {
        let pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"},
                "requirements": [],
                "expireAfter": "720h",
                "terminationGracePeriod": "1h",
            }}},
        });
        let pool: NodePool = serde_json::from_value(pool).unwrap();
        let class = class_of(&pool.spec.template.spec.node_class_ref);
        let template = template(&pool, "p", class, &LabelRules::core());
        assert_eq!(template.termination_grace_period.as_deref(), Some("1h0m0s"));
        assert_eq!(template.expire_after.as_deref(), Some("720h"));
    }
}
