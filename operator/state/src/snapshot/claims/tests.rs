use serde_json::{Value, json};
use tenon_planner::snapshot::{
    AttributeValue, CapacityRange, InstanceType, NodeTerm, Placement, PoolState, Reach,
};

use super::*;
use crate::change::{Change, Object, Watched};
use crate::node_class;
use jiff::Timestamp;

const GPU: &str = "gpu.example.com";

/// A cluster that plans for claims.
struct Fixture(Cluster);

#[expect(clippy::needless_pass_by_value, reason = "JSON is written where it is used")]
impl Fixture {
    fn new() -> Self {
        let mut cluster = Cluster::new(&[node_class::KWOK], LabelRules::core());
        cluster.plan_for_claims();
        Self(cluster)
    }

    fn with<T: Watched>(mut self, value: Value) -> Self {
        let object: T = serde_json::from_value(value).unwrap();
        self.0.apply(Change::Applied(object.into_object()));
        self
    }

    fn class(self, name: &str, expressions: &[&str]) -> Self {
        let selectors: Vec<_> =
            expressions.iter().map(|it| json!({"cel": {"expression": it}})).collect();
        self.with::<wire::DeviceClass>(
            json!({"metadata": {"name": name}, "spec": {"selectors": selectors}}),
        )
    }

    /// A slice of a node's pool; the pool is called as the node.
    fn slice(self, node: &str, spec: Value, devices: Value) -> Self {
        let mut all = json!({
            "driver": GPU, "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        });
        for (key, value) in spec.as_object().unwrap() {
            all[key] = value.clone();
        }
        let name = format!("{node}-{}", self.0.slices().count());
        self.with::<wire::ResourceSlice>(json!({"metadata": {"name": name}, "spec": all}))
    }

    fn claim(self, name: &str, devices: Value, status: Value) -> Self {
        self.with::<wire::ResourceClaim>(json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"devices": devices}, "status": status,
        }))
    }

    /// A pod that waits, with claims as in its specification.
    fn pod(self, name: &str, claims: Value, statuses: Value) -> Self {
        self.with::<wire::Pod>(json!({
            "metadata": {"namespace": "default", "name": name, "uid": name},
            "spec": {"resourceClaims": claims},
            "status": {"phase": "Pending", "resourceClaimStatuses": statuses,
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        }))
    }

    fn snapshot(&self) -> plan::Snapshot {
        let catalog = |class: &NodeClassRef| {
            let kind =
                |name: &str| InstanceType { name: name.to_owned(), ..InstanceType::default() };
            let instance_types = vec![kind("large"), kind("small")];
            Some(Arc::new(plan::Catalog { node_class: class.clone(), instance_types }))
        };
        let snapshot = self.0.snapshot(&catalog, Timestamp::UNIX_EPOCH);
        snapshot.validate().expect("a snapshot keeps the planner's invariants");
        snapshot
    }

    fn devices(&self) -> Arc<plan::Devices> {
        self.snapshot().devices.expect("claims are planned for")
    }

    /// Why the only specification can't be planned for.
    fn problem(&self) -> String {
        self.devices().specs[0].problem.clone().unwrap_or_default()
    }
}

fn one(class: &str) -> Value {
    json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": class}}]})
}

fn model(name: &str, model: &str) -> Value {
    json!({"name": name, "attributes": {"model": {"string": model}, "uuid": {"string": name}}})
}

#[test]
fn while_claims_are_ignored_there_are_no_devices() {
    let mut cluster = Cluster::new(&[], LabelRules::core());
    let class = wire::DeviceClass::default();
    assert!(cluster.apply(Change::Applied(Object::DeviceClass(Box::new(class)))).is_empty());
    let snapshot = cluster.snapshot(&|_: &NodeClassRef| None, Timestamp::UNIX_EPOCH);
    assert!(snapshot.devices.is_none());
}

#[test]
fn devices_of_which_selectors_say_the_same_are_of_one_kind() {
    let fixture = Fixture::new()
        .class("any", &[])
        .class(
            "a100",
            &[
                "device.driver == 'gpu.example.com'",
                "device.attributes['gpu.example.com'].model == 'a100'",
            ],
        )
        .slice("a", json!({}), json!([model("0", "a100"), model("1", "t4"), model("2", "a100")]))
        .slice("b", json!({}), json!([model("3", "a100")]))
        .claim("any", one("any"), json!({}))
        .claim("fast", one("a100"), json!({}));
    let devices = fixture.devices();
    assert_eq!(devices.kinds.len(), 2);
    let kinds = |pool: usize| -> Vec<u32> {
        devices.pools[pool].slices[0].devices.iter().map(|device| device.kind).collect()
    };
    assert_eq!((kinds(0), kinds(1)), (vec![0, 1, 0], vec![0]));
    let of = |name: &str| {
        let claim = devices.claims.iter().find(|claim| claim.name == name).unwrap();
        devices.specs[claim.spec as usize].requests[0].alternatives[0].kinds.clone()
    };
    assert_eq!((of("any"), of("fast")), (vec![0, 1], vec![0]));
}

#[test]
fn a_selector_that_reads_what_differs_tells_devices_apart() {
    let fixture = Fixture::new()
        .class("second", &["device.attributes['gpu.example.com'].uuid == '1'"])
        .slice("a", json!({}), json!([model("0", "t4"), model("1", "t4"), model("2", "t4")]))
        .claim("claim", one("second"), json!({}));
    let devices = fixture.devices();
    let kinds: Vec<_> = devices.pools[0].slices[0].devices.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [0, 1, 0]);
    assert_eq!(devices.specs[0].requests[0].alternatives[0].kinds, [1]);
}

#[test]
fn requests_are_taken_as_they_are_written() {
    let devices = json!({
        "requests": [
            {"name": "all", "exactly": {"deviceClassName": "any", "allocationMode": "All", "adminAccess": true}},
            {"name": "first", "firstAvailable": [
                {"name": "two", "deviceClassName": "any", "count": 2, "allocationMode": "ExactCount"},
                {"name": "shared", "deviceClassName": "any", "capacity": {"requests": {"memory": "2"}}}]},
        ],
        "constraints": [
            {"matchAttribute": "gpu.example.com/model", "requests": ["all", "first/two"]},
            {"distinctAttribute": "gpu.example.com/uuid"}],
    });
    let fixture = Fixture::new()
        .class("any", &[])
        .slice("a", json!({}), json!([model("0", "t4")]))
        .claim("claim", devices, json!({}));
    let devices = fixture.devices();
    let spec = &devices.specs[0];
    let all = &spec.requests[0].alternatives[0];
    assert_eq!((all.count, all.admin, &all.name), (None, true, &None));
    let [two, shared] = &spec.requests[1].alternatives[..] else { panic!("{spec:?}") };
    assert_eq!((two.count, two.name.as_deref()), (Some(2), Some("two")));
    assert_eq!((shared.count, shared.capacity["memory"]), (Some(1), 2000));
    let told: Vec<_> = spec.constraints.iter().map(|it| (&it.attribute[..], it.distinct)).collect();
    assert_eq!(told, [("gpu.example.com/model", false), ("gpu.example.com/uuid", true)]);
    let kind = &devices.kinds[0];
    assert_eq!(kind.attributes["gpu.example.com/model"], AttributeValue::String("t4".to_owned()));
}

#[test]
fn what_can_not_be_judged_has_the_reason() {
    let told =
        |fixture: Fixture, class: &str| fixture.claim("claim", one(class), json!({})).problem();
    assert_eq!(told(Fixture::new(), "none"), "deviceclass \"none\" not found");
    let broken = Fixture::new().class("broken", &["device.driver ="]);
    assert_eq!(
        told(broken, "broken"),
        "device selector \"device.driver =\": unexpected '=' at byte 14"
    );
    let list = (0..99).map(|it| it.to_string()).collect::<Vec<_>>().join(",");
    let long = ["a", "b", "c", "d"]
        .iter()
        .fold("true".to_owned(), |body, variable| format!("[{list}].all({variable}, {body})"));
    let long = Fixture::new().class("long", &[long.as_str()]).slice(
        "a",
        json!({}),
        json!([model("0", "t4")]),
    );
    assert_eq!(
        told(long, "long"),
        "device selector of class long: the expression costs too much to evaluate"
    );
    let mode = json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": "any", "allocationMode": "Some"}}]});
    let fixture = Fixture::new().class("any", &[]).claim("claim", mode, json!({}));
    assert_eq!(fixture.problem(), "allocation mode Some is not known");
}

#[test]
fn only_the_newest_generation_of_a_pool_counts() {
    let pool = |generation: i64, count: i64| json!({"pool": {"name": "a", "generation": generation, "resourceSliceCount": count}});
    let state = |fixture: Fixture| {
        let devices = fixture.devices();
        let pool = &devices.pools[0];
        let n: usize = pool.slices.iter().map(|slice| slice.devices.len()).sum();
        (pool.state.clone(), n)
    };
    let old = || Fixture::new().slice("a", pool(1, 1), json!([model("old", "t4")]));
    assert_eq!(
        state(old().slice("a", pool(2, 1), json!([model("0", "t4"), model("1", "t4")]))),
        (PoolState::Complete, 2)
    );
    assert_eq!(
        state(old().slice("a", pool(2, 2), json!([model("0", "t4")]))),
        (PoolState::Incomplete, 1)
    );
    let twice = old().slice("a", pool(2, 2), json!([model("0", "t4")]));
    let twice = twice.slice("a", pool(2, 2), json!([model("0", "t4")]));
    assert_eq!(state(twice), (PoolState::Invalid("device 0 is listed twice".to_owned()), 2));
}

#[test]
fn slices_say_from_where_their_devices_are_reached() {
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]});
    let named = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
    let reach = |spec: Value, devices: Value| {
        let devices = Fixture::new().slice("a", spec, devices).devices();
        devices.pools[0].slices.iter().map(|slice| slice.reach.clone()).collect::<Vec<_>>()
    };
    let one = || json!([model("0", "t4")]);
    assert_eq!(reach(json!({}), one()), [Reach::Node("a".to_owned())]);
    assert_eq!(reach(json!({"nodeName": null, "allNodes": true}), one()), [Reach::Everywhere]);
    assert_eq!(
        reach(json!({"nodeName": null, "nodeSelector": named}), one()),
        [Reach::Node("n".to_owned())]
    );
    let zones = reach(json!({"nodeName": null, "nodeSelector": selector}), one());
    let [Reach::Nodes(terms)] = &zones[..] else { panic!("{zones:?}") };
    assert_eq!(terms[0].key, "topology.kubernetes.io/zone");
    let each = json!([{"name": "0", "nodeName": "x"}, {"name": "1", "nodeName": "x"}, {"name": "2", "allNodes": true}]);
    let own = reach(json!({"nodeName": null, "perDeviceNodeSelection": true}), each);
    assert_eq!(own, [Reach::Node("x".to_owned()), Reach::Everywhere]);
}

#[test]
fn shares_and_counters_are_counted_in_thousandths() {
    let devices = json!([{
        "name": "0", "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "10Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "512Mi", "max": "8Gi", "step": "512Mi"}}}},
        "consumesCounters": [{"counterSet": "board", "counters": {"slices": {"value": "2"}}}],
    }]);
    let counters =
        json!({"sharedCounters": [{"name": "board", "counters": {"slices": {"value": "7"}}}]});
    let devices = Fixture::new().slice("a", counters, devices).devices();
    assert_eq!(devices.pools[0].counters["board"]["slices"], 7000);
    let kind = &devices.kinds[0];
    assert_eq!(kind.consumes, [("board".to_owned(), "slices".to_owned(), 2000)]);
    let mebi = |amount: i64| (amount * 1000) << 20;
    let memory = &kind.capacity["memory"];
    assert_eq!((memory.value, memory.default), (mebi(10 << 10), Some(mebi(1 << 10))));
    let range = CapacityRange { min: mebi(512), max: Some(mebi(8 << 10)), step: Some(mebi(512)) };
    assert_eq!(memory.range, Some(range));
}

#[test]
fn tainted_devices_match_only_requests_that_tolerate_them() {
    let tainted = json!([{"name": "0", "taints": [{"key": "broken", "value": "yes", "effect": "NoExecute"}]},
        {"name": "1", "taints": [{"key": "old", "effect": "None"}]}]);
    let asks = |tolerations: Value| json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": "any", "tolerations": tolerations}}]});
    let kinds = |tolerations: Value| {
        let fixture = Fixture::new().class("any", &[]).slice("a", json!({}), tainted.clone());
        let devices = fixture.claim("claim", asks(tolerations), json!({})).devices();
        devices.specs[0].requests[0].alternatives[0].kinds.len()
    };
    // When all match they are of one kind.
    assert_eq!(kinds(json!([])), 1);
    assert_eq!(kinds(json!([{"key": "broken", "operator": "Exists"}])), 1);
    let fixture = Fixture::new().class("any", &[]).slice("a", json!({}), tainted.clone());
    let devices = fixture
        .claim("claim", asks(json!([{"key": "broken", "value": "no"}])), json!({}))
        .devices();
    let matching = &devices.specs[0].requests[0].alternatives[0].kinds;
    let of_device = devices.pools[0].slices[0].devices[0].kind;
    assert!(!matching.contains(&of_device), "{devices:?}");
}

#[test]
fn a_pod_has_the_claims_that_were_made_for_it() {
    let fixture = Fixture::new()
        .class("any", &[])
        .with::<wire::ResourceClaimTemplate>(json!({
            "metadata": {"namespace": "default", "name": "gpus"}, "spec": {"spec": {"devices": one("any")}}}))
        .claim("made-x7", one("any"), json!({}))
        .pod("made", json!([{"name": "gpu", "resourceClaimTemplateName": "gpus"}]),
            json!([{"name": "gpu", "resourceClaimName": "made-x7"}]))
        .pod("coming", json!([{"name": "gpu", "resourceClaimTemplateName": "gpus"}]), json!([]))
        .pod("none", json!([{"name": "gpu", "resourceClaimTemplateName": "gpus"}]), json!([{"name": "gpu"}]))
        .pod("lost", json!([{"name": "gpu", "resourceClaimName": "nowhere"}]), json!([]))
        .pod("plain", json!([]), json!([]));
    let snapshot = fixture.snapshot();
    let devices = snapshot.devices.as_ref().unwrap();
    let of = |name: &str| {
        let pod = snapshot.pods.iter().find(|pod| *pod.name == *name).unwrap();
        let claims = pod.claims.iter().map(|&claim| &devices.claims[claim as usize].name[..]);
        let shape = &snapshot.shapes[pod.shape.0 as usize];
        (
            claims.collect::<Vec<_>>(),
            shape.device_claims.len(),
            shape.resource_claims.len(),
            pod.problem.as_deref(),
        )
    };
    assert_eq!(of("made"), (vec!["made-x7"], 1, 0, None));
    assert_eq!(of("coming"), (vec!["coming-gpu"], 1, 0, None));
    assert_eq!(of("none"), (vec![], 0, 0, None));
    assert_eq!(of("lost"), (vec![], 0, 1, Some("resourceclaim \"nowhere\" not found")));
    assert_eq!(of("plain"), (vec![], 0, 0, None));
    // Pods whose claims ask for the same have one shape.
    let shape = |name: &str| snapshot.pods.iter().find(|pod| *pod.name == *name).unwrap().shape;
    assert_eq!(shape("made"), shape("coming"));
    assert!(snapshot.pods.iter().all(|pod| pod.placement == Placement::Unschedulable));
}

#[test]
fn an_allocation_says_what_is_taken_and_from_where_it_is_reached() {
    let status = json!({
        "allocation": {
            "devices": {"results": [
                {"request": "gpu", "driver": GPU, "pool": "a", "device": "0", "consumedCapacity": {"memory": "2"}},
                {"request": "watch", "driver": GPU, "pool": "a", "device": "1", "adminAccess": true}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u1"}, {"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "u2"}],
    });
    let fixture = Fixture::new().class("any", &[]).claim("claim", one("any"), status);
    let devices = fixture.devices();
    let claim = &devices.claims[0];
    assert_eq!(
        (&claim.reserved_for[..], claim.reserved_for_others),
        (&["u1".to_owned()][..], true)
    );
    let allocation = claim.allocation.as_ref().unwrap();
    assert_eq!(
        allocation.nodes,
        [NodeTerm { name: Some("a".to_owned()), requirements: Vec::new() }]
    );
    assert_eq!(allocation.devices[0].consumed["memory"], 2000);
    assert!(allocation.devices[1].admin);
}

#[test]
fn pods_of_capacity_buffers_have_claims_as_real_ones_would() {
    let fixture = |claims: Value| {
        let template = json!({"metadata": {"name": "unit", "namespace": "default"},
            "template": {"spec": {"containers": [], "resourceClaims": claims}}});
        let buffer = json!({"metadata": {"name": "spare", "namespace": "default", "uid": "4711"},
            "spec": {"podTemplateRef": {"name": "unit"}, "replicas": 2}});
        Fixture::new()
            .class("any", &[])
            .with::<wire::ResourceClaimTemplate>(json!({
                "metadata": {"namespace": "default", "name": "gpus"}, "spec": {"spec": {"devices": one("any")}}}))
            .claim("both", one("any"), json!({}))
            .with::<wire::PodTemplate>(template)
            .with::<tenon_crds::CapacityBuffer>(buffer)
    };
    let of = |snapshot: &plan::Snapshot, name: &str| -> (Vec<String>, usize, Option<String>) {
        let pod = snapshot.pods.iter().find(|pod| *pod.name == *name).unwrap();
        let claims = &snapshot.devices.as_ref().unwrap().claims;
        let claims = pod.claims.iter().map(|&claim| claims[claim as usize].name.clone());
        let asked = snapshot.shapes[pod.shape.0 as usize].device_claims.len();
        (claims.collect(), asked, pod.problem.clone())
    };
    let each = json!([{"name": "gpu", "resourceClaimTemplateName": "gpus"},
        {"name": "card", "resourceClaimName": "both"}]);
    // A real pod has the name of the second one.
    let snapshot = fixture(each).pod("capacity-buffer-spare-1", json!([]), json!([])).snapshot();
    let made = vec!["capacity-buffer-spare-0-gpu".to_owned(), "both".to_owned()];
    assert_eq!(of(&snapshot, "capacity-buffer-spare-0"), (made, 2, None));
    assert_eq!(of(&snapshot, "capacity-buffer-spare-1"), (vec![], 0, None));
    let lost = fixture(json!([{"name": "gpu", "resourceClaimTemplateName": "nowhere"}])).snapshot();
    let (claims, _, problem) = of(&lost, "capacity-buffer-spare-1");
    assert_eq!(claims, [""; 0]);
    assert_eq!(problem.as_deref(), Some("resourceclaimtemplate \"nowhere\" not found"));
}

#[test]
fn while_claims_are_ignored_buffers_keep_no_room_for_pods_with_claims() {
    let mut cluster = Cluster::new(&[], LabelRules::core());
    let template = json!({"metadata": {"name": "unit", "namespace": "default"}, "template": {"spec": {
        "containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}}});
    let template: wire::PodTemplate = serde_json::from_value(template).unwrap();
    cluster.apply(Change::Applied(template.into_object()));
    let buffer = json!({"metadata": {"name": "spare", "namespace": "default"},
        "spec": {"podTemplateRef": {"name": "unit"}, "replicas": 1}});
    let buffer: tenon_crds::CapacityBuffer = serde_json::from_value(buffer).unwrap();
    cluster.apply(Change::Applied(buffer.into_object()));
    let snapshot = cluster.snapshot(&|_: &NodeClassRef| None, Timestamp::UNIX_EPOCH);
    let problem = snapshot.pods[0].problem.as_deref();
    assert_eq!(problem, Some("no room can be kept for pods with resource claims"));
}

#[test]
fn a_node_waits_for_complete_pools_of_the_drivers_that_it_was_launched_for() {
    let mut claim = tenon_crds::NodeClaim::new("claim", tenon_crds::NodeClaimSpec::default());
    let drivers = [("karpenter.sh/requested-dra-drivers".to_owned(), GPU.to_owned())];
    claim.metadata.annotations = Some(drivers.into());
    let pool = |generation: i64| json!({"pool": {"name": "a", "generation": generation, "resourceSliceCount": 2}});
    let waits = |fixture: &Fixture, node: &str| {
        fixture.0.unpublished_driver(&claim, node).map(str::to_owned)
    };
    let half = Fixture::new().slice("a", pool(1), json!([model("0", "t4")]));
    assert_eq!(waits(&half, "a").as_deref(), Some(GPU));
    let whole = half.slice("a", pool(1), json!([model("1", "t4")]));
    assert_eq!((waits(&whole, "a"), waits(&whole, "b").as_deref()), (None, Some(GPU)));
    // A newer generation that is not complete yet.
    let newer = whole.slice("a", pool(2), json!([model("2", "t4")]));
    assert_eq!(waits(&newer, "a").as_deref(), Some(GPU));
    claim.metadata.annotations = None;
    assert_eq!(newer.0.unpublished_driver(&claim, "a"), None);
}

#[test]
fn types_have_the_devices_that_the_newest_machine_like_them_has() {
    let claim = |name: &str, created: &str| {
        json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": created},
            "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
            "status": {"providerID": name},
        })
    };
    let node = |name: &str| {
        json!({
            "metadata": {"name": name, "labels": {"node.kubernetes.io/instance-type": "large", "karpenter.sh/initialized": "true", "karpenter.sh/registered": "true"}},
            "spec": {"providerID": name},
        })
    };
    let pool = json!({
        "metadata": {"name": "default", "uid": "p"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}},
    });
    let fixture = Fixture::new()
        .with::<tenon_crds::NodePool>(pool)
        .with::<tenon_crds::NodeClaim>(claim("new", "2026-02-02T00:00:00Z"))
        .with::<tenon_crds::NodeClaim>(claim("old", "2026-01-01T00:00:00Z"))
        .with::<wire::Node>(node("new"))
        .with::<wire::Node>(node("old"))
        .slice("old", json!({}), json!([model("0", "t4")]))
        .slice("new", json!({}), json!([model("0", "t4"), model("1", "t4")]));
    let snapshot = fixture.snapshot();
    let types = &snapshot.catalogs[0].instance_types;
    let devices: Vec<_> = types.iter().map(|kind| (&kind.name[..], kind.devices.len())).collect();
    assert_eq!(devices, [("large", 1), ("small", 0)]);
    assert_eq!((&types[0].devices[0].driver[..], types[0].devices[0].devices.len()), (GPU, 2));
}
