//! The one place that asks the system for the time. Nothing here is decided by it: it dates
//! journals, backups and tokens.

use jiff::Timestamp;

/// The time now.
#[expect(clippy::disallowed_methods, reason = "this is the installer's one source of time")]
pub fn now() -> Timestamp {
    Timestamp::now()
}
