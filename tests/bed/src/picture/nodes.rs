//! How the pods of the demo became nodes: its pending pods, and the nodes at the end of each
//! chapter, with a square for each pod.

use std::fmt::Write;

use super::svg::{escaped, picture};
use super::{Node, Recorded};
use crate::words::count;

const WIDTH: usize = 190;
const GAP: usize = 34;
const MARGIN: usize = 20;
const TOP: usize = 62;
const POD: usize = 14;
const PODS_PER_ROW: usize = 9;

pub(super) fn draw(recorded: &Recorded) -> String {
    let chapters =
        recorded.chapters.iter().map(|chapter| (chapter.title.as_str(), chapter.nodes()));
    let chapters = chapters.filter(|(_, nodes)| !nodes.is_empty()).collect::<Vec<_>>();
    let pending = chapters.first().map_or(0, |(_, nodes)| pods(nodes));
    let mut body = String::new();
    let mut bottom = box_of(&mut body, 0, TOP, "pending", &["pending pods"], pending);
    heading(&mut body, 0, "Pods", &format!("{pending} are unschedulable"));
    for (index, (title, nodes)) in chapters.iter().enumerate() {
        let column = index + 1;
        let x = MARGIN + column * (WIDTH + GAP);
        let _ = writeln!(
            body,
            "<path class=\"arrow\" d=\"M{} {y} h{} m-6 -5 l6 5 l-6 5\"/>",
            x - GAP + 6,
            GAP - 12,
            y = TOP + 30
        );
        let (n, all) = (nodes.len(), pods(nodes));
        let held = format!("{}, {}", count(n, "node"), count(all, "pod"));
        heading(&mut body, column, title, &held);
        let mut y = TOP;
        for node in nodes {
            let class = if node.capacity_type == "spot" { "spot" } else { "on-demand" };
            let texts = [node.instance_type, &format!("{} {}", node.capacity_type, node.zone)];
            y = box_of(&mut body, column, y, class, &texts, node.pods) + 10;
        }
        bottom = bottom.max(y);
    }
    let columns = chapters.len() + 1;
    let width = 2 * MARGIN + columns * WIDTH + (columns - 1) * GAP;
    picture(width, bottom + MARGIN, "How the pods of the demo become nodes", &body)
}

fn pods(nodes: &[Node<'_>]) -> usize {
    nodes.iter().map(|node| node.pods).sum()
}

fn heading(body: &mut String, column: usize, title: &str, below: &str) {
    let x = MARGIN + column * (WIDTH + GAP);
    let _ = writeln!(body, "<text class=\"bold\" x=\"{x}\" y=\"32\">{}</text>", escaped(title));
    let _ = writeln!(body, "<text class=\"small\" x=\"{x}\" y=\"50\">{}</text>", escaped(below));
}

/// A box with lines of text and pods; returns where it ends.
fn box_of(
    body: &mut String,
    column: usize,
    y: usize,
    class: &str,
    texts: &[&str],
    n_pods: usize,
) -> usize {
    let x = MARGIN + column * (WIDTH + GAP);
    let rows = n_pods.div_ceil(PODS_PER_ROW);
    let height = 10 + texts.len() * 18 + rows * (POD + 5) + 6;
    let _ = writeln!(
        body,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>"
    );
    for (index, text) in texts.iter().enumerate() {
        let class = if index == 0 { "bold" } else { "small" };
        let y = y + 20 + index * 18;
        let x = x + 10;
        let _ =
            writeln!(body, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(text));
    }
    for pod in 0..n_pods {
        let (row, place) = (pod / PODS_PER_ROW, pod % PODS_PER_ROW);
        let (x, y) = (x + 10 + place * (POD + 5), y + 12 + texts.len() * 18 + row * (POD + 5));
        let _ = writeln!(
            body,
            "<rect class=\"pod\" x=\"{x}\" y=\"{y}\" width=\"{POD}\" height=\"{POD}\" rx=\"3\"/>"
        );
    }
    y + height
}
