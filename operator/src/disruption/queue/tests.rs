use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};
use tenon_crds::conditions::nodeclaim::DISRUPTION_REASON;
use tenon_crds::labels;
use tenon_crds::labels::LabelRules;
use tenon_planner::plan::{Launch, Method, Repair, Shortage, TerminateFirst};
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{DisruptionReason, RepairAction};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::kwok::Kwok;
use crate::state::change::Object;
use crate::state::cluster::Cluster;
use crate::testing::{ApiServer, KINDS, launch, operator, refused};

#[test]
fn a_node_that_is_to_be_rebooted_is_not_deleted_instead() {
    let candidates = vec![candidate("node-a", "a")];
    let repair = |action| Command {
        repair: Some(Repair {
            condition: "Ready".to_owned(),
            status: "False".to_owned(),
            reason: String::new(),
            policy: None,
            action,
            escalated: false,
            eligible_at: Timestamp::UNIX_EPOCH,
            drain_bound: None,
        }),
        ..Command::new(DisruptionReason::Unhealthy, Method::Repair, candidates.clone())
    };
    assert!(refuse_reboot(&repair(RepairAction::ReplaceNode)).is_ok());
    let error = refuse_reboot(&repair(RepairAction::RebootNode)).unwrap_err();
    assert!(error.to_string().contains("node-a"), "{error}");
}

#[test]
fn replacements_get_between_ten_minutes_and_an_hour() {
    assert_eq!(timeout(1), SignedDuration::from_mins(10));
    assert_eq!(timeout(10_000), SignedDuration::from_millis(800_000));
    assert_eq!(timeout(1_000_000), SignedDuration::from_hours(1));
}

const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/a";
const NODE: &str = "/api/v1/nodes/n";

/// A node and its NodeClaim, in an API server that answers deletions of NodeClaims so, if
/// `deletions` says how.
fn world(
    deletions: impl Fn() -> Option<u16> + Send + Sync + 'static,
) -> (ApiServer, Arc<Operator<Kwok>>) {
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": "a", "uid": "1", "resourceVersion": "1",
            "finalizers": [labels::TERMINATION_FINALIZER],
            "labels": {labels::NODEPOOL: "default"},
        },
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        },
        "status": {"providerID": "kwok://n", "nodeName": "n"},
    });
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "uid": "2", "resourceVersion": "1"},
        "spec": {"providerID": "kwok://n"},
    });
    let mut cluster = Cluster::new(KINDS, LabelRules::core());
    let parsed = serde_json::from_value(claim.clone()).unwrap();
    cluster.apply(Change::Applied(Object::NodeClaim(Box::new(parsed))));
    let parsed = serde_json::from_value(node.clone()).unwrap();
    cluster.apply(Change::Applied(Object::Node(Box::new(parsed))));
    let server = ApiServer::unless(move |request| {
        let code = (request.method == "DELETE").then(&deletions).flatten();
        code.map(|code| refused(code, "Refused"))
    });
    server.put_at(CLAIM, claim);
    server.put_at(NODE, node);
    let (operator, _) = operator(&server, cluster);
    (server, operator)
}

/// A command that deletes the node of [`world`].
fn deletion() -> Command {
    Command::new(DisruptionReason::Empty, Method::Emptiness, vec![candidate("n", "a")])
}

/// A node without pods.
fn candidate(node: &str, claim: &str) -> Candidate {
    Candidate {
        node: node.to_owned(),
        claim: claim.to_owned(),
        node_pool: "default".to_owned(),
        pods: Vec::new(),
        price: None,
    }
}

fn is_tainted(server: &ApiServer) -> bool {
    let taints = &server.at(NODE).unwrap()["spec"]["taints"];
    taints.as_array().is_some_and(|taints| !taints.is_empty())
}

fn is_told(server: &ApiServer) -> bool {
    let conditions = server.at(CLAIM).unwrap()["status"]["conditions"].clone();
    let conditions: Vec<Value> = serde_json::from_value(conditions).unwrap_or_default();
    conditions.iter().any(|it| it["type"] == DISRUPTION_REASON && it["status"] == "True")
}

/// Carries commands out until the one about `a` is done with, and tells how long that took.
async fn carried_out(commands: &Commands, operator: &Arc<Operator<Kwok>>) -> Duration {
    let stop = CancellationToken::new();
    let controller = commands.controller(Arc::clone(operator));
    let running = crate::testing::spawn(operator.run(controller, stop.clone()));
    let began = tokio::time::Instant::now();
    while commands.has("a") {
        assert!(began.elapsed() < Duration::from_hours(1), "it is never done with");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    running.await.unwrap();
    began.elapsed()
}

#[test]
fn nodeclaims_are_found_by_name_among_the_commands_that_are_carried_out() {
    let started = |candidates: &[&str], replacements: &[&str]| {
        let candidate = |claim: &&str| Candidate {
            claim: (*claim).to_owned(),
            ..deletion().candidates[0].clone()
        };
        let claim = |name: &&str| NodeClaim::new(name, tenon_crds::NodeClaimSpec::default());
        Started {
            command: Command {
                candidates: candidates.iter().map(candidate).collect(),
                ..deletion()
            },
            replacements: replacements.iter().map(claim).collect(),
            since: Timestamp::UNIX_EPOCH,
            stuck_since: OnceLock::new(),
        }
    };
    let commands = Commands::new();
    let first = commands.running.lock().add(started(&["a", "b"], &["x"]));
    let second = commands.running.lock().add(started(&["c"], &[]));
    let has = || ["a", "b", "c", "x"].map(|name| commands.has(name));
    assert_eq!((has(), commands.n_candidates()), ([true, true, true, false], 3));
    assert_eq!(commands.running.lock().replacements.get("x"), Some(&first));
    commands.running.lock().remove(first);
    assert_eq!((has(), commands.n_candidates()), ([false, false, true, false], 1));
    assert!(commands.running.lock().replacements.is_empty());
    commands.running.lock().remove(second);
    assert_eq!(has(), [false; 4]);
}

#[tokio::test(start_paused = true)]
async fn only_what_an_administrator_can_mend_is_logged_as_an_error() {
    use crate::testing::Logs;
    // The node went after the command was planned, the API server is overloaded, a permission is
    // missing.
    for (code, level) in [(404, "INFO"), (409, "INFO"), (503, "WARN"), (403, "ERROR")] {
        let server = ApiServer::answering(move |_| refused(code, "Refused"));
        let (_, known) = world(|| None);
        let cluster = {
            let mut cluster = Cluster::new(KINDS, LabelRules::core());
            let state = known.state.read();
            let claim = state.claim("a").unwrap();
            cluster.apply(Change::Applied(Object::NodeClaim(Box::new((**claim).clone()))));
            cluster
        };
        let (operator, _publisher) = operator(&server, cluster);
        let (logs, _collecting) = Logs::collect();
        assert!(!Commands::new().start(&operator, deletion()).await);
        let lines = logs.with("command");
        assert!(lines.iter().any(|line| line.contains(level)), "{code}: {lines:?}");
        assert_eq!(logs.with("ERROR").is_empty(), level != "ERROR", "{code}: {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_fenced_off_and_then_deleted() {
    let (server, operator) = world(|| None);
    let commands = Commands::new();
    assert!(commands.start(&operator, deletion()).await);
    assert!(is_tainted(&server) && is_told(&server));
    assert!(operator.state.read().is_going(operator.state.read().claim("a").unwrap()));
    carried_out(&commands, &operator).await;
    assert!(server.at(CLAIM).unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert!(!commands.start(&operator, deletion()).await, "it is going already");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_is_being_deleted_takes_the_command_back() {
    for status in ["Unknown", "True"] {
        let (server, operator) = world(|| None);
        let pool = json!({
            "metadata": {"name": "default"},
            "spec": {"template": {"spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            }}},
        });
        let pool = serde_json::from_value(pool).unwrap();
        operator.state.apply(Change::Applied(Object::NodePool(Box::new(pool)))).await;
        let commands = Commands::new();
        let command =
            Command::new(DisruptionReason::Drifted, Method::Drift, vec![candidate("n", "a")]);
        let command = Command { replacements: vec![launch(150_000)], ..command };
        assert!(commands.start(&operator, command).await);
        let started: Vec<_> = commands.running.lock().commands.values().cloned().collect();
        let mut replacement = serde_json::to_value(&started[0].replacements[0]).unwrap();
        replacement["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        replacement["metadata"]["finalizers"] = json!([labels::TERMINATION_FINALIZER]);
        replacement["status"] = json!({
            "conditions": [{
                "type": INITIALIZED, "status": status, "reason": INITIALIZED, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        let replacement = serde_json::from_value(replacement).unwrap();
        operator.state.apply(Change::Applied(Object::NodeClaim(Box::new(replacement)))).await;
        let took = carried_out(&commands, &operator).await;
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(server.at(CLAIM).unwrap()["metadata"]["deletionTimestamp"].is_null());
        assert!(!is_tainted(&server) && !is_told(&server));
        let state = operator.state.read();
        assert!(!state.is_going(state.claim("a").unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_command_was_worth_is_counted_once_it_is_carried_out() {
    let priced = |price: Option<i64>| {
        let launch = Launch { node_pool: "spare".to_owned(), ..launch(150_000) };
        let price = price.map(MicroUsd);
        let candidates = vec![Candidate { price, ..candidate("n", "a") }];
        let first = TerminateFirst { reason: Shortage::StaticAtLimit, launch: Some(launch) };
        let terminate_first = Some(first);
        let command = Command::new(DisruptionReason::Drifted, Method::Drift, candidates);
        Command { terminate_first, ..command }
    };
    for (price, refused, counted) in
        [(Some(400_000), false, true), (Some(400_000), true, false), (None, false, false)]
    {
        let (_server, operator) = world(move || refused.then_some(403));
        let commands = Commands::new();
        let metrics = &operator.context.metrics;
        assert!(commands.start(&operator, priced(price)).await);
        assert_eq!(metrics.disruption_removed.get(["default", "drifted"]), None, "not yet");
        carried_out(&commands, &operator).await;
        let of = |pool| {
            let removed = metrics.disruption_removed.get([pool, "drifted"]);
            (removed, metrics.disruption_added.get([pool, "drifted"]))
        };
        let expected =
            |removed, added| if counted { (Some(removed), Some(added)) } else { (None, None) };
        assert_eq!(of("default"), expected(0.4, 0.0));
        assert_eq!(of("spare"), expected(0.0, 0.15));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_does_not_let_us_delete_is_given_back_after_a_minute_and_left_alone() {
    for (code, patience) in [(403, 60..=90), (500, 600..=620)] {
        let (server, operator) = world(move || Some(code));
        let commands = Commands::new();
        assert!(commands.start(&operator, deletion()).await);
        let took = carried_out(&commands, &operator).await;
        assert!(patience.contains(&took.as_secs()), "{code}: {took:?}");
        assert!(!is_tainted(&server) && !is_told(&server));
        let state = operator.state.read();
        assert!(!state.is_going(state.claim("a").unwrap()), "it does not count against budgets");
        let refusal = state.refusal("a").unwrap();
        assert!(refusal.message.contains("Refused"), "{}", refusal.message);
        let left = operator.now().duration_until(refusal.until);
        assert!((590..=600).contains(&left.as_secs()), "{left}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_only_refused_for_a_moment_goes_on() {
    let refusals = Arc::new(AtomicU32::new(3));
    let (server, operator) = world(move || {
        let left = refusals.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.is_ok().then_some(403)
    });
    let commands = Commands::new();
    assert!(commands.start(&operator, deletion()).await);
    carried_out(&commands, &operator).await;
    assert!(server.at(CLAIM).unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert!(operator.state.read().refusal("a").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_taint_can_not_be_removed_does_not_keep_others_from_being_cleaned_up() {
    let (server, operator) = world(|| None);
    // What a former leader left behind; the other NodeClaim is gone from the API server.
    let mut broken = server.at(CLAIM).unwrap();
    broken["metadata"]["name"] = json!("0");
    broken["metadata"]["uid"] = json!("0");
    let mut left = server.at(CLAIM).unwrap();
    let condition = json!([{
        "type": DISRUPTION_REASON, "status": "True", "reason": "Empty", "message": "Empty",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }]);
    for claim in [&mut broken, &mut left] {
        claim["metadata"]["resourceVersion"] = json!("2");
        claim["status"]["conditions"] = condition.clone();
        let parsed = serde_json::from_value(claim.clone()).unwrap();
        operator.state.apply(Change::Applied(Object::NodeClaim(Box::new(parsed)))).await;
    }
    server.put_at(CLAIM, left);
    crate::disruption::clean_up(&operator, &Commands::new()).await;
    assert!(!is_told(&server));
}
