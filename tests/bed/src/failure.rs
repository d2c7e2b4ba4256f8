//! What goes wrong on a bed, for those who only tell it.

/// What a command or a user of the bed may fail with; it is printed with its causes.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
