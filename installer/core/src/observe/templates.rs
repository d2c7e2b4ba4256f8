//! Launch templates of other tools: what the instances of their groups are like.

use aws_sdk_ec2::types::{
    LaunchTemplateBlockDeviceMapping, LaunchTemplateInstanceMetadataOptions, MarketType,
    ResponseLaunchTemplateData,
};
use serde::de::DeserializeOwned;
use tenon_crds::ec2nodeclass::{
    BlockDevice, BlockDeviceMapping, HttpTokens, MetadataOptions, Switch, VolumeType,
};

use super::ec2;
use crate::aws::{Aws, AwsError, Calling, IfThere};
use crate::ownership::Tags;

/// Which version of which launch template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TemplateRef {
    /// `lt-…`
    pub id: String,
    /// A number, `$Latest` or `$Default`.
    pub version: String,
}

/// What one version of a launch template says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TemplateState {
    /// `ami-…`; none if somebody else chooses the image.
    pub image_id: Option<String>,
    /// The image's name, if it still exists.
    pub image_name: Option<String>,
    /// Such as `m5.large`.
    pub instance_type: Option<String>,
    /// In base64.
    pub user_data: Option<String>,
    /// `sg-…`
    pub security_groups: Vec<String>,
    /// In the form of an EC2NodeClass.
    pub disks: Vec<BlockDeviceMapping>,
    /// In the form of an EC2NodeClass.
    pub metadata_options: Option<MetadataOptions>,
    /// Detailed monitoring.
    pub is_monitored: bool,
    /// Spot instances.
    pub is_spot: bool,
    /// What its instances are tagged with.
    pub tags: Tags,
}

/// One version of a launch template; none if it does not exist.
pub async fn read(aws: &Aws, template: &TemplateRef) -> Result<Option<TemplateState>, AwsError> {
    let call = aws.ec2.describe_launch_template_versions().launch_template_id(&template.id);
    let found = call.versions(&template.version).send().await;
    let what = format!("launch template {}", template.id);
    let found = found.calling("ec2:DescribeLaunchTemplateVersions", what).if_there()?;
    let versions = found.and_then(|found| found.launch_template_versions).unwrap_or_default();
    let found = versions.into_iter().find_map(|version| version.launch_template_data);
    let Some(mut template) = found.map(view) else { return Ok(None) };
    // Not one that is looked up when an instance is launched (`resolve:ssm:…`).
    let image = template.image_id.clone().filter(|id| id.starts_with("ami-"));
    if let Some(id) = image {
        let images = match ec2::images(aws, vec![id]).await {
            Err(error) if error.is_not_found() => Vec::new(),
            found => found?,
        };
        template.image_name = images.into_iter().find_map(|image| image.name);
    }
    Ok(Some(template))
}

fn view(data: ResponseLaunchTemplateData) -> TemplateState {
    let market = data.instance_market_options.and_then(|options| options.market_type);
    let specifications = data.tag_specifications.unwrap_or_default().into_iter();
    let of_instance = specifications
        .filter(|one| one.resource_type.as_ref().is_some_and(|it| it.as_str() == "instance"));
    let tags = of_instance.flat_map(|one| one.tags.unwrap_or_default());
    let interfaces = data.network_interfaces.unwrap_or_default().into_iter();
    let of_interfaces = interfaces.flat_map(|interface| interface.groups.unwrap_or_default());
    let groups = data.security_group_ids.unwrap_or_default().into_iter().chain(of_interfaces);
    let disks = data.block_device_mappings.unwrap_or_default().into_iter();
    TemplateState {
        image_id: data.image_id,
        image_name: None,
        instance_type: data.instance_type.map(|kind| kind.as_str().to_owned()),
        user_data: data.user_data.filter(|text| !text.is_empty()),
        security_groups: groups.collect(),
        disks: disks.filter(|disk| disk.no_device.is_none()).filter_map(disk).collect(),
        metadata_options: data.metadata_options.as_ref().map(metadata_options),
        is_monitored: data.monitoring.and_then(|it| it.enabled).unwrap_or(false),
        is_spot: market == Some(MarketType::Spot),
        tags: tags
            .map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()))
            .collect(),
    }
}

/// A disk; none for an instance store, which an EC2NodeClass does not map.
fn disk(mapping: LaunchTemplateBlockDeviceMapping) -> Option<BlockDeviceMapping> {
    let ebs = mapping.ebs?;
    let number = |number: Option<i32>| number.map(i64::from);
    let kind: Option<VolumeType> = ebs.volume_type.and_then(|kind| named(kind.as_str()));
    Some(BlockDeviceMapping {
        device_name: mapping.device_name,
        ebs: Some(BlockDevice {
            delete_on_termination: ebs.delete_on_termination,
            encrypted: ebs.encrypted,
            iops: number(ebs.iops),
            kms_key_id: ebs.kms_key_id,
            snapshot_id: ebs.snapshot_id,
            throughput: number(ebs.throughput),
            volume_initialization_rate: ebs.volume_initialization_rate,
            volume_size: ebs.volume_size.map(|gibibytes| format!("{gibibytes}Gi")),
            volume_type: kind,
        }),
        root_volume: None,
    })
}

/// A value by AWS's name for it; none for one that an EC2NodeClass does not know.
fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(name.into()).ok()
}

/// What the template leaves open is EC2's own default.
fn metadata_options(options: &LaunchTemplateInstanceMetadataOptions) -> MetadataOptions {
    let endpoint: Option<Switch> = options.http_endpoint.as_ref().and_then(|it| named(it.as_str()));
    let ipv6: Option<Switch> =
        options.http_protocol_ipv6.as_ref().and_then(|it| named(it.as_str()));
    let tokens: Option<HttpTokens> = options.http_tokens.as_ref().and_then(|it| named(it.as_str()));
    MetadataOptions {
        http_endpoint: endpoint.or(Some(Switch::Enabled)),
        http_protocol_ipv6: ipv6.or(Some(Switch::Disabled)),
        http_put_response_hop_limit: Some(i64::from(
            options.http_put_response_hop_limit.unwrap_or(1),
        )),
        http_tokens: tokens.or(Some(HttpTokens::Optional)),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{
        InstanceType, LaunchTemplateEbsBlockDevice, LaunchTemplateInstanceMarketOptions,
        LaunchTemplateInstanceNetworkInterfaceSpecification, LaunchTemplateTagSpecification,
        ResourceType, Tag,
    };

    use super::*;

    #[test]
    fn a_template_says_what_its_instances_are_like() {
        let ebs = LaunchTemplateEbsBlockDevice::builder().volume_size(80).volume_type("gp3".into());
        let root = LaunchTemplateBlockDeviceMapping::builder().device_name("/dev/xvda");
        let store = LaunchTemplateBlockDeviceMapping::builder().virtual_name("ephemeral0").build();
        let interface = LaunchTemplateInstanceNetworkInterfaceSpecification::builder();
        let market = LaunchTemplateInstanceMarketOptions::builder().market_type(MarketType::Spot);
        let tags = |kind, key: &str| {
            let tag = Tag::builder().key(key).value("x").build();
            LaunchTemplateTagSpecification::builder().resource_type(kind).tags(tag).build()
        };
        let found = view(
            ResponseLaunchTemplateData::builder()
                .image_id("ami-1")
                .instance_type(InstanceType::M5Large)
                .user_data("")
                .network_interfaces(interface.groups("sg-1").build())
                .block_device_mappings(root.ebs(ebs.build()).build())
                .block_device_mappings(store)
                .instance_market_options(market.build())
                .metadata_options(LaunchTemplateInstanceMetadataOptions::builder().build())
                .tag_specifications(tags(ResourceType::Instance, "team"))
                .tag_specifications(tags(ResourceType::Volume, "other"))
                .build(),
        );
        let disk = BlockDevice {
            volume_size: Some("80Gi".to_owned()),
            volume_type: Some(VolumeType::Gp3),
            ..BlockDevice::default()
        };
        let expected = TemplateState {
            image_id: Some("ami-1".to_owned()),
            image_name: None,
            instance_type: Some("m5.large".to_owned()),
            user_data: None,
            security_groups: vec!["sg-1".to_owned()],
            disks: vec![BlockDeviceMapping {
                device_name: Some("/dev/xvda".to_owned()),
                ebs: Some(disk),
                root_volume: None,
            }],
            metadata_options: Some(MetadataOptions {
                http_tokens: Some(HttpTokens::Optional),
                ..MetadataOptions::default()
            }),
            is_monitored: false,
            is_spot: true,
            tags: Tags::from([("team".to_owned(), "x".to_owned())]),
        };
        assert_eq!(found, expected);
    }
}
