use super::*;
use crate::cover::gaps;
use crate::scope::{Features, Partition};
use crate::size::{MANAGED_LIMIT, check_inline};

fn scope() -> Scope {
    Scope {
        partition: Partition::Aws,
        region: "eu-central-1".into(),
        account: "123456789012".into(),
        cluster: "c".into(),
        queue: Some("tenon-c".into()),
        node_roles: vec!["arn:aws:iam::123456789012:role/tenon/c/tenon-c-node".into()],
        features: Features::upstream(),
    }
}

fn documents(policies: &[NamedPolicy]) -> impl Iterator<Item = &Document> {
    policies.iter().map(|policy| &policy.document)
}

fn parts(scope: &Scope) -> Vec<ControllerPolicy> {
    controller_policies(scope).into_iter().map(|policy| policy.part).collect()
}

fn sids(scope: &Scope, part: ControllerPolicy) -> Vec<String> {
    part.document(scope)
        .unwrap()
        .statements
        .into_iter()
        .filter_map(|statement| statement.sid)
        .collect()
}

#[test]
fn upstreams_features_give_upstreams_six_policies() {
    use ControllerPolicy::*;
    assert_eq!(
        parts(&scope()),
        [
            NodeLifecycle,
            IamIntegration,
            EksIntegration,
            Interruption,
            ZonalShift,
            ResourceDiscovery
        ]
    );
}

#[test]
fn without_queue_there_is_no_interruption_policy() {
    assert!(!parts(&Scope { queue: None, ..scope() }).contains(&ControllerPolicy::Interruption));
}

#[test]
fn static_profiles_need_no_right_to_write_or_list_profiles() {
    let scope = Scope {
        features: Features { instance_profiles: InstanceProfiles::Static, ..Features::upstream() },
        ..scope()
    };
    assert_eq!(sids(&scope, ControllerPolicy::IamIntegration), ["AllowPassingInstanceRole"]);
    let discovery = sids(&scope, ControllerPolicy::ResourceDiscovery);
    assert!(!discovery.contains(&"AllowUnscopedInstanceProfileListAction".to_owned()));
    assert!(discovery.contains(&"AllowInstanceProfileReadActions".to_owned()));
}

#[test]
fn the_default_writes_only_profiles_under_the_clusters_path() {
    let scope = Scope { features: Features::default(), ..scope() };
    let document = ControllerPolicy::IamIntegration.document(&scope).unwrap();
    for statement in &document.statements[1..] {
        let Some(crate::document::Resources::Only(arns)) = &statement.resources else {
            panic!("{statement:?}")
        };
        assert_eq!(
            arns,
            &["arn:aws:iam::123456789012:instance-profile/karpenter/eu-central-1/c/*"]
        );
    }
}

#[test]
fn everything_that_creates_in_ec2_must_tag_for_the_cluster() {
    let document = ControllerPolicy::NodeLifecycle.document(&scope()).unwrap();
    let creating = document
        .statements
        .iter()
        .find(|s| s.sid.as_deref() == Some("AllowScopedEC2InstanceActionsWithTags"))
        .unwrap();
    assert_eq!(
        creating.conditions["StringEquals"]["aws:RequestTag/kubernetes.io/cluster/c"],
        ["owned"]
    );
    assert_eq!(creating.conditions["StringEquals"]["aws:RequestTag/eks:eks-cluster-name"], ["c"]);
    assert_eq!(creating.conditions["StringLike"]["aws:RequestTag/karpenter.sh/nodepool"], ["*"]);
}

#[test]
fn names_and_sids_are_unique() {
    let features = Features {
        volume_keys: vec!["arn:k".into()],
        queue_key: Some("arn:q".into()),
        ..Features::upstream()
    };
    let policies = controller_policies(&Scope { features, ..scope() });
    assert_eq!(policies.len(), ControllerPolicy::ALL.len());
    let names: std::collections::BTreeSet<_> =
        policies.iter().map(|policy| policy.part.name()).collect();
    assert_eq!(names.len(), policies.len());
    let sids: Vec<_> = policies
        .iter()
        .flat_map(|policy| policy.document.statements.iter().map(|s| s.sid.clone().unwrap()))
        .collect();
    let unique: std::collections::BTreeSet<_> = sids.iter().collect();
    assert_eq!(unique.len(), sids.len());
    assert!(
        sids.iter().all(|sid| sid.chars().all(|c| c.is_ascii_alphanumeric())),
        "IAM takes letters and digits only"
    );
}

/// The policies that IAM would refuse as managed policies, which upstream's template makes of them.
fn too_large_to_be_managed(policies: &[NamedPolicy]) -> Vec<&'static str> {
    let large = policies.iter().filter(|policy| policy.document.size() > MANAGED_LIMIT);
    large.map(|policy| policy.part.name()).collect()
}

#[test]
fn the_policies_of_an_ordinary_cluster_fit_inline() {
    let scope = Scope {
        cluster: "a-cluster-name-of-thirty-letters".into(),
        features: Features::default(),
        ..scope()
    };
    check_inline(documents(&controller_policies(&scope))).unwrap();
    assert_eq!(too_large_to_be_managed(&controller_policies(&scope)), [""; 0]);
}

#[test]
fn the_policies_fit_inline_for_the_longest_cluster_name_in_the_longest_partition() {
    let cluster = "x".repeat(100);
    let scope = Scope {
        partition: Partition::AwsUsGov,
        region: "us-gov-west-1".into(),
        node_roles: vec![format!(
            "arn:aws-us-gov:iam::123456789012:role/tenon/{cluster}/{}",
            "n".repeat(64)
        )],
        queue: Some("q".repeat(80)),
        cluster,
        features: Features::default(),
        ..scope()
    };
    check_inline(documents(&controller_policies(&scope))).unwrap();
    assert_eq!(too_large_to_be_managed(&controller_policies(&scope)), [""; 0]);
}

#[test]
fn too_many_node_roles_are_refused_before_the_first_call() {
    let node_roles = (0..200).map(|n| format!("arn:aws:iam::123456789012:role/node-{n}")).collect();
    let policies = controller_policies(&Scope { node_roles, ..scope() });
    assert!(
        check_inline(documents(&policies))
            .unwrap_err()
            .to_string()
            .contains("shorter cluster name")
    );
    assert_eq!(too_large_to_be_managed(&policies), ["KarpenterControllerIAMIntegrationPolicy"]);
}

#[test]
fn the_short_document_allows_the_same_and_what_no_call_asks_for() {
    let scope = Scope {
        features: Features {
            instance_profiles: InstanceProfiles::Static,
            zonal_shift: false,
            ..Features::upstream()
        },
        ..scope()
    };
    let policies = controller_policies(&scope);
    let short = shortened(policies.clone(), &scope);
    for document in documents(&policies) {
        assert_eq!(gaps([&short], document), []);
    }
    let more = gaps(documents(&policies), &short);
    let more = more.iter().map(|gap| {
        let kind = gap.resource.trim_start_matches("arn:aws:ec2:eu-central-1:*:");
        (gap.action.as_str(), kind)
    });
    assert_eq!(
        more.collect::<Vec<_>>(),
        [
            ("ec2:RunInstances", "instance/*"),
            ("ec2:CreateFleet", "instance/*"),
            ("ec2:CreateTags", "*/*"),
        ]
    );
    let size = documents(&policies).map(Document::size).sum::<usize>();
    assert!(short.size() + 900 < size, "{} and {size}", short.size());
}
