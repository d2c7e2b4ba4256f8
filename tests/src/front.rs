//! The AWS double's front: one loopback port that speaks every AWS API that the operator and the installer use.
//!
//! A call passes: log → faults → authentication → authorisation → a service of ours, or moto → log. moto (a separate process, see [`crate::moto`])
//! holds what it models well: IAM, SQS, EventBridge, VPCs. The front holds what moto lacks or gets wrong.

pub mod amis;
pub mod authorization;
pub mod catalog;
pub mod consistency;
pub mod eks;
pub mod faults;
pub mod filters;
pub mod identity;
pub mod instances;
pub mod moto_client;
pub mod policy;
pub mod prices;
pub mod request;
pub mod response;
pub mod service;
pub mod ssm;
pub mod templates;
pub mod world;
pub mod xml;
