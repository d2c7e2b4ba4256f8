//! kOps clusters: what the state store holds, the objects that its InstanceGroups need, and how far
//! the cluster is from that. The design is in `docs/src/design/kops.md`.
//!
//! The state store is only read.

pub(crate) mod augment;
pub(crate) mod caller;
pub(crate) mod compare;
pub(crate) mod operator;
pub(crate) mod permissions;
pub(crate) mod read;
pub(crate) mod software;
mod store;

pub(crate) use self::store::ReadError;
