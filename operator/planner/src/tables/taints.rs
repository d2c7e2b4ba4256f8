//! Whether tolerations tolerate taints.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// The effect of PreferNoSchedule taints on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Preferred {
    /// They exclude it, like NoSchedule.
    Counts,
    /// They are ignored.
    Ignored,
}

/// The first taint that is not tolerated.
pub(crate) fn untolerated<'t>(
    taints: &'t [Taint],
    tolerations: &[Toleration],
    preferred: Preferred,
) -> Option<&'t Taint> {
    taints.iter().find(|taint| {
        let ignored = preferred == Preferred::Ignored && taint.effect == "PreferNoSchedule";
        !ignored && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
    })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    let have = taint.value.as_deref().unwrap_or_default();
    let wanted = toleration.value.as_deref().unwrap_or_default();
    let compare = |holds: fn(i64, i64) -> bool| match (have.parse::<i64>(), wanted.parse::<i64>()) {
        (Ok(have), Ok(wanted)) => holds(have, wanted),
        _ => false,
    };
    match toleration.operator.as_deref().unwrap_or_default() {
        // An empty key means every taint, and goes with Exists only.
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && have == wanted,
        "Lt" => compare(|have, wanted| have < wanted),
        "Gt" => compare(|have, wanted| have > wanted),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.to_owned(),
            value: (!value.is_empty()).then(|| value.to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        }
    }

    fn mk_toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: text(key),
            operator: text(operator),
            value: text(value),
            effect: text(effect),
            toleration_seconds: None,
        }
    }

    #[test]
    fn matches_key_value_and_effect() {
        let taint = mk_taint("team", "a", "NoSchedule");
        for (toleration, expected) in [
            (mk_toleration("team", "Equal", "a", "NoSchedule"), true),
            (mk_toleration("team", "", "a", ""), true),
            (mk_toleration("team", "Exists", "", ""), true),
            (mk_toleration("", "Exists", "", ""), true),
            (mk_toleration("team", "Equal", "b", "NoSchedule"), false),
            (mk_toleration("team", "Equal", "a", "NoExecute"), false),
            (mk_toleration("other", "Exists", "", ""), false),
            (mk_toleration("", "Equal", "a", ""), false),
        ] {
            let found = untolerated(
                std::slice::from_ref(&taint),
                std::slice::from_ref(&toleration),
                Preferred::Counts,
            );
            assert_eq!(found.is_none(), expected, "{toleration:?}");
        }
    }

    #[test]
    fn compares_integers_for_gt_and_lt() {
        let taint = mk_taint("slots", "5", "NoSchedule");
        for (operator, value, expected) in
            [("Gt", "4", true), ("Gt", "5", false), ("Lt", "6", true), ("Lt", "x", false)]
        {
            let toleration = mk_toleration("slots", operator, value, "");
            let found = untolerated(std::slice::from_ref(&taint), &[toleration], Preferred::Counts);
            assert_eq!(found.is_none(), expected, "{operator} {value}");
        }
    }

    #[test]
    fn prefer_no_schedule_counts_until_it_is_relaxed() {
        let taints = [mk_taint("soft", "", "PreferNoSchedule")];
        assert!(untolerated(&taints, &[], Preferred::Counts).is_some());
        assert!(untolerated(&taints, &[], Preferred::Ignored).is_none());
    }
}
