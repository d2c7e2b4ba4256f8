//! What the operator logs, from some moment on.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::user::LIMIT;
use crate::wait::eventually;

/// The logs of all operators of a bed, also of those that have ended.
#[derive(Clone, Debug)]
pub struct Logs {
    dir: PathBuf,
    is_operators: fn(&str) -> bool,
}

/// Where the logs ended at some moment, by file.
#[derive(Clone, Debug)]
pub struct Mark(BTreeMap<PathBuf, usize>);

impl Logs {
    /// The files in `dir` whose names `is_operators` accepts.
    pub const fn new(dir: PathBuf, is_operators: fn(&str) -> bool) -> Self {
        Self { dir, is_operators }
    }

    /// Where they end now.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn mark(&self) -> io::Result<Mark> {
        let logs = self.read()?;
        Ok(Mark(logs.into_iter().map(|(path, text)| (path, text.len())).collect()))
    }

    /// The lines since `mark` that contain all of `parts`.
    ///
    /// # Errors
    /// When the logs can't be read.
    pub fn said(&self, mark: &Mark, parts: &[&str]) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        for (path, text) in self.read()? {
            let new = text.get(mark.0.get(&path).copied().unwrap_or(0)..).unwrap_or_default();
            let fits = |line: &&str| parts.iter().all(|part| line.contains(part));
            lines.extend(new.lines().filter(fits).map(str::to_owned));
        }
        Ok(lines)
    }

    /// Waits until there is a line since `mark` with all of `parts`; answers the first.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn says(&self, mark: &Mark, parts: &[&str]) -> Result<String, Failure> {
        eventually(&format!("the operator logs {parts:?}"), LIMIT, async || {
            Ok(!self.said(mark, parts)?.is_empty())
        })
        .await?;
        let first = self.said(mark, parts)?.into_iter().next();
        first.ok_or_else(|| "the log has lost a line".into())
    }

    fn read(&self) -> io::Result<Vec<(PathBuf, String)>> {
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if (self.is_operators)(&path.file_name().unwrap_or_default().to_string_lossy()) {
                let bytes = std::fs::read(&path)?;
                logs.push((path, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        Ok(logs)
    }
}
