//! Moves a cluster from other tools to Tenon: what they do there, whether Tenon does it as well,
//! and the steps. The design is in `docs/src/design/migrate.md`.

pub(crate) mod cas;
pub(crate) mod nth;
pub(crate) mod stopped;
