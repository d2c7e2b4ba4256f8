//! What a pod of the operator's reaches: the report of `tenon-operator probe`.

use serde::{Deserialize, Serialize};

/// Version of the report.
pub const SCHEMA: &str = "tenon.sh/probe/v1alpha1";

/// What was found out from inside the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InsideView {
    /// The pod had the operator's service account; before an installation there is none.
    pub as_operator: bool,
    /// What it reported.
    pub report: ProbeReport,
}

/// What a probe reports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeReport {
    /// Version of this form.
    pub schema: String,
    /// Why there are no credentials.
    pub no_credentials: Option<String>,
    /// One per service that the operator calls.
    pub services: Vec<ServiceView>,
}

/// What came of the call of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    /// Such as `ec2`.
    pub service: String,
    /// The name of its endpoint.
    pub host: String,
    /// What the name resolves to, the first ones.
    pub addresses: Vec<String>,
    /// How far the call came.
    pub outcome: Reach,
    /// What was said, unless all is well.
    #[serde(default)]
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
