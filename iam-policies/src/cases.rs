//! Calls to try on a policy: for every statement one that it must allow, and for every condition of
//! it one that breaks just this condition and must be refused. This is what a simulation of IAM is
//! asked.

use crate::document::{Actions, Document, Effect, Resources, Statement};

/// A call to be simulated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// The id of the statement that it was made from.
    pub sid: Option<String>,
    /// `service:Operation`, without wildcards.
    pub action: String,
    /// A resource's ARN, or `*`.
    pub resource: String,
    /// The facts of the call: condition key and values.
    pub context: Vec<(String, Vec<String>)>,
    /// Whether it must be allowed.
    pub expected: Expected,
}

/// The expected result of a simulation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expected {
    /// The call is one that has to work.
    Allowed,
    /// The call breaks the condition on this key, and nothing else may allow it.
    Refused {
        /// Key of the violated condition.
        key: String,
    },
}

/// Calls that tell whether a role with (at least) this document is allowed what it needs, and
/// whether the document's conditions are really asked for.
pub fn cases(document: &Document) -> Vec<Case> {
    document
        .statements
        .iter()
        .filter(|one| one.effect == Effect::Allow)
        .flat_map(of_statement)
        .collect()
}

fn of_statement(statement: &Statement) -> Vec<Case> {
    let (Actions::Only(actions), Some(Resources::Only(resources))) =
        (&statement.actions, &statement.resources)
    else {
        return Vec::new();
    };
    let facts = facts(statement);
    let mut cases = Vec::new();
    for action in actions {
        for resource in resources {
            cases.push(Case {
                sid: statement.sid.clone(),
                action: concrete(action),
                resource: concrete_resource(resource),
                context: facts.clone(),
                expected: Expected::Allowed,
            });
        }
    }
    // One refusal for each condition is enough: conditions hold for the whole statement.
    let (Some(action), Some(resource)) = (actions.first(), resources.first()) else { return cases };
    for (operator, keys) in &statement.conditions {
        // A value that need not be there can't be tested by leaving it out, and a set may be empty.
        if operator.ends_with("IfExists") || operator.starts_with("ForAllValues") {
            continue;
        }
        for key in keys.keys() {
            cases.push(Case {
                sid: statement.sid.clone(),
                action: concrete(action),
                resource: concrete_resource(resource),
                context: facts.iter().filter(|(fact, _)| fact != key).cloned().collect(),
                expected: Expected::Refused { key: key.clone() },
            });
        }
    }
    cases
}

/// Facts that meet every condition of a statement: the first value of each, made concrete.
fn facts(statement: &Statement) -> Vec<(String, Vec<String>)> {
    let mut facts: Vec<(String, Vec<String>)> = Vec::new();
    for (operator, keys) in &statement.conditions {
        if operator.contains("Not") {
            continue;
        }
        for (key, values) in keys {
            let many = operator.starts_with("ForAllValues");
            let values = values.iter().take(if many { usize::MAX } else { 1 });
            facts.push((key.clone(), values.map(|value| concrete(value)).collect()));
        }
    }
    facts
}

/// A text that the pattern matches.
fn concrete(pattern: &str) -> String {
    pattern.replace(['*', '?'], "x")
}

/// An ARN that the pattern matches. `*` alone stays: it is what actions without resources are
/// simulated on.
fn concrete_resource(pattern: &str) -> String {
    if pattern == "*" {
        return pattern.to_owned();
    }
    let parts = pattern.splitn(6, ':').collect::<Vec<_>>();
    let [arn, partition, service, region, account, rest] = parts[..] else {
        return concrete(pattern);
    };
    let account = if account == "*" { "123456789012" } else { account };
    let region = if region == "*" { "us-east-1" } else { region };
    let rest =
        rest.strip_suffix('*').map_or_else(|| rest.to_owned(), |rest| format!("{rest}tenon-probe"));
    format!("{arn}:{partition}:{service}:{region}:{account}:{}", concrete(&rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::controller_policies;
    use crate::cover::contains;
    use crate::{Features, Partition, Scope};

    fn documents() -> Vec<Document> {
        let scope = Scope {
            partition: Partition::AwsCn,
            region: "cn-north-1".into(),
            account: "123456789012".into(),
            cluster: "c".into(),
            queue: Some("tenon-c".into()),
            node_roles: vec!["arn:aws-cn:iam::123456789012:role/tenon-c-node".into()],
            features: Features::default(),
        };
        controller_policies(&scope).into_iter().map(|policy| policy.document).collect()
    }

    #[test]
    fn every_action_on_every_resource_is_tried_with_facts_that_meet_the_conditions() {
        for document in documents() {
            for statement in &document.statements {
                let cases = of_statement(statement);
                let (Actions::Only(actions), Some(Resources::Only(resources))) =
                    (&statement.actions, &statement.resources)
                else {
                    panic!("{statement:?}")
                };
                let allowed = cases
                    .iter()
                    .filter(|case| case.expected == Expected::Allowed)
                    .collect::<Vec<_>>();
                assert_eq!(allowed.len(), actions.len() * resources.len());
                for case in allowed {
                    assert!(resources.iter().any(|arn| contains(arn, &case.resource)), "{case:?}");
                    assert!(!case.resource.contains('*') || case.resource == "*", "{case:?}");
                    let n_keys: usize =
                        statement.conditions.values().map(std::collections::BTreeMap::len).sum();
                    assert_eq!(case.context.len(), n_keys);
                }
            }
        }
    }

    #[test]
    fn each_condition_is_broken_once() {
        let terminate = documents()
            .iter()
            .flat_map(cases)
            .filter(|case| case.action == "ec2:TerminateInstances")
            .filter_map(|case| match case.expected {
                Expected::Refused { key } => {
                    assert!(case.context.iter().all(|(fact, _)| *fact != key));
                    Some(key)
                }
                Expected::Allowed => None,
            })
            .collect::<Vec<_>>();
        assert_eq!(
            terminate,
            ["aws:ResourceTag/kubernetes.io/cluster/c", "aws:ResourceTag/karpenter.sh/nodepool"]
        );
    }
}
