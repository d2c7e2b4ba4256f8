//! Size, limits, reservations, `minValues`.

use std::collections::BTreeSet;

use tenon_planner::plan::Exclusion;
use tenon_planner::snapshot::{InstanceType, NodePool, Operator};

use super::{About, Finding, catalog, edit};
use crate::advice::{Advice, Cause, requirement, word};
use crate::amounts::{amount, number};
use crate::funnel::{alternatives, has, own_requirements};

/// Larger than every instance type.
pub(super) fn too_large(
    about: &About<'_>,
    pool: &NodePool,
    (resource, requested, largest): (&str, i64, i64),
    why: &Exclusion,
) -> Finding {
    let cause = Cause::TooLarge;
    let mut advice = Vec::new();
    if let Some(kind) = smallest(about, pool) {
        let name = &kind.name;
        let excluded_by = pool.template.requirements.iter().find(|it| !has(kind, &[(*it).clone()]));
        match excluded_by {
            Some(own) if own.operator == Operator::In => {
                let value = kind.requirements.iter().find(|it| it.key == own.key);
                let values = own.values.iter().chain(value.iter().flat_map(|it| &it.values));
                let values: BTreeSet<&str> = values.map(String::as_str).collect();
                let values: Vec<&str> = values.into_iter().collect();
                advice.push(Advice::write(
                    cause,
                    format!(
                        "Allow a larger instance type, such as {name}, in \
                         spec.template.spec.requirements of NodePool {}:",
                        pool.name
                    ),
                    requirement(&own.key, "In", &values),
                ));
            }
            Some(own) => advice.push(Advice::run(
                cause,
                format!(
                    "Allow a larger instance type, such as {name}, which the requirement {} of \
                     NodePool {} excludes:",
                    own.key, pool.name
                ),
                edit(&pool.name),
            )),
            None => {}
        }
    }
    if largest > 0 {
        let less =
            format!("Request at most {} for all containers together", amount(resource, largest));
        let text = if advice.is_empty() {
            format!(
                "{less}, which is all that NodePool {} has; no type of the catalog is large enough:",
                pool.name
            )
        } else {
            format!("Or r{}:", &less[1..])
        };
        let value = number(resource, largest);
        let yaml =
            format!("resources:\n  requests:\n    {}: \"{value}\"", crate::advice::key(resource));
        advice.push(Advice::write(cause, text, yaml));
    } else {
        advice.push(Advice::run(
            cause,
            format!(
                "Use a NodePool whose instance types have {resource}, or remove the request. The \
                 requests of the pod:"
            ),
            format!(
                "kubectl get pod {} --namespace={} -o yaml",
                word(&about.pod.name),
                word(&about.pod.namespace)
            ),
        ));
    }
    let requested = amount(resource, requested);
    let because = format!("no instance type is large enough for {requested}");
    Finding::new(cause, why, because, advice)
}

/// The smallest type of the catalog that is large enough and that the pod accepts.
fn smallest<'a>(about: &About<'a>, pool: &NodePool) -> Option<&'a InstanceType> {
    let alternatives = alternatives(about.shape);
    let types = catalog(about.snapshot, pool)?.instance_types.iter();
    let fits = types.filter(|kind| {
        about.shape.requests.fits(&kind.allocatable())
            && alternatives.iter().any(|term| has(kind, term))
            && !has(kind, &pool.template.requirements)
    });
    fits.min_by_key(|kind| (kind.capacity.cpu, kind.capacity.memory, &kind.name))
}

/// The NodePool's limits leave no room.
pub(super) fn limit(
    about: &About<'_>,
    pool: &NodePool,
    (resource, limit, used): (&str, i64, i64),
    why: &Exclusion,
) -> Finding {
    if about.observed.is_frozen(&pool.name) {
        return Finding {
            cause: Cause::Frozen,
            text: "it is paused by `tenon freeze`".to_owned(),
            because: "its NodePools are paused".to_owned(),
            advice: vec![Advice::run(Cause::Frozen, "Resume the NodePools:", "tenon unfreeze")],
        };
    }
    let enough = number(resource, raised(about, pool, resource, limit.max(used)));
    let patch = serde_json::json!({ "spec": { "limits": { resource: enough } } });
    let command = format!(
        "kubectl patch nodepool {} --type=merge -p {}",
        word(&pool.name),
        word(&patch.to_string())
    );
    let raise = Advice::run(
        Cause::Limit,
        format!("Raise the limit of NodePool {}; {enough} has room for one more node:", pool.name),
        command,
    );
    let show = Advice::run(
        Cause::Limit,
        "Or free some of it. The usage and the nodes that could be removed:",
        format!("tenon explain nodepool {}", word(&pool.name)),
    );
    let because = format!("a NodePool's limit of {} leaves no room", amount(resource, limit));
    Finding::new(Cause::Limit, why, because, vec![raise, show])
}

/// The limit with room for the smallest node that holds the pod, in whole units.
fn raised(about: &About<'_>, pool: &NodePool, resource: &str, used: i64) -> i64 {
    if resource == "nodes" {
        return used + 1;
    }
    let mut wanted = own_requirements(pool);
    wanted.retain(|it| it.operator != Operator::In || !it.values.is_empty());
    let terms = alternatives(about.shape);
    let types = catalog(about.snapshot, pool).map_or(&[][..], |it| &it.instance_types);
    let fits = types.iter().filter(|kind| {
        has(kind, &wanted)
            && terms.iter().any(|term| has(kind, term))
            && about.shape.requests.fits(&kind.allocatable())
    });
    let least = fits.map(|kind| kind.capacity.get(resource)).filter(|&it| it > 0).min();
    let least = least.unwrap_or_else(|| about.shape.requests.get(resource)).max(1);
    let unit = match resource {
        "cpu" => 1000,
        "memory" | "ephemeral-storage" => 1 << 30,
        _ => 1,
    };
    used.saturating_add(least).saturating_add(unit - 1) / unit * unit
}

/// Other launches take the reservations.
pub(super) fn reserved(about: &About<'_>, why: &Exclusion) -> Finding {
    let cause = Cause::Reserved;
    let text = "Wait: the next plan sees what is left. Or let the pod use other capacity types, or \
                enlarge the reservation. The reservations of the NodeClasses:";
    let class = "kubectl get ec2nodeclasses -o yaml";
    let advice = vec![Advice::run(cause, text, class)];
    let because =
        format!("pod {} can use capacity reservations only, and they are taken", about.pod.name);
    Finding::new(cause, why, because, advice)
}

/// Fewer values than `minValues`.
pub(super) fn min_values(pool: &NodePool, key: &str, why: &Exclusion) -> Finding {
    let cause = Cause::MinValues;
    let text = format!("Lower minValues of {key} in NodePool {}, or allow more values:", pool.name);
    let advice = vec![Advice::run(cause, text, edit(&pool.name))];
    Finding::new(cause, why, format!("minValues of {key} can't be met"), advice)
}
