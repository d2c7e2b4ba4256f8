//! What of Karpenter's Deployment becomes Tenon's, is told, or is in the way: every way in which
//! its container is told something, and every field of its pods.

use serde_json::Value;
use tenon_installer_core::kubernetes::lease::Place;
use tenon_installer_core::settings::values::Values;

use super::*;
use crate::adopt::fit;
use crate::options::{Kind, Options, Sources};

/// What becomes of it.
enum Becomes {
    /// A value of the chart, by its JSON pointer.
    Value(&'static str, Value),
    /// A warning with this text.
    Told(&'static str),
    /// A reason against the adoption with this text.
    Refused(&'static str),
    /// Nothing: no value differs from the chart's, and nothing is told.
    Nothing,
}
use Becomes::{Nothing, Refused, Told};

fn value(pointer: &'static str, value: impl Into<Value>) -> Becomes {
    Becomes::Value(pointer, value.into())
}

/// Karpenter's Deployment as its chart renders it, with nothing special.
fn plain() -> Value {
    let labels =
        json!({"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"});
    let term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "karpenter", "namespace": "kube-system"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "serviceAccountName": "karpenter",
                "serviceAccount": "karpenter",
                "restartPolicy": "Always",
                "dnsPolicy": "ClusterFirst",
                "schedulerName": "default-scheduler",
                "terminationGracePeriodSeconds": 30,
                "automountServiceAccountToken": true,
                "priorityClassName": "system-cluster-critical",
                "securityContext": {"fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]},
                    ]}},
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
                },
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": labels},
                }],
                "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
                "containers": [container()],
            },
        }},
    })
}

fn container() -> Value {
    json!({
                    "name": "controller",
                    "image": "public.ecr.aws/karpenter/controller:1.14.1",
                    "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "securityContext": {
                        "privileged": false, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "ports": [{"name": "http-metrics", "containerPort": 8080, "protocol": "TCP"}],
                    "livenessProbe": {"initialDelaySeconds": 30, "timeoutSeconds": 30, "periodSeconds": 10, "httpGet": {"path": "/healthz", "port": "http"}},
                    "readinessProbe": {"initialDelaySeconds": 5, "timeoutSeconds": 30, "failureThreshold": 3, "httpGet": {"path": "/readyz", "port": "http"}},
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
                    "env": environment(),
    })
}

/// What its chart tells it.
fn environment() -> Value {
    json!([
        {"name": "KUBERNETES_MIN_VERSION", "value": "1.19.0-0"},
        {"name": "KARPENTER_SERVICE", "value": "karpenter"},
        {"name": "LOG_LEVEL", "value": "info"},
        {"name": "LOG_OUTPUT_PATHS", "value": "stdout"},
        {"name": "LOG_ERROR_OUTPUT_PATHS", "value": "stderr"},
        {"name": "METRICS_PORT", "value": "8080"},
        {"name": "HEALTH_PROBE_PORT", "value": "8081"},
        {"name": "SYSTEM_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "CPU_REQUESTS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
        {"name": "MEMORY_LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
        {"name": "CLUSTER_NAME", "value": "prod"},
    ])
}

fn sources() -> Sources {
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    Sources::new(BTreeMap::from([
        ((Kind::ConfigMap, "map".to_owned()), map(&[("BATCH_MAX_DURATION", "40s"), ("TEAM", "a")])),
        ((Kind::ConfigMap, "alone".to_owned()), map(&[("DISABLE_LEADER_ELECTION", "true")])),
        (
            (Kind::Secret, "hidden".to_owned()),
            map(&[
                ("CLUSTER_ENDPOINT", "https://hush"),
                ("LOG_LEVEL", "debug"),
                ("LEADER_ELECTION_NAME", "hush"),
            ]),
        ),
    ]))
}

fn found(deployment: Value) -> Karpenter {
    let mut operator = Operator::of(deployment).expect("it is Karpenter");
    operator.options = Options::of(operator.container(), &sources());
    Karpenter { operator, queue: None, rules: BTreeMap::new(), ..karpenter() }
}

/// Everything that can be said about it: the chart's values, what is told, what is in the way.
fn outcome(deployment: Value) -> (Values, Vec<String>, Vec<String>) {
    let found = found(deployment);
    let (desired, _) = beside(&found);
    let told = derived::carried(&found).told;
    assert!(!told.join("\n").contains("hush"), "a Secret's value is told: {told:?}");
    let recorded = serde_json::to_string(&desired.values).expect("JSON");
    let refused = fit::against_adoption(&found, &desired);
    assert!(!recorded.contains("hush") || !refused.is_empty(), "a Secret's value is recorded");
    (desired.values, told, refused)
}

fn check(what: &str, deployment: Value, expected: Becomes) {
    let (values, told, refused) = outcome(deployment);
    let (told, refused) = (told.join("\n"), refused.join("\n"));
    match expected {
        Becomes::Value(pointer, expected) => {
            let values = serde_json::to_value(&values).expect("JSON");
            assert_eq!(values.pointer(pointer), Some(&expected), "{what}: {told}");
            assert_eq!(refused, "", "{what}");
        }
        Told(text) => {
            assert!(told.contains(text), "{what}: {told}");
            assert_eq!(refused, "", "{what}");
        }
        Refused(text) => assert!(refused.contains(text), "{what}: {refused}"),
        Nothing => {
            assert_eq!((told.as_str(), refused.as_str()), ("", ""), "{what}");
            let (plain, ..) = outcome(plain());
            assert_eq!(values, plain, "{what}");
        }
    }
}

/// With another variable of the container.
fn with_variable(entry: Value) -> Value {
    let mut deployment = plain();
    let env = &mut deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    let env = env.as_array_mut().expect("a list");
    env.retain(|other| other["name"] != entry["name"]);
    env.push(entry);
    deployment
}

#[test]
fn what_karpenter_s_chart_renders_is_what_tenon_s_renders() {
    let (values, told, refused) = outcome(plain());
    assert_eq!((told, refused), (Vec::new(), Vec::new()));
    let mut expected = Values::default();
    "tenon".clone_into(&mut expected.fullname_override);
    "tenon".clone_into(&mut expected.pod_disruption_budget.name);
    (expected.service_account.create, expected.service_account.name) = (false, "karpenter".into());
    "prod".clone_into(&mut expected.settings.cluster_name);
    // Filled in by the installer, whatever Karpenter has.
    expected.service_account.annotations = values.service_account.annotations.clone();
    expected.controller.image = values.controller.image.clone();
    assert_eq!(values, expected);
}

#[test]
fn each_option_is_carried_over_or_told_or_in_the_way() {
    let rows = [
        ("BATCH_MAX_DURATION", "30s", value("/settings/batchMaxDuration", "30s")),
        ("BATCH_MAX_DURATION", "1m0s", value("/settings/batchMaxDuration", "1m0s")),
        ("BATCH_MAX_DURATION", "soon", Told("`soon` and not a duration")),
        ("BATCH_IDLE_DURATION", "2s", value("/settings/batchIdleDuration", "2s")),
        ("BATCH_IDLE_DURATION", "20s", value("/settings/batchIdleDuration", "10s")),
        ("BATCH_IDLE_DURATION", "20s", Told("longer than a whole batch (10s)")),
        ("PREFERENCE_POLICY", "Ignore", value("/settings/preferencePolicy", "Ignore")),
        ("MIN_VALUES_POLICY", "BestEffort", value("/settings/minValuesPolicy", "BestEffort")),
        ("CLUSTER_CA_BUNDLE", "Zm9v", value("/settings/clusterCABundle", "Zm9v")),
        ("CLUSTER_ENDPOINT", "https://e", value("/settings/clusterEndpoint", "https://e")),
        ("RESERVED_ENIS", "1", value("/settings/reservedENIs", "1")),
        ("AMI_REFRESH_INTERVAL", "5m", value("/settings/amiRefreshInterval", "5m")),
        ("AMI_REFRESH_INTERVAL", "5s", Told("`5s` and not a duration of 1m or more")),
        ("SUBNET_REFRESH_INTERVAL", "5m", value("/settings/subnetRefreshInterval", "5m")),
        ("VM_MEMORY_OVERHEAD_PERCENT", "0.1", value("/settings/vmMemoryOverheadPercent", 0.1)),
        ("VM_MEMORY_OVERHEAD_PERCENT", "x", Told("`x` and not a number")),
        ("ISOLATED_VPC", "true", value("/settings/isolatedVPC", true)),
        ("ISOLATED_VPC", "1", Told("`1` and not true or false")),
        ("EKS_CONTROL_PLANE", "true", value("/settings/eksControlPlane", true)),
        ("ENABLE_ZONAL_SHIFT", "true", value("/settings/enableZonalShift", true)),
        ("IGNORE_DRA_REQUESTS", "false", value("/settings/ignoreDRARequests", false)),
        (
            "DISABLE_CLUSTER_STATE_OBSERVABILITY",
            "true",
            value("/settings/disableClusterStateObservability", true),
        ),
        ("DISABLE_DRY_RUN", "true", value("/settings/disableDryRun", true)),
        (
            "FEATURE_GATES",
            "NodeRepair=true, ReservedCapacity=false",
            value("/settings/featureGates/nodeRepair", true),
        ),
        ("FEATURE_GATES", "Unheard=true", Told("gate Unheard is on")),
        ("FEATURE_GATES", "Unheard=false", Nothing),
        ("FEATURE_GATES", "NodeRepair", Told("`NodeRepair`, which is not of the form")),
        ("LOG_LEVEL", "debug", value("/logLevel", "debug")),
        ("LOG_LEVEL", "-4", Told("`-4` and not one of debug")),
        ("METRICS_PORT", "9000", value("/controller/metrics/port", 9000)),
        ("HEALTH_PROBE_PORT", "9001", value("/controller/healthProbe/port", 9001)),
        ("LOG_OUTPUT_PATHS", "/var/log/k", Told("LOG_OUTPUT_PATHS")),
        ("LOG_ERROR_OUTPUT_PATHS", "/var/log/k", Told("LOG_ERROR_OUTPUT_PATHS")),
        ("KUBE_CLIENT_QPS", "50", Told("KUBE_CLIENT_QPS")),
        ("KUBE_CLIENT_BURST", "50", Told("KUBE_CLIENT_BURST")),
        ("KUBE_CLIENT_BURST", "300", Nothing),
        ("ENABLE_PROFILING", "true", Told("ENABLE_PROFILING")),
        ("DISABLE_CONTROLLER_WARMUP", "false", Told("DISABLE_CONTROLLER_WARMUP")),
        ("SCHEDULER_CONFIG", "{}", value("/settings/schedulerConfig", "{}")),
        ("GOMEMLIMIT", "900MiB", Told("GOMEMLIMIT")),
        ("DISABLE_WEBHOOK", "false", Nothing),
        ("WEBHOOK_PORT", "8443", Nothing),
        ("DISABLE_LEADER_ELECTION", "true", Refused("DISABLE_LEADER_ELECTION=true")),
        ("DISABLE_LEADER_ELECTION", "false", Nothing),
        ("LEADER_ELECTION_NAME", "mine", value("/controller/env/0/value", "mine")),
        ("LEADER_ELECTION_NAMESPACE", "leases", value("/controller/env/0/value", "leases")),
        ("LEGACY_NODE_REPAIR", "true", value("/controller/env/0/name", "LEGACY_NODE_REPAIR")),
        ("AWS_FEATURE_GATES", "NodeClassCEL=false", Nothing),
        ("AWS_FEATURE_GATES", "NodeClassCEL=true", Told("CEL expressions")),
        ("HTTP_PROXY", "http://p:3128", value("/controller/env/0/value", "http://p:3128")),
        ("HTTPS_PROXY", "http://p:3128", value("/controller/env/0/name", "HTTPS_PROXY")),
        ("NO_PROXY", ".internal", value("/controller/env/0/value", ".internal")),
        ("AWS_CA_BUNDLE", "/ca/x.pem", value("/controller/env/0/value", "/ca/x.pem")),
        ("AWS_STS_REGIONAL_ENDPOINTS", "regional", value("/controller/env/0/value", "regional")),
        ("ANYTHING", "$(CLUSTER_NAME)-x", value("/controller/env/0/value", "$(CLUSTER_NAME)-x")),
    ];
    for (variable, text, expected) in rows {
        let what = format!("{variable}={text}");
        check(&what, with_variable(json!({"name": variable, "value": text})), expected);
    }
}

#[test]
fn options_count_wherever_they_are_said() {
    let with = |field: &str, list: Value| {
        let mut deployment = plain();
        deployment["spec"]["template"]["spec"]["containers"][0][field] = list;
        deployment
    };
    let from = |name: &str| json!([{"configMapRef": {"name": name}}]);
    let key = |variable: &str, kind: &str, name: &str| {
        with_variable(
            json!({"name": variable, "valueFrom": {kind: {"name": name, "key": variable}}}),
        )
    };
    let arguments = |list: &[&str]| with("args", json!(list));
    let rows = [
        ("a ConfigMap", with("envFrom", from("map")), value("/settings/batchMaxDuration", "40s")),
        ("the rest of it", with("envFrom", from("map")), value("/controller/envFrom", from("map"))),
        ("leadership in it", with("envFrom", from("alone")), Refused("(from ConfigMap alone)")),
        (
            "a key of a ConfigMap",
            key("BATCH_MAX_DURATION", "configMapKeyRef", "map"),
            value("/settings/batchMaxDuration", "40s"),
        ),
        (
            "a key of a Secret is referred to",
            key("CLUSTER_ENDPOINT", "secretKeyRef", "hidden"),
            value("/controller/env/0/valueFrom/secretKeyRef/name", "hidden"),
        ),
        (
            "and leaves the value itself empty",
            key("CLUSTER_ENDPOINT", "secretKeyRef", "hidden"),
            value("/settings/clusterEndpoint", ""),
        ),
        ("a level in a Secret", key("LOG_LEVEL", "secretKeyRef", "hidden"), Told("Secret hidden")),
        (
            "a Lease in a Secret",
            key("LEADER_ELECTION_NAME", "secretKeyRef", "hidden"),
            Refused("LEADER_ELECTION_NAME from a Secret"),
        ),
        (
            "a flag",
            arguments(&["--batch-max-duration=50s"]),
            value("/settings/batchMaxDuration", "50s"),
        ),
        ("two words", arguments(&["-log-level", "error"]), value("/logLevel", "error")),
        ("a switch", arguments(&["--disable-leader-election"]), Refused("a flag of its container")),
        (
            "a Lease",
            arguments(&["--leader-election-name=mine"]),
            value("/controller/env/0/value", "mine"),
        ),
        (
            "another variable of a Secret",
            with_variable(
                json!({"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "T"}}}),
            ),
            value("/controller/env/0/valueFrom/secretKeyRef/key", "T"),
        ),
    ];
    for (what, deployment, expected) in rows {
        check(what, deployment, expected);
    }
}

/// What it is about, changes to the template of the pods, and what becomes of them.
type Row = (&'static str, Vec<(&'static str, Value)>, Becomes);

#[test]
fn each_field_of_its_pods_is_carried_over_or_told() {
    let labels =
        json!({"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"});
    let ours =
        json!({"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "tenon"});
    let zone = |selector: &Value| json!([{"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": selector}}}]);
    let spread = |selector: Option<&Value>| {
        let mut one =
            json!({"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
        if let Some(selector) = selector {
            one["labelSelector"] = json!({"matchLabels": selector});
        }
        json!([one])
    };
    let other = json!({"app": "db"});
    let on = json!([{"key": "dedicated", "operator": "Exists"}]);
    let certificate = json!([{"name": "ca", "configMap": {"name": "corporate-ca"}}]);
    let claim = json!([{"name": "ca", "persistentVolumeClaim": {"claimName": "c"}}]);
    let mount = json!([{"name": "ca", "mountPath": "/etc/ssl/corporate"}]);
    let rows: Vec<Row> = vec![
        (
            "priority",
            vec![("/spec/priorityClassName", "mine".into())],
            value("/priorityClassName", "mine"),
        ),
        ("tolerations", vec![("/spec/tolerations", on.clone())], value("/tolerations", on)),
        (
            "selector",
            vec![("/spec/nodeSelector", json!({"pool": "system"}))],
            value("/nodeSelector", json!({"pool": "system"})),
        ),
        ("DNS policy", vec![("/spec/dnsPolicy", "Default".into())], value("/dnsPolicy", "Default")),
        (
            "scheduler",
            vec![("/spec/schedulerName", "mine".into())],
            value("/schedulerName", "mine"),
        ),
        (
            "grace",
            vec![("/spec/terminationGracePeriodSeconds", 60.into())],
            value("/terminationGracePeriodSeconds", 60),
        ),
        (
            "pull secrets",
            vec![("/spec/imagePullSecrets", json!([{"name": "r"}]))],
            value("/imagePullSecrets/0/name", "r"),
        ),
        (
            "pod security",
            vec![("/spec/securityContext", json!({"fsGroup": 1}))],
            value("/podSecurityContext", json!({"fsGroup": 1})),
        ),
        (
            "resources",
            vec![("/spec/containers/0/resources", json!({"requests": {"cpu": "2"}}))],
            value("/controller/resources", json!({"requests": {"cpu": "2"}})),
        ),
        (
            "no resources",
            vec![("/spec/containers/0/resources", json!({}))],
            Told("requests no CPU"),
        ),
        (
            "labels",
            vec![("/metadata/labels/team", "a".into())],
            value("/podLabels", json!({"team": "a"})),
        ),
        (
            "annotations",
            vec![(
                "/metadata/annotations",
                json!({"a": "b", "kubectl.kubernetes.io/restartedAt": "x"}),
            )],
            value("/podAnnotations", json!({"a": "b"})),
        ),
        (
            "a CA",
            vec![
                ("/spec/volumes", certificate.clone()),
                ("/spec/containers/0/volumeMounts", mount.clone()),
            ],
            value("/extraVolumes", certificate.clone()),
        ),
        (
            "its mount",
            vec![
                ("/spec/volumes", json!([{"name": "ca"}])),
                ("/spec/containers/0/volumeMounts", mount.clone()),
            ],
            value("/controller/extraVolumeMounts", mount.clone()),
        ),
        (
            "a claim",
            vec![("/spec/volumes", claim), ("/spec/containers/0/volumeMounts", mount.clone())],
            Told("ReadWriteMany"),
        ),
        ("a volume of others", vec![("/spec/volumes", json!([{"name": "x"}]))], Told("volume x")),
        (
            "affinity to others",
            vec![(
                "/spec/affinity/podAffinity",
                json!({"preferredDuringSchedulingIgnoredDuringExecution": zone(&other)}),
            )],
            value(
                "/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution",
                zone(&other),
            ),
        ),
        (
            "anti-affinity among its own pods is about Tenon's then",
            vec![(
                "/spec/affinity/podAntiAffinity",
                json!({"preferredDuringSchedulingIgnoredDuringExecution": zone(&labels)}),
            )],
            value(
                "/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution",
                zone(&ours),
            ),
        ),
        (
            "no anti-affinity",
            vec![("/spec/affinity", json!({}))],
            value(
                "/affinity",
                json!({"nodeAffinity": plain()["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]}),
            ),
        ),
        (
            "and never on nodes of its own",
            vec![("/spec/affinity", json!({}))],
            value(
                "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/operator",
                "DoesNotExist",
            ),
        ),
        (
            "an anti-affinity that keeps Tenon's pods away",
            vec![(
                "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector/matchLabels",
                json!({"app.kubernetes.io/name": "karpenter"}),
            )],
            value("/nameOverride", "tenon"),
        ),
        (
            "spread",
            vec![("/spec/topologySpreadConstraints", spread(Some(&labels)))],
            value("/topologySpreadConstraints", spread(None)),
        ),
        (
            "spread over others",
            vec![("/spec/topologySpreadConstraints", spread(Some(&other)))],
            value("/topologySpreadConstraints", spread(Some(&other))),
        ),
        (
            "no spread",
            vec![("/spec/topologySpreadConstraints", json!([]))],
            value("/topologySpreadConstraints", json!([])),
        ),
        ("host network", vec![("/spec/hostNetwork", true.into())], value("/hostNetwork", true)),
        (
            "its ports",
            vec![("/spec/hostNetwork", true.into())],
            value("/controller/metrics/port", 8082),
        ),
        (
            "are told",
            vec![("/spec/hostNetwork", true.into())],
            Told("8082 for metrics and 8083 for probes"),
        ),
        (
            "DNS servers",
            vec![("/spec/dnsConfig", json!({"nameservers": ["10.0.0.2"]}))],
            value("/dnsConfig/nameservers", json!(["10.0.0.2"])),
        ),
        (
            "host names",
            vec![("/spec/hostAliases", json!([{"ip": "10.0.0.1"}]))],
            Told("hostAliases"),
        ),
        (
            "init containers",
            vec![("/spec/initContainers", json!([{"name": "x", "image": "wait:1"}]))],
            value("/initContainers", json!([{"name": "x", "image": "wait:1"}])),
        ),
        (
            "a runtime class",
            vec![("/spec/runtimeClassName", "gvisor".into())],
            Told("runtimeClassName"),
        ),
        (
            "what nobody thought of",
            vec![("/spec/newField", true.into())],
            Told("newField of Karpenter's pods"),
        ),
        (
            "a sidecar",
            vec![("/spec/containers/1", json!({"name": "proxy", "image": "envoy:1"}))],
            value(
                "/controller/sidecarContainer",
                json!([{"name": "proxy", "image": "envoy:1", "volumeMounts": []}]),
            ),
        ),
        (
            "a sidecar with a volume of its own",
            vec![
                ("/spec/volumes", certificate.clone()),
                (
                    "/spec/containers/1",
                    json!({"name": "proxy", "image": "envoy:1", "volumeMounts": mount}),
                ),
            ],
            value("/extraVolumes", certificate.clone()),
        ),
        (
            "a sidecar on the port for debugging",
            vec![(
                "/spec/containers/1",
                json!({"name": "proxy", "image": "envoy:1", "ports": [{"containerPort": 8082}]}),
            )],
            value("/controller/debug/port", 0),
        ),
        (
            "a patient probe",
            vec![("/spec/containers/0/livenessProbe/periodSeconds", 30.into())],
            value("/controller/livenessProbe/periodSeconds", 30),
        ),
        (
            "an impatient probe",
            vec![("/spec/containers/0/readinessProbe/timeoutSeconds", 2.into())],
            value("/controller/readinessProbe/timeoutSeconds", 2),
        ),
        (
            "a profile",
            vec![(
                "/spec/containers/0/securityContext/appArmorProfile",
                json!({"type": "RuntimeDefault"}),
            )],
            value("/controller/securityContext/appArmorProfile/type", "RuntimeDefault"),
        ),
        (
            "a life cycle",
            vec![("/spec/containers/0/lifecycle", json!({"preStop": {}}))],
            Told("lifecycle of Karpenter's container"),
        ),
        (
            "privileges",
            vec![("/spec/containers/0/securityContext/runAsUser", 0.into())],
            Told("securityContext.runAsUser"),
        ),
        (
            "a port of the host",
            vec![("/spec/containers/0/ports/0/hostPort", 8080.into())],
            Told("hostPort"),
        ),
        ("the usual link", vec![("/spec/enableServiceLinks", true.into())], Nothing),
    ];
    for (what, changes, expected) in rows {
        let mut deployment = plain();
        for (pointer, value) in changes {
            set(&mut deployment["spec"]["template"], pointer, value);
        }
        check(what, deployment, expected);
    }
}

/// Sets a value by its JSON pointer, in lists as well.
fn set(body: &mut Value, pointer: &str, value: Value) {
    let mut place = body;
    for key in pointer.split('/').skip(1) {
        place = match key.parse::<usize>() {
            Ok(index) => {
                let list = place.as_array_mut().expect("a list");
                if list.len() <= index {
                    list.push(Value::Null);
                }
                &mut list[index]
            }
            Err(_) => &mut place[key],
        };
    }
    *place = value;
}

#[test]
fn a_container_before_karpenter_s_is_not_taken_for_it() {
    let mut deployment = plain();
    let containers = &mut deployment["spec"]["template"]["spec"]["containers"];
    let containers = containers.as_array_mut().expect("a list");
    containers.insert(0, json!({"name": "mesh", "image": "mesh:1"}));
    let found = found(deployment);
    assert_eq!(found.operator.container()["name"], "controller");
    assert_eq!(found.operator.options.value("CLUSTER_NAME"), Some("prod"));
}

#[test]
fn what_is_given_wins_and_loses_nothing_else() {
    let found = found(with_variable(json!({"name": "HTTPS_PROXY", "value": "http://p:3128"})));
    let mut config = Config::default();
    let given =
        json!({"env": [{"name": "A", "value": "b"}, {"name": "HTTPS_PROXY", "value": "other"}]});
    config.deploy.values.insert("controller".to_owned(), given);
    let config = derived::adopted(config, &found);
    assert_eq!(
        config.deploy.values["controller"]["env"],
        json!([{"name": "A", "value": "b"}, {"name": "HTTPS_PROXY", "value": "other"}])
    );
    let mut config = Config::default();
    let given = json!({"env": [{"name": "A", "value": "b"}]});
    config.deploy.values.insert("controller".to_owned(), given);
    let first = derived::adopted(config, &found);
    let names = |config: &Config| {
        let env = config.deploy.values["controller"]["env"].as_array().cloned();
        env.unwrap_or_default().iter().map(|it| it["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first), ["HTTPS_PROXY", "A"]);
    assert_eq!(derived::adopted(first.clone(), &found), first, "a second look changes nothing");
}

#[test]
fn another_lease_is_followed_by_every_step() {
    let found = found(with_variable(json!({"name": "LEADER_ELECTION_NAME", "value": "mine"})));
    let (desired, actual) = beside(&found);
    assert_eq!(fit::against_adoption(&found, &desired), [""; 0]);
    let mut without = desired.clone();
    without.manage_operator = false;
    let reasons = fit::against_adoption(&found, &without).join("\n");
    assert!(reasons.contains("takes over from Karpenter"), "{reasons}");
    let ours = desired.deployment().expect("a Deployment");
    assert_eq!(Place::of(&ours.body), found.operator.lease());
    let plan = adoption(&found, &desired, &actual);
    let last = plan.steps.last().expect("steps");
    assert_eq!((last.id.as_str(), last.resource.as_str()), ("leader", "kube-system/mine"));
    let roles = desired.operator.iter().filter(|object| object.resource.kind == "Role");
    let may = roles.map(|role| role.body.to_string()).collect::<String>();
    assert!(may.contains("\"mine\""), "its role may hold it: {may}");
}

#[test]
fn two_that_would_lead_by_different_leases_are_refused_there_and_back() {
    let mut config = Config::default();
    config.cluster.name = Some("prod".to_owned());
    let usual = found(plain());
    let (desired, _) = beside(&usual);
    let (after, actual) = handed_over(&usual, &desired);
    assert_eq!(fit::against_return(&after, &desired, &actual), [""; 0]);
    // Somebody changed Karpenter's Deployment after the hand-over.
    for (variable, text, expected) in [
        ("LEADER_ELECTION_NAME", "mine", "uses the Lease kube-system/mine"),
        ("DISABLE_LEADER_ELECTION", "true", "DISABLE_LEADER_ELECTION=true"),
    ] {
        let mut changed = after.clone();
        changed.operator.options.set(variable, text);
        let reasons = fit::against_return(&changed, &desired, &actual).join("\n");
        assert!(reasons.contains(expected), "{reasons}");
        // What was handed over needs no hand-over, and nothing is in its way.
        assert_eq!(fit::against_adoption(&changed, &desired), [""; 0]);
        // With our pods gone, nobody is there to lead beside it.
        let mut gone = actual.clone();
        gone.objects.clear();
        assert_eq!(fit::against_return(&changed, &desired, &gone), [""; 0]);
    }
}

#[test]
fn ports_of_nodes_are_never_shared() {
    let mut deployment = plain();
    deployment["spec"]["template"]["spec"]["hostNetwork"] = true.into();
    deployment["spec"]["template"]["metadata"]["annotations"] =
        json!({"prometheus.io/port": "8080"});
    let mut on_host = found(deployment);
    on_host.host_ports = [8080, 8081, 8082, 8084].into();
    let (desired, _) = beside(&on_host);
    let controller = &desired.values.controller;
    assert_eq!((controller.metrics.port, controller.health_probe.port), (8083, 8085));
    assert_eq!(desired.values.pod_annotations["prometheus.io/port"], "8083");
    assert_eq!(fit::against_adoption(&on_host, &desired), [""; 0]);
    // Given ones are looked at before anything is changed.
    let mut colliding = desired.clone();
    colliding.values.controller.metrics.port = 8081;
    let reasons = fit::against_adoption(&on_host, &colliding).join("\n");
    assert!(reasons.contains("port 8081"), "{reasons}");
    // On the way back what runs counts, not what is asked for.
    let (after, mut actual) = handed_over(&on_host, &desired);
    assert_eq!(fit::against_return(&after, &desired, &actual), [""; 0]);
    let ours = desired.deployment().expect("a Deployment").key();
    let live = actual.objects.get_mut(&ours).expect("it is there");
    let env = &mut live["spec"]["template"]["spec"]["containers"][0]["env"];
    for entry in env.as_array_mut().expect("a list") {
        if entry["name"] == "METRICS_PORT" {
            entry["value"] = "8080".into();
        }
    }
    let reasons = fit::against_return(&after, &desired, &actual).join("\n");
    assert!(reasons.contains("port 8080"), "{reasons}");
}

#[test]
fn a_return_that_was_killed_looks_who_leads() {
    let found = found(plain());
    let (desired, _) = beside(&found);
    let (mut after, mut actual) = handed_over(&found, &desired);
    // Karpenter's pods are back and ours are gone; the run ended there.
    let ours = desired.deployment().expect("a Deployment").key();
    actual.objects.remove(&ours);
    let mut live = after.operator.live.body.clone();
    live["spec"]["replicas"] = 2.into();
    after.operator = Operator::of(live).expect("it is Karpenter");
    let back = steps::undo(&after, &desired, &actual, SECONDS);
    assert!(ids(&back).contains(&"leader"), "{:?}", ids(&back));
    // One that works without a Lease leaves nothing to look at.
    let mut alone = after.clone();
    alone.operator.options.set("DISABLE_LEADER_ELECTION", "true");
    let back = steps::undo(&alone, &desired, &actual, SECONDS);
    assert!(!ids(&back).contains(&"leader"), "{:?}", ids(&back));
    // One that had no replicas has nobody who could lead.
    after.operator.replicas = 0;
    let back = steps::undo(&after, &desired, &actual, SECONDS);
    assert!(!ids(&back).contains(&"leader"), "{:?}", ids(&back));
}
