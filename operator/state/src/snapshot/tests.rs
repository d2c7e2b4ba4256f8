use tenon_crds::labels::LabelRules;

use super::*;
use crate::change::{Change, Object};
use crate::cluster::BACKLOG;
use crate::node_class::{self, NodeClassKind};
use serde_json::{Value, json};
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot::CatalogId;
use tenon_planner::snapshot::{CapacityType, Eviction, NodePhase, Placement, PodBudget};

const KINDS: &[NodeClassKind] = &[node_class::KWOK];

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// One catalog with one type for every NodeClass.
struct OneType;

impl Catalogs for OneType {
    fn catalog(&self, class: &NodeClassRef) -> Option<Arc<plan::Catalog>> {
        let offering = |zone: &str, price| plan::Offering {
            zone: zone.to_owned(),
            capacity_type: CapacityType::Spot,
            requirements: Vec::new(),
            price: MicroUsd(price),
            available: false,
            reservation_capacity: None,
            unpriced: None,
        };
        Some(Arc::new(plan::Catalog {
            node_class: class.clone(),
            instance_types: vec![plan::InstanceType {
                name: "c-4x".to_owned(),
                requirements: Vec::new(),
                capacity: Resources::default(),
                overhead: Resources::default(),
                offerings: vec![offering("a", 70), offering("b", 80)],
                ..plan::InstanceType::default()
            }],
        }))
    }
}

fn cluster(objects: Vec<Value>) -> Cluster {
    let mut cluster = Cluster::new(KINDS, LabelRules::core());
    for value in objects {
        #[expect(clippy::unnecessary_box_returns, reason = "the objects of the state are boxed")]
        fn parse<T: serde::de::DeserializeOwned>(value: Value) -> Box<T> {
            Box::new(serde_json::from_value(value).unwrap())
        }
        let object = match value["kind"].as_str().unwrap() {
            "NodePool" => Object::NodePool(parse(value)),
            "NodeClaim" => Object::NodeClaim(parse(value)),
            "Node" => Object::Node(parse(value)),
            "Pod" => Object::Pod(parse(value)),
            "DaemonSet" => Object::DaemonSet(parse(value)),
            "PodDisruptionBudget" => Object::PodDisruptionBudget(parse(value)),
            "PersistentVolumeClaim" => Object::PersistentVolumeClaim(parse(value)),
            "StorageClass" => Object::StorageClass(parse(value)),
            "CSINode" => Object::CSINode(parse(value)),
            kind => panic!("no {kind}"),
        };
        cluster.apply(Change::Applied(object));
    }
    cluster
}

fn snapshot(objects: Vec<Value>) -> plan::Snapshot {
    let snapshot = cluster(objects).snapshot(&OneType, NOW);
    snapshot.validate().expect("a snapshot keeps the planner's invariants");
    snapshot
}

#[expect(clippy::needless_pass_by_value, reason = "callers write literals")]
fn with(mut value: Value, extra: Value) -> Value {
    json_patch::merge(&mut value, &extra);
    value
}

fn claim(extra: Value) -> Value {
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "claim", "uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z",
            "labels": {"karpenter.sh/nodepool": "default", "from": "claim"}},
        "spec": {
            "requirements": [{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["b", "a"]}],
            "resources": {"requests": {"cpu": "2"}},
            "taints": [{"key": "kept", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "start", "effect": "NoSchedule"}],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
    });
    with(claim, extra)
}

fn launched() -> Value {
    claim(
        json!({"status": {"providerID": "p", "capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}}),
    )
}

fn node(extra: Value) -> Value {
    let node = json!({
        "kind": "Node",
        "metadata": {"name": "node", "labels": {"from": "node", "node.kubernetes.io/instance-type": "c-4x",
            "topology.kubernetes.io/zone": "b", "karpenter.sh/capacity-type": "spot"}},
        "spec": {"providerID": "p", "taints": [
            {"key": "kept", "effect": "NoSchedule"}, {"key": "start", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        ]},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3500m"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    with(node, extra)
}

fn pool(extra: Value) -> Value {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "uid": "p", "generation": 1},
        "spec": {"limits": {"cpu": "10", "nodes": "3"}, "template": {
            "metadata": {"labels": {"team": "a"}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
    });
    with(pool, extra)
}

fn taint_keys(node: &plan::Node) -> Vec<&str> {
    node.taints.iter().map(|taint| taint.key.as_str()).collect()
}

#[test]
fn a_nodeclaim_without_a_machine_is_what_it_asks_for() {
    let snapshot = snapshot(vec![claim(json!({}))]);
    let node = &snapshot.nodes[0];
    assert_eq!(node.phase, NodePhase::Pending);
    assert_eq!((node.capacity.cpu, node.allocatable.cpu), (0, 2000));
    assert_eq!(node.requirements[0].key, "kubernetes.io/arch");
    assert_eq!(node.requirements[0].values, ["a", "b"]);
    assert!(!node.ready);
}

#[test]
fn a_machine_is_described_by_its_nodeclaim_until_registered_and_by_its_node_afterwards() {
    let registered = json!({"metadata": {"labels": {"karpenter.sh/registered": "true"}}});
    let initialized = json!({"metadata": {"labels": {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}}});
    for (extra, phase, from, taints, price) in [
        (json!({}), NodePhase::Launched, "claim", vec!["kept"], None),
        (registered, NodePhase::Registered, "node", vec!["kept"], Some(80)),
        (
            initialized,
            NodePhase::Initialized,
            "node",
            vec!["kept", "start", "node.kubernetes.io/not-ready"],
            Some(80),
        ),
    ] {
        let snapshot = snapshot(vec![pool(json!({})), launched(), node(extra)]);
        let [node] = snapshot.nodes.as_slice() else { panic!("one machine") };
        assert_eq!((node.key.as_str(), node.name.as_deref()), ("claim", Some("node")));
        assert_eq!(node.phase, phase);
        assert_eq!(node.labels["from"], from);
        assert_eq!(taint_keys(node), taints);
        assert_eq!(node.price.map(|price| price.0), price);
        assert_eq!(node.allocatable.cpu, 3500);
    }
}

#[test]
fn do_not_disrupt_is_read_from_the_nodeclaim_until_registered_and_from_the_node_afterwards() {
    let mark = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let labelled = |labels: Value| node(json!({"metadata": {"labels": labels}}));
    let held = |objects: [Value; 2]| snapshot(objects.to_vec()).nodes[0].do_not_disrupt;
    let by_claim = |labels| held([with(launched(), mark.clone()), labelled(labels)]);
    let by_node = |labels| held([launched(), with(labelled(labels), mark.clone())]);
    let joining = json!({});
    let registered = json!({"karpenter.sh/registered": "true"});
    let initialized =
        json!({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
    assert!(by_claim(joining.clone()) && !by_node(joining));
    for joined in [registered, initialized] {
        assert!(by_node(joined.clone()), "set on the Node: {joined}");
        assert!(!by_claim(joined.clone()), "taken off the Node: {joined}");
    }
    let foreign = with(node(json!({"metadata": {"name": "foreign"}})), mark.clone());
    assert!(snapshot(vec![foreign]).nodes[0].do_not_disrupt, "it has no NodeClaim");
}

#[test]
fn a_node_that_is_nobodys_takes_part_and_one_without_its_provider_id_does_not() {
    let foreign = node(json!({"metadata": {"name": "foreign"}, "spec": {"providerID": "other"}}));
    let unknown = node(json!({
        "metadata": {"name": "unknown", "labels": {"karpenter.kwok.sh/kwoknodeclass": "default"}},
        "spec": {"providerID": null},
    }));
    let snapshot = snapshot(vec![foreign, unknown]);
    let keys: Vec<_> = snapshot.nodes.iter().map(|node| node.key.as_str()).collect();
    assert_eq!(keys, ["foreign"]);
    assert_eq!(snapshot.nodes[0].phase, NodePhase::Initialized);
    assert_eq!(taint_keys(&snapshot.nodes[0]).len(), 3);
}

#[test]
fn a_deleted_node_of_a_living_nodeclaim_is_not_going_yet() {
    let deleted = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
    let snapshot_of = |claim: Value| snapshot(vec![claim, node(deleted.clone())]).nodes[0].deleting;
    assert!(!snapshot_of(launched()));
    assert!(snapshot_of(with(launched(), deleted.clone())));
}

#[test]
fn a_pool_is_its_template_with_its_labels_and_hash() {
    let snapshot = snapshot(vec![pool(json!({}))]);
    let pool = &snapshot.node_pools[0];
    assert_eq!(pool.not_ready, None);
    assert_eq!(pool.template.labels["team"], "a");
    assert_eq!(pool.template.labels["karpenter.sh/nodepool"], "default");
    assert_eq!(pool.template.labels["karpenter.kwok.sh/kwoknodeclass"], "default");
    assert_eq!(pool.template.annotations["karpenter.sh/nodepool-hash-version"], "v3");
    assert_eq!(pool.limits["cpu"], 10_000);
    assert_eq!(pool.limits["nodes"], 3);
    assert_eq!(pool.template.expire_after.as_deref(), Some("720h"));
    assert_eq!(pool.catalog, Some(CatalogId(0)));
}

#[test]
fn a_pool_that_is_not_ready_says_why() {
    let why = |extra| snapshot(vec![pool(extra)]).node_pools[0].not_ready.clone();
    assert!(why(json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}})).is_some());
    assert!(why(json!({"status": null})).is_some());
    let unhealthy = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "UnhealthyDependents", "message": "NodeClassReady=False", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}});
    assert!(why(unhealthy).unwrap().contains("NodeClassReady=False"));
}

#[test]
fn budgets_are_reduced_to_those_in_force() {
    let of = |budgets: Value| {
        let pool = pool(json!({"spec": {"disruption": {"budgets": budgets}}}));
        snapshot(vec![pool]).node_pools[0].disruption.budgets.clone()
    };
    let forever = json!([{"nodes": "10%"}, {"nodes": "5", "reasons": ["Drifted"]}]);
    assert_eq!(of(forever).len(), 2);
    assert!(of(json!([{"nodes": "0", "reasons": []}])).is_empty(), "no reasons cover nothing");
    // The epoch was a Thursday.
    let scheduled =
        |days| json!([{"nodes": "0", "schedule": format!("0 0 * * {days}"), "duration": "1h"}]);
    assert_eq!(of(scheduled("4")).len(), 1);
    assert!(of(scheduled("5")).is_empty());
    let broken =
        of(json!([{"nodes": "90%"}, {"nodes": "10%", "schedule": "tomorrow", "duration": "1h"}]));
    assert_eq!(broken, [plan::Budget { nodes: plan::BudgetNodes::Count(0), reasons: vec![] }]);
}

fn pod(extra: Value) -> Value {
    let pod = json!({
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": "pod", "uid": "u", "labels": {"app": "web"}},
        "spec": {"nodeName": "node"},
    });
    with(pod, extra)
}

fn budget(name: &str, extra: Value) -> Value {
    let budget = json!({
        "kind": "PodDisruptionBudget", "metadata": {"namespace": "default", "name": name},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": 1},
    });
    with(budget, extra)
}

#[test]
fn pods_are_bound_to_machines_by_the_name_of_the_node() {
    let snapshot = snapshot(vec![
        launched(),
        node(json!({})),
        pod(json!({})),
        pod(json!({
            "metadata": {"name": "zpod"}, "spec": {"nodeName": "nowhere"},
        })),
    ]);
    assert_eq!(snapshot.pods[0].placement, Placement::Bound(NodeId(0)));
    assert_eq!(snapshot.pods[1].placement, Placement::Waiting);
    assert_eq!(snapshot.pods[0].shape, snapshot.pods[1].shape, "equal pods share a shape");
}

#[test]
fn in_a_backlog_a_pod_waits_for_a_machine_like_its_equal_that_was_refused() {
    let refused = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    let waiting = |name: &str, extra: Value| {
        let bare = pod(json!({"metadata": {"name": name}, "spec": {"nodeName": null}}));
        with(bare, extra)
    };
    let larger = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
    let daemon = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": true},
    ]}});
    let others = || {
        vec![
            waiting("alike", json!({})),
            waiting("daemon", daemon.clone()),
            waiting("elsewhere", json!({"spec": {"schedulerName": "other"}})),
            waiting(
                "gated",
                json!({"status": {"conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
                ]}}),
            ),
            waiting("going", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            waiting("larger", larger.clone()),
            waiting("urgent", json!({"spec": {"priority": 5}})),
        ]
    };
    let placed = |backlog: usize, objects: Vec<Value>| -> BTreeSet<String> {
        let more = (0..backlog).map(|number| {
            waiting(&format!("backlog-{number}"), json!({"metadata": {"labels": {"app": "other"}}}))
        });
        let snapshot = snapshot(objects.into_iter().chain(more).collect());
        let waits = |pod: &&plan::Pod| pod.placement == Placement::Unschedulable;
        snapshot.pods.iter().filter(waits).map(|pod| pod.name.to_string()).collect()
    };
    let few = BACKLOG - others().len();
    assert_eq!(placed(BACKLOG, others()), [].into(), "kube-scheduler may have a place for each");
    let mut objects = others();
    objects.push(waiting("refused", json!({"status": {"conditions": refused}})));
    assert_eq!(
        placed(few, objects.clone()),
        ["refused".to_owned()].into(),
        "they have their turn soon"
    );
    assert_eq!(placed(BACKLOG, objects), ["alike".to_owned(), "refused".to_owned()].into());
}

#[test]
fn evictions_are_judged_as_the_api_server_would() {
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let name = || "a".to_owned();
    let none_left = json!({"status": {"disruptionsAllowed": 0}});
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, "status": {"disruptionsAllowed": 0}});
    for (pod_extra, budgets, expected) in [
        (json!({}), vec![], Eviction::Allowed),
        (protected.clone(), vec![], Eviction::DoNotDisrupt),
        (json!({}), vec![budget("a", json!({}))], Eviction::Allowed),
        (json!({}), vec![budget("a", none_left.clone())], Eviction::BlockedByPdb(name())),
        (
            json!({}),
            vec![budget("a", json!({"spec": {"minAvailable": null, "maxUnavailable": 0}}))],
            Eviction::FullyBlockedByPdb(name()),
        ),
        (
            json!({}),
            vec![budget("a", json!({"spec": {"minAvailable": "100%"}}))],
            Eviction::FullyBlockedByPdb(name()),
        ),
        (
            json!({}),
            vec![budget("a", json!({})), budget("b", json!({}))],
            Eviction::FullyBlockedByPdb(name()),
        ),
        (
            json!({}),
            vec![budget(
                "a",
                json!({"metadata": {"namespace": "other"}, "status": {"disruptionsAllowed": 0}}),
            )],
            Eviction::Allowed,
        ),
        (
            json!({}),
            vec![budget(
                "a",
                json!({"spec": {"selector": null}, "status": {"disruptionsAllowed": 0}}),
            )],
            Eviction::Allowed,
        ),
        (unready.clone(), vec![budget("a", none_left)], Eviction::BlockedByPdb(name())),
        (unready, vec![budget("a", always)], Eviction::Allowed),
    ] {
        let text = format!("{pod_extra} {budgets:?}");
        let mut objects = budgets;
        objects.push(pod(pod_extra));
        assert_eq!(snapshot(objects).pods[0].eviction, expected, "{text}");
    }
}

#[test]
fn a_pod_that_is_deleted_soon_whatever_protects_it_needs_a_place_now() {
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let never = || budget("a", json!({"spec": {"minAvailable": null, "maxUnavailable": 0}}));
    let blocked = Eviction::FullyBlockedByPdb("a".to_owned());
    let judged = |pod_extra: &Value, budgets: Vec<Value>, going: &Value| {
        let mut objects = budgets;
        objects.extend([claim(with(launched(), going.clone())), node(json!({}))]);
        objects.push(pod(pod_extra.clone()));
        snapshot(objects).pods[0].eviction.clone()
    };
    let going = |deadline: Option<&str>| {
        let annotations = json!({ labels::TERMINATION_TIMESTAMP: deadline });
        json!({"metadata": {
            "deletionTimestamp": "1970-01-01T00:00:00Z", "finalizers": ["a"],
            "annotations": deadline.map(|_| annotations),
        }})
    };
    for (going, soon) in [
        (going(Some("1970-01-01T00:02:00Z")), true),
        (going(Some("1969-12-31T23:00:00Z")), true),
        (going(Some("1970-01-01T01:00:00Z")), false),
        (going(None), false),
        // It may be set again before the NodeClaim is deleted.
        (
            json!({"metadata": {"annotations": {
                labels::TERMINATION_TIMESTAMP: "1970-01-01T00:02:00Z",
            }}}),
            false,
        ),
    ] {
        let of = |held: &Eviction| if soon { Eviction::Allowed } else { held.clone() };
        let text = going.to_string();
        assert_eq!(judged(&protected, vec![], &going), of(&Eviction::DoNotDisrupt), "{text}");
        assert_eq!(judged(&json!({}), vec![never()], &going), of(&blocked), "{text}");
        // What a budget allows in time still counts against it.
        let mut objects = vec![budget("a", json!({})), claim(with(launched(), going))];
        objects.extend([node(json!({})), pod(json!({}))]);
        assert_eq!(snapshot(objects).pods[0].pod_budget, Some(0), "{text}");
    }
}

#[test]
fn evictions_count_against_the_budget_that_allows_them() {
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let waiting = json!({"spec": {"nodeName": null}});
    let allows = json!({"status": {"disruptionsAllowed": 3}});
    let budgets = |pod_extra: Value, budgets: Vec<Value>| {
        let mut objects = budgets;
        objects.push(pod(pod_extra));
        let snapshot = snapshot(objects);
        let named = |it: PodBudget| (it.namespace, it.name, it.allowed);
        let list: Vec<_> = snapshot.pod_budgets.into_iter().map(named).collect();
        (snapshot.pods[0].pod_budget, list)
    };
    let counted = budgets(json!({}), vec![budget("a", allows.clone())]);
    assert_eq!(counted, (Some(0), vec![("default".to_owned(), "a".to_owned(), 3)]));
    let uncounted = (None, Vec::new());
    // A pod that is not ready is missing already.
    assert_eq!(budgets(unready, vec![budget("a", allows.clone())]), uncounted);
    assert_eq!(budgets(waiting, vec![budget("a", allows.clone())]), uncounted);
    // No budget allows what two of them forbid.
    assert_eq!(
        budgets(json!({}), vec![budget("a", allows.clone()), budget("b", allows)]),
        uncounted
    );
    let none_left = json!({"status": {"disruptionsAllowed": 0}});
    assert_eq!(budgets(json!({}), vec![budget("a", none_left)]), uncounted);
}

#[test]
fn a_daemonset_runs_on_new_nodes_what_its_newest_pod_runs_with_the_affinity_of_its_template() {
    let affinity = |key: &str| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}})
    };
    let set = json!({
        "kind": "DaemonSet", "metadata": {"namespace": "kube-system", "name": "agent", "uid": "ds"},
        "spec": {"template": {"spec": {"affinity": affinity("template"), "containers": [{"resources": {"requests": {"cpu": "100m"}}}]}}},
    });
    let of = |objects: Vec<Value>| {
        let set = snapshot(objects).daemon_sets[0].clone();
        (set.shape.requests.cpu, set.shape.required_affinity[0][0].key.clone())
    };
    assert_eq!(of(vec![set.clone()]), (100, "template".to_owned()));
    let live = |name: &str, created: &str, cpu: &str| {
        json!({
            "kind": "Pod",
            "metadata": {"namespace": "kube-system", "name": name, "creationTimestamp": created,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": true}]},
            "spec": {"affinity": affinity("pod"), "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
        })
    };
    let old = live("old", "1970-01-01T00:00:00Z", "200m");
    let new = live("new", "1970-01-02T00:00:00Z", "300m");
    assert_eq!(of(vec![set, old, new]), (300, "template".to_owned()));
}

#[test]
fn volumes_are_told_of_pods_and_their_limits_of_nodes() {
    let driver = |name: &str, rest: Value| with(json!({"name": name}), rest);
    let pod = |name: &str| {
        json!({"kind": "Pod", "metadata": {"namespace": "default", "name": name}, "spec": {"volumes": [
            {"name": "own", "ephemeral": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ]}})
    };
    let claim = |name: &str| {
        json!({"kind": "PersistentVolumeClaim", "metadata": {"namespace": "default", "name": name},
            "spec": {"storageClassName": "gp3"}})
    };
    let snapshot = snapshot(vec![
        node(json!({})),
        json!({"kind": "CSINode", "metadata": {"name": "node"}, "spec": {"drivers": [
            driver("ebs.csi.aws.com", json!({"allocatable": {"count": 25}})),
            driver("efs.csi.aws.com", json!({"allocatable": {}})),
            driver("fsx.csi.aws.com", json!({})),
        ]}}),
        json!({"kind": "StorageClass", "metadata": {"name": "gp3"}, "provisioner": "ebs.csi.aws.com",
            "volumeBindingMode": "WaitForFirstConsumer"}),
        claim("data"),
        claim("a-own"),
        claim("b-own"),
        pod("a"),
        pod("b"),
    ]);
    let limits: Vec<_> = snapshot.nodes[0].volume_limits.clone().into_iter().collect();
    let limit = |name: &str, count| (format!("{name}.csi.aws.com"), count);
    assert_eq!(limits, [limit("ebs", Some(25)), limit("efs", None), limit("fsx", None)]);
    let [shape] = snapshot.shapes.as_slice() else {
        panic!("pods with volumes of the same drivers have one shape: {:?}", snapshot.shapes)
    };
    assert_eq!(shape.volumes, [("ebs.csi.aws.com".to_owned(), 1)].into());
    assert_eq!(shape.shared_volumes[0].claim, "data");
}

/// kube-scheduler has bound the first of four pods with affinity to their own zone in zone d, where
/// no room is left, and two of them were planned into zone b at different times.
#[test]
fn pods_whose_plan_does_not_hold_any_more_don_t_keep_each_other_where_they_can_t_go() {
    const SECOND: i64 = 1_000_000_000;
    let at = |second: i64| Timestamp::from_nanosecond(i128::from(second * SECOND)).unwrap();
    let machine = |name: &str, zone: &str, cpu: &str| {
        let allocatable = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
        json!({
            "kind": "Node",
            "metadata": {"name": name, "labels": {
                "topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
            "status": {"capacity": allocatable, "allocatable": allocatable, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
        })
    };
    let web = |name: &str, node: Option<&str>| {
        let near = json!([{"topologyKey": "topology.kubernetes.io/zone",
            "labelSelector": {"matchLabels": {"app": "web"}}}]);
        let conditions =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
        pod(json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "spec": {
                "nodeName": node,
                "affinity": {"podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": near}},
                "containers": [{"resources": {"requests": {"cpu": "2"}}}]},
            "status": if node.is_some() { json!({}) } else { json!({"conditions": conditions}) },
        }))
    };
    let mut cluster = cluster(vec![
        pool(json!({"spec": {"limits": null}})),
        machine("b", "test-zone-b", "16"),
        machine("d", "test-zone-d", "2"),
        web("first", Some("d")),
        web("x", None),
        web("y", None),
    ]);
    let types = crate::catalog::generate();
    let catalog = |class: &NodeClassRef| {
        let instance_types = types.clone();
        Some(Arc::new(plan::Catalog { node_class: class.clone(), instance_types }))
    };
    cluster.apply(Change::Nominating(true));
    let planned = |name: &str, on: &str| [(ObjectKey::new("default", name), on.to_owned())].into();
    cluster.apply(Change::Planned(planned("x", "b"), at(0)));
    cluster.apply(Change::Planned(planned("y", "b"), at(10)));
    let snapshot = cluster.snapshot(&catalog, at(14));
    snapshot.validate().expect("a snapshot keeps the planner's invariants");
    let plan =
        tenon_planner::provision(&snapshot, &tenon_planner::Policy::default(), at(14), 1, &());
    assert_eq!(plan.nominations, [], "{:?}", plan.report);
    let launched: Vec<&str> =
        plan.launches.iter().flat_map(|launch| &launch.pods).map(|pod| &*pod.name).collect();
    assert_eq!(launched, ["x", "y"], "{:?}", plan.report);
}
