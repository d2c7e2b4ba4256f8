//! What the operator's process takes of its machine, under the names that Prometheus' client
//! libraries use, and what it has to wait for.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::declare::Declared;
use super::exposition::{Exposed, Exposition, Gone, LabelText, Number, Type};
use crate::clock::Clock;

/// Linux counts CPU time in hundredths of a second for programs, whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

/// What is exposed.
pub(crate) const DECLARED: [Declared; 7] = [
    Declared {
        name: "process_cpu_seconds_total",
        labels: &[],
        help: "User and system CPU time of the process",
    },
    Declared {
        name: "process_resident_memory_bytes",
        labels: &[],
        help: "Resident memory of the process",
    },
    Declared {
        name: "process_virtual_memory_bytes",
        labels: &[],
        help: "Virtual memory of the process",
    },
    Declared { name: "process_open_fds", labels: &[], help: "Number of open file descriptors" },
    Declared {
        name: "process_max_fds",
        labels: &[],
        help: "Maximum number of open file descriptors",
    },
    Declared {
        name: "process_start_time_seconds",
        labels: &[],
        help: "Start time of the process, in seconds since 1970",
    },
    Declared {
        name: "tenon_cpu_wait_seconds_total",
        labels: &[],
        help: "Time for which threads that could run waited for a CPU",
    },
];

/// Reads the process' own figures when it is scraped. Where the system does not tell one, it is
/// left out.
#[derive(Debug)]
pub struct Process {
    began: Timestamp,
    waits: Mutex<Waits>,
}

impl Process {
    /// Of a process that begins now.
    pub fn new(clock: Clock) -> Self {
        Self { began: clock.now(), waits: Mutex::default() }
    }
}

impl Exposed for Process {
    fn expose(&self, out: &mut Exposition<'_>) -> Result<(), Gone> {
        let read = |name: &str| {
            std::fs::read_to_string(Path::new("/proc/self").join(name)).unwrap_or_default()
        };
        let status = read("status");
        let open = std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
        let values = [
            cpu_seconds(&read("stat")),
            kilobytes(&status, "VmRSS:"),
            kilobytes(&status, "VmSize:"),
            open.and_then(|open| u32::try_from(open).ok()).map(f64::from),
            most_files(&read("limits")),
            Some(self.began.as_duration().as_secs_f64()),
            self.waits.lock().add(waits()),
        ];
        for (Declared { name, help, .. }, value) in DECLARED.into_iter().zip(values) {
            let Some(value) = value else { continue };
            let (base, type_, suffix) = match name.strip_suffix("_total") {
                Some(base) => (base, Type::Counter, "_total"),
                None => (name, Type::Gauge, ""),
            };
            out.family(base, type_, help);
            out.sample(base, suffix, &LabelText::default(), Number::Real(value));
        }
        out.rest()
    }
}

/// How long threads have waited for a CPU, those that have ended included: because others had it,
/// or because of the limit of the container. Neither is part of the time for which tokio calls its
/// threads busy: one that waits to be woken is idle.
#[derive(Debug, Default)]
struct Waits {
    /// Nanoseconds of each thread, by its id, when it was last read.
    threads: BTreeMap<String, u64>,
    /// Nanoseconds of all.
    total: u64,
}

impl Waits {
    /// Adds what these threads have waited since the last call; all of it in seconds. `None` if the
    /// kernel does not count it.
    fn add(&mut self, threads: BTreeMap<String, u64>) -> Option<f64> {
        if threads.is_empty() {
            return None;
        }
        for (thread, waited) in &threads {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            // A thread that has waited less than before is another one with its id.
            self.total += waited.checked_sub(before).unwrap_or(*waited);
        }
        self.threads = threads;
        Some(Duration::from_nanos(self.total).as_secs_f64())
    }
}

/// For how many nanoseconds each thread of this process has waited for a CPU, by its id.
fn waits() -> BTreeMap<String, u64> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let waits = threads.filter_map(|thread| {
        let schedstat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some((thread.file_name().into_string().ok()?, waited(&schedstat)?))
    });
    waits.collect()
}

/// The second field of a thread's `schedstat`, after the time on a CPU.
fn waited(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// The 14th and 15th field of `/proc/self/stat`, user and system time. The second, the program's
/// name, may contain spaces and brackets.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// A line of `/proc/self/status`.
fn kilobytes(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}

/// The soft limit of `/proc/self/limits`; infinite where there is none.
fn most_files(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = line.split_whitespace().next()?;
    if soft == "unlimited" { Some(f64::INFINITY) } else { soft.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 100 1 1";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds(""), None);
        let status = "Name:\ta\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(kilobytes(status, "VmRSS:"), Some(1_048_576.0));
        assert_eq!(kilobytes(status, "VmSwap:"), None);
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        assert_eq!(most_files(limits), Some(1024.0));
    }
    #[test]
    fn waits_of_threads_add_up_and_never_decrease() {
        assert_eq!(waited("7 42 3\n"), Some(42));
        assert_eq!(waited(""), None);
        let second = 1_000_000_000;
        let mut waits = Waits::default();
        let mut after = |threads: &[(&str, u64)]| {
            waits.add(threads.iter().map(|(id, waited)| ((*id).to_owned(), *waited)).collect())
        };
        assert_eq!(after(&[]), None, "not counted by the kernel");
        assert_eq!(after(&[("1", second), ("2", 2 * second)]), Some(3.0));
        assert_eq!(after(&[("1", 5 * second)]), Some(7.0), "one has ended");
        assert_eq!(after(&[("1", 5 * second), ("2", second)]), Some(8.0), "another with its id");
        assert!(!super::waits().is_empty());
    }
}
