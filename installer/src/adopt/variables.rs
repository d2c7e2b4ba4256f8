//! Karpenter's options, by variable: which become values of the chart, and what of the others
//! people are told.

use serde_json::{Map, Value, json};
use tenon_crds::Duration;
use tenon_installer_core::kubernetes::lease;
use tenon_installer_core::settings::values::{FeatureGates, OperatorSettings};

use super::Karpenter;
use super::carried::{Carried, put};
use crate::options::Given;

/// What an option's value has to be. Karpenter takes its default for a variable that it can't read;
/// Tenon's operator would not start.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// `true` or `false`.
    Switch,
    /// A duration of at least so many seconds, and more than nothing.
    Duration(i64),
    /// A number of 0 or more.
    Share,
    /// A whole number of 0 or more.
    Count,
    /// From 1 to 65535.
    Port,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// Anything.
    Text,
}

impl Kind {
    /// What is expected, unless this is it.
    fn problem(self, text: &str) -> Option<String> {
        let (fits, expected) = match self {
            Self::Switch => (["true", "false"].contains(&text), "true or false".to_owned()),
            Self::Duration(least) => {
                let duration = text.parse::<Duration>().ok();
                let fits = duration.is_some_and(|it| it.as_nanos() > 0 && it.as_secs() >= least);
                (fits, format!("a duration of {} or more", if least > 0 { "1m" } else { "1ns" }))
            }
            Self::Share => {
                let number = text.parse::<f64>().ok();
                let fits = number.is_some_and(|number| number >= 0.0 && number.is_finite());
                (fits, "a number of 0 or more".to_owned())
            }
            Self::Count => (text.parse::<u32>().is_ok(), "a whole number of 0 or more".to_owned()),
            Self::Port => (text.parse::<u16>().is_ok_and(|port| port > 0), "a port".to_owned()),
            Self::OneOf(all) => (all.contains(&text), format!("one of {}", all.join(", "))),
            Self::Text => (true, String::new()),
        };
        (!fits).then_some(expected)
    }

    /// As the chart's values have it.
    fn json(self, text: &str) -> Value {
        match self {
            Self::Switch => (text == "true").into(),
            Self::Share => text.parse::<f64>().map_or(Value::Null, Into::into),
            Self::Port => text.parse::<u16>().map_or(Value::Null, Into::into),
            _ => text.into(),
        }
    }

    /// The value at which the chart leaves the variable out, so that another source of it counts.
    fn left_out(self, key: &str) -> Value {
        match self {
            // On by default in the operator, so the chart renders what turns it off.
            Self::Switch => (key == "ignoreDRARequests").into(),
            Self::Share => 0.0.into(),
            _ => "".into(),
        }
    }
}

/// What becomes of an option.
#[derive(Debug, Clone, Copy)]
enum Goes {
    /// A key below `settings` of the chart's values.
    Setting(&'static str),
    /// Another key of the chart's values, as a JSON pointer.
    Value(&'static str),
    /// A variable of Tenon's container: the chart has no key for it.
    Environment,
    /// Feature gates, each with a key of its own.
    Gates,
    /// The adoption itself takes it into account.
    Used,
    /// Tenon has no use for it: its default in Karpenter, and why.
    Idle(&'static str, &'static str),
}

const GO: &str = "it only affects Karpenter's own process";

/// Every option that Karpenter has, by its variable.
const OPTIONS: [(&str, Kind, Goes); 42] = [
    ("BATCH_MAX_DURATION", Kind::Duration(0), Goes::Setting("batchMaxDuration")),
    ("BATCH_IDLE_DURATION", Kind::Duration(0), Goes::Setting("batchIdleDuration")),
    ("PREFERENCE_POLICY", Kind::OneOf(&["Respect", "Ignore"]), Goes::Setting("preferencePolicy")),
    ("MIN_VALUES_POLICY", Kind::OneOf(&["Strict", "BestEffort"]), Goes::Setting("minValuesPolicy")),
    ("CLUSTER_CA_BUNDLE", Kind::Text, Goes::Setting("clusterCABundle")),
    ("CLUSTER_ENDPOINT", Kind::Text, Goes::Setting("clusterEndpoint")),
    ("RESERVED_ENIS", Kind::Count, Goes::Setting("reservedENIs")),
    ("AMI_REFRESH_INTERVAL", Kind::Duration(60), Goes::Setting("amiRefreshInterval")),
    ("SUBNET_REFRESH_INTERVAL", Kind::Duration(60), Goes::Setting("subnetRefreshInterval")),
    ("VM_MEMORY_OVERHEAD_PERCENT", Kind::Share, Goes::Setting("vmMemoryOverheadPercent")),
    ("ISOLATED_VPC", Kind::Switch, Goes::Setting("isolatedVPC")),
    ("EKS_CONTROL_PLANE", Kind::Switch, Goes::Setting("eksControlPlane")),
    ("ENABLE_ZONAL_SHIFT", Kind::Switch, Goes::Setting("enableZonalShift")),
    ("IGNORE_DRA_REQUESTS", Kind::Switch, Goes::Setting("ignoreDRARequests")),
    (
        "DISABLE_CLUSTER_STATE_OBSERVABILITY",
        Kind::Switch,
        Goes::Setting("disableClusterStateObservability"),
    ),
    ("DISABLE_DRY_RUN", Kind::Switch, Goes::Setting("disableDryRun")),
    ("FEATURE_GATES", Kind::Text, Goes::Gates),
    ("LOG_LEVEL", Kind::OneOf(&["debug", "info", "warn", "error"]), Goes::Value("/logLevel")),
    ("METRICS_PORT", Kind::Port, Goes::Value("/controller/metrics/port")),
    ("HEALTH_PROBE_PORT", Kind::Port, Goes::Value("/controller/healthProbe/port")),
    (lease::NAME_VARIABLE, Kind::Text, Goes::Environment),
    (lease::NAMESPACE_VARIABLE, Kind::Text, Goes::Environment),
    ("LEGACY_NODE_REPAIR", Kind::Switch, Goes::Environment),
    (
        "AWS_FEATURE_GATES",
        Kind::Text,
        Goes::Idle(
            "NodeClassCEL=false",
            "Tenon does not evaluate CEL expressions in spec.kubelet; write maxPods, kubeReserved \
             and systemReserved of EC2NodeClasses as values",
        ),
    ),
    (lease::DISABLED_VARIABLE, Kind::Switch, Goes::Used),
    ("CLUSTER_NAME", Kind::Text, Goes::Used),
    ("INTERRUPTION_QUEUE", Kind::Text, Goes::Used),
    ("KARPENTER_SERVICE", Kind::Text, Goes::Used),
    ("SYSTEM_NAMESPACE", Kind::Text, Goes::Used),
    ("KUBERNETES_MIN_VERSION", Kind::Text, Goes::Used),
    ("CPU_REQUESTS", Kind::Text, Goes::Used),
    ("MEMORY_LIMIT", Kind::Text, Goes::Used),
    ("LOG_OUTPUT_PATHS", Kind::Text, Goes::Idle("stdout", "Tenon logs to standard output")),
    ("LOG_ERROR_OUTPUT_PATHS", Kind::Text, Goes::Idle("stderr", "Tenon logs to standard output")),
    ("KUBE_CLIENT_QPS", Kind::Text, Goes::Idle("200", "the API server's fairness limits Tenon")),
    ("KUBE_CLIENT_BURST", Kind::Text, Goes::Idle("300", "the API server's fairness limits Tenon")),
    (
        "ENABLE_PROFILING",
        Kind::Text,
        Goes::Idle(
            "false",
            "Tenon has no Go profiles; with controller.debug.profiling it serves its own, on the \
             pod's loopback address",
        ),
    ),
    (
        "DISABLE_CONTROLLER_WARMUP",
        Kind::Text,
        Goes::Idle("true", "the caches of Tenon's standby replicas are always warm"),
    ),
    ("SCHEDULER_CONFIG", Kind::Text, Goes::Setting("schedulerConfig")),
    ("DISABLE_WEBHOOK", Kind::Text, Goes::Used),
    ("WEBHOOK_PORT", Kind::Text, Goes::Used),
    ("WEBHOOK_METRICS_PORT", Kind::Text, Goes::Used),
];

/// Variables that only Go's runtime reads.
const OF_GO: [&str; 4] = ["GOMEMLIMIT", "GOMAXPROCS", "GOGC", "GODEBUG"];

/// Options that keep their meaning, under the keys of the chart; others are told where they say
/// something.
pub(super) fn carry(found: &Karpenter, carried: &mut Carried) {
    let options = &found.operator.options;
    let told = &mut carried.told;
    let mut settings = Map::new();
    let mut environment = Vec::new();
    for (variable, kind, goes) in OPTIONS {
        let Some(given) = options.get(variable) else { continue };
        if let Some(expected) = kind.problem(given.value()) {
            told.push(format!(
                "{variable} of Karpenter's Deployment is {} and not {expected}: it is not carried \
                 over, and Tenon's default applies",
                given.shown()
            ));
            continue;
        }
        match goes {
            // The reference itself is carried over with the container's variables.
            Goes::Setting(key) if given.is_secret() => {
                settings.insert(key.to_owned(), kind.left_out(key));
            }
            Goes::Value(_) | Goes::Gates if given.is_secret() => told.push(format!(
                "{variable} of Karpenter's Deployment is {}, which is never recorded: it is not \
                 carried over; move it to the Deployment or a ConfigMap, or set it with --set",
                given.shown()
            )),
            Goes::Setting(key) => drop(settings.insert(key.to_owned(), kind.json(given.value()))),
            Goes::Value(pointer) => put(&mut carried.values, pointer, kind.json(given.value())),
            Goes::Environment => {
                environment.push(json!({"name": variable, "value": given.value()}));
            }
            Goes::Gates => {
                let gates = gates(given.value(), told);
                if !gates.is_empty() {
                    settings.insert("featureGates".to_owned(), Value::Object(gates));
                }
            }
            Goes::Used => {}
            Goes::Idle(default, why) => {
                if given.value() != default {
                    told.push(format!(
                        "{variable} of Karpenter's Deployment is {}: it has no effect, because {why}",
                        given.shown()
                    ));
                }
            }
        }
    }
    order_of_batches(&mut settings, told);
    if !settings.is_empty() {
        carried.values["settings"] = Value::Object(settings);
    }
    if !environment.is_empty() {
        put(&mut carried.values, "/controller/env", Value::Array(environment));
    }
    for variable in OF_GO {
        if let Some(given) = options.get(variable) {
            told.push(format!("{variable} is {}: it has no effect, because {GO}", given.shown()));
        }
    }
}

/// Whether a variable is an option, and so carried over by its meaning and not by its text.
pub(super) fn is_option(variable: &str) -> bool {
    OPTIONS.iter().any(|(known, _, _)| *known == variable) || OF_GO.contains(&variable)
}

/// Whether the reference to a Secret is carried over for an option: the chart can leave the
/// variable out then.
pub(super) fn keeps_reference(variable: &str, given: &Given) -> bool {
    let of = OPTIONS.iter().find(|(known, _, _)| *known == variable);
    given.is_secret()
        && of.is_some_and(|(_, kind, goes)| {
            matches!(goes, Goes::Setting(_)) && kind.problem(given.value()).is_none()
        })
}

/// Karpenter works with an idle time that is longer than the whole batch; Tenon's operator refuses
/// it.
fn order_of_batches(settings: &mut Map<String, Value>, told: &mut Vec<String>) {
    let defaults = OperatorSettings::default();
    let length = |key: &str, default: &str| {
        let text = settings.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.unwrap_or(default).parse::<Duration>().ok()
    };
    let idle = length("batchIdleDuration", &defaults.batch_idle_duration);
    let max = length("batchMaxDuration", &defaults.batch_max_duration);
    if let (Some(idle), Some(max)) = (idle, max)
        && idle > max
    {
        told.push(format!(
            "BATCH_IDLE_DURATION of Karpenter's Deployment is {idle}, longer than a whole batch \
             ({max}): Tenon waits {max}, as Karpenter effectively does"
        ));
        settings.insert("batchIdleDuration".to_owned(), max.as_str().into());
    }
}

/// `ReservedCapacity=true,…` as the chart's values have it. Gates that Tenon does not have are told
/// where they are on.
fn gates(text: &str, told: &mut Vec<String>) -> Map<String, Value> {
    let known = serde_json::to_value(FeatureGates::default()).unwrap_or_default();
    let mut gates = Map::new();
    for gate in text.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
        let parsed = gate.split_once('=').and_then(|(name, value)| {
            let value = value.trim().parse::<bool>().ok()?;
            Some((name.trim(), value))
        });
        let Some((name, value)) = parsed else {
            told.push(format!(
                "FEATURE_GATES of Karpenter's Deployment has `{gate}`, which is not of the form Gate=true: it is not carried over"
            ));
            continue;
        };
        let mut letters = name.chars();
        let first = letters.next().map(|first| first.to_ascii_lowercase());
        let key = first.into_iter().chain(letters).collect::<String>();
        if known.get(&key).is_some() {
            gates.insert(key, value.into());
        } else if value {
            told.push(format!(
                "feature gate {name} is on in Karpenter, and Tenon has no such gate: features that \
                 depend on it stop with the adoption"
            ));
        }
    }
    gates
}
