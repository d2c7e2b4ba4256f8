//! The NodePools of an InstanceGroup: one, and a second of fixed size where a part of the group is
//! always on demand.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tenon_crds::labels;
use tenon_crds::quantity::Quantity;
use tenon_crds::{Duration, NillableDuration};

use crate::group::{InstanceRequirements, MinMax};
use crate::input::{Input, Report};

/// A NodePool's greatest weight.
const HEAVIEST: i64 = 100;

/// Which nodes a pool has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All, or all but the base.
    Main,
    /// The share that is always on demand.
    Base(i64),
}

/// The pools, the main one first.
pub(crate) fn pools(input: &Input<'_>, report: &mut Report) -> Vec<Value> {
    let mut pools = vec![pool(input, Part::Main, report)];
    let base = base(input);
    if base > 0 {
        // The same problems and notes once more.
        pools.push(pool(input, Part::Base(base), &mut Report::default()));
        report.note(
            "spec.mixedInstancesPolicy.onDemandBase",
            format!(
                "NodePool {} keeps {base} on-demand nodes; it needs the feature gate \
                 StaticCapacity",
                base_name(&input.group.name)
            ),
        );
    }
    pools
}

/// The name of the NodePool for [`Part::Base`].
pub(crate) fn base_name(group: &str) -> String {
    format!("{group}-base")
}

/// How many nodes are always on demand, where others are not.
fn base(input: &Input<'_>) -> i64 {
    let policy = input.group.spec.mixed_instances_policy.as_ref();
    let base = policy.and_then(|policy| policy.on_demand_base).unwrap_or(0);
    let base = if capacity_types(input).contains(&labels::SPOT) { base } else { 0 };
    let most = [input.group.spec.min_size, input.group.spec.max_size];
    most.into_iter().flatten().filter(|size| *size > 0).fold(base.max(0), i64::min)
}

fn pool(input: &Input<'_>, part: Part, report: &mut Report) -> Value {
    let group = input.group;
    let name = match part {
        Part::Main => group.name.clone(),
        Part::Base(_) => base_name(&group.name),
    };
    let mut claim = json!({
        "nodeClassRef": {
            "group": labels::aws::GROUP,
            "kind": "EC2NodeClass",
            "name": group.name,
        },
        "requirements": requirements(input, part, report),
    });
    if !input.taints.is_empty() {
        claim["taints"] = json!(input.taints);
    }
    if let Some(lifetime) = lifetime(input, report) {
        claim["expireAfter"] = json!(lifetime);
    }
    let mut template = json!({"spec": claim});
    let is_of_part = |key: &str| part == Part::Main || key != labels::CAPACITY_TYPE;
    let labels = input.labels.iter().filter(|(key, _)| !is_reserved(key) && is_of_part(key));
    let labels = labels.map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>();
    if !labels.is_empty() {
        template["metadata"] = json!({"labels": labels});
    }
    let mut spec = json!({"template": template});
    size(input, part, &mut spec, report);
    if let Some(disruption) = disruption(input, report) {
        spec["disruption"] = disruption;
    }
    let priority = group.spec.autoscale_priority;
    if (1..=HEAVIEST).contains(&priority) && spec["replicas"].is_null() {
        spec["weight"] = priority.into();
    } else if priority != 0 {
        let why =
            format!("a NodePool's weight is between 1 and {HEAVIEST}, and a static one has none");
        report.note("spec.autoscalePriority", why);
    }
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// Labels that the operator sets itself, but for the capacity type.
fn is_reserved(key: &str) -> bool {
    if key == labels::CAPACITY_TYPE {
        return false;
    }
    let Some((domain, _)) = key.split_once('/') else { return false };
    let is_of = |parent: &str| {
        domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    key == labels::HOSTNAME || is_of(labels::GROUP) || is_of(labels::aws::GROUP)
}

/// How many nodes: kOps makes a group with a minimum static.
fn size(input: &Input<'_>, part: Part, spec: &mut Value, report: &mut Report) {
    let (min, max) = (input.group.spec.min_size, input.group.spec.max_size);
    if min.is_some_and(|min| min <= 0) {
        let why = "leave it out for as many nodes as pods need, or write a number above 0 for a \
                   pool of that size";
        report.problem("spec.minSize", why.to_owned());
    }
    if max.is_some_and(|max| max <= 0) {
        report.problem("spec.maxSize", "write a number above 0, or leave it out".to_owned());
    }
    if let Part::Base(base) = part {
        spec["replicas"] = base.into();
        return;
    }
    let base = base(input);
    if let Some(min) = min {
        spec["replicas"] = (min - base).into();
        let why = format!("the pool keeps {min} nodes; it needs the feature gate StaticCapacity");
        report.note("spec.minSize", why);
    }
    if let Some(max) = max {
        spec["limits"] = json!({"nodes": (max - base).to_string()});
    }
}

fn capacity_types(input: &Input<'_>) -> Vec<&'static str> {
    let spec = &input.group.spec;
    if spec.max_price.is_some() || spec.spot_duration_in_minutes.is_some() {
        return vec![labels::SPOT];
    }
    let above = spec.mixed_instances_policy.as_ref().and_then(|policy| policy.on_demand_above_base);
    match above {
        Some(above) if above < 100 => vec![labels::ON_DEMAND, labels::SPOT],
        _ => vec![labels::ON_DEMAND],
    }
}

fn requirements(input: &Input<'_>, part: Part, report: &mut Report) -> Vec<Value> {
    let spec = &input.group.spec;
    let among = |key: &str, operator: &str, values: Vec<String>| json!({"key": key, "operator": operator, "values": values});
    let mut found = vec![
        among(labels::OS, "In", vec!["linux".to_owned()]),
        among(labels::ARCH, "In", vec![input.image.architecture.clone()]),
    ];
    let policy = spec.mixed_instances_policy.as_ref();
    let listed = policy.into_iter().flat_map(|policy| policy.instances.iter().map(String::as_str));
    let types = spec.machine_type.split(',').chain(listed).map(str::trim);
    let types = types.filter(|kind| !kind.is_empty()).collect::<BTreeSet<_>>();
    let by_attributes = policy.and_then(|policy| policy.instance_requirements.as_ref());
    if types.is_empty() && by_attributes.is_none() {
        report.note(
            "spec.machineType",
            "not set, so every instance type is allowed; narrow it with --patch".to_owned(),
        );
    }
    if !types.is_empty() && by_attributes.is_some() {
        report.note(
            "spec.mixedInstancesPolicy.instanceRequirements",
            "instance types must meet it and be listed".to_owned(),
        );
    }
    if !types.is_empty() {
        let types = types.into_iter().map(str::to_owned).collect();
        found.push(among(labels::INSTANCE_TYPE, "In", types));
    }
    if let Some(wanted) = by_attributes {
        found.extend(attributes(wanted, input, report));
    }
    let capacity = match part {
        Part::Main => capacity_types(input),
        Part::Base(_) => vec![labels::ON_DEMAND],
    };
    let capacity = capacity.into_iter().map(str::to_owned).collect();
    found.push(among(labels::CAPACITY_TYPE, "In", capacity));
    if part == Part::Main {
        notes_on_prices(input, report);
    }
    let zones = input.subnets.iter().filter_map(|subnet| subnet.zone.clone());
    let zones = zones.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    if !zones.is_empty() {
        found.push(among(labels::ZONE, "In", zones));
    }
    match spec.tenancy.as_str() {
        "" | "default" => {}
        "dedicated" => {
            found.push(among(labels::aws::INSTANCE_TENANCY, "In", vec![spec.tenancy.clone()]));
        }
        other => report.problem(
            "spec.tenancy",
            format!("{other:?} is not possible with a NodePool: write default or dedicated"),
        ),
    }
    found
}

fn notes_on_prices(input: &Input<'_>, report: &mut Report) {
    let spec = &input.group.spec;
    if spec.max_price.is_some() {
        let why = "the pool is for spot instances; the price itself is not used, EC2's limit is \
                   the on-demand price";
        report.note("spec.maxPrice", why.to_owned());
    }
    if spec.spot_duration_in_minutes.is_some() {
        let why = "the pool is for spot instances; EC2 has no fixed durations any more";
        report.note("spec.spotDurationInMinutes", why.to_owned());
    }
    let above = spec.mixed_instances_policy.as_ref().and_then(|policy| policy.on_demand_above_base);
    if above.is_some_and(|above| above > 0 && above < 100) {
        let why = "the pool takes what is cheaper, which is spot; a NodePool has no percentages";
        report.note("spec.mixedInstancesPolicy.onDemandAboveBase", why.to_owned());
    }
}

/// Types by what they have.
fn attributes(wanted: &InstanceRequirements, input: &Input<'_>, report: &mut Report) -> Vec<Value> {
    let path = "spec.mixedInstancesPolicy.instanceRequirements";
    let mib = |quantity: Quantity| quantity.nanos().div_euclid(1_000_000_000) / (1024 * 1024);
    let whole = |quantity: Quantity| quantity.nanos().div_euclid(1_000_000_000);
    let mut found = Vec::new();
    let mut bounds = |name: &str, key: &str, range: MinMax, unit: &dyn Fn(Quantity) -> i128| {
        if let (Some(min), Some(max)) = (range.min, range.max)
            && min > max
        {
            report.problem(&format!("{path}.{name}"), format!("min {min} is above max {max}"));
        }
        // An amount between two units is below the next one.
        let floor = range.min.map(|min| {
            let whole = unit(min);
            let is_between = unit(Quantity::from_nanos(min.nanos() - 1, min.notation())) == whole;
            if is_between { whole } else { whole - 1 }
        });
        if let Some(floor) = floor.filter(|floor| *floor > 0) {
            found.push(json!({"key": key, "operator": "Gt", "values": [floor.to_string()]}));
        }
        if let Some(max) = range.max {
            let above = (unit(max) + 1).to_string();
            found.push(json!({"key": key, "operator": "Lt", "values": [above]}));
        }
    };
    bounds("cpu", labels::aws::INSTANCE_CPU, wanted.cpu, &whole);
    bounds("memory", labels::aws::INSTANCE_MEMORY, wanted.memory, &mib);
    let (mut families, mut types) = (BTreeSet::new(), BTreeSet::new());
    for pattern in wanted.excluded_instance_types.iter().map(|pattern| pattern.trim()) {
        if let Some(family) = pattern.strip_suffix(".*").filter(|it| !it.contains('*')) {
            families.insert(family.to_owned());
        } else if pattern.contains('*') {
            let matching = input.instance_types.iter().filter(|kind| matches(pattern, kind));
            types.extend(matching.cloned());
        } else {
            types.insert(pattern.to_owned());
        }
    }
    for (key, values) in [(labels::aws::INSTANCE_FAMILY, families), (labels::INSTANCE_TYPE, types)]
    {
        if !values.is_empty() {
            found.push(json!({"key": key, "operator": "NotIn", "values": values}));
        }
    }
    found
}

/// Whether a name fits a pattern whose asterisks stand for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(begin) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The first place of each piece leaves the most room for the next ones.
    for piece in middle.split('*') {
        let Some(at) = name.find(piece) else { return false };
        name = &name[at + piece.len()..];
    }
    name.ends_with(end)
}

fn lifetime(input: &Input<'_>, report: &mut Report) -> Option<NillableDuration> {
    let text = input.group.spec.max_instance_lifetime.as_deref()?;
    match text.parse::<Duration>() {
        Ok(lifetime) if lifetime.as_secs() > 0 => Some(NillableDuration::After(lifetime)),
        Ok(_) => None,
        Err(error) => {
            report.problem("spec.maxInstanceLifetime", error.to_string());
            None
        }
    }
}

/// As many nodes replaced at once as a rolling update replaces.
fn disruption(input: &Input<'_>, report: &mut Report) -> Option<Value> {
    let update = &input.group.spec.rolling_update;
    let nodes = match (&update.drain_and_terminate, &update.max_unavailable) {
        (Some(false), _) => "0".to_owned(),
        (_, Some(Value::Number(nodes))) => nodes.to_string(),
        (_, Some(Value::String(share))) => share.clone(),
        (_, Some(_)) => {
            let why = "write a number of nodes or a percentage";
            report.problem("spec.rollingUpdate.maxUnavailable", why.to_owned());
            return None;
        }
        (_, None) => return None,
    };
    Some(json!({"budgets": [{"nodes": "10%"}, {"nodes": nodes, "reasons": ["Drifted"]}]}))
}
