//! What a program consists of, as CycloneDX 1.6 has it: the crates that are compiled into it, with
//! their licenses and the checksums of Cargo.lock.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Error;

/// What `cargo metadata` says, as far as it is needed.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    repository: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// What Cargo.lock says, as far as it is needed.
#[derive(Debug, Deserialize)]
pub(crate) struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The SBOM of a package of the workspace. Crates that only build scripts and procedural macros
/// consist of are not in the program and not in here.
///
/// # Errors
/// When the workspace has no such package.
pub(crate) fn sbom(
    metadata: &Metadata,
    lock: &Lock,
    root: &str,
    created: &str,
) -> Result<Value, Error> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let checksums: BTreeMap<(&str, &str), &str> = lock
        .package
        .iter()
        .filter_map(|it| Some(((it.name.as_str(), it.version.as_str()), it.checksum.as_deref()?)))
        .collect();
    let own = metadata.packages.iter().find(|it| it.source.is_none() && it.name == root);
    let own =
        own.ok_or_else(|| Error::Unsupported(format!("the workspace has no package {root}")))?;
    let graph = graph(&metadata.resolve);
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut open = vec![own.id.as_str()];
    while let Some(id) = open.pop() {
        if reached.insert(id) {
            open.extend(graph.get(id).into_iter().flatten());
        }
    }
    let all: Vec<&Package> = reached.iter().filter_map(|id| packages.get(id).copied()).collect();
    let mut components: Vec<&Package> = all.iter().copied().filter(|it| it.id != own.id).collect();
    components.sort_by_key(|it| (it.name.as_str(), it.version.as_str()));
    let mut dependencies: Vec<(String, Vec<String>)> = all
        .iter()
        .map(|package| {
            let on = graph.get(package.id.as_str()).into_iter().flatten();
            let mut on: Vec<String> =
                on.filter_map(|id| packages.get(id).map(|it| reference(it))).collect();
            on.sort();
            (reference(package), on)
        })
        .collect();
    dependencies.sort();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "tools": { "components": [{ "type": "application", "name": "tenon-release", "version": env!("CARGO_PKG_VERSION") }] },
            "component": component(own, &checksums, "application"),
        },
        "components": components.into_iter().map(|it| component(it, &checksums, "library")).collect::<Vec<_>>(),
        "dependencies": dependencies
            .into_iter()
            .map(|(package, on)| json!({ "ref": package, "dependsOn": on }))
            .collect::<Vec<_>>(),
    }))
}

/// Which packages are compiled into which.
fn graph(resolve: &Resolve) -> BTreeMap<&str, Vec<&str>> {
    let of = |node: &'_ Node| -> Vec<usize> {
        let normal = |it: &Dependency| it.dep_kinds.iter().any(|kind| kind.kind.is_none());
        (0..node.deps.len()).filter(|at| normal(&node.deps[*at])).collect()
    };
    let nodes = resolve.nodes.iter();
    nodes
        .map(|node| {
            let on = of(node).into_iter().map(|at| node.deps[at].pkg.as_str()).collect();
            (node.id.as_str(), on)
        })
        .collect()
}

/// A package URL, by which scanners know it.
fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn component(package: &Package, checksums: &BTreeMap<(&str, &str), &str>, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": reference(package),
        "purl": reference(package),
        "name": package.name,
        "version": package.version,
    });
    if let Some(license) = &package.license {
        // Old manifests have a slash for "or".
        let expression =
            license.replace('/', " OR ").split_whitespace().collect::<Vec<_>>().join(" ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(checksum) = checksums.get(&(package.name.as_str(), package.version.as_str())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(id: &str, kinds: &[Option<&str>]) -> Value {
        let kinds: Vec<Value> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
        json!({ "pkg": id, "dep_kinds": kinds })
    }

    fn workspace() -> (Metadata, Lock) {
        let package = |id: &str, source: Option<&str>| json!({ "id": id, "name": id, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source, "repository": null });
        let registry = Some("registry");
        let metadata = json!({
            "packages": [package("own", None), package("used", registry), package("deep", registry), package("tested", registry), package("built", registry)],
            "resolve": { "nodes": [
                { "id": "own", "deps": [dependency("used", &[None]), dependency("tested", &[Some("dev")]), dependency("built", &[Some("build")])] },
                { "id": "used", "deps": [dependency("deep", &[Some("dev"), None])] },
                { "id": "deep", "deps": [] }, { "id": "tested", "deps": [] }, { "id": "built", "deps": [] },
            ] },
        });
        let lock =
            json!({ "package": [{ "name": "used", "version": "1.0.0", "checksum": "abc" }] });
        (
            serde_json::from_value(metadata).expect("valid"),
            serde_json::from_value(lock).expect("valid"),
        )
    }

    #[test]
    fn it_lists_what_is_compiled_into_the_program_and_nothing_else() {
        let (metadata, lock) = workspace();
        let sbom = sbom(&metadata, &lock, "own", "2026-01-01T00:00:00Z").expect("made");
        let names: Vec<_> =
            sbom["components"].as_array().expect("a list").iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["deep", "used"]);
        assert_eq!(sbom["metadata"]["component"]["purl"], "pkg:cargo/own@1.0.0");
        assert_eq!(sbom["components"][1]["hashes"][0]["content"], "abc");
        assert_eq!(sbom["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        let used = json!({ "ref": "pkg:cargo/used@1.0.0", "dependsOn": ["pkg:cargo/deep@1.0.0"] });
        assert!(sbom["dependencies"].as_array().expect("a list").contains(&used));
    }

    #[test]
    fn a_package_of_a_registry_has_no_sbom() {
        let (metadata, lock) = workspace();
        assert!(sbom(&metadata, &lock, "used", "").is_err());
    }
}
