//! Of groups as AWS and the cluster show them: the NodePools that they are, and the steps.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};
use tenon_crds::ec2nodeclass::{BlockDevice, BlockDeviceMapping};
use tenon_crds::{NodePool, validation};
use tenon_installer_core::apply::is_runnable;
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::observe::auto_scaling::{GroupState, Market};
use tenon_installer_core::observe::ec2::TypeSize;
use tenon_installer_core::observe::node_groups::{NodeGroup, Taint};
use tenon_installer_core::observe::templates::TemplateState;
use tenon_installer_core::ownership::{ADOPTED_BY, REPLICAS, SIZES};
use tenon_installer_core::plan::Plan;

use tenon_installer_core::kubernetes::resources::node_object;

use super::propose::{Base, propose, yaml};
use super::steps::{Limits, Part, Wanted, abort, migrate};
use super::{Autoscaler, Found, Group, fit};

const ID: &str = "abcd0123";

fn text(text: &str) -> String {
    text.to_owned()
}

fn autoscaler(replicas: i64, args: &[&str], annotations: &Value) -> Autoscaler {
    let discovery = "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled";
    let args = [&["./cluster-autoscaler", discovery], args].concat();
    let container = json!({"image": "cluster-autoscaler:v1.34.0", "command": args});
    let body = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "ca", "namespace": "kube-system", "annotations": annotations},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    });
    Autoscaler::of(Object::from_json(body, "deployments")).expect("it is one")
}

fn node(name: &str, instance: &str, labels: &Value, taints: &Value) -> Node {
    let body = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": format!("aws:///eu-central-1a/{instance}"), "taints": taints},
        "status": {"nodeInfo": {
            "osImage": "Amazon Linux 2023.9.20260101", "architecture": "", "bootID": "",
            "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "kubeletVersion": "", "machineID": "", "operatingSystem": "", "systemUUID": "",
        }},
    });
    serde_json::from_value(body).expect("a node")
}

fn scaling(name: &str, (min, max): (i32, i32), instances: &[&str]) -> GroupState {
    GroupState {
        name: text(name),
        min,
        max,
        desired: i32::try_from(instances.len()).expect("few"),
        subnet_ids: vec![text("subnet-a"), text("subnet-b")],
        tags: [(text("k8s.io/cluster-autoscaler/enabled"), text("true"))].into(),
        instances: instances.iter().map(|id| text(id)).collect(),
        ..GroupState::default()
    }
}

/// A managed node group of two nodes, and a self-managed one of one node and an instance that has
/// not joined.
fn found() -> Found {
    let of_eks = json!({
        "eks.amazonaws.com/nodegroup": "apps", "team": "red", "topology.kubernetes.io/zone": "x",
    });
    let passing = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    let managed = Group {
        name: text("apps"),
        scaling: scaling("eks-apps-1234", (2, 10), &["i-1", "i-2"]),
        managed: Some(NodeGroup {
            name: text("apps"),
            subnet_ids: vec![text("subnet-a")],
            image: text("AL2023_x86_64_STANDARD"),
            instance_types: vec![text("m5.large"), text("m5.xlarge"), text("m6i.large")],
            is_spot: true,
            labels: [(text("team"), text("red"))].into(),
            taints: vec![Taint {
                key: text("team"),
                value: text("red"),
                effect: text("NoSchedule"),
            }],
            disk_gib: Some(50),
            template: None,
        }),
        template: None,
        nodes: vec![node("one", "i-1", &of_eks, &passing), node("two", "i-2", &of_eks, &json!([]))],
    };
    let mut scaling = scaling("Legacy_Workers", (0, 4), &["i-3", "i-4"]);
    scaling.market = Some(Market::Both);
    let label = text("k8s.io/cluster-autoscaler/node-template/label/tier");
    let taint = text("k8s.io/cluster-autoscaler/node-template/taint/dedicated");
    scaling.tags.extend([(label, text("back")), (taint, text("batch:NoExecute"))]);
    let size = BlockDevice { volume_size: Some(text("80Gi")), ..BlockDevice::default() };
    let disk = BlockDeviceMapping {
        device_name: Some(text("/dev/xvda")),
        ebs: Some(size),
        root_volume: None,
    };
    let own = Group {
        name: text("Legacy_Workers"),
        scaling,
        managed: None,
        template: Some(TemplateState {
            image_id: Some(text("ami-1234")),
            instance_type: Some(text("c5.2xlarge")),
            user_data: Some(text("IyEvYmluL2Jhc2g=")),
            security_groups: vec![text("sg-1")],
            disks: vec![disk],
            is_monitored: true,
            tags: [(text("cost"), text("42")), (text("Name"), text("worker"))].into(),
            ..TemplateState::default()
        }),
        nodes: vec![node("three", "i-3", &json!({"disk": "ssd"}), &json!([]))],
    };
    let size = |cpu: i64, memory_mib: i64| TypeSize { cpu, memory_mib };
    Found {
        autoscalers: vec![autoscaler(2, &[], &json!({}))],
        groups: vec![own, managed],
        zones: [
            (text("subnet-a"), text("eu-central-1a")),
            (text("subnet-b"), text("eu-central-1b")),
        ]
        .into(),
        types: [
            (text("m5.large"), size(2, 8_192)),
            (text("m5.xlarge"), size(4, 16_384)),
            (text("m6i.large"), size(2, 8_192)),
            (text("c5.2xlarge"), size(8, 16_384)),
        ]
        .into(),
        ..Found::default()
    }
}

fn base() -> Base {
    let class = json!({
        "role": "tenon-node",
        "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "prod"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "prod"}}],
        "tags": {"owner": "platform"},
    });
    Base {
        class: class.as_object().cloned().unwrap_or_else(Map::new),
        taken: BTreeSet::from([text("default")]),
    }
}

#[test]
fn groups_are_these_node_pools() {
    let found = found();
    let proposal = propose(&found, &found.autoscalers[0], &base());
    insta::assert_snapshot!(yaml(&proposal));
    for object in proposal.objects.iter().filter(|object| object["kind"] == "NodePool") {
        let pool: NodePool = serde_json::from_value(object.clone()).expect("a NodePool");
        let rules = tenon_crds::labels::LabelRules::aws();
        assert_eq!(validation::node_pool(&pool.spec, &rules), [], "{object}");
    }
}

#[test]
fn how_cluster_autoscaler_removes_nodes_decides_about_consolidation() {
    let mut found = found();
    found.groups.truncate(1);
    let of = |args: &[&str]| {
        let proposal = propose(&found, &autoscaler(1, args, &json!({})), &base());
        proposal.objects[1]["spec"]["disruption"].clone()
    };
    let policy = |policy: &str, after: &str| json!({"consolidationPolicy": policy, "consolidateAfter": after});
    assert_eq!(of(&[]), policy("WhenEmptyOrUnderutilized", "10m"));
    let longer = of(&["--scale-down-unneeded-time=30m"]);
    assert_eq!(longer, policy("WhenEmptyOrUnderutilized", "30m"));
    assert_eq!(of(&["--scale-down-enabled=false"]), policy("WhenEmpty", "Never"));
}

#[test]
fn the_family_of_an_image_is_known_without_any_node() {
    let mut found = found();
    found.groups.truncate(1);
    found.groups[0].nodes.clear();
    let mut of = |name: &str| {
        let template = found.groups[0].template.as_mut().expect("it has one");
        template.image_name = Some(text(name));
        let proposal = propose(&found, &found.autoscalers[0], &base());
        proposal.objects[0]["spec"]["amiFamily"].as_str().map(str::to_owned)
    };
    for (name, family) in [
        ("amazon-eks-node-al2023-arm64-standard-1.34-v20261112", "AL2023"),
        ("amazon-eks-gpu-node-1.32-v20251112", "AL2"),
        ("bottlerocket-aws-k8s-1.34-x86_64-v1.49.0-abc", "Bottlerocket"),
        ("Windows_Server-2022-English-Core-EKS_Optimized-1.34-2026.11.11", "Windows2022"),
        ("ubuntu-eks/k8s_1.34/images/x", "Custom"),
    ] {
        assert_eq!(of(name).as_deref(), Some(family), "{name}");
    }
}

#[test]
fn names_are_valid_and_no_other_pool_has_them() {
    let mut found = found();
    let group = |name: &str| {
        let mut group = found.groups[0].clone();
        group.name = text(name);
        group
    };
    let long = "x".repeat(100);
    found.groups = ["default", "A_b", "a-b", &long, "___"].map(group).to_vec();
    let proposal = propose(&found, &found.autoscalers[0], &base());
    let pools = proposal.objects.iter().filter(|object| object["kind"] == "NodePool");
    let names = pools.filter_map(|pool| pool["metadata"]["name"].as_str()).collect::<Vec<_>>();
    assert_eq!(names[..3], ["default-group", "a-b", "a-b-group"]);
    let distinct = names.iter().collect::<BTreeSet<_>>();
    assert_eq!(distinct.len(), 5, "{names:?}");
    for name in &names {
        let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(!name.is_empty() && name.len() <= 63 && name.chars().all(valid), "{name}");
        assert!(!name.starts_with('-') && !name.ends_with('-'), "{name}");
    }
    let classes = proposal.objects.iter().filter(|object| object["kind"] == "EC2NodeClass");
    assert_eq!(classes.count(), 1, "they differ in nothing that EC2 knows");
}

fn limits() -> Limits {
    Limits { pod_seconds: 300, node_seconds: 900, seconds: 600, is_forced: false }
}

fn parts(found: &Found) -> Vec<Part> {
    let proposal = propose(found, &found.autoscalers[0], &base());
    let objects = proposal.objects.into_iter().filter_map(node_object);
    let objects = objects.map(|object| Wanted { object, live: None }).collect::<Vec<_>>();
    migrate(found, &found.autoscalers[0], &objects, (ID, limits()))
}

fn ids(plan: &Plan) -> Vec<&str> {
    assert!(is_runnable(plan), "{plan:?}");
    plan.steps.iter().map(|step| step.id.as_str()).collect()
}

#[test]
fn cluster_autoscaler_stops_before_node_pools_exist_and_groups_go_one_by_one() {
    let parts = parts(&found());
    let groups = parts.iter().map(|part| part.group.as_deref()).collect::<Vec<_>>();
    assert_eq!(groups, [None, Some("Legacy_Workers"), Some("apps")]);
    assert_eq!(
        ids(&parts[0].plan),
        [
            "EC2NodeClass/legacy-workers",
            "ready/legacy-workers",
            "EC2NodeClass/apps",
            "ready/apps",
            "sizes",
            "stop",
            "NodePool/legacy-workers",
            "NodePool/apps",
            "cordon",
        ]
    );
    let after = |id: &str| {
        let step = parts[0].plan.steps.iter().find(|step| step.id == id).expect("a step");
        step.depends_on.clone()
    };
    assert_eq!(after("NodePool/apps"), ["stop"]);
    assert_eq!(after("stop"), ["ready/legacy-workers", "ready/apps", "sizes"]);
    assert_eq!(
        ids(&parts[1].plan),
        ["suspend/Legacy_Workers", "node/three", "node/i-4", "resume/Legacy_Workers"]
    );
    assert_eq!(
        ids(&parts[2].plan),
        [
            "suspend/eks-apps-1234",
            "size/eks-apps-1234",
            "node/one",
            "node/two",
            "resume/eks-apps-1234"
        ]
    );
}

#[test]
fn what_is_done_needs_no_step() {
    let mut found = found();
    let sizes = json!({
        "Legacy_Workers": {"min": 0, "desired": 2, "rebalance": true},
        "eks-apps-1234": {"min": 2, "desired": 2, "rebalance": false},
    });
    let marks = json!({REPLICAS: "2", ADOPTED_BY: ID, SIZES: sizes.to_string()});
    found.autoscalers = vec![autoscaler(0, &[], &marks)];
    for group in &mut found.groups {
        group.scaling.min = 0;
        group.scaling.desired = 0;
        group.scaling.is_rebalance_suspended = true;
        for node in &mut group.nodes {
            node.spec.get_or_insert_default().unschedulable = Some(true);
        }
    }
    found.groups[0].scaling.instances.clear();
    found.groups[0].nodes.clear();
    let of = |found: &Found| migrate(found, &found.autoscalers[0], &[], (ID, limits()));
    // The first is empty, and was killed before it could go on; of the second AZRebalance was
    // suspended by somebody else.
    let left = of(&found);
    assert_eq!(left.len(), 2);
    assert_eq!(ids(&left[0].plan), ["resume/Legacy_Workers"]);
    assert_eq!(ids(&left[1].plan), ["node/one", "node/two"]);
    found.groups[0].scaling.is_rebalance_suspended = false;
    found.groups[1].scaling.instances.clear();
    found.groups[1].nodes.clear();
    assert_eq!(of(&found), vec![]);

    // And back.
    found.cordoned = BTreeMap::from([(text("one"), text(ID)), (text("x"), text("other"))]);
    let back = abort(&found, &found.autoscalers[0], (ID, 600));
    assert_eq!(
        ids(&back),
        ["size/Legacy_Workers", "size/eks-apps-1234", "uncordon", "start", "sizes", "forget"]
    );
    let other = abort(&found, &found.autoscalers[0], ("other", 600));
    assert_eq!(ids(&other), [] as [&str; 0]);
}

#[test]
fn nodes_that_stay_keep_their_group_as_large() {
    let mut found = found();
    found.stays.insert(text("one"), text("Tenon's operator runs there"));
    let parts = parts(&found);
    let plan = &parts[2].plan;
    assert_eq!(
        ids(plan),
        ["suspend/eks-apps-1234", "size/eks-apps-1234", "node/two", "resume/eks-apps-1234"]
    );
    let size = plan.steps[1].changes.iter().map(|change| change.path.to_string());
    assert_eq!(size.collect::<Vec<_>>(), ["minSize"]);
    assert_eq!(plan.steps[1].changes[0].after, Some(json!(1)));
}

#[test]
fn what_can_t_be_moved_is_said_before_anything_is_done() {
    let all = found();
    let against = |one: &Autoscaler, found: &Found, lacks, wanted: &[String]| {
        fit::against(found, one, lacks, wanted).join("\n")
    };
    let one = &all.autoscalers[0];
    assert_eq!(against(one, &all, None, &[text("apps")]), "");
    let said = against(one, &all, Some("no pod is ready"), &[text("app")]);
    assert!(said.contains("scales no group app; it scales Legacy_Workers, apps"), "{said}");
    assert!(said.contains("no pod is ready"), "{said}");
    let azure = autoscaler(1, &["--cloud-provider=azure"], &json!({}));
    assert!(against(&azure, &all, None, &[]).contains("not of AWS"));
    let none = Found { autoscalers: all.autoscalers.clone(), ..Found::default() };
    assert!(against(one, &none, None, &[]).contains("no Auto Scaling group"));
    let mut git = one.clone();
    git.live.body["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/name": "x"});
    assert!(against(&git, &all, None, &[]).contains("Flux manages"));
    let two = Found { autoscalers: vec![one.clone(), one.clone()], ..Found::default() };
    assert!(fit::the_one(&two).is_err_and(|why| why[0].contains("2 Deployments")));
    let pods = (0..12).map(|n| (format!("a/{n}"), vec![text("no room")])).collect::<Vec<_>>();
    let said = fit::against_places(&pods);
    assert_eq!(said.len(), 12, "{said:?}");
    assert_eq!(said[10], "2 other pods would stay pending as well");
    assert_eq!(fit::against_places(&[]), [] as [String; 0]);
}
