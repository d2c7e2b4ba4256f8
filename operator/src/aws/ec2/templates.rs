//! Launch templates that exist.

use aws_sdk_ec2::Client;

use super::{Filter, filters};
use crate::aws::error::{Error, Result};

/// A launch template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTemplate {
    /// Name.
    pub name: String,
}

/// Launch templates by their tags.
pub async fn launch_templates(ec2: &Client, wanted: &[Filter]) -> Result<Vec<LaunchTemplate>> {
    const OPERATION: &str = "DescribeLaunchTemplates";
    let mut pages = ec2
        .describe_launch_templates()
        .set_filters(filters(wanted))
        .max_results(200)
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| Error::from_sdk(OPERATION, &error))?;
        found.extend(
            page.launch_templates()
                .iter()
                .filter_map(|template| template.launch_template_name.clone())
                .map(|name| LaunchTemplate { name }),
        );
    }
    Ok(found)
}

/// Whether a launch template of this name exists.
pub async fn launch_template_exists(ec2: &Client, name: &str) -> Result<bool> {
    const OPERATION: &str = "DescribeLaunchTemplates";
    match ec2.describe_launch_templates().launch_template_names(name).send().await {
        Ok(answer) => Ok(!answer.launch_templates().is_empty()),
        Err(error) => match Error::from_sdk(OPERATION, &error) {
            error if error.is_not_found() => Ok(false),
            error => Err(error),
        },
    }
}

/// Deletes a launch template; one that does not exist is fine.
pub async fn delete_launch_template(ec2: &Client, name: &str) -> Result<()> {
    match ec2.delete_launch_template().launch_template_name(name).send().await {
        Ok(_) => Ok(()),
        Err(error) => match Error::from_sdk("DeleteLaunchTemplate", &error) {
            error if error.is_not_found() => Ok(()),
            error => Err(error),
        },
    }
}
