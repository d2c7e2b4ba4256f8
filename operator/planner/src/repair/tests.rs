use super::breaker::Share;
use super::*;
use crate::snapshot::Health;

fn minutes(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

/// So many minutes after the epoch.
fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).expect("a valid time")
}

fn mk_policy(condition: &str, reason: Option<&str>, priority: i32) -> RepairPolicy {
    RepairPolicy {
        condition: condition.to_owned(),
        status: "False".to_owned(),
        reason: reason.map(str::to_owned),
        toleration: SignedDuration::ZERO,
        termination_grace_period: None,
        priority,
        action: RepairAction::ReplaceNode,
    }
}

fn mk_node(conditions: &[(&str, &str, i64)]) -> Node {
    let conditions = conditions.iter().map(|&(type_, reason, minute)| NodeCondition {
        type_: type_.to_owned(),
        status: "False".to_owned(),
        reason: reason.to_owned(),
        since: at(minute),
    });
    let health = Health { conditions: conditions.collect(), ..Health::default() };
    Node { health, ..Node::default() }
}

/// Appendix A.9.
#[test]
fn the_breaker_lets_a_fifth_rounded_up_be_repaired() {
    for (unhealthy, nodes, blocked) in [
        (1, 1, false),
        (1, 3, false),
        (2, 3, true),
        (1, 5, false),
        (2, 5, true),
        (2, 10, false),
        (3, 10, true),
    ] {
        assert_eq!(Share { unhealthy, nodes }.is_too_much(), blocked, "{unhealthy} of {nodes}");
    }
}

/// Appendix A.10.
#[test]
fn scores_grow_by_a_rank_in_half_an_hour() {
    let set = [
        mk_policy("A", Some(".*"), 10),
        mk_policy("B", Some(".*"), 50),
        mk_policy("C", Some(".*"), 90),
    ];
    let policies = Policies::new(&set);
    let score = |condition, since, now| {
        let node = mk_node(&[(condition, "", since)]);
        policies.judge(&node, at(now)).expect("it is sick").score
    };
    assert!((score("B", 0, 15) - 1.5).abs() < 1e-9);
    assert!((score("A", 0, 31) - (1.0 + 1.0 / 30.0)).abs() < 1e-9);
    assert!(score("A", 0, 31) > score("B", 31, 31));
    assert!(score("A", 0, 60) <= score("C", 60, 60));
    assert!(score("A", 0, 61) > score("C", 61, 61));
}

/// Appendix A.11.
#[test]
fn what_is_eligible_is_merged_into_one_verdict() {
    let mut set = [
        mk_policy("A", Some(".*"), 50),
        mk_policy("B", Some(".*"), 50),
        mk_policy("C", Some(".*"), 50),
    ];
    set[0].action = RepairAction::RebootNode;
    for (policy, grace) in set.iter_mut().zip([1, 10, 2]) {
        policy.termination_grace_period = Some(minutes(grace));
    }
    let policies = Policies::new(&set);
    let node = mk_node(&[("A", "", 600), ("B", "", 605), ("C", "", 610)]);
    let verdict = policies.judge(&node, at(615)).expect("it is sick");
    assert_eq!(verdict.action, RepairAction::ReplaceNode);
    assert_eq!(verdict.condition.type_, "B");
    assert_eq!(verdict.drain_bound, Some(minutes(1)));
    // While only the first one is tolerated no longer.
    let verdict = policies.judge(&node, at(604)).expect("it is sick");
    assert_eq!((verdict.action, &*verdict.condition.type_), (RepairAction::RebootNode, "A"));
    assert_eq!(policies.judge(&node, at(599)), None);
}

/// Appendix A.12.
#[test]
fn the_shorter_of_policy_and_nodeclaim_bounds_the_drain() {
    for (policy, claim, replace, reboot) in [
        (None, Some(minutes(7)), None, Some(minutes(7))),
        (Some(minutes(5)), Some(minutes(3)), Some(minutes(3)), Some(minutes(3))),
        (Some(minutes(0)), Some(minutes(60)), Some(minutes(0)), Some(minutes(0))),
        (Some(minutes(5)), None, Some(minutes(5)), Some(minutes(5))),
        (None, None, None, None),
    ] {
        assert_eq!(drain_bound(policy, claim, RepairAction::ReplaceNode), replace);
        assert_eq!(drain_bound(policy, claim, RepairAction::RebootNode), reboot);
    }
}

#[test]
fn the_highest_priority_drives_whatever_is_most_urgent() {
    let set = [mk_policy("A", Some(".*"), 10), mk_policy("B", Some(".*"), 90)];
    let node = mk_node(&[("A", "", 0), ("B", "", 299)]);
    let verdict = Policies::new(&set).judge(&node, at(300)).expect("it is sick");
    assert_eq!(verdict.condition.type_, "B");
    assert!((verdict.score - 10.0).abs() < 1e-9, "{}", verdict.score);
}

#[test]
fn the_fallback_applies_to_every_pair_of_the_set_where_nothing_else_matches() {
    let mut set = [mk_policy("A", None, 10), mk_policy("B", Some("^Disk"), 90)];
    set[1].toleration = minutes(30);
    let policies = Policies::new(&set);
    let judged = |type_, reason| {
        let node = mk_node(&[(type_, reason, 0)]);
        policies.judge(&node, at(10)).map(|verdict| verdict.policy)
    };
    assert_eq!(judged("A", "anything"), Some(0));
    assert_eq!(judged("B", "unknown"), Some(0));
    // What is still tolerated keeps the fallback away, too.
    assert_eq!(judged("B", "DiskFull"), None);
    // A pair that no policy names never counts.
    assert_eq!(judged("C", "anything"), None);
    let mut healthy = mk_node(&[("A", "", 0)]);
    healthy.health.conditions[0].status = "True".to_owned();
    assert!(!policies.is_sick(&healthy));
    assert!(policies.is_sick(&mk_node(&[("B", "unknown", 0)])));
}

#[test]
fn nothing_is_older_than_the_node_or_its_last_reboot() {
    let mut set = [mk_policy("A", Some(".*"), 10)];
    set[0].toleration = minutes(10);
    let policies = Policies::new(&set);
    let eligible = |joined, rebooted| {
        let mut node = mk_node(&[("A", "", 0)]);
        node.health.joined_at = Some(at(joined));
        node.health.reboots.ended_at = rebooted;
        policies.judge(&node, at(1000)).expect("it is sick").eligible_at
    };
    assert_eq!(eligible(0, None), at(10));
    assert_eq!(eligible(5, None), at(15));
    assert_eq!(eligible(5, Some(at(100))), at(110));
}

#[test]
fn a_third_reboot_within_a_day_is_a_replacement() {
    let mut set = [mk_policy("A", Some(".*"), 10)];
    set[0].action = RepairAction::RebootNode;
    let policies = Policies::new(&set);
    let day = 24 * 60;
    let judged = |reboots: &[i64]| {
        let mut node = mk_node(&[("A", "", 0)]);
        node.health.reboots.decided_at = reboots.iter().map(|&minute| at(minute)).collect();
        let verdict = policies.judge(&node, at(2 * day)).expect("it is sick");
        (verdict.action, verdict.escalated)
    };
    assert_eq!(judged(&[2 * day - 5]), (RepairAction::RebootNode, false));
    assert_eq!(judged(&[day + 1, 2 * day - 5]), (RepairAction::ReplaceNode, true));
    // Exactly a day ago counts no longer.
    assert_eq!(judged(&[day, 2 * day - 5]), (RepairAction::RebootNode, false));
}

#[test]
fn a_set_of_policies_is_checked_as_a_whole() {
    let good = [mk_policy("A", None, 0), mk_policy("B", Some(".*"), 100)];
    assert_eq!(validate(&good), Ok(()));
    let bad = [
        RepairPolicy {
            condition: String::new(),
            status: "Maybe".to_owned(),
            toleration: minutes(-1),
            termination_grace_period: Some(minutes(-2)),
            action: RepairAction::RebootNode,
            ..mk_policy("", None, 101)
        },
        mk_policy("A", Some("("), 0),
        mk_policy("B", None, 0),
    ];
    let errors = validate(&bad).expect_err("all of it is wrong");
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let expected = [
        "names no condition type",
        "the condition status \"Maybe\": use True, False or Unknown",
        "a negative toleration",
        "a negative terminationGracePeriod",
        "the priority 101: use 0 to 100",
        "its action has to be replaceNode",
        "repair policy 1 has a reason that is no regular expression",
        "2 repair policies have no reason",
    ];
    assert_eq!(texts.len(), expected.len(), "{texts:?}");
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.contains(expected), "{text}");
    }
    // What can't be read matches nothing, and hurts nobody.
    assert_eq!(Policies::new(&bad[1..2]).judge(&mk_node(&[("A", "(", 0)]), at(5)), None);
}
