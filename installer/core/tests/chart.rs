//! The Helm charts render the same objects as the installer builds: proven with the real
//! `helm template` over many value sets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tenon_installer_core::kubernetes::crds;
use tenon_installer_core::kubernetes::object::first_difference;
use tenon_installer_core::kubernetes::operator;
use tenon_installer_core::kubernetes::release::Release;
use tenon_installer_core::settings::values::{Values, merge};

#[path = "chart/karpenter.rs"]
mod karpenter;

/// Each is a values file as a user would write it.
const VALUE_SETS: [(&str, &str); 32] = [
    ("nothing", "{}"),
    (
        "one replica and another image",
        "replicas: 1\ncontroller:\n  image:\n    repository: registry.example.com/tenon\n    tag: 1.2.3\n",
    ),
    ("a digest", "controller:\n  image:\n    digest: sha256:0123\n"),
    (
        "other names",
        "nameOverride: scaler\nfullnameOverride: my-scaler\nserviceAccount:\n  name: my-account\n",
    ),
    ("no service account", "serviceAccount:\n  create: false\n"),
    (
        "annotations everywhere",
        "additionalAnnotations:\n  a: b\nserviceAccount:\n  annotations:\n    eks.amazonaws.com/role-arn: arn\nservice:\n  annotations:\n    c: d\npodAnnotations:\n  e: f\n",
    ),
    (
        "labels, one of them ours",
        "additionalLabels:\n  team: x\n  app.kubernetes.io/version: v9\n  app.kubernetes.io/name: stolen\npodLabels:\n  app.kubernetes.io/name: stolen\n  x: z\n",
    ),
    (
        "pods placed elsewhere",
        "nodeSelector:\n  pool: system\naffinity:\n  podAntiAffinity:\n    preferredDuringSchedulingIgnoredDuringExecution: []\n    requiredDuringSchedulingIgnoredDuringExecution:\n      - topologyKey: zone\n        labelSelector:\n          matchLabels:\n            a: b\ntolerations: []\ntopologySpreadConstraints:\n  - maxSkew: 2\n    topologyKey: zone\n    whenUnsatisfiable: ScheduleAnyway\n    labelSelector:\n      matchLabels:\n        a: b\n",
    ),
    (
        "ports and resources",
        "controller:\n  metrics:\n    port: 9090\n  healthProbe:\n    port: 9091\n  debug:\n    port: 9092\n    profiling: true\n  tracing:\n    enabled: true\n    endpoint: http://collector:4318\n  resources:\n    requests:\n      cpu: '2'\n    limits:\n      memory: 4Gi\n",
    ),
    ("the dashboard", "controller:\n  dashboard:\n    enabled: true\n"),
    (
        "the dashboard on another port",
        "fullnameOverride: scaler\ncontroller:\n  dashboard:\n    enabled: true\n    port: 9093\n",
    ),
    ("no port for debugging", "controller:\n  debug:\n    port: 0\n"),
    (
        "more environment",
        "controller:\n  env:\n    - name: A\n      value: b\n  envFrom:\n    - configMapRef:\n        name: more\n  extraVolumeMounts:\n    - name: v\n      mountPath: /v\nextraVolumes:\n  - name: v\n    emptyDir: {}\n",
    ),
    (
        "names resolved otherwise and containers before",
        "dnsPolicy: None\ndnsConfig:\n  nameservers: [10.0.0.2]\n  searches: [svc.cluster.local]\n  options:\n    - name: ndots\n      value: '1'\n    - name: edns0\ninitContainers:\n  - name: wait\n    image: busybox:1\n    command: [sh, -c, 'true']\n    volumeMounts:\n      - name: v\n        mountPath: /w\n",
    ),
    (
        "containers beside",
        "controller:\n  sidecarContainer:\n    - name: proxy\n      image: proxy:1\n      ports:\n        - containerPort: 15001\n    - name: own-mounts\n      image: other:1\n      volumeMounts:\n        - name: own\n          mountPath: /own\n    - name: no-mounts\n      image: third:1\n      volumeMounts: []\n  sidecarVolumeMounts:\n    - name: side\n      mountPath: /side\n",
    ),
    (
        "patient probes",
        "controller:\n  livenessProbe:\n    initialDelaySeconds: 120\n    periodSeconds: 20\n    failureThreshold: 6\n  readinessProbe:\n    initialDelaySeconds: null\n    timeoutSeconds: 5\n    successThreshold: 2\n",
    ),
    (
        "other profiles",
        "controller:\n  securityContext:\n    appArmorProfile:\n      type: RuntimeDefault\n    seLinuxOptions:\n      type: spc_t\n    seccompProfile:\n      type: Localhost\n      localhostProfile: tenon.json\nstrategy:\n  rollingUpdate:\n    maxSurge: 0\n    maxUnavailable: 50%\n",
    ),
    (
        "what Karpenter's chart has for nothing",
        "dnsConfig: {}\ninitContainers: {}\ncontroller:\n  securityContext:\n    appArmorProfile: {}\n    seLinuxOptions: {}\n    seccompProfile: {}\n  sidecarContainer: []\n",
    ),
    (
        "another Lease",
        "controller:\n  env:\n    - name: LEADER_ELECTION_NAME\n      value: other-lease\n    - name: SECRET\n      valueFrom:\n        secretKeyRef:\n          name: hidden\n          key: a\n",
    ),
    ("variables that are there already", OWN_VARIABLES),
    (
        "settings off",
        "settings:\n  ignoreDRARequests: false\n  vmMemoryOverheadPercent: 0\n  batchMaxDuration: ''\n  reservedENIs: ''\n",
    ),
    (
        "settings on",
        "settings:\n  interruptionQueue: queue\n  clusterEndpoint: https://example.com\n  clusterCABundle: Zm9v\n  isolatedVPC: true\n  staticInstanceProfiles: true\n  eksControlPlane: true\n  enableZonalShift: true\n  disableDryRun: true\n  disableClusterStateObservability: true\n  kopsStateStore: s3://states\n  vmMemoryOverheadPercent: 0.1\n  featureGates:\n    nodeRepair: true\n    staticCapacity: true\n  schedulerConfig: |\n    podTopologySpread:\n      defaultConstraints:\n        - maxSkew: 1\n          topologyKey: zone # \"quoted\"\n          whenUnsatisfiable: DoNotSchedule\n",
    ),
    (
        "host network",
        "hostNetwork: true\ndnsPolicy: Default\npriorityClassName: ''\nterminationGracePeriodSeconds: 60\nimagePullSecrets:\n  - name: pull\nlogLevel: debug\nlogOutputPaths: [stdout, /var/log/tenon]\n",
    ),
    ("another name alone", "nameOverride: scaler\n"),
    ("a name that the release has", "nameOverride: ten\n"),
    (
        "metrics scraped",
        "serviceMonitor:\n  enabled: true\n  additionalLabels:\n    release: prometheus\n  relabelings:\n    - sourceLabels: [__meta_kubernetes_pod_node_name]\n      targetLabel: node\n  metricRelabelings:\n    - action: drop\n      regex: go_.*\n      sourceLabels: [__name__]\n  endpointConfig:\n    interval: 15s\n    scrapeTimeout: 10s\n    honorLabels: true\n  sampleLimit: 0\n",
    ),
    (
        "alerts and dashboards",
        "prometheusRule:\n  enabled: true\n  additionalLabels:\n    release: prometheus\ndashboards:\n  enabled: true\n  additionalLabels:\n    team: x\n  annotations:\n    grafana_folder: Tenon\n",
    ),
    (
        "some alerts, and others",
        "prometheusRule:\n  enabled: true\n  disabled: [TenonCostRises, TenonPricesUnknown]\n  additionalGroups:\n    - name: ours\n      rules:\n        - alert: Ours\n          expr: vector(1) > 0.5\ndashboards: null\n",
    ),
    (
        "near others and apart from others",
        "affinity:\n  nodeAffinity: null\n  podAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n      - topologyKey: zone\n    preferredDuringSchedulingIgnoredDuringExecution:\n      - weight: 1\n        podAffinityTerm:\n          topologyKey: rack\n  podAntiAffinity: null\n",
    ),
    (
        "sections that are nothing",
        "affinity: null\ncontroller:\n  containerName: ''\n  resources:\n    limits:\n      cpu: 500m\n  env: null\n  securityContext: null\n  extraVolumeMounts: null\n  sidecarContainer:\n    - name: proxy\n      image: proxy:1\n  sidecarVolumeMounts: null\npodSecurityContext: null\nadditionalLabels: null\nadditionalAnnotations: null\npodLabels: null\nserviceMonitor: null\nlogLevel: ''\nlogOutputPaths: []\ntopologySpreadConstraints: null\nsettings:\n  featureGates: null\n  awsFeatureGates: null\n",
    ),
    (
        "values in quotes and numbers for texts",
        "podDisruptionBudget:\n  maxUnavailable: 50%\nsettings:\n  reservedENIs: 1\n  isolatedVPC: 'true'\n  enableZonalShift: 'false'\n  ignoreDRARequests: 'false'\n  vmMemoryOverheadPercent: '0.05'\n  featureGates:\n    nodeRepair: 'true'\n",
    ),
    (
        "more rules",
        "additionalClusterRoleRules:\n  - apiGroups: ['']\n    resources: [secrets]\n    verbs: [get]\npodDisruptionBudget:\n  name: budget\n  maxUnavailable: 0\n",
    ),
];

/// Variables that other values set as well.
const OWN_VARIABLES: &str = "logLevel: error\ncontroller:\n  env:\n    - name: MEMORY_LIMIT\n      \
                             value: '100'\n    - name: LOG_LEVEL\n      value: debug\n";

/// Helm from `TENON_HELM`, or as the test bed built it.
fn helm() -> PathBuf {
    let variable =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(helm) = variable("TENON_HELM") {
        return helm;
    }
    let cache = variable("TENON_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|dir| dir.join("tenon")))
        .or_else(|| variable("HOME").map(|dir| dir.join(".cache/tenon")));
    let built = cache.iter().flat_map(|cache| {
        std::fs::read_dir(cache.join("control-plane")).into_iter().flatten().flatten()
    });
    let newest = built
        .flat_map(|entry| [entry.path().join("helm"), entry.path().join("bin/helm")])
        .filter(|path| path.is_file())
        .max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok());
    newest.expect("there is no helm: set TENON_HELM, or run `cargo sandbox doctor`, which builds the test bed's programs")
}

fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts").join(name)
}

type Objects = BTreeMap<String, Value>;

fn template(release: &str, chart_name: &str, namespace: &str, values: &str) -> Objects {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("values.yaml");
    std::fs::write(&file, values).expect("written");
    let output = Command::new(helm())
        .args(["template", release, "--api-versions", "monitoring.coreos.com/v1"])
        .args(["--namespace", namespace, "--values"])
        .arg(&file)
        .arg(chart(chart_name))
        .env("HELM_CACHE_HOME", directory.path())
        .env("HELM_CONFIG_HOME", directory.path())
        .env("HELM_DATA_HOME", directory.path())
        .output()
        .expect("helm runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    // What `helm test` creates is no part of an installation.
    let is_hook =
        |document: &Value| document["metadata"]["annotations"]["helm.sh/hook"].is_string();
    keyed(documents.into_iter().filter(|document| !document.is_null() && !is_hook(document)))
}

fn keyed(bodies: impl Iterator<Item = Value>) -> Objects {
    let key = |body: &Value| {
        let text =
            |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
        format!(
            "{} {} {}/{}",
            text("/apiVersion"),
            text("/kind"),
            text("/metadata/namespace"),
            text("/metadata/name")
        )
    };
    let mut objects = Objects::new();
    for body in bodies {
        let before = objects.insert(key(&body), body);
        assert_eq!(before, None, "no object is rendered twice");
    }
    objects
}

fn assert_same(what: &str, built: &Objects, rendered: &Objects) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(built), names(rendered), "{what}: the same objects");
    for (key, built) in built {
        let rendered = &rendered[key];
        // Both ways: neither side may say more than the other.
        for (path, side) in [
            (first_difference(built, rendered), "the chart"),
            (first_difference(rendered, built), "the installer"),
        ] {
            assert_eq!(
                path, None,
                "{what}: {key}: {side} lacks it\nbuilt: {built:#}\nrendered: {rendered:#}"
            );
        }
    }
}

/// Each set alone, and pairs of them, as somebody writes them who wants two things at once.
fn value_sets() -> Vec<(String, Value)> {
    let read = |text: &str| -> Value { serde_saphyr::from_str(text).expect("YAML") };
    let mut sets = Vec::new();
    for distance in [0, 1, 3, 5] {
        for (index, (what, first)) in VALUE_SETS.iter().enumerate() {
            let (other, second) = VALUE_SETS[(index + distance) % VALUE_SETS.len()];
            let mut values = json!({"settings": {"clusterName": "prod"}});
            merge(&mut values, &read(first));
            merge(&mut values, &read(second));
            sets.push((format!("{what} and {other}"), values));
        }
    }
    sets
}

#[test]
fn a_variable_of_the_values_is_there_once_and_in_place_of_another() {
    let values = format!("{OWN_VARIABLES}settings:\n  clusterName: c\n");
    let rendered = template("karpenter", "tenon", "kube-system", &values);
    let deployment = rendered.values().find(|body| body["kind"] == "Deployment");
    let container = &deployment.expect("it is there")["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().expect("variables");
    for (name, value) in [("MEMORY_LIMIT", "100"), ("LOG_LEVEL", "debug")] {
        let found = env.iter().filter(|one| one["name"] == name);
        assert_eq!(found.map(|one| &one["value"]).collect::<Vec<_>>(), [value], "{name}");
    }
}

#[test]
fn the_chart_renders_what_the_installer_builds() {
    let sets = value_sets();
    assert!(sets.len() >= 40, "{} value sets", sets.len());
    for (index, (what, overrides)) in sets.iter().enumerate() {
        let namespace = if index % 2 == 0 { "kube-system" } else { "tenon" };
        let values = Values::merged(overrides).expect("valid values");
        let release = Release {
            name: "tenon".to_owned(),
            namespace: namespace.to_owned(),
            managed_by: "Helm".to_owned(),
        };
        let built =
            keyed(operator::objects(&values, &release).into_iter().map(|object| object.body));
        assert_same(what, &built, &template("tenon", "tenon", namespace, &overrides.to_string()));
    }
}

#[test]
fn the_charts_default_values_are_the_installers() {
    let text =
        std::fs::read_to_string(chart("tenon").join("values.yaml")).expect("the chart has values");
    let values: Value = serde_saphyr::from_str(&text).expect("YAML");
    // Parsing fails on a key that the installer does not know.
    let parsed: Values =
        serde_json::from_value(values.clone()).expect("every key of the chart is known");
    assert_eq!(parsed, Values::default());
    let known = serde_json::to_value(Values::default()).expect("JSON");
    let keys =
        |value: &Value| value.as_object().expect("a map").keys().cloned().collect::<Vec<_>>();
    for section in [
        "",
        "/settings",
        "/settings/featureGates",
        "/controller",
        "/controller/image",
        "/serviceAccount",
    ] {
        let of = |value: &Value| keys(value.pointer(section).expect("the section is there"));
        assert_eq!(of(&values), of(&known), "keys of {section}");
    }
}

#[test]
fn a_missing_cluster_name_is_an_error() {
    let output = Command::new(helm())
        .args(["template", "tenon"])
        .arg(chart("tenon"))
        .output()
        .expect("helm runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("settings.clusterName is required"));
}

#[test]
fn the_crd_chart_has_all_definitions() {
    let mut rendered = template("tenon", "tenon-crds", "kube-system", "{}");
    // The installer leaves out what is for clusters without AWS, and what may be another
    // autoscaler's.
    rendered.retain(|key, _| !key.contains("kwoknodeclasses") && !key.contains("capacitybuffers"));
    assert_same("CRDs", &keyed(crds::objects().into_iter().map(|object| object.body)), &rendered);
    let annotated = template(
        "tenon",
        "tenon-crds",
        "kube-system",
        "additionalAnnotations:\n  helm.sh/resource-policy: keep\n",
    );
    assert!(
        annotated
            .values()
            .all(|crd| crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep")
    );
}

/// What Helm says of values that it refuses.
fn refusal(values: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("values.yaml");
    std::fs::write(&file, values).expect("written");
    let output = Command::new(helm())
        .args(["template", "karpenter", "--set", "settings.clusterName=prod", "--values"])
        .arg(&file)
        .arg(chart("tenon"))
        .output()
        .expect("helm runs");
    assert!(!output.status.success(), "{values}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn helm_names_all_unknown_keys_at_once_also_those_inside_of_kubernetes_types() {
    let said = refusal(
        "repilcas: 2\nsettings:\n  clusterNmae: x\ntolerations:\n  - key: a\n    efect: NoSchedule\n",
    );
    for key in ["repilcas", "clusterNmae", "efect"] {
        assert!(said.contains(&format!("'{key}'")), "{key}: {said}");
    }
    assert!(said.contains("at '/tolerations/0'"), "{said}");
}

#[test]
fn what_can_not_work_is_refused_with_what_to_do() {
    for repository in
        ["public.ecr.aws/karpenter/controller", "mirror.example/aws/karpenter/controller"]
    {
        let said = refusal(&format!("controller:\n  image:\n    repository: {repository}\n"));
        assert!(said.contains("set it to the image of Tenon"), "{said}");
    }
    let said = refusal("settings:\n  awsFeatureGates:\n    nodeClassCEL: true\n");
    assert!(said.contains("write maxPods, kubeReserved and systemReserved"), "{said}");
    let said = refusal("settings:\n  isolatedVPC: maybe\n");
    assert!(said.contains("isolatedVPC"), "{said}");
}
