//! The call log: every AWS call with who made it, on what, and how it ended; in memory and as JSON
//! lines in a file.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

/// Calls that are kept in memory: enough for an hour of a busy operator; the file has all.
const KEPT: usize = 50_000;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// Request ID.
    pub id: String,
    /// When it came in.
    pub time: Timestamp,
    /// ARN of the caller; the access key when it isn't known.
    pub caller: String,
    /// `ec2:CreateFleet`.
    pub action: String,
    /// Region of the call.
    pub region: String,
    /// ARNs that it was checked against, and IDs of what it made or changed.
    pub resources: Vec<String>,
    /// Tags in the request: resource type, key, value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub request_tags: Vec<(String, String, String)>,
    /// Whether it only asked if it would be allowed.
    pub dry_run: bool,
    /// HTTP status; 0 when the connection was dropped.
    pub status: u16,
    /// AWS error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the gate refused it.
    pub denied: bool,
    /// Milliseconds until the answer.
    pub millis: u64,
}

/// How often an action was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Count {
    /// Calls.
    pub calls: u64,
    /// Calls that failed (a dry run that would have been allowed didn't).
    pub errors: u64,
}

/// The calls since the start, as far as they are kept, oldest first.
#[derive(Debug, Default)]
pub struct CallLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: VecDeque<Call>,
    counts: BTreeMap<String, Count>,
    file: Option<BufWriter<File>>,
}

impl CallLog {
    /// A log that also writes to a file.
    pub(crate) fn to_file(path: &Path) -> std::io::Result<Self> {
        let state = State { file: Some(BufWriter::new(File::create(path)?)), ..State::default() };
        Ok(Self { state: Mutex::new(state) })
    }

    pub(super) fn add(&self, call: Call) {
        let state = &mut *self.state.lock();
        let count = state.counts.entry(call.action.clone()).or_default();
        count.calls += 1;
        count.errors += u64::from(
            call.status >= 400 && call.error.as_deref() != Some("DryRunOperation")
                || call.status == 0,
        );
        if let Some(file) = &mut state.file {
            let line = serde_json::to_string(&call).unwrap_or_default();
            if writeln!(file, "{line}").and_then(|()| file.flush()).is_err() {
                tracing::warn!("the call log can't be written any more; it continues in memory");
                state.file = None;
            }
        }
        if state.kept.len() == KEPT {
            state.kept.pop_front();
        }
        state.kept.push_back(call);
    }

    /// The calls since the beginning, or since [`CallLog::clear`], oldest first.
    pub fn all(&self) -> Vec<Call> {
        self.state.lock().kept.iter().cloned().collect()
    }

    /// Calls of one action.
    pub fn of(&self, action: &str) -> Vec<Call> {
        self.state.lock().kept.iter().filter(|call| call.action == action).cloned().collect()
    }

    /// How often each action was called.
    pub fn counts(&self) -> BTreeMap<String, Count> {
        self.state.lock().counts.clone()
    }

    /// Forgets what is in memory, to count from here; the file stays.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.kept.clear();
        state.counts.clear();
    }
}
