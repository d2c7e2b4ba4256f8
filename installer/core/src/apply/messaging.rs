//! Steps in SQS and EventBridge: the interruption queue and its rules.

use aws_sdk_eventbridge::types::{RuleState, Tag, Target};
use aws_sdk_sqs::types::QueueAttributeName;

use super::{Context, check_owner};
use crate::aws::{Aws, AwsError, Calling, IfThere};
use crate::desired::{Queue, Rule};
use crate::failure::Failure;
use crate::observe::messaging;
use crate::retry::{Lag, until_visible};

/// Makes a queue.
pub(super) async fn create_queue(context: &Context, queue: &Queue) -> Result<(), Failure> {
    let sqs = &context.aws.sqs;
    let call = || async {
        let mut attributes = attributes(queue);
        // A new queue has nothing to be taken away.
        attributes.retain(|_, value| !value.is_empty());
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
            let Some(found) = messaging::queue(&context.aws, &queue.name).await? else {
                return Err(error.into());
            };
            check_owner(context, &format!("SQS queue {}", queue.name), &found.tags)?;
            update_queue(context, &found.url, queue).await
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

/// Brings a queue to what it should be.
pub(super) async fn update_queue(
    context: &Context,
    url: &str,
    queue: &Queue,
) -> Result<(), Failure> {
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
pub async fn delete_queue(aws: &Aws, url: &str, name: &str) -> Result<(), Failure> {
    aws.sqs
        .delete_queue()
        .queue_url(url)
        .send()
        .await
        .calling("sqs:DeleteQueue", format!("queue {name}"))
        .if_there()?;
    Ok(())
}

/// Makes a rule and its target, or brings them to what they should be.
pub(super) async fn ensure_rule(
    context: &Context,
    rule: &Rule,
    create: bool,
) -> Result<(), Failure> {
    let events = &context.aws.events;
    let tags = || {
        let tag = |(key, value): (&String, &String)| {
            Tag::builder().key(key).value(value).build().expect("key and value are set")
        };
        rule.tags.iter().map(tag).collect::<Vec<_>>()
    };
    if create {
        // PutRule would overwrite a rule that turned up since the plan was made.
        if let Some(found) = messaging::rule(&context.aws, &rule.name).await? {
            check_owner(context, &format!("EventBridge rule {}", rule.name), &found.tags)?;
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
                no_answer: None,
            }),
        }
    };
    until_visible(Lag::RuleForTargets, targets).await?;
    Ok(())
}

/// Takes targets off a rule; a rule that is gone is no error.
pub(super) async fn remove_targets(
    aws: &Aws,
    rule: &str,
    targets: &[String],
) -> Result<(), Failure> {
    for ids in targets.chunks(10) {
        let call = || async {
            aws.events
                .remove_targets()
                .rule(rule)
                .set_ids(Some(ids.to_vec()))
                .send()
                .await
                .calling("events:RemoveTargets", format!("rule {rule}"))
        };
        until_visible(Lag::OtherChange, call).await.if_there()?;
    }
    Ok(())
}

/// Removes a rule and its targets; one that is gone is no error.
pub async fn delete_rule(aws: &Aws, name: &str, targets: &[String]) -> Result<(), Failure> {
    remove_targets(aws, name, targets).await?;
    let call = || async {
        let call = aws.events.delete_rule().name(name).send().await;
        call.calling("events:DeleteRule", format!("rule {name}"))
    };
    until_visible(Lag::OtherChange, call).await.if_there()?;
    Ok(())
}
