//! The top modules of a crate import each other as `docs/src/design/structure.md` lists them: from
//! rows above their own, or from the left of their own row.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tenon_structure::Modules;

/// Which section of the page lists the modules of which crate, and the crate's folder.
const LISTED: [(&str, &str, &str); 7] = [
    ("Installer", "tenon-installer-core", "installer/core"),
    ("Installer", "tenon-checks", "installer/checks"),
    ("Installer", "tenon", "installer"),
    ("Planner", "tenon-planner", "operator/planner"),
    ("Operator", "tenon-operator", "operator"),
    ("Tests", "tenon-aws-double", "tests/aws-double"),
    ("Tests", "tenon-bed", "tests/bed"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The modules of a crate, lowest first. A table of several crates begins each row with the crate's
/// name, or with an empty cell where it is that of the row above.
fn listed(page: &str, section: &str, name: &str) -> Vec<String> {
    let section = page.split(&format!("\n## {section}\n")).nth(1);
    let section = section.and_then(|rest| rest.split("\n## ").next()).expect("the section");
    let has_crates = section.lines().any(|line| line.starts_with("| crate |"));
    let mut of = String::new();
    let mut modules = Vec::new();
    for row in section.lines().filter(|line| line.starts_with('|')) {
        let cells = row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
        let cell = if has_crates { cells[1] } else { cells[0] };
        let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        if has_crates && let Some(name) = Vec::<String>::pop(&mut names(cells[0])) {
            of = name;
        }
        if !has_crates || of == name {
            modules.extend::<Vec<String>>(names(cell));
        }
    }
    modules
}

/// What is wrong with a crate's imports, given its modules in order.
fn problems(name: &str, listed: &[String], imports: &tenon_structure::Graph) -> Vec<String> {
    let places = listed.iter().enumerate().map(|(at, module)| (module.as_str(), at));
    let places = places.collect::<BTreeMap<_, _>>();
    let mut wrong = Vec::new();
    for module in listed.iter().filter(|module| !imports.contains_key(*module)) {
        wrong.push(format!("{name} has no module {module}"));
    }
    for (module, imported) in imports {
        let Some(place) = places.get(module.as_str()) else {
            wrong.push(format!("{name}: module {module} is not listed"));
            continue;
        };
        let above =
            imported.iter().filter(|it| places.get(it.as_str()).is_some_and(|at| at > place));
        for above in above {
            wrong.push(format!("{name}: {module} imports {above}, which is above it"));
        }
    }
    wrong
}

#[test]
fn top_modules_import_what_is_below_them() {
    let page = root().join("docs/src/design/structure.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let mut wrong = Vec::new();
    for (section, name, folder) in LISTED {
        let listed = listed(&page, section, name);
        assert!(listed.len() > 4, "{name}: {listed:?}");
        let modules = Modules::read(&root().join(folder).join("src")).expect("sources");
        wrong.extend(problems(name, &listed, &modules.below(&[])));
    }
    assert!(wrong.is_empty(), "docs/src/design/structure.md:\n{}", wrong.join("\n"));
}

#[test]
fn modules_that_are_missing_unlisted_or_in_the_wrong_order_are_found() {
    let page = "\n## A\n| crate | module | x |\n|---|---|---|\n| `one` | `a`, `b` | |\n| | `c` | |\n\
                | `two` | `d` | |\n## B\n| module |\n|---|\n| `e` |\n";
    assert_eq!(listed(page, "A", "one"), ["a", "b", "c"]);
    assert_eq!(listed(page, "A", "two"), ["d"]);
    assert_eq!(listed(page, "B", "three"), ["e"]);
    let graph = |arrows: &[(&str, &str)]| {
        let arrow = |(from, to): &(&str, &str)| (from.to_string(), [to.to_string()].into());
        arrows.iter().map(arrow).collect()
    };
    let listed = listed(page, "A", "one");
    let fine = graph(&[("a", "std"), ("b", "a"), ("c", "b")]);
    assert_eq!(problems("one", &listed, &fine), Vec::<String>::new());
    let wrong = problems("one", &listed, &graph(&[("a", "b"), ("b", "std"), ("z", "a")]));
    let expected = ["one has no module c", "one: a imports b, which is above it"];
    assert_eq!(wrong[..2], expected);
    assert_eq!(wrong[2..], ["one: module z is not listed"]);
}
