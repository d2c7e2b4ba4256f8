//! The programs of this workspace that beds and tests run: `tenon`, `tenon-operator` and `sandbox`,
//! built from the sources as they are now.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tenon_aws_double::progress::Progress;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::environment::Environment;

/// The checkout from which this crate was built.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The programs of this workspace.
#[derive(Clone, Debug)]
pub struct TenonPrograms {
    /// The installer.
    pub tenon: PathBuf,
    /// Path of `tenon-operator`.
    pub operator: PathBuf,
    /// The sandbox, for tests of its commands.
    pub sandbox: PathBuf,
}

/// The programs are not there.
#[derive(Debug, thiserror::Error)]
pub enum TenonProgramError {
    /// Where this program itself is can't be told.
    #[error("can't find the directory of the built programs")]
    Place(#[source] io::Error),
    /// An environment variable of the bed has an invalid value.
    #[error("the environment is not valid")]
    Environment(#[source] clap::Error),
    /// Cargo can't be run.
    #[error("can't run cargo, which builds tenon and tenon-operator")]
    Cargo(#[source] io::Error),
    /// The build fails.
    #[error("`cargo build --workspace --bins` failed ({status}); its last lines:\n{output}")]
    Build {
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said.
        output: String,
    },
    /// There is no checkout to build from, and no program beside this one.
    #[error("{} is missing: run `cargo build --workspace --bins`", .path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
}

impl TenonPrograms {
    /// The programs beside this one as they are, if they have been built.
    pub fn found() -> Option<Self> {
        Self::place().filter(|it| it.tenon.is_file() && it.operator.is_file())
    }

    /// Where they are, or would be if they were built: beside this program.
    pub fn place() -> Option<Self> {
        let dir = directory().ok()?;
        Some(Self {
            tenon: dir.join("tenon"),
            operator: dir.join("tenon-operator"),
            sandbox: dir.join("sandbox"),
        })
    }

    /// The programs beside this one, after cargo has brought them up to date.
    ///
    /// # Errors
    /// When they can't be built.
    pub async fn provide(progress: &Progress) -> Result<Self, TenonProgramError> {
        let dir = directory().map_err(TenonProgramError::Place)?;
        let environment = Environment::read().map_err(TenonProgramError::Environment)?;
        if environment.build && Path::new(WORKSPACE).join("Cargo.toml").exists() {
            build(&environment, &dir, progress).await?;
        }
        let program = |name: &str| {
            let path = dir.join(name);
            if path.is_file() { Ok(path) } else { Err(TenonProgramError::Missing { path }) }
        };
        Ok(Self {
            tenon: program("tenon")?,
            operator: program("tenon-operator")?,
            sandbox: program("sandbox")?,
        })
    }
}

/// The directory of cargo's programs of this profile: this program's own, or its parent for a test
/// (`…/debug/deps/control_plane-…`).
fn directory() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let dir = own.parent().unwrap_or(&own);
    let is_deps = dir.file_name().is_some_and(|name| name == "deps");
    Ok(if is_deps { dir.parent().unwrap_or(dir) } else { dir }.to_path_buf())
}

/// Builds exactly the selection that `cargo test --workspace` has, so that both share all compiled
/// dependencies.
async fn build(
    environment: &Environment,
    dir: &Path,
    progress: &Progress,
) -> Result<(), TenonProgramError> {
    let step = progress.step("building tenon and tenon-operator");
    let profile = match dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut child = Command::new(&environment.cargo)
        .args(["build", "--workspace", "--bins", "--profile", profile])
        .current_dir(WORKSPACE)
        // The same place, also when it came from a flag or a configuration file.
        .env("CARGO_TARGET_DIR", dir.parent().unwrap_or(dir))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(TenonProgramError::Cargo)?;
    let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let mut last = Vec::new();
    while let Some(line) = lines.next_line().await.map_err(TenonProgramError::Cargo)? {
        step.update(line.trim());
        last.push(format!("  | {line}"));
        if last.len() > 40 {
            last.remove(0);
        }
    }
    let status = child.wait().await.map_err(TenonProgramError::Cargo)?;
    if !status.success() {
        return Err(TenonProgramError::Build { status, output: last.join("\n") });
    }
    step.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_finds_the_directory_of_the_programs() {
        let dir = directory().expect("this test has a path");
        assert!(!dir.ends_with("deps"));
        assert!(std::env::current_exe().expect("a path").starts_with(dir));
    }
}
