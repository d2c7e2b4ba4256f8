//! What the operator's process takes of its machine, under the names that Prometheus' client
//! libraries use.

use std::path::Path;

use jiff::Timestamp;

use super::declare::Declared;
use super::exposition::{Exposed, Exposition, Gone, LabelText, Number, Type};
use crate::clock::Clock;

/// Linux counts CPU time in hundredths of a second for programs, whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

/// What is exposed; the first is a counter.
pub(crate) const DECLARED: [Declared; 6] = [
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
];

/// Reads the process' own figures when it is scraped. Where the system does not tell one, it is
/// left out.
#[derive(Debug)]
pub struct Process {
    began: Timestamp,
}

impl Process {
    /// Of a process that begins now.
    pub fn new(clock: Clock) -> Self {
        Self { began: clock.now() }
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
}
