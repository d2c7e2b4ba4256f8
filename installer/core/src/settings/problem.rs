//! One thing that is wrong with the settings: where, and what is allowed there.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::document::Document;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// `None` for problems of flags and of settings as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The path of the field, such as `cluster.name`, or the flag.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl Problem {
    /// In a file.
    pub fn in_file(file: &Path, line: Option<u64>, path: &str, message: String) -> Self {
        Self { file: Some(file.to_owned()), line, path: path.to_owned(), message }
    }

    /// On the command line.
    pub fn of_flag(flag: &str, message: String) -> Self {
        Self { file: None, line: None, path: flag.to_owned(), message }
    }

    /// Of a setting: with its line if its value is that of the settings file, and not of a flag
    /// over it.
    pub(super) fn of_setting(
        (file, document): (Option<&Path>, Option<&Document>),
        path: &str,
        value: &str,
        message: String,
    ) -> Self {
        let line = document.and_then(|document| document.line_of_value(path, value));
        match (file, line) {
            (Some(file), Some(line)) => Self::in_file(file, Some(line), path, message),
            _ => Self::of_value(path, message),
        }
    }

    /// Of a value, wherever it came from.
    pub fn of_value(path: &str, message: String) -> Self {
        Self::of_flag(path, message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}
