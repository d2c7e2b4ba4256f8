//! Child processes that die with the process that started them, even when that is killed: for every
//! server of the bed.
//!
//! Each program is started by a small shell script that leaves a watcher behind and then becomes
//! the program (`exec`), so that the child's pid, exit status and signals are the program's own.
//! The watcher reads a pipe whose other end only the bed holds: a line with a signal's name sends
//! that signal, and the end of the pipe, which the kernel brings about however the bed ends, sends
//! `KILL`. (`PR_SET_PDEATHSIG` would need unsafe code, and fires when the spawning *thread* ends,
//! which under tokio may be any time.)

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, PipeWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// `$$` is the pid of the shell that becomes the program. A watcher whose parent is another process
/// has outlived the program, and must not signal whoever has its pid now.
const SCRIPT: &str = r#"
exec 3<&0
{
  while :; do
    if read -r signal; then last=; else signal=KILL; last=yes; fi
    read -r _ _ _ parent _ </proc/self/stat
    [ "$parent" = $$ ] || exit 0
    kill -s "$signal" $$
    [ -z "$last" ] || exit 0
  done
} <&3 3<&- >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-
"#;

/// What to start.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// What errors and progress call it (`kube-apiserver`).
    pub name: String,
    /// The executable; looked up in `PATH` when it has no slash.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Its working directory.
    pub dir: PathBuf,
    /// The file to which its output is appended.
    pub log: PathBuf,
}

/// A process did not do what it was started for.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The log file can't be opened.
    #[error("can't open the log of {name}, {}", .log.display())]
    Log {
        /// The process.
        name: String,
        /// Its log file.
        log: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It can't be started.
    #[error("can't start {name} ({})", .program.display())]
    Start {
        /// The process.
        name: String,
        /// Its executable.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ended, though nobody asked it to.
    #[error("{name} ended by itself: {status}; its log is {}; the last lines:\n{tail}", .log.display())]
    Ended {
        /// The process.
        name: String,
        /// How it ended.
        status: Exit,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// It runs, but did not become ready.
    #[error("{name} is not ready after {} s: {what}; its log is {}; the last lines:\n{tail}", .after.as_secs(), .log.display())]
    NotReady {
        /// The process.
        name: String,
        /// What was waited for.
        what: String,
        /// For how long.
        after: Duration,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// It returned or was signalled.
    Status(ExitStatus),
    /// The system no longer says how.
    Unknown,
}

impl Exit {
    /// The exit code as a container runtime reports it: 128 + signal for a signalled process.
    pub fn code(self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        match self {
            Self::Status(status) => {
                status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255)
            }
            Self::Unknown => 255,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::Unknown => f.write_str("exit status unknown"),
        }
    }
}

/// The signals that the bed sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// Please end.
    Term,
    /// End now.
    Kill,
    /// Stand still (as a machine that hangs).
    Stop,
    /// Go on.
    Cont,
}

/// A running child; it is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    pid: u32,
    control: Arc<Mutex<Option<PipeWriter>>>,
    exit: watch::Receiver<Option<Exit>>,
    _reaper: JoinSet<()>,
}

impl Process {
    /// Starts a process; must be called within a tokio runtime that lives as long as the process
    /// should.
    ///
    /// # Errors
    /// When its log can't be opened or the program can't be started.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn(spec: ProcessSpec) -> Result<Self, ProcessError> {
        let ProcessSpec { name, program, args, env, dir, log } = spec;
        let start_failed =
            |source| ProcessError::Start { name: name.clone(), program: program.clone(), source };
        if program.components().count() > 1 && !program.exists() {
            return Err(start_failed(io::ErrorKind::NotFound.into()));
        }
        let open = || {
            let file = File::options().create(true).append(true).open(&log)?;
            Ok((file.try_clone()?, file))
        };
        let (stdout, stderr) = open().map_err(|source| ProcessError::Log {
            name: name.clone(),
            log: log.clone(),
            source,
        })?;
        let (reader, writer) = io::pipe().map_err(start_failed)?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(&program)
            .args(&args)
            .env_clear()
            .envs(&env)
            .current_dir(&dir)
            .stdin(Stdio::from(reader))
            .stdout(stdout)
            .stderr(stderr)
            // A group of its own: Ctrl-C in the terminal is for the bed, which then stops its parts
            // in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(start_failed)?;
        let pid = child.id().expect("a child that was not waited for has a pid");
        let control = Arc::new(Mutex::new(Some(writer)));
        let (ended, exit) = watch::channel(None);
        let mut reaper = JoinSet::new();
        let watcher = Arc::clone(&control);
        reaper.spawn(async move {
            let exit = child.wait().await.map_or(Exit::Unknown, Exit::Status);
            drop(watcher.lock().take());
            ended.send_replace(Some(exit));
        });
        Ok(Self { name, log, pid, control, exit, _reaper: reaper })
    }

    /// What errors call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits until it has ended. Owns what it needs, so that the process can be signalled
    /// meanwhile.
    pub fn wait(&self) -> impl Future<Output = Exit> + Send + 'static {
        let mut exit = self.exit.clone();
        async move {
            let ended = exit.wait_for(Option::is_some).await.map(|exit| *exit);
            ended.ok().flatten().unwrap_or(Exit::Unknown)
        }
    }

    /// Sends a signal; nothing happens if it has ended.
    pub fn signal(&self, signal: Signal) {
        let line: &[u8] = match signal {
            Signal::Term => b"TERM\n",
            Signal::Kill => b"KILL\n",
            Signal::Stop => b"STOP\n",
            Signal::Cont => b"CONT\n",
        };
        if let Some(control) = self.control.lock().as_mut() {
            // It fails only when the process has just ended.
            drop(control.write_all(line));
        }
    }

    /// Asks it to end, kills it when `grace` is over, and waits until it is gone.
    pub async fn stop(&self, grace: Duration) -> Exit {
        if !grace.is_zero() {
            self.signal(Signal::Term);
            if let Ok(exit) = tokio::time::timeout(grace, self.wait()).await {
                return exit;
            }
        }
        self.signal(Signal::Kill);
        self.wait().await
    }

    /// The error for its having ended; `None` while it runs.
    pub fn failure(&self) -> Option<ProcessError> {
        self.ended().map(|status| ProcessError::Ended {
            name: self.name.clone(),
            status,
            log: self.log.clone(),
            tail: tail(&self.log, 20),
        })
    }

    /// Waits until `ready` is true, asking again every 50 ms.
    ///
    /// # Errors
    /// When the process ends before, or `limit` is over; `what` says what was waited for.
    pub async fn ready<F: Future<Output = bool>>(
        &self,
        what: &str,
        limit: Duration,
        mut ready: impl FnMut() -> F,
    ) -> Result<(), ProcessError> {
        let asked = async {
            while !ready().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ended = self.wait();
        tokio::select! {
            () = asked => Ok(()),
            status = ended => Err(ProcessError::Ended {
                name: self.name.clone(),
                status,
                log: self.log.clone(),
                tail: tail(&self.log, 20),
            }),
            () = tokio::time::sleep(limit) => Err(ProcessError::NotReady {
                name: self.name.clone(),
                what: what.to_owned(),
                after: limit,
                log: self.log.clone(),
                tail: tail(&self.log, 20),
            }),
        }
    }
}

/// The last `lines` lines of a log, indented; empty when it can't be read.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    const ENOUGH: u64 = 16 * 1024;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(ENOUGH)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    tail_of(&String::from_utf8_lossy(&bytes), lines)
}

/// The last `lines` lines of a text, indented.
pub fn tail_of(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let last = &all[all.len().saturating_sub(lines)..];
    last.iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(dir: &Path, script: &str) -> ProcessSpec {
        ProcessSpec {
            name: "shell".to_owned(),
            program: "/bin/sh".into(),
            args: ["-c", script].map(Into::into).into(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            dir: dir.to_path_buf(),
            log: dir.join("shell.log"),
        }
    }

    fn exists(pid: u32) -> bool {
        // A zombie is gone for our purposes: it runs nothing.
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[tokio::test]
    async fn reports_how_and_with_which_last_words_a_process_ended() {
        let dir = tempfile::tempdir().expect("temp dir");
        let process = Process::spawn(shell(dir.path(), "echo last words; exit 3")).expect("start");
        assert_eq!(process.wait().await.code(), 3);
        let failure = process.failure().expect("it ended").to_string();
        assert!(
            failure.contains("exit status: 3") && failure.contains("  | last words"),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn term_reaches_the_program_itself() {
        let dir = tempfile::tempdir().expect("temp dir");
        let script = "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done";
        let process = Process::spawn(shell(dir.path(), script)).expect("start");
        process
            .ready("it said so", Duration::from_secs(10), async || {
                tail(process.log(), 1).contains("up")
            })
            .await
            .expect("ready");
        assert_eq!(process.stop(Duration::from_secs(10)).await.code(), 7);
    }

    #[tokio::test]
    async fn a_process_that_ignores_term_is_killed_when_its_grace_is_over() {
        let dir = tempfile::tempdir().expect("temp dir");
        let script = "trap '' TERM; echo up; while :; do sleep 0.05; done";
        let process = Process::spawn(shell(dir.path(), script)).expect("start");
        process
            .ready("it said so", Duration::from_secs(10), async || {
                tail(process.log(), 1).contains("up")
            })
            .await
            .expect("ready");
        assert_eq!(process.stop(Duration::from_millis(200)).await.code(), 128 + 9);
    }

    #[tokio::test]
    async fn a_process_dies_with_the_process_that_started_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        // The outer shell stands for the bed: it holds the writing end of the pipe, and is killed
        // without a chance to clean up.
        std::fs::write(dir.path().join("script"), SCRIPT).expect("write");
        let outer = "mkfifo pipe; sh -c \"$(cat script)\" sh sleep 300 <pipe & echo $! >pid; exec 4>pipe; echo up; exec sleep 300";
        let process = Process::spawn(shell(dir.path(), outer)).expect("start");
        process
            .ready("it said so", Duration::from_secs(10), async || {
                tail(process.log(), 1).contains("up")
            })
            .await
            .expect("ready");
        let inner: u32 = std::fs::read_to_string(dir.path().join("pid"))
            .expect("pid")
            .trim()
            .parse()
            .expect("a number");
        assert!(exists(inner));
        process.signal(Signal::Kill);
        process.wait().await;
        tokio::time::timeout(Duration::from_secs(10), async {
            while exists(inner) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("the inner process is gone");
    }

    #[tokio::test]
    async fn says_which_program_is_missing() {
        let dir = tempfile::tempdir().expect("temp dir");
        let spec = ProcessSpec { program: "/nowhere/etcd".into(), ..shell(dir.path(), "") };
        let error = Process::spawn(spec).expect_err("no such program").to_string();
        assert!(error.contains("/nowhere/etcd"), "{error}");
    }
}
