use super::*;
use crate::{NodePoolSpec, TaintEffect};

fn check(key: &str, operator: Operator, values: &[&str], min_values: Option<i32>) -> Vec<String> {
    let requirement =
        Requirement { min_values, ..Requirement::new(key, operator, values.iter().copied()) };
    super::requirement(&requirement, &LabelRules::aws()).iter().map(ToString::to_string).collect()
}

#[test]
fn accepts_what_karpenter_accepts() {
    for (key, operator, values, min_values) in [
        ("team", Operator::In, &["a", ""][..], None),
        ("team", Operator::NotIn, &[], None),
        ("team", Operator::Exists, &[], None),
        ("team", Operator::DoesNotExist, &["a"], None),
        ("karpenter.sh/capacity-type", Operator::In, &["spot", "on-demand"], Some(2)),
        ("karpenter.sh/capacity-type", Operator::In, &["spot", "borrowed"], None),
        ("karpenter.sh/capacity-type", Operator::NotIn, &["borrowed"], None),
        ("karpenter.k8s.aws/instance-cpu", Operator::Gt, &["0"], None),
        ("karpenter.k8s.aws/instance-cpu", Operator::Lte, &["64"], None),
        ("node.kubernetes.io/anything", Operator::In, &["x"], None),
        ("notkarpenter.sh/x", Operator::In, &["x"], None),
        ("beta.kubernetes.io/arch", Operator::In, &["arm64"], None),
        ("topology.ebs.csi.aws.com/zone", Operator::In, &["eu-central-1a"], None),
    ] {
        assert_eq!(
            check(key, operator, values, min_values),
            Vec::<String>::new(),
            "{key} {operator} {values:?}"
        );
    }
}

#[test]
fn refuses_what_karpenter_refuses_and_says_why() {
    for (key, operator, values, min_values, message) in [
        ("team", Operator::In, &[][..], None, "operator In needs at least one value"),
        ("team", Operator::In, &["a"], Some(2), "minValues is 2, but only 1 values are given"),
        ("team", Operator::Gt, &[], None, "operator Gt needs exactly one value"),
        ("team", Operator::Lt, &["1", "2"], None, "operator Lt needs exactly one value"),
        ("team", Operator::Gte, &["-1"], None, "an integer that is not negative"),
        ("team", Operator::Lte, &["1.5"], None, "an integer that is not negative"),
        ("team", Operator::In, &["a b"], None, "`a b` is not a label value"),
        ("te am", Operator::Exists, &[], None, "`te am` is not a qualified name"),
        ("a/b/c", Operator::Exists, &[], None, "more than one `/`"),
        ("/b", Operator::Exists, &[], None, "the part before `/` is empty"),
        ("Team.io/b", Operator::Exists, &[], None, "not a DNS subdomain"),
        (
            "karpenter.sh/registered",
            Operator::Exists,
            &[],
            None,
            "label karpenter.sh/registered is restricted",
        ),
        ("sub.karpenter.sh/x", Operator::Exists, &[], None, "is restricted"),
        ("karpenter.k8s.aws/x", Operator::Exists, &[], None, "in the domain \"karpenter.k8s.aws\""),
        (
            "kubernetes.io/hostname",
            Operator::In,
            &["x"],
            None,
            "label kubernetes.io/hostname is restricted",
        ),
        (
            "karpenter.sh/capacity-type",
            Operator::In,
            &["borrowed"],
            None,
            "can be on-demand, spot, reserved",
        ),
        (
            "karpenter.sh/capacity-type",
            Operator::In,
            &["spot", "x"],
            Some(2),
            "minValues is 2, but only 1",
        ),
        (
            "karpenter.k8s.aws/instance-tenancy",
            Operator::In,
            &["mine"],
            None,
            "can be dedicated, default",
        ),
    ] {
        let problems = check(key, operator, values, min_values);
        assert!(
            problems.iter().any(|problem| problem.contains(message)),
            "{key} {operator} {values:?}: {problems:?}"
        );
    }
}

#[test]
fn all_problems_of_a_node_pool_are_returned_with_their_places() {
    let mut spec = NodePoolSpec {
        disruption: crate::Disruption::default(),
        limits: None,
        replicas: None,
        template: crate::NodeClaimTemplate::default(),
        weight: None,
    };
    assert_eq!(node_pool(&spec, &LabelRules::aws()), []);

    let labels = [("karpenter.sh/nodepool", "x"), ("kubernetes.io/hostname", "x"), ("a b", "c d")];
    spec.template.metadata.labels =
        Some(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
    spec.template.spec.taints = Some(vec![
        Taint::new("", TaintEffect::NoSchedule),
        Taint { value: Some("b c".to_owned()), ..Taint::new("a", TaintEffect::NoSchedule) },
        Taint::new("dup", TaintEffect::NoSchedule),
    ]);
    spec.template.spec.startup_taints = Some(vec![
        Taint::new("dup", TaintEffect::NoExecute),
        Taint { value: Some("v".to_owned()), ..Taint::new("dup", TaintEffect::NoSchedule) },
    ]);
    spec.template.spec.requirements = vec![
        Requirement::new("karpenter.sh/nodepool", Operator::Exists, [""; 0]),
        Requirement::new("ok", Operator::In, [""; 0]),
    ];
    let problems: Vec<String> =
        node_pool(&spec, &LabelRules::aws()).iter().map(ToString::to_string).collect();
    let expected = [
        "spec.template.metadata.labels[a b]: `a b` is not a qualified name",
        "spec.template.metadata.labels[a b]: `c d` is not a label value",
        "spec.template.metadata.labels[karpenter.sh/nodepool]: label karpenter.sh/nodepool is set by the operator",
        "spec.template.metadata.labels[kubernetes.io/hostname]: label kubernetes.io/hostname is restricted",
        "spec.template.spec.taints[0]: a taint needs a key",
        "spec.template.spec.taints[1]: `b c` is not a qualified name",
        "spec.template.spec.startupTaints[1]: taint dup:NoSchedule is given twice",
        "spec.template.spec.requirements[0]: label karpenter.sh/nodepool is set by the operator",
        "spec.template.spec.requirements[1]: operator In needs at least one value",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem} should start with {expected}");
    }
}
