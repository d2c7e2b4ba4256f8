//! Moves an installation from one version of the operator to another without replacing a node:
//! which versions there are, what stands in the way, and the stages that a plan is taken apart
//! into. Pure. The design is in `docs/src/design/upgrade.md`.

pub(crate) mod stages;
pub(crate) mod version;

pub(crate) use stages::staged;

#[cfg(test)]
mod tests;
