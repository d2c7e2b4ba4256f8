//! What a pod of the operator's reaches in AWS: `tenon-operator probe` reports it, and the
//! installer's checks judge it.

use serde::{Deserialize, Serialize};

/// Version of the report.
pub const SCHEMA: &str = "tenon.sh/probe/v1alpha1";

/// What a probe reports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeReport {
    /// Version of this form.
    pub schema: String,
    /// Why there are no credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_credentials: Option<String>,
    /// One per service that the operator calls.
    pub services: Vec<ServiceReach>,
}

/// What came of the call of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReach {
    /// Such as `ec2`.
    pub service: String,
    /// The name of its endpoint.
    pub host: String,
    /// What the name resolves to, two at most.
    pub addresses: Vec<std::net::IpAddr>,
    /// How far the call came.
    pub outcome: Reach,
    /// What was said, unless all is well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How long it took.
    pub millis: u64,
}

/// How far a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reach {
    /// The service answered, and would let the operator do it.
    Ok,
    /// It answered that the caller may not.
    Denied,
    /// It answered that it does not know the caller.
    Unauthenticated,
    /// It answered with an error of its own.
    Failed,
    /// The endpoint's name has no address.
    Unresolved,
    /// Nobody answers there, or not in a way that can be trusted.
    Unreachable,
}
