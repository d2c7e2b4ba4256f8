//! Which devices of an instance type are known to agree in an attribute whose value is not known
//! yet.

use std::collections::{BTreeMap, BTreeSet};

use crate::snapshot::{AttributeBinding, TemplateDevice};

/// Driver, pool, device.
type Name<'a> = (&'a str, &'a str, &'a str);

/// The groups of a device: attribute, and a number that devices share which agree in it. Sorted by
/// attribute.
pub(super) type Groups<'a> = Vec<(&'a str, u32)>;

fn name(device: &TemplateDevice) -> Name<'_> {
    (&device.driver, &device.pool, &device.device)
}

/// By device, its groups. A group is called by the last binding that connects it, so a number
/// stands for one attribute.
pub(super) fn groups(bindings: &[AttributeBinding]) -> BTreeMap<Name<'_>, Groups<'_>> {
    let mut group_of: BTreeMap<(&str, Name<'_>), u32> = BTreeMap::new();
    for (number, binding) in (0..).zip(bindings) {
        let names: BTreeSet<Name<'_>> = binding.devices.iter().map(name).collect();
        if names.len() < 2 {
            continue;
        }
        let attribute = binding.attribute.as_str();
        let known = names.iter().filter_map(|&name| group_of.get(&(attribute, name)).copied());
        let known: BTreeSet<u32> = known.collect();
        for group in group_of.values_mut().filter(|group| known.contains(group)) {
            *group = number;
        }
        group_of.extend(names.into_iter().map(|name| ((attribute, name), number)));
    }
    let mut groups: BTreeMap<Name<'_>, Groups<'_>> = BTreeMap::new();
    for ((attribute, name), group) in group_of {
        groups.entry(name).or_default().push((attribute, group));
    }
    groups
}
