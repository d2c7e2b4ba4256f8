//! What goes wrong while a release is made.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// A release can't be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory can't be read or written.
    #[error("can't {doing} {}", .path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program is not an ELF file for an architecture that images are made for.
    #[error("{} can't be put into an image: {why}", .path.display())]
    Program {
        /// The program or library.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A shared library is nowhere.
    #[error("{needed}, which {} needs, is in none of {}; --library-path adds a directory", .by.display(), .searched.join(", "))]
    Library {
        /// The library's name.
        needed: String,
        /// What needs it.
        by: PathBuf,
        /// Where it was looked for.
        searched: Vec<String>,
    },
    /// A tool that is called can't be run.
    #[error("can't run {program}")]
    Run {
        /// Name of the tool.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A tool that is called fails.
    #[error("{program} failed ({status}):\n{output}")]
    Failed {
        /// Name of the tool.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        output: String,
    },
    /// A document is not what it should be.
    #[error("{what} can't be read")]
    Document {
        /// Which document.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
    /// Something has another content than its digest says.
    #[error("{what} has the digest {found}, not {expected}")]
    Digest {
        /// What.
        what: String,
        /// The digest that it should have.
        expected: String,
        /// The digest of its content.
        found: String,
    },
    /// An image layout, a layer or a chart has what this program does not understand.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// For `map_err` of what touches a file.
    pub fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::File { doing, path, source }
    }
}

/// The contents of a file.
///
/// # Errors
/// When it can't be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(Error::file("read", path))
}

/// Writes a file, and the directory that it is in.
///
/// # Errors
/// When it can't be written.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(Error::file("make", parent))?;
    }
    std::fs::write(path, content).map_err(Error::file("write", path))
}
