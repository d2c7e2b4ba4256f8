//! The lines of the panes.

use tenon_installer_core::words::{count, some};
use tenon_simulate::{Disrupting, FleetNode, FleetPool, FleetSum, Pending, Used};
use tenon_state::decision::{Action, Decision, Kind, State as Result};

use super::super::item::{Item, named, pod_name};
use super::super::pane::Pane;
use super::super::state::State;
use super::super::text::{age, bar, clean, cut, cut_middle, grouped, left, money, right};
use super::super::view::View;
use super::{Ink, Parts};
use crate::ledger::words;

/// Columns before the text of a line: what points to the selected one, its mark, a space.
const START: usize = 3;

/// Names of nodes that are kept for one reason.
const NAMED: usize = 2;

/// An item on the screen.
pub(super) struct Shown {
    /// What there is to note about it.
    pub(super) mark: (Ink, char),
    /// Its line.
    pub(super) first: Parts,
    /// Where two lines are shown of it, the second.
    pub(super) second: Parts,
}

/// The columns of tables, for a terminal of some width.
pub(super) struct Columns {
    width: usize,
    size: Size,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Size {
    Narrow,
    Medium,
    Wide,
}

impl Columns {
    pub(super) fn new(width: usize) -> Self {
        let size = match width {
            0..72 => Size::Narrow,
            72..108 => Size::Medium,
            _ => Size::Wide,
        };
        Self { width, size }
    }

    /// Columns of a bar.
    fn bar(&self) -> usize {
        match self.size {
            Size::Narrow => 4,
            Size::Medium => 6,
            Size::Wide => 12,
        }
    }

    /// Titles and widths of the columns behind the name, each with the space before it.
    fn of(&self, pane: Pane) -> Vec<(&'static str, usize)> {
        // A space, the bar, and up to ` 100%`.
        let used = 1 + self.bar() + 5;
        let ends = [("PRICE/H", 11), ("CPU", used), ("MEMORY", used)];
        let begins: &[_] = match (pane, self.size) {
            (Pane::Pools, _) => &[("NODES", 7), ("SPOT", 6)],
            (Pane::Nodes, Size::Narrow) => &[],
            (Pane::Nodes, Size::Medium) => &[("TYPE", 13), ("CAPACITY", 10)],
            (Pane::Nodes, Size::Wide) => {
                &[("TYPE", 14), ("ZONE", 15), ("CAPACITY", 10), ("PODS", 5), ("AGE", 5)]
            }
            _ => return Vec::new(),
        };
        begins.iter().copied().chain(ends).collect()
    }

    pub(super) fn titles(&self, pane: Pane) -> String {
        let titles = self.of(pane).into_iter().map(|(title, width)| match title {
            "TYPE" | "ZONE" | "CAPACITY" | "CPU" | "MEMORY" => {
                format!(" {}", left(title, width - 1))
            }
            _ => right(title, width),
        });
        titles.collect()
    }

    /// A name, and cells behind it in the order of the columns.
    fn row(&self, pane: Pane, name: &str, cells: Vec<(Ink, String)>) -> Parts {
        let columns = self.of(pane);
        let taken: usize = columns.iter().map(|(_, width)| width).sum();
        let room = self.width.saturating_sub(taken + START);
        let name = match pane {
            Pane::Nodes => cut_middle(name, room),
            _ => cut(name, room),
        };
        let mut parts = vec![(Ink::Plain, left(&name, room))];
        for ((title, width), (ink, text)) in columns.into_iter().zip(cells) {
            let text = match title {
                "TYPE" | "ZONE" | "CAPACITY" => format!(" {}", left(&text, width - 1)),
                _ => right(&text, width),
            };
            parts.push((ink, text));
        }
        parts
    }

    /// A text over the whole width.
    fn text(&self, ink: Ink, text: &str) -> Parts {
        vec![(ink, cut(&clean(text), self.width.saturating_sub(START)))]
    }

    fn used(&self, used: Used) -> (Ink, String) {
        let Some(percent) = used.percent() else { return (Ink::Dim, "-".to_owned()) };
        let ink = match percent {
            70.. => Ink::Good,
            40..70 => Ink::Plain,
            _ => Ink::Note,
        };
        // Four digits are enough for pods that request more than there is.
        let percent = percent.min(9999);
        (ink, format!("{}{:>5}", bar(percent, self.bar()), format!("{percent}%")))
    }
}

/// What a pane is called, and how many of its items are visible.
pub(super) fn title(
    pane: Pane,
    number: &str,
    items: &[Item<'_>],
    state: &State,
    view: &View,
) -> String {
    match pane {
        Pane::Pools if number.contains('-') => format!("NODEPOOLS {number}"),
        Pane::Pools => {
            // Sums are no NodePools.
            let all = state.fleet.as_ref().map_or(0, |fleet| fleet.node_pools.len());
            match items.iter().filter(|item| matches!(item, Item::Pool(_))).count() {
                n if n < all => format!("NODEPOOLS {} of {}", grouped(n), grouped(all)),
                n => format!("NODEPOOLS {}", grouped(n)),
            }
        }
        Pane::Nodes => match view.sort.word() {
            None => format!("NODES {number}"),
            Some(word) => format!("NODES by {word} {number}"),
        },
        Pane::Pending => {
            let pods: usize = state
                .fleet
                .iter()
                .flat_map(|fleet| &fleet.pending_pods)
                .map(|pending| pending.count)
                .sum();
            match pods {
                0 => "PENDING PODS 0".to_owned(),
                pods => format!("PENDING PODS {}, by reason: {number}", grouped(pods)),
            }
        }
        Pane::Disruptions => format!("DISRUPTIONS {number}"),
        Pane::Decisions => {
            let log = &state.log;
            let leads = match (log.leading(), log.since) {
                ("", _) => String::new(),
                (pod, None) => format!("  {} leads", clean(pod)),
                (pod, Some(since)) => {
                    format!("  {} leads since {}", clean(pod), words::clock(since))
                }
            };
            let broken = if log.problem.is_some() && !log.decisions.is_empty() {
                "  ! not up to date"
            } else {
                ""
            };
            format!("DECISIONS {number}{broken}{leads}")
        }
    }
}

/// What stands instead of decisions.
pub(super) fn no_decisions(state: &State) -> Parts {
    match &state.log.problem {
        Some(why) => vec![(Ink::Note, format!(" ! no decisions: {}", clean(why)))],
        None if state.log.leader.is_empty() => {
            vec![(Ink::Dim, "   asking the operator…".to_owned())]
        }
        None => Vec::new(),
    }
}

pub(super) fn shown(item: &Item<'_>, columns: &Columns, (state, view): (&State, &View)) -> Shown {
    let one = |mark, first| Shown { mark, first, second: Vec::new() };
    match item {
        Item::Pool(pool) => one(pool_mark(pool), pool_row(pool, columns)),
        Item::Others(sum) => one((Ink::Plain, ' '), sum_row("(none)", sum, columns)),
        Item::Total(sum) => one((Ink::Plain, ' '), sum_row("total", sum, columns)),
        Item::Node(node) => one(node_mark(node, state), node_row(node, columns, state)),
        Item::Pending(pending) => {
            let (ink, mark) = if pending.ok { (Ink::Good, '+') } else { (Ink::Bad, '!') };
            one((ink, mark), columns.text(Ink::Plain, &pods(pending, &view.filter)))
        }
        Item::Removal(removal) => {
            one((Ink::Note, '-'), columns.text(Ink::Plain, &removed(removal, state)))
        }
        Item::Interruption(decision) => {
            let text = format!("{} {}", words::clock(decision.time), words::what(decision));
            one((Ink::Bad, '!'), columns.text(Ink::Plain, &text))
        }
        Item::Kept(kept) => {
            let text = format!("{}: {}", some(&kept.nodes, NAMED), kept.message);
            one((Ink::Dim, '='), columns.text(Ink::Plain, &text))
        }
        Item::Decision(decision) => decided(decision, columns),
    }
}

fn pool_mark(pool: &FleetPool) -> (Ink, char) {
    match (&pool.problem, pool.paused) {
        (_, true) => (Ink::Note, '='),
        (Some(_), false) => (Ink::Bad, '!'),
        (None, false) => (Ink::Plain, ' '),
    }
}

fn pool_row(pool: &FleetPool, columns: &Columns) -> Parts {
    let name = clean(&pool.name);
    let name = match (&pool.problem, pool.paused) {
        (_, true) => format!("{name} (paused)"),
        (Some(problem), false) => format!("{name} ({})", clean(problem)),
        (None, false) if pool.nodes.starting > 0 => {
            format!("{name} ({} starting)", grouped(pool.nodes.starting))
        }
        (None, false) => name,
    };
    sum_row(&name, &pool.nodes, columns)
}

fn sum_row(name: &str, sum: &FleetSum, columns: &Columns) -> Parts {
    let spot = (100 * sum.spot).checked_div(sum.nodes);
    let spot = spot.map_or_else(|| "-".to_owned(), |share| format!("{share}%"));
    let is_priced = sum.without_price < sum.nodes;
    let price = if is_priced { money(sum.price_per_hour) } else { "-".to_owned() };
    let cells = vec![
        (Ink::Plain, grouped(sum.nodes)),
        (Ink::Plain, spot),
        (Ink::Plain, price),
        columns.used(sum.cpu()),
        columns.used(sum.memory()),
    ];
    columns.row(Pane::Pools, name, cells)
}

fn node_mark(node: &FleetNode, state: &State) -> (Ink, char) {
    let fleet = state.fleet.as_ref();
    let is_removed = fleet.is_some_and(|it| it.disrupting.iter().any(|it| it.node == node.key));
    let is_kept =
        || fleet.is_some_and(|it| it.blocked.iter().any(|it| it.nodes.contains(&node.key)));
    if is_removed {
        (Ink::Note, '-')
    } else if !node.is_initialized {
        (Ink::Good, '+')
    } else if !node.is_ready {
        (Ink::Bad, '!')
    } else if is_kept() {
        (Ink::Dim, '=')
    } else {
        (Ink::Plain, ' ')
    }
}

fn node_row(node: &FleetNode, columns: &Columns, state: &State) -> Parts {
    let label = |label: &Option<String>| {
        (Ink::Plain, label.as_ref().map_or_else(|| "-".to_owned(), |label| clean(label)))
    };
    let price = node.price.map_or_else(|| "-".to_owned(), money);
    let ends = [(Ink::Plain, price), columns.used(node.cpu), columns.used(node.memory)].into_iter();
    let begins = match columns.size {
        Size::Narrow => Vec::new(),
        Size::Medium => vec![label(&node.instance_type), label(&node.capacity_type)],
        Size::Wide => vec![
            label(&node.instance_type),
            label(&node.zone),
            label(&node.capacity_type),
            (Ink::Plain, grouped(node.pods)),
            (Ink::Plain, age(state.now, node.created_at)),
        ],
    };
    columns.row(Pane::Nodes, &clean(&node.key), begins.into_iter().chain(ends).collect())
}

fn pods(pending: &Pending, filter: &str) -> String {
    let first = named(pending, filter).map(pod_name).unwrap_or_default();
    let others = match pending.count {
        0 | 1 => String::new(),
        n => format!(" and {} more", grouped(n - 1)),
    };
    format!("{first}{others}: {}", pending.reason)
}

fn removed(removal: &Disrupting, state: &State) -> String {
    let reason = removal.reason.as_deref().unwrap_or("deleted by another program");
    let since = removal.since.map(|since| format!(" for {}", age(state.now, since)));
    format!("{}: {reason}, {}{}", removal.node, removal.step, since.unwrap_or_default())
}

fn decided(decision: &Decision, columns: &Columns) -> Shown {
    let mark = match (decision.kind, decision.action, decision.result.state) {
        (_, _, Result::Failed) | (Kind::Interruption, ..) => (Ink::Bad, '!'),
        (_, Action::Launch, _) => (Ink::Good, '+'),
        (_, Action::Stay, _) => (Ink::Dim, '='),
        _ => (Ink::Note, '-'),
    };
    let what = format!(
        "{}  {}{}",
        words::clock(decision.time),
        words::what(decision),
        words::money(decision.price)
    );
    let times = match usize::try_from(decision.count).unwrap_or(usize::MAX) {
        0 | 1 => String::new(),
        n => format!(", seen {}", count(n, "time")),
    };
    let result = match decision.result.state {
        Result::Refused => String::new(),
        _ => format!("; {}", words::result(decision).1),
    };
    let why = if decision.reason.is_empty() { "no reason" } else { &decision.reason };
    // Below what is decided.
    let indent = " ".repeat(START + 11);
    let second = format!("{indent}{}{times}{result}", clean(why));
    Shown {
        mark,
        first: columns.text(Ink::Plain, &what),
        second: vec![(Ink::Dim, cut(&second, columns.width))],
    }
}
