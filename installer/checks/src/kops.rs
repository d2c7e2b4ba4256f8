//! The checks that are made of a kOps cluster. It has no EKS API, and what Tenon needs in AWS is
//! made by kOps and `tenon kops`: only the API server is asked, and before an installation the
//! registry of the operator's image.

/// Ids, and what to type where it is not the command for EKS.
const CHECKS: [(&str, Option<&str>); 22] = [
    ("CL-02", Some("kops upgrade cluster --name <cluster>")),
    ("CL-10", None),
    ("CL-12", None),
    ("CL-14", None),
    ("EX-01", Some("kops edit cluster <cluster>   # spec.karpenter.enabled: false")),
    ("EX-02", None),
    (
        "EX-03",
        Some(
            "kubectl -n kube-system scale deployment cluster-autoscaler --replicas=0   # once \
             NodePools have replaced its InstanceGroups",
        ),
    ),
    ("EX-04", Some("kops edit cluster <cluster>   # spec.nodeTerminationHandler.enabled: false")),
    ("EX-05", None),
    ("EX-14", None),
    ("IM-01", None),
    ("NC-01", None),
    ("NC-02", None),
    ("NO-01", None),
    ("NP-01", None),
    ("NP-02", None),
    ("OP-01", None),
    ("OP-02", None),
    ("OP-03", None),
    ("OP-04", None),
    ("OP-05", None),
    ("QS-02", None),
];

/// Whether a check is made.
pub(super) fn has(id: &str) -> bool {
    CHECKS.iter().any(|(known, _)| *known == id)
}

/// What to type when a check fails; none for the command of the table.
pub(super) fn fix(id: &str) -> Option<&'static str> {
    CHECKS.iter().find(|(known, _)| *known == id).and_then(|(_, fix)| *fix)
}

/// What to type about the cause of a line of the log or of an event; none where the command that is
/// known of EKS does not help.
pub(super) fn fix_of_cause(fix: &'static str) -> Option<&'static str> {
    if fix.starts_with("tenon iam verify") {
        return Some(
            "tenon kops export cluster --state <state-store> --name <cluster>   # compare with the \
             permissions in the Cluster",
        );
    }
    let is_of_eks = ["tenon iam", "tenon install", "tenon doctor", "aws eks"];
    (!is_of_eks.iter().any(|command| fix.starts_with(command))).then_some(fix)
}

#[cfg(test)]
mod tests {
    use super::super::observed::{Asked, Observed, Seen};
    use super::super::report::{Options, judge};
    use super::super::{Outcome, signatures, table};
    use super::*;

    #[test]
    fn every_check_is_one_of_the_table_and_types_nothing_for_eks() {
        for (id, fix) in CHECKS {
            let known = table::all().find(|check| check.id == id).expect(id);
            let fix = fix.unwrap_or(known.fix);
            for eks in ["tenon ", "aws eks", "eksctl"] {
                assert!(!fix.contains(eks), "{id}: {fix}");
            }
        }
    }

    #[test]
    fn causes_type_nothing_for_eks_either() {
        for signature in signatures::SIGNATURES {
            let fix = fix_of_cause(signature.fix).unwrap_or_default();
            let fix = fix.split("   #").next().unwrap_or_default();
            for eks in ["tenon i", "aws eks", "eksctl"] {
                assert!(!fix.contains(eks), "{fix}");
            }
        }
    }

    /// A healthy kOps cluster, of which nothing is known but what the API server says.
    fn healthy() -> Observed {
        let healthy = crate::fixture::healthy();
        Observed {
            now: healthy.now,
            asked: Asked { kops: true, ..healthy.asked },
            kubernetes: healthy.kubernetes,
            operator: healthy.operator,
            cost_tags: healthy.cost_tags,
            ..Observed::default()
        }
    }

    #[test]
    fn every_check_asks_nothing_but_the_api_server() {
        let report = judge(&healthy(), &Options { installed: true, ..Options::default() });
        let lines: Vec<_> = report.categories.iter().flat_map(|group| &group.checks).collect();
        assert_eq!(lines.len(), CHECKS.len());
        for line in lines {
            assert!(matches!(line.outcome, Outcome::Pass(_)), "{}: {:?}", line.id, line.outcome);
        }
    }

    #[test]
    fn what_fails_is_mended_by_commands_of_kops() {
        let mut seen = healthy();
        for id in ["EX-04", "OP-04"] {
            crate::fixture::break_it(id, &mut seen);
        }
        let denied = "UnauthorizedOperation: not authorized to perform: ec2:CreateFleet";
        seen.operator.log = Seen::Known(vec![denied.to_owned()]);
        let report = judge(&seen, &Options { installed: true, ..Options::default() });
        let lines = report.categories.iter().flat_map(|group| &group.checks);
        let fixes: Vec<&str> = lines.filter_map(|line| line.fix.as_deref()).collect();
        assert_eq!(fixes.len(), 2, "{fixes:?}");
        assert!(fixes[0].starts_with("kops edit cluster prod"), "{fixes:?}");
        assert!(fixes[1].starts_with("tenon kops export cluster"), "{fixes:?}");
        let text = serde_json::to_string(&report).expect("data");
        assert!(!text.contains("tenon iam"), "{text}");
    }
}
