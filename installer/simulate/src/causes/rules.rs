//! Taints, topology rules, devices, and what is wrong with the pod itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use tenon_planner::plan::Exclusion;

use super::{About, Finding};
use crate::advice::{self, Advice, Cause, indented, scalar, word};
use crate::reasons;
use crate::words::counted;

/// A taint that the pod does not tolerate.
pub(super) fn taint(
    pool: &str,
    (key, value, effect): (&str, Option<&str>, &str),
    why: &Exclusion,
) -> Finding {
    let value = value.filter(|value| !value.is_empty());
    let operator = match value {
        Some(value) => format!("Equal\n  value: {}", scalar(value)),
        None => "Exists".to_owned(),
    };
    let yaml = format!(
        "tolerations:\n- key: {}\n  operator: {operator}\n  effect: {}",
        advice::key(key),
        scalar(effect)
    );
    let text = format!(
        "If the pod is meant for the nodes of NodePool {pool}, add the toleration to its \
         specification:"
    );
    let because = format!("it does not tolerate the taint {}", reasons::taint(key, value, effect));
    Finding::new(Cause::Taint, why, because, vec![Advice::write(Cause::Taint, text, yaml)])
}

/// A topology rule that leaves no domain.
pub(super) fn topology(about: &About<'_>, topology_key: &str, why: &Exclusion) -> Finding {
    let Exclusion::Topology { rule, .. } = why else {
        return pod(about, &reasons::exclusion(why));
    };
    let spread = about
        .shape
        .topology_spread
        .iter()
        .find(|it| it.required && it.topology_key == topology_key);
    let term = |anti: bool| {
        about.shape.pod_affinity.iter().find(move |it| {
            it.anti == anti && it.weight.is_none() && it.topology_key == topology_key
        })
    };
    let key = advice::key(topology_key);
    // The planner says which kind of rule it is.
    let (is_anti, is_affinity) = (rule.contains("anti-affinity"), rule.contains("pod affinity"));
    if let Some(spread) = spread.filter(|_| !is_anti && !is_affinity) {
        let text = "Let the pod run where the spread is not even, in its specification:";
        let yaml = format!(
            "topologySpreadConstraints:\n- topologyKey: {key}\n  maxSkew: {}\n  \
             whenUnsatisfiable: ScheduleAnyway{}",
            spread.max_skew,
            selector(spread.selector.as_ref(), 2)
        );
        let mut all = vec![Advice::write(Cause::TopologySpread, text, yaml)];
        all.push(where_pods_run(about, Cause::TopologySpread, topology_key));
        let because = format!("its topology spread over {topology_key} leaves no domain");
        return Finding::new(Cause::TopologySpread, why, because, all);
    }
    let (cause, name) = if is_anti {
        (Cause::PodAntiAffinity, "podAntiAffinity")
    } else {
        (Cause::PodAffinity, "podAffinity")
    };
    let mut all = Vec::new();
    if let Some(term) = term(is_anti) {
        let text = "Turn the rule into a preference, in the pod's specification:";
        let yaml = format!(
            "affinity:\n  {name}:\n    preferredDuringSchedulingIgnoredDuringExecution:\n    - \
             weight: 100\n      podAffinityTerm:\n        topologyKey: {key}{}",
            selector(term.selector.as_ref(), 8)
        );
        all.push(Advice::write(cause, text, yaml));
    }
    all.push(where_pods_run(about, cause, topology_key));
    let because = match (is_anti, term(is_anti).is_some()) {
        (true, true) => format!("its pod anti-affinity over {topology_key} leaves no domain"),
        (true, false) => {
            format!("the anti-affinity of other pods over {topology_key} leaves no domain")
        }
        (false, _) => format!("its pod affinity over {topology_key} finds no domain"),
    };
    Finding::new(cause, why, because, all)
}

fn where_pods_run(about: &About<'_>, cause: Cause, topology_key: &str) -> Advice {
    let text = format!(
        "Or make room in the domains that the rule allows. Pods and the nodes that they run on, \
         whose label {topology_key} is the domain:"
    );
    let namespace = word(&about.pod.namespace);
    Advice::run(cause, text, format!("kubectl get pods --namespace={namespace} -o wide"))
}

/// A label selector below an indentation.
fn selector(selector: Option<&LabelSelector>, by: usize) -> String {
    let Some(labels) = selector.and_then(|it| it.match_labels.as_ref()) else {
        return String::new();
    };
    let labels =
        labels.iter().map(|(key, value)| format!("{}: {}", advice::key(key), scalar(value)));
    let labels = labels.collect::<Vec<_>>().join("\n");
    let text = format!("labelSelector:\n  matchLabels:\n{}", indented(&labels, 4));
    format!("\n{}", indented(&text, by))
}

/// Devices that no node has.
pub(super) fn devices(about: &About<'_>, why: &Exclusion) -> Finding {
    let namespace = word(&about.pod.namespace);
    let (because, text, command) = match why {
        Exclusion::Devices { class, .. } => (
            format!("no instance type has the devices of class {class} that it claims"),
            "Request fewer devices or another device class. The devices that nodes have published:",
            "kubectl get resourceslices -o yaml".to_owned(),
        ),
        _ => (
            "a resource claim is allocated on a node that it can't use".to_owned(),
            "Delete the claim's other pods, or the claim, so that it is allocated again. The claims:",
            format!("kubectl get resourceclaims --namespace={namespace} -o wide"),
        ),
    };
    Finding::new(Cause::Devices, why, because, vec![Advice::run(Cause::Devices, text, command)])
}

/// What is wrong with the pod for every NodePool alike.
pub(super) fn pod(about: &About<'_>, reason: &str) -> Finding {
    let (name, namespace) = (word(&about.pod.name), word(&about.pod.namespace));
    let claims = &about.shape.resource_claims;
    if !claims.is_empty() && about.snapshot.devices.is_none() {
        return resource_claims(claims, (&name, &namespace));
    }
    let has_claims = !claims.is_empty() || !about.shape.device_claims.is_empty();
    if has_claims && !reason.to_lowercase().contains("volume") {
        let cause = Cause::Devices;
        let text = "Create or correct the ResourceClaims of the pod:";
        let command = format!("kubectl get resourceclaims --namespace={namespace} -o yaml");
        return Finding {
            cause,
            text: reason.to_owned(),
            because: "one of its resource claims can't be used".to_owned(),
            advice: vec![Advice::run(cause, text, command)],
        };
    }
    if about.pod.problem.as_deref() == Some(reason) && !reason.contains("matchFields") {
        let text = "Create or correct the PersistentVolumeClaims of the pod:";
        let command = format!("kubectl get pvc --namespace={namespace} -o wide");
        return Finding {
            cause: Cause::Volume,
            text: reason.to_owned(),
            because: "one of its volumes can't be used".to_owned(),
            advice: vec![Advice::run(Cause::Volume, text, command)],
        };
    }
    let (cause, because, text) = if reason.contains("host port") {
        (
            Cause::HostPorts,
            "DaemonSets use its host ports on every node",
            "Use other host ports, or none. The ports of the pod:",
        )
    } else {
        (
            Cause::PodSpec,
            "its specification can't be planned for",
            "Correct the pod's specification:",
        )
    };
    let command = format!("kubectl get pod {name} --namespace={namespace} -o yaml");
    Finding {
        cause,
        text: reason.to_owned(),
        because: because.to_owned(),
        advice: vec![Advice::run(cause, text, command)],
    }
}

fn resource_claims(claims: &[String], (name, namespace): (&str, &str)) -> Finding {
    let cause = Cause::ResourceClaims;
    let n = counted(claims.len(), "resource claim");
    let text = format!(
        "the pod has {n} ({}), and the operator ignores pods with resource claims unless it runs \
         with --ignore-dra-requests=false",
        claims.join(", ")
    );
    let set = Advice::write(
        cause,
        "Let the operator plan for resource claims (Kubernetes 1.34 or newer), in the chart's values:",
        "settings:\n  ignoreDRARequests: false",
    );
    let check = Advice::run(
        cause,
        "To see what it would do then:",
        format!("tenon explain pod {name} --namespace={namespace} --ignore-dra-requests=false"),
    );
    Finding {
        cause,
        text,
        because: "the operator ignores pods with resource claims".to_owned(),
        advice: vec![set, check],
    }
}
