//! What is on the screen, on terminals of several sizes, and what keys do to it.

use std::path::Path;

use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;
use ratatui_termion::termion::event::Key;
use tenon_simulate::{CatalogOptions, Fleet, FleetNode, Options, Used, read};
use tenon_state::decision::{
    Action as Done, Decision, Decisions, Kind, Names, Outcome, Price, State as Result,
};
use tenon_state::options::FeatureGates;
use tokio::sync::mpsc::channel;

use super::draw::draw;
use super::item::Item;
use super::keys::press;
use super::pane::Pane;
use super::text::width;
use super::view::{Popup, View};
use super::*;
use crate::uninstall::Motion;

const NOW: &str = "2026-01-01T12:00:00Z";

fn at(time: &str) -> jiff::Timestamp {
    time.parse().expect("a time")
}

/// The cluster that the screens of `tenon status` show, too.
fn fleet() -> Fleet {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("simulate/tests/fixtures");
    let live = Options::live(at(NOW), FeatureGates::default());
    let options = Options {
        files: vec![fixtures.join("fleet/cluster.yaml")],
        catalog: CatalogOptions {
            files: vec![fixtures.join("explain/catalog.json")],
            ..live.catalog
        },
        ..live
    };
    let simulation = futures::executor::block_on(read(options, None, &|_| ()));
    let mut fleet = simulation.expect("it can be read").fleet();
    for (hours, node) in (1..).zip(&mut fleet.nodes) {
        node.created_at = at(NOW) - jiff::SignedDuration::from_hours(3 * hours);
    }
    fleet
}

fn names(names: &[&str]) -> Names {
    Names { count: names.len(), names: names.iter().map(|&it| it.to_owned()).collect() }
}

fn outcome(state: Result, time: &str, seconds: f64, message: &str) -> Outcome {
    Outcome { state, at: at(time), seconds, message: message.to_owned() }
}

fn decisions() -> Decisions {
    let of = |seq, time: &str, kind, action| Decision {
        seq,
        time: at(time),
        kind,
        action,
        node_pools: vec!["default".to_owned()],
        count: 1,
        ..Decision::default()
    };
    let launch = Decision {
        reason: "3 pending pods fit on no existing node".to_owned(),
        pods: names(&["shop/web-1", "shop/web-2", "shop/web-3"]),
        node_claims: names(&["default-bbbbb"]),
        price: Some(Price { before: 0.0, after: 0.1984 }),
        result: outcome(Result::Done, "2026-01-01T11:48:20Z", 41.2, "m7i.2xlarge, spot"),
        ..of(1, "2026-01-01T11:47:39Z", Kind::Launch, Done::Launch)
    };
    let refusal = Decision {
        reason: "Pdb prevents pod evictions (PodDisruptionBudget=shop/web, Pod=web-1)".to_owned(),
        nodes: names(&["default-aaaaa", "default-bbbbb"]),
        count: 12,
        result: outcome(Result::Refused, "2026-01-01T11:59:48Z", 0.0, ""),
        ..of(2, "2026-01-01T11:50:02Z", Kind::Refusal, Done::Stay)
    };
    let consolidation = Decision {
        reason: "its 4 pods fit on the other nodes".to_owned(),
        alternatives: vec!["replace it: no cheaper instance type has room for them".to_owned()],
        nodes: names(&["default-ccccc"]),
        price: Some(Price { before: 0.1, after: 0.0 }),
        result: outcome(Result::Pending, "2026-01-01T11:56:00Z", 0.0, "draining"),
        ..of(3, "2026-01-01T11:56:00Z", Kind::Consolidation, Done::Delete)
    };
    let interruption = Decision {
        reason: "AWS takes the spot instance back in 2 minutes".to_owned(),
        nodes: names(&["default-ddddd"]),
        result: outcome(Result::Done, "2026-01-01T11:59:30Z", 0.0, ""),
        ..of(4, "2026-01-01T11:59:30Z", Kind::Interruption, Done::Notice)
    };
    Decisions {
        leader: "karpenter-6d5f9-abcde_1f".to_owned(),
        since: Some(at("2026-01-01T00:00:00Z")),
        decisions: vec![launch, refusal, consolidation, interruption],
        ..Decisions::default()
    }
}

/// News of a cluster, read at a time, at a price.
fn priced(time: &str, price: f64) -> News {
    let mut fleet = Box::new(fleet());
    fleet.now = at(time);
    fleet.total.price_per_hour = price;
    News::Fleet { fleet, notes: Vec::new(), has_spot_prices: false }
}

fn state() -> State {
    let mut state = State::new("prod", at(NOW));
    let prices = [0.5, 0.5, 0.6, 0.6, 0.6, 0.7, 0.8, 0.8, 0.7, 0.7, 0.5, 0.5, 0.4, 0.4];
    for (n, price) in prices.into_iter().enumerate() {
        state.learn(priced(&format!("2026-01-01T11:{}:00Z", 46 + n), price));
    }
    let fleet = Box::new(fleet());
    let notes = vec!["prices: those of a catalog".to_owned()];
    state.learn(News::Fleet { fleet, notes, has_spot_prices: false });
    state.learn(News::Decisions(decisions()));
    state
}

fn view((columns, rows): (u16, u16)) -> View {
    View::new((usize::from(columns), usize::from(rows)))
}

fn buffer(state: &State, view: &View, palette: Palette) -> Buffer {
    let size = |n: usize| u16::try_from(n).expect("a size");
    let (columns, rows) = view.size;
    let mut terminal =
        Terminal::new(TestBackend::new(size(columns), size(rows))).expect("in memory");
    terminal.draw(|frame| draw(frame, state, view, palette)).expect("in memory");
    terminal.backend().buffer().clone()
}

/// The rows of a buffer. A character of two columns takes one cell and leaves the next one empty.
fn rows(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let row = |y| {
        let mut skip = 0;
        let mut text = String::new();
        for x in 0..area.width {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                text.push_str(symbol);
                skip = width(symbol).max(1);
            }
            skip -= 1;
        }
        text.trim_end().to_owned()
    };
    (0..area.height).map(row).collect()
}

fn screen(state: &State, view: &View) -> String {
    rows(&buffer(state, view, Palette::Monochrome)).join("\n")
}

/// The view after some keys, and what they asked for.
fn type_keys(state: &State, view: View, keys: &[Key]) -> (View, Vec<Action>) {
    let mut actions = Vec::new();
    let mut view = view;
    for key in keys {
        let action;
        (view, action) = press(*key, state, view);
        actions.extend(action);
    }
    (view, actions)
}

fn chars(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

fn face() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/design/face.md");
    std::fs::read_to_string(page).expect("the page")
}

#[test]
fn the_screens_of_the_design_are_what_is_drawn() {
    let (state, page) = (state(), face());
    let explained = || {
        let (view, actions) = type_keys(&state, view((80, 24)), &chars("3\n"));
        let Some(Action::Explain(subject, 74)) = actions.first() else { panic!("{actions:?}") };
        let text = "Pod shop/huge-0: it stays pending because no instance type is large enough for \
                    64 cpu\n  requests 64 cpu, 1Gi memory\n\nWhat to do:\n  Request at most 7.91 \
                    cpu for all containers together";
        let mut view = view;
        view.learn(&News::Explained(subject.clone(), Ok(text.to_owned())));
        view
    };
    let (confirmed, _) = type_keys(&state, view((80, 24)), &chars("1jf"));
    let screens = [
        ("80x24", screen(&state, &view((80, 24)))),
        ("120x40", screen(&state, &view((120, 40)))),
        ("explained", screen(&state, &explained())),
        ("confirm", screen(&state, &confirmed)),
        ("unread", changed_when_nothing_answers()),
    ];
    for (name, screen) in &screens {
        insta::assert_snapshot!(*name, screen);
    }
    for (name, screen) in screens {
        assert!(page.contains(screen.trim_end()), "{name} is not in face.md:\n{screen}");
    }
}

/// The rows that differ when neither the API server nor the operator answers any more.
fn changed_when_nothing_answers() -> String {
    let mut state = state();
    let before = screen(&state, &view((80, 24)));
    state.learn(News::Unread("list nodes: the API server can't be reached: refused".to_owned()));
    state.learn(News::NoDecisions("no replica of the operator leads at the moment".to_owned()));
    state.now = at("2026-01-01T12:00:40Z");
    let after = screen(&state, &view((80, 24)));
    let changed = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
    changed.map(|(_, after)| after).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_narrow_terminal_gets_what_matters_most() {
    insta::assert_snapshot!(screen(&state(), &view((60, 20))));
}

#[test]
fn keys_marks_and_notes_are_explained() {
    let (view, _) = type_keys(&state(), view((80, 24)), &chars("?"));
    insta::assert_snapshot!(screen(&state(), &view));
}

#[test]
fn a_decision_is_shown_in_full_and_can_be_scrolled() {
    let state = state();
    let (view, actions) = type_keys(&state, view((60, 9)), &chars("5k\n"));
    assert_eq!(actions, []);
    let top = screen(&state, &view);
    let (view, _) = type_keys(&state, view, &[Key::End]);
    let bottom = screen(&state, &view);
    insta::assert_snapshot!(format!("{top}\n\n{bottom}"));
    // What is beyond the end does not have to be scrolled back.
    let (view, _) = type_keys(&state, view, &[Key::Down, Key::Down, Key::Up]);
    assert_ne!(screen(&state, &view), bottom);
    let (view, _) = type_keys(&state, view, &[Key::Esc]);
    assert_eq!(view.popup, None);
}

#[test]
fn no_size_of_a_terminal_is_too_small_or_too_large() {
    let state = state();
    for columns in [0, 1, 2, 5, 10, 20, 40, 79, 200, 400] {
        for rows in [0, 1, 2, 3, 5, 10, 13, 14, 100] {
            for keys in ["", "?", "5\n", "1f", "3z", "/web"] {
                let (view, _) = type_keys(&state, view((columns, rows)), &chars(keys));
                let drawn = buffer(&state, &view, Palette::Colored);
                assert_eq!((drawn.area.width, drawn.area.height), (columns, rows));
            }
        }
    }
}

#[test]
fn without_colors_reversal_and_marks_say_the_same() {
    let state = state();
    let view = view((80, 24));
    let plain = buffer(&state, &view, Palette::Monochrome);
    let cells = plain.content();
    assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let reversed = |buffer: &Buffer| {
        let is_reversed = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
        (0..buffer.area.height).filter(is_reversed).collect::<Vec<_>>()
    };
    let [selected] = reversed(&plain)[..] else { panic!("one line is selected") };
    assert_eq!(plain[(0, selected)].symbol(), ">");
    let colored = buffer(&state, &view, Palette::Colored);
    assert!(colored.content().iter().any(|cell| cell.fg == Color::Green));
    assert_eq!(rows(&colored), rows(&plain));
    assert_eq!(reversed(&colored), [selected]);
}

#[test]
fn a_popup_has_nothing_of_what_is_below_it() {
    let state = state();
    for size in [(60, 20), (80, 24), (120, 40)] {
        let (view, _) = type_keys(&state, view(size), &chars("?"));
        let drawn = buffer(&state, &view, Palette::Colored);
        let mut boxed = 0;
        for y in 0..size.1 {
            let border = |x: &u16| drawn[(*x, y)].symbol() == "║";
            let (left, right) = ((0..size.0).find(border), (0..size.0).rev().find(border));
            for x in left.zip(right).map(|(left, right)| left + 2..right - 1).into_iter().flatten()
            {
                let cell = &drawn[(x, y)];
                let plain = (cell.fg, cell.modifier) == (Color::Reset, Modifier::empty());
                assert!(plain, "{x}, {y} of {size:?}: {cell:?}");
                boxed += 1;
            }
        }
        assert!(boxed > 500, "{boxed} cells");
    }
}

#[test]
fn what_can_not_be_read_takes_one_line_each() {
    // Nothing was read yet.
    let mut state = State::new("prod", at(NOW));
    state.learn(News::Unread("list nodes: refused".to_owned()));
    state.learn(News::NoDecisions("the cluster has no Tenon operator".to_owned()));
    insta::assert_snapshot!("nothing", screen(&state, &view((80, 24))));
    state.learn(News::Fleet {
        fleet: Box::new(fleet()),
        notes: Vec::new(),
        has_spot_prices: false,
    });
    assert!(!screen(&state, &view((80, 24))).contains("refused"));
}

#[test]
fn an_api_server_that_only_accepts_requests_is_noticed_too() {
    let mut state = State::new("prod", at(NOW));
    state.learn(priced("2026-01-01T11:59:50Z", 0.5));
    state.learn(priced("2026-01-01T11:59:52Z", 0.5));
    let second = |state: &State| screen(state, &view((80, 24))).lines().nth(1).map(str::to_owned);
    assert!(second(&state).is_some_and(|line| line.starts_with(" price ")));
    state.now = at("2026-01-01T12:00:09Z");
    let late = " ! as of 11:59:52Z, 17s ago: the API server has not answered since";
    assert_eq!(second(&state).as_deref(), Some(late));
    state.learn(priced("2026-01-01T12:00:09Z", 0.5));
    assert!(second(&state).is_some_and(|line| line.starts_with(" price ")));
    // A cluster that takes long to read is read less often.
    state.now = at("2026-01-01T12:01:09Z");
    assert!(second(&state).is_some_and(|line| line.starts_with(" price ")));
}

/// A node of many.
fn node(n: usize) -> FleetNode {
    FleetNode {
        key: format!("default-{n:05}"),
        name: Some(format!("ip-10-0-{}-{}.ec2.internal", n / 250, n % 250)),
        has_claim: true,
        node_pool: Some("default".to_owned()),
        instance_type: Some("m7i.large".to_owned()),
        zone: Some("eu-west-1a".to_owned()),
        capacity_type: Some("spot".to_owned()),
        price: Some(0.1),
        is_initialized: true,
        is_ready: true,
        created_at: at("2026-01-01T11:00:00Z"),
        pods: 10,
        cpu: Used { requested: 500, allocatable: 1000 },
        memory: Used { requested: 1 << 30, allocatable: 2 << 30 },
    }
}

fn with_nodes(nodes: impl Iterator<Item = FleetNode>) -> State {
    let mut fleet = Box::new(fleet());
    fleet.nodes = nodes.collect();
    fleet.total.nodes = fleet.nodes.len();
    let mut state = State::new("prod", at(NOW));
    state.learn(News::Fleet { fleet, notes: Vec::new(), has_spot_prices: false });
    state
}

#[test]
fn of_a_thousand_nodes_those_around_the_selected_one_are_drawn() {
    let state = with_nodes((0..1000).map(node));
    let shown = |view: &View| {
        let screen = screen(&state, view);
        let lines = screen.lines().filter(|line| line.contains("m7i.large"));
        lines.map(|line| line[..16].trim().to_owned()).collect::<Vec<_>>()
    };
    let first = view((80, 24));
    let fits = shown(&first).len();
    assert!((6..16).contains(&fits), "{fits} nodes");
    assert!(screen(&state, &first).contains(&format!("NODES 1-{fits} of 1,000")));
    assert_eq!(shown(&first)[0], ">  default-00000");
    let (last, _) = type_keys(&state, first.clone(), &[Key::End]);
    assert_eq!(shown(&last)[fits - 1], ">  default-00999");
    let (middle, _) = type_keys(&state, last, &[Key::PageUp, Key::PageUp]);
    let selected = format!(">  default-{:05}", 999 - 2 * fits);
    assert_eq!((shown(&middle).len(), &shown(&middle)[fits / 2]), (fits, &selected));
    let (few, _) = type_keys(&state, first, &chars("/-00042"));
    assert!(screen(&state, &few).contains("NODES 1 of 1,000 ═"));
    assert_eq!(shown(&few), [">  default-00042"]);
}

#[test]
fn the_selected_line_is_the_same_object_after_the_cluster_was_read_again() {
    let mut state = with_nodes((0..10).map(node));
    let (view, _) = type_keys(&state, view((80, 24)), &chars("jjj"));
    let selected = |state: &State| {
        let (items, _) = view.items(Pane::Nodes, state);
        let place = view.place(Pane::Nodes, &items);
        (items[place].id(), place)
    };
    assert_eq!(selected(&state), ("default-00003".to_owned(), 3));
    let read_again = |state: &mut State, nodes: Vec<FleetNode>| {
        let mut fleet = Box::new(fleet());
        fleet.nodes = nodes;
        state.learn(News::Fleet { fleet, notes: Vec::new(), has_spot_prices: false });
    };
    read_again(&mut state, (2..10).map(node).collect());
    assert_eq!(selected(&state), ("default-00003".to_owned(), 1));
    // It is gone: what is in its place now.
    read_again(&mut state, (4..10).map(node).collect());
    assert_eq!(selected(&state).0, "default-00007");
    read_again(&mut state, Vec::new());
    assert_eq!(view.items(Pane::Nodes, &state).0.len(), 0);
}

#[test]
fn nodes_are_sorted_by_name_price_use_or_age() {
    let mut nodes = (0..3).map(node).collect::<Vec<_>>();
    nodes[0].price = None;
    nodes[1].price = Some(0.5);
    nodes[0].cpu.requested = 900;
    nodes[2].cpu.requested = 100;
    nodes[1].created_at = at("2026-01-01T10:00:00Z");
    let state = with_nodes(nodes.into_iter());
    let order = |view: &View| {
        let (items, _) = view.items(Pane::Nodes, &state);
        items.iter().map(|item| item.id()[12..].to_owned()).collect::<String>()
    };
    let mut view = view((80, 24));
    let mut orders = Vec::new();
    for _ in 0..5 {
        let screen = screen(&state, &view);
        let heading = screen.lines().find(|line| line.contains("NODES") && line.starts_with('═'));
        orders.push((heading.unwrap_or_default()[4..].to_owned(), order(&view)));
        (view, _) = press(Key::Char('s'), &state, view);
    }
    let expected = [
        ("NODES 3 ═", "012"),
        ("NODES by price 3 ═", "120"),
        ("NODES by cpu 3 ═", "210"),
        ("NODES by age 3 ═", "102"),
        ("NODES 3 ═", "012"),
    ];
    for ((heading, order), (expected_heading, expected)) in orders.iter().zip(expected) {
        assert!(heading.starts_with(expected_heading), "{heading}");
        assert_eq!(order, expected, "{heading}");
    }
}

#[test]
fn names_never_move_the_cursor() {
    let hostile = "\u{1b}[2J\r\n\u{202e}节点\u{9b}5A\u{200b}\u{7}\t";
    let mut fleet = Box::new(fleet());
    for pool in &mut fleet.node_pools {
        pool.name.push_str(hostile);
        pool.problem = Some(hostile.to_owned());
    }
    for node in &mut fleet.nodes {
        node.key.push_str(hostile);
        node.instance_type = Some(hostile.to_owned());
        node.zone = Some(hostile.to_owned());
        node.capacity_type = Some(hostile.to_owned());
    }
    for pending in &mut fleet.pending_pods {
        pending.reason.push_str(hostile);
        pending.pods.iter_mut().for_each(|pod| pod.name.insert_str(0, hostile));
    }
    for removal in &mut fleet.disrupting {
        removal.node.push_str(hostile);
        removal.reason = Some(hostile.to_owned());
    }
    for kept in &mut fleet.blocked {
        kept.message.insert_str(0, hostile);
        kept.nodes.iter_mut().for_each(|node| node.insert_str(0, hostile));
    }
    let mut decisions = decisions();
    decisions.leader = hostile.to_owned();
    for decision in &mut decisions.decisions {
        decision.reason.push_str(hostile);
        decision.node_pools.push(hostile.to_owned());
        decision.nodes.names.push(hostile.to_owned());
        decision.result.message.push_str(hostile);
    }
    let mut state = State::new(hostile, at(NOW));
    let notes = vec![hostile.to_owned()];
    state.learn(News::Fleet { fleet, notes, has_spot_prices: false });
    state.learn(News::Decisions(decisions));
    let check = |state: &State, view: &View| {
        let drawn = buffer(state, view, Palette::Colored);
        for cell in drawn.content() {
            let symbol = cell.symbol();
            let is_hidden = |c| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
            let is_safe = |c: char| !c.is_control() && !is_hidden(c);
            assert!(symbol.chars().all(is_safe), "{symbol:?}");
            assert!(width(symbol) <= 2, "{symbol:?}");
        }
        // Columns stay under their titles.
        for row in rows(&drawn) {
            assert!(width(&row) <= view.size.0, "{row}");
        }
    };
    for size in [(60, 20), (80, 24), (120, 40)] {
        for keys in ["", "?", "1jf", "3\n", "5\n", "4\n", "/\u{1b}"] {
            let (mut shown, actions) = type_keys(&state, view(size), &chars(keys));
            check(&state, &shown);
            for action in actions {
                if let Action::Explain(subject, _) = action {
                    shown.learn(&News::Explained(subject, Ok(hostile.to_owned())));
                    check(&state, &shown);
                }
            }
            shown.popup = None;
            let pause = Pause { motion: Motion::Still, pools: vec![hostile.to_owned()] };
            shown.learn(&News::Paused(pause, Err(hostile.to_owned())));
            check(&state, &shown);
        }
    }
    state.learn(News::Unread(hostile.to_owned()));
    state.learn(News::NoDecisions(hostile.to_owned()));
    check(&state, &view((80, 24)));
    assert!(screen(&state, &view((80, 24))).contains('节'));
}

#[test]
fn a_filter_is_typed_kept_and_removed() {
    let state = state();
    let ids = |view: &View, pane| {
        let (items, _) = view.items(pane, &state);
        items.iter().map(Item::id).collect::<Vec<_>>()
    };
    let (typed, _) = type_keys(&state, view((80, 24)), &chars("/CCCC"));
    assert!(typed.typing);
    assert_eq!(ids(&typed, Pane::Nodes), ["default-ccccc"]);
    assert_eq!(ids(&typed, Pane::Disruptions), ["removal default-ccccc"]);
    assert_eq!(ids(&typed, Pane::Decisions), ["3"]);
    assert_eq!(ids(&typed, Pane::Pools), Vec::<String>::new());
    assert!(screen(&state, &typed).contains(" /CCCC_"));
    let (kept, actions) = type_keys(&state, typed, &chars("\nq"));
    assert_eq!((kept.typing, actions.as_slice()), (false, &[Action::Quit][..]));
    assert!(screen(&state, &kept).contains(" /CCCC (Esc removes it)"));
    let (removed, _) = type_keys(&state, kept, &[Key::Esc]);
    assert_eq!(ids(&removed, Pane::Nodes).len(), 5);
    // Keys are letters while it is typed, and Ctrl-C is not.
    let (typed, actions) = type_keys(&state, view((80, 24)), &chars("/qf?z"));
    assert_eq!((typed.filter.as_str(), actions.len()), ("qf?z", 0));
    let keys = [Key::Backspace, Key::Ctrl('c')];
    let (typed, actions) = type_keys(&state, typed, &keys);
    assert_eq!((typed.filter.as_str(), actions.as_slice()), ("qf?", &[Action::Quit][..]));
    let (cleared, _) = type_keys(&state, typed, &[Key::Esc]);
    assert_eq!((cleared.filter.as_str(), cleared.typing), ("", false));
}

#[test]
fn the_pod_that_matches_the_filter_is_explained() {
    let state = state();
    let explained = |keys: &str| {
        let (_, actions) = type_keys(&state, view((80, 24)), &chars(keys));
        let [Action::Explain(subject, _)] = &actions[..] else { panic!("{actions:?}") };
        (subject.kind, subject.name.clone())
    };
    use tenon_simulate::Kind::{NodeClaim, NodePool, Pod};
    assert_eq!(explained("3\n"), (Pod, "huge-0".to_owned()));
    assert_eq!(explained("/huge-2\n3\n"), (Pod, "huge-2".to_owned()));
    assert_eq!(explained("\n"), (NodeClaim, "default-aaaaa".to_owned()));
    assert_eq!(explained("1j\n"), (NodePool, "default".to_owned()));
    assert_eq!(explained("4\n"), (NodeClaim, "default-ccccc".to_owned()));
    // The sum of all nodes is nothing to explain.
    let (view, actions) = type_keys(&state, view((80, 24)), &chars("1G\n"));
    assert_eq!(actions, []);
    assert!(screen(&state, &view).contains("! there is nothing to explain about this line"));
}

#[test]
fn an_answer_to_another_question_is_not_shown() {
    let state = state();
    let (mut view, actions) = type_keys(&state, view((80, 24)), &chars("3\n"));
    let [Action::Explain(subject, _)] = &actions[..] else { panic!("{actions:?}") };
    let mut other = subject.clone();
    other.name = "other".to_owned();
    view.learn(&News::Explained(other, Ok("another answer".to_owned())));
    assert!(screen(&state, &view).contains("reading the cluster…"));
    view.learn(&News::Explained(subject.clone(), Err("it does not exist".to_owned())));
    assert!(screen(&state, &view).contains("can't explain it: it does not exist"));
    let (mut view, _) = type_keys(&state, view, &[Key::Esc]);
    view.learn(&News::Explained(subject.clone(), Ok("too late".to_owned())));
    assert_eq!(view.popup, None);
}

#[test]
fn node_pools_are_paused_only_after_a_yes() {
    use Motion::{Free, Still};
    let mut state = state();
    let asked_in = |state: &State, keys: &str| {
        let (view, actions) = type_keys(state, view((80, 24)), &chars(keys));
        assert_eq!(actions, []);
        let Some(Popup::Confirm(pause)) = view.popup.clone() else { panic!("{:?}", view.popup) };
        for no in [Key::Char('n'), Key::Esc, Key::Char('\n'), Key::Char('Y'), Key::Char('q')] {
            let (view, actions) = type_keys(state, view.clone(), &[no]);
            assert_eq!((view.popup, actions.len()), (None, 0));
        }
        let (_, actions) = type_keys(state, view, &chars("y"));
        assert_eq!(actions, [Action::Pause(pause.clone())]);
        (pause.motion, pause.pools.join(" "))
    };
    let asked = |keys| asked_in(&state, keys);
    let default = || "default".to_owned();
    // Of the selected NodePool, of that of the selected node, or all that are not paused yet.
    assert_eq!(asked("1jf"), (Still, default()));
    assert_eq!(asked("1f"), (Free, "batch".to_owned()));
    assert_eq!(asked("f"), (Still, default()));
    let all = "default experiments-of-the-data-team".to_owned();
    assert_eq!(asked("F"), (Still, all.clone()));
    assert_eq!(asked("5f"), (Still, all));
    let (mut view, _) = type_keys(&state, view((80, 24)), &chars("1jfy"));
    assert!(screen(&state, &view).contains(" writing…"));
    let pause = || Pause { motion: Still, pools: vec![default()] };
    view.learn(&News::Paused(pause(), Ok("paused: default".to_owned())));
    assert!(screen(&state, &view).contains(" paused: default"));
    let refused = || News::Paused(pause(), Err("patch nodepools default: forbidden".to_owned()));
    view.learn(&refused());
    assert!(screen(&state, &view).contains(" ! patch nodepools default: forbidden"));
    // The next key is read again.
    let (view, _) = type_keys(&state, view, &chars("j"));
    assert!(screen(&state, &view).contains("help"));
    // The same key takes it back, also before the cluster is read again.
    state.learn(refused());
    assert_eq!(asked_in(&state, "1jf"), (Still, default()));
    state.learn(News::Paused(pause(), Ok("paused: default".to_owned())));
    assert_eq!(asked_in(&state, "1jf"), (Free, default()));
    state.learn(News::Paused(Pause { motion: Free, ..pause() }, Ok("resumed: default".to_owned())));
    assert_eq!(asked_in(&state, "1jf"), (Still, default()));
}

#[test]
fn the_log_follows_what_comes_unless_a_line_is_selected() {
    let mut state = state();
    let next = |seq: u64| Decisions {
        decisions: vec![Decision { seq, ..decisions().decisions[0].clone() }],
        ..decisions()
    };
    let selected = |view: &View, state: &State| {
        let (items, _) = view.items(Pane::Decisions, state);
        items[view.place(Pane::Decisions, &items)].id()
    };
    let (view, _) = type_keys(&state, view((80, 24)), &chars("5"));
    assert_eq!(selected(&view, &state), "4");
    state.learn(News::Decisions(next(5)));
    assert_eq!(selected(&view, &state), "5");
    let (view, _) = type_keys(&state, view, &chars("kk"));
    state.learn(News::Decisions(next(6)));
    assert_eq!(selected(&view, &state), "3");
    let (view, _) = type_keys(&state, view, &chars("G"));
    state.learn(News::Decisions(next(7)));
    assert_eq!(selected(&view, &state), "7");
}

#[test]
fn panes_are_reached_by_tab_arrows_and_numbers() {
    let state = state();
    let focus = |keys: &[Key]| type_keys(&state, view((80, 24)), keys).0.focus;
    assert_eq!(focus(&[]), Pane::Nodes);
    assert_eq!(focus(&[Key::Char('\t')]), Pane::Pending);
    assert_eq!(focus(&[Key::Right, Key::Right, Key::Right, Key::Right]), Pane::Pools);
    assert_eq!(focus(&[Key::BackTab, Key::Left]), Pane::Decisions);
    assert_eq!(focus(&[Key::Char('4')]), Pane::Disruptions);
    // An enlarged pane stays enlarged while others are visited.
    let (zoomed, _) = type_keys(&state, view((80, 24)), &chars("z5"));
    let screen = screen(&state, &zoomed);
    assert!(screen.contains("DECISIONS") && !screen.contains("NODEPOOLS"), "{screen}");
    let (shrunk, _) = type_keys(&state, zoomed, &[Key::Esc]);
    assert!(!shrunk.zoomed);
}

/// The last screen, and what was asked for, of a loop that is told something and then gets keys.
async fn looped(told: Vec<News>, keys: &[Key]) -> (String, Vec<Action>) {
    let (key, typed) = channel(16);
    let (news, heard) = channel(16);
    let (_resize, resized) = channel(1);
    for one in told {
        news.send(one).await.expect("it is heard");
    }
    for one in keys {
        key.send(*one).await.expect("it is read");
    }
    // The terminal goes away where the keys don't end the loop.
    drop(key);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("in memory");
    let mut actions = Vec::new();
    let inputs = Inputs { keys: typed, news: heard, resized };
    let state = State::new("prod", at(NOW));
    let act = |action| actions.push(action);
    let ended = run(&mut terminal, state, Palette::Monochrome, inputs, || at(NOW), act).await;
    ended.expect("it is in memory");
    (rows(terminal.backend().buffer()).join("\n"), actions)
}

#[tokio::test]
async fn the_loop_draws_news_hands_actions_on_and_ends_with_its_terminal() {
    let told = || vec![priced(NOW, 0.25)];
    let (screen, actions) = looped(told(), &[]).await;
    assert!(screen.contains(" prod  5 nodes, 40% spot  $0.2500/h"), "{screen}");
    assert_eq!(actions, []);
    // What is typed after the end is nobody's.
    let (_, actions) = looped(told(), &chars("FyqFy")).await;
    let [Action::Pause(pause)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(pause.pools, ["default", "experiments-of-the-data-team"]);
}
