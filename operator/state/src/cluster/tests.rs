use super::*;
use crate::change::{Change, Object, PodEvent, Touched, Watched as _};
use crate::node_class;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use proptest::prelude::*;
use serde_json::{Value, json};

const KINDS: &[NodeClassKind] = &[node_class::KWOK];

fn empty() -> Cluster {
    Cluster::new(KINDS, LabelRules::core())
}

fn claim(name: &str, version: u64, provider_id: Option<&str>) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "labels": {"karpenter.sh/nodepool": "default"},
        },
        "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
        "status": {"providerID": provider_id, "capacity": {"cpu": "4"}},
    }))
    .unwrap()
}

fn node(name: &str, version: u64, provider_id: Option<&str>) -> wire::Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "resourceVersion": version.to_string()},
        "spec": {"providerID": provider_id},
        "status": {"capacity": {"cpu": "8"}},
    }))
    .unwrap()
}

fn pod(name: &str, version: u64, node: Option<&str>, cpu: u32, extra: &Value) -> wire::Pod {
    let mut value = json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "resourceVersion": version.to_string()},
        "spec": {"nodeName": node, "containers": [
            {"resources": {"requests": {"cpu": cpu.to_string(), "example.com/gpu": "1"}}},
        ]},
    });
    for (key, extra) in extra.as_object().unwrap() {
        value[key] = extra.clone();
    }
    serde_json::from_value(value).unwrap()
}

fn applied(object: Object) -> Change {
    Change::Applied(object)
}

fn claim_change(claim: NodeClaim) -> Change {
    applied(Object::NodeClaim(Box::new(claim)))
}

/// That a NodeClaim goes, once these have replaced it.
fn marked(name: &str, replacements: &[&str]) -> Change {
    let identity = |name: &&str| ((*name).to_owned(), format!("uid-{name}"));
    Change::Marked {
        claims: [name.to_owned()].into(),
        replacements: replacements.iter().map(identity).collect(),
    }
}

fn node_change(node: wire::Node) -> Change {
    applied(Object::Node(Box::new(node)))
}

fn pod_change(pod: wire::Pod) -> Change {
    applied(Object::Pod(Box::new(pod)))
}

#[test]
fn what_the_operator_wrote_is_not_undone_by_an_older_version_from_the_watch() {
    let mut cluster = empty();
    cluster.apply(claim_change(claim("a", 1, None)));
    cluster.apply(Change::Written(Object::NodeClaim(Box::new(claim("a", 3, Some("p"))))));
    cluster.apply(claim_change(claim("a", 2, None)));
    assert_eq!(cluster.claim("a").unwrap().provider_id(), Some("p"));
    assert_eq!(cluster.claims_of("p").count(), 1);
}

#[test]
fn who_wrote_which_fields_is_not_kept() {
    let managers = Some(vec![ManagedFieldsEntry::default()]);
    let mut cluster = empty();
    cluster.apply(claim_change(claim("a", 1, Some("p"))));
    cluster.apply(node_change(node("n", 1, Some("p"))));
    let (mut patched, mut labelled) = (claim("a", 2, Some("p")), node("n", 2, Some("p")));
    patched.metadata.managed_fields.clone_from(&managers);
    labelled.metadata.managed_fields = managers;
    cluster.apply(Change::Written(patched.into_object()));
    cluster.apply(Change::Written(labelled.into_object()));
    for metadata in [&cluster.claim("a").unwrap().metadata, &cluster.node("n").unwrap().metadata] {
        assert_eq!(metadata.resource_version.as_deref(), Some("2"));
        assert_eq!(metadata.managed_fields, None);
    }
}

#[test]
fn what_the_operator_wrote_does_not_bring_back_what_is_gone() {
    let mut cluster = empty();
    cluster.apply(claim_change(claim("a", 1, None)));
    cluster.apply(Change::Deleted(Kind::NodeClaim, ObjectKey::cluster("a"), 5));
    cluster.apply(Change::Written(Object::NodeClaim(Box::new(claim("a", 4, Some("p"))))));
    assert!(cluster.claim("a").is_none());
}

#[test]
fn a_late_deletion_does_not_remove_what_was_made_again() {
    let mut cluster = empty();
    cluster.apply(claim_change(claim("a", 9, None)));
    cluster.apply(Change::Deleted(Kind::NodeClaim, ObjectKey::cluster("a"), 5));
    assert!(cluster.claim("a").is_some());
    cluster.apply(Change::Deleted(Kind::NodeClaim, ObjectKey::cluster("a"), 10));
    assert!(cluster.claim("a").is_none());
}

#[test]
fn a_nodeclaim_that_was_just_created_survives_a_list_that_is_too_old_to_have_it() {
    let mut cluster = empty();
    cluster.apply(Change::Created(Box::new(claim("new", 7, None))));
    cluster.apply(Change::Listed(Kind::NodeClaim, BTreeSet::new()));
    assert!(cluster.claim("new").is_some());
    cluster.apply(claim_change(claim("new", 7, None)));
    cluster.apply(Change::Listed(Kind::NodeClaim, BTreeSet::new()));
    assert!(cluster.claim("new").is_none(), "the watch has seen it, so the list is newer");
}

#[test]
fn what_the_operator_writes_to_a_new_nodeclaim_does_not_mean_that_the_watch_has_seen_it() {
    let mut cluster = empty();
    cluster.apply(Change::ListBegan(Kind::NodeClaim));
    cluster.apply(Change::Created(Box::new(claim("new", 7, None))));
    cluster.apply(Change::Written(Object::NodeClaim(Box::new(claim("new", 8, Some("p"))))));
    cluster.apply(Change::Listed(Kind::NodeClaim, BTreeSet::new()));
    assert!(cluster.claim("new").is_some(), "it was created after the list was read");
    cluster.apply(Change::ListBegan(Kind::NodeClaim));
    cluster.apply(in_list(Object::NodeClaim(Box::new(claim("new", 8, Some("p"))))));
    cluster.apply(Change::Listed(Kind::NodeClaim, [ObjectKey::cluster("new")].into()));
    cluster.apply(Change::ListBegan(Kind::NodeClaim));
    cluster.apply(Change::Listed(Kind::NodeClaim, BTreeSet::new()));
    assert!(cluster.claim("new").is_none(), "a list had it, the next one does not");
}

fn in_list(object: Object) -> Change {
    Change::InList(object)
}

#[test]
fn after_a_restore_of_etcd_a_list_counts_although_its_versions_are_lower() {
    let mut cluster = empty();
    let objects = |version, machine| {
        [
            Object::NodeClaim(Box::new(claim("a", version, Some(machine)))),
            Object::Node(Box::new(node("a", version, Some(machine)))),
            Object::Pod(Box::new(pod("a", version, Some(machine), 1, &json!({})))),
        ]
    };
    for object in objects(1000, "after") {
        cluster.apply(applied(object));
    }
    for object in objects(500, "stale") {
        cluster.apply(applied(object));
    }
    let seen = |cluster: &Cluster| {
        let key = ObjectKey::new("default", "a");
        (
            cluster.claims_of("before").count(),
            cluster.nodes_of("before").count(),
            cluster.pod(&key).unwrap().node.clone().unwrap(),
        )
    };
    assert_eq!(seen(&cluster), (0, 0, "after".into()), "an event that is late is no restore");
    for (kind, object) in
        [Kind::NodeClaim, Kind::Node, Kind::Pod].into_iter().zip(objects(500, "before"))
    {
        cluster.apply(Change::ListBegan(kind));
        cluster.apply(in_list(object));
    }
    assert_eq!(seen(&cluster), (1, 1, "before".into()));
    cluster.apply(claim_change(claim("a", 501, Some("next"))));
    assert_eq!(cluster.claims_of("next").count(), 1, "the watch goes on from the list");
}

#[test]
fn what_the_operator_writes_while_a_list_is_under_way_is_not_undone_by_it() {
    let mut cluster = empty();
    cluster.apply(claim_change(claim("a", 1, None)));
    cluster.apply(Change::ListBegan(Kind::NodeClaim));
    cluster.apply(Change::Written(Object::NodeClaim(Box::new(claim("a", 9, Some("p"))))));
    cluster.apply(in_list(Object::NodeClaim(Box::new(claim("a", 1, None)))));
    assert_eq!(cluster.claims_of("p").count(), 1);
    cluster.apply(Change::Listed(Kind::NodeClaim, [ObjectKey::cluster("a")].into()));
    cluster.apply(Change::ListBegan(Kind::NodeClaim));
    cluster.apply(in_list(Object::NodeClaim(Box::new(claim("a", 3, None)))));
    assert_eq!(cluster.claims_of("p").count(), 0, "that was before this list began");
}

#[test]
fn the_state_is_synced_when_everything_was_listed_and_every_nodeclaim_has_a_machine() {
    let mut cluster = empty();
    for kind in Kind::ALL {
        assert!(!cluster.is_synced(), "{kind:?} was not listed yet");
        cluster.apply(Change::Listed(kind, BTreeSet::new()));
    }
    assert!(cluster.is_synced());
    cluster.apply(Change::Created(Box::new(claim("a", 1, None))));
    assert!(!cluster.is_synced());
    cluster.apply(claim_change(claim("a", 2, Some("p"))));
    assert!(cluster.is_synced());
}

#[test]
fn nodeclaims_and_pools_of_other_providers_are_ignored() {
    let mut cluster = empty();
    let mut other = claim("a", 1, None);
    other.spec.node_class_ref.kind = "EC2NodeClass".to_owned();
    cluster.apply(claim_change(other));
    assert_eq!(cluster.claims().count(), 0);
}

#[test]
fn a_machine_that_starts_has_what_its_nodeclaim_promises_and_later_what_its_node_says() {
    let mut cluster = empty();
    let claim = claim("a", 1, Some("p"));
    cluster.apply(claim_change(claim.clone()));
    assert_eq!(cluster.capacity(&claim).cpu, 4000);
    let mut starting = node("n", 2, Some("p"));
    starting.status.capacity = Arc::default();
    cluster.apply(node_change(starting));
    assert_eq!(cluster.capacity(&claim).cpu, 4000);
    cluster.apply(node_change(node("n", 3, Some("p"))));
    assert_eq!(cluster.capacity(&claim).cpu, 8000);
    let mut initialized = node("n", 4, Some("p"));
    initialized.status.capacity = Arc::default();
    initialized.metadata.labels =
        Some([(labels::INITIALIZED.to_owned(), "true".to_owned())].into());
    cluster.apply(node_change(initialized));
    assert_eq!(cluster.capacity(&claim).cpu, 0);
}

#[test]
fn what_was_intended_when_this_replica_led_before_is_forgotten_when_it_leads_again() {
    let mut cluster = empty();
    let key = ObjectKey::new("default", "p");
    cluster.apply(claim_change(claim("a", 1, Some("m"))));
    cluster.apply(pod_change(pod("p", 1, None, 1, &json!({}))));
    cluster.apply(marked("a", &[]));
    cluster.apply(Change::Nominated(BTreeSet::from(["a".to_owned()]), Timestamp::MAX));
    cluster.apply(Change::Planned([(key, "a".to_owned())].into(), Timestamp::UNIX_EPOCH));
    let touched = cluster.apply(Change::TookLead);
    assert_eq!(touched, [Touched::NodeClaim("a".to_owned())]);
    assert!(!cluster.is_going(cluster.claim("a").unwrap()));
    assert_eq!((cluster.nominated_until("a"), cluster.planned_onto("a").count()), (None, 0));
}

#[test]
fn marked_nodeclaims_count_as_going_and_not_towards_the_pool() {
    let mut cluster = empty();
    cluster.apply(claim_change(claim("a", 1, Some("p"))));
    cluster.apply(claim_change(claim("b", 2, Some("q"))));
    let usage = |cluster: &Cluster| cluster.pool_usages().remove("default").unwrap();
    assert_eq!(usage(&cluster).1, 2);
    cluster.apply(marked("a", &[]));
    assert_eq!((usage(&cluster).0.cpu, usage(&cluster).1), (4000, 1));
    cluster.apply(Change::Unmarked(BTreeSet::from(["a".to_owned()])));
    assert_eq!(usage(&cluster).1, 2);
}

#[test]
fn what_is_to_be_replaced_stays_once_a_replacement_does_not() {
    let deleting = |mut claim: NodeClaim| {
        claim.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        claim
    };
    let mut anew = claim("b", 3, Some("q"));
    anew.metadata.uid = Some("another".to_owned());
    let ends: [Vec<Change>; 3] = [
        vec![claim_change(deleting(claim("b", 3, Some("q"))))],
        vec![Change::ClaimGone("b".to_owned(), "uid-b".to_owned())],
        vec![Change::Deleted(Kind::NodeClaim, ObjectKey::cluster("b"), 3), claim_change(anew)],
    ];
    for end in ends {
        let what = format!("{end:?}");
        let mut cluster = empty();
        for (name, version) in [("a", 1), ("b", 2), ("c", 2)] {
            cluster.apply(claim_change(claim(name, version, Some(name))));
        }
        cluster.apply(marked("a", &["b", "c"]));
        assert!(cluster.is_going(cluster.claim("a").unwrap()));
        for change in end {
            cluster.apply(change);
        }
        assert!(!cluster.is_going(cluster.claim("a").unwrap()), "{what}");
    }
}

#[test]
fn pods_that_were_planned_onto_a_nodeclaim_are_found_until_they_are_bound() {
    let mut cluster = empty();
    cluster.apply(pod_change(pod("x", 1, None, 1, &json!({}))));
    let key = ObjectKey::new("default", "x");
    cluster.apply(Change::Planned([(key, "a".to_owned())].into(), Timestamp::UNIX_EPOCH));
    assert_eq!(cluster.planned_onto("a").count(), 1);
    cluster.apply(pod_change(pod("x", 2, Some("n"), 1, &json!({}))));
    assert_eq!(cluster.planned_onto("a").count(), 0);
}

#[test]
fn many_pods_that_wait_are_alike_when_nine_in_ten_of_them_are() {
    let refused = json!({"status": {"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
    ]}});
    let wait = |cluster: &mut Cluster, number: usize, cpu: u32| {
        // Whether kube-scheduler has tried them or not.
        let extra = if number.is_multiple_of(2) { &refused } else { &json!({}) };
        cluster.apply(pod_change(pod(&format!("{cpu}-{number:03}"), 1, None, cpu, extra)));
    };
    let mut cluster = empty();
    (0..BACKLOG).for_each(|number| wait(&mut cluster, number, 1));
    assert!(!cluster.are_waiting_pods_alike(0), "they are not many");
    (0..22).for_each(|number| wait(&mut cluster, number, 2));
    assert!(cluster.are_waiting_pods_alike(0));
    assert!(!cluster.are_waiting_pods_alike(22), "200 are new");
    wait(&mut cluster, 22, 2);
    assert!(!cluster.are_waiting_pods_alike(0), "23 of 223 are others");
    // Those that a plan was made for don't wait for one.
    let planned = ["2-021", "2-022"].map(|name| (ObjectKey::new("default", name), "a".to_owned()));
    cluster.apply(Change::Planned(planned.into(), Timestamp::UNIX_EPOCH));
    assert!(cluster.are_waiting_pods_alike(0));
    (0..22).for_each(|number| {
        cluster.apply(pod_change(pod(&format!("1-{number:03}"), 2, Some("n"), 1, &json!({}))));
    });
    assert!(!cluster.are_waiting_pods_alike(0), "the others are bound");
}

#[test]
fn pods_of_one_shape_swap_their_places_when_one_is_bound_in_that_of_the_other() {
    let key = |name: &str| ObjectKey::new("default", name);
    let bound = |cluster: &mut Cluster, name: &str, cpu: u32, node: &str| {
        let touched = cluster.apply(pod_change(pod(name, 2, Some(node), cpu, &json!({}))));
        let place = touched.iter().find_map(|touched| match touched {
            Touched::Pod(it, event) if *it == key(name) => event.as_planned,
            _ => None,
        });
        (place, touched)
    };
    for (cpu_of_other, alike) in [(1, true), (2, false)] {
        let mut cluster = empty();
        for (claim_name, node_name, provider_id) in [("a", "n", "p"), ("b", "m", "q")] {
            cluster.apply(claim_change(claim(claim_name, 1, Some(provider_id))));
            cluster.apply(node_change(node(node_name, 1, Some(provider_id))));
        }
        for (name, cpu) in [("x", 1), ("y", cpu_of_other)] {
            cluster.apply(pod_change(pod(name, 1, None, cpu, &json!({}))));
        }
        let plan = [(key("x"), "a".to_owned()), (key("y"), "b".to_owned())];
        cluster.apply(Change::Planned(plan.into(), Timestamp::UNIX_EPOCH));
        let (place, touched) = bound(&mut cluster, "x", 1, "m");
        assert_eq!(place, Some(alike));
        let follows = Touched::Pod(key("y"), PodEvent::default());
        assert_eq!(touched.contains(&follows), alike);
        let planned = |machine: &str| cluster.planned_onto(machine).map(|(key, _)| key).collect();
        let (a, b): (Vec<_>, Vec<_>) = (planned("a"), planned("b"));
        assert_eq!((a.len(), b.len()), if alike { (1, 0) } else { (0, 1) });
        assert_eq!(bound(&mut cluster, "y", cpu_of_other, "n").0, Some(alike));
    }
}

/// Pod `x` waits, and is planned onto the NodeClaim `a`, whose Node is `n`.
fn with_a_plan(extra: &Value) -> Cluster {
    let mut cluster = empty();
    let mut waits = json!({"status": {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
    for (key, value) in extra.as_object().unwrap() {
        waits[key] = value.clone();
    }
    cluster.apply(claim_change(claim("a", 1, Some("p"))));
    cluster.apply(node_change(node("n", 1, Some("p"))));
    cluster.apply(pod_change(pod("x", 1, None, 1, &waits)));
    let key = ObjectKey::new("default", "x");
    cluster.apply(Change::Planned([(key, "a".to_owned())].into(), Timestamp::UNIX_EPOCH));
    cluster
}

/// NodeClaim `a`, initialised at this second.
fn initialized(version: u64, second: i64) -> NodeClaim {
    let mut claim = claim("a", version, Some("p"));
    let at = Timestamp::from_second(second).unwrap();
    let set = &mut claim.status.as_mut().unwrap().conditions;
    let condition = json!({"type": "Initialized", "status": "True", "reason": "Initialized", "message": "",
        "lastTransitionTime": at.to_string()});
    set.push(serde_json::from_value(condition).unwrap());
    claim
}

#[test]
fn a_pod_that_is_nominated_is_expected_on_its_machine_until_that_took_too_long() {
    let key = ObjectKey::new("default", "x");
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut cluster = with_a_plan(&json!({}));
    assert_eq!(cluster.expected_on(&key, at(0)), None, "nothing is nominated in this cluster");
    cluster.apply(Change::Nominating(true));
    // As long as the machine comes up, however long that takes.
    assert_eq!(cluster.expected_on(&key, at(600)), Some("a"));
    cluster.apply(claim_change(initialized(2, 600)));
    assert_eq!(cluster.expected_on(&key, at(614)), Some("a"));
    assert_eq!(cluster.settling_until("a", at(614)), Some(at(629)));
    assert_eq!(cluster.expected_on(&key, at(615)), None);
    assert_eq!(cluster.settling_until("a", at(615)), None);
    // Planned anew, e.g. onto the same machine.
    cluster.apply(Change::Planned([(key.clone(), "a".to_owned())].into(), at(620)));
    assert_eq!(cluster.expected_on(&key, at(634)), Some("a"));
    cluster.apply(marked("a", &[]));
    assert_eq!(cluster.expected_on(&key, at(634)), None, "its machine goes");
}

#[test]
fn other_schedulers_and_allocators_decide_for_themselves() {
    let key = ObjectKey::new("default", "x");
    for spec in [
        json!({"schedulerName": "other"}),
        json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}),
    ] {
        let mut cluster = with_a_plan(&json!({ "spec": spec }));
        cluster.apply(Change::Nominating(true));
        assert_eq!(cluster.expected_on(&key, Timestamp::UNIX_EPOCH), None, "{spec}");
    }
}

#[test]
fn it_is_told_whether_a_pod_was_bound_where_it_was_planned() {
    for (node, expected) in [("n", true), ("m", false)] {
        let mut cluster = with_a_plan(&json!({}));
        let touched = cluster.apply(pod_change(pod("x", 2, Some(node), 1, &json!({}))));
        let [Touched::Pod(_, event)] = touched.as_slice() else { panic!("{touched:?}") };
        assert_eq!(event.as_planned, Some(expected));
        let touched = cluster.apply(pod_change(pod("x", 3, Some(node), 1, &json!({}))));
        let [Touched::Pod(_, event)] = touched.as_slice() else { panic!("{touched:?}") };
        assert_eq!(event.as_planned, None, "once");
    }
}

#[test]
fn two_nodes_of_one_machine_are_no_node() {
    let mut cluster = empty();
    cluster.apply(claim_change(claim("a", 1, Some("p"))));
    cluster.apply(node_change(node("n", 1, Some("p"))));
    let claim = Arc::clone(cluster.claim("a").unwrap());
    assert_eq!(cluster.node_of(&claim).unwrap().name(), "n");
    cluster.apply(node_change(node("m", 1, Some("p"))));
    assert!(cluster.node_of(&claim).is_none());
}

// The indexes and sums that the state keeps up to date with each change are the same as those of a
// state that is built from the objects alone.

/// What a watch can do to a handful of objects.
#[derive(Clone, Debug)]
enum Step {
    Claim(u8, Option<u8>),
    Node(u8, Option<u8>),
    Pod(u8, Option<u8>, u32, bool),
    Ended(u8),
    Delete(Kind, u8),
    Relist(Kind, Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..4_u8;
    let machine = proptest::option::of(0..3_u8);
    let kind = prop_oneof![Just(Kind::NodeClaim), Just(Kind::Node), Just(Kind::Pod)];
    prop_oneof![
        (id.clone(), machine.clone()).prop_map(|(id, machine)| Step::Claim(id, machine)),
        (id.clone(), machine.clone()).prop_map(|(id, machine)| Step::Node(id, machine)),
        (id.clone(), machine, 1..5_u32, any::<bool>())
            .prop_map(|(id, node, cpu, daemon)| Step::Pod(id, node, cpu, daemon)),
        id.clone().prop_map(Step::Ended),
        (kind.clone(), id.clone()).prop_map(|(kind, id)| Step::Delete(kind, id)),
        (kind, proptest::collection::vec(id, 0..4)).prop_map(|(kind, ids)| Step::Relist(kind, ids)),
    ]
}

/// The objects that exist, by kind and name: the model.
#[derive(Default)]
struct Model {
    objects: BTreeMap<(Kind, ObjectKey), Object>,
    version: u64,
}

impl Model {
    fn key(kind: Kind, id: u8) -> ObjectKey {
        let namespace = if kind == Kind::Pod { "default" } else { "" };
        ObjectKey::new(namespace, format!("o{id}"))
    }

    /// The change that the watch sends.
    fn take(&mut self, step: Step) -> Change {
        self.version += 1;
        let version = self.version;
        let machine = |id: Option<u8>| id.map(|id| format!("m{id}"));
        let (kind, key, object) = match step {
            Step::Claim(id, machine_id) => {
                let key = Self::key(Kind::NodeClaim, id);
                let claim = claim(&key.name, version, machine(machine_id).as_deref());
                (Kind::NodeClaim, key, Object::NodeClaim(Box::new(claim)))
            }
            Step::Node(id, machine_id) => {
                let key = Self::key(Kind::Node, id);
                let node = node(&key.name, version, machine(machine_id).as_deref());
                (Kind::Node, key, Object::Node(Box::new(node)))
            }
            Step::Pod(id, node_id, cpu, daemon) => {
                let key = Self::key(Kind::Pod, id);
                let node = node_id.map(|id| format!("o{id}"));
                let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
                let metadata = json!({
                    "namespace": "default", "name": key.name, "uid": key.name, "resourceVersion": version.to_string(),
                    "ownerReferences": if daemon { owner } else { json!([]) },
                });
                let pod =
                    pod(&key.name, version, node.as_deref(), cpu, &json!({"metadata": metadata}));
                (Kind::Pod, key, Object::Pod(Box::new(pod)))
            }
            Step::Ended(id) => {
                let key = Self::key(Kind::Pod, id);
                let ended =
                    pod(&key.name, version, Some("o0"), 1, &json!({"status": {"phase": "Failed"}}));
                (Kind::Pod, key, Object::Pod(Box::new(ended)))
            }
            Step::Delete(kind, id) => {
                let key = Self::key(kind, id);
                self.objects.remove(&(kind, key.clone()));
                return Change::Deleted(kind, key, version);
            }
            Step::Relist(kind, ids) => {
                let keys: BTreeSet<_> = ids.into_iter().map(|id| Self::key(kind, id)).collect();
                self.objects.retain(|(k, key), _| *k != kind || keys.contains(key));
                return Change::Listed(kind, keys);
            }
        };
        self.objects.insert((kind, key), object.clone());
        Change::Applied(object)
    }

    fn build(&self) -> Cluster {
        let mut cluster = empty();
        for object in self.objects.values() {
            cluster.apply(applied(object.clone()));
        }
        cluster
    }
}

proptest! {
    #[test]
    fn incremental_equals_rebuilt_from_scratch(steps in proptest::collection::vec(step(), 1..60)) {
        let mut model = Model::default();
        let mut cluster = empty();
        for step in steps {
            let change = model.take(step);
            cluster.apply(change);
        }
        let rebuilt = model.build();
        let objects = |cluster: &Cluster| {
            let claims: Vec<NodeClaim> = cluster.claims().map(|claim| (**claim).clone()).collect();
            let nodes: Vec<wire::Node> = cluster.nodes().map(|node| (**node).clone()).collect();
            (claims, nodes, cluster.pods.clone())
        };
        prop_assert_eq!(objects(&cluster), objects(&rebuilt));
        prop_assert_eq!(&cluster.claims_by_provider_id, &rebuilt.claims_by_provider_id);
        prop_assert_eq!(&cluster.nodes_by_provider_id, &rebuilt.nodes_by_provider_id);
        prop_assert_eq!(&cluster.usage, &rebuilt.usage);
        cluster.claims_by_provider_id.clear();
        cluster.nodes_by_provider_id.remove("m1");
        cluster.usage.entry("o1".to_owned()).or_default().requests.cpu += 1;
        cluster.rebuild();
        prop_assert_eq!(&cluster.claims_by_provider_id, &rebuilt.claims_by_provider_id);
        prop_assert_eq!(&cluster.nodes_by_provider_id, &rebuilt.nodes_by_provider_id);
        prop_assert_eq!(&cluster.usage, &rebuilt.usage);
    }
}
