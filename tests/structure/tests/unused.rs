//! Nothing is kept without a use: dependencies are named by the sources of their crate, and public
//! functions by somebody who calls them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tenon_structure::{Names, names};

/// Dependencies that no source names: they are there for their features.
const FOR_FEATURES: &[(&str, &str)] = &[
    // So that the programs of the bed and the tests share compiled dependencies.
    ("tenon-bed", "aws_smithy_mocks"),
    ("tenon-bed", "either"),
    ("tenon-bed", "getrandom"),
    // kube builds only with a version of Kubernetes.
    ("tenon-release", "k8s_openapi"),
];

struct Package {
    name: String,
    folder: PathBuf,
    /// Names in code of dependencies, by whether only tests and benchmarks have them.
    dependencies: Vec<(String, bool)>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let packages = packages.map(|package| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let dependencies = dependencies.map(|dependency| {
            let name = dependency["rename"].as_str().or(dependency["name"].as_str());
            (name.unwrap_or_default().replace('-', "_"), dependency["kind"] == "dev")
        });
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        Package {
            name: text(&package["name"]),
            folder: manifest.parent().expect("a folder").to_owned(),
            dependencies: dependencies.collect(),
        }
    });
    let packages = packages.collect::<Vec<_>>();
    assert!(packages.len() > 5, "{} packages", packages.len());
    packages
}

fn read(package: &Package) -> Names {
    names(&package.folder).expect("sources")
}

#[test]
fn every_dependency_is_named_by_the_code_that_it_is_declared_for() {
    let mut wrong = Vec::new();
    let mut exceptions = FOR_FEATURES.to_vec();
    for package in packages() {
        let names = read(&package);
        // A crate of tests alone has ordinary dependencies: with dev-dependencies it would compile
        // some of them a second time.
        let has_product = package.folder.join("src").is_dir();
        for (dependency, for_tests) in &package.dependencies {
            let (product, tests) =
                (names.product.contains_key(dependency), names.tests.contains_key(dependency));
            let problem = match (*for_tests || !has_product, product, tests) {
                (false, true, _) | (true, _, true) => continue,
                (_, false, false) => "is not used",
                (false, false, true) => "is used by tests only: make it a dev-dependency",
                (true, true, false) => "is not used by tests: they see the dependency itself",
            };
            let at =
                exceptions.iter().position(|(of, name)| *of == package.name && name == dependency);
            match at {
                Some(at) => {
                    exceptions.swap_remove(at);
                }
                None => wrong.push(format!("{}: {dependency} {problem}", package.name)),
            }
        }
    }
    for (package, dependency) in exceptions {
        wrong.push(format!("{package}: {dependency} needs no exception in this test any more"));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_dependency_of_the_workspace_is_inherited() {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let section = workspace.split("\n[workspace.dependencies]\n").nth(1);
    let section = section.and_then(|rest| rest.split("\n[").next()).expect("dependencies");
    let manifests = packages()
        .iter()
        .map(|package| {
            std::fs::read_to_string(package.folder.join("Cargo.toml")).expect("a manifest")
        })
        .collect::<Vec<_>>();
    let declared = section.lines().filter_map(|line| Some(line.split_once(" = ")?.0));
    let declared = declared.collect::<Vec<_>>();
    assert!(declared.len() > 50, "{declared:?}");
    let unused = declared.into_iter().filter(|name| {
        let inherits = |line: &str| {
            line.strip_prefix(name).is_some_and(|rest| {
                rest.starts_with(".workspace") || rest.starts_with(" = { workspace")
            })
        };
        !manifests.iter().any(|manifest| manifest.lines().any(inherits))
    });
    assert_eq!(unused.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// By name alone: a function that shares its name with one that is called is not found.
#[test]
fn every_public_function_has_a_caller() {
    let read = packages()
        .iter()
        .map(|package| {
            // What the crates for tests offer is for tests.
            let is_product =
                !package.folder.starts_with(root().canonicalize().expect("the root").join("tests"));
            (package.name.clone(), is_product, read(package))
        })
        .collect::<Vec<_>>();
    let mut mentions: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (_, is_product, names) in &read {
        for (name, times) in &names.product {
            mentions.entry(name).or_default()[usize::from(!is_product)] += times;
        }
        for (name, times) in &names.tests {
            mentions.entry(name).or_default()[1] += times;
        }
    }
    let mut wrong = Vec::new();
    for (package, is_product, names) in &read {
        for function in &names.functions {
            match mentions.get(function.as_str()).copied().unwrap_or_default() {
                [0, 0] => wrong.push(format!("{package}: {function} is never called")),
                [0, _] if *is_product => wrong.push(format!(
                    "{package}: {function} is called by tests only: it belongs behind cfg(test), or into a module `testing`"
                )),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
