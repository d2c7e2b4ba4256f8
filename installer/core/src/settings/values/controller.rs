//! The operator's container among the chart's values: `controller`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, EnvFromSource, EnvVar, ResourceRequirements, SELinuxOptions,
    SeccompProfile, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient::list_or_nothing;

/// `controller`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Controller {
    /// Name of the container.
    pub container_name: String,
    /// Image of the container.
    pub image: Image,
    /// Additional environment variables.
    pub env: Vec<EnvVar>,
    /// Additional environment variables from ConfigMaps and Secrets.
    pub env_from: Vec<EnvFromSource>,
    /// Profiles of the container. It always runs without privileges.
    pub security_context: ContainerSecurity,
    /// Requests and limits of the container; empty: requests of 1 CPU and 1Gi, and a memory limit
    /// of 1Gi.
    pub resources: ResourceRequirements,
    /// Additional volume mounts of the container.
    pub extra_volume_mounts: Vec<VolumeMount>,
    /// Sidecar containers. A container without `volumeMounts` gets `extraVolumeMounts` and
    /// `sidecarVolumeMounts`.
    #[serde(deserialize_with = "list_or_nothing")]
    pub sidecar_container: Vec<Container>,
    /// Volume mounts of the sidecar containers, in addition to `extraVolumeMounts`.
    pub sidecar_volume_mounts: Vec<VolumeMount>,
    /// The metrics port.
    pub metrics: Port,
    /// The port of the probes.
    pub health_probe: Port,
    /// Timing of the liveness probe.
    pub liveness_probe: ProbeTiming,
    /// Timing of the readiness probe.
    pub readiness_probe: ProbeTiming,
    /// The decision ledger, on the pod's loopback address.
    pub decisions: DecisionServer,
    /// The dashboard in the cluster, on the pod's loopback address.
    pub dashboard: DashboardServer,
    /// Endpoints that change the log level at run time and serve profiles, on the pod's loopback
    /// address.
    pub debug: DebugServer,
    /// Traces of reconciles, plans and calls, by OTLP over HTTP.
    pub tracing: Tracing,
}

impl Default for Controller {
    fn default() -> Self {
        Self {
            container_name: "controller".to_owned(),
            image: Image::default(),
            env: Vec::new(),
            env_from: Vec::new(),
            resources: ResourceRequirements::default(),
            security_context: ContainerSecurity::default(),
            extra_volume_mounts: Vec::new(),
            sidecar_container: Vec::new(),
            sidecar_volume_mounts: Vec::new(),
            metrics: Port { port: 8080 },
            health_probe: Port { port: 8081 },
            liveness_probe: ProbeTiming::starting_after(30),
            readiness_probe: ProbeTiming::starting_after(5),
            decisions: DecisionServer::default(),
            dashboard: DashboardServer::default(),
            debug: DebugServer::default(),
            tracing: Tracing::default(),
        }
    }
}

impl Controller {
    /// Requests and limits of the container. What is set replaces all defaults: merged with them,
    /// requests could be above their limits.
    pub fn resources(&self) -> ResourceRequirements {
        if self.resources != ResourceRequirements::default() {
            return self.resources.clone();
        }
        let quantities = |all: &[(&str, &str)]| {
            let owned =
                all.iter().map(|(name, it)| ((*name).to_owned(), Quantity((*it).to_owned())));
            Some(owned.collect::<BTreeMap<_, _>>())
        };
        ResourceRequirements {
            requests: quantities(&[("cpu", "1"), ("memory", "1Gi")]),
            limits: quantities(&[("memory", "1Gi")]),
            claims: None,
        }
    }

    /// Name of the container.
    pub(crate) fn name(&self) -> &str {
        if self.container_name.is_empty() { "controller" } else { &self.container_name }
    }
}

/// `controller.image`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Image {
    /// Image without tag and digest.
    pub repository: String,
    /// Tag; empty: the chart's version.
    pub tag: String,
    /// Digest, such as `sha256:…`.
    pub digest: String,
}

/// The repository of a build that no release made. It names no registry, so that nothing can be
/// pulled from it.
pub const PLACEHOLDER: &str = "tenon-operator";

/// The repository that a release has by default.
const REPOSITORY: &str = match option_env!("TENON_IMAGE") {
    Some(repository) => repository,
    None => PLACEHOLDER,
};

impl Default for Image {
    fn default() -> Self {
        Self { repository: REPOSITORY.to_owned(), tag: String::new(), digest: String::new() }
    }
}

impl Image {
    /// Its tag, or the version that stands for an empty one.
    pub fn tag(&self) -> &str {
        if self.tag.is_empty() { env!("CARGO_PKG_VERSION") } else { &self.tag }
    }

    /// Whether it is the image of Karpenter, as released or mirrored.
    pub(super) fn is_karpenters(&self) -> bool {
        self.repository == "karpenter/controller"
            || self.repository.ends_with("/karpenter/controller")
    }

    /// The image as a pod names it.
    pub fn reference(&self) -> String {
        let tag = self.tag();
        let digest =
            if self.digest.is_empty() { String::new() } else { format!("@{}", self.digest) };
        format!("{}:{tag}{digest}", self.repository)
    }
}

/// `controller.securityContext`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContainerSecurity {
    /// AppArmor profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<AppArmorProfile>,
    /// SELinux options.
    #[serde(rename = "seLinuxOptions", skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<SELinuxOptions>,
    /// Seccomp profile; absent: `RuntimeDefault`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<SeccompProfile>,
}

/// `controller.livenessProbe` and `controller.readinessProbe`: when a probe is made and what it
/// takes to believe it. What is absent is Kubernetes' default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProbeTiming {
    /// Seconds from the start of the container to the first probe.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between probes.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<i32>,
    /// Seconds until a probe times out.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// Number of probes in a row that have to fail.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<i32>,
    /// Number of probes in a row that have to succeed; 1 for the liveness probe.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_threshold: Option<i32>,
}

impl ProbeTiming {
    fn starting_after(seconds: i32) -> Self {
        Self { initial_delay_seconds: Some(seconds), timeout_seconds: Some(30), ..Self::default() }
    }
}

/// A port of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Number of the port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// `controller.decisions`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecisionServer {
    /// Port on the pod's loopback address; 0: none, absent: 8085.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// `controller.dashboard`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DashboardServer {
    /// Serve the dashboard.
    pub enabled: bool,
    /// Port on the pod's loopback address; absent: 8086.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// `controller.debug`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DebugServer {
    /// Port on the pod's loopback address; 0: none, absent: 8082.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Serve profiles.
    pub profiling: bool,
}

/// `controller.tracing`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tracing {
    /// Send traces to a collector.
    pub enabled: bool,
    /// URL of the collector; empty: `http://localhost:4318`.
    pub endpoint: String,
}
