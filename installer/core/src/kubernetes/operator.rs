//! The operator's objects: service account, Deployment, disruption budget, Service and RBAC, as the
//! Helm chart renders them.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    ObjectFieldSelector, PodSpec, PodTemplateSpec, Probe, ResourceFieldSelector, SeccompProfile,
    SecurityContext, Service, ServiceAccount, ServicePort, ServiceSpec, TopologySpreadConstraint,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::monitoring;
use super::object::Object;
use super::rbac;
use super::release::{Release, metadata, selector};
use crate::settings::values::{Controller, ProbeTiming, Values};

/// All objects of the operator, in the order in which they are applied.
pub fn objects(values: &Values, release: &Release) -> Vec<Object> {
    let mut objects = Vec::new();
    if values.service_account.create {
        objects.push(Object::new(&service_account(values, release)));
    }
    objects.extend(rbac::objects(values, release));
    objects.push(Object::new(&service(values, release)));
    objects.push(Object::new(&disruption_budget(values, release)));
    objects.push(Object::new(&deployment(values, release)));
    objects.extend(monitoring::objects(values, release));
    objects
}

fn label_selector(values: &Values, release: &Release) -> LabelSelector {
    LabelSelector { match_labels: Some(selector(values, release)), match_expressions: None }
}

fn namespaced(values: &Values, release: &Release, name: &str) -> ObjectMeta {
    metadata(values, release, name, Some(&release.namespace))
}

fn annotate(mut metadata: ObjectMeta, annotations: &BTreeMap<String, String>) -> ObjectMeta {
    if !annotations.is_empty() {
        metadata.annotations.get_or_insert_default().extend(annotations.clone());
    }
    metadata
}

fn service_account(values: &Values, release: &Release) -> ServiceAccount {
    ServiceAccount {
        metadata: annotate(
            namespaced(values, release, &values.service_account_name()),
            &values.service_account.annotations,
        ),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

fn service(values: &Values, release: &Release) -> Service {
    Service {
        metadata: annotate(
            namespaced(values, release, &values.fullname()),
            &values.service.annotations,
        ),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            ports: Some(vec![ServicePort {
                name: Some("http-metrics".to_owned()),
                port: values.controller.metrics.port,
                target_port: Some(IntOrString::String("http-metrics".to_owned())),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            selector: Some(selector(values, release)),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn disruption_budget(values: &Values, release: &Release) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: namespaced(values, release, &values.pod_disruption_budget.name),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(values.pod_disruption_budget.max_unavailable.clone()),
            selector: Some(label_selector(values, release)),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}

fn deployment(values: &Values, release: &Release) -> Deployment {
    let mut labels = values.pod_labels.clone();
    labels.extend(selector(values, release));
    Deployment {
        metadata: namespaced(values, release, &values.fullname()),
        spec: DeploymentSpec {
            replicas: Some(values.replicas),
            revision_history_limit: Some(values.revision_history_limit),
            strategy: set(&values.strategy),
            selector: label_selector(values, release),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    annotations: (!values.pod_annotations.is_empty())
                        .then(|| values.pod_annotations.clone()),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(values, release)),
            },
            ..DeploymentSpec::default()
        },
        status: None,
    }
}

fn pod(values: &Values, release: &Release) -> PodSpec {
    fn some<T>(list: &[T]) -> Option<Vec<T>>
    where
        T: Clone,
    {
        (!list.is_empty()).then(|| list.to_vec())
    }
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PodSpec {
        service_account_name: Some(values.service_account_name().into_owned()),
        automount_service_account_token: Some(true),
        image_pull_secrets: some(&values.image_pull_secrets),
        security_context: set(&values.pod_security_context),
        priority_class_name: text(&values.priority_class_name),
        termination_grace_period_seconds: values.termination_grace_period_seconds,
        host_network: values.host_network.then_some(true),
        scheduler_name: text(&values.scheduler_name),
        dns_policy: text(&values.dns_policy),
        dns_config: set(&values.dns_config),
        init_containers: some(&values.init_containers),
        node_selector: (!values.node_selector.is_empty()).then(|| values.node_selector.clone()),
        affinity: set(&affinity(values, release)),
        topology_spread_constraints: some(&spread(values, release)),
        tolerations: some(&values.tolerations),
        volumes: some(&values.extra_volumes),
        containers: std::iter::once(container(values)).chain(sidecars(values)).collect(),
        ..PodSpec::default()
    }
}

/// What says anything at all.
fn set<T: Clone + Default + PartialEq>(value: &T) -> Option<T> {
    (*value != T::default()).then(|| value.clone())
}

/// The containers beside the operator's, each with mounts.
fn sidecars(values: &Values) -> impl Iterator<Item = Container> {
    let controller = &values.controller;
    let shared = controller.extra_volume_mounts.iter().chain(&controller.sidecar_volume_mounts);
    let shared: Vec<_> = shared.cloned().collect();
    controller.sidecar_container.iter().cloned().map(move |mut sidecar| {
        if sidecar.volume_mounts.is_none() && !shared.is_empty() {
            sidecar.volume_mounts = Some(shared.clone());
        }
        sidecar
    })
}

/// Terms about pods that have no selector are about the operator's own pods.
fn affinity(values: &Values, release: &Release) -> Affinity {
    let mut affinity = values.affinity.clone();
    let (together, apart) = (affinity.pod_affinity.as_mut(), affinity.pod_anti_affinity.as_mut());
    let terms = together
        .map(|rules| {
            (
                rules.required_during_scheduling_ignored_during_execution.as_mut(),
                rules.preferred_during_scheduling_ignored_during_execution.as_mut(),
            )
        })
        .into_iter()
        .chain(apart.map(|rules| {
            (
                rules.required_during_scheduling_ignored_during_execution.as_mut(),
                rules.preferred_during_scheduling_ignored_during_execution.as_mut(),
            )
        }));
    for (required, preferred) in terms {
        let preferred = preferred.into_iter().flatten().map(|it| &mut it.pod_affinity_term);
        for term in required.into_iter().flatten().chain(preferred) {
            term.label_selector.get_or_insert_with(|| label_selector(values, release));
        }
    }
    affinity
}

fn spread(values: &Values, release: &Release) -> Vec<TopologySpreadConstraint> {
    let fill = |constraint: &TopologySpreadConstraint| {
        let mut constraint = constraint.clone();
        constraint.label_selector.get_or_insert_with(|| label_selector(values, release));
        constraint
    };
    values.topology_spread_constraints.iter().map(fill).collect()
}

fn container(values: &Values) -> Container {
    let controller = &values.controller;
    let security = &controller.security_context;
    let port = |name: &str, number: i32| ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let probe = |path: &str, timing: ProbeTiming| Probe {
        initial_delay_seconds: timing.initial_delay_seconds,
        period_seconds: timing.period_seconds,
        timeout_seconds: timing.timeout_seconds,
        failure_threshold: timing.failure_threshold,
        success_threshold: timing.success_threshold,
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("http".to_owned()),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    };
    Container {
        name: controller.name().to_owned(),
        image: Some(controller.image.reference()),
        image_pull_policy: Some(values.image_pull_policy.clone()),
        security_context: Some(SecurityContext {
            privileged: Some(false),
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            run_as_user: Some(65532),
            run_as_group: Some(65532),
            seccomp_profile: security.seccomp_profile.as_ref().and_then(set).or_else(|| {
                Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None })
            }),
            app_armor_profile: security.app_armor_profile.as_ref().and_then(set),
            se_linux_options: security.se_linux_options.as_ref().and_then(set),
            ..SecurityContext::default()
        }),
        env: Some(environment(values)),
        env_from: (!controller.env_from.is_empty()).then(|| controller.env_from.clone()),
        ports: Some(vec![
            port("http-metrics", controller.metrics.port),
            port("http", controller.health_probe.port),
        ]),
        liveness_probe: Some(probe("/healthz", controller.liveness_probe)),
        readiness_probe: Some(probe("/readyz", controller.readiness_probe)),
        resources: Some(controller.resources()),
        volume_mounts: (!controller.extra_volume_mounts.is_empty())
            .then(|| controller.extra_volume_mounts.clone()),
        ..Container::default()
    }
}

fn environment(values: &Values) -> Vec<EnvVar> {
    let plain = |name: &str, value: &str| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    };
    let resource = |name: &str, resource: &str, divisor: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            resource_field_ref: Some(ResourceFieldSelector {
                container_name: Some(values.controller.name().to_owned()),
                divisor: Some(Quantity(divisor.to_owned())),
                resource: resource.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    };
    let settings = &values.settings;
    let mut env = vec![
        plain("KUBERNETES_MIN_VERSION", "1.19.0-0"),
        plain("KARPENTER_SERVICE", &values.fullname()),
        plain("LOG_LEVEL", &values.log_level),
        plain("LOG_OUTPUT_PATHS", &values.log_output_paths.join(",")),
        plain("LOG_ERROR_OUTPUT_PATHS", &values.log_error_output_paths.join(",")),
        plain("METRICS_PORT", &values.controller.metrics.port.to_string()),
        plain("HEALTH_PROBE_PORT", &values.controller.health_probe.port.to_string()),
    ];
    env.retain(|variable| variable.value.as_ref().is_some_and(|value| !value.is_empty()));
    let Controller { decisions, dashboard, debug, tracing, .. } = &values.controller;
    env.extend(decisions.port.map(|port| plain("DECISIONS_PORT", &port.to_string())));
    if dashboard.enabled {
        env.push(plain("ENABLE_DASHBOARD", "true"));
        env.extend(dashboard.port.map(|port| plain("DASHBOARD_PORT", &port.to_string())));
    }
    env.extend(debug.port.map(|port| plain("DEBUG_PORT", &port.to_string())));
    env.extend(debug.profiling.then(|| plain("ENABLE_PROFILING", "true")));
    env.extend(tracing.enabled.then(|| plain("ENABLE_TRACING", "true")));
    if !tracing.endpoint.is_empty() {
        env.push(plain("OTEL_EXPORTER_OTLP_ENDPOINT", &tracing.endpoint));
    }
    env.extend([
        EnvVar {
            name: "SYSTEM_NAMESPACE".to_owned(),
            value: None,
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    field_path: "metadata.namespace".to_owned(),
                    api_version: None,
                }),
                ..EnvVarSource::default()
            }),
        },
        resource("CPU_REQUESTS", "requests.cpu", "1m"),
        resource("MEMORY_LIMIT", "limits.memory", "1"),
        plain("FEATURE_GATES", &settings.feature_gates.render()),
    ]);
    // Only what is set is rendered, as upstream's chart does: for the rest the operator's own
    // defaults hold.
    for (name, value) in [
        ("BATCH_MAX_DURATION", &settings.batch_max_duration),
        ("BATCH_IDLE_DURATION", &settings.batch_idle_duration),
        ("PREFERENCE_POLICY", &settings.preference_policy),
        ("MIN_VALUES_POLICY", &settings.min_values_policy),
        ("CLUSTER_CA_BUNDLE", &settings.cluster_ca_bundle),
        ("CLUSTER_NAME", &settings.cluster_name),
        ("CLUSTER_ENDPOINT", &settings.cluster_endpoint),
        ("INTERRUPTION_QUEUE", &settings.interruption_queue),
        ("RESERVED_ENIS", &settings.reserved_enis),
        ("AMI_REFRESH_INTERVAL", &settings.ami_refresh_interval),
        ("SUBNET_REFRESH_INTERVAL", &settings.subnet_refresh_interval),
        ("NODE_PRICE", &settings.node_price),
        ("LARGEST_SHARE", &settings.largest_share),
        ("FEW_NODES", &settings.few_nodes),
        ("SCHEDULER_CONFIG", &settings.scheduler_config),
        ("KOPS_STATE_STORE", &settings.kops_state_store),
    ] {
        if !value.is_empty() {
            env.push(plain(name, value));
        }
    }
    if settings.vm_memory_overhead_percent > 0.0 {
        env.push(plain(
            "VM_MEMORY_OVERHEAD_PERCENT",
            &settings.vm_memory_overhead_percent.to_string(),
        ));
    }
    for (name, value) in [
        ("ISOLATED_VPC", settings.isolated_vpc),
        ("STATIC_INSTANCE_PROFILES", settings.static_instance_profiles),
        ("EKS_CONTROL_PLANE", settings.eks_control_plane),
        ("ENABLE_ZONAL_SHIFT", settings.enable_zonal_shift),
        ("DISABLE_CLUSTER_STATE_OBSERVABILITY", settings.disable_cluster_state_observability),
        ("DISABLE_DRY_RUN", settings.disable_dry_run),
    ] {
        if value {
            env.push(plain(name, "true"));
        }
    }
    // On by default in the operator.
    for (name, value) in [
        ("IGNORE_DRA_REQUESTS", settings.ignore_dra_requests),
        ("NOMINATE_PODS", settings.nominate_pods),
    ] {
        if !value {
            env.push(plain(name, "false"));
        }
    }
    // A variable may be there once only, and the values' own count.
    let own = &values.controller.env;
    env.retain(|variable| own.iter().all(|one| one.name != variable.name));
    env.extend(own.iter().cloned());
    env
}
