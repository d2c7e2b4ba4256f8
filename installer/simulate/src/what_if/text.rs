//! The comparison for people: figures side by side, then what is different.

use super::{Side, WhatIf};
use crate::words::{columns, counted, grouped, pods, price};

/// How many names of a list are shown.
const SHOWN: usize = 5;

impl WhatIf {
    /// The report as text. It has no longer lines than its tables need, so that it can be posted as
    /// a comment.
    pub fn text(&self) -> String {
        let sections = [Some(figures(self)), drift(self), launches(&self.after), pending(self)];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    }
}

fn figures(it: &WhatIf) -> String {
    let row =
        |name: &str, of: fn(&Side) -> String| vec![name.to_owned(), of(&it.before), of(&it.after)];
    let mut rows = vec![
        vec![String::new(), "WITHOUT".to_owned(), "WITH".to_owned()],
        row("price per hour", |side| price(side.totals.price_per_hour_after)),
        row("nodes", |side| grouped(side.totals.nodes_after)),
        row("launched", |side| grouped(side.launched)),
        row("removed", |side| grouped(side.removed)),
        row("pods left pending", |side| grouped(side.unschedulable)),
    ];
    let [before, after] = [&it.before, &it.after].map(|side| side.totals.price_per_hour_after);
    let [shown, other] = [price(after), price(before)];
    if shown != other {
        let difference = price(after - before);
        let sign = if after > before { "+" } else { "" };
        rows[1][2] = format!("{shown} ({sign}{difference})");
    }
    columns(&rows, "")
}

fn drift(it: &WhatIf) -> Option<String> {
    let lines = it.drift.iter().map(|drift| {
        format!(
            "{} of NodePool {} would drift ({})",
            counted(drift.node_claims, "NodeClaim"),
            drift.node_pool,
            drift.reason
        )
    });
    let lines = lines.collect::<Vec<_>>();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn launches(side: &Side) -> Option<String> {
    if side.launches.is_empty() {
        return None;
    }
    let header = ["NODEPOOL", "NODES", "PODS", "PRICE/H", "CHEAPEST TYPE"].map(str::to_owned);
    let rows = side.launches.iter().map(|it| {
        vec![
            it.node_pool.clone(),
            grouped(it.nodes),
            grouped(it.pods),
            price(it.price_per_hour),
            it.instance_type.clone().unwrap_or_default(),
        ]
    });
    let rows = std::iter::once(header.to_vec()).chain(rows).collect::<Vec<_>>();
    Some(format!("With the change, these would be launched:\n{}", columns(&rows, "  ")))
}

fn pending(it: &WhatIf) -> Option<String> {
    let waiting = &it.after.newly_unschedulable;
    (!waiting.is_empty()).then(|| {
        let n = counted(waiting.len(), "pod");
        format!("{n} would stay pending only with the change: {}", pods(waiting, SHOWN))
    })
}
