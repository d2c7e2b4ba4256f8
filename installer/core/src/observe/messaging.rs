//! What SQS and EventBridge hold.

use std::collections::BTreeMap;

use aws_sdk_sqs::types::QueueAttributeName;

use super::state::{QueueState, RuleState};
use crate::aws::{Aws, AwsError, Calling, IfThere};

/// A queue by its name.
pub async fn queue(aws: &Aws, name: &str) -> Result<Option<QueueState>, AwsError> {
    let what = || format!("queue {name}");
    let found = aws
        .sqs
        .get_queue_url()
        .queue_name(name)
        .send()
        .await
        .calling("sqs:GetQueueUrl", what())
        .if_there()?;
    let Some(url) = found.and_then(|found| found.queue_url) else { return Ok(None) };
    let attributes = async {
        let call = aws
            .sqs
            .get_queue_attributes()
            .queue_url(&url)
            .attribute_names(QueueAttributeName::All)
            .send()
            .await;
        call.calling("sqs:GetQueueAttributes", what()).if_there()
    };
    let tags = async {
        aws.sqs
            .list_queue_tags()
            .queue_url(&url)
            .send()
            .await
            .calling("sqs:ListQueueTags", what())
            .if_there()
    };
    let (Some(attributes), Some(tags)) = tokio::try_join!(attributes, tags)? else {
        return Ok(None);
    };
    let attributes = attributes
        .attributes
        .unwrap_or_default()
        .into_iter()
        .map(|(name, value)| (name.as_str().to_owned(), value))
        .collect();
    Ok(Some(QueueState {
        url,
        attributes,
        tags: tags.tags.unwrap_or_default().into_iter().collect(),
    }))
}

/// Names of the rules of the default bus that send to a target, by its ARN.
pub async fn rules_to(aws: &Aws, target: &str) -> Result<Vec<String>, AwsError> {
    let mut names = Vec::new();
    let mut token = None;
    loop {
        let call = aws
            .events
            .list_rule_names_by_target()
            .target_arn(target)
            .set_next_token(token)
            .send()
            .await;
        let page = call.calling("events:ListRuleNamesByTarget", target)?;
        names.extend(page.rule_names.unwrap_or_default());
        token = page.next_token;
        if token.is_none() {
            return Ok(names);
        }
    }
}

/// Reads rules by name.
pub async fn rules(aws: &Aws, names: &[String]) -> Result<BTreeMap<String, RuleState>, AwsError> {
    let states = futures::future::try_join_all(names.iter().map(|name| rule(aws, name))).await?;
    Ok(names.iter().cloned().zip(states).filter_map(|(name, state)| Some((name, state?))).collect())
}

/// A rule of the default bus by its name.
pub async fn rule(aws: &Aws, name: &str) -> Result<Option<RuleState>, AwsError> {
    let what = || format!("rule {name}");
    let Some(rule) = aws
        .events
        .describe_rule()
        .name(name)
        .send()
        .await
        .calling("events:DescribeRule", what())
        .if_there()?
    else {
        return Ok(None);
    };
    let targets = async {
        aws.events
            .list_targets_by_rule()
            .rule(name)
            .send()
            .await
            .calling("events:ListTargetsByRule", what())
            .if_there()
    };
    let tags = async {
        let call = aws
            .events
            .list_tags_for_resource()
            .resource_arn(rule.arn.as_deref().unwrap_or_default())
            .send()
            .await;
        call.calling("events:ListTagsForResource", what()).if_there()
    };
    let (targets, tags) = tokio::try_join!(targets, tags)?;
    Ok(Some(RuleState {
        arn: rule.arn.unwrap_or_default(),
        pattern: rule.event_pattern.clone(),
        enabled: rule.state == Some(aws_sdk_eventbridge::types::RuleState::Enabled),
        targets: targets
            .and_then(|found| found.targets)
            .unwrap_or_default()
            .into_iter()
            .map(|target| (target.id, target.arn))
            .collect(),
        tags: tags
            .and_then(|found| found.tags)
            .unwrap_or_default()
            .into_iter()
            .map(|tag| (tag.key, tag.value))
            .collect(),
    }))
}
