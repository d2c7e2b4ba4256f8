//! Which module of a crate imports which, and which names it mentions, read from the sources as
//! text. The tests of this crate hold the structure that `docs/src/design/structure.md` describes.
//!
//! It depends on nothing of the workspace and builds in a second. What it reads is approximate
//! where macros make paths, and exact where people write them.

mod circles;
mod imports;
mod names;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

pub use circles::circles;
use imports::{Module, imports};
pub use names::{Mentions, Names, names};

/// Modules with the same parent, each with those that it imports.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The modules of a crate as its sources have them, without programs below `bin` and without what
/// is compiled for tests only.
#[derive(Debug)]
pub struct Modules(Vec<Module>);

impl Modules {
    /// Reads the sources of a crate below its `src`.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn read(src: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        collect(src, &[], &mut files)?;
        files.retain(|(path, _)| path.first().is_none_or(|top| top != "bin"));
        let mut modules = files
            .iter()
            .map(|(path, text)| Module { path: path.clone(), read: imports(path, text) })
            .collect::<Vec<_>>();
        let tests = modules
            .iter()
            .flat_map(|module| module.read.test_modules.iter().cloned())
            .collect::<BTreeSet<_>>();
        modules.retain(|module| !is_below(&tests, &module.path));
        Ok(Self(modules))
    }

    /// Paths of the modules that have modules below them; that of the root is empty.
    pub fn parents(&self) -> BTreeSet<Vec<String>> {
        let below_root = self.0.iter().filter(|module| !module.path.is_empty());
        below_root.map(|module| module.path[..module.path.len() - 1].to_vec()).collect()
    }

    /// The modules directly below `parent`. What one imports from the parent counts as imported
    /// from where the parent has it; what the parent defines itself does not count.
    pub fn below(&self, parent: &[String]) -> Graph {
        let child = |path: &[String]| -> Option<String> {
            path.strip_prefix(parent).and_then(|path| path.first().cloned())
        };
        let mut graph = self
            .0
            .iter()
            .filter_map(|module| child(&module.path))
            .map(|name| (name, BTreeSet::new()))
            .collect::<Graph>();
        let used = self
            .0
            .iter()
            .filter(|module| module.path == parent)
            .flat_map(|module| &module.read.used)
            .filter_map(|(name, path)| Some((name, child(path)?)))
            .filter(|(_, from)| graph.contains_key(from))
            .collect::<BTreeMap<_, _>>();
        for module in &self.0 {
            let Some(own) = child(&module.path) else { continue };
            for imported in &module.read.imported {
                let Some(name) = child(imported) else { continue };
                let name = used.get(&name).unwrap_or(&name);
                if *name != own && graph.contains_key(name) {
                    graph.entry(own.clone()).or_default().insert(name.clone());
                }
            }
        }
        graph
    }
}

/// A module is one of these, or in one.
fn is_below(modules: &BTreeSet<Vec<String>>, path: &[String]) -> bool {
    (1..=path.len()).any(|n| modules.contains(&path[..n]))
}

/// The Rust files below a folder, each with the path of its module.
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
            collect(&path, &inner, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_root = module.is_empty() && matches!(name.as_str(), "lib" | "main");
            files.push((if is_root { Vec::new() } else { inner }, std::fs::read_to_string(&path)?));
        }
    }
    Ok(())
}
