//! `status.resources` and `status.nodes` of NodePools: what their machines have together.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenon_crds::{NodePool, Quantity, ResourceList};
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;
use crate::state::cluster::{Cluster, name};
use crate::state::resources;

/// How often they are counted.
const PERIOD: Duration = Duration::from_secs(5);

/// Counts until `stop`.
pub async fn run<P: CloudProvider>(operator: Arc<Operator<P>>, stop: CancellationToken) {
    loop {
        let outdated = {
            let state = operator.state.read();
            if state.is_synced() { outdated(&state) } else { Vec::new() }
        };
        for (pool, resources, nodes) in outdated {
            let body = json!({"resources": resources, "nodes": nodes});
            if let Err(error) = operator.write.patch_pool_status(&pool, body, false).await {
                tracing::debug!(error = %crate::logging::chain(&error), "counting failed");
            }
        }
        if stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_none() {
            return;
        }
    }
}

/// NodePools whose status says something else, with what it should say.
fn outdated(state: &Cluster) -> Vec<(Arc<NodePool>, ResourceList, i64)> {
    state
        .pools()
        .filter_map(|pool| {
            let (resources, nodes) = counted(state, pool);
            let status = pool.status.as_ref();
            let known = status.and_then(|status| status.resources.as_ref());
            let same =
                known == Some(&resources) && status.is_some_and(|status| status.nodes == nodes);
            (!same).then(|| (Arc::clone(pool), resources, nodes))
        })
        .collect()
}

/// The usual resources even when there are none, so that columns are never empty. Resources that are gone stay, as zero: a merge can't take them away.
fn counted(state: &Cluster, pool: &NodePool) -> (ResourceList, i64) {
    let (sum, nodes) = state.pool_usage(&name(&pool.metadata));
    let mut list: ResourceList = ["cpu", "memory", "pods", "ephemeral-storage"]
        .map(|name| (name.to_owned(), resources::quantity(name, 0)))
        .into();
    let known = pool.status.as_ref().and_then(|status| status.resources.as_ref());
    for name in known.into_iter().flatten().map(|(name, _)| name) {
        list.insert(name.clone(), resources::quantity(name, 0));
    }
    list.extend(resources::to_list(&sum));
    list.insert("nodes".to_owned(), Quantity::from_units(nodes));
    (list, nodes)
}
