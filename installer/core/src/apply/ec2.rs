//! Steps in EC2: discovery tags, and what the operator left.

use aws_sdk_ec2::types::Tag;

use super::Context;
use crate::aws::{Aws, Calling, IfThere};
use crate::failure::Failure;
use crate::ownership::Tags;

/// Adds tags.
pub(super) async fn tag(context: &Context, id: &str, tags: &Tags) -> Result<(), Failure> {
    let tags =
        tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
    let call = context.aws.ec2.create_tags().resources(id).set_tags(Some(tags)).send().await;
    call.calling("ec2:CreateTags", id)?;
    Ok(())
}

/// Takes tags off, key and value: what somebody changed since stays.
pub async fn untag(context: &Context, id: &str, tags: &Tags) -> Result<(), Failure> {
    let tags =
        tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
    context
        .aws
        .ec2
        .delete_tags()
        .resources(id)
        .set_tags(Some(tags))
        .send()
        .await
        .calling("ec2:DeleteTags", id)
        .if_there()?;
    Ok(())
}

/// Removes a launch template; one that is gone is no error.
pub async fn delete_launch_template(aws: &Aws, id: &str) -> Result<(), Failure> {
    let call = aws.ec2.delete_launch_template().launch_template_id(id).send().await;
    call.calling("ec2:DeleteLaunchTemplate", id).if_there()?;
    Ok(())
}

/// Asks EC2 to terminate instances; those that are gone already are no error.
pub async fn terminate(aws: &Aws, ids: &[String]) -> Result<(), Failure> {
    for id in ids {
        aws.ec2
            .terminate_instances()
            .instance_ids(id)
            .send()
            .await
            .calling("ec2:TerminateInstances", id)
            .if_there()?;
    }
    Ok(())
}
