//! What is broken outside of the operator, for it to suffer from.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenon_bed::wait::must;

/// A clock that fails once whenever it is to, in work whose panic must not reach others. Every
/// other panic ends the operator, which then starts again.
pub(super) struct BrokenClock {
    library: PathBuf,
    file: PathBuf,
    _dir: TempDir,
}

impl BrokenClock {
    /// Compiles it.
    pub(super) fn build() -> Self {
        // Not in the directory for temporary files, for which the operator's container has one of
        // its own.
        let dir = must(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/beds/monitoring/broken_clock.rs");
        let library = dir.path().join("libbroken_clock.so");
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "--crate-type", "cdylib", source, "-o"]).arg(&library);
        assert!(must(rustc.status()).success(), "{rustc:?}");
        Self { library, file: dir.path().join("broken"), _dir: dir }
    }

    /// The environment of containers that have it.
    pub(super) fn variables(&self) -> Value {
        json!([
            { "name": "LD_PRELOAD", "value": self.library },
            { "name": "BROKEN_CLOCK", "value": self.file },
            { "name": "BROKEN_FOR", "value": "tasks::isolated" },
        ])
    }

    /// The next reading fails.
    pub(super) fn break_once(&self) {
        must(std::fs::write(&self.file, ""));
    }

    /// No reading fails, unless one has already.
    pub(super) fn heal(&self) {
        std::fs::remove_file(&self.file).ok();
    }
}

/// Programs that always want to run, on the only CPU that some processes may use.
pub(super) struct Crowd {
    processes: Vec<u32>,
    programs: Vec<Child>,
}

impl Crowd {
    /// How many there are.
    const SIZE: usize = 3;

    /// Comes together around the processes with these ids.
    pub(super) fn around(processes: impl Iterator<Item = u32>) -> io::Result<Self> {
        let cpu = first_cpu()?;
        let processes: Vec<u32> = processes.collect();
        for process in &processes {
            taskset(&["--cpu-list", &cpu], *process)?;
        }
        let mut crowd = Self { processes, programs: Vec::new() };
        for _ in 0..Self::SIZE {
            // It ends by itself if nobody ends it.
            let mut program = Command::new("taskset");
            program.args(["--cpu-list", &cpu, "timeout", "300", "sh", "-c", "while :; do :; done"]);
            crowd.programs.push(program.spawn()?);
        }
        Ok(crowd)
    }

    /// The processes may use every CPU again, and nobody else wants it.
    pub(super) fn leave(mut self) -> io::Result<()> {
        self.end();
        self.processes.iter().try_for_each(|process| taskset(&["ffffffff"], *process))
    }

    fn end(&mut self) {
        for mut program in self.programs.drain(..) {
            // `timeout` passes the signal on.
            Command::new("kill").arg(program.id().to_string()).status().ok();
            program.wait().ok();
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end();
    }
}

/// The first of the CPUs that this process may use.
fn first_cpu() -> io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.and_then(|list| list.trim().split([',', '-']).next());
    first.map(str::to_owned).ok_or_else(|| io::Error::other("no list of CPUs"))
}

/// Sets which CPUs all threads of a process may use.
fn taskset(cpus: &[&str], process: u32) -> io::Result<()> {
    let mut taskset = Command::new("taskset");
    taskset.args(["--all-tasks", "--pid"]).args(cpus).arg(process.to_string());
    let output = taskset.output()?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{taskset:?}: {why}")))
}
