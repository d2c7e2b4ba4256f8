//! Pods that ask for devices by ResourceClaims (dynamic resource allocation) get machines, of types
//! that are known to bring such devices.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenon_bed::kwok_operators::KwokOperators;
use tenon_bed::user::{LIMIT, User, condition, one_of};
use tenon_bed::wait::{eventually, must};

const DRIVER: &str = "gpu.example.com";
const REQUESTED: &str = "karpenter.sh/requested-dra-drivers";

/// What the driver on a node does when it starts: it says that there are two devices.
async fn publish(user: &User, node: &Node) {
    let name = node.name_any();
    let device = |number: u8| json!({ "name": format!("gpu-{number}"), "attributes": { "model": { "string": "a1" } } });
    let slice = json!({
        "metadata": { "name": format!("{name}-{DRIVER}") },
        "spec": {
            "driver": DRIVER, "nodeName": name,
            "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 },
            "devices": [device(0), device(1)],
        },
    });
    let slices: Api<ResourceSlice> = Api::all(user.client());
    must(slices.create(&PostParams::default(), &must(serde_json::from_value(slice))).await);
}

/// A class of the driver's devices, and a template for claims to one of them.
async fn ask_for_devices(user: &User, template: &str) {
    let class = json!({
        "metadata": { "name": DRIVER },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] },
    });
    let classes: Api<DeviceClass> = Api::all(user.client());
    must(classes.create(&PostParams::default(), &must(serde_json::from_value(class))).await);
    let selector = format!("device.attributes['{DRIVER}'].model == 'a1'");
    let exactly =
        json!({ "deviceClassName": DRIVER, "selectors": [{ "cel": { "expression": selector } }] });
    let claim = json!({
        "metadata": { "name": template },
        "spec": { "spec": { "devices": { "requests": [{ "name": "gpu", "exactly": exactly }] } } },
    });
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(user.client(), "default");
    must(templates.create(&PostParams::default(), &must(serde_json::from_value(claim))).await);
}

pub(super) async fn machines_come_for_devices_and_count_when_these_are_published(
    tenon: Arc<KwokOperators>,
) {
    let (user, scenario) = (tenon.user(), "devices");
    ask_for_devices(user, scenario).await;
    let machines = json!([
        one_of("kubernetes.io/os", &["linux"]),
        one_of("kubernetes.io/arch", &["amd64"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
        one_of("node.kubernetes.io/instance-type", &["m-4x-amd64-linux", "c-4x-amd64-linux"]),
    ]);
    must(user.pool(scenario, &machines, &json!({})).await);
    let here = json!({ "scenario": scenario });
    must(user.scale("plain", 1, &here).await);
    must(user.runs("plain", 1).await);
    let first = must(user.nodes(scenario).await).remove(0);
    publish(user, &first).await;

    let with_device = json!({ "spec": {
        "nodeSelector": here,
        "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": scenario }],
        "containers": [{
            "name": "main", "image": "registry.example/app:1",
            "resources": { "requests": { "cpu": "100m" }, "claims": [{ "name": "gpu" }] },
        }],
    }});
    must(user.deploy(scenario, 2, &with_device).await);
    must(user.runs(scenario, 2).await);
    assert_eq!(
        must(user.claims(scenario).await).len(),
        1,
        "the node that is there has two devices"
    );

    must(user.deploy(scenario, 3, &with_device).await);
    let up = async || Ok(user.nodes(scenario).await?.len() == 2);
    must(eventually("a second machine comes", LIMIT, up).await);
    let mut nodes = must(user.nodes(scenario).await);
    nodes.retain(|it| it.name_any() != first.name_any());
    let second = nodes.remove(0);
    let name = json!(second.name_any());
    let of_second = async || -> Result<Option<DynamicObject>, kube::Error> {
        let claims = user.claims(scenario).await?;
        Ok(claims.into_iter().find(|it| it.data["status"]["nodeName"] == name))
    };
    let waits = async || {
        let Some(claim) = of_second().await? else { return Ok(false) };
        assert_eq!(claim.annotations().get(REQUESTED).map(String::as_str), Some(DRIVER));
        Ok(condition(&claim, "Initialized").1 == "DRADriverPoolsNotPublished")
    };
    must(eventually("its NodeClaim says that devices are missing", LIMIT, waits).await);
    publish(user, &second).await;
    must(user.runs(scenario, 3).await);
    let initialized =
        async || Ok(of_second().await?.is_some_and(|it| condition(&it, "Initialized").0 == "True"));
    must(eventually("its NodeClaim is initialised", LIMIT, initialized).await);
    let kind = |node: &Node| node.labels()["node.kubernetes.io/instance-type"].clone();
    assert_eq!(kind(&first), kind(&second), "whether the other type has devices nobody knows");
    let claims: Api<ResourceClaim> = Api::namespaced(user.client(), "default");
    let claims = must(claims.list(&ListParams::default()).await).items;
    let allocated =
        |it: &&ResourceClaim| it.status.as_ref().is_some_and(|it| it.allocation.is_some());
    assert_eq!(claims.iter().filter(allocated).count(), 3);
}
