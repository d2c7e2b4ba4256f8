//! The planner's reasons in words: for events, and for people who ask.

mod staying;

use tenon_planner::plan::Exclusion;

pub use self::staying::{staying, weighed};
use crate::resources::quantity;

/// Why a pod stays pending, pool by pool.
pub fn waiting(reasons: &[(String, Exclusion)]) -> String {
    if reasons.is_empty() {
        return "no nodepools found".to_owned();
    }
    // What is wrong with the pod itself is the same for all pools.
    if let Some((_, Exclusion::Pod(reason))) =
        reasons.iter().find(|(_, reason)| matches!(reason, Exclusion::Pod(_)))
    {
        return reason.clone();
    }
    let pools: Vec<String> = reasons
        .iter()
        .map(|(pool, reason)| {
            format!("incompatible with nodepool \"{pool}\", {}", exclusion(reason))
        })
        .collect();
    pools.join("; ")
}

/// The first constraint that keeps a pod off a NodePool.
pub fn exclusion(exclusion: &Exclusion) -> String {
    match exclusion {
        Exclusion::PoolNotReady(reason) => reason.clone(),
        Exclusion::Taint { key, value, effect } => {
            let value = value.as_deref().filter(|value| !value.is_empty());
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            format!("did not tolerate taint {key}{value}:{effect}")
        }
        Exclusion::Requirement { key, pod, pool } => {
            format!("incompatible requirements, key {key}, {pod} not in {pool}")
        }
        Exclusion::NoInstanceType { closest, differs } => {
            let closest = closest.as_ref().filter(|_| !differs.is_empty());
            let differs = differs.join(", ");
            let closest = closest
                .map(|kind| format!(", the closest is {kind}, which differs in {differs}"))
                .unwrap_or_default();
            format!("no instance type met the scheduling requirements{closest}")
        }
        Exclusion::Resources { resource, requested, largest, .. } => {
            let requested = quantity(resource, *requested);
            let largest = quantity(resource, *largest);
            format!(
                "no instance type had enough resources, requested {resource} {requested}, the largest has {largest}"
            )
        }
        Exclusion::NoOffering { sold_out, .. } => {
            let sold_out = match sold_out.as_slice() {
                [] => String::new(),
                sold_out => format!(", sold out: {}", sold_out.join(", ")),
            };
            format!("no instance type had a required offering{sold_out}")
        }
        Exclusion::Reserved { reservations } => {
            let ids = reservations.join(", ");
            format!("other nodeclaims take the rest of its reservations ({ids})")
        }
        Exclusion::Limit { resource, limit, used } => {
            let limit = quantity(resource, *limit);
            let used = quantity(resource, *used);
            format!(
                "all available instance types exceed limits for nodepool, {resource} {used} of {limit} in use"
            )
        }
        Exclusion::MinValues { key, required, found } => {
            format!(
                "minValues requirement is not met for {key}, required {required}, found {found}"
            )
        }
        Exclusion::Topology { key, rule } => {
            format!("unsatisfiable topology constraint for {rule}, key={key}")
        }
        Exclusion::Devices { claim, request, class, requested, found, closest, constraint } => {
            let all = if *requested == 0 { "all".to_owned() } else { requested.to_string() };
            let closest = closest.as_ref().map(|kind| format!(" on {kind}")).unwrap_or_default();
            let constraint = constraint.as_ref();
            let constraint = constraint
                .map(|attribute| format!(" under its constraint on {attribute}"))
                .unwrap_or_default();
            format!(
                "no instance type could allocate resource claim {claim}: request {request} asks for {all} of device class {class}, {found} available{closest}{constraint}"
            )
        }
        Exclusion::ClaimElsewhere { claim } => {
            format!("resource claim {claim} is allocated where new nodes can't reach its devices")
        }
        Exclusion::Pod(reason) => reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_as_people_write_them() {
        let reasons = [
            (
                "a".to_owned(),
                Exclusion::Resources {
                    resource: "cpu".to_owned(),
                    requested: 64_000,
                    largest: 31_850,
                    closest: None,
                    missing: std::collections::BTreeMap::new(),
                },
            ),
            (
                "b".to_owned(),
                Exclusion::Limit { resource: "memory".to_owned(), limit: 64 << 30, used: 60 << 30 },
            ),
            (
                "c".to_owned(),
                Exclusion::Taint {
                    key: "team".to_owned(),
                    value: Some("x".to_owned()),
                    effect: "NoSchedule".to_owned(),
                },
            ),
        ];
        assert_eq!(
            waiting(&reasons),
            "incompatible with nodepool \"a\", no instance type had enough resources, requested cpu 64, the largest has 31850m; \
             incompatible with nodepool \"b\", all available instance types exceed limits for nodepool, memory 60Gi of 64Gi in use; \
             incompatible with nodepool \"c\", did not tolerate taint team=x:NoSchedule"
        );
    }

    #[test]
    fn devices_that_are_missing_are_told_with_claim_and_class() {
        let devices =
            |requested, closest: Option<&str>, constraint: Option<&str>| Exclusion::Devices {
                claim: "gpus".to_owned(),
                request: "gpu".to_owned(),
                class: "gpu.example.com".to_owned(),
                requested,
                found: 8,
                closest: closest.map(str::to_owned),
                constraint: constraint.map(str::to_owned),
            };
        assert_eq!(
            exclusion(&devices(9, Some("p5.48xlarge"), None)),
            "no instance type could allocate resource claim gpus: request gpu asks for 9 of device class gpu.example.com, 8 available on p5.48xlarge"
        );
        assert!(
            exclusion(&devices(0, None, None))
                .ends_with("asks for all of device class gpu.example.com, 8 available")
        );
        assert!(
            exclusion(&devices(9, Some("p5.48xlarge"), Some("example.com/numa")))
                .ends_with("8 available on p5.48xlarge under its constraint on example.com/numa")
        );
        assert_eq!(
            exclusion(&Exclusion::ClaimElsewhere { claim: "gpus".to_owned() }),
            "resource claim gpus is allocated where new nodes can't reach its devices"
        );
    }

    #[test]
    fn a_pod_that_can_not_be_planned_for_says_so_once() {
        let invalid = || Exclusion::Pod("label kubernetes.io/hostname is restricted".to_owned());
        let reasons = [("a".to_owned(), invalid()), ("b".to_owned(), invalid())];
        assert_eq!(waiting(&reasons), "label kubernetes.io/hostname is restricted");
        assert_eq!(waiting(&[]), "no nodepools found");
    }
}
