//! moto, the Python half of the AWS double: installed once into the cache from pinned, hashed
//! requirements, and started on loopback for each bed.
//!
//! It holds what it models well (IAM, STS, SQS, EventBridge, VPC, subnets, security groups);
//! the gateway stands before it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::cache::{self, CacheError, Lock};
use crate::environment::Environment;
use crate::process::{Process, ProcessError, ProcessSpec, tail};
use crate::progress::Progress;

/// The version of moto that `moto/requirements.txt` pins; facts that are cached from it carry
/// it in their names.
pub const VERSION: &str = "5.2.5";

const REQUIREMENTS: &str = include_str!("../moto/requirements.txt");

/// moto can't be installed or started.
#[derive(Debug, thiserror::Error)]
pub enum MotoError {
    /// The cache can't be used.
    #[error("no cache for the AWS double")]
    Cache(#[from] CacheError),
    /// The environment isn't valid.
    #[error("the environment is not valid")]
    Environment(#[source] clap::Error),
    /// A file of the installation can't be written.
    #[error("can't write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Python can't be run.
    #[error(
        "can't run {program}: install Python 3.10 or newer with its venv module (on Debian and Ubuntu: apt install python3-venv)"
    )]
    Python {
        /// Name or path of the interpreter.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The installation failed.
    #[error("installing moto failed at `{command}`; the log is {}; the last lines:\n{tail}", .log.display())]
    Install {
        /// The command line that failed.
        command: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// It didn't start.
    #[error("moto did not start")]
    Start(#[from] ProcessError),
    /// It started and does not say where it listens.
    #[error("moto does not say on which port it listens; its log is {}", .log.display())]
    Port {
        /// Its log file.
        log: PathBuf,
    },
}

/// Installs moto into the cache unless it is there; returns its virtual environment. Runs that
/// start at the same time wait for each other.
///
/// # Errors
/// When Python is missing, a package can't be downloaded, or its hash is another than the pinned
/// one.
pub async fn install(progress: &Progress) -> Result<PathBuf, MotoError> {
    let root = cache::dir()?.join("moto");
    let key = hex::encode(&Sha256::digest(REQUIREMENTS)[..8]);
    let venv = root.join(format!("{VERSION}-{key}"));
    let complete = venv.join("complete");
    if complete.exists() {
        return Ok(venv);
    }
    let _lock = Lock::acquire(&root.join("lock"), || {
        progress.say("waiting for another run that installs moto");
    })
    .await?;
    if complete.exists() {
        return Ok(venv);
    }
    let step = progress.step(format!("installing moto {VERSION} (once)"));
    if venv.exists() {
        // An installation that was interrupted.
        std::fs::remove_dir_all(&venv)
            .map_err(|source| MotoError::Write { path: venv.clone(), source })?;
    }
    let log = root.join(format!("install-{key}.log"));
    step.update("making a virtual environment");
    run("python3".as_ref(), &["-m".as_ref(), "venv".as_ref(), venv.as_os_str()], &log).await?;
    let requirements = venv.join("requirements.txt");
    write(&requirements, REQUIREMENTS)?;
    step.update("downloading packages");
    let pip = venv.join("bin/pip");
    let options = [
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--require-hashes",
        "-r",
    ];
    let mut args: Vec<&std::ffi::OsStr> = options.iter().map(AsRef::as_ref).collect();
    args.push(requirements.as_os_str());
    run(&pip, &args, &log).await?;
    write(&complete, "")?;
    step.done();
    Ok(venv)
}

fn write(path: &Path, text: &str) -> Result<(), MotoError> {
    std::fs::write(path, text)
        .map_err(|source| MotoError::Write { path: path.to_path_buf(), source })
}

/// Runs a step of the installation with the user's environment (proxies, package index), its output
/// in `log`.
async fn run(program: &Path, args: &[&std::ffi::OsStr], log: &Path) -> Result<(), MotoError> {
    let open = || {
        let file = std::fs::File::options().create(true).append(true).open(log)?;
        Ok((file.try_clone()?, file))
    };
    let (stdout, stderr) =
        open().map_err(|source| MotoError::Write { path: log.to_path_buf(), source })?;
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .kill_on_drop(true)
        .status()
        .await
        .map_err(|source| MotoError::Python { program: program.display().to_string(), source })?;
    if status.success() {
        return Ok(());
    }
    let words = args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
    Err(MotoError::Install {
        command: format!("{} {words}", program.display()),
        log: log.to_path_buf(),
        tail: tail(log, 12),
    })
}

/// A running moto server; it ends with this handle.
#[derive(Debug)]
pub struct Moto {
    process: Process,
    url: String,
}

impl Moto {
    /// Starts a server for one account, its log in `dir`, and waits until it answers.
    ///
    /// # Errors
    /// When it isn't installed and can't be, or ends instead of answering.
    pub async fn start(dir: &Path, account: &str, progress: &Progress) -> Result<Self, MotoError> {
        let venv = install(progress).await?;
        let path = Environment::read().map_err(MotoError::Environment)?.path;
        let log = dir.join("moto.log");
        let env = BTreeMap::from(
            [
                ("PATH", path.as_str()),
                ("PYTHONUNBUFFERED", "1"),
                ("MOTO_ACCOUNT_ID", account),
                ("MOTO_IAM_LOAD_MANAGED_POLICIES", "true"),
                // Images are the gateway's.
                ("MOTO_EC2_LOAD_DEFAULT_AMIS", "false"),
                ("AWS_ACCESS_KEY_ID", "moto"),
                ("AWS_SECRET_ACCESS_KEY", "moto"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let process = Process::spawn(ProcessSpec {
            name: "moto".to_owned(),
            program: venv.join("bin/python"),
            args: ["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"].map(Into::into).into(),
            env,
            dir: dir.to_path_buf(),
            log: log.clone(),
        })?;
        // It says where it listens once the socket is bound; requests wait in its backlog from then
        // on.
        process
            .ready("it says where it listens", Duration::from_mins(1), async || {
                listening(&log).is_some()
            })
            .await?;
        let url = listening(&log).ok_or(MotoError::Port { log })?;
        Ok(Self { process, url })
    }

    /// Its URL, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process, for its log and its end.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Ends it.
    pub async fn stop(self) {
        self.process.stop(Duration::from_secs(1)).await;
    }
}

fn listening(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let start = text.find("http://127.0.0.1:")?;
    let line = text[start..].split_once('\n')?.0;
    Some(line.split_whitespace().next()?.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pinned_package_has_a_hash() {
        let logical = REQUIREMENTS.replace("\\\n", " ");
        let pins: Vec<&str> = logical.lines().filter(|line| line.contains("==")).collect();
        assert!(pins.len() > 10, "{} packages", pins.len());
        for pin in pins {
            assert!(pin.contains("--hash=sha256:"), "{pin}");
        }
        assert!(
            REQUIREMENTS.contains(&format!("moto=={VERSION} "))
                || REQUIREMENTS.contains(&format!("moto[server]=={VERSION} "))
        );
        assert!(!REQUIREMENTS.contains("://"), "no index in the file");
    }

    #[test]
    fn finds_where_it_listens() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, " * Running on http://127.0.0.1:4").unwrap();
        assert_eq!(listening(&log), None, "a line that is still being written");
        std::fs::write(&log, " * Running on http://127.0.0.1:4321\nPress CTRL+C\n").unwrap();
        assert_eq!(listening(&log).as_deref(), Some("http://127.0.0.1:4321"));
    }
}
