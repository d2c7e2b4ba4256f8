//! Labels: node selectors, node affinity, zones, zones of volumes, and the NodePool's own
//! requirements.

use std::collections::BTreeSet;

use tenon_crds::labels::{CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE};
use tenon_planner::Snapshot;
use tenon_planner::plan::Exclusion;
use tenon_planner::snapshot::{NodePool, Operator, PodShape, Requirement};

use super::{About, Finding, catalog, edit};
use crate::advice::{self, Advice, Cause, indented, requirement};
use crate::funnel::{has, holds, own_requirements as own_requirements_of};
use crate::words::some;

/// How many values are listed.
const SHOWN: usize = 6;

/// Where a pod asks for a label.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Selector,
    Affinity,
    Volume,
}

/// What a pod asks of a label.
pub(super) struct Wanted {
    source: Source,
    /// The values, of the first term of affinity that names the label.
    values: Vec<String>,
    operator: Operator,
}

/// What a pod asks of a label, if it does.
pub(super) fn wanted(shape: &PodShape, key: &str) -> Option<Wanted> {
    if let Some(value) = shape.node_selector.get(key) {
        let values = vec![value.clone()];
        return Some(Wanted { source: Source::Selector, values, operator: Operator::In });
    }
    let terms = |terms: &[Vec<Requirement>], source| {
        let named = |it: &&Requirement| it.key == key;
        let first = terms.iter().flatten().find(named)?;
        let mut values: Vec<String> = if first.operator == Operator::In {
            let same = terms.iter().flatten().filter(named);
            same.filter(|it| it.operator == Operator::In).flat_map(|it| it.values.clone()).collect()
        } else {
            first.values.clone()
        };
        values.sort();
        values.dedup();
        Some(Wanted { source, values, operator: first.operator })
    };
    terms(&shape.volume_topology, Source::Volume)
        .or_else(|| terms(&shape.required_affinity, Source::Affinity))
}

/// A label that excludes the pod.
pub(super) fn label(about: &About<'_>, pool: &NodePool, key: &str, why: &Exclusion) -> Finding {
    let Some(wanted) = wanted(about.shape, key) else { return own_requirements(pool, why) };
    if key == ZONE {
        return zone(about, pool, &wanted, why);
    }
    let (cause, field) = match wanted.source {
        Source::Selector => (Cause::NodeSelector, "node selector"),
        Source::Affinity => (Cause::NodeAffinity, "node affinity"),
        Source::Volume => (Cause::VolumeZone, "volume"),
    };
    let because = format!("no NodePool satisfies its {field} for the label {key}");
    let value = value(&wanted);
    let offered = values_of_types(about, pool, key);
    let mut advice = Vec::new();
    let own = pool.template.requirements.iter().find(|it| it.key == key);
    match (own, value) {
        (Some(own), Some(_)) if own.operator == Operator::In => {
            let values = own.values.iter().chain(&wanted.values).map(String::as_str);
            let values: BTreeSet<&str> = values.collect();
            let values: Vec<&str> = values.into_iter().collect();
            advice.push(allow(cause, pool, &requirement(key, "In", &values)));
        }
        (None, Some(value)) if offered.is_empty() && !pool.template.labels.contains_key(key) => {
            let yaml = format!(
                "spec:\n  template:\n    metadata:\n      labels:\n        {}: {}",
                advice::key(key),
                advice::scalar(&value)
            );
            let text = format!(
                "If the nodes of NodePool {} are meant for the pod, add the label to it:",
                pool.name
            );
            advice.push(Advice::write(cause, text, yaml));
        }
        _ => {}
    }
    let there = if offered.is_empty() {
        String::new()
    } else {
        format!(" Its instance types have {}.", some(offered.into_iter(), SHOWN))
    };
    let text = format!("Or remove {key} from the pod's {field}, or correct it.{there}");
    let text = if advice.is_empty() { text.replacen("Or remove", "Remove", 1) } else { text };
    advice.push(Advice::run(
        cause,
        format!("{text} The labels of existing nodes:"),
        format!("kubectl get nodes --label-columns={}", advice::word(key)),
    ));
    Finding::new(cause, why, because, advice)
}

fn zone(about: &About<'_>, pool: &NodePool, wanted: &Wanted, why: &Exclusion) -> Finding {
    let zones = zones(about, pool);
    let asked = wanted.values.join(", ");
    let offered = if zones.is_empty() {
        "the NodePool has no zone at all".to_owned()
    } else {
        format!("the NodePool has {}", some(zones.iter().cloned(), SHOWN))
    };
    let everywhere: BTreeSet<String> =
        about.snapshot.node_pools.iter().flat_map(|pool| zones_of_catalog(about, pool)).collect();
    let is_unknown = wanted.operator == Operator::In
        && !wanted.values.iter().any(|zone| everywhere.contains(zone));
    let of_class = &pool.template.node_class;
    let in_catalog = zones_of_catalog(about, pool);
    let mut advice = Vec::new();
    let allow_zone = |cause| {
        let values: BTreeSet<&str> =
            zones.iter().chain(&wanted.values).map(String::as_str).collect();
        let values: Vec<&str> = values.into_iter().collect();
        allow(cause, pool, &requirement(ZONE, "In", &values))
    };
    let serves = wanted.values.iter().any(|zone| in_catalog.contains(zone));
    let class = format!(
        "kubectl get {} {} -o yaml",
        of_class.kind.to_lowercase(),
        advice::word(&of_class.name)
    );
    if wanted.source == Source::Volume {
        if serves {
            advice.push(allow_zone(Cause::VolumeZone));
        } else {
            let text = format!(
                "Add a subnet in {asked} to {} {}; its status lists the subnets that it has now:",
                of_class.kind, of_class.name
            );
            advice.push(Advice::run(Cause::VolumeZone, text, class));
        }
        let text = "Or move the data to a volume in another zone. The volumes of the pod's claims:";
        let command =
            format!("kubectl get pvc --namespace={} -o wide", advice::word(&about.pod.namespace));
        advice.push(Advice::run(Cause::VolumeZone, text, command));
        return Finding {
            cause: Cause::VolumeZone,
            text: format!("a volume of the pod can be attached in {asked} only; {offered}"),
            because: format!("a volume is bound to {asked}, which no NodePool offers"),
            advice,
        };
    }
    let field = if wanted.source == Source::Selector { "node selector" } else { "node affinity" };
    let (cause, because) = if is_unknown {
        (Cause::UnknownZone, format!("no NodePool has the zone {asked}"))
    } else if wanted.source == Source::Selector {
        (Cause::NodeSelector, format!("no NodePool offers the zone {asked}"))
    } else {
        (Cause::NodeAffinity, format!("no NodePool offers the zone {asked}"))
    };
    if let Some(zone) = zones.iter().next()
        && wanted.operator == Operator::In
    {
        let text = format!("In the pod's {field}, require a zone that NodePool {} has:", pool.name);
        advice.push(Advice::write(cause, text, ask_for(wanted.source, zone)));
    }
    if serves {
        advice.push(allow_zone(cause));
    } else {
        let text = format!(
            "Or, if {asked} exists, add a subnet there to {} {}; its status lists the subnets that it has now:",
            of_class.kind, of_class.name
        );
        advice.push(Advice::run(cause, text, class));
    }
    let text = match wanted.operator {
        Operator::In => format!("the pod's {field} requires zone {asked}; {offered}"),
        _ => crate::reasons::exclusion(why),
    };
    Finding { cause, text, because, advice }
}

fn ask_for(source: Source, zone: &str) -> String {
    if source == Source::Selector {
        return format!("nodeSelector:\n  {ZONE}: {}", advice::scalar(zone));
    }
    let expression = indented(&requirement(ZONE, "In", &[zone]), 8);
    format!(
        "affinity:\n  nodeAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n      \
         nodeSelectorTerms:\n      - matchExpressions:\n{expression}"
    )
}

/// The NodePool's requirements exclude all instance types.
pub(super) fn own_requirements(pool: &NodePool, why: &Exclusion) -> Finding {
    contradiction(pool, &crate::reasons::exclusion(why))
}

/// A NodePool that can't launch any type, for this reason: its requirements exclude all of them, or
/// none is available.
pub(crate) fn no_type(snapshot: &Snapshot, pool: &NodePool, reason: &str) -> Finding {
    let own = own_requirements_of(pool);
    let known = catalog(snapshot, pool);
    if !known.is_some_and(|known| known.instance_types.iter().any(|kind| has(kind, &own))) {
        return contradiction(pool, reason);
    }
    Finding {
        cause: Cause::NoCapacity,
        text: crate::observed::line(reason),
        because: "no matching instance type is available now".to_owned(),
        advice: more_capacity(pool),
    }
}

/// The NodePool's requirements exclude each other, as a reason says, or all instance types.
fn contradiction(pool: &NodePool, reason: &str) -> Finding {
    let text =
        format!("Relax the requirements of NodePool {}, which no instance type meets:", pool.name);
    Finding {
        cause: Cause::NodePoolRequirements,
        text: crate::observed::line(reason),
        because: "the requirements of the NodePools leave no instance type".to_owned(),
        advice: vec![Advice::run(Cause::NodePoolRequirements, text, edit(&pool.name))],
    }
}

/// Types match, but none is available.
pub(super) fn no_offering(about: &About<'_>, pool: &NodePool, why: &Exclusion) -> Finding {
    if let Some(wanted) = wanted(about.shape, ZONE)
        && wanted.operator == Operator::In
        && !wanted.values.iter().any(|zone| zones(about, pool).contains(zone))
    {
        return zone(about, pool, &wanted, why);
    }
    Finding::new(
        Cause::NoCapacity,
        why,
        "no matching instance type is available now",
        more_capacity(pool),
    )
}

/// What makes it likelier that there is capacity.
pub(crate) fn more_capacity(pool: &NodePool) -> Vec<Advice> {
    let cause = Cause::NoCapacity;
    let of = |key: &str| pool.template.requirements.iter().find(|it| it.key == key);
    let mut advice = Vec::new();
    let is_spot_only = of(CAPACITY_TYPE)
        .is_some_and(|it| it.operator == Operator::In && it.values == [SPOT.to_owned()]);
    if is_spot_only {
        let requirement = requirement(CAPACITY_TYPE, "In", &[SPOT, ON_DEMAND]);
        let text = format!(
            "Allow on-demand instances where there is no spot capacity, in \
             spec.template.spec.requirements of NodePool {}:",
            pool.name
        );
        advice.push(Advice::write(cause, text, requirement));
    }
    let text = format!(
        "{} more instance types and zones in NodePool {}; the operator retries automatically, with \
         other offerings:",
        if is_spot_only { "Or allow" } else { "Allow" },
        pool.name
    );
    advice.push(Advice::run(cause, text, edit(&pool.name)));
    advice
}

/// A requirement to put into a NodePool.
fn allow(cause: Cause, pool: &NodePool, requirement: &str) -> Advice {
    let text = format!("Allow it in spec.template.spec.requirements of NodePool {}:", pool.name);
    Advice::write(cause, text, requirement)
}

/// A value that would do.
fn value(wanted: &Wanted) -> Option<String> {
    let bound = || wanted.values.first()?.parse::<i64>().ok();
    match wanted.operator {
        Operator::In | Operator::Gte | Operator::Lte => wanted.values.first().cloned(),
        Operator::Exists => Some("true".to_owned()),
        Operator::Gt => Some((bound()? + 1).to_string()),
        Operator::Lt => Some((bound()? - 1).to_string()),
        Operator::NotIn | Operator::DoesNotExist => None,
    }
}

/// The values of a label among the instance types of a NodePool's catalog.
fn values_of_types(about: &About<'_>, pool: &NodePool, key: &str) -> BTreeSet<String> {
    let types = catalog(about.snapshot, pool).map_or(&[][..], |it| &it.instance_types);
    let defined = types.iter().flat_map(|kind| &kind.requirements).filter(|it| it.key == key);
    defined.filter(|it| it.operator == Operator::In).flat_map(|it| it.values.clone()).collect()
}

/// The zones of a NodePool's catalog.
fn zones_of_catalog(about: &About<'_>, pool: &NodePool) -> BTreeSet<String> {
    let types = catalog(about.snapshot, pool).map_or(&[][..], |it| &it.instance_types);
    types.iter().flat_map(|kind| &kind.offerings).map(|it| it.zone.clone()).collect()
}

/// Those that its requirements allow.
fn zones(about: &About<'_>, pool: &NodePool) -> BTreeSet<String> {
    let own: Vec<&Requirement> =
        pool.template.requirements.iter().filter(|it| it.key == ZONE).collect();
    let mut zones = zones_of_catalog(about, pool);
    zones.retain(|zone| own.iter().all(|it| holds(it, zone)));
    zones
}
