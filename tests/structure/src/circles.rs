//! Modules that reach each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::Graph;

/// The circles of a graph: sets of at least two modules of which each reaches each other one.
pub fn circles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reached = graph.keys().map(|from| (from, reach(graph, from))).collect::<BTreeMap<_, _>>();
    let mut circles = Vec::new();
    for (&from, reached_from) in &reached {
        let circle = reached_from
            .iter()
            .filter(|to| reached.get(to).is_some_and(|back| back.contains(from)))
            .cloned()
            .collect::<BTreeSet<_>>();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reach(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        for to in graph.get(at).into_iter().flatten() {
            if reached.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_modules_that_reach_each_other_are_a_circle() {
        let graph = [("a", "b"), ("b", "c"), ("c", "b"), ("d", "a"), ("e", "")];
        let graph = graph.map(|(from, to)| {
            (from.to_owned(), to.split_whitespace().map(str::to_owned).collect())
        });
        assert_eq!(circles(&graph.into()), [["b", "c"].map(str::to_owned).into()]);
    }
}
