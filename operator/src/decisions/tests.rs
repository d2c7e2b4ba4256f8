use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_planner::plan::{Method, Nomination, PodRef, Repair, Score};
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{DisruptionReason, RepairAction};
use tenon_state::decision::{Action, Decision, Kind, Price};

use super::*;

fn pod(name: &str) -> PodRef {
    PodRef { namespace: "shop".into(), name: name.into(), uid: name.into() }
}

fn planned(pods: usize, types: &[&str]) -> Launch {
    let types = types.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    let pods = (0..pods).map(|n| pod(&format!("web-{n}"))).collect();
    Launch { instance_types: types.into(), pods, ..crate::testing::launch(99_200) }
}

fn candidate(name: &str, pods: usize) -> Candidate {
    Candidate {
        node: format!("node-{name}"),
        claim: name.to_owned(),
        node_pool: "default".to_owned(),
        pods: (0..pods).map(|n| pod(&format!("{name}-{n}"))).collect(),
        price: Some(MicroUsd(198_400)),
    }
}

fn disruption(method: Method, candidates: Vec<Candidate>) -> Command {
    Command::new(DisruptionReason::Underutilized, method, candidates)
}

fn claim(name: &str) -> NodeClaim {
    let mut claim = NodeClaim::new(name, tenon_crds::NodeClaimSpec::default());
    claim.metadata.labels =
        Some([("karpenter.sh/nodepool".to_owned(), "default".to_owned())].into());
    claim.status.get_or_insert_default().node_name = Some(format!("node-{name}"));
    claim
}

fn ledger() -> Decisions {
    let decisions = Decisions::new(Clock::anchored(Timestamp::UNIX_EPOCH));
    decisions.lead("leader".to_owned());
    decisions
}

fn last(decisions: &Decisions) -> Decision {
    let query = Query { limit: 1000, ..Query::default() };
    decisions.answer(&query).decisions.pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_launch_says_for_what_and_what_became_of_it() {
    let decisions = ledger();
    decisions.launched(&planned(3, &["m7i.large", "c7i.large", "r7i.large"]), "default-a");
    let decision = last(&decisions);
    assert_eq!((decision.kind, decision.action), (Kind::Launch, Action::Launch));
    assert_eq!(decision.reason, "3 pending pods fit on no existing node");
    assert_eq!(decision.alternatives, ["used if m7i.large is not available: c7i.large, r7i.large"]);
    assert_eq!(decision.node_claims.names, ["default-a"]);
    assert_eq!((decision.pods.count, decision.pods.names[0].as_str()), (3, "shop/web-0"));
    assert_eq!(decision.price, Some(Price { before: 0.0, after: 0.0992 }));
    assert_eq!(decision.result.message, "cheapest instance type: m7i.large");
    tokio::time::advance(std::time::Duration::from_secs(41)).await;
    decisions.progress("default-a", State::Done, "node n");
    let result = last(&decisions).result;
    assert_eq!((result.state, result.seconds), (State::Done, 41.0));
}

#[test]
fn launches_that_are_not_for_pending_pods_say_so() {
    let decisions = ledger();
    decisions.launched(&planned(1, &["a"]), "a");
    assert_eq!(last(&decisions).reason, "a pending pod fits on no existing node");
    decisions.launched(&planned(0, &["a"]), "b");
    assert_eq!(last(&decisions).reason, "its static NodePool has fewer nodes than spec.replicas");
    decisions.launched(&Launch { buffer_pods: vec![pod("x")], ..planned(0, &["a"]) }, "c");
    assert_eq!(last(&decisions).reason, "1 virtual pod of CapacityBuffers fit on no existing node");
}

#[test]
fn a_launch_that_fails_again_and_again_is_one_decision() {
    let decisions = ledger();
    for _ in 0..3 {
        decisions.launch_failed(&planned(1, &["a"]), "the API server refuses it");
    }
    let decision = last(&decisions);
    assert_eq!((decision.seq, decision.count, decision.result.state), (1, 3, State::Failed));
}

#[test]
fn consolidation_says_what_it_saves_and_what_would_have_been_less() {
    let decisions = ledger();
    let mut planned_command = disruption(Method::SingleNodeConsolidation, vec![candidate("a", 2)]);
    planned_command.replacements = vec![planned(1, &["m7i.large", "c7i.large"])];
    planned_command.nominations = vec![Nomination { pod: pod("a-0"), node: "b".to_owned() }];
    planned_command.scores = vec![Score {
        node_pool: "default".to_owned(),
        savings: 500_000_000,
        disruption: 250_000_000,
    }];
    decisions.started(&planned_command, vec!["node-a".to_owned()], &[claim("new")], None);
    let decision = last(&decisions);
    assert_eq!((decision.kind, decision.action), (Kind::Consolidation, Action::Replace));
    let why = "its 2 pods fit on other nodes and a cheaper one; score 2.00 >= threshold 0.50";
    assert!(decision.reason.starts_with(why), "{}", decision.reason);
    assert_eq!(
        decision.alternatives,
        [
            "delete it without a replacement: not all pods fit on other nodes",
            "used if m7i.large is not available: c7i.large",
        ]
    );
    assert_eq!(decision.replacements.names, ["new"]);
    assert_eq!(decision.price, Some(Price { before: 0.1984, after: 0.0992 }));
    assert_eq!(decision.result.message, "waiting until its replacement is initialized");
    decisions.replaced(&planned_command);
    assert_eq!(last(&decisions).result.message, "draining");
    decisions.gone("a");
    assert_eq!(last(&decisions).result.state, State::Done);
}

#[test]
fn a_price_that_is_not_known_is_left_out() {
    let decisions = ledger();
    let unpriced = Candidate { price: None, ..candidate("b", 0) };
    let command = disruption(Method::Emptiness, vec![candidate("a", 0), unpriced]);
    decisions.started(&command, vec![], &[], None);
    let decision = last(&decisions);
    assert_eq!((decision.action, decision.price), (Action::Delete, None));
    assert_eq!(decision.node_claims.count, 2);
}

#[test]
fn drift_and_repair_say_what_is_wrong_with_the_node() {
    let decisions = ledger();
    let drift = disruption(Method::Drift, vec![candidate("a", 1)]);
    decisions.started(&drift, vec![], &[], Some("AMIDrift"));
    assert_eq!(last(&decisions).reason, "differs from its NodePool or NodeClass: AMIDrift");
    let mut repair = disruption(Method::Repair, vec![candidate("b", 1)]);
    repair.repair = Some(Repair {
        condition: "Ready".to_owned(),
        status: "False".to_owned(),
        reason: "KubeletStopped".to_owned(),
        policy: None,
        action: RepairAction::RebootNode,
        escalated: false,
        eligible_at: Timestamp::UNIX_EPOCH,
        drain_bound: None,
    });
    decisions.rebooting(&repair, &repair.candidates[0], &claim("b"));
    let decision = last(&decisions);
    assert_eq!((decision.kind, decision.action), (Kind::Repair, Action::Reboot));
    let why = "unhealthy: Ready is False (KubeletStopped), tolerated until 00:00:00Z";
    assert_eq!(decision.reason, why);
    assert_eq!(decision.nodes.names, ["node-b"]);
    decisions.progress("b", State::Done, "node rebooted and rejoined the cluster");
    assert_eq!(last(&decisions).result.state, State::Done);
}

#[test]
fn a_nodeclaim_that_is_given_up_before_it_joined_ends_its_launch() {
    let decisions = ledger();
    decisions.launched(&planned(1, &["a"]), "a");
    decisions.deleted(&claim("a"), Cause::NotLaunched("insufficient capacity"));
    decisions.gone("a");
    let decision = last(&decisions);
    assert_eq!((decision.seq, decision.result.state), (1, State::Failed));
    assert_eq!(decision.result.message, "insufficient capacity");
    decisions.deleted(&claim("b"), Cause::Expired(Some(SignedDuration::from_hours(720))));
    let decision = last(&decisions);
    assert_eq!((decision.kind, decision.seq), (Kind::Expiration, 2));
    assert_eq!(decision.reason, "older than its expireAfter of 720h");
    assert_eq!(decision.node_pools, ["default"]);
}

#[test]
fn a_recommendation_that_comes_again_is_one_notice() {
    let decisions = ledger();
    for _ in 0..2 {
        decisions.announced(&claim("a"), "Spot rebalance recommendation was triggered");
    }
    let decision = last(&decisions);
    assert_eq!(
        (decision.kind, decision.action, decision.count),
        (Kind::Interruption, Action::Notice, 2)
    );
}

#[test]
fn nodes_that_stay_for_the_same_kind_of_reason_are_one_refusal_per_nodepool() {
    let decisions = ledger();
    let pdb = |name: &str| StayReason::Pdb { pod: pod(name), budget: "web".to_owned() };
    let (a, b, nominated) = (pdb("a"), pdb("b"), StayReason::Nominated);
    let staying = [
        ("default", "n2", &b, "pdb b"),
        ("default", "n1", &a, "pdb a"),
        ("other", "n3", &a, "pdb a"),
        ("default", "n4", &StayReason::DoNotDisrupt, "annotation"),
        ("default", "n5", &nominated, "nominated"),
    ];
    for _ in 0..5 {
        decisions.staying(staying);
    }
    let answer = decisions.answer(&Query { limit: 100, ..Query::default() });
    let told: Vec<_> = answer
        .decisions
        .iter()
        .map(|it| (it.node_pools[0].as_str(), it.reason.as_str(), it.nodes.count, it.count))
        .collect();
    assert_eq!(
        told,
        [("default", "annotation", 1, 5), ("default", "pdb a", 2, 5), ("other", "pdb a", 1, 5)]
    );
    assert_eq!(answer.revision, 3);
}

#[test]
fn a_rejected_command_is_a_refusal_with_its_reason() {
    let decisions = ledger();
    let command = disruption(Method::MultiNodeConsolidation, vec![candidate("a", 1)]);
    for _ in 0..2 {
        decisions.rejected(&command, "Node is nominated for a pending pod");
    }
    let decision = last(&decisions);
    assert_eq!((decision.kind, decision.count), (Kind::Refusal, 2));
    let why = "consolidation was planned and did not hold 15 s later: Node is nominated for a pending pod";
    assert_eq!(decision.reason, why);
}

#[test]
fn what_users_write_is_bounded_and_moves_no_cursor() {
    let decisions = ledger();
    let mut launch = planned(200, &["a"]);
    launch.pods[0] = PodRef { name: Arc::from("x".repeat(5000)), ..pod("x") };
    decisions.launched(&launch, "a");
    let decision = last(&decisions);
    assert_eq!((decision.pods.count, decision.pods.names.len()), (200, 50));
    assert!(decision.pods.names.iter().all(|name| name.len() <= 253));
    let text = format!("a\n\u{1b}[2Jb\u{202e}c{}", "d".repeat(5000));
    decisions.progress("a", State::Failed, &text);
    let message = last(&decisions).result.message;
    assert!(message.starts_with("a  [2Jb cd") && message.len() <= 1024, "{message}");
}
