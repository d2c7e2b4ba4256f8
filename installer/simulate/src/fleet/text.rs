//! A fleet for people: a table that fits the terminal, and below it what needs attention.

use super::{Fleet, FleetPool, FleetSum, Used};
use crate::advice::word;
use crate::amounts::number;
use crate::layout::Page;
use crate::words::{age, columns, counted, grouped, price, shortened, some};

/// How many reasons and nodes are listed.
const SHOWN: usize = 6;

/// How many names are given as examples.
const NAMES: usize = 3;

/// The narrowest column of names.
const LEAST: usize = 8;

impl Fleet {
    /// For people; `width` is the number of columns of their terminal, if they have one.
    pub fn text(&self, width: Option<usize>) -> String {
        let mut page = Page::new(width);
        page.copy(0, &self.table(width.unwrap_or(usize::MAX)));
        self.pending(&mut page);
        self.removals(&mut page);
        self.blocks(&mut page);
        page.text()
    }

    /// Nodes by NodePool. Without enough room, amounts become percentages, and then names are cut.
    fn table(&self, width: usize) -> String {
        let columns_of =
            |table: &str| table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let full = columns(&self.rows(true, usize::MAX), "");
        if columns_of(&full) <= width {
            return full;
        }
        let short = columns(&self.rows(false, usize::MAX), "");
        let names = self.node_pools.iter().map(|pool| pool.name.chars().count()).max();
        let room = (names.unwrap_or(0) + width).saturating_sub(columns_of(&short));
        columns(&self.rows(false, room.max(LEAST)), "")
    }

    fn rows(&self, amounts: bool, name: usize) -> Vec<Vec<String>> {
        let (cpu, memory) =
            if amounts { ("CPU REQUESTED", "MEMORY REQUESTED") } else { ("CPU", "MEMORY") };
        let header = ["NODEPOOL", "NODES", "SPOT", "PRICE/H", cpu, memory];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for pool in &self.node_pools {
            rows.push(row(
                format!("{}{}", shortened(&pool.name, name), mark(pool)),
                &pool.nodes,
                amounts,
            ));
        }
        if self.other_nodes.nodes > 0 {
            rows.push(row("(none)".to_owned(), &self.other_nodes, amounts));
        }
        if rows.len() > 2 {
            rows.push(row("total".to_owned(), &self.total, amounts));
        }
        rows
    }

    fn pending(&self, page: &mut Page) {
        if self.pending_pods.is_empty() {
            return;
        }
        let n: usize = self.pending_pods.iter().map(|it| it.count).sum();
        page.blank();
        page.say(0, &format!("{} pending:", counted_are(n, "pod")));
        for one in self.pending_pods.iter().take(SHOWN) {
            let first = one.pods.first().map(|pod| format!("{}/{}", pod.namespace, pod.name));
            let first = first.unwrap_or_default();
            let others = match one.count {
                0 | 1 => String::new(),
                n => format!(" and {} more", grouped(n - 1)),
            };
            page.say(2, &format!("{first}{others}: {}", one.reason));
        }
        let rest: usize = self.pending_pods.iter().skip(SHOWN).map(|it| it.count).sum();
        if rest > 0 {
            page.say(2, &format!("{} for other reasons", counted(rest, "pod")));
        }
        let first = self.pending_pods.iter().find(|it| !it.ok).and_then(|it| it.pods.first());
        if let Some(pod) = first {
            page.say(2, "What to do about the first one:");
            let (name, namespace) = (word(&pod.name), word(&pod.namespace));
            page.copy(6, &format!("tenon explain pod {name} --namespace={namespace}"));
        }
    }

    fn removals(&self, page: &mut Page) {
        if self.disrupting.is_empty() {
            return;
        }
        page.blank();
        page.say(0, &format!("{} being removed:", counted_are(self.disrupting.len(), "node")));
        for one in self.disrupting.iter().take(SHOWN) {
            let reason = one.reason.as_deref().unwrap_or("deleted by another program");
            let since = one.since.map(|since| format!(" for {}", age(self.now, since)));
            let since = since.unwrap_or_default();
            page.say(2, &format!("{}: {reason}, {}{since}", one.node, one.step));
        }
        let rest = self.disrupting.len().saturating_sub(SHOWN);
        if rest > 0 {
            page.say(2, &format!("and {} more", grouped(rest)));
        }
    }

    fn blocks(&self, page: &mut Page) {
        if self.blocked.is_empty() {
            return;
        }
        let n: usize = self.blocked.iter().map(|it| it.nodes.len()).sum();
        page.blank();
        page.say(0, &format!("{} kept from disruption:", counted_are(n, "node")));
        for one in self.blocked.iter().take(SHOWN) {
            let nodes = some(one.nodes.iter().cloned(), NAMES);
            page.say(2, &format!("{nodes}: {}", one.message));
        }
        let rest: usize = self.blocked.iter().skip(SHOWN).map(|it| it.nodes.len()).sum();
        if rest > 0 {
            page.say(2, &format!("{} for other reasons", counted(rest, "node")));
        }
    }
}

/// `1 node is`, `2 nodes are`
fn counted_are(n: usize, noun: &str) -> String {
    format!("{} {}", counted(n, noun), if n == 1 { "is" } else { "are" })
}

fn row(name: String, nodes: &FleetSum, amounts: bool) -> Vec<String> {
    let count = match nodes.starting {
        0 => grouped(nodes.nodes),
        starting => format!("{} ({} starting)", grouped(nodes.nodes), grouped(starting)),
    };
    let spot = match nodes.nodes {
        0 => "-".to_owned(),
        all => format!("{}%", 100 * nodes.spot / all),
    };
    let is_priced = nodes.without_price < nodes.nodes;
    let price = if is_priced { price(nodes.price_per_hour) } else { "-".to_owned() };
    let (cpu, memory) =
        (used("cpu", nodes.cpu(), amounts), used("memory", nodes.memory(), amounts));
    vec![name, count, spot, price, cpu, memory]
}

/// `38.2 of 48 (79%)`, or only `79%`
fn used(resource: &str, used: Used, amounts: bool) -> String {
    let Some(percent) = used.percent() else { return "-".to_owned() };
    if amounts {
        let of = |amount| in_tenths(&number(resource, amount));
        format!("{} of {} ({percent}%)", of(used.requested), of(used.allocatable))
    } else {
        format!("{percent}%")
    }
}

/// `3.12Gi` as `3.1Gi`: tenths are enough to compare, and the JSON is exact.
fn in_tenths(text: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let unit = text.trim_start_matches(is_number);
    let digits = text.strip_suffix(unit).unwrap_or(text);
    let Some((whole, rest)) = digits.split_once('.') else { return text.to_owned() };
    match rest.get(..1) {
        None | Some("0") => format!("{whole}{unit}"),
        Some(tenth) => format!("{whole}.{tenth}{unit}"),
    }
}

/// What launches nothing at the moment.
fn mark(pool: &FleetPool) -> &'static str {
    match (&pool.problem, pool.paused) {
        (_, true) => " (paused)",
        (Some(_), false) => " (not ready)",
        (None, false) => "",
    }
}
