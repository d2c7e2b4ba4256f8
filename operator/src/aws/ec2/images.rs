//! Images.

use super::{Ec2, Filter, filter, filters};
use crate::aws::error::Result;

/// As DescribeImages answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// ID.
    pub id: String,
    /// Name.
    pub name: String,
    /// EC2's name of the architecture.
    pub architecture: String,
    /// Such as `/dev/xvda`.
    pub root_device: Option<String>,
    /// RFC 3339.
    pub created: String,
    /// RFC 3339.
    pub deprecated_at: Option<String>,
}

/// Available images that match all filters, deprecated ones too.
pub(crate) async fn images(ec2: &Ec2, wanted: &[Filter], owners: &[String]) -> Result<Vec<Image>> {
    const OPERATION: &str = "DescribeImages";
    let mut wanted = wanted.to_vec();
    wanted.push(filter("state", ["available"]));
    let mut pages = ec2
        .describe_images()
        .set_filters(filters(&wanted))
        .set_owners((!owners.is_empty()).then(|| owners.to_vec()))
        .include_deprecated(true)
        .max_results(1000)
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = ec2.page(OPERATION, pages.next()).await {
        let page = page?;
        for image in page.images() {
            if let Some(id) = &image.image_id {
                found.push(Image {
                    id: id.clone(),
                    name: image.name.clone().unwrap_or_default(),
                    architecture: image
                        .architecture
                        .as_ref()
                        .map_or_else(String::new, |value| value.as_str().to_owned()),
                    root_device: image.root_device_name.clone(),
                    created: image.creation_date.clone().unwrap_or_default(),
                    deprecated_at: image.deprecation_time.clone(),
                });
            }
        }
    }
    Ok(found)
}
