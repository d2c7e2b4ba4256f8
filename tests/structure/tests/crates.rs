//! Crates import each other as `docs/src/design/structure.md` says, and nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// How the page calls everything that reaches AWS.
const AWS_SDK: &str = "AWS SDK";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page's table of crates: what each may import. Rows that are to do may be there or not.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let page =
        std::fs::read_to_string(root().join("docs/src/design/structure.md")).expect("the page");
    let table = page.split("\n## Crates\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = table.expect("a section Crates").lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let name = cells.next()?.split('`').nth(1)?.to_owned();
        let imports = cells.nth(1)?.split("; later").next()?;
        let imports = imports.split(',').map(str::trim).filter(|import| *import != "–");
        Some((name, imports.map(str::to_owned).collect()))
    };
    rows.map(|line| row(line).expect("a row of three cells")).collect()
}

/// What each crate of the workspace depends on, without what only its tests need.
fn found() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let imports = |package: &Value| {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let dependencies = dependencies.filter(|dependency| dependency["kind"].is_null());
        dependencies
            .filter_map(|dependency| {
                let name = text(&dependency["name"]);
                if dependency["path"].is_string() {
                    return Some(name.strip_prefix("tenon-").unwrap_or(&name).to_owned());
                }
                name.starts_with("aws-sdk-").then(|| AWS_SDK.to_owned())
            })
            .collect()
    };
    packages.iter().map(|package| (text(&package["name"]), imports(package))).collect()
}

#[test]
fn crates_import_what_the_page_says_and_nothing_more() {
    let (allowed, found) = (allowed(), found());
    assert!(found.len() > 5, "{found:?}");
    let mut wrong = Vec::new();
    for (name, imports) in &found {
        match allowed.get(name) {
            None => wrong.push(format!("{name} has no row")),
            Some(allowed) => {
                let more = imports.difference(allowed).collect::<Vec<_>>();
                if !more.is_empty() {
                    wrong.push(format!("{name} imports {more:?}"));
                }
                let less = allowed.difference(imports).collect::<Vec<_>>();
                if !less.is_empty() {
                    wrong.push(format!("{name} does not import {less:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "docs/src/design/structure.md, Crates: {}", wrong.join("\n"));
}
