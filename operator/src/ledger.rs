//! What the machines of each NodePool have together, for the last look at its limits before a
//! launch.
//!
//! The plan has kept to the limits; this guards against two plans that each did, so what is in use
//! counts, not what a launch adds. A plan has many launches, so the machines are summed up for all
//! of them at once, and what they have may be a second old; NodeClaims that were created since are
//! counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tenon_planner::resources::Resources;
use tokio::time::Instant;

use crate::state::cluster::{Cluster, name};
use crate::state::resources;

/// Sums that are older are made anew.
const FRESH: Duration = Duration::from_secs(1);

/// Why nothing more may be launched for a NodePool.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    /// Its limits were reached meanwhile.
    #[error("nodepool {pool} exceeds its limit for {resource}: {used} of {limit} in use")]
    Exceeded {
        /// The NodePool.
        pool: String,
        /// Kubernetes' name of the resource.
        resource: String,
        /// In use, in the planner's unit.
        used: i64,
        /// The limit, in the planner's unit.
        limit: i64,
    },
    /// It is gone.
    #[error("nodepool {0} does not exist any more")]
    NoPool(String),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sums: Mutex<Option<Sums>>,
}

#[derive(Debug)]
struct Sums {
    since: Instant,
    /// By NodePool: what its machines have, and how many there are.
    pools: BTreeMap<String, (Resources, i64)>,
    /// The NodeClaims that were there, or were created since.
    claims: BTreeSet<String>,
}

impl Ledger {
    /// Whether a NodePool exists and its machines are within its limits.
    pub(crate) fn within_limits(&self, state: &Cluster, name: &str) -> Result<(), LimitError> {
        let pool = state.pool(name).ok_or_else(|| LimitError::NoPool(name.to_owned()))?;
        let limits = pool.spec.limits.as_ref().filter(|limits| !limits.is_empty());
        let Some(limits) = limits else { return Ok(()) };
        let mut sums = self.sums.lock();
        let now = Instant::now();
        let known = sums.take().filter(|sums| now.duration_since(sums.since) < FRESH);
        let sums = sums.insert(known.unwrap_or_else(|| Sums::of(state, now)));
        let (usage, n_nodes) = sums.pools.entry(name.to_owned()).or_default();
        for (resource, &limit) in limits {
            let limit = resources::amount(resource, limit);
            let used = if resource == "nodes" { *n_nodes } else { usage.get(resource) };
            if used > limit {
                let (pool, resource) = (name.to_owned(), resource.clone());
                return Err(LimitError::Exceeded { pool, resource, used, limit });
            }
        }
        Ok(())
    }

    /// A NodeClaim was created. What its machine will have shows when it is launched.
    pub(crate) fn created(&self, pool: &str, claim: &str) {
        if let Some(sums) = self.sums.lock().as_mut()
            && sums.claims.insert(claim.to_owned())
        {
            sums.pools.entry(pool.to_owned()).or_default().1 += 1;
        }
    }
}

impl Sums {
    fn of(state: &Cluster, now: Instant) -> Self {
        let claims = state.claims().map(|claim| name(&claim.metadata)).collect();
        Self { since: now, pools: state.pool_usages(), claims }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenon_crds::labels::LabelRules;

    use super::*;
    use crate::state::change::{Change, Object};

    const KIND: crate::cloud_provider::NodeClassKind = crate::cloud_provider::NodeClassKind {
        group: "karpenter.kwok.sh",
        kind: "KWOKNodeClass",
        label: "karpenter.kwok.sh/kwoknodeclass",
    };

    fn claim(cluster: &mut Cluster, name: &str, cpu: Option<&str>) {
        let capacity = cpu.map(|cpu| json!({"cpu": cpu}));
        let claim = json!({
            "metadata": {"name": name, "uid": name, "labels": {"karpenter.sh/nodepool": "small"}},
            "spec": {"nodeClassRef": {"group": KIND.group, "kind": KIND.kind, "name": "c"}, "requirements": []},
            "status": {"capacity": capacity.unwrap_or(json!({}))},
        });
        let claim = serde_json::from_value(claim).unwrap();
        cluster.apply(Change::Applied(Object::NodeClaim(Box::new(claim))));
    }

    /// A NodePool `small` with limits of four cores and two nodes, and `large` without any.
    fn cluster() -> Cluster {
        let mut cluster = Cluster::new(&[KIND], LabelRules::core());
        for (name, limits) in [("small", json!({"cpu": "4", "nodes": "2"})), ("large", json!({}))] {
            let class = json!({"group": KIND.group, "kind": KIND.kind, "name": "c"});
            let template = json!({"spec": {"nodeClassRef": class, "requirements": []}});
            let pool = json!({"metadata": {"name": name}, "spec": {"limits": limits, "template": template}});
            let pool = serde_json::from_value(pool).unwrap();
            cluster.apply(Change::Applied(Object::NodePool(Box::new(pool))));
        }
        cluster
    }

    fn refused(ledger: &Ledger, cluster: &Cluster) -> Option<String> {
        ledger.within_limits(cluster, "small").err().map(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn nodeclaims_that_were_created_since_count_once() {
        let (ledger, mut cluster) = (Ledger::default(), cluster());
        for name in ["a", "b"] {
            assert_eq!(refused(&ledger, &cluster), None);
            // The state may have it before or after it is told here.
            claim(&mut cluster, name, None);
            ledger.created("small", name);
            ledger.created("small", name);
        }
        assert_eq!(refused(&ledger, &cluster), None, "both are within the limit");
        ledger.created("small", "c");
        let told = "nodepool small exceeds its limit for nodes: 3 of 2 in use";
        assert_eq!(refused(&ledger, &cluster).as_deref(), Some(told));
        assert!(ledger.within_limits(&cluster, "large").is_ok());
        assert!(ledger.within_limits(&cluster, "gone").is_err());
        // It was not created after all, as far as the state knows.
        tokio::time::advance(FRESH).await;
        assert_eq!(refused(&ledger, &cluster), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_machines_turn_out_to_have_counts_within_a_second() {
        let (ledger, mut cluster) = (Ledger::default(), cluster());
        assert_eq!(refused(&ledger, &cluster), None);
        claim(&mut cluster, "a", Some("8"));
        tokio::time::advance(FRESH).await;
        let told = "nodepool small exceeds its limit for cpu: 8000 of 4000 in use";
        assert_eq!(refused(&ledger, &cluster).as_deref(), Some(told));
    }
}
