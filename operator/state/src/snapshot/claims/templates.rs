//! What machines of an instance type will publish: what the newest machine of that type and
//! NodeClass has published.
//!
//! No provider says which devices its types will have in the form of a driver. But what one machine
//! has published says it for the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tenon_crds::labels;
use tenon_planner::snapshot as plan;
use tenon_planner::snapshot::{DeviceTemplate, NodeClassRef, PoolState, Reach};

use super::super::class_of;
use crate::cluster::Cluster;
use crate::wire::created_at;

/// Gives the types of `catalogs` the devices that machines like them have.
pub(super) fn learn(
    cluster: &Cluster,
    published: &[plan::DevicePool],
    catalogs: &mut BTreeMap<NodeClassRef, Arc<plan::Catalog>>,
) {
    let mut of_node: BTreeMap<&str, Vec<DeviceTemplate>> = BTreeMap::new();
    for pool in published.iter().filter(|pool| pool.state == PoolState::Complete) {
        let nodes: Vec<Option<&str>> =
            pool.slices.iter().map(|slice| node_of(&slice.reach)).collect();
        // A pool of the network, or of several nodes, is not a machine's own.
        let [Some(node), rest @ ..] = nodes.as_slice() else { continue };
        if rest.iter().any(|other| *other != Some(*node)) {
            continue;
        }
        let templates = of_node.entry(*node).or_default();
        let devices = pool.slices.iter().flat_map(|slice| slice.devices.iter().cloned());
        templates.push(DeviceTemplate {
            driver: pool.driver.clone(),
            pool: format!("machine-{}", templates.len()),
            counters: pool.counters.clone(),
            devices: devices.collect(),
        });
    }
    let mut newest: BTreeMap<(NodeClassRef, &str), (Timestamp, &str)> = BTreeMap::new();
    for claim in cluster.claims() {
        let Some(node) = cluster.node_of(claim) else { continue };
        let up = node.label(labels::INITIALIZED) == Some("true");
        let Some(kind) = node.label(labels::INSTANCE_TYPE).filter(|_| up) else { continue };
        if of_node.contains_key(node.name()) {
            let class = class_of(&claim.spec.node_class_ref);
            let this = (created_at(&claim.metadata), node.name());
            let known = newest.entry((class, kind)).or_insert(this);
            *known = this.max(*known);
        }
    }
    for ((class, kind), (_, node)) in newest {
        let Some(catalog) = catalogs.get_mut(&class) else { continue };
        let types = &catalog.instance_types;
        if let Ok(at) = types.binary_search_by(|known| known.name.as_str().cmp(kind)) {
            let devices = of_node.get(node).cloned().unwrap_or_default();
            Arc::make_mut(catalog).instance_types[at].devices = devices;
        }
    }
}

/// The node that alone reaches a slice.
fn node_of(reach: &Reach) -> Option<&str> {
    match reach {
        Reach::Node(name) => Some(name),
        Reach::Everywhere | Reach::Nodes(_) => None,
    }
}
