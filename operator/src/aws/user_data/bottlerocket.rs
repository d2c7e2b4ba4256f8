//! Bottlerocket: settings in TOML.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::{Bootstrap, UserDataError, go_duration};

pub(super) fn render(bootstrap: &Bootstrap) -> Result<String, UserDataError> {
    let mut document: Table = match bootstrap.custom.as_deref() {
        Some(custom) => custom
            .parse()
            .map_err(|error: toml::de::Error| UserDataError::Toml(error.to_string()))?,
        None => Table::new(),
    };
    // Bottlerocket reads nothing but settings.
    let mut settings = match document.remove("settings") {
        Some(Value::Table(settings)) => settings,
        Some(_) => return Err(UserDataError::Toml("`settings` is not a table".to_owned())),
        None => Table::new(),
    };
    let mut kubernetes = match settings.remove("kubernetes") {
        Some(Value::Table(kubernetes)) => kubernetes,
        Some(_) => {
            return Err(UserDataError::Toml("`settings.kubernetes` is not a table".to_owned()));
        }
        None => Table::new(),
    };
    kubernetes.retain(|key, _| {
        let known = KNOWN_KEYS.contains(&key);
        if !known {
            tracing::warn!(key, "dropping unknown key of settings.kubernetes in spec.userData");
        }
        known
    });
    set_kubernetes(&mut kubernetes, bootstrap);
    settings.insert("kubernetes".to_owned(), Value::Table(kubernetes));
    if bootstrap.raid0 {
        set_local_storage(&mut settings, bootstrap.names_local_storage_dirs)?;
    }
    let document = Table::from_iter([("settings".to_owned(), Value::Table(settings))]);
    Ok(document.to_string())
}

fn set_kubernetes(kubernetes: &mut Table, bootstrap: &Bootstrap) {
    let kubelet = &bootstrap.kubelet;
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            kubernetes.insert(key.to_owned(), value);
        }
    };
    let text = |text: &str| Some(Value::String(text.to_owned()));
    let integer = |number: Option<i32>| number.map(|number| Value::Integer(number.into()));
    set("cluster-name", text(&bootstrap.cluster.name));
    set("api-server", text(&bootstrap.cluster.endpoint));
    set("cluster-certificate", bootstrap.cluster.ca_bundle.clone().map(Value::String));
    set("max-pods", integer(kubelet.max_pods));
    set("cluster-dns-ip", kubelet.cluster_dns.iter().flatten().next().cloned().map(Value::String));
    set("system-reserved", kubelet.system_reserved.as_ref().map(strings));
    set("kube-reserved", kubelet.kube_reserved.as_ref().map(strings));
    set("eviction-hard", kubelet.eviction_hard.as_ref().map(strings));
    set("eviction-soft", kubelet.eviction_soft.as_ref().map(strings));
    set(
        "eviction-soft-grace-period",
        kubelet.eviction_soft_grace_period.as_ref().map(|periods| {
            strings(&periods.iter().map(|(k, v)| (k.clone(), go_duration(v))).collect())
        }),
    );
    set("eviction-max-pod-grace-period", integer(kubelet.eviction_max_pod_grace_period));
    // Thresholds are strings in Bottlerocket's model.
    let percent = |percent: Option<i32>| percent.map(|percent| Value::String(percent.to_string()));
    set("image-gc-high-threshold-percent", percent(kubelet.image_gc_high_threshold_percent));
    set("image-gc-low-threshold-percent", percent(kubelet.image_gc_low_threshold_percent));
    set("cpu-cfs-quota-enforced", kubelet.cpu_cfs_quota.map(Value::Boolean));

    let mut labels = match kubernetes.remove("node-labels") {
        Some(Value::Table(labels)) => labels,
        _ => Table::new(),
    };
    labels.extend(bootstrap.labels.iter().map(|(k, v)| (k.clone(), Value::String(v.clone()))));
    if !labels.is_empty() {
        kubernetes.insert("node-labels".to_owned(), Value::Table(labels));
    }
    // The user's taints would not be known to the scheduler's simulation: they are replaced, not
    // merged.
    kubernetes.remove("node-taints");
    let mut taints: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for taint in &bootstrap.taints {
        taints.entry(taint.key.clone()).or_default().push(Value::String(format!(
            "{}:{}",
            taint.value(),
            taint.effect
        )));
    }
    if !taints.is_empty() {
        let taints = taints.into_iter().map(|(key, list)| (key, Value::Array(list))).collect();
        kubernetes.insert("node-taints".to_owned(), Value::Table(taints));
    }
}

fn set_local_storage(settings: &mut Table, names_dirs: bool) -> Result<(), UserDataError> {
    let commands = settings
        .entry("bootstrap-commands")
        .or_insert_with(|| Value::Table(Table::new()))
        .as_table_mut()
        .ok_or_else(|| {
            UserDataError::Toml("`settings.bootstrap-commands` is not a table".to_owned())
        })?;
    let words = |words: &[&str]| {
        Value::Array(words.iter().map(|word| Value::String((*word).to_owned())).collect())
    };
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if names_dirs {
        bind.extend(["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]);
    }
    let mount = Table::from_iter([
        (
            "commands".to_owned(),
            Value::Array(vec![words(&["apiclient", "ephemeral-storage", "init"]), words(&bind)]),
        ),
        ("essential".to_owned(), Value::Boolean(true)),
        ("mode".to_owned(), Value::String("always".to_owned())),
    ]);
    commands.insert("000-mount-instance-storage".to_owned(), Value::Table(mount));
    Ok(())
}

fn strings(map: &BTreeMap<String, String>) -> Value {
    Value::Table(map.iter().map(|(k, v)| (k.clone(), Value::String(v.clone()))).collect())
}

/// Keys of `settings.kubernetes` that pass; others are dropped, as upstream does.
const KNOWN_KEYS: &[&str] = &[
    "allowed-unsafe-sysctls",
    "api-server",
    "cloud-provider",
    "cluster-certificate",
    "cluster-dns-ip",
    "cluster-domain",
    "cluster-name",
    "container-log-max-files",
    "container-log-max-size",
    "container-log-max-workers",
    "container-log-monitor-interval",
    "cpu-cfs-quota-enforced",
    "cpu-manager-policy",
    "cpu-manager-policy-options",
    "cpu-manager-reconcile-period",
    "credential-providers",
    "device-ownership-from-security-context",
    "event-burst",
    "event-qps",
    "eviction-hard",
    "eviction-max-pod-grace-period",
    "eviction-soft",
    "eviction-soft-grace-period",
    "hostname-override-source",
    "ids-per-pod",
    "image-gc-high-threshold-percent",
    "image-gc-low-threshold-percent",
    "kube-api-burst",
    "kube-api-qps",
    "kube-reserved",
    "log-level",
    "max-pods",
    "memory-manager-policy",
    "memory-manager-reserved-memory",
    "node-labels",
    "node-taints",
    "pod-pids-limit",
    "registry-burst",
    "registry-qps",
    "seccomp-default",
    "server-tls-bootstrap",
    "shutdown-grace-period",
    "shutdown-grace-period-for-critical-pods",
    "single-process-oom-kill",
    "static-pods",
    "system-reserved",
    "topology-manager-policy",
    "topology-manager-policy-options",
    "topology-manager-scope",
];
