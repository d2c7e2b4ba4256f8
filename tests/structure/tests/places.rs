//! The files that `CONTRIBUTING.md` names as the place of a change exist.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The paths in the table of the section, each with its row's first cell.
fn places(page: &str) -> Vec<(String, String)> {
    let section = page.split("\n## Where to change what\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let places = rows.flat_map(|row| {
        let change = row.trim_start_matches("| ").split(" | ").next().unwrap_or_default();
        let spans = row.split('`').skip(1).step_by(2).filter(|span| span.contains('/'));
        spans.map(|span| (change.to_owned(), span.to_owned()))
    });
    places.collect()
}

#[test]
fn every_place_of_a_change_exists() {
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("the page");
    let places = places(&page);
    assert!(places.len() > 40, "only {} places were found", places.len());
    let missing = places.iter().filter(|(_, path)| !root().join(path).exists());
    let missing = missing.map(|(change, path)| format!("to add {change}: {path}"));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn places_are_the_paths_of_the_table() {
    let page = "\n## Where to change what\n| To add | Change |\n|---|---|\n\
                | a `b` | `c/d.rs`, `E` | `f/` |\n## G\n| h | `i/j` |\n";
    let expected = [("a `b`", "c/d.rs"), ("a `b`", "f/")];
    assert_eq!(places(page), expected.map(|(change, path)| (change.to_owned(), path.to_owned())));
}
