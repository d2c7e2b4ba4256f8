use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn decision(reason: &str) -> Decision {
    Decision { kind: Kind::Launch, reason: reason.to_owned(), ..Decision::default() }
}

fn ring() -> Ring {
    let mut ring = Ring::new(Limits { decisions: 100, bytes: 1 << 20 });
    ring.lead("a".to_owned(), at(0));
    ring
}

fn after(revision: u64) -> Query {
    Query { after: Some(revision), limit: 100, ..Query::default() }
}

fn all() -> Query {
    Query { limit: 100, ..Query::default() }
}

fn outcome(state: State, second: i64, seconds: f64, message: &str) -> Outcome {
    Outcome { state, at: at(second), seconds, message: message.to_owned() }
}

/// Numbers and states of an answer.
fn told(answer: &Answer) -> Vec<(u64, State)> {
    answer.decisions.iter().map(|it| (it.seq, it.result.state)).collect()
}

#[test]
fn who_asks_after_the_last_revision_misses_no_result_and_hears_nothing_twice() {
    let mut ring = ring();
    for claim in ["a", "b"] {
        let seq = ring.push(decision(claim), at(1));
        ring.await_launches(seq, [claim.to_owned()]);
    }
    let first = ring.answer(&after(0));
    assert_eq!(told(&first), [(1, State::Pending), (2, State::Pending)]);
    assert_eq!(ring.answer(&after(first.revision)).decisions, []);
    ring.note_launch("a", State::Launched, "m7i.large".to_owned(), at(3));
    // The same again is no change.
    ring.note_launch("a", State::Launched, "m7i.large".to_owned(), at(4));
    let second = ring.answer(&after(first.revision));
    assert_eq!(told(&second), [(1, State::Launched)]);
    assert_eq!(second.decisions[0].result, outcome(State::Launched, 3, 2.0, "m7i.large"));
    ring.note_launch("a", State::Done, String::new(), at(9));
    // What has ended is not changed any more.
    ring.note_launch("a", State::Failed, String::new(), at(10));
    assert_eq!(told(&ring.answer(&after(second.revision))), [(1, State::Done)]);
}

#[test]
fn many_changes_come_in_several_answers() {
    let mut ring = ring();
    for n in 0..5 {
        ring.push(decision(&n.to_string()), at(n));
    }
    let (mut revision, mut seen) = (0, Vec::new());
    loop {
        let answer = ring.answer(&Query { limit: 2, ..after(revision) });
        seen.extend(answer.decisions.iter().map(|it| it.seq));
        revision = answer.revision;
        if !answer.more {
            break;
        }
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
    let newest = ring.answer(&Query { limit: 2, ..Query::default() });
    assert_eq!(told(&newest).iter().map(|it| it.0).collect::<Vec<_>>(), [4, 5]);
    assert_eq!((newest.revision, newest.more), (5, false));
}

#[test]
fn the_oldest_decisions_give_way() {
    let mut ring = ring();
    for n in 0..250 {
        let seq = ring.push(decision("x"), at(n));
        ring.await_launches(seq, [format!("claim-{n}")]);
    }
    let answer = ring.answer(&Query { limit: 1000, ..Query::default() });
    assert_eq!((answer.decisions.len(), answer.dropped), (100, 150));
    assert_eq!(answer.decisions[0].seq, 151);
    // Nothing is kept for those that are gone, and they can't be changed.
    assert_eq!(ring.launching.len(), 100);
    ring.note_launch("claim-0", State::Done, String::new(), at(300));
    assert_eq!(ring.revision(), 250);
    ring.note_launch("claim-249", State::Done, String::new(), at(300));
    assert_eq!(ring.revision(), 251);
}

#[test]
fn memory_is_bounded_by_bytes_also_when_decisions_grow() {
    let mut ring = Ring::new(Limits { decisions: 1000, bytes: 64 << 10 });
    ring.lead("a".to_owned(), at(0));
    for n in 0..500 {
        let seq = ring.push(decision(&"x".repeat(1024)), at(n));
        ring.settle(seq, State::Failed, "y".repeat(1024), at(n));
        assert!(ring.bytes <= 64 << 10, "{}", ring.bytes);
    }
    let counted: usize = ring.entries.iter().map(|entry| size(&entry.decision)).sum();
    assert_eq!(ring.bytes, counted);
    assert!((15..=30).contains(&ring.entries.len()), "{}", ring.entries.len());
}

#[test]
fn what_is_decided_again_and_again_is_one_decision_that_counts() {
    let mut ring = ring();
    let nodes = |names: &[&str]| Names {
        count: names.len(),
        names: names.iter().map(|&it| it.to_owned()).collect(),
    };
    let refusal = |names: &[&str]| Decision { nodes: nodes(names), ..decision("a budget") };
    for second in 0..10 {
        ring.repeat("budget".to_owned(), refusal(&["a"]), at(second));
    }
    let answer = ring.answer(&all());
    assert_eq!((answer.decisions.len(), answer.decisions[0].count), (1, 10));
    assert_eq!(answer.decisions[0].result.at, at(9));
    assert_eq!(answer.revision, 1, "that it still holds is no news");
    ring.repeat("budget".to_owned(), refusal(&["a", "b"]), at(20));
    let news = ring.answer(&after(1));
    assert_eq!((news.decisions[0].count, news.decisions[0].nodes.count), (11, 2));
    assert_eq!(news.decisions[0].time, at(0));
    // One that was dropped meanwhile is recorded anew.
    for n in 0..100 {
        ring.push(decision("x"), at(n));
    }
    ring.repeat("budget".to_owned(), refusal(&["a"]), at(200));
    let answer = ring.answer(&all());
    assert_eq!(answer.decisions.last().map(|it| (it.seq, it.count)), Some((102, 1)));
}

#[test]
fn a_command_is_done_when_the_last_of_its_nodeclaims_is_gone() {
    let mut ring = ring();
    let seq = ring.push(decision("empty"), at(0));
    ring.await_ends(seq, ["a", "b", "c"].map(str::to_owned));
    ring.gone("a", at(5));
    assert_eq!(told(&ring.answer(&all())), [(1, State::Pending)]);
    ring.gone("b", at(6));
    ring.gone("c", at(7));
    let answer = ring.answer(&all());
    assert_eq!(told(&answer), [(1, State::Done)]);
    assert_eq!(answer.decisions[0].result, outcome(State::Done, 7, 7.0, ""));
    ring.gone("c", at(8));
    assert_eq!(ring.revision(), 2);
}

#[test]
fn a_command_that_was_rolled_back_is_not_done_when_its_nodes_go_later() {
    let mut ring = ring();
    let seq = ring.push(decision("replace"), at(0));
    ring.await_ends(seq, ["a", "b"].map(str::to_owned));
    ring.stays(&["a"], State::Abandoned, "too late", at(4));
    for claim in ["a", "b"] {
        ring.gone(claim, at(60));
    }
    assert_eq!(told(&ring.answer(&all())), [(1, State::Abandoned)]);
}

#[test]
fn a_launch_whose_nodeclaim_goes_before_it_is_initialized_has_failed() {
    let mut ring = ring();
    let seq = ring.push(decision("launch"), at(0));
    ring.await_launches(seq, ["a".to_owned()]);
    ring.gone("a", at(4));
    assert_eq!(told(&ring.answer(&all())), [(1, State::Failed)]);
}

#[test]
fn only_what_is_asked_for_is_answered() {
    let mut ring = ring();
    let names = |name: &str| Names { count: 1, names: vec![name.to_owned()] };
    let base = decision("x");
    ring.push(Decision { node_pools: vec!["p".to_owned()], ..base.clone() }, at(0));
    ring.push(Decision { nodes: names("n"), ..base.clone() }, at(0));
    ring.push(Decision { replacements: names("n"), kind: Kind::Drift, ..base.clone() }, at(0));
    ring.push(Decision { pods: names("shop/web"), ..base }, at(0));
    let asked = |query: Query| {
        let answer = ring.answer(&query);
        answer.decisions.iter().map(|it| it.seq).collect::<Vec<_>>()
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(asked(Query { node_pool: text("p"), ..all() }), [1]);
    assert_eq!(asked(Query { node: text("n"), ..all() }), [2, 3]);
    assert_eq!(asked(Query { node: text("n"), kind: Some(Kind::Drift), ..all() }), [3]);
    assert_eq!(asked(Query { pod: text("web"), ..all() }), [4]);
    assert_eq!(asked(Query { pod: text("shop/web"), ..all() }), [4]);
    assert_eq!(asked(Query { pod: text("other/web"), ..all() }), Vec::<u64>::new());
    assert_eq!(asked(Query { node: text("n"), after: Some(2), ..all() }), [3]);
}

#[test]
fn another_leader_starts_anew() {
    let mut ring = ring();
    ring.push(decision("x"), at(0));
    ring.step_down();
    assert!(!ring.leads());
    ring.lead("b".to_owned(), at(9));
    let answer = ring.answer(&all());
    assert_eq!((answer.leader.as_str(), answer.since, answer.revision), ("b", Some(at(9)), 0));
}
