//! What is said while a plan is carried out.

use std::time::Duration;

/// Hears what happens while a plan is carried out. The program prints it.
pub trait Progress: Send + Sync {
    /// A step was done, and took this long.
    fn done(&self, resource: &str, what: &str, took: Duration);

    /// Something that a step waits for changed.
    fn note(&self, text: &str);
}
