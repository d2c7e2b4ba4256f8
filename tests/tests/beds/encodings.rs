//! Both encodings of the API server's lists give the same objects: it writes them itself, with
//! every field that is read.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::wait::must;
use tenon_state::guarded::Guarded;
use tenon_state::protobuf::{Encoded, ListDecoder, MEDIA_TYPE, Page};
use tenon_state::wire;

use crate::requests::apply;

/// A pod with every field that is read, apart from what only controllers write.
fn full() -> Value {
    let expression = json!({ "key": "disk", "operator": "In", "values": ["ssd", "nvme"] });
    let selector = json!({
        "matchLabels": { "app": "full" },
        "matchExpressions": [{ "key": "tier", "operator": "Exists" }, expression],
    });
    let term = json!({
        "labelSelector": selector,
        "namespaces": ["default", "kube-system"],
        "namespaceSelector": {},
        "topologyKey": "topology.kubernetes.io/zone",
        "matchLabelKeys": ["revision"],
        "mismatchLabelKeys": ["color"],
    });
    let pods = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [
            term, { "topologyKey": "kubernetes.io/hostname" }
        ],
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 7, "podAffinityTerm": term }],
    });
    let node = json!({
        "matchExpressions": [expression, { "key": "gpu", "operator": "DoesNotExist" }],
        "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }],
    });
    let resources = json!({
        "requests": { "cpu": "250m", "memory": "1.5Gi", "example.com/license": "2" },
        "limits": { "memory": "2Gi", "example.com/license": "2" },
    });
    let ports = json!([
        { "containerPort": 80 },
        { "containerPort": 81, "hostPort": 81, "hostIP": "127.0.0.1", "protocol": "UDP" },
    ]);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "full",
            "namespace": "default",
            "labels": { "app": "full", "revision": "1", "color": "blue" },
            "annotations": { "karpenter.sh/do-not-disrupt": "true", "empty": "" },
            "finalizers": ["example.com/kept"],
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1", "controller": true },
                { "apiVersion": "v1", "kind": "Secret", "name": "y", "uid": "2" },
            ],
        },
        "spec": {
            "runtimeClassName": "heavy",
            "nodeSelector": { "disk": "ssd" },
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [node] },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        { "weight": 3, "preference": node }
                    ],
                },
                "podAffinity": pods,
                "podAntiAffinity": pods,
            },
            "tolerations": [
                { "operator": "Exists" },
                { "key": "a", "value": "", "effect": "NoSchedule" },
                { "key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0 },
            ],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 2, "minDomains": 3, "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector,
                    "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor",
                    "matchLabelKeys": ["revision"],
                },
                {
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                },
            ],
            "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "2" } },
            "containers": [
                { "name": "main", "image": "x", "ports": ports, "resources": resources },
                { "name": "beside", "image": "x" },
            ],
            "initContainers": [
                { "name": "sidecar", "image": "x", "restartPolicy": "Always", "resources": resources },
                { "name": "before", "image": "x" },
            ],
            "schedulerName": "another",
            "terminationGracePeriodSeconds": 0,
            "volumes": [
                { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
                { "name": "own", "ephemeral": { "volumeClaimTemplate": { "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                } } } },
                { "name": "scratch", "emptyDir": {} },
            ],
            "resourceClaims": [
                { "name": "gpu", "resourceClaimName": "gpu" },
                { "name": "own-gpu", "resourceClaimTemplateName": "gpu" },
            ],
            "schedulingGates": [{ "name": "example.com/quota" }],
        },
    })
}

/// The least of a pod.
fn plain() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "plain", "namespace": "default" },
        "spec": { "containers": [{ "name": "main", "image": "x" }] },
    })
}

/// What only controllers and kubelets write.
fn status() -> Value {
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "False", "reason": "Because", "message": "of it",
            "lastTransitionTime": "2026-01-01T00:00:07Z",
        })
    };
    json!({
        "phase": "Pending",
        "conditions": [condition("PodScheduled"), { "type": "Ready", "status": "Unknown" }],
        "nominatedNodeName": "node-1",
        "startTime": "2026-01-01T00:00:01Z",
        "resourceClaimStatuses": [
            { "name": "gpu" }, { "name": "own-gpu", "resourceClaimName": "full-own-gpu-x" },
        ],
    })
}

fn node() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": "node-1", "labels": { "disk": "ssd" } },
        "spec": {
            "providerID": "aws:///eu-central-1a/i-1",
            "unschedulable": true,
            "taints": [
                { "key": "a", "value": "b", "effect": "NoSchedule" },
                { "key": "c", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" },
            ],
        },
    })
}

async fn encoded<K: Encoded>(client: &Client, params: &ListParams) -> Page<K> {
    let request = kube::core::Request::new(K::url_path(&(), None)).list(params).expect("valid");
    let mut request = request.map(Body::from);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPE));
    let answer = client.send(request).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()[CONTENT_TYPE], MEDIA_TYPE);
    let body = answer.into_body().collect_bytes().await.expect("a body");
    let mut decoder = ListDecoder::new();
    decoder.push(&body);
    decoder.finish().expect("a list")
}

/// The objects in both encodings, of one moment.
async fn both<K: Encoded>(client: &Client) -> (Vec<K>, Vec<K>)
where
    Guarded<K>: Resource<DynamicType = ()>,
{
    let params = ListParams::default();
    let list = Api::<Guarded<K>>::all(client.clone()).list(&params).await.expect("a list");
    let version = list.metadata.resource_version.expect("a version");
    let json = list.items.into_iter().map(|it| it.into_result().expect("it parses"));
    let same = params.at(&version).matching(kube::api::VersionMatch::Exact);
    let page = encoded::<K>(client, &same).await;
    assert_eq!(page.continue_token, None);
    (
        json.collect(),
        page.items.into_iter().map(|it| it.into_result().expect("it decodes")).collect(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn both_encodings_of_a_list_give_the_same_objects() {
    let bed = must(Bed::start(BedConfig::default()).await);
    let heavy = json!({
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": { "name": "heavy" },
        "handler": "heavy",
        "overhead": { "podFixed": { "cpu": "100m", "memory": "64Mi" } },
    });
    apply(&bed, "runtimeclasses", &heavy).await;
    apply(&bed, "nodes", &node()).await;
    for pod in [full(), plain()] {
        apply(&bed, "pods", &pod).await;
    }
    let client = bed.client();
    let pods: Api<wire::Pod> = Api::namespaced(client.clone(), "default");
    let patch = kube::api::Patch::Merge(json!({ "status": status() }));
    must(pods.patch_status("full", &kube::api::PatchParams::default(), &patch).await);
    // One of our own managers is told from others.
    let nominated = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "plain" },
        "status": { "nominatedNodeName": "node-1" },
    });
    let manager = kube::api::PatchParams::apply(tenon_state::pod::NOMINATION_MANAGER).force();
    let patch = kube::api::Patch::Apply(nominated);
    must(pods.patch_status("plain", &manager, &patch).await);

    let (json, same) = both::<wire::Pod>(&client).await;
    assert_eq!(json, same);
    let of = |name: &str| json.iter().find(|pod| pod.name_any() == name).expect("a pod");
    // Nothing was dropped by the API server, so that everything is compared.
    let (full, plain) = (of("full"), of("plain"));
    assert_eq!(full.spec.overhead["cpu"].millis(), 100);
    assert_eq!(full.status.resource_claim_statuses.len(), 2);
    assert_eq!(full.status.conditions.len(), 2);
    assert!(full.spec.resources.is_some() && full.status.start_time.is_some());
    assert!(plain.metadata.managed_fields.is_some(), "{plain:?}");
    let (json, same) = both::<wire::Node>(&client).await;
    assert_eq!(json, same);
    assert!(json.len() >= 3, "{json:?}");

    // In pages.
    let first = encoded::<wire::Node>(&client, &ListParams::default().limit(1)).await;
    let token = first.continue_token.expect("there are more");
    let params = ListParams::default().limit(100).continue_token(&token);
    let rest = encoded::<wire::Node>(&client, &params).await;
    assert_eq!(1 + rest.items.len(), json.len());
    must(bed.stop().await);
}
