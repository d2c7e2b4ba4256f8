//! The interruption queue and the rules that feed it.

use std::collections::BTreeMap;

use tenon_iam_policies::Scope;
use tenon_iam_policies::interruption::{self, InterruptionRule};

use super::{Queue, Rule};
use crate::names;
use crate::ownership::Installation;
use crate::settings::Settings;

/// The name of a rule.
pub fn rule_name(settings: &Settings, rule: InterruptionRule) -> String {
    names::name(&[&settings.name_prefix, &settings.cluster, rule.suffix()], names::RULE)
}

/// The queue and its rules, if interruptions are handled.
pub(super) fn interruption(
    settings: &Settings,
    scope: &Scope,
    installation: &Installation,
) -> (Option<Queue>, Vec<Rule>) {
    let rules = settings.events.iter().map(|event| event.rule());
    let rules = rules.map(|rule| (rule_name(settings, rule), rule)).collect::<Vec<_>>();
    let key = settings.queue_key.as_deref();
    let made = settings.manage_queue.then(|| queue_and_rules(scope, installation, &rules, key));
    match made.flatten() {
        Some((queue, rules)) => (Some(queue), rules),
        None => (None, Vec::new()),
    }
}

/// The scope's queue, and rules with these names that feed it; none without a queue. `key` is the
/// KMS key that encrypts it.
pub fn queue_and_rules(
    scope: &Scope,
    installation: &Installation,
    rules: &[(String, InterruptionRule)],
    key: Option<&str>,
) -> Option<(Queue, Vec<Rule>)> {
    let (name, arn) = (scope.queue.clone()?, scope.queue_arn()?);
    let names = rules.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let rules = rules.iter().map(|(name, rule)| {
        let pattern = rule.pattern().to_json();
        Rule {
            arn: scope.rule_arn(name),
            tags: installation.tags(&format!("rule-{}", rule.suffix()), &pattern),
            name: name.clone(),
            pattern,
            target_id: interruption::TARGET_ID.to_owned(),
            target_arn: arn.clone(),
        }
    });
    let rules = rules.collect();
    let policy = interruption::queue_policy(scope, &names)?;
    let encryption = match key {
        // One key for five minutes: KMS is asked, and paid, less often.
        Some(_) => ("KmsDataKeyReusePeriodSeconds", "300"),
        None => ("SqsManagedSseEnabled", "true"),
    };
    let retention = interruption::MESSAGE_RETENTION_SECONDS.to_string();
    let attributes = [
        ("MessageRetentionPeriod", retention.as_str()),
        encryption,
        // Empty is "none", and what a queue must be told when it had one.
        ("KmsMasterKeyId", key.unwrap_or_default()),
    ];
    let attributes: BTreeMap<_, _> =
        attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let tags = installation.tags("queue", &format!("{attributes:?}{policy}"));
    Some((Queue { name, arn, attributes, policy, tags }, rules))
}
