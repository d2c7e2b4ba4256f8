//! Requests of a user, beside those of `tenon`: to the API server and to EC2.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;
use tenon_bed::bed::Bed;
use tenon_bed::wait::must;

/// Applies an object.
pub(super) async fn apply(bed: &Bed, plural: &str, body: &Value) {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, text("/kind"));
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(bed.client(), &resource),
        namespace => Api::namespaced_with(bed.client(), namespace, &resource),
    };
    let params = PatchParams::apply("user").force();
    api.patch(text("/metadata/name"), &params, &Patch::Apply(body)).await.expect("applied");
}

/// A call of EC2; answers the text at a path of the response.
pub(super) async fn ec2(
    bed: &Bed,
    action: &str,
    parameters: &[(&str, &str)],
    path: &[&str],
) -> String {
    let answer = must(must(bed.aws()).caller().query("ec2", action, parameters).await);
    answer.at(path).map(|element| element.text.clone()).unwrap_or_default()
}

/// An instance that an operator could have launched, without a NodeClaim.
pub(super) async fn run_instance(bed: &Bed) -> String {
    let aws = must(bed.aws());
    let subnet = aws.seed().subnet_ids[0].clone();
    let owned = format!("kubernetes.io/cluster/{}", bed.cluster());
    let images = must(aws.caller().query("ec2", "DescribeImages", &[("Owner.1", "amazon")]).await);
    let images = images.items("imagesSet");
    let image = images.first().and_then(|image| image.get("imageId")).expect("an image");
    let run = [
        ("ImageId", image),
        ("InstanceType", "m5.large"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("SubnetId", &*subnet),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", &*owned),
        ("TagSpecification.1.Tag.1.Value", "owned"),
        ("TagSpecification.1.Tag.2.Key", "karpenter.sh/nodepool"),
        ("TagSpecification.1.Tag.2.Value", "default"),
    ];
    ec2(bed, "RunInstances", &run, &["instancesSet", "item", "instanceId"]).await
}
