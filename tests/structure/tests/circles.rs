//! Modules with the same parent import each other in one direction.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tenon_structure::{Modules, circles};

/// Circles that are still there, by the folder of the sources and the parent of the modules; that
/// of its top modules has no name. Whoever cuts one takes its modules out; nobody adds to it.
const LEFT: &[(&str, &str, &[&str])] = &[];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Folders with modules: the sources of the workspace's crates, and the end-to-end tests.
fn sources() -> Vec<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let members = manifest.lines().find(|line| line.starts_with("members")).expect("members");
    let folders = members.split('"').skip(1).step_by(2).map(str::to_owned);
    let sources = folders.map(|folder| format!("{folder}/src"));
    let mut sources = sources.filter(|folder| root().join(folder).is_dir()).collect::<Vec<_>>();
    sources.push("tests/tests/beds".to_owned());
    assert!(sources.len() > 5, "{sources:?}");
    sources
}

#[test]
fn modules_form_no_circle() {
    let mut wrong = Vec::new();
    for folder in sources() {
        let modules = Modules::read(&root().join(&folder)).expect("sources");
        let mut left = LEFT
            .iter()
            .filter(|(of, _, _)| *of == folder)
            .map(|(_, parent, circle)| {
                (parent.to_string(), circle.iter().map(|&it| it.to_owned()).collect())
            })
            .collect::<BTreeSet<(String, BTreeSet<String>)>>();
        for parent in modules.parents() {
            let graph = modules.below(&parent);
            let parent = parent.join("::");
            for circle in circles(&graph) {
                if left.remove(&(parent.clone(), circle.clone())) {
                    continue;
                }
                let arrows = circle.iter().map(|from| {
                    let to = graph[from].intersection(&circle).cloned().collect::<Vec<_>>();
                    format!("    {from} imports {}", to.join(", "))
                });
                let arrows = arrows.collect::<Vec<_>>().join("\n");
                wrong.push(format!(
                    "{folder}: a circle of modules below `{parent}`, see \
                     docs/src/design/structure.md\n{arrows}"
                ));
            }
        }
        for (parent, circle) in left {
            wrong.push(format!(
                "{folder}: this circle below `{parent}` is smaller now, or gone; shorten the list \
                 in this test: {circle:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
