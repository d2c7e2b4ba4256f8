//! What the API server says, read as JSON, because a cluster holds objects of every version.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use tenon_crds::quantity::Quantity;
use tenon_installer_core::apply::wait::condition;
use tenon_installer_core::kubernetes::client::{Cluster, KubeError, failed};
use tenon_installer_core::kubernetes::object::Key;
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::ownership::INSTALL_ID;

use super::super::observed::{
    CrdView, KubernetesView, NodeView, ReleaseView, ScalerView, Seen, WebhookView, WorkloadView,
};
use super::Sources;
use super::unread::Unread;

/// Verbs on resources that installing needs: group, resource, verb, in the operator's namespace.
const NEEDED: &[(&str, &str, &str, bool)] = &[
    ("apiextensions.k8s.io", "customresourcedefinitions", "create", false),
    ("apiextensions.k8s.io", "customresourcedefinitions", "patch", false),
    ("", "namespaces", "get", false),
    ("", "nodes", "list", false),
    ("", "serviceaccounts", "patch", true),
    ("", "services", "patch", true),
    ("", "configmaps", "patch", true),
    ("", "secrets", "create", true),
    ("apps", "deployments", "patch", true),
    ("policy", "poddisruptionbudgets", "patch", true),
    ("coordination.k8s.io", "leases", "create", true),
    ("rbac.authorization.k8s.io", "roles", "patch", true),
    ("rbac.authorization.k8s.io", "rolebindings", "patch", true),
    ("rbac.authorization.k8s.io", "clusterroles", "patch", false),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "patch", false),
    ("rbac.authorization.k8s.io", "clusterroles", "escalate", false),
    ("karpenter.sh", "nodepools", "patch", false),
    ("karpenter.sh", "nodeclaims", "list", false),
    ("karpenter.k8s.aws", "ec2nodeclasses", "patch", false),
];

pub(super) fn builtin(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

pub(super) fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn strings(value: &Value, pointer: &str) -> Vec<String> {
    items(value, pointer).filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(super) async fn list(cluster: &Cluster, resource: &ApiResource) -> Result<Vec<Value>, Unread> {
    let objects = cluster.list(resource).await?;
    let json = |object: DynamicObject| serde_json::to_value(object).unwrap_or_default();
    Ok(objects.into_iter().map(json).collect())
}

pub(super) async fn read(sources: &Sources<'_>) -> (KubernetesView, Seen<Vec<String>>) {
    let target = match sources.target {
        Ok(target) => target,
        Err(error) => {
            let why = error.to_string();
            return (unreachable(&why), Seen::Unknown(why));
        }
    };
    let cluster = &target.cluster;
    let namespace = &sources.settings.namespace;
    let service_account = sources.settings.values.service_account_name();
    let workloads = |kind: &'static str, plural: &'static str| async move {
        Ok::<_, Unread>(
            list(cluster, &builtin("apps", "v1", kind, plural))
                .await?
                .iter()
                .map(workload)
                .collect::<Vec<_>>(),
        )
    };
    let first = async {
        tokio::join!(
            version(cluster),
            nodes(cluster),
            workloads("Deployment", "deployments"),
            workloads("DaemonSet", "daemonsets"),
            endpoints(cluster, "kube-system/kube-dns"),
            labels(cluster, namespace),
            priority_quotas(cluster, namespace),
        )
    };
    let second = async {
        tokio::join!(
            flow_schemas(cluster),
            webhooks(cluster),
            crds(cluster),
            releases(cluster, namespace),
            service_account_role(cluster, namespace, &service_account),
            aws_auth(cluster),
            async { list(cluster, &resources::node_pools()).await },
        )
    };
    let third = async {
        tokio::join!(
            async { list(cluster, &resources::node_classes()).await },
            async { list(cluster, &resources::node_claims()).await },
            rbac(cluster, namespace),
            scalers(cluster),
        )
    };
    let (first, second, third) = tokio::join!(first, second, third);
    let view = KubernetesView {
        version: first.0.into(),
        nodes: first.1.into(),
        deployments: first.2.into(),
        daemon_sets: first.3.into(),
        dns_endpoints: first.4.into(),
        namespace: first.5.into(),
        priority_quotas: first.6.into(),
        flow_schemas: second.0.into(),
        webhooks: second.1.into(),
        crds: second.2.into(),
        releases: second.3.into(),
        service_account_role: second.4.into(),
        aws_auth: second.5.into(),
        node_pools: second.6.into(),
        node_classes: third.0.into(),
        node_claims: third.1.into(),
        scalers: third.3.into(),
    };
    (view, third.2.into())
}

/// Everything is unknown for the same reason.
fn unreachable(why: &str) -> KubernetesView {
    let view = KubernetesView::default();
    KubernetesView {
        version: Seen::Unknown(why.to_owned()),
        nodes: Seen::Unknown(why.to_owned()),
        ..view
    }
}

/// Why a call failed, in the words of the API server.
pub(super) fn why(verb: &'static str, resource: &str, source: kube::Error) -> KubeError {
    failed(verb, resource.to_owned(), source)
}

async fn version(cluster: &Cluster) -> Result<String, Unread> {
    let info = cluster.client().apiserver_version().await;
    let info = info.map_err(|source| why("get", "/version", source))?;
    Ok(format!("{}.{}", info.major, info.minor))
}

/// What an object says at a place; nothing where it says nothing, or what the API server would not
/// have taken.
fn quantity(object: &Value, pointer: &str) -> Quantity {
    text(object, pointer).parse().unwrap_or(Quantity::ZERO)
}

async fn nodes(cluster: &Cluster) -> Result<Vec<NodeView>, Unread> {
    let (nodes, pods) = (builtin("", "v1", "Node", "nodes"), builtin("", "v1", "Pod", "pods"));
    let (nodes, pods) = tokio::try_join!(list(cluster, &nodes), list(cluster, &pods))?;
    let mut used: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for pod in pods
        .iter()
        .filter(|pod| !matches!(text(pod, "/status/phase").as_str(), "Succeeded" | "Failed"))
    {
        let sum = used.entry(text(pod, "/spec/nodeName")).or_default();
        for container in items(pod, "/spec/containers") {
            sum.0 += quantity(container, "/resources/requests/cpu").millis();
            sum.1 += quantity(container, "/resources/requests/memory").units();
        }
    }
    Ok(nodes.iter().map(|node| node_view(node, &used)).collect())
}

fn node_view(node: &Value, used: &BTreeMap<String, (i64, i64)>) -> NodeView {
    let name = text(node, "/metadata/name");
    let label = |key: &str| node["metadata"]["labels"].get(key).and_then(Value::as_str);
    let (cpu, memory) = used.get(&name).copied().unwrap_or_default();
    let is_ready = items(node, "/status/conditions")
        .any(|one| one["type"].as_str() == Some("Ready") && one["status"].as_str() == Some("True"));
    let is_closed = node.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false);
    NodeView {
        zone: label("topology.kubernetes.io/zone").map(str::to_owned),
        ready: is_ready && !is_closed,
        from_node_pool: label("karpenter.sh/nodepool").is_some(),
        fargate: label("eks.amazonaws.com/compute-type") == Some("fargate"),
        kops: label("kops.k8s.io/instancegroup").is_some(),
        architecture: label("kubernetes.io/arch").unwrap_or_default().to_owned(),
        images: items(node, "/status/images")
            .flat_map(|image| items(image, "/names"))
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect(),
        free_cpu: quantity(node, "/status/allocatable/cpu").millis() - cpu,
        free_memory: quantity(node, "/status/allocatable/memory").units() - memory,
        name,
    }
}

fn marks(object: &Value) -> BTreeMap<String, String> {
    let of = |section: &str| {
        let map = object["metadata"].get(section).and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
    };
    // Annotations can be long and hold what users typed: the keys are what matters, and short
    // values.
    of("labels").chain(of("annotations").filter(|(_, value)| value.len() <= 256)).collect()
}

pub(super) fn workload(object: &Value) -> WorkloadView {
    const CONTAINERS: &str = "/spec/template/spec/containers";
    let number = |pointers: &[&str]| {
        pointers.iter().find_map(|pointer| object.pointer(pointer)?.as_i64()).unwrap_or(0)
    };
    WorkloadView {
        namespace: text(object, "/metadata/namespace"),
        name: text(object, "/metadata/name"),
        images: items(object, CONTAINERS).map(|one| text(one, "/image")).collect(),
        env: items(object, CONTAINERS)
            .flat_map(|one| items(one, "/env"))
            .map(|one| text(one, "/name"))
            .collect(),
        interruption_queue: items(object, CONTAINERS)
            .flat_map(|one| items(one, "/env"))
            .find(|one| text(one, "/name") == "INTERRUPTION_QUEUE")
            .map(|one| text(one, "/value")),
        managed_tag: managed_tag(object),
        avoids_pools: avoids_pools(object),
        wanted: number(&["/spec/replicas", "/status/desiredNumberScheduled"]),
        ready: number(&["/status/readyReplicas", "/status/numberReady"]),
        tolerates_all: items(object, "/spec/template/spec/tolerations").any(|one| {
            text(one, "/operator") == "Exists"
                && text(one, "/key").is_empty()
                && text(one, "/effect").is_empty()
        }),
        marks: marks(object),
    }
}

/// The value of a variable of a workload, as its manifest has it.
fn variable(object: &Value, name: &str) -> Option<String> {
    let mut all =
        items(object, "/spec/template/spec/containers").flat_map(|one| items(one, "/env"));
    let found = all.find(|one| text(one, "/name") == name)?;
    Some(text(found, "/value")).filter(|value| !value.is_empty())
}

/// The tag by which Node Termination Handler knows the instances that it drains. Only where it
/// reads a queue, and unless it is told not to ask for it.
fn managed_tag(object: &Value) -> Option<String> {
    let is = |name: &str, default: &str| {
        let value = variable(object, name).unwrap_or_else(|| default.to_owned());
        ["1", "t", "true"].contains(&value.to_lowercase().as_str())
    };
    let asks = is("ENABLE_SQS_TERMINATION_DRAINING", "false")
        && is("CHECK_TAG_BEFORE_DRAINING", "true")
        && is("CHECK_ASG_TAG_BEFORE_DRAINING", "true");
    asks.then(|| {
        let told = variable(object, "MANAGED_TAG").or_else(|| variable(object, "MANAGED_ASG_TAG"));
        told.unwrap_or_else(|| "aws-node-termination-handler/managed".to_owned())
    })
}

/// Each term of the required node affinity keeps its pods off nodes of NodePools.
fn avoids_pools(object: &Value) -> bool {
    const TERMS: &str = "/spec/template/spec/affinity/nodeAffinity/\
                         requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let avoids = |term: &Value| {
        items(term, "/matchExpressions").any(|one| {
            text(one, "/key") == "karpenter.sh/nodepool" && text(one, "/operator") == "DoesNotExist"
        })
    };
    let mut terms = items(object, TERMS).peekable();
    terms.peek().is_some() && terms.all(avoids)
}

/// Ready endpoints of a Service, by its slices.
async fn endpoints(cluster: &Cluster, service: &str) -> Result<usize, Unread> {
    let slices = slices(cluster).await?;
    Ok(slices.get(service).copied().unwrap_or(0))
}

async fn slices(cluster: &Cluster) -> Result<BTreeMap<String, usize>, Unread> {
    let resource = builtin("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
    let mut ready: BTreeMap<String, usize> = BTreeMap::new();
    for slice in list(cluster, &resource).await? {
        let service =
            slice["metadata"]["labels"].get("kubernetes.io/service-name").and_then(Value::as_str);
        let key =
            format!("{}/{}", text(&slice, "/metadata/namespace"), service.unwrap_or_default());
        let n = items(&slice, "/endpoints")
            .filter(|one| one.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false))
            .count();
        *ready.entry(key).or_default() += n;
    }
    Ok(ready)
}

fn key(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Key {
    Key {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}

async fn labels(
    cluster: &Cluster,
    namespace: &str,
) -> Result<Option<BTreeMap<String, String>>, Unread> {
    let resource = builtin("", "v1", "Namespace", "namespaces");
    let found = cluster.get(&resource, &key("v1", "Namespace", None, namespace)).await;
    Ok(found?.as_ref().map(marks))
}

async fn priority_quotas(cluster: &Cluster, namespace: &str) -> Result<Vec<String>, Unread> {
    let quotas = list(cluster, &builtin("", "v1", "ResourceQuota", "resourcequotas")).await?;
    let in_the_way = |quota: &&Value| {
        let limits_class = items(quota, "/spec/scopeSelector/matchExpressions").any(|one| {
            text(one, "/scopeName") == "PriorityClass"
                && strings(one, "/values").iter().any(|value| value == "system-cluster-critical")
        });
        let amount = |section: &str| quantity(quota, &format!("/{section}/hard/pods"));
        let used = quantity(quota, "/status/used/pods");
        limits_class && quota.pointer("/spec/hard/pods").is_some() && used >= amount("spec")
    };
    let here = quotas.iter().filter(|quota| text(quota, "/metadata/namespace") == namespace);
    Ok(here.filter(in_the_way).map(|quota| text(quota, "/metadata/name")).collect())
}

async fn flow_schemas(cluster: &Cluster) -> Result<Vec<String>, Unread> {
    let resource = builtin("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas");
    Ok(list(cluster, &resource).await?.iter().map(|one| text(one, "/metadata/name")).collect())
}

async fn webhooks(cluster: &Cluster) -> Result<Vec<WebhookView>, Unread> {
    let group = "admissionregistration.k8s.io";
    let validating =
        builtin(group, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations");
    let mutating =
        builtin(group, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations");
    let (validating, mutating, ready) =
        tokio::try_join!(list(cluster, &validating), list(cluster, &mutating), slices(cluster))?;
    let mut views = Vec::new();
    for configuration in validating.iter().chain(&mutating) {
        for hook in items(configuration, "/webhooks") {
            let service = hook.pointer("/clientConfig/service").map(|service| {
                format!("{}/{}", text(service, "/namespace"), text(service, "/name"))
            });
            views.push(WebhookView {
                name: format!("{}/{}", text(configuration, "/metadata/name"), text(hook, "/name")),
                fails_closed: text(hook, "/failurePolicy") != "Ignore",
                resources: items(hook, "/rules")
                    .flat_map(|rule| strings(rule, "/resources"))
                    .collect(),
                endpoints: service.as_ref().and_then(|name| ready.get(name)).copied().unwrap_or(0),
                service,
            });
        }
    }
    Ok(views)
}

/// None in clusters without KEDA.
async fn scalers(cluster: &Cluster) -> Result<Vec<ScalerView>, Unread> {
    let of_keda = |kind, plural| builtin("keda.sh", "v1alpha1", kind, plural);
    let (objects, jobs) =
        (of_keda("ScaledObject", "scaledobjects"), of_keda("ScaledJob", "scaledjobs"));
    let (objects, jobs) = tokio::try_join!(list(cluster, &objects), list(cluster, &jobs))?;
    let view = |kind: &str, one: &Value| {
        let metadata = |key: &str| text(one, &format!("/metadata/{key}"));
        let ready = condition(one, "Ready");
        ScalerView {
            name: format!("{kind} {}/{}", metadata("namespace"), metadata("name")),
            ready: ready.map(|(status, ..)| status.to_owned()),
            message: ready.map(|(.., message)| message.to_owned()).unwrap_or_default(),
        }
    };
    let objects = objects.iter().map(|one| view("ScaledObject", one));
    Ok(objects.chain(jobs.iter().map(|one| view("ScaledJob", one))).collect())
}

async fn crds(cluster: &Cluster) -> Result<Vec<CrdView>, Unread> {
    let resource = builtin(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    let matters = |name: &str| {
        name.ends_with(".karpenter.sh")
            || name.ends_with(".karpenter.k8s.aws")
            || name == "servicemonitors.monitoring.coreos.com"
    };
    let all = list(cluster, &resource).await?;
    let ours = all.iter().filter(|crd| matters(&text(crd, "/metadata/name")));
    Ok(ours
        .map(|crd| CrdView {
            name: text(crd, "/metadata/name"),
            stored_versions: strings(crd, "/status/storedVersions"),
            conversion_webhook: text(crd, "/spec/conversion/strategy") == "Webhook",
            marks: marks(crd),
        })
        .collect())
}

/// Helm's records by their labels; what they hold is not read.
async fn releases(cluster: &Cluster, namespace: &str) -> Result<Vec<ReleaseView>, Unread> {
    let resource = builtin("", "v1", "Secret", "secrets");
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), namespace, &resource);
    let found = api.list_metadata(&ListParams::default().labels("owner=helm")).await;
    let found = found.map_err(|source| why("list", "secrets", source))?;
    let label = |one: &kube::core::ObjectMeta, key: &str| {
        one.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
    };
    let current = found.items.iter().filter(|one| label(&one.metadata, "status") != "superseded");
    Ok(current
        .map(|one| ReleaseView {
            name: label(&one.metadata, "name"),
            namespace: namespace.to_owned(),
            status: label(&one.metadata, "status"),
            ours: !label(&one.metadata, INSTALL_ID).is_empty(),
        })
        .collect())
}

async fn service_account_role(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, Unread> {
    let resource = builtin("", "v1", "ServiceAccount", "serviceaccounts");
    let key = key("v1", "ServiceAccount", Some(namespace), name);
    let found = cluster.get(&resource, &key).await?;
    let role = found
        .as_ref()
        .and_then(|found| found["metadata"]["annotations"].get("eks.amazonaws.com/role-arn"))
        .and_then(Value::as_str);
    Ok(role.map(str::to_owned))
}

async fn aws_auth(cluster: &Cluster) -> Result<Option<String>, Unread> {
    let resource = builtin("", "v1", "ConfigMap", "configmaps");
    let key = key("v1", "ConfigMap", Some("kube-system"), "aws-auth");
    let found = cluster.get(&resource, &key).await?;
    Ok(found.map(|found| text(&found, "/data/mapRoles")))
}

async fn rbac(cluster: &Cluster, namespace: &str) -> Result<Vec<String>, Unread> {
    let api: Api<SelfSubjectAccessReview> = Api::all(cluster.client());
    let asked = NEEDED.iter().map(|(group, resource, verb, namespaced)| {
        let attributes = ResourceAttributes {
            group: Some((*group).to_owned()),
            resource: Some((*resource).to_owned()),
            verb: Some((*verb).to_owned()),
            namespace: namespaced.then(|| namespace.to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api = api.clone();
        async move {
            let answer = api.create(&PostParams::default(), &review).await;
            let answer =
                answer.map_err(|source| why("create", "selfsubjectaccessreviews", source))?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            Ok::<_, Unread>((!allowed).then(|| format!("{verb} {resource}")))
        }
    });
    let answers = futures::stream::iter(asked).buffered(8).collect::<Vec<_>>().await;
    let missing = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    let missing = missing.into_iter().flatten().collect::<Vec<_>>();
    // Who may write roles and already holds what they grant needs no right to escalate.
    let only_escalate = missing.iter().all(|one| one.starts_with("escalate"));
    Ok(if only_escalate { Vec::new() } else { missing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_read_in_their_units() {
        let of = |text: &str| quantity(&json!({"amount": text}), "/amount");
        assert_eq!(of("1500m").millis(), 1500);
        assert_eq!(of("2").millis(), 2000);
        assert_eq!(of("1Gi").units(), 1 << 30);
        assert_eq!(of("1Pi").units(), 1 << 50);
        assert_eq!(of("1e9").units(), 1_000_000_000);
        assert_eq!(of("").units(), 0);
    }

    #[test]
    fn a_nodes_room_is_what_its_pods_leave() {
        let node = json!({
            "metadata": {"name": "a", "labels": {"topology.kubernetes.io/zone": "z"}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi"},
                "conditions": [{"type": "Ready", "status": "True"}],
                "images": [{"names": ["a:1", "a@sha256:0"]}, {"names": ["b:1"]}, {}],
            },
        });
        let used = BTreeMap::from([("a".to_owned(), (3500, 1 << 30))]);
        let view = node_view(&node, &used);
        assert_eq!((view.free_cpu, view.free_memory), (500, 7 << 30));
        assert!(view.ready && !view.from_node_pool);
        assert_eq!(view.images, ["a:1", "a@sha256:0", "b:1"]);
        let closed = json!({"metadata": {"name": "b"}, "spec": {"unschedulable": true}});
        assert!(!node_view(&closed, &used).ready);
    }

    #[test]
    fn a_workload_that_tolerates_everything_names_no_key_and_no_effect() {
        let with = |tolerations: Value| {
            workload(&json!({"spec": {"template": {"spec": {"tolerations": tolerations}}}}))
                .tolerates_all
        };
        assert!(with(json!([{"operator": "Exists"}])));
        assert!(!with(json!([{"operator": "Exists", "effect": "NoSchedule"}])));
        assert!(!with(json!([{"operator": "Exists", "key": "a"}])));
    }
}
