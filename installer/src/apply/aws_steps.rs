//! The steps that change AWS. Each may be repeated; each that meets a thing it thought missing looks whose it is before it touches it.

use aws_sdk_ec2::types::Tag as Ec2Tag;
use aws_sdk_eventbridge::types::{RuleState, Tag as EventsTag, Target};
use aws_sdk_iam::types::Tag as IamTag;
use aws_sdk_sqs::types::QueueAttributeName;

use super::Context;
use crate::aws::{AwsError, Calling, IfThere};
use crate::desired::{AGENT, AccessEntry, Association, Queue, Role, Rule};
use crate::errors::Failure;
use crate::observe::world;
use crate::ownership::{INSTALL_ID, Tags};
use crate::plan::{Action, RoleChanges};
use crate::retry::{Lag, until_visible};

/// Carries out one step.
pub(super) async fn perform(context: &Context, action: &Action) -> Result<(), Failure> {
    match action {
        Action::EnsureRole { role, changes } => ensure_role(context, role, changes).await,
        Action::InstallAgent => install_agent(context).await,
        Action::CreateAssociation(association) => create_association(context, association).await,
        Action::UpdateAssociation { id, arn, association } => {
            update_association(context, id, arn, association).await
        }
        Action::CreateAccessEntry { entry, replace } => {
            create_access_entry(context, entry, *replace).await
        }
        Action::CreateQueue(queue) => create_queue(context, queue).await,
        Action::UpdateQueue { url, queue } => update_queue(context, url, queue).await,
        Action::DeleteQueue { url, name } => delete_queue(context, url, name).await,
        Action::EnsureRule { rule, create } => ensure_rule(context, rule, *create).await,
        Action::DeleteRule { name, targets } => delete_rule(context, name, targets).await,
        Action::Tag { id, tags } => {
            let tags = tags
                .iter()
                .map(|(key, value)| Ec2Tag::builder().key(key).value(value).build())
                .collect();
            context
                .aws
                .ec2
                .create_tags()
                .resources(id)
                .set_tags(Some(tags))
                .send()
                .await
                .calling("ec2:CreateTags", id)?;
            Ok(())
        }
        Action::Untag { id, tags } => untag(context, id, tags).await,
        Action::TagEks { arn, tags } => tag_eks(context, arn, tags).await,
        Action::Apply(_) | Action::Restart(_) => {
            unreachable!("Kubernetes objects are applied by the caller")
        }
    }
}

fn check_owner(context: &Context, what: &str, tags: &Tags) -> Result<(), Failure> {
    if tags.get(INSTALL_ID) == Some(&context.install_id) {
        Ok(())
    } else {
        Err(Failure::Foreign { what: what.to_owned() })
    }
}

fn iam_tags(tags: &Tags) -> Vec<IamTag> {
    tags.iter()
        .map(|(key, value)| {
            IamTag::builder().key(key).value(value).build().expect("key and value are set")
        })
        .collect()
}

async fn ensure_role(context: &Context, role: &Role, changes: &RoleChanges) -> Result<(), Failure> {
    let iam = &context.aws.iam;
    let name = role.name.as_str();
    let what = || format!("role {name}");
    if changes.create {
        let create = || async {
            iam.create_role()
                .role_name(name)
                .path(&role.path)
                .assume_role_policy_document(role.trust.to_json())
                .set_permissions_boundary(role.boundary.clone())
                .set_tags(Some(iam_tags(&role.tags)))
                .send()
                .await
                .calling("iam:CreateRole", what())
        };
        match until_visible(Lag::RoleInPolicy, create).await {
            Ok(_) => {}
            Err(error) if error.is_there_already() => {
                let found = world::roles(&context.aws, std::slice::from_ref(&role.name)).await?;
                check_owner(
                    context,
                    &format!("IAM {}", what()),
                    &found.get(name).map(|role| role.tags.clone()).unwrap_or_default(),
                )?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if changes.trust {
        let document = role.trust.to_json();
        let call = || async {
            iam.update_assume_role_policy()
                .role_name(name)
                .policy_document(&document)
                .send()
                .await
                .calling("iam:UpdateAssumeRolePolicy", what())
        };
        until_visible(Lag::RoleInIam, call).await?;
    }
    if changes.boundary {
        if let Some(boundary) = &role.boundary {
            let call = iam
                .put_role_permissions_boundary()
                .role_name(name)
                .permissions_boundary(boundary)
                .send()
                .await;
            call.calling("iam:PutRolePermissionsBoundary", what())?;
        } else {
            let call = iam.delete_role_permissions_boundary().role_name(name).send().await;
            call.calling("iam:DeleteRolePermissionsBoundary", what()).if_there()?;
        }
    }
    if changes.tags {
        iam.tag_role()
            .role_name(name)
            .set_tags(Some(iam_tags(&role.tags)))
            .send()
            .await
            .calling("iam:TagRole", what())?;
    }
    for arn in &changes.attach {
        let call = || async {
            iam.attach_role_policy()
                .role_name(name)
                .policy_arn(arn)
                .send()
                .await
                .calling("iam:AttachRolePolicy", what())
        };
        until_visible(Lag::RoleInIam, call).await?;
    }
    for arn in &changes.detach {
        iam.detach_role_policy()
            .role_name(name)
            .policy_arn(arn)
            .send()
            .await
            .calling("iam:DetachRolePolicy", what())
            .if_there()?;
    }
    for policy in &changes.put {
        let Some(document) = role.inline.get(policy).map(tenon_iam_policies::Document::to_json)
        else {
            continue;
        };
        let call = || async {
            iam.put_role_policy()
                .role_name(name)
                .policy_name(policy)
                .policy_document(&document)
                .send()
                .await
                .calling("iam:PutRolePolicy", what())
        };
        until_visible(Lag::RoleInIam, call).await?;
    }
    for policy in &changes.delete {
        iam.delete_role_policy()
            .role_name(name)
            .policy_name(policy)
            .send()
            .await
            .calling("iam:DeleteRolePolicy", what())
            .if_there()?;
    }
    Ok(())
}

async fn install_agent(context: &Context) -> Result<(), Failure> {
    let cluster = &context.cluster_name;
    let what = || format!("addon {AGENT} of cluster {cluster}");
    let call = || async {
        context
            .aws
            .eks
            .create_addon()
            .cluster_name(cluster)
            .addon_name(AGENT)
            .send()
            .await
            .calling("eks:CreateAddon", what())
    };
    match call().await {
        Err(error) if !error.is_there_already() => return Err(error.into()),
        _ => {}
    }
    super::wait::until(
        &what(),
        std::time::Duration::from_mins(20),
        std::time::Duration::from_secs(2),
        || async {
            let found = context
                .aws
                .eks
                .describe_addon()
                .cluster_name(cluster)
                .addon_name(AGENT)
                .send()
                .await
                .calling("eks:DescribeAddon", what())?;
            let status = found
                .addon
                .and_then(|addon| addon.status)
                .map(|status| status.as_str().to_owned())
                .unwrap_or_default();
            Ok(if status == "ACTIVE" { Ok(()) } else { Err(format!("it is {status}")) })
        },
    )
    .await
}

async fn create_association(context: &Context, association: &Association) -> Result<(), Failure> {
    let resource =
        format!("association of {}/{}", association.namespace, association.service_account);
    let call = || async {
        context
            .aws
            .eks
            .create_pod_identity_association()
            .cluster_name(&context.cluster_name)
            .namespace(&association.namespace)
            .service_account(&association.service_account)
            .role_arn(&association.role_arn)
            .set_tags(Some(association.tags.clone().into_iter().collect()))
            .send()
            .await
            .calling("eks:CreatePodIdentityAssociation", &resource)
    };
    match until_visible(Lag::RoleInAssociation, call).await {
        Ok(_) => Ok(()),
        // It was not there a moment ago, so somebody else made it: the next run will look whose it is.
        Err(error) if error.is_there_already() => {
            Err(Failure::Foreign { what: format!("Pod Identity {resource}") })
        }
        Err(error) => Err(error.into()),
    }
}

async fn update_association(
    context: &Context,
    id: &str,
    arn: &str,
    association: &Association,
) -> Result<(), Failure> {
    let call = || async {
        context
            .aws
            .eks
            .update_pod_identity_association()
            .cluster_name(&context.cluster_name)
            .association_id(id)
            .role_arn(&association.role_arn)
            .send()
            .await
            .calling("eks:UpdatePodIdentityAssociation", format!("association {id}"))
    };
    until_visible(Lag::RoleInAssociation, call).await?;
    tag_eks(context, arn, &association.tags).await
}

async fn tag_eks(context: &Context, arn: &str, tags: &Tags) -> Result<(), Failure> {
    let call = context
        .aws
        .eks
        .tag_resource()
        .resource_arn(arn)
        .set_tags(Some(tags.clone().into_iter().collect()))
        .send()
        .await;
    call.calling("eks:TagResource", arn)?;
    Ok(())
}

async fn create_access_entry(
    context: &Context,
    entry: &AccessEntry,
    replace: bool,
) -> Result<(), Failure> {
    let arn = &entry.principal_arn;
    let what = || format!("access entry of {arn}");
    let eks = &context.aws.eks;
    if replace {
        let call = eks
            .delete_access_entry()
            .cluster_name(&context.cluster_name)
            .principal_arn(arn)
            .send()
            .await;
        call.calling("eks:DeleteAccessEntry", what()).if_there()?;
    }
    let call = || async {
        eks.create_access_entry()
            .cluster_name(&context.cluster_name)
            .principal_arn(arn)
            .r#type(entry.kind)
            .set_tags(Some(entry.tags.clone().into_iter().collect()))
            .send()
            .await
            .calling("eks:CreateAccessEntry", what())
    };
    match until_visible(Lag::RoleInAccessEntry, call).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_there_already() => {
            Err(Failure::Foreign { what: format!("EKS {}", what()) })
        }
        Err(error) => Err(error.into()),
    }
}

async fn create_queue(context: &Context, queue: &Queue) -> Result<(), Failure> {
    let sqs = &context.aws.sqs;
    let call = || async {
        let attributes = attributes(queue);
        let tags = queue.tags.clone().into_iter().collect();
        let call = sqs
            .create_queue()
            .queue_name(&queue.name)
            .set_attributes(Some(attributes))
            .set_tags(Some(tags))
            .send()
            .await;
        call.calling("sqs:CreateQueue", &queue.arn)
    };
    match until_visible(Lag::QueueDeleted, call).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_there_already() => {
            let found = sqs
                .get_queue_url()
                .queue_name(&queue.name)
                .send()
                .await
                .calling("sqs:GetQueueUrl", &queue.arn)?;
            let url = found.queue_url.unwrap_or_default();
            let tags = sqs
                .list_queue_tags()
                .queue_url(&url)
                .send()
                .await
                .calling("sqs:ListQueueTags", &queue.arn)?;
            let tags = tags.tags.unwrap_or_default().into_iter().collect();
            check_owner(context, &format!("SQS queue {}", queue.name), &tags)?;
            update_queue(context, &url, queue).await
        }
        Err(error) => Err(error.into()),
    }
}

#[expect(clippy::disallowed_types, reason = "the SDK takes a HashMap")]
fn attributes(queue: &Queue) -> std::collections::HashMap<QueueAttributeName, String> {
    let plain = queue
        .attributes
        .iter()
        .map(|(name, value)| (QueueAttributeName::from(name.as_str()), value.clone()));
    plain.chain([(QueueAttributeName::Policy, queue.policy.to_json())]).collect()
}

async fn update_queue(context: &Context, url: &str, queue: &Queue) -> Result<(), Failure> {
    let sqs = &context.aws.sqs;
    let call = sqs
        .set_queue_attributes()
        .queue_url(url)
        .set_attributes(Some(attributes(queue)))
        .send()
        .await;
    call.calling("sqs:SetQueueAttributes", &queue.arn)?;
    let tags = queue.tags.clone().into_iter().collect();
    sqs.tag_queue()
        .queue_url(url)
        .set_tags(Some(tags))
        .send()
        .await
        .calling("sqs:TagQueue", &queue.arn)?;
    Ok(())
}

/// Removes a queue; one that is gone is no error.
pub(crate) async fn delete_queue(context: &Context, url: &str, name: &str) -> Result<(), Failure> {
    context
        .aws
        .sqs
        .delete_queue()
        .queue_url(url)
        .send()
        .await
        .calling("sqs:DeleteQueue", format!("queue {name}"))
        .if_there()?;
    Ok(())
}

async fn ensure_rule(context: &Context, rule: &Rule, create: bool) -> Result<(), Failure> {
    let events = &context.aws.events;
    let tags = || {
        let tag = |(key, value): (&String, &String)| {
            EventsTag::builder().key(key).value(value).build().expect("key and value are set")
        };
        rule.tags.iter().map(tag).collect::<Vec<_>>()
    };
    if create {
        // PutRule would overwrite a rule that turned up since the plan was made.
        let found = events
            .describe_rule()
            .name(&rule.name)
            .send()
            .await
            .calling("events:DescribeRule", &rule.arn)
            .if_there()?;
        if found.is_some() {
            let live = events
                .list_tags_for_resource()
                .resource_arn(&rule.arn)
                .send()
                .await
                .calling("events:ListTagsForResource", &rule.arn)?;
            let live =
                live.tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect();
            check_owner(context, &format!("EventBridge rule {}", rule.name), &live)?;
        }
    }
    let put = || async {
        let call = events
            .put_rule()
            .name(&rule.name)
            .event_pattern(&rule.pattern)
            .state(RuleState::Enabled);
        // Tags count only when the rule is made.
        let call = if create { call.set_tags(Some(tags())) } else { call };
        call.send().await.calling("events:PutRule", &rule.arn)
    };
    until_visible(Lag::OtherChange, put).await?;
    if !create {
        events
            .tag_resource()
            .resource_arn(&rule.arn)
            .set_tags(Some(tags()))
            .send()
            .await
            .calling("events:TagResource", &rule.arn)?;
    }
    let targets = || async {
        let target = Target::builder()
            .id(&rule.target_id)
            .arn(&rule.target_arn)
            .build()
            .expect("id and ARN are set");
        let put = events
            .put_targets()
            .rule(&rule.name)
            .targets(target)
            .send()
            .await
            .calling("events:PutTargets", &rule.arn)?;
        match put.failed_entries.unwrap_or_default().into_iter().next() {
            None => Ok(()),
            Some(entry) => Err(AwsError {
                action: "events:PutTargets",
                resource: rule.arn.clone(),
                code: entry.error_code,
                message: entry.error_message.unwrap_or_default(),
            }),
        }
    };
    until_visible(Lag::RuleForTargets, targets).await?;
    Ok(())
}

/// Removes a rule and its targets; one that is gone is no error.
pub(crate) async fn delete_rule(
    context: &Context,
    name: &str,
    targets: &[String],
) -> Result<(), Failure> {
    let events = &context.aws.events;
    let what = || format!("rule {name}");
    for ids in targets.chunks(10) {
        let call = || async {
            events
                .remove_targets()
                .rule(name)
                .set_ids(Some(ids.to_vec()))
                .send()
                .await
                .calling("events:RemoveTargets", what())
        };
        until_visible(Lag::OtherChange, call).await.if_there()?;
    }
    let call = || async {
        events.delete_rule().name(name).send().await.calling("events:DeleteRule", what())
    };
    until_visible(Lag::OtherChange, call).await.if_there()?;
    Ok(())
}

/// Takes tags off, key and value: what somebody changed since stays.
pub(crate) async fn untag(context: &Context, id: &str, tags: &Tags) -> Result<(), Failure> {
    let tags =
        tags.iter().map(|(key, value)| Ec2Tag::builder().key(key).value(value).build()).collect();
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
