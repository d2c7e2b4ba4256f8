//! Every IAM, SQS and EventBridge document that Tenon needs, as typed values.
//!
//! Nothing here calls AWS. The installer turns these values into roles, policies, a queue policy
//! and rules; `tenon iam print` shows them; the test bed evaluates them call by call. The
//! controller's permissions are those of upstream's v1.14.1 layout (six policies), so that a role
//! made for one serves the other.
//!
//! - [`document`]: the policy language itself, to and from IAM's JSON.
//! - [`scope`]: what the documents are rendered for: partition, region, account, cluster, queue,
//!   node roles, features.
//! - [`controller`]: the controller's policies.
//! - [`identity`]: trust policies and the managed policies of the node role.
//! - [`interruption`]: the queue policy and the five EventBridge rules.
//! - [`size`]: IAM's limits on documents, checked before the first call.
//! - [`split`](mod@split): policies cut into pieces that IAM stores.
//! - [`cover`]: whether what is granted suffices for what is needed.
//! - [`difference`]: what changes between two versions of a role's documents, and documents under
//!   which both work.
//! - [`cases`]: calls to try on a policy, such that must be allowed and such that must not.
//! - [`caller`]: what whoever runs the installer needs.

pub mod caller;
pub mod cases;
pub mod controller;
pub mod cover;
pub mod difference;
pub mod document;
pub mod identity;
pub mod interruption;
pub mod scope;
pub mod size;
pub mod split;

pub use document::{Document, Effect, Statement};
pub use scope::{Features, InstanceProfiles, Partition, Scope};

#[cfg(test)]
mod tests;
