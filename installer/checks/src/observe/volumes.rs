//! Keys of the customer that the volumes of nodes are encrypted with: who launches instances needs
//! a grant on each.

use std::collections::BTreeSet;

use aws_sdk_ec2::types::Image;
use serde_json::{Value, json};
use tenon_installer_core::aws::Aws;
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::observe::ec2;

use super::super::observed::VolumeKeyView;
use super::Sources;
use super::kubernetes::list;
use super::raw::Call;
use super::unread::Unread;

/// What EBS calls the key that AWS keeps for it.
const AWS_KEY: &str = "alias/aws/ebs";

/// Keys by which EBS encrypts every volume of the account, and those of images that EC2NodeClasses
/// use.
pub(super) async fn keys(sources: &Sources<'_>) -> Result<Vec<VolumeKeyView>, Unread> {
    let (of_account, of_images) =
        tokio::try_join!(key_of_account(sources.aws), keys_of_images(sources))?;
    let mut found = Vec::new();
    for view in of_account.into_iter().chain(of_images) {
        if !is_kept_by_aws(sources, &view.key).await {
            found.push(view);
        }
    }
    Ok(found)
}

async fn key_of_account(aws: &Aws) -> Result<Option<VolumeKeyView>, Unread> {
    let of = "every new volume of the account".to_owned();
    Ok(ec2::default_volume_key(aws).await?.map(|key| VolumeKeyView { of, key }))
}

async fn keys_of_images(sources: &Sources<'_>) -> Result<Vec<VolumeKeyView>, Unread> {
    let target = sources.target?;
    let classes = list(&target.cluster, &resources::node_classes()).await?;
    let ids = classes.iter().flat_map(images_of).collect::<BTreeSet<_>>();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let images = ec2::images(sources.aws, ids.into_iter().collect()).await?;
    let mut found = Vec::new();
    for image in &images {
        let snapshots = encrypted(image);
        if snapshots.is_empty() {
            continue;
        }
        // Images are described without their keys.
        let keys = ec2::keys_of_snapshots(sources.aws, snapshots).await?;
        let of = format!("image {}", image.image_id().unwrap_or_default());
        let keys = keys.into_iter().collect::<BTreeSet<_>>();
        found.extend(keys.into_iter().map(|key| VolumeKeyView { of: of.clone(), key }));
    }
    Ok(found)
}

/// The images that an EC2NodeClass names by id, and those that the operator has found for it.
fn images_of(class: &Value) -> Vec<String> {
    ["/spec/amiSelectorTerms", "/status/amis"]
        .iter()
        .filter_map(|pointer| class.pointer(pointer)?.as_array())
        .flatten()
        .filter_map(|image| image["id"].as_str())
        .map(str::to_owned)
        .collect()
}

fn encrypted(image: &Image) -> Vec<String> {
    let disks = image.block_device_mappings().iter().filter_map(|mapping| mapping.ebs());
    disks
        .filter(|disk| disk.encrypted() == Some(true))
        .filter_map(|disk| disk.snapshot_id())
        .map(str::to_owned)
        .collect()
}

/// Whether a key is AWS's own, which everybody in the account may use. A key that can't be looked
/// at counts as the customer's.
async fn is_kept_by_aws(sources: &Sources<'_>, key: &str) -> bool {
    if key.ends_with(AWS_KEY) {
        return true;
    }
    let region = &sources.settings.region;
    let call = Call::new(region, "kms", "TrentService.DescribeKey", json!({"KeyId": key}));
    let answer = call.send(sources.aws).await.and_then(super::raw::Answer::output);
    answer.is_ok_and(|answer| answer.pointer("/KeyMetadata/KeyManager") == Some(&json!("AWS")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_by_the_class_or_found_by_the_operator() {
        let class = json!({
            "spec": { "amiSelectorTerms": [{ "id": "ami-1" }, { "alias": "al2023@latest" }] },
            "status": { "amis": [{ "id": "ami-2", "name": "golden" }] },
        });
        assert_eq!(images_of(&class), ["ami-1", "ami-2"]);
        assert_eq!(images_of(&json!({})), [""; 0]);
    }
}
