//! Launch templates that exist.

use super::{Ec2, Filter, filters};
use crate::aws::error::Result;

/// As DescribeLaunchTemplates answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaunchTemplate {
    /// Name.
    pub name: String,
}

/// Launch templates by their tags.
pub(crate) async fn launch_templates(ec2: &Ec2, wanted: &[Filter]) -> Result<Vec<LaunchTemplate>> {
    const OPERATION: &str = "DescribeLaunchTemplates";
    let mut pages = ec2
        .describe_launch_templates()
        .set_filters(filters(wanted))
        .max_results(200)
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = ec2.page(OPERATION, pages.next()).await {
        let page = page?;
        found.extend(
            page.launch_templates()
                .iter()
                .filter_map(|template| template.launch_template_name.clone())
                .map(|name| LaunchTemplate { name }),
        );
    }
    Ok(found)
}

/// Deletes a launch template; one that does not exist is fine.
pub(crate) async fn delete_launch_template(ec2: &Ec2, name: &str) -> Result<()> {
    let sent = ec2.delete_launch_template().launch_template_name(name).send();
    match ec2.call("DeleteLaunchTemplate", sent).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
