//! The test bed of Tenon: a real Kubernetes control plane, simulated machines and the AWS double on
//! one machine, for the `sandbox` program and the end-to-end tests. `docs/src/test-bed.md`
//! describes its parts, and `docs/src/testing.md` how to write a test on it; each module here is
//! one part of the bed.
//!
//! Rules that all parts keep: every server listens on loopback, every child process dies with the
//! process that started it, every file is in the bed's own temporary directory or in the cache
//! directory, and every error names the part that failed and its log.

pub mod api_faults;
pub mod argocd;
pub mod attacher;
pub mod bed;
mod cli;
pub mod cluster_autoscaler;
mod control;
pub mod control_plane;
pub mod demo;
pub mod environment;
pub mod eviction_log;
mod failure;
pub mod flux;
pub mod git;
pub mod guide;
mod http;
pub mod installation;
pub mod karpenter;
pub mod keda;
pub mod kops;
mod kubectl;
pub mod kubelet;
pub mod kwok;
pub mod kwok_operators;
pub mod logs;
pub mod machine;
mod objects;
mod picture;
pub mod policy_coverage;
mod ports;
pub mod programs;
pub mod prometheus;
pub mod registry;
pub mod sandbox;
pub mod scenarios;
pub mod termination_handler;
pub mod user;
pub mod wait;
mod words;
