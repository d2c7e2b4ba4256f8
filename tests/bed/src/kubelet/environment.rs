//! The variables of a container, as a kubelet resolves them: what the cluster gives to every
//! container, then `envFrom`, then `env` with `$(NAME)` references; later ones win.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVarSource, ObjectFieldSelector, Pod, ResourceFieldSelector, Secret,
};
use kube::{Api, ResourceExt};
use tenon_crds::Quantity;

use super::Shared;

/// Why a container can't be created yet; its message is shown in the pod's status.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ConfigError(pub(super) String);

/// A pod and what its kubelet has decided about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) pod: &'a Pod,
    pub(super) address: Ipv4Addr,
}

/// The address of every system node towards its pods.
pub(super) const HOST_ADDRESS: &str = "127.0.0.1";

pub(super) async fn resolve(
    shared: &Shared,
    facts: Facts<'_>,
    container: &Container,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let namespace = facts.pod.namespace().unwrap_or_default();
    let config = &shared.config;
    let mut env = base(shared, facts);
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let mut values = BTreeMap::new();
        if let Some(reference) = &source.config_map_ref {
            let optional = reference.optional.unwrap_or(false);
            values.extend(config_map(shared, &namespace, &reference.name, optional).await?);
        }
        if let Some(reference) = &source.secret_ref {
            let optional = reference.optional.unwrap_or(false);
            values.extend(secret(shared, &namespace, &reference.name, optional).await?);
        }
        for (key, value) in values {
            env.insert(format!("{prefix}{key}"), String::from_utf8_lossy(&value).into_owned());
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value_from, &variable.value) {
            (Some(source), _) => referenced(shared, facts, container, &namespace, source).await?,
            (None, Some(value)) => Some(expand(value, &env)),
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            env.insert(variable.name.clone(), value);
        }
    }
    for (name, value) in &config.env {
        env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Ok(env)
}

fn base(shared: &Shared, facts: Facts<'_>) -> BTreeMap<String, String> {
    let spec = facts.pod.spec.as_ref();
    let on_host = spec.filter(|spec| spec.host_network == Some(true));
    let node = on_host.and_then(|spec| spec.node_name.as_ref());
    let metadata = match node.and_then(|node| shared.config.metadata.get(node)) {
        Some(url) => ("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.clone()),
        // Answers about the instance end one hop from it, and waiting for them takes long.
        None => ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
    };
    [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ("HOME", "/".to_owned()),
        ("HOSTNAME", facts.pod.name_any()),
        ("KUBERNETES_SERVICE_HOST", HOST_ADDRESS.to_owned()),
        ("KUBERNETES_SERVICE_PORT", shared.config.api_server_port.to_string()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", shared.config.api_server_port.to_string()),
        ("BIND_ADDRESS", facts.address.to_string()),
        metadata,
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

async fn referenced(
    shared: &Shared,
    facts: Facts<'_>,
    container: &Container,
    namespace: &str,
    source: &EnvVarSource,
) -> Result<Option<String>, ConfigError> {
    if let Some(reference) = &source.field_ref {
        return field(facts, reference).map(Some);
    }
    if let Some(reference) = &source.resource_field_ref {
        return resource(facts, container, reference).map(Some);
    }
    let (kind, name, key, optional, values) = if let Some(it) = &source.config_map_key_ref {
        let optional = it.optional.unwrap_or(false);
        (
            "configmap",
            &it.name,
            &it.key,
            optional,
            config_map(shared, namespace, &it.name, optional).await?,
        )
    } else if let Some(it) = &source.secret_key_ref {
        let optional = it.optional.unwrap_or(false);
        (
            "secret",
            &it.name,
            &it.key,
            optional,
            secret(shared, namespace, &it.name, optional).await?,
        )
    } else {
        return Err(ConfigError(
            "the bed's kubelet does not know this source of a variable".to_owned(),
        ));
    };
    match values.get(key) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional => Ok(None),
        None => Err(ConfigError(format!("couldn't find key {key} in {kind} {namespace}/{name}"))),
    }
}

/// The entries of a ConfigMap; empty if it is missing and may be.
pub(super) async fn config_map(
    shared: &Shared,
    namespace: &str,
    name: &str,
    optional: bool,
) -> Result<BTreeMap<String, Vec<u8>>, ConfigError> {
    let maps: Api<ConfigMap> = Api::namespaced(shared.config.client.clone(), namespace);
    let found = maps.get_opt(name).await.map_err(|error| ConfigError(error.to_string()))?;
    match found {
        Some(map) => {
            let text = map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
            let binary = map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0));
            Ok(text.chain(binary).collect())
        }
        None if optional => Ok(BTreeMap::new()),
        None => Err(ConfigError(format!("configmap \"{name}\" not found"))),
    }
}

/// The entries of a Secret; empty if it is missing and may be.
pub(super) async fn secret(
    shared: &Shared,
    namespace: &str,
    name: &str,
    optional: bool,
) -> Result<BTreeMap<String, Vec<u8>>, ConfigError> {
    let secrets: Api<Secret> = Api::namespaced(shared.config.client.clone(), namespace);
    let found = secrets.get_opt(name).await.map_err(|error| ConfigError(error.to_string()))?;
    match found {
        Some(secret) => {
            Ok(secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect())
        }
        None if optional => Ok(BTreeMap::new()),
        None => Err(ConfigError(format!("secret \"{name}\" not found"))),
    }
}

/// A field of the pod, by the downward API's path.
pub(super) fn field(
    facts: Facts<'_>,
    selector: &ObjectFieldSelector,
) -> Result<String, ConfigError> {
    let Facts { pod, address } = facts;
    let spec = pod.spec.as_ref();
    let path = selector.field_path.as_str();
    let value = match path {
        "metadata.name" => Some(pod.name_any()),
        "metadata.namespace" => pod.namespace(),
        "metadata.uid" => pod.uid(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.hostIP" | "status.hostIPs" => Some(HOST_ADDRESS.to_owned()),
        "status.podIP" | "status.podIPs" => Some(address.to_string()),
        "metadata.labels" => Some(listed(pod.labels())),
        "metadata.annotations" => Some(listed(pod.annotations())),
        _ => {
            let subscript = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']");
            let of = |map: &BTreeMap<String, String>, key: &str| {
                map.get(key).cloned().unwrap_or_default()
            };
            let label = subscript("metadata.labels['").map(|key| of(pod.labels(), key));
            label.or_else(|| {
                subscript("metadata.annotations['").map(|key| of(pod.annotations(), key))
            })
        }
    };
    value.ok_or_else(|| ConfigError(format!("unsupported fieldPath: {path}")))
}

fn listed(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
}

/// An amount of a container's resources, in units of the divisor, rounded up.
pub(super) fn resource(
    facts: Facts<'_>,
    own: &Container,
    selector: &ResourceFieldSelector,
) -> Result<String, ConfigError> {
    let unsupported = || ConfigError(format!("unsupported resource: {}", selector.resource));
    let spec = facts.pod.spec.as_ref();
    let container = match &selector.container_name {
        Some(name) => spec
            .and_then(|spec| spec.containers.iter().find(|container| container.name == *name))
            .ok_or_else(|| ConfigError(format!("container {name} not found")))?,
        None => own,
    };
    let (kind, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = container.resources.as_ref();
    let list = match kind {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return Err(unsupported()),
    };
    // Without a limit, the node's allocatable counts.
    let default = match (kind, name) {
        ("limits", "cpu") => "4",
        ("limits", "memory") => "15896Mi",
        ("limits", "ephemeral-storage") => "80Gi",
        _ => "0",
    };
    let text = list.and_then(|list| list.get(name)).map_or(default, |quantity| quantity.0.as_str());
    let amount = text.parse::<Quantity>().map_err(|error| ConfigError(error.to_string()))?.nanos();
    let divisor = match &selector.divisor {
        Some(divisor) => {
            divisor.0.parse::<Quantity>().map_err(|error| ConfigError(error.to_string()))?.nanos()
        }
        None => 0,
    };
    // "0" is the API's way to say "unset".
    let divisor = if divisor <= 0 { 1_000_000_000 } else { divisor };
    Ok((amount + divisor - 1).div_euclid(divisor).to_string())
}

/// Replaces `$(NAME)` by the variable's value if there is one; `$$` stands for `$`.
pub(super) fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').and_then(|inner| inner.split_once(')'))
        {
            match env.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded = expanded + "$(" + name + ")",
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n", "labels": { "app": "x" } },
            "spec": { "serviceAccountName": "sa", "containers": [
                { "name": "main", "resources": { "limits": { "memory": "1500Mi", "cpu": "250m" } } },
            ] },
        }))
        .expect("a pod")
    }

    #[test]
    fn references_are_expanded_as_a_kubelet_does() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        assert_eq!(expand("x$(A)y$(B)$$(A)$", &env), "x1y$(B)$(A)$");
    }

    #[test]
    fn downward_fields_are_the_pods() {
        let pod = pod();
        let facts = Facts { pod: &pod, address: Ipv4Addr::new(127, 1, 2, 3) };
        let of = |path: &str| {
            field(facts, &ObjectFieldSelector { api_version: None, field_path: path.to_owned() })
        };
        assert_eq!(of("status.podIP").as_deref(), Ok("127.1.2.3"));
        assert_eq!(of("metadata.labels['app']").as_deref(), Ok("x"));
        assert_eq!(of("spec.serviceAccountName").as_deref(), Ok("sa"));
        assert!(of("status.phase").is_err());
    }

    #[test]
    fn resource_fields_are_in_units_of_the_divisor_rounded_up() {
        let pod = pod();
        let facts = Facts { pod: &pod, address: Ipv4Addr::LOCALHOST };
        let own = &pod.spec.as_ref().expect("spec").containers[0];
        let of = |resource: &str, divisor: &str| {
            let selector = json!({ "resource": resource, "divisor": divisor });
            super::resource(facts, own, &serde_json::from_value(selector).expect("a selector"))
        };
        assert_eq!(of("limits.memory", "1Mi").as_deref(), Ok("1500"));
        assert_eq!(of("limits.memory", "0").as_deref(), Ok("1572864000"));
        assert_eq!(of("limits.cpu", "1").as_deref(), Ok("1"));
        assert_eq!(of("limits.cpu", "1m").as_deref(), Ok("250"));
        assert_eq!(of("requests.cpu", "1").as_deref(), Ok("0"));
    }
}
