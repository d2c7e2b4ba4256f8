//! What of Karpenter's pods Tenon's pods get as well: where they run, what they may use, what else
//! they are given. Every field of the pod is carried over into a value of the chart, or is nobody's
//! loss, or is told; a field that nobody thought of is told.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value, json};
use tenon_crds::selector::selects;
use tenon_installer_core::settings::values::{Controller, Values};

use super::carried::{Carried, put};
use super::variables::{is_option, keeps_reference};
use super::{Karpenter, NAME, ports};

/// Fields of a pod that the chart has a value for. What Karpenter's pods have none of stays as the
/// chart has it.
const POD: [(&str, &str); 11] = [
    ("nodeSelector", "/nodeSelector"),
    ("tolerations", "/tolerations"),
    ("priorityClassName", "/priorityClassName"),
    ("dnsPolicy", "/dnsPolicy"),
    ("dnsConfig", "/dnsConfig"),
    ("initContainers", "/initContainers"),
    ("hostNetwork", "/hostNetwork"),
    ("schedulerName", "/schedulerName"),
    ("terminationGracePeriodSeconds", "/terminationGracePeriodSeconds"),
    ("imagePullSecrets", "/imagePullSecrets"),
    ("securityContext", "/podSecurityContext"),
];

/// Fields of a pod that are seen to elsewhere, or say nothing with this value (anything, if there
/// is none).
const POD_SETTLED: [(&str, Option<Value>); 10] = [
    ("affinity", None),
    ("topologySpreadConstraints", None),
    ("volumes", None),
    ("containers", None),
    ("serviceAccountName", None),
    ("serviceAccount", None),
    ("automountServiceAccountToken", Some(Value::Bool(true))),
    ("enableServiceLinks", Some(Value::Bool(true))),
    ("shareProcessNamespace", Some(Value::Bool(false))),
    ("restartPolicy", None),
];

/// Fields of the container that are seen to elsewhere, or are about the program that runs in it.
const CONTAINER_SETTLED: [&str; 15] = [
    "name",
    "image",
    "imagePullPolicy",
    "env",
    "envFrom",
    "command",
    "args",
    "ports",
    "resources",
    "volumeMounts",
    "securityContext",
    "livenessProbe",
    "readinessProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
];

/// What to do about a field that the chart has no value for.
const BY_HAND: &str = "set it on Tenon's Deployment yourself if its pods need it; `tenon` doesn't \
     change fields that it does not manage";

/// Labels that Tenon's pods are selected by.
fn ours(app: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), app.to_owned()),
        ("app.kubernetes.io/instance".to_owned(), NAME.to_owned()),
    ])
}

fn strings(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Carries over what can be, and tells the rest.
pub(super) fn carry(found: &Karpenter, carried: &mut Carried) {
    let defaults = serde_json::to_value(Values::default()).unwrap_or_default();
    let template = &found.operator.live.body["spec"]["template"];
    let pod = &template["spec"];
    for (field, pointer) in POD {
        let default = defaults.pointer(pointer).unwrap_or(&Value::Null);
        if !says_nothing(&pod[field])
            && let Some(value) = exact(&pod[field], default)
        {
            put(&mut carried.values, pointer, value);
        }
    }
    if pod["terminationGracePeriodSeconds"] == 30 {
        // What the API server fills in.
        if let Some(values) = carried.values.as_object_mut() {
            values.remove("terminationGracePeriodSeconds");
        }
    }
    metadata(found, template, carried);
    placement(found, pod, &defaults, carried);
    container(found, pod, carried);
    beside(found, pod, carried);
    security(found, carried);
    probes(found, &defaults, carried);
    ports::carry(found, carried);
    tell_rest(found, pod, carried);
}

/// What a values file has to say so that exactly this comes of a default: maps are merged, so what
/// the default has beyond it is taken away by `null`. Nothing if it is the default.
fn exact(wanted: &Value, default: &Value) -> Option<Value> {
    match (wanted, default) {
        _ if wanted == default => None,
        (Value::Object(wanted), Value::Object(default)) => {
            let kept = wanted.iter().filter_map(|(key, value)| {
                let default = default.get(key).unwrap_or(&Value::Null);
                Some((key.clone(), exact(value, default)?))
            });
            let gone = default.keys().filter(|key| !wanted.contains_key(*key));
            let map = kept.chain(gone.map(|key| (key.clone(), Value::Null))).collect::<Map<_, _>>();
            (!map.is_empty()).then_some(Value::Object(map))
        }
        _ => Some(wanted.clone()),
    }
}

/// Labels and annotations of the pods, but those that Karpenter's own objects find its pods by:
/// Tenon's would be taken for Karpenter's.
fn metadata(found: &Karpenter, template: &Value, carried: &mut Carried) {
    let selector = strings(&found.operator.live.body["spec"]["selector"]["matchLabels"]);
    let mut labels = strings(&template["metadata"]["labels"]);
    labels.retain(|key, _| {
        !selector.contains_key(key)
            && !ours(NAME).contains_key(key)
            && key != "pod-template-hash"
            && key != "app.kubernetes.io/managed-by"
    });
    let mut annotations = strings(&template["metadata"]["annotations"]);
    // When it was restarted, and what made it restart.
    annotations.retain(|key, _| {
        key != "kubectl.kubernetes.io/restartedAt" && !key.starts_with("checksum/")
    });
    for (key, map) in [("podLabels", labels), ("podAnnotations", annotations)] {
        if !map.is_empty() {
            carried.values[key] = json!(map);
        }
    }
}

/// Where the pods run. Rules that are about Karpenter's own pods become rules about Tenon's.
fn placement(found: &Karpenter, pod: &Value, defaults: &Value, carried: &mut Carried) {
    let own = strings(&found.operator.live.body["spec"]["template"]["metadata"]["labels"]);
    let is_own = |selector: &Value| {
        let parsed = serde_json::from_value::<LabelSelector>(selector.clone());
        selector.is_object() && parsed.is_ok_and(|selector| selects(&selector, &own))
    };
    let mut app = "karpenter";
    let terms =
        &pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let keeps_us_away = terms.as_array().into_iter().flatten().any(|term| {
        serde_json::from_value::<LabelSelector>(term["labelSelector"].clone()).is_ok_and(
            |selector| term["labelSelector"].is_object() && selects(&selector, &ours(app)),
        )
    });
    // Selectors can't be changed later, so a Deployment that is there already keeps the name that
    // it has.
    if keeps_us_away && found.operator.adopted_by.is_none() {
        app = NAME;
        carried.values["nameOverride"] = NAME.into();
    }
    let labels = json!({"matchLabels": ours(app)});
    let mut affinity = pod["affinity"].clone();
    if !affinity.is_object() {
        affinity = json!({});
    }
    let is_usual = is_usual_anti_affinity(&affinity["podAntiAffinity"], &is_own);
    translate(&mut affinity["podAntiAffinity"], &is_own, &labels);
    if let Some(affinity) = affinity.as_object_mut() {
        if is_usual {
            affinity.insert(
                "podAntiAffinity".to_owned(),
                defaults["affinity"]["podAntiAffinity"].clone(),
            );
        } else if says_nothing(&affinity["podAntiAffinity"]) {
            affinity.remove("podAntiAffinity");
        }
        if says_nothing(&affinity.get("nodeAffinity").cloned().unwrap_or_default()) {
            // Never on a node of its own: that one could not be replaced.
            affinity
                .insert("nodeAffinity".to_owned(), defaults["affinity"]["nodeAffinity"].clone());
        }
    }
    if let Some(affinity) = exact(&affinity, &defaults["affinity"]) {
        carried.values["affinity"] = affinity;
    }
    let mut spread = pod["topologySpreadConstraints"].as_array().cloned().unwrap_or_default();
    for constraint in &mut spread {
        if is_own(&constraint["labelSelector"])
            && let Some(constraint) = constraint.as_object_mut()
        {
            // The chart fills in Tenon's.
            constraint.remove("labelSelector");
        }
    }
    if let Some(spread) = exact(&Value::Array(spread), &defaults["topologySpreadConstraints"]) {
        carried.values["topologySpreadConstraints"] = spread;
    }
}

/// Whether it says what both charts say: no two of its own pods on a node.
fn is_usual_anti_affinity(rules: &Value, is_own: &impl Fn(&Value) -> bool) -> bool {
    let required = rules["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
    let preferred = &rules["preferredDuringSchedulingIgnoredDuringExecution"];
    let usual = |term: &Value| {
        let fields = term.as_object().map_or(0, Map::len);
        fields == 2
            && term["topologyKey"] == "kubernetes.io/hostname"
            && is_own(&term["labelSelector"])
    };
    says_nothing(preferred) && required.is_some_and(|terms| terms.len() == 1 && usual(&terms[0]))
}

/// Puts Tenon's labels in place of a selector that is about Karpenter's own pods.
fn translate(rules: &mut Value, is_own: &impl Fn(&Value) -> bool, labels: &Value) {
    let mut mend = |term: &mut Value| {
        if is_own(&term["labelSelector"]) {
            term["labelSelector"] = labels.clone();
        }
    };
    let required = rules.get_mut("requiredDuringSchedulingIgnoredDuringExecution");
    let required = required.and_then(Value::as_array_mut);
    required.into_iter().flatten().for_each(&mut mend);
    let preferred = rules.get_mut("preferredDuringSchedulingIgnoredDuringExecution");
    let preferred = preferred.and_then(Value::as_array_mut);
    for term in preferred.into_iter().flatten() {
        mend(&mut term["podAffinityTerm"]);
    }
}

/// Resources, variables, and volumes with their mounts.
fn container(found: &Karpenter, pod: &Value, carried: &mut Carried) {
    let container = found.operator.container();
    let values = &mut carried.values;
    if says_nothing(&container["resources"]) {
        carried.told.push(
            "Karpenter's container requests no CPU and no memory; Tenon's requests the chart's \
             defaults, 1 CPU and 1Gi: use --set controller.resources to change that"
                .to_owned(),
        );
    } else if container["resources"] != json!(Controller::default().resources()) {
        put(values, "/controller/resources", container["resources"].clone());
    }
    let options = &found.operator.options;
    let mut env = values.pointer("/controller/env").and_then(Value::as_array).cloned();
    let env = env.get_or_insert_default();
    for entry in container["env"].as_array().into_iter().flatten() {
        let variable = entry["name"].as_str().unwrap_or_default();
        let kept = options.get(variable).is_some_and(|given| keeps_reference(variable, given));
        if !is_option(variable) || kept {
            // The last one counts, and no name may be given twice.
            env.retain(|other| other["name"] != variable);
            env.push(entry.clone());
        }
    }
    for (key, list) in
        [("env", Value::Array(std::mem::take(env))), ("envFrom", container["envFrom"].clone())]
    {
        if !says_nothing(&list) {
            put(values, &format!("/controller/{key}"), list);
        }
    }
    let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
    let others = ["containers", "initContainers"].map(|list| pod[list].as_array());
    let others = others.into_iter().flatten().flatten();
    let mounted_beside: Vec<_> =
        others.filter_map(|other| other["volumeMounts"].as_array()).flatten().collect();
    let is_mounted = |volume: &Value| {
        mounts.iter().chain(mounted_beside.iter().copied()).any(|it| it["name"] == volume["name"])
    };
    let volumes = pod["volumes"].as_array().into_iter().flatten();
    let (volumes, others): (Vec<_>, Vec<_>) = volumes.cloned().partition(is_mounted);
    for volume in &volumes {
        if volume["persistentVolumeClaim"].is_object() {
            carried.told.push(format!(
                "volume {} of Karpenter's pods is a PersistentVolumeClaim: unless it is \
                 ReadWriteMany, Tenon's pods wait for it while Karpenter's pods run",
                volume["name"].as_str().unwrap_or_default()
            ));
        }
    }
    for volume in others {
        carried.told.push(format!(
            "volume {} of Karpenter's pods is not mounted by any container and not carried over",
            volume["name"].as_str().unwrap_or_default()
        ));
    }
    if !mounts.is_empty() {
        put(values, "/controller/extraVolumeMounts", Value::Array(mounts));
    }
    if !volumes.is_empty() {
        values["extraVolumes"] = Value::Array(volumes);
    }
}

/// The port on which the operator is debugged, unless the chart is told another.
const DEBUG_PORT: i64 = 8082;

/// The containers beside Karpenter's, each with the mounts that it has and no others.
fn beside(found: &Karpenter, pod: &Value, carried: &mut Carried) {
    let own = &found.operator.container()["name"];
    let containers = pod["containers"].as_array().into_iter().flatten();
    let mut sidecars: Vec<Value> = containers.filter(|it| it["name"] != *own).cloned().collect();
    if sidecars.is_empty() {
        return;
    }
    for sidecar in &mut sidecars {
        if let Some(sidecar) = sidecar.as_object_mut() {
            // Else it would have those of the operator's container.
            sidecar.entry("volumeMounts").or_insert_with(|| json!([]));
        }
    }
    let mut ports = sidecars.iter().filter_map(|it| it["ports"].as_array()).flatten();
    if ports.any(|port| port["containerPort"] == DEBUG_PORT) {
        put(&mut carried.values, "/controller/debug/port", 0.into());
    }
    put(&mut carried.values, "/controller/sidecarContainer", Value::Array(sidecars));
}

/// What the chart can be told of the container's security context.
const PROFILES: [&str; 3] = ["appArmorProfile", "seLinuxOptions", "seccompProfile"];

/// Profiles of the container. The restrictions beside them are the chart's.
fn security(found: &Karpenter, carried: &mut Carried) {
    let usual = json!({"type": "RuntimeDefault"});
    for profile in PROFILES {
        let value = &found.operator.container()["securityContext"][profile];
        let is_usual = profile == "seccompProfile" && *value == usual;
        if !is_usual && !says_nothing(value) {
            put(
                &mut carried.values,
                &format!("/controller/securityContext/{profile}"),
                value.clone(),
            );
        }
    }
}

/// When probes are made and what it takes to believe them. Where they are made is the chart's. What
/// the API server fills in says nothing.
fn probes(found: &Karpenter, defaults: &Value, carried: &mut Carried) {
    const FIELDS: [(&str, i64); 5] = [
        ("initialDelaySeconds", 0),
        ("periodSeconds", 10),
        ("timeoutSeconds", 1),
        ("failureThreshold", 3),
        ("successThreshold", 1),
    ];
    for probe in ["livenessProbe", "readinessProbe"] {
        let theirs = &found.operator.container()[probe];
        if !theirs.is_object() {
            continue;
        }
        for (field, filled_in) in FIELDS {
            let theirs = theirs[field].as_i64().unwrap_or(filled_in);
            let ours = defaults["controller"][probe][field].as_i64().unwrap_or(filled_in);
            if theirs != ours {
                let pointer = format!("/controller/{probe}/{field}");
                put(&mut carried.values, &pointer, theirs.into());
            }
        }
    }
}

/// Tells every field that is neither carried over nor settled.
fn tell_rest(found: &Karpenter, pod: &Value, carried: &mut Carried) {
    let told = &mut carried.told;
    let container = found.operator.container();
    let name = container["name"].as_str().unwrap_or_default();
    for (field, value) in pod.as_object().into_iter().flatten() {
        let is_carried = POD.iter().any(|(known, _)| known == field);
        let is_settled = POD_SETTLED.iter().any(|(known, harmless)| {
            known == field && harmless.as_ref().is_none_or(|harmless| harmless == value)
        });
        if !is_carried && !is_settled && !says_nothing(value) {
            told.push(format!("{field} of Karpenter's pods is not carried over: {BY_HAND}"));
        }
    }
    for (field, value) in container.as_object().into_iter().flatten() {
        if !CONTAINER_SETTLED.contains(&field.as_str()) && !says_nothing(value) {
            told.push(format!(
                "{field} of Karpenter's container {name} is not carried over: {BY_HAND}"
            ));
        }
    }
    let restricted = json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "runAsUser": 65532,
        "runAsGroup": 65532,
    });
    let mut context = container["securityContext"].clone();
    if let Some(context) = context.as_object_mut() {
        context.retain(|field, _| !PROFILES.contains(&field.as_str()));
    }
    if let Some(at) =
        tenon_installer_core::kubernetes::object::first_difference(&context, &restricted)
    {
        told.push(format!(
            "securityContext.{at} of Karpenter's container {name} is not carried over: Tenon's \
             container runs without privileges, as user 65532 and on a read-only file system"
        ));
    }
    if container["ports"].as_array().into_iter().flatten().any(|port| {
        pod["hostNetwork"] != true && port["hostPort"].as_i64().is_some_and(|port| port > 0)
    }) {
        told.push(
            "hostPort of Karpenter's container is not carried over: scrape the Service tenon"
                .to_owned(),
        );
    }
}

/// Adds to given lists what is carried over and they say nothing about: a values file replaces
/// whole lists, and who gives one variable does not mean to lose the proxy.
pub(super) fn join_lists(carried: &Value, given: &mut Value) {
    for (pointer, key) in [
        ("/controller/env", "name"),
        ("/controller/envFrom", ""),
        ("/controller/extraVolumeMounts", "mountPath"),
        ("/extraVolumes", "name"),
        ("/initContainers", "name"),
        ("/controller/sidecarContainer", "name"),
        ("/controller/sidecarVolumeMounts", "mountPath"),
    ] {
        let Some(given) = given.pointer_mut(pointer).and_then(Value::as_array_mut) else {
            continue;
        };
        let carried = carried.pointer(pointer).and_then(Value::as_array);
        let identity =
            |entry: &Value| if key.is_empty() { entry.clone() } else { entry[key].clone() };
        let is_new = |entry: &&Value| given.iter().all(|other| identity(other) != identity(entry));
        let new = carried.into_iter().flatten().filter(is_new).cloned().collect::<Vec<_>>();
        given.splice(0..0, new);
    }
}
