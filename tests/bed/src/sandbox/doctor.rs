//! `sandbox doctor`: what is missing on this machine, and what to do about it.

use std::path::Path;
use std::process::{ExitCode, Stdio};

use serde::Serialize;
use tenon_aws_double::cache;
use tokio::process::Command;

use crate::cli::Output;
use crate::control_plane::programs::{GO_VERSION, Programs};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::kubelet::isolation::Isolation;

/// One thing that a bed needs.
#[derive(Debug, Serialize)]
struct Finding {
    /// What.
    what: &'static str,
    /// Whether it is as it should be.
    level: Level,
    /// What was found.
    found: String,
    /// What to do, unless it is fine.
    hint: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Fine,
    /// A bed works, but less well.
    Worse,
    /// No bed can start.
    Missing,
}

pub(super) async fn run(output: Output) -> Result<ExitCode, Failure> {
    let findings = [
        python().await,
        cache_dir(),
        go().await,
        temporary(),
        isolation().await,
        memory(),
        slots()?,
    ];
    let missing = findings.iter().any(|finding| finding.level == Level::Missing);
    match output {
        Output::Json => anstream::println!("{}", serde_json::to_string(&findings)?),
        Output::Text => {
            for Finding { what, level, found, hint } in &findings {
                let sign = match level {
                    Level::Fine => "✔",
                    Level::Worse => "!",
                    Level::Missing => "✗",
                };
                anstream::println!("{sign} {what}: {found}");
                if let Some(hint) = hint {
                    anstream::println!("    {hint}");
                }
            }
        }
    }
    Ok(if missing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What a program says about its version; `None` if it can't be run.
async fn says(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().await.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first two numbers of a version within a text (`go version go1.26.8 linux/amd64`).
fn version(text: &str) -> Option<(u32, u32)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = text[start..].split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

async fn go() -> Finding {
    let missing = Programs::missing().unwrap_or_default();
    let found = says("go", &["version"]).await;
    let needed = version(GO_VERSION);
    let names: Vec<&str> = missing.iter().map(|program| program.name()).collect();
    let (level, hint) = match &found {
        _ if missing.is_empty() => (Level::Fine, None),
        Some(text) if version(text) >= needed => {
            let built = format!("`sandbox build` builds {} once (some minutes)", names.join(", "));
            (Level::Fine, Some(built))
        }
        // A newer toolchain is fetched by Go itself, if it may.
        Some(_) => (
            Level::Worse,
            Some(format!("Go {GO_VERSION} or newer is better: this one has to fetch it")),
        ),
        None => {
            let hint = format!(
                "install Go {GO_VERSION} or newer and put it in PATH; it builds {}",
                names.join(", ")
            );
            (Level::Missing, Some(hint))
        }
    };
    let found = found.unwrap_or_else(|| "no `go` in PATH".to_owned());
    let found =
        if missing.is_empty() { format!("{found}; the control plane is built") } else { found };
    Finding { what: "Go", level, found, hint }
}

async fn python() -> Finding {
    let found = says("python3", &["--version"]).await;
    let (level, hint) = match found.as_deref().map(version) {
        Some(Some(at_least)) if at_least >= (3, 10) => (Level::Fine, None),
        _ => (
            Level::Missing,
            Some("install Python 3.10 or newer with venv: it runs moto, the AWS double".to_owned()),
        ),
    };
    Finding {
        what: "Python",
        level,
        found: found.unwrap_or_else(|| "no `python3` in PATH".to_owned()),
        hint,
    }
}

fn cache_dir() -> Finding {
    match cache::dir() {
        Ok(dir) => Finding {
            what: "cache",
            level: Level::Fine,
            found: dir.display().to_string(),
            hint: None,
        },
        Err(error) => {
            let hint = Some("set TENON_CACHE to a directory with 5 GB of space".to_owned());
            Finding { what: "cache", level: Level::Missing, found: error.to_string(), hint }
        }
    }
}

fn temporary() -> Finding {
    let dir = std::env::temp_dir();
    let (level, hint) = match tempfile::tempdir() {
        Ok(_) => (Level::Fine, None),
        Err(error) => (
            Level::Missing,
            Some(format!("{error}: set TMPDIR to a directory that can be written")),
        ),
    };
    Finding { what: "temporary files", level, found: dir.display().to_string(), hint }
}

async fn isolation() -> Finding {
    let (level, found, hint) = match Isolation::detect().await {
        Isolation::Namespace(flags) => {
            (Level::Fine, format!("pods get mount namespaces (unshare {})", flags.join(" ")), None)
        }
        Isolation::Rewrite => (
            Level::Worse,
            "no mount namespaces: paths in pods' arguments and variables are rewritten".to_owned(),
            Some("run as root, or allow unprivileged user namespaces".to_owned()),
        ),
    };
    Finding { what: "operator's pods", level, found, hint }
}

fn memory() -> Finding {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let (level, hint) = match available {
        Some(kib) if kib >= 2 << 20 => (Level::Fine, None),
        Some(_) => (
            Level::Worse,
            Some("a bed takes about 1 GB, the first build of the control plane 2 GB".to_owned()),
        ),
        None => (Level::Missing, Some("the bed runs on Linux only".to_owned())),
    };
    let found = available
        .map_or_else(|| "unknown".to_owned(), |kib| format!("{} MiB available", kib >> 10));
    Finding { what: "memory", level, found, hint }
}

fn slots() -> Result<Finding, Failure> {
    let environment = Environment::read()?;
    let Ok(cache) = cache::dir() else {
        return Ok(Finding {
            what: "beds",
            level: Level::Missing,
            found: "no cache".to_owned(),
            hint: None,
        });
    };
    let taken = |index: &u16| {
        let path = cache.join(format!("beds/slot-{index}"));
        Path::new(&path).exists()
            && cache::Lock::try_acquire(&path).is_ok_and(|lock| lock.is_none())
    };
    let running = (0..environment.slots).filter(taken).count();
    let full = running >= usize::from(environment.slots);
    let hint =
        full.then(|| "the next bed waits for one to stop; TENON_BED_SLOTS allows more".to_owned());
    let level = if full { Level::Worse } else { Level::Fine };
    Ok(Finding {
        what: "beds",
        level,
        found: format!("{running} of {} run", environment.slots),
        hint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_out_of_what_programs_say() {
        assert_eq!(version("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(version("Python 3.11.2"), Some((3, 11)));
        assert_eq!(version("unknown"), None);
    }

    #[tokio::test]
    async fn a_missing_program_is_no_error() {
        assert_eq!(says("no-such-program-of-the-bed", &[]).await, None);
    }
}
