//! Which module of a crate imports which, read from the sources as text. The tests of this crate
//! hold the structure that `docs/src/design/structure.md` describes.
//!
//! It depends on nothing of the workspace and builds in a second. What it reads is approximate
//! where macros make paths, and exact where people write them.

mod circles;
mod imports;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

pub use circles::circles;
use imports::{Module, imports};

/// The top modules of a crate, each with those that it imports.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// Reads the sources of a crate below its `src`. Programs below `bin` and test modules are left
/// out.
///
/// # Errors
/// A file can't be read.
pub fn top_modules(src: &Path) -> io::Result<Graph> {
    let mut files = Vec::new();
    collect(src, &[], &mut files)?;
    let modules = files
        .iter()
        .map(|(path, text)| Module { path: path.clone(), read: imports(path, text) })
        .collect::<Vec<_>>();
    let tests = modules
        .iter()
        .flat_map(|module| module.read.test_modules.iter().cloned())
        .collect::<BTreeSet<_>>();
    let is_test = |path: &[String]| (1..=path.len()).any(|n| tests.contains(&path[..n]));
    let tops = modules
        .iter()
        .filter_map(|module| module.path.first().cloned())
        .filter(|top| !tests.contains([top.clone()].as_slice()))
        .collect::<BTreeSet<_>>();
    // What the root re-exports is imported from where it is.
    let reexported = modules
        .iter()
        .filter(|module| module.path.is_empty())
        .flat_map(|root| root.read.reexports.iter().map(|(name, top)| (name, top)))
        .filter(|(_, top)| tops.contains(*top))
        .collect::<BTreeMap<_, _>>();
    let mut graph = tops.iter().map(|top| (top.clone(), BTreeSet::new())).collect::<Graph>();
    for module in modules.iter().filter(|module| !is_test(&module.path)) {
        let Some(own) = module.path.first() else { continue };
        for imported in &module.read.imported {
            let name = reexported.get(imported).copied().unwrap_or(imported);
            if name != own && tops.contains(name) {
                graph.entry(own.clone()).or_default().insert(name.clone());
            }
        }
    }
    Ok(graph)
}

fn collect(
    folder: &Path,
    module: &[String],
    files: &mut Vec<(Vec<String>, String)>,
) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let inner = [module, std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            if !(module.is_empty() && name == "bin") {
                collect(&path, &inner, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_root = module.is_empty() && matches!(name.as_str(), "lib" | "main");
            files.push((if is_root { Vec::new() } else { inner }, std::fs::read_to_string(&path)?));
        }
    }
    Ok(())
}
