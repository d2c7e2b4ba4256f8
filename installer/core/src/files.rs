//! A file that can't be read or written.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What was tried. Whoever names a file that can't be read has called the program wrongly; a file
/// that can't be written is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOperation {
    /// To read it.
    Read,
    /// To write it.
    Write,
}

impl fmt::Display for FileOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// A file can't be read or written.
#[derive(Debug, thiserror::Error)]
#[error("can't {operation} {path}", path = path.display())]
pub struct FileError {
    /// What was tried.
    pub operation: FileOperation,
    /// The file.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

impl FileError {
    /// Of a file that is read.
    pub fn reading(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        Self::of(FileOperation::Read, path)
    }

    /// Of a file that is written.
    pub fn writing(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        Self::of(FileOperation::Write, path)
    }

    fn of(operation: FileOperation, path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self { operation, path: path.to_owned(), source }
    }
}
