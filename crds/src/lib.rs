//! The Kubernetes API types of Tenon, compatible with Karpenter v1: [`NodePool`], [`NodeClaim`],
//! [`NodeOverlay`], [`CapacityBuffer`], [`EC2NodeClass`] and [`KWOKNodeClass`], with the rules that
//! the API server enforces ([`manifests`]), the rules that only the operator can check
//! ([`validation`]), the drift hashes ([`hash`]) and the semantics of status conditions
//! ([`conditions`]).
//!
//! The crate is pure: no client, no clock, no I/O. The operator, the planner and the installer
//! share these types.
//!
//! Reading is tolerant: a field that this version does not know is ignored, an absent field takes
//! the default that the API server would fill in. Writers patch, so that fields of newer versions
//! survive.

mod budget;
pub mod capacitybuffer;
pub mod conditions;
pub mod cron;
pub mod duration;
pub mod ec2nodeclass;
pub mod hash;
mod kwoknodeclass;
pub mod labels;
pub mod manifests;
pub mod nodeclaim;
mod nodeoverlay;
pub mod nodepool;
pub mod quantity;
mod requirement;
pub mod selector;
mod taint;
mod text_enum;
pub mod timestamp;
pub mod toleration;
pub mod validation;
pub mod versions;

pub use budget::{Budget, BudgetLimit, DisruptionReason};
pub use capacitybuffer::{CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus};
pub use conditions::{Condition, ConditionStatus, ConditionTypes, Conditions};
pub use duration::{Duration, NillableDuration};
pub use ec2nodeclass::{EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus};
pub use kwoknodeclass::{KWOKNodeClass, KWOKNodeClassSpec, KWOKNodeClassStatus};
pub use nodeclaim::{NodeClaim, NodeClaimSpec, NodeClaimStatus, ResourceRequirements};
pub use nodeoverlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus, OverlayRequirement};
pub use nodepool::{
    ConsolidationPolicy, Disruption, NodeClaimTemplate, NodeClaimTemplateSpec, NodeClassReference,
    NodePool, NodePoolSpec, NodePoolStatus, TemplateMetadata,
};
pub use quantity::{Quantity, ResourceList};
pub use requirement::{Operator, Requirement};
pub use taint::{Taint, TaintEffect};
pub use text_enum::UnknownText;
pub use timestamp::Timestamp;
