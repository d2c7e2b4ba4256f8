//! What drivers and kube-scheduler do once a plan has been carried out: new machines publish their
//! devices, claims get those that were planned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::plan::{ClaimDevices, PlacedDevices, Plan, PodRef};
use crate::snapshot::{
    AllocatedDevice, AttributeValue, ClaimAllocation, Device, DevicePool, DeviceSlice,
    DeviceTemplate, Devices, InstanceType, Node, NodeTerm, Placement, Reach, Snapshot,
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
            users.entry(claim).or_default().push(pod.uid.to_string());
        }
    }
    let known = before.devices.iter().flat_map(|devices| &devices.claims);
    for ((index, claim), known) in (0..).zip(&mut devices.claims).zip(known) {
        claim.reserved_for = users.remove(&index).unwrap_or_default();
        if claim.reserved_for.is_empty() {
            // Virtual pods don't exist, so nothing is allocated for them.
            claim.allocation.clone_from(&known.allocation);
        }
    }
    after.devices = Some(Arc::new(devices));
}

fn publish(before: &Snapshot, node: &Node, devices: &mut Devices) {
    let kind = &node.labels["node.kubernetes.io/instance-type"];
    let mut types = before.catalogs.iter().flat_map(|catalog| &catalog.instance_types);
    let Some(kind) = types.find(|it| it.name == *kind) else { return };
    for template in &kind.devices {
        let reach = Reach::Node(node.name.clone().unwrap_or_default());
        let listed = template.devices.iter();
        let listed = listed.map(|device| Device {
            name: device.name.clone(),
            kind: with_values(node, kind, template, device, devices),
        });
        let listed = listed.collect();
        devices.pools.push(DevicePool {
            driver: template.driver.clone(),
            name: real_pool(node, &template.pool),
            counters: template.counters.clone(),
            slices: vec![DeviceSlice { reach, devices: listed }],
            ..DevicePool::default()
        });
    }
}

/// The kind of a device once its machine has published it: devices that are bound under an
/// attribute agree in it.
fn with_values(
    node: &Node,
    kind: &InstanceType,
    template: &DeviceTemplate,
    device: &Device,
    devices: &mut Devices,
) -> u32 {
    let mut published = devices.kinds[device.kind as usize].clone();
    let name = (&template.driver, &template.pool, &device.name);
    for attribute in kind.attribute_bindings.iter().map(|it| &it.attribute) {
        let group = bound_to(kind, attribute, name);
        if let Some(first) = group.first().filter(|_| group.len() > 1) {
            let value = AttributeValue::String(format!("{}/{first:?}", node.key));
            published.attributes.entry(attribute.clone()).or_insert(value);
        }
    }
    if published == devices.kinds[device.kind as usize] {
        return device.kind;
    }
    if let Some(known) = devices.kinds.iter().position(|known| *known == published) {
        return u32::try_from(known).expect("few kinds");
    }
    let number = u32::try_from(devices.kinds.len()).expect("few kinds");
    devices.kinds.push(published);
    let requests = devices.specs.iter_mut().flat_map(|spec| &mut spec.requests);
    for ask in requests.flat_map(|request| &mut request.alternatives) {
        if ask.kinds.contains(&device.kind) {
            ask.kinds.push(number);
        }
    }
    number
}

/// All that bindings of an attribute tie to a device, itself included.
fn bound_to<'k>(
    kind: &'k InstanceType,
    attribute: &str,
    name: (&'k String, &'k String, &'k String),
) -> BTreeSet<(&'k String, &'k String, &'k String)> {
    let bindings = kind.attribute_bindings.iter().filter(|it| it.attribute == attribute);
    let sets: Vec<BTreeSet<_>> = bindings
        .map(|it| it.devices.iter().map(|it| (&it.driver, &it.pool, &it.device)).collect())
        .collect();
    let mut reached = BTreeSet::from([name]);
    // Each round goes at least one binding further.
    for _ in &sets {
        for set in &sets {
            if !set.is_disjoint(&reached) {
                reached.extend(set);
            }
        }
    }
    reached
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
