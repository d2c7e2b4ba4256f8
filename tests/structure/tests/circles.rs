//! The top modules of a crate import each other in one direction.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tenon_structure::{circles, top_modules};

/// Circles that are still there, by the folder of the crate. Whoever cuts one takes its modules
/// out; nobody adds to it.
const LEFT: &[(&str, &[&[&str]])] = &[
    ("operator/planner", &[&["compile", "devices", "machine_specs", "topology"]]),
    ("operator/state", &[&["catalog", "ec2"], &["change", "wire"]]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Folders of the workspace's crates, without those that have nothing but tests.
fn crates() -> Vec<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let members = manifest.lines().find(|line| line.starts_with("members")).expect("members");
    let folders = members.split('"').skip(1).step_by(2).map(str::to_owned);
    let crates =
        folders.filter(|folder| root().join(folder).join("src").is_dir()).collect::<Vec<_>>();
    assert!(crates.len() > 5, "{crates:?}");
    crates
}

#[test]
fn top_modules_form_no_circle() {
    let mut wrong = Vec::new();
    for folder in crates() {
        let graph = top_modules(&root().join(&folder).join("src")).expect("sources");
        let found = circles(&graph);
        let left = LEFT.iter().find(|(of, _)| *of == folder).map_or(&[][..], |(_, left)| left);
        let left = left
            .iter()
            .map(|circle| circle.iter().map(|&module| module.to_owned()).collect::<BTreeSet<_>>())
            .collect::<Vec<_>>();
        for circle in &found {
            if !left.iter().any(|known| circle.is_subset(known)) {
                let arrows = circle.iter().map(|from| {
                    let to = graph[from].intersection(circle).cloned().collect::<Vec<_>>();
                    format!("    {from} imports {}", to.join(", "))
                });
                let arrows = arrows.collect::<Vec<_>>().join("\n");
                wrong.push(format!(
                    "{folder}: a circle, see docs/src/design/structure.md\n{arrows}"
                ));
            }
        }
        for known in &left {
            if !found.contains(known) {
                wrong.push(format!("{folder}: this circle is smaller now, or gone; shorten the list in this test: {known:?}\n    found: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
