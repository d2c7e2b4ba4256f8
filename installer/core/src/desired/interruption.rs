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
    let (Some(name), Some(arn), true) =
        (&settings.queue_name, scope.queue_arn(), settings.manage_queue)
    else {
        return (None, Vec::new());
    };
    let rules = settings
        .events
        .iter()
        .map(|event| {
            let rule = event.rule();
            let name = rule_name(settings, rule);
            let pattern = rule.pattern().to_json();
            Rule {
                arn: scope.rule_arn(&name),
                tags: installation.tags(&format!("rule-{}", rule.suffix()), &pattern),
                name,
                pattern,
                target_id: interruption::TARGET_ID.to_owned(),
                target_arn: arn.clone(),
            }
        })
        .collect::<Vec<_>>();
    let names = rules.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>();
    let Some(policy) = interruption::queue_policy(scope, &names) else { return (None, Vec::new()) };
    let key = settings.queue_key.as_deref();
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
    (Some(Queue { name: name.clone(), arn, attributes, policy, tags }), rules)
}
