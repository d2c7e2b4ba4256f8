//! The planner's reasons for a NodePool that is nothing for a pod, as sentences. Events say the
//! same in Karpenter's words ([`tenon_state::explain`]).

use tenon_planner::plan::Exclusion;
use tenon_state::explain;

use super::amounts::{amount, pair};
use super::words::counted;

/// Why a NodePool is nothing for a pod.
pub(super) fn exclusion(why: &Exclusion) -> String {
    match why {
        Exclusion::PoolNotReady(reason) => reason.clone(),
        Exclusion::Taint { key, value, effect } => {
            format!("the pod does not tolerate the taint {}", taint(key, value.as_deref(), effect))
        }
        Exclusion::Requirement { key, pod, pool } => {
            let (wanted, offered) = (values(pod), values(pool));
            if pool == "not defined" {
                format!(
                    "the pod requires the label {key} to be {wanted}, and no node of the NodePool \
                     has that label"
                )
            } else {
                format!(
                    "the pod requires the label {key} to be {wanted}, and nodes of the NodePool \
                     have {offered}"
                )
            }
        }
        Exclusion::NoInstanceType { closest, differs } => {
            let closest = closest.as_ref().filter(|_| !differs.is_empty());
            let closest = closest.map(|kind| {
                format!("; the closest is {kind}, which differs in {}", differs.join(", "))
            });
            let closest = closest.unwrap_or_default();
            format!(
                "no instance type has the labels that the pod and the NodePool require{closest}"
            )
        }
        Exclusion::Resources { resource, requested, largest, closest, missing } => {
            let (requested, largest) = pair(resource, *requested, *largest);
            let lacks: Vec<String> =
                missing.iter().map(|(name, lack)| amount(name, *lack)).collect();
            let closest = closest.as_ref().filter(|_| !lacks.is_empty());
            let closest = closest
                .map(|kind| format!("; the closest is {kind}, which lacks {}", lacks.join(", ")));
            format!(
                "no instance type is large enough: {requested} requested, at most {largest} left \
                 beside DaemonSets{}",
                closest.unwrap_or_default()
            )
        }
        Exclusion::NoOffering { sold_out, .. } => {
            let sold_out = if sold_out.is_empty() {
                String::new()
            } else {
                format!(": {}", sold_out.join(", "))
            };
            format!("instance types match, but none is available where it is required{sold_out}")
        }
        Exclusion::Reserved { reservations } => format!(
            "other new nodes take the rest of its {} ({})",
            if reservations.len() == 1 { "capacity reservation" } else { "capacity reservations" },
            reservations.join(", ")
        ),
        Exclusion::Limit { resource, limit, used } => {
            let (limit, used) = pair(resource, *limit, *used);
            format!("a node would exceed its limit of {limit}; in use or planned: {used}")
        }
        Exclusion::MinValues { key, required, found } => format!(
            "its requirement {key} has minValues {required}, and {} left",
            match found {
                0 => "no value is".to_owned(),
                1 => "1 value is".to_owned(),
                n => format!("{} are", counted(*n as usize, "value")),
            }
        ),
        Exclusion::Topology { key, rule } => format!("{rule} (topology key {key})"),
        Exclusion::Devices { .. } | Exclusion::ClaimElsewhere { .. } | Exclusion::Pod(_) => {
            explain::exclusion(why)
        }
    }
}

/// `team=ml:NoSchedule`
pub(super) fn taint(key: &str, value: Option<&str>, effect: &str) -> String {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => format!("{key}={value}:{effect}"),
        None => format!("{key}:{effect}"),
    }
}

/// The planner's `In [a b]` in words.
fn values(text: &str) -> String {
    let listed = |operator: &str| {
        let list = text.strip_prefix(operator)?.strip_prefix(" [")?.strip_suffix(']')?;
        // "and 3 others" ends a list that was cut.
        Some(match list.split_once(" and ") {
            Some((shown, rest)) => format!("{}, and {rest}", shown.replace(' ', ", ")),
            None => list.replace(' ', ", "),
        })
    };
    if let Some(list) = listed("In") {
        return if list.contains(',') { format!("one of {list}") } else { list };
    }
    if let Some(list) = listed("NotIn") {
        return if list.contains(',') { format!("none of {list}") } else { format!("not {list}") };
    }
    match text {
        "Exists" => "any value".to_owned(),
        "DoesNotExist" => "absent".to_owned(),
        other => other.strip_prefix("Exists ").unwrap_or(other).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_read_as_sentences() {
        let texts = [
            "In [ml]",
            "In [a b and 3 others]",
            "NotIn [a]",
            "NotIn [a b]",
            "Exists",
            "DoesNotExist",
            "Exists >=4",
        ];
        assert_eq!(
            texts.map(values),
            [
                "ml",
                "one of a, b, and 3 others",
                "not a",
                "none of a, b",
                "any value",
                "absent",
                ">=4"
            ]
        );
    }

    #[test]
    fn counts_agree_with_their_nouns() {
        let min =
            |found| exclusion(&Exclusion::MinValues { key: "k".to_owned(), required: 3, found });
        assert!(min(0).ends_with("no value is left"));
        assert!(min(1).ends_with("1 value is left"));
        assert!(min(2).ends_with("2 values are left"));
        let reserved = |ids: &[&str]| {
            exclusion(&Exclusion::Reserved {
                reservations: ids.iter().map(|&id| id.to_owned()).collect(),
            })
        };
        assert!(reserved(&["a"]).contains("capacity reservation (a)"));
        assert!(reserved(&["a", "b"]).contains("capacity reservations (a, b)"));
        let none = Exclusion::NoOffering { closest: None, sold_out: Vec::new() };
        assert!(exclusion(&none).ends_with("required"), "no trailing colon");
    }
}
