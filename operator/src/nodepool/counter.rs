//! `status.resources` and `status.nodes` of NodePools: what their machines have together.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenon_crds::{NodePool, Quantity, ResourceList};
use tenon_planner::resources::Resources;

use crate::cloud_provider::CloudProvider;
use crate::controller::Periodic;
use crate::operator::Operator;
use crate::planning;
use crate::state::cluster::{Cluster, name};
use crate::state::resources;
use crate::tasks::isolated;
use crate::write::Precondition;

/// How often they are counted.
const PERIOD: Duration = Duration::from_secs(5);

/// Counts.
pub(crate) struct Counter<P>(pub(crate) Arc<Operator<P>>);

impl<P: CloudProvider> Periodic for Counter<P> {
    const NAME: &'static str = "nodepool.counter";

    async fn pass(&mut self) -> Duration {
        if let Err(panicked) = isolated(pass(&self.0)).await {
            planning::tell(&panicked);
        }
        PERIOD
    }
}

async fn pass<P: CloudProvider>(operator: &Operator<P>) {
    let outdated = {
        let state = operator.state.read();
        if state.is_synced() { outdated(&state) } else { Vec::new() }
    };
    for (pool, resources, nodes) in outdated {
        let body = json!({"resources": resources, "nodes": nodes});
        if let Err(error) =
            operator.write.patch_pool_status(&pool, body, Precondition::SameUid).await
        {
            tracing::debug!(error = %crate::text::chain(&error), "failed to count nodes");
        }
    }
}

/// NodePools whose status says something else, with what it should say.
fn outdated(state: &Cluster) -> Vec<(Arc<NodePool>, ResourceList, i64)> {
    let mut sums = state.pool_usages();
    state
        .pools()
        .filter_map(|pool| {
            let (sum, nodes) = sums.remove(&name(&pool.metadata)).unwrap_or_default();
            let resources = counted(&sum, nodes, pool);
            let status = pool.status.as_ref();
            let known = status.and_then(|status| status.resources.as_ref());
            let same =
                known == Some(&resources) && status.is_some_and(|status| status.nodes == nodes);
            (!same).then(|| (Arc::clone(pool), resources, nodes))
        })
        .collect()
}

/// The usual resources even when there are none, so that columns are never empty. Resources that
/// are gone stay, as zero: a merge can't take them away.
fn counted(sum: &Resources, nodes: i64, pool: &NodePool) -> ResourceList {
    let mut list: ResourceList = ["cpu", "memory", "pods", "ephemeral-storage"]
        .map(|name| (name.to_owned(), resources::quantity(name, 0)))
        .into();
    let known = pool.status.as_ref().and_then(|status| status.resources.as_ref());
    for name in known.into_iter().flatten().map(|(name, _)| name) {
        list.insert(name.clone(), resources::quantity(name, 0));
    }
    list.extend(resources::to_list(sum));
    list.insert("nodes".to_owned(), Quantity::from_units(nodes));
    list
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::idle::{machine, operator, pool};

    #[tokio::test(start_paused = true)]
    async fn pools_are_told_what_their_machines_have_together_once() {
        let machines = [("a", "large"), ("b", "large"), ("c", "small")];
        let machines = machines.into_iter().flat_map(|(name, pool)| machine(name, pool));
        let mut gpus = pool("empty", json!({}));
        gpus["status"]["resources"] = json!({"nvidia.com/gpu": "8"});
        let pools = [pool("large", json!({})), pool("small", json!({})), gpus];
        let (operator, api) = operator(pools.into_iter().chain(machines).collect()).await;
        pass(&operator).await;
        assert_eq!(api.load().0, 3);
        let told = |name: &str| {
            let state = operator.state.read();
            let status = state.pool(name).unwrap().status.clone().unwrap();
            (status.nodes, serde_json::to_value(status.resources).unwrap())
        };
        let (nodes, resources) = told("large");
        assert_eq!((nodes, &resources["cpu"], &resources["nodes"]), (2, &json!("8"), &json!("2")));
        assert_eq!(told("small").1["cpu"], json!("4"));
        // What has gone is zero: a merge can't take it away.
        let (nodes, resources) = told("empty");
        assert_eq!((nodes, &resources["nvidia.com/gpu"]), (0, &json!("0")));
        pass(&operator).await;
        assert_eq!(api.load().0, 3, "nothing has changed");
    }
}
