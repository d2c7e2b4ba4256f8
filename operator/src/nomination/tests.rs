use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenon_crds::labels::LabelRules;

use super::*;
use crate::nominations::{PATIENCE, expects_pods};
use crate::state::State;
use crate::state::change::{Object, PodEvent, Touched};
use crate::state::cluster::BACKLOG;
use crate::testing::{self, ApiServer, KINDS};

/// A NodeClaim whose Node has joined.
fn machine(cluster: &mut Cluster, name: &str, taints: &Value) {
    let id = format!("kwok://{name}");
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "uid": name, "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
        "status": {"providerID": id},
    });
    let node = json!({
        "metadata": {"name": format!("node-{name}"), "uid": name},
        "spec": {"providerID": id, "taints": taints},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let claim = serde_json::from_value(claim).unwrap();
    cluster.apply(Change::Applied(Object::NodeClaim(Box::new(claim))));
    let node = serde_json::from_value(node).unwrap();
    cluster.apply(Change::Applied(Object::Node(Box::new(node))));
}

/// A pod of three cores that waits, or is nominated by somebody.
fn pod(name: &str, version: u64, nominated: Option<(&str, &str)>) -> Change {
    let managers =
        nominated.map(|(_, manager)| json!([{"manager": manager, "operation": "Apply"}]));
    let pod = json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "resourceVersion": version.to_string(), "managedFields": managers},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "3"}}}]},
        "status": {"phase": "Pending", "nominatedNodeName": nominated.map(|(node, _)| node),
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    });
    Change::Applied(Object::Pod(Box::new(serde_json::from_value(pod).unwrap())))
}

/// A pod that kube-scheduler has not looked at yet.
fn untried(name: &str) -> Change {
    let pod = json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "resourceVersion": "1"},
        "status": {"phase": "Pending"},
    });
    Change::Applied(Object::Pod(Box::new(serde_json::from_value(pod).unwrap())))
}

/// A pod of three cores that kube-scheduler has bound.
fn bound(name: &str, node: &str) -> Change {
    let pod = json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "3"}}}]},
        "status": {"phase": "Running"},
    });
    Change::Applied(Object::Pod(Box::new(serde_json::from_value(pod).unwrap())))
}

fn planned(pairs: &[(&str, &str)]) -> Change {
    let pairs = pairs.iter().map(|(pod, machine)| (key(pod), (*machine).to_owned()));
    Change::Planned(pairs.collect(), jiff::Timestamp::UNIX_EPOCH)
}

fn key(pod: &str) -> ObjectKey {
    ObjectKey::new("default", pod)
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(KINDS, LabelRules::core());
    cluster.apply(Change::Nominating(true));
    cluster
}

const OURS: &str = crate::state::pod::NOMINATION_MANAGER;

mod decisions {
    use super::reconciler::{Wanted, wanted};
    use super::*;

    fn of(cluster: &Cluster, pod: &str) -> Wanted {
        wanted(cluster, &key(pod), |node| node == "node-opening", jiff::Timestamp::UNIX_EPOCH)
    }

    fn node(name: &str) -> Wanted {
        Wanted::Node(name.to_owned())
    }

    #[test]
    fn a_nomination_is_written_where_the_node_takes_pods_or_is_about_to() {
        let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
        let not_nominated = taint("tenon.sh/not-nominated");
        for (name, taints, expected) in [
            ("a", json!([]), node("node-a")),
            ("a", taint("node.kubernetes.io/not-ready"), node("node-a")),
            ("a", taint("dedicated"), node("node-a")),
            ("a", taint("karpenter.sh/disrupted"), Wanted::Nothing),
            ("a", not_nominated.clone(), Wanted::Nothing),
            ("opening", not_nominated, node("node-opening")),
        ] {
            let mut cluster = cluster();
            machine(&mut cluster, name, &taints);
            cluster.apply(pod("x", 1, None));
            assert_eq!(of(&cluster, "x"), Wanted::Nothing, "it was not planned for yet");
            cluster.apply(planned(&[("x", name)]));
            assert_eq!(of(&cluster, "x"), expected, "{taints}");
        }
    }

    #[test]
    fn nothing_is_nominated_while_kube_scheduler_has_many_pods_to_try_first() {
        // Whatever becomes of one of them, one fewer is few enough.
        for tried in [pod("untried-0", 2, None), bound("untried-0", "elsewhere")] {
            let mut cluster = cluster();
            machine(&mut cluster, "a", &json!([]));
            cluster.apply(pod("x", 1, None));
            cluster.apply(planned(&[("x", "a")]));
            for number in 0..=BACKLOG {
                cluster.apply(untried(&format!("untried-{number}")));
            }
            assert_eq!(of(&cluster, "x"), Wanted::Nothing);
            assert!(!expects_pods(&cluster, "a"));
            cluster.apply(tried);
            assert_eq!(of(&cluster, "x"), node("node-a"));
            assert!(expects_pods(&cluster, "a"));
        }
    }

    #[test]
    fn nothing_is_nominated_while_all_of_many_planned_pods_are_alike() {
        let with = |last: Change| {
            let mut cluster = cluster();
            machine(&mut cluster, "a", &json!([]));
            let names: Vec<String> = (0..=BACKLOG).map(|number| format!("x-{number}")).collect();
            for name in &names {
                cluster.apply(pod(name, 1, None));
            }
            cluster.apply(last);
            let mut pods: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "a")).collect();
            pods.push(("last", "a"));
            cluster.apply(planned(&pods));
            cluster
        };
        let other = with(untried("last"));
        assert_eq!(of(&other, "x-0"), node("node-a"));
        assert!(expects_pods(&other, "a"));
        let mut same = with(pod("last", 1, None));
        assert_eq!(of(&same, "x-0"), Wanted::Nothing);
        assert!(!expects_pods(&same, "a"));
        // Of few pods it is known where each should be.
        same.apply(bound("x-1", "elsewhere"));
        assert_eq!(of(&same, "x-0"), Wanted::Nothing);
        same.apply(bound("last", "elsewhere"));
        assert_eq!(of(&same, "x-0"), node("node-a"));
    }

    #[test]
    fn the_nomination_of_a_preemption_is_left_alone() {
        let mut cluster = cluster();
        machine(&mut cluster, "a", &json!([]));
        cluster.apply(pod("x", 1, Some(("node-b", "kube-scheduler"))));
        cluster.apply(planned(&[("x", "a")]));
        assert_eq!(of(&cluster, "x"), Wanted::Nothing);
        cluster.apply(pod("x", 2, Some(("node-b", OURS))));
        assert_eq!(of(&cluster, "x"), node("node-a"));
        cluster.apply(pod("x", 3, Some(("node-a", OURS))));
        assert_eq!(of(&cluster, "x"), Wanted::Nothing);
    }

    #[test]
    fn a_nomination_is_taken_back_when_it_holds_no_more() {
        let mut cluster = cluster();
        machine(&mut cluster, "a", &json!([]));
        cluster.apply(pod("x", 1, Some(("node-a", OURS))));
        assert_eq!(of(&cluster, "x"), Wanted::Back, "nobody has planned it");
        cluster.apply(planned(&[("x", "a")]));
        assert_eq!(of(&cluster, "x"), Wanted::Nothing);
        cluster.apply(Change::Marked {
            claims: ["a".to_owned()].into(),
            replacements: BTreeMap::new(),
        });
        assert_eq!(of(&cluster, "x"), Wanted::Back, "its machine goes");
    }

    #[test]
    fn a_pod_whose_room_somebody_has_taken_is_planned_for_anew() {
        let mut cluster = cluster();
        machine(&mut cluster, "a", &json!([]));
        cluster.apply(pod("x", 1, None));
        cluster.apply(pod("y", 1, Some(("node-a", OURS))));
        cluster.apply(planned(&[("x", "a"), ("y", "a")]));
        assert_eq!(of(&cluster, "x"), Wanted::Anew);
        assert_eq!(of(&cluster, "y"), Wanted::Nothing, "it has the room");
        cluster.apply(pod("y", 2, None));
        assert_eq!(of(&cluster, "x"), node("node-a"));
        // Where kube-scheduler has put another pod nobody is nominated any more, whoever was.
        cluster.apply(pod("x", 2, Some(("node-a", OURS))));
        cluster.apply(bound("stranger", "node-a"));
        assert_eq!(of(&cluster, "x"), Wanted::Anew);
        let touched = cluster.apply(Change::Unplanned(key("x")));
        let event = PodEvent { provisionable: true, ..PodEvent::default() };
        assert_eq!(touched, [Touched::Pod(key("x"), event)]);
        assert_eq!(of(&cluster, "x"), Wanted::Back);
        assert_eq!(cluster.apply(Change::Unplanned(key("x"))), [], "it is waiting already");
    }
}

#[test]
fn the_manual_says_from_which_version_on_pods_are_nominated() {
    let manual = include_str!("../../../docs/src/reference/compatibility.md");
    let row = format!("(`status.nominatedNodeName`) | 1.{SINCE_MINOR} |");
    assert!(manual.contains(&row), "{row}");
}

#[tokio::test(start_paused = true)]
async fn a_node_opens_when_its_pods_have_been_seen_nominated_and_with_those_that_are_ready_then() {
    let taints = json!([{"key": "tenon.sh/not-nominated", "effect": "NoSchedule"}]);
    let mut cluster = cluster();
    for name in ["a", "b"] {
        machine(&mut cluster, name, &taints);
    }
    for (name, onto) in [("x", "a"), ("y", "b"), ("z", "b")] {
        cluster.apply(pod(name, 1, None));
        cluster.apply(planned(&[(name, onto)]));
    }
    let server = ApiServer::answering(|_| (200, json!({"metadata": {}})));
    let (operator, _publisher) = testing::operator(&server, cluster);
    operator.nominations.on.store(true, Ordering::Relaxed);
    let turn = |name: &'static str| {
        let operator = Arc::clone(&operator);
        async move {
            let (claim, node) = {
                let state = operator.state.read();
                (
                    Arc::clone(state.claim(name).unwrap()),
                    Arc::clone(state.node(&format!("node-{name}")).unwrap()),
                )
            };
            assert!(operator.nominations.hold(&operator.state, &claim));
            operator.nominations.turn(&operator.state, &claim, &node).await
        }
    };
    let (a, b) = (testing::spawn(turn("a")), testing::spawn(turn("b")));
    while operator.nominations.requests.lock().len() < 2 {
        tokio::task::yield_now().await;
    }
    let watch = {
        let operator = Arc::clone(&operator);
        let server = server.clone();
        async move {
            while server.requests().len() < 3 {
                tokio::task::yield_now().await;
            }
            assert!(operator.nominations.is_opening("node-a"));
            for (name, node) in [("x", "node-a"), ("y", "node-b"), ("z", "node-b")] {
                operator.state.apply(pod(name, 2, Some((node, OURS)))).await;
            }
        }
    };
    let opened = async {
        let (a, b) = (a.await.unwrap(), b.await.unwrap());
        let state = operator.state.read();
        let seen = |pod: &str| state.pod(&key(pod)).is_some_and(|pod| pod.nominated.is_some());
        assert!(["x", "y", "z"].iter().all(|pod| seen(pod)));
        assert!(a.is_some() && b.is_some());
    };
    let stop = CancellationToken::new();
    let writes = testing::spawn(operator.run(reconciler::controller(&operator), stop.clone()));
    tokio::join!(round(&operator), watch, opened);
    stop.cancel();
    writes.await.unwrap();
    let paths: BTreeSet<String> = server.requests().iter().map(|it| it.path.clone()).collect();
    let path = |pod| format!("/api/v1/namespaces/default/pods/{pod}/status");
    assert_eq!(paths, ["x", "y", "z"].map(path).into());
    assert!(!operator.nominations.is_opening("node-a"));
}

#[tokio::test(start_paused = true)]
async fn a_round_waits_as_long_as_nominations_are_seen_and_takes_nodes_in_that_become_ready() {
    let mut cluster = cluster();
    for name in ["a", "b"] {
        machine(&mut cluster, name, &json!([]));
    }
    for (name, onto) in [("x", "a"), ("y", "b"), ("z", "b")] {
        cluster.apply(pod(name, 1, None));
        cluster.apply(planned(&[(name, onto)]));
    }
    let server = ApiServer::default();
    let (operator, _publisher) = testing::operator(&server, cluster);
    operator.nominations.switch_on();
    let wants_to_open = |name: &str| {
        let (go, turn) = tokio::sync::oneshot::channel();
        let request = Request { claim: name.to_owned(), node: format!("node-{name}"), go };
        operator.nominations.requests.lock().push(request);
        turn
    };
    let seen = async |name: &str, node: &str| {
        sleep(Duration::from_millis(1500)).await;
        operator.state.apply(pod(name, 2, Some((node, OURS)))).await;
    };
    let begun = Instant::now();
    let mut a = wants_to_open("a");
    let watch = async {
        let mut b = wants_to_open("b");
        seen("x", "node-a").await;
        seen("y", "node-b").await;
        assert!(a.try_recv().is_err() && b.try_recv().is_err(), "z is missing");
        seen("z", "node-b").await;
        drop((a.await.unwrap(), b.await.unwrap()));
        begun.elapsed()
    };
    let ((), opened) = tokio::join!(round(&operator), watch);
    assert!((4500..4700).contains(&opened.as_millis()), "{opened:?}");

    // Nobody nominates it, and the other does not ask.
    operator.state.apply(pod("x", 3, None)).await;
    let begun = Instant::now();
    let a = wants_to_open("a");
    let watch = async {
        drop(a.await.unwrap());
        begun.elapsed()
    };
    let ((), opened) = tokio::join!(round(&operator), watch);
    let longest = TOGETHER + STALLED;
    assert!((longest..longest + Duration::from_millis(200)).contains(&opened), "{opened:?}");
}

#[tokio::test(start_paused = true)]
async fn a_nomination_is_not_written_again_before_the_watch_has_shown_it() {
    let mut cluster = cluster();
    machine(&mut cluster, "a", &json!([]));
    cluster.apply(pod("x", 1, None));
    cluster.apply(planned(&[("x", "a")]));
    let server = ApiServer::answering(|_| (200, json!({"metadata": {"resourceVersion": "3"}})));
    let (operator, _publisher) = testing::operator(&server, cluster);
    operator.nominations.switch_on();
    let stop = CancellationToken::new();
    let writes = testing::spawn(operator.run(reconciler::controller(&operator), stop.clone()));
    let looked_at = async || {
        operator.nominations.pods.add(key("x"));
        sleep(Duration::from_secs(1)).await;
        server.take_requests().len()
    };
    assert_eq!(looked_at().await, 1);
    assert_eq!(looked_at().await, 0, "the watch has not shown it");
    // Something else was written before.
    operator.state.apply(pod("x", 2, None)).await;
    assert_eq!(looked_at().await, 0);
    // kube-scheduler has taken it away.
    operator.state.apply(pod("x", 4, None)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.take_requests().len(), 1);
    stop.cancel();
    writes.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_is_held_back_for_longer_than_a_few_seconds_whatever_happens() {
    let mut cluster = cluster();
    machine(&mut cluster, "a", &json!([]));
    cluster.apply(pod("x", 1, None));
    cluster.apply(planned(&[("x", "a")]));
    let server = ApiServer::answering(|_| (200, json!({})));
    let (operator, _publisher) = testing::operator(&server, cluster);
    let (claim, node) = {
        let state = operator.state.read();
        (Arc::clone(state.claim("a").unwrap()), Arc::clone(state.node("node-a").unwrap()))
    };
    let before = Instant::now();
    // Where nothing is nominated nobody waits at all.
    assert!(!operator.nominations.hold(&operator.state, &claim));
    assert!(operator.nominations.turn(&operator.state, &claim, &node).await.is_none());
    assert_eq!(before.elapsed(), Duration::ZERO);
    operator.nominations.on.store(true, Ordering::Relaxed);
    // Nobody runs rounds.
    assert!(operator.nominations.turn(&operator.state, &claim, &node).await.is_none());
    assert_eq!(before.elapsed(), PATIENCE);
}

#[test]
fn nodes_that_wait_for_something_else_are_not_held_back() {
    let nominations = Nominations::default();
    nominations.on.store(true, Ordering::Relaxed);
    let mut cluster = cluster();
    machine(&mut cluster, "a", &json!([]));
    cluster.apply(pod("x", 1, None));
    cluster.apply(planned(&[("x", "a")]));
    let claim = (**cluster.claim("a").unwrap()).clone();
    let (state, _task) = State::new(cluster);
    assert!(nominations.hold(&state, &claim));
    let mut agent = claim.clone();
    agent
        .spec
        .startup_taints
        .push(tenon_crds::Taint::new("agent", tenon_crds::TaintEffect::NoSchedule));
    assert!(!nominations.hold(&state, &agent));
    let mut device = claim.clone();
    Arc::make_mut(&mut device.spec.resources.requests)
        .insert("nvidia.com/gpu".to_owned(), "1".parse().unwrap());
    assert!(!nominations.hold(&state, &device));
    let mut empty = claim;
    empty.metadata.name = Some("b".to_owned());
    assert!(!nominations.hold(&state, &empty), "no pods were planned onto it");
}

#[test]
fn versions_of_distributions_are_understood() {
    for (text, expected) in [("36", 36), ("34+", 34), ("", 0)] {
        assert_eq!(minor(text), expected);
    }
}
