//! Costs for people, and as CSV for spreadsheets.

use std::fmt::Write as _;

use super::{Committed, Cost, CostRow, Discount, Idle, MONTH, OnNodeGroups, Savings};
use crate::layout::Page;
use crate::words::{columns, counted, grouped, price, shortened};

/// How many rows a table has at most; the JSON and the CSV have all.
const ROWS: usize = 30;

/// The narrowest column of names.
const LEAST: usize = 8;

/// Less than this is not told: it is rounded to nothing.
const NOTHING: f64 = 0.000_05;

impl Cost {
    /// For people; `width` is the number of columns of their terminal, if they have one.
    pub fn text(&self, width: Option<usize>) -> String {
        let mut page = Page::new(width);
        page.say(0, &self.summary());
        page.blank();
        page.copy(0, &self.table(width.unwrap_or(usize::MAX)));
        self.rest(&mut page);
        self.facts(&mut page);
        page.text()
    }

    /// The rows as CSV, with a header. Names have neither commas nor quotes: the API server allows
    /// none in names and label values.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "name,nodes,pods,requested_per_hour,idle_per_hour,price_per_hour,price_per_month\n",
        );
        for row in &self.rows {
            let CostRow { name, nodes, pods, .. } = row;
            let _ = writeln!(
                text,
                "{name},{nodes},{pods},{:.6},{:.6},{:.6},{:.2}",
                row.requested_per_hour, row.idle_per_hour, row.price_per_hour, row.price_per_month
            );
        }
        text
    }

    fn summary(&self) -> String {
        let CostRow { nodes, price_per_hour, requested_per_hour, .. } = self.total;
        let priced = nodes - self.without_price;
        let mut text = match (nodes, priced) {
            (0, _) => return "There are no nodes.".to_owned(),
            (_, 0) => "The price of no node is known.".to_owned(),
            (1, _) => format!("1 node costs {}", per(price_per_hour)),
            _ => format!("{} cost {}", counted(priced, "node"), per(price_per_hour)),
        };
        if priced > 0 {
            let used = percent(requested_per_hour, price_per_hour);
            let idle = 100 - used;
            let _ = write!(text, "; pods request {used}% of that, {idle}% is idle.");
        }
        if priced > 0 && self.without_price > 0 {
            let of = counted(self.without_price, "node");
            let _ = write!(text, " The price of {of} is not known.");
        }
        text
    }

    /// Rows under a header. Without enough room the shares go, and then names are cut.
    fn table(&self, width: usize) -> String {
        let widest = |table: &str| table.lines().map(|line| line.chars().count()).max();
        let full = columns(&self.table_rows(true, usize::MAX), "");
        if widest(&full).unwrap_or(0) <= width {
            return full;
        }
        let short = columns(&self.table_rows(false, usize::MAX), "");
        let names = self.shown().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let room = (names + width).saturating_sub(widest(&short).unwrap_or(0));
        columns(&self.table_rows(false, room.max(LEAST)), "")
    }

    fn shown(&self) -> impl Iterator<Item = &CostRow> {
        self.rows.iter().take(ROWS)
    }

    fn table_rows(&self, shares: bool, name: usize) -> Vec<Vec<String>> {
        let heading = match self.by.strip_prefix("label=") {
            Some(key) => key.to_owned(),
            None => self.by.replace('-', " ").to_uppercase(),
        };
        let row = |first: String, row: &CostRow| {
            let mut cells = vec![first, grouped(row.nodes), grouped(row.pods)];
            if shares {
                cells.extend([price(row.requested_per_hour), price(row.idle_per_hour)]);
            }
            cells.extend([price(row.price_per_hour), whole(row.price_per_month)]);
            cells
        };
        let mut header = vec![shortened(&heading, name), "NODES".to_owned(), "PODS".to_owned()];
        if shares {
            header.extend(["REQUESTED/H".to_owned(), "IDLE/H".to_owned()]);
        }
        header.extend(["PRICE/H".to_owned(), "PRICE/MONTH".to_owned()]);
        let mut rows = vec![header];
        rows.extend(self.shown().map(|it| row(shortened(&it.name, name), it)));
        if self.rows.len() > 1 {
            rows.push(row("total".to_owned(), &self.total));
        }
        rows
    }

    /// What the table leaves out.
    fn rest(&self, page: &mut Page) {
        let rest = self.rows.len().saturating_sub(ROWS);
        if rest > 0 {
            let sum: f64 = self.rows.iter().skip(ROWS).map(|row| row.price_per_hour).sum();
            let text = format!("{} cheaper ones together cost {}.", grouped(rest), per(sum));
            page.say(0, &text);
        }
    }

    fn facts(&self, page: &mut Page) {
        let idle: Vec<&Idle> =
            self.idle.iter().filter(|idle| idle.idle_per_hour >= NOTHING).collect();
        if !idle.is_empty() {
            page.blank();
            page.say(0, "Idle capacity, by what keeps its nodes:");
            for Idle { reason, nodes, idle_per_hour } in idle {
                let nodes = counted(*nodes, "node");
                page.say(2, &format!("{} on {nodes}: {reason}", per_hour(*idle_per_hour)));
            }
        }
        let mut facts = Vec::new();
        if self.daemon_sets_per_hour >= NOTHING {
            let share = percent(self.daemon_sets_per_hour, self.total.price_per_hour);
            let paid = per(self.daemon_sets_per_hour);
            facts.push(format!("DaemonSets request {paid}, {share}% of the total."));
        }
        facts.extend(self.spot.as_ref().and_then(discount));
        facts.extend(self.committed.as_ref().map(committed));
        facts.extend(self.savings.as_ref().map(saved));
        facts.extend(self.node_groups.as_ref().and_then(on_node_groups));
        if !facts.is_empty() {
            page.blank();
            for fact in &facts {
                page.say(0, fact);
            }
        }
    }
}

/// None where spot instances are priced as on-demand ones, for want of prices.
fn discount(spot: &Discount) -> Option<String> {
    let Discount { nodes, price_per_hour, on_demand_per_hour } = *spot;
    let less = on_demand_per_hour - price_per_hour;
    (less >= NOTHING).then(|| {
        let verb = if nodes == 1 { "costs" } else { "cost" };
        format!(
            "{} {verb} {} instead of {} on demand: {}% less.",
            counted(nodes, "spot node"),
            per_hour(price_per_hour),
            per_hour(on_demand_per_hour),
            percent(less, on_demand_per_hour)
        )
    })
}

/// What was bought in advance, and how much of it is of use.
fn committed(committed: &Committed) -> String {
    let Committed { nodes, committed_per_hour, used_per_hour, on_demand_per_hour, .. } = *committed;
    if committed.commitments.is_empty() {
        return "No Savings Plan and no reserved instance for EC2 is active.".to_owned();
    }
    let bought = format!("Savings Plans and reserved instances cost {}", per(committed_per_hour));
    if nodes == 0 {
        return format!("{bought} and cover no node of this cluster.");
    }
    let unused = committed_per_hour - used_per_hour;
    let rest = if unused >= NOTHING {
        format!(" This cluster does not use {} of them.", per_hour(unused))
    } else {
        String::new()
    };
    format!(
        "{bought}. They cover {}% of the price of on-demand nodes: {} instead of {}, {}% \
         less.{rest}",
        percent(on_demand_per_hour, committed.eligible_per_hour),
        per_hour(used_per_hour),
        per_hour(on_demand_per_hour),
        percent(on_demand_per_hour - used_per_hour, on_demand_per_hour)
    )
}

/// None where no NodePool has nodes.
fn on_node_groups(on: &OnNodeGroups) -> Option<String> {
    let OnNodeGroups { groups, nodes, price_per_hour, current_nodes, .. } = on;
    let current = on.current_price_per_hour;
    if *current_nodes == 0 || current <= 0.0 {
        return None;
    }
    let more = percent(price_per_hour - current, current);
    let compared = match more {
        0 => "as much as now".to_owned(),
        1.. => format!("{more}% more than now"),
        _ => format!("{}% less than now", -more),
    };
    let whole = if groups.len() == 1 { "A node group" } else { "Node groups" };
    let rest = match on.pods_without_place {
        0 => String::new(),
        n => format!(" {} would have no place there.", counted(n, "pod")),
    };
    Some(format!(
        "{whole} of {} would hold the pods of NodePools on {} instead of {}, for {}: \
         {compared}.{rest}",
        groups.join(" and "),
        counted(*nodes, "node"),
        current_nodes,
        per(*price_per_hour),
    ))
}

fn saved(savings: &Savings) -> String {
    let Savings { since, is_incomplete, commands, nodes, pods, saved_per_hour, .. } = savings;
    let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
    if *commands == 0 {
        return format!("Consolidation removed no nodes{since}.");
    }
    let at_least = if *is_incomplete { "at least " } else { "" };
    format!(
        "Consolidation saved {at_least}{}{since}: it removed {} and moved {}.",
        per(*saved_per_hour),
        counted(*nodes, "node"),
        counted(*pods, "pod")
    )
}

/// `$1.9200 per hour ($1,402 per month)`
fn per(usd: f64) -> String {
    format!("{} ({} per month)", per_hour(usd), whole(usd * MONTH))
}

fn per_hour(usd: f64) -> String {
    format!("{} per hour", price(usd))
}

/// `$1,402`
fn whole(usd: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a price per month, whose sign is told apart"
    )]
    let dollars = usd.abs().round() as usize;
    let sign = if usd < 0.0 && dollars > 0 { "-" } else { "" };
    format!("{sign}${}", grouped(dollars))
}

/// In whole percent; 0 of nothing.
#[expect(clippy::cast_possible_truncation, reason = "a share is between 0 and 100")]
fn percent(part: f64, all: f64) -> i64 {
    if all > 0.0 { (100.0 * part / all).round() as i64 } else { 0 }
}
