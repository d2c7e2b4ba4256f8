//! The table of behaviours names tests that exist.

use std::collections::BTreeSet;
use std::path::Path;

const TABLE: &str = include_str!("../../../../../docs/src/design/behaviours.md");

/// Numbers and last columns of the table's lines.
fn lines() -> Vec<(&'static str, &'static str)> {
    let specs = TABLE.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        let (_, tests) = rest.trim_end_matches(" |").rsplit_once(" | ")?;
        (number != "No.").then_some((number, tests))
    });
    specs.collect()
}

/// What stands behind `fn` in a folder's sources.
#[expect(clippy::disallowed_methods, reason = "tests of other crates can't be included")]
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in folder.read_dir().expect("a folder of the workspace").flatten() {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_vector_and_behaviour_has_its_line() {
    let numbers: Vec<&str> = lines().into_iter().map(|(number, _)| number).collect();
    let expected = (1..=14).map(|n| format!("A.{n}")).chain((1..=55).map(|n| n.to_string()));
    assert_eq!(numbers, expected.collect::<Vec<_>>());
}

#[test]
fn every_test_that_the_table_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut known = BTreeSet::new();
    for folder in ["crds/src", "operator", "tests/tests"] {
        functions(&root.join(folder), &mut known);
    }
    for (number, tests) in lines() {
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert_eq!(named.is_empty(), tests.starts_with("not built: "), "line {number}");
        for name in named {
            assert!(known.contains(name), "line {number} names `{name}`, which does not exist");
        }
    }
}
