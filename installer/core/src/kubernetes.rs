//! The Kubernetes side: which objects there should be, and how they are read, written and removed.
//!
//! [`operator`] and [`rbac`] build the operator's objects from one
//! [`Values`](crate::settings::values::Values); the Helm chart renders the same ones. [`crds`] and
//! [`defaults`] add the CRDs and the first NodePool and EC2NodeClass. [`object::Object`] is what
//! all of them become.

pub mod aws_auth;
pub mod canary;
pub mod client;
pub mod condition;
pub mod correction;
pub mod crds;
pub mod defaults;
pub(crate) mod fields;
pub mod freeze;
pub mod git_source;
pub mod helm;
pub mod last_words;
pub mod lease;
pub(crate) mod list;
pub mod merge_patch;
pub(crate) mod monitoring;
pub mod object;
pub mod operator;
pub mod operator_deployment;
pub mod rbac;
pub mod release;
pub mod resources;
pub mod revision;
pub mod trial;
