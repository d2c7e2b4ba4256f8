use super::*;

#[test]
fn only_the_operators_own_domains_are_restricted() {
    let rules = LabelRules::aws();
    for key in [
        CAPACITY_TYPE,
        ZONE,
        aws::INSTANCE_FAMILY,
        aws::ZONE_ID,
        "kubernetes.io/x",
        "node.k8s.io/x",
        "karpenter.sh",
        "x",
    ] {
        assert_eq!(rules.restriction(key), None, "{key}");
    }
    for key in [HOSTNAME, "karpenter.sh/x", "a.karpenter.sh/x", REGISTERED, aws::EC2NODECLASS_HASH]
    {
        assert!(rules.restriction(key).is_some(), "{key}");
    }
    assert_eq!(
        LabelRules::core().restriction("karpenter.k8s.aws/x"),
        None,
        "only the AWS provider knows its domain"
    );
}

#[test]
fn older_names_mean_the_newer_ones() {
    let rules = LabelRules::aws();
    assert_eq!(rules.normalize("beta.kubernetes.io/arch"), ARCH);
    assert_eq!(rules.normalize("failure-domain.beta.kubernetes.io/zone"), ZONE);
    assert_eq!(rules.normalize(aws::EBS_CSI_ZONE), ZONE);
    assert_eq!(LabelRules::core().normalize(aws::EBS_CSI_ZONE), aws::EBS_CSI_ZONE);
    assert_eq!(rules.normalize("team"), "team");
}
