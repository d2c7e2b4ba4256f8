//! What a simulation found, for people.

use std::collections::BTreeMap;

use super::amounts::amounts;
use super::outcome::{Launch, Outcome, PriceRange};
use super::parts::PodName;
use super::reasons::exclusion;
use super::words::{columns, counted, grouped, pods, price, some};

/// How many names of a list are shown.
const SHOWN: usize = 3;

impl Outcome {
    /// For people.
    pub fn text(&self) -> String {
        text(self)
    }
}

/// The report.
fn text(outcome: &Outcome) -> String {
    let sections = [
        drained(outcome),
        launches(&outcome.launches),
        placements(outcome),
        unschedulable(outcome),
        buffers(outcome),
        disruptions(outcome),
        staying(outcome),
        node_pools(outcome),
        Some(totals(outcome)),
    ];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    sections.join("\n\n")
}

fn drained(outcome: &Outcome) -> Option<String> {
    let drained = outcome.drained.as_ref()?;
    let mut lines = vec![format!(
        "Without {} ({} per hour), {} would have to move:",
        counted(drained.nodes.len(), "node"),
        price(drained.price_per_hour),
        counted(drained.pods, "pod")
    )];
    lines.push(format!("  {}", some(drained.nodes.iter().cloned(), SHOWN)));
    if !drained.lost.is_empty() {
        let n = counted(drained.lost.len(), "pod");
        let which = pods(&drained.lost, SHOWN);
        lines.push(format!("  {n} without a controller would be lost: {which}"));
    }
    let mut held: BTreeMap<&str, Vec<PodName>> = BTreeMap::new();
    for pod in &drained.held {
        let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
        held.entry(&pod.reason).or_default().push(PodName { namespace, name });
    }
    lines.extend(held.iter().map(|(reason, held)| {
        let n = counted(held.len(), "pod");
        format!("  {n} would not be evicted ({reason}): {}", pods(held, SHOWN))
    }));
    Some(lines.join("\n"))
}

fn launches(launches: &[Launch]) -> Option<String> {
    if launches.is_empty() {
        return None;
    }
    let header = ["NODEPOOL", "NODES", "PODS", "REQUESTS", "PRICE/H", "CHEAPEST TYPES"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    // Equal machines share a row: a plan for thousands of pods has few kinds of them.
    let mut groups: Vec<(&Launch, usize)> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for launch in launches {
        let key = format!(
            "{} {} {} {} {:?}",
            launch.node_pool,
            launch.pods.len(),
            launch.buffer_pods,
            amounts(&launch.requests),
            launch.instance_types.first()
        );
        let index = *known.entry(key).or_insert_with(|| {
            groups.push((launch, 0));
            groups.len() - 1
        });
        groups[index].1 += 1;
    }
    for (launch, n) in groups {
        let types = launch.instance_types.iter().map(|kind| kind.name.clone());
        rows.push(vec![
            launch.node_pool.clone(),
            grouped(n),
            match launch.buffer_pods {
                0 => grouped(launch.pods.len()),
                to_come => format!("{} + {}", grouped(launch.pods.len()), grouped(to_come)),
            },
            amounts(&launch.requests),
            price(launch.price_per_hour),
            some(types, SHOWN),
        ]);
    }
    let sum: f64 = launches.iter().map(|launch| launch.price_per_hour).sum();
    let title = format!(
        "Would launch {} for {} per hour{}:",
        counted(launches.len(), "node"),
        price(sum),
        uncertainty(launches)
    );
    Some(format!("{title}\n{}", columns(&rows, "  ")))
}

/// What launches may come to cost together, where it is not certain that they get the cheapest
/// offerings.
fn uncertainty(launches: &[Launch]) -> String {
    let sum = |of: fn(PriceRange) -> f64| -> f64 {
        let each = |launch: &Launch| launch.price_range_per_hour.map_or(launch.price_per_hour, of);
        launches.iter().map(each).sum()
    };
    let cheapest = price(sum(|range| range.cheapest));
    let expected = price(sum(|range| range.expected));
    let dearest = price(sum(|range| range.dearest));
    if expected != cheapest {
        format!(" (expected {expected}, at most {dearest})")
    } else if dearest != cheapest {
        format!(" (at most {dearest})")
    } else {
        String::new()
    }
}

fn placements(outcome: &Outcome) -> Option<String> {
    if outcome.placements.is_empty() {
        return None;
    }
    let rows: Vec<Vec<String>> = outcome
        .placements
        .iter()
        .map(|placed| {
            vec![placed.node.clone(), grouped(placed.pods.len()), pods(&placed.pods, SHOWN)]
        })
        .collect();
    Some(format!("Would use existing nodes:\n{}", columns(&rows, "  ")))
}

fn unschedulable(outcome: &Outcome) -> Option<String> {
    if outcome.unschedulable.is_empty() {
        return None;
    }
    // Pods that wait for the same reasons are told together.
    let mut groups: BTreeMap<Vec<String>, Vec<PodName>> = BTreeMap::new();
    for pod in &outcome.unschedulable {
        let reasons = pod
            .reasons
            .iter()
            .map(|why| match &why.node_pool {
                None => exclusion(&why.reason),
                Some(pool) => format!("NodePool {pool}: {}", exclusion(&why.reason)),
            })
            .collect();
        groups
            .entry(reasons)
            .or_default()
            .push(PodName { namespace: pod.namespace.clone(), name: pod.name.clone() });
    }
    let groups = groups.iter().map(|(reasons, waiting)| {
        let none = ["there is no NodePool".to_owned()];
        let reasons = if reasons.is_empty() { &none[..] } else { reasons.as_slice() };
        let reasons: Vec<String> = reasons.iter().map(|reason| format!("    {reason}")).collect();
        format!("  {}\n{}", pods(waiting, SHOWN), reasons.join("\n"))
    });
    let groups: Vec<String> = groups.collect();
    let n = outcome.unschedulable.len();
    let title = format!("{} would stay pending:", counted(n, "pod"));
    Some(format!("{title}\n{}", groups.join("\n")))
}

fn buffers(outcome: &Outcome) -> Option<String> {
    if outcome.buffers.is_empty() {
        return None;
    }
    let header = ["CAPACITYBUFFER", "PODS", "ON NODES", "ON LAUNCHES", "WITHOUT ROOM"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut why = Vec::new();
    for buffer in &outcome.buffers {
        let name = format!("{}/{}", buffer.namespace, buffer.name);
        let counts = [buffer.pods, buffer.on_nodes, buffer.on_launches, buffer.missing];
        rows.push([name.clone()].into_iter().chain(counts.map(grouped)).collect());
        why.extend(buffer.reasons.iter().map(|why| match &why.node_pool {
            None => format!("  {name}: {}", exclusion(&why.reason)),
            Some(pool) => format!("  {name}, NodePool {pool}: {}", exclusion(&why.reason)),
        }));
    }
    let mut text = format!("Would reserve room for future pods:\n{}", columns(&rows, "  "));
    for line in why {
        text.push('\n');
        text.push_str(&line);
    }
    Some(text)
}

fn disruptions(outcome: &Outcome) -> Option<String> {
    if outcome.disruptions.is_empty() {
        return None;
    }
    let header = ["REASON", "NODES", "PODS", "REPLACED BY", "SAVES/H"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for disruption in &outcome.disruptions {
        let replacements = disruption.replacements.iter().map(|launch| {
            launch.instance_types.first().map_or_else(String::new, |kind| kind.name.clone())
        });
        let replaced = some(replacements, SHOWN);
        rows.push(vec![
            format!("{:?}", disruption.reason),
            some(disruption.nodes.iter().cloned(), SHOWN),
            grouped(disruption.pods.len()),
            match disruption.terminate_first {
                Some(_) => "planned afterwards".to_owned(),
                None if replaced.is_empty() => "nothing".to_owned(),
                None => replaced,
            },
            price(disruption.savings_per_hour),
        ]);
    }
    let n: usize = outcome.disruptions.iter().map(|disruption| disruption.nodes.len()).sum();
    Some(format!("Would remove {}:\n{}", counted(n, "node"), columns(&rows, "  ")))
}

fn staying(outcome: &Outcome) -> Option<String> {
    if outcome.staying.is_empty() {
        return None;
    }
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for staying in &outcome.staying {
        by_reason.entry(&staying.message).or_default().push(&staying.node);
    }
    let rows: Vec<Vec<String>> = by_reason
        .iter()
        .map(|(reason, nodes)| {
            let names = nodes.iter().map(|&node| node.to_owned());
            vec![some(names, SHOWN), (*reason).to_owned()]
        })
        .collect();
    Some(format!(
        "Would keep {}:\n{}",
        counted(outcome.staying.len(), "node"),
        columns(&rows, "  ")
    ))
}

fn node_pools(outcome: &Outcome) -> Option<String> {
    if outcome.node_pools.is_empty() {
        return None;
    }
    let rows: Vec<Vec<String>> = outcome
        .node_pools
        .iter()
        .map(|pool| vec![pool.name.clone(), pool.reason.clone()])
        .collect();
    Some(format!("Excluded NodePools:\n{}", columns(&rows, "  ")))
}

fn totals(outcome: &Outcome) -> String {
    let totals = &outcome.totals;
    let arrow = |before: String, after: String| {
        if before == after { before } else { format!("{before} -> {after}") }
    };
    let mut rows = vec![
        vec![
            "pending pods".to_owned(),
            format!("{} of {} can be scheduled", grouped(totals.scheduled), grouped(totals.pods)),
        ],
        vec!["nodes".to_owned(), arrow(grouped(totals.nodes_before), grouped(totals.nodes_after))],
        vec![
            "price per hour".to_owned(),
            arrow(price(totals.price_per_hour_before), price(totals.price_per_hour_after)),
        ],
    ];
    if totals.nodes_without_price > 0 {
        let n = counted(totals.nodes_without_price, "node");
        rows[2][1] = format!("{} ({n} without a known price)", rows[2][1]);
    }
    if let Some(bound) = totals.lower_bound_per_hour {
        rows.push(vec![
            "lower bound".to_owned(),
            format!("{} per hour for the launches", price(bound)),
        ]);
    }
    columns(&rows, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(cheapest: f64, expected: f64, dearest: f64) -> Launch {
        Launch {
            node_pool: "default".to_owned(),
            requirements: Vec::new(),
            instance_types: Vec::new(),
            capacity_types: Vec::new(),
            requests: BTreeMap::new(),
            price_per_hour: cheapest,
            price_range_per_hour: Some(PriceRange { cheapest, expected, dearest }),
            pods: Vec::new(),
            buffer_pods: 0,
        }
    }

    #[test]
    fn only_prices_that_differ_are_told() {
        assert_eq!(uncertainty(&[launch(0.1, 0.1, 0.1), launch(0.2, 0.2, 0.2)]), "");
        assert_eq!(
            uncertainty(&[launch(0.1, 0.1, 0.1), launch(0.2, 0.2, 0.5)]),
            " (at most $0.6000)"
        );
        assert_eq!(
            uncertainty(&[launch(0.1, 0.1, 0.1), launch(0.2, 0.3, 0.5)]),
            " (expected $0.4000, at most $0.6000)"
        );
    }
}
