//! Moves an installation from one version of the operator to another without replacing a node: which versions there are, what stands in the way, and the stages
//! that a plan is taken apart into. Pure. The design is in `docs/src/design/upgrade.md`.

pub mod stages;
pub mod version;

pub use stages::staged;

#[cfg(test)]
mod tests;
