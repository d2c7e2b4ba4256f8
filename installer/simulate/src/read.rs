//! Files and folders of manifests, and saved snapshots.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tenon_planner::Snapshot;
use tenon_planner::snapshot::SNAPSHOT_VERSION;

use super::decode::decode;
use super::documents::{Document, Notation, cut};
use super::error::SimulateError;
use super::input::{Input, Read};
use super::problem::{Problem, TYPED};

/// What files held.
#[derive(Debug)]
pub(super) enum Files {
    /// Kubernetes objects.
    Objects {
        /// The objects.
        input: Box<Input>,
        /// How many files were read.
        files: usize,
        /// How large they were together.
        bytes: usize,
    },
    /// The planner's input, as `--save` writes it.
    Snapshot(Box<Snapshot>),
}

/// Reads files, folders (their `.yaml`, `.yml` and `.json` files) and standard input (`-`).
pub(super) fn read(paths: &[PathBuf]) -> Result<Files, SimulateError> {
    let files = list(paths)?;
    let texts = files
        .into_iter()
        .map(|file| text(&file).map(|text| (file, text)))
        .collect::<Result<Vec<_>, _>>()?;
    let documents: Vec<Document<'_>> =
        texts.iter().flat_map(|(file, text)| cut(file, text)).collect();
    if let [only] = documents.as_slice()
        && let Some(snapshot) = snapshot(only)?
    {
        return Ok(Files::Snapshot(snapshot));
    }
    let decoded: Vec<Result<Vec<Read>, Problem>> = documents.par_iter().map(decode).collect();
    let mut input = Input::default();
    let mut problems = Vec::new();
    for read in decoded {
        match read {
            Ok(read) => read.into_iter().for_each(|read| input.add(read)),
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(SimulateError::Manifests { problems });
    }
    let bytes = texts.iter().map(|(_, text)| text.len()).sum();
    Ok(Files::Objects { input: Box::new(input), files: texts.len(), bytes })
}

/// Reads a text of manifests that came in another way than as a file.
pub(super) fn manifests(text: &str) -> Result<Vec<Read>, SimulateError> {
    let documents = cut(Path::new(TYPED), text);
    let mut objects = Vec::new();
    let mut problems = Vec::new();
    for read in documents.iter().map(decode) {
        match read {
            Ok(read) => objects.extend(read),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(objects) } else { Err(SimulateError::Manifests { problems }) }
}

/// The files, those of a folder by name.
fn list(paths: &[PathBuf]) -> Result<Vec<PathBuf>, SimulateError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let failed = |source| SimulateError::Read { path: path.clone(), source };
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?.path();
            let extension = entry.extension().and_then(|extension| extension.to_str());
            if matches!(extension, Some("yaml" | "yml" | "json")) && entry.is_file() {
                inside.push(entry);
            }
        }
        if inside.is_empty() {
            let reason = "no .yaml, .yml or .json file is in this folder";
            return Err(failed(std::io::Error::new(std::io::ErrorKind::NotFound, reason)));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

fn text(file: &Path) -> Result<String, SimulateError> {
    let read = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    read.map_err(|source| SimulateError::Read { path: file.to_owned(), source })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    version: u32,
    #[expect(dead_code, reason = "only its presence counts")]
    node_pools: IgnoredAny,
}

/// A document that is a Snapshot instead of a Kubernetes object.
fn snapshot(document: &Document<'_>) -> Result<Option<Box<Snapshot>>, SimulateError> {
    if document.notation != Notation::Json {
        return Ok(None);
    }
    let Ok(probe) = serde_json::from_str::<Probe>(document.text) else { return Ok(None) };
    let wrong = |message: String| SimulateError::Manifests {
        problems: vec![Problem::of(document, message)],
    };
    if probe.version != SNAPSHOT_VERSION {
        let message = format!(
            "this snapshot has version {}; allowed: {SNAPSHOT_VERSION}, the version that this \
             program's --save writes",
            probe.version
        );
        return Err(wrong(message));
    }
    let snapshot: Snapshot = serde_json::from_str(document.text)
        .map_err(|error| wrong(format!("this snapshot can't be read: {error}")))?;
    snapshot.validate().map_err(|errors| {
        let errors: Vec<String> = errors.iter().take(3).map(ToString::to_string).collect();
        wrong(format!("this snapshot is inconsistent: {}", errors.join("; ")))
    })?;
    Ok(Some(Box::new(snapshot)))
}
