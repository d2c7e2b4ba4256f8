//! DescribeImages over the images of the double.

use std::collections::BTreeMap;

use super::super::amis::{Ami, Family};
use super::super::aws_state::AwsState;
use super::super::filters::{any_matches, page, select, tag_filter};
use super::super::request::AwsRequest;
use super::super::response::{AwsError, AwsResponse};
use super::super::xml::Element;
use super::list_answer;

/// Years after which AWS deprecates a public image.
const DEPRECATED_AFTER_YEARS: u32 = 2;

pub(super) fn describe(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let named = params.list("ImageId");
    let owners = params.list("Owner");
    let mut found: Vec<&Ami> = aws_state.amis().iter().collect();
    if !named.is_empty() {
        if let Some(missing) = named.iter().find(|id| !found.iter().any(|ami| ami.id == **id)) {
            return Err(AwsError::new(
                "InvalidAMIID.NotFound",
                format!("The image id '[{missing}]' does not exist"),
            ));
        }
        found.retain(|ami| named.contains(&ami.id.as_str()));
    }
    if !owners.is_empty() {
        // All images are AWS's.
        found.retain(|ami| owners.iter().any(|owner| *owner == "amazon" || *owner == ami.owner));
    }
    let now = aws_state.clock().now().to_string();
    let named_deprecated = !named.is_empty() || params.get("IncludeDeprecated") == Some("true");
    found.retain(|ami| named_deprecated || deprecated(ami) > now);
    let tags = aws_state.image_tags.lock().clone();
    let none = BTreeMap::new();
    let found = select(found, &params.filters(), |ami, name, values| {
        let is = |text: &str| Some(any_matches(values, text));
        match name {
            "image-id" => is(&ami.id),
            "name" => is(&ami.name),
            "description" => is(&description(ami)),
            "architecture" => is(ami.arch.as_str()),
            "owner-id" => is(ami.owner),
            "owner-alias" => is("amazon"),
            "state" => is("available"),
            "image-type" => is("machine"),
            "is-public" => is("true"),
            "virtualization-type" => is("hvm"),
            "root-device-type" => is("ebs"),
            "root-device-name" => is(ami.root_device),
            "hypervisor" => is("xen"),
            "ena-support" => is("true"),
            "creation-date" => is(&ami.created),
            "platform" => is(if is_windows(ami) { "windows" } else { "" }),
            _ => tag_filter(name, values, tags.get(&ami.id).unwrap_or(&none)),
        }
    })?;
    let (found, next) = page(found, params, (1, 1000), None)?;
    let items =
        found.into_iter().map(|ami| element(ami, tags.get(&ami.id).unwrap_or(&none))).collect();
    Ok(list_answer(request, "imagesSet", items, next))
}

/// The block devices in an image: name and GiB.
pub(super) fn devices(ami: &Ami) -> &'static [(&'static str, u32)] {
    match ami.family {
        Family::Bottlerocket => &[("/dev/xvda", 2), ("/dev/xvdb", 20)],
        Family::Al2 | Family::Al2023 => &[("/dev/xvda", 20)],
        Family::Ubuntu => &[("/dev/sda1", 8)],
        Family::Windows2019 | Family::Windows2022 | Family::Windows2025 => &[("/dev/sda1", 50)],
    }
}

fn is_windows(ami: &Ami) -> bool {
    matches!(ami.family, Family::Windows2019 | Family::Windows2022 | Family::Windows2025)
}

fn deprecated(ami: &Ami) -> String {
    let (year, rest) = ami.created.split_at(4);
    format!("{}{rest}", year.parse().unwrap_or(0) + DEPRECATED_AFTER_YEARS)
}

fn description(ami: &Ami) -> String {
    format!(
        "{} image for Kubernetes {}, {}",
        ami.variant.as_str(),
        ami.kubernetes,
        ami.arch.as_str()
    )
}

fn element(ami: &Ami, tags: &BTreeMap<String, String>) -> Vec<Element> {
    let leaf = |name: &str, text: &str| Element::leaf(name, text);
    let devices = devices(ami).iter().map(|(device, size)| {
        let ebs = vec![
            leaf("deleteOnTermination", "true"),
            Element::leaf("snapshotId", ami.id.replacen("ami-", "snap-", 1)),
            Element::leaf("volumeSize", size.to_string()),
            leaf("volumeType", "gp3"),
            leaf("encrypted", "false"),
        ];
        vec![leaf("deviceName", device), Element::node("ebs", ebs)]
    });
    let mut item = vec![
        leaf("imageId", &ami.id),
        Element::leaf("imageLocation", format!("amazon/{}", ami.name)),
        leaf("imageState", "available"),
        leaf("imageOwnerId", ami.owner),
        leaf("creationDate", &ami.created),
        Element::leaf("deprecationTime", deprecated(ami)),
        leaf("isPublic", "true"),
        leaf("architecture", ami.arch.as_str()),
        leaf("imageType", "machine"),
        leaf("imageOwnerAlias", "amazon"),
        leaf("name", &ami.name),
        Element::leaf("description", description(ami)),
        leaf("rootDeviceType", "ebs"),
        leaf("rootDeviceName", ami.root_device),
        Element::list("blockDeviceMapping", devices),
        leaf("virtualizationType", "hvm"),
        leaf("hypervisor", "xen"),
        leaf("enaSupport", "true"),
        leaf("sriovNetSupport", "simple"),
        leaf("platformDetails", if is_windows(ami) { "Windows" } else { "Linux/UNIX" }),
        Element::tag_set(tags),
    ];
    if is_windows(ami) {
        item.push(leaf("platform", "windows"));
    }
    item
}
