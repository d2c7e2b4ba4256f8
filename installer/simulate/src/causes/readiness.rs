//! NodePools and NodeClasses that are not ready.

use tenon_crds::conditions::ec2nodeclass as condition;
use tenon_planner::snapshot::NodePool;

use super::{About, Finding, edit, labels};
use crate::advice::{Advice, Cause, word};
use crate::observed;

/// A NodePool that is skipped, for this reason.
pub(super) fn not_ready(about: &About<'_>, pool: &NodePool, reason: &str) -> Finding {
    if pool.not_ready.is_none() && pool.catalog.is_some() {
        return labels::no_type(about.snapshot, pool, reason);
    }
    let class = &pool.template.node_class;
    let Some(of_pool) = about.observed.class_condition(&pool.name) else {
        let problem = about.observed.pool_problem(&pool.name).map(observed::condition);
        let cause = Cause::NodePoolNotReady;
        let text = match problem {
            Some(problem) => format!("it is not ready: {problem}"),
            None => observed::line(reason),
        };
        let advice = Advice::run(cause, "Correct what its conditions report:", edit(&pool.name));
        return Finding {
            cause,
            text,
            because: "no NodePool is ready".to_owned(),
            advice: vec![advice],
        };
    };
    let cause = Cause::NodeClassNotReady;
    let (kind, name) = (&class.kind, &class.name);
    let problems = about.observed.class_problems(name);
    let text = match problems.first() {
        Some(first) => {
            format!("{kind} {name} is not ready: {}: {}", first.type_, observed::condition(first))
        }
        None => format!("{kind} {name} is not ready: {}", observed::condition(of_pool)),
    };
    let resource = kind.to_lowercase();
    let (subject, command) = match problems.first().map(|first| field(&first.type_)) {
        Some(Some(field)) => (
            format!(
                "Correct {field} of {kind} {name}, and check that it matches something in AWS:"
            ),
            format!("kubectl edit {resource} {}", word(name)),
        ),
        _ if of_pool.reason == "NodeClassNotFound" => (
            format!("Create {kind} {name}, or reference another one in NodePool {}:", pool.name),
            edit(&pool.name),
        ),
        _ => (
            format!("Correct what the conditions of {kind} {name} report:"),
            format!("kubectl describe {resource} {}", word(name)),
        ),
    };
    let doctor =
        Advice::run(cause, "To check permissions, subnets and images in AWS:", "tenon doctor");
    Finding {
        cause,
        text,
        because: format!("{kind} {name} is not ready"),
        advice: vec![Advice::run(cause, subject, command), doctor],
    }
}

/// The field of an EC2NodeClass that a condition depends on.
fn field(type_: &str) -> Option<&'static str> {
    Some(match type_ {
        condition::AMIS_READY => "spec.amiSelectorTerms",
        condition::SUBNETS_READY => "spec.subnetSelectorTerms",
        condition::SECURITY_GROUPS_READY => "spec.securityGroupSelectorTerms",
        condition::INSTANCE_PROFILE_READY => "spec.role or spec.instanceProfile",
        condition::CAPACITY_RESERVATIONS_READY => "spec.capacityReservationSelectorTerms",
        condition::PLACEMENT_GROUP_READY => "spec.placementGroupSelector",
        _ => return None,
    })
}
