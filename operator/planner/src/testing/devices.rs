//! What drivers and kube-scheduler do once a plan has been carried out: new machines publish their devices, claims get those that were planned.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::{ClaimDevices, PlacedDevices, Plan, PodRef};
use crate::snapshot::{
    AllocatedDevice, ClaimAllocation, DevicePool, DeviceSlice, Devices, Node, NodeTerm, Placement,
    Reach, Snapshot,
};

/// Publishes and allocates in `after`, the cluster once `plan` for `before` has been carried out.
pub(super) fn allocate(before: &Snapshot, plan: &Plan, after: &mut Snapshot) {
    let Some(devices) = &before.devices else { return };
    let mut devices = Devices::clone(devices);
    let known: Vec<&str> = before.nodes.iter().map(|node| node.key.as_str()).collect();
    for node in after.nodes.iter().filter(|node| !known.contains(&node.key.as_str())) {
        publish(before, node, &mut devices);
    }
    devices.pools.sort_by(|a, b| (&a.driver, &a.name).cmp(&(&b.driver, &b.name)));

    let node_of = |pod: &PodRef| {
        let pod = after.pods.iter().find(|known| known.uid == pod.uid)?;
        match pod.placement {
            Placement::Bound(node) => Some(&after.nodes[node.0 as usize]),
            _ => None,
        }
    };
    let launches =
        plan.launches.iter().chain(plan.commands.iter().flat_map(|command| &command.replacements));
    for launch in launches {
        let Some(node) = launch.pods.first().and_then(node_of) else { continue };
        let kind = &node.labels["node.kubernetes.io/instance-type"];
        for placed in launch.devices.iter().filter(|it| it.instance_types.contains(kind)) {
            give(&mut devices, node, placed);
        }
    }
    let commands = plan.commands.iter().flat_map(|command| &command.devices);
    for placed in plan.devices.iter().chain(commands) {
        let node = after.nodes.iter().find(|node| Some(&node.key) == placed.machine.as_ref());
        if let Some(node) = node {
            give(&mut devices, node, placed);
        }
    }
    let mut users: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for pod in after.pods.iter().filter(|pod| matches!(pod.placement, Placement::Bound(_))) {
        for &claim in &pod.claims {
            users.entry(claim).or_default().push(pod.uid.clone());
        }
    }
    for (index, claim) in (0..).zip(&mut devices.claims) {
        claim.reserved_for = users.remove(&index).unwrap_or_default();
    }
    after.devices = Some(Arc::new(devices));
}

fn publish(before: &Snapshot, node: &Node, devices: &mut Devices) {
    let kind = &node.labels["node.kubernetes.io/instance-type"];
    let types = before.catalogs.iter().flat_map(|catalog| &catalog.instance_types);
    for template in types.filter(|it| it.name == *kind).flat_map(|it| &it.devices) {
        let reach = Reach::Node(node.name.clone().unwrap_or_default());
        devices.pools.push(DevicePool {
            driver: template.driver.clone(),
            name: real_pool(node, &template.pool),
            counters: template.counters.clone(),
            slices: vec![DeviceSlice { reach, devices: template.devices.clone() }],
            ..DevicePool::default()
        });
    }
}

fn real_pool(node: &Node, template: &str) -> String {
    format!("{}-{template}", node.key)
}

fn give(devices: &mut Devices, node: &Node, placed: &PlacedDevices) {
    for chosen in &placed.claims {
        let allocation = allocation(devices, node, chosen);
        let same = |it: &&mut crate::snapshot::Claim| {
            it.namespace == chosen.namespace && it.name == chosen.name
        };
        if let Some(claim) = devices.claims.iter_mut().find(same) {
            claim.allocation = Some(allocation);
        }
    }
}

fn allocation(devices: &Devices, node: &Node, chosen: &ClaimDevices) -> ClaimAllocation {
    let mut term = NodeTerm::default();
    let list = chosen.devices.iter().map(|device| {
        let pool =
            if device.template { real_pool(node, &device.pool) } else { device.pool.clone() };
        let of_pool =
            devices.pools.iter().filter(|it| it.driver == device.driver && it.name == pool);
        let slices = of_pool.flat_map(|pool| &pool.slices);
        for slice in slices.filter(|slice| slice.devices.iter().any(|it| it.name == device.device))
        {
            match &slice.reach {
                Reach::Node(name) => term.name = Some(name.clone()),
                Reach::Nodes(terms) => term.requirements.extend(terms.iter().cloned()),
                Reach::Everywhere => {}
            }
        }
        AllocatedDevice {
            driver: device.driver.clone(),
            pool,
            device: device.device.clone(),
            admin: device.admin,
            consumed: device.consumed.clone(),
        }
    });
    let devices = list.collect();
    ClaimAllocation { devices, nodes: vec![term] }
}
