//! Whether devices agree or differ in what the constraints of a claim say.

use std::collections::BTreeSet;

use crate::plan::ChosenDevice;
use crate::snapshot::{AttributeValue, DeviceConstraint, DeviceKind, InstanceType};

/// Whether devices for the requests of a claim keep a constraint. `kind` is the type that their
/// machine will be, if it has not published what it has.
pub(super) fn holds(
    rule: &DeviceConstraint,
    kind: Option<&InstanceType>,
    chosen: &[(&ChosenDevice, &DeviceKind, u32)],
) -> bool {
    let concerned = chosen.iter().filter(|(device, ..)| {
        let parent = device.request.split('/').next();
        rule.requests.is_empty()
            || rule.requests.contains(&device.request)
            || rule.requests.iter().any(|name| Some(name.as_str()) == parent)
    });
    let concerned: Vec<(&ChosenDevice, Option<&AttributeValue>)> = concerned
        .map(|(device, kind, _)| (*device, kind.attributes.get(&rule.attribute)))
        .collect();
    let values: BTreeSet<&AttributeValue> =
        concerned.iter().filter_map(|(_, value)| *value).collect();
    if concerned.iter().all(|(_, value)| value.is_some()) {
        let wanted = if rule.distinct { concerned.len() } else { concerned.len().min(1) };
        return values.len() == wanted;
    }
    let devices: Vec<&ChosenDevice> = concerned.iter().map(|(device, _)| *device).collect();
    values.is_empty()
        && !rule.distinct
        && kind.is_some_and(|kind| are_bound(kind, &rule.attribute, &devices))
}

/// Whether bindings of a type tie devices that it will have together: follows them from the first
/// one as far as they lead.
fn are_bound(kind: &InstanceType, attribute: &str, devices: &[&ChosenDevice]) -> bool {
    let [first, ..] = devices else { return true };
    let name = |it: &ChosenDevice| (it.driver.clone(), it.pool.clone(), it.device.clone());
    let mut reached = BTreeSet::from([name(first)]);
    loop {
        let n_before = reached.len();
        for binding in kind.attribute_bindings.iter().filter(|it| it.attribute == attribute) {
            let listed = binding.devices.iter();
            let listed: BTreeSet<_> =
                listed.map(|it| (it.driver.clone(), it.pool.clone(), it.device.clone())).collect();
            if !listed.is_disjoint(&reached) {
                reached.extend(listed);
            }
        }
        if reached.len() == n_before {
            break;
        }
    }
    reached.len() > 1 && devices.iter().all(|it| it.template && reached.contains(&name(it)))
}
