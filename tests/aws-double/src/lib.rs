//! An AWS on loopback for tests of programs that call AWS: the protocols, authorization by IAM
//! policies, shortages and other faults on demand, and a log of all calls.
//! `docs/src/aws-double.md` describes what it answers and how it differs from AWS.
//!
//! [`Gateway`] is the double; its parts are re-exported here. The other modules are what it stands
//! on: moto as a child process, files that survive between runs, a clock that tests can stop.

pub mod cache;
pub mod clock;
pub mod environment;
mod gateway;
pub mod moto;
pub mod process;
pub mod progress;

pub use gateway::{
    Gateway, GatewayConfig, GatewayError, amis, authorization, aws_state, calls, catalog,
    consistency, control, credentials, eks, events, faults, guard, identity, instance, instances,
    metadata, moto_client, placement_groups, policy, prices, request, reservations, response,
    rewrite, seed, service, signature, token_review, xml, zonal_shifts,
};
