//! Whether what is granted suffices for what is needed: pure, statement against statement.
//!
//! The answer is careful rather than clever. A grant counts only when its patterns contain the
//! needed ones and its conditions follow from the needed ones; a union of grants that only together
//! cover one resource pattern is not found. So "covered" is always right, and a gap may be one that
//! only a simulation of IAM can refute.

use crate::document::{Actions, Conditions, Document, Effect, Resources, Statement};

mod pattern;

pub use pattern::{contains, overlaps};

/// A part of a needed statement that nothing grants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gap {
    /// The id of the statement that needs it.
    pub sid: Option<String>,
    /// The missing action, possibly with wildcards.
    pub action: String,
    /// ARN, possibly with wildcards.
    pub resource: String,
    /// Why it is not granted.
    pub cause: Cause,
}

/// Why something is not granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No statement allows the action on the resource.
    NotAllowed,
    /// A statement allows it, but asks for more: operator and key of the first condition that does
    /// not follow.
    Condition {
        /// The operator, such as `StringEquals`.
        operator: String,
        /// Condition key, such as `aws:RequestTag/Name`.
        key: String,
    },
    /// This statement denies it, whatever others allow.
    Denied {
        /// The statement's id, if it has one.
        sid: Option<String>,
    },
}

/// What of `needed` the granted documents don't allow. Statements of `needed` that deny are not
/// looked at.
pub fn gaps<'a>(granted: impl IntoIterator<Item = &'a Document>, needed: &Document) -> Vec<Gap> {
    let granted = granted.into_iter().flat_map(|document| &document.statements).collect::<Vec<_>>();
    let mut gaps = Vec::new();
    for statement in needed.statements.iter().filter(|one| one.effect == Effect::Allow) {
        let (Actions::Only(actions), Some(Resources::Only(resources))) =
            (&statement.actions, &statement.resources)
        else {
            continue;
        };
        for action in actions {
            for resource in resources {
                let want = Want { action, resource, conditions: &statement.conditions };
                if let Some(cause) = want.refused_by(&granted) {
                    gaps.push(Gap {
                        sid: statement.sid.clone(),
                        action: action.clone(),
                        resource: resource.clone(),
                        cause,
                    });
                }
            }
        }
    }
    gaps
}

#[derive(Clone, Copy)]
struct Want<'a> {
    action: &'a str,
    resource: &'a str,
    conditions: &'a Conditions,
}

impl Want<'_> {
    fn refused_by(self, granted: &[&Statement]) -> Option<Cause> {
        let denies = |one: &&&Statement| {
            one.effect == Effect::Deny
                && self.is_touched_by(one)
                && self.first_that_does_not_follow(&one.conditions).is_none()
        };
        if let Some(denying) = granted.iter().find(denies) {
            return Some(Cause::Denied { sid: denying.sid.clone() });
        }
        let mut cause = Cause::NotAllowed;
        for one in
            granted.iter().filter(|one| one.effect == Effect::Allow && self.is_contained_in(one))
        {
            match self.first_that_does_not_follow(&one.conditions) {
                None => return None,
                Some((operator, key)) => cause = Cause::Condition { operator, key },
            }
        }
        Some(cause)
    }

    fn is_contained_in(self, statement: &Statement) -> bool {
        let action = match &statement.actions {
            Actions::Only(actions) => {
                actions.iter().any(|one| pattern::contains_action(one, self.action))
            }
            Actions::AllBut(actions) => {
                !actions.iter().any(|one| pattern::actions_overlap(one, self.action))
            }
        };
        let resource = match &statement.resources {
            None => false,
            Some(Resources::Only(arns)) => arns.iter().any(|one| contains(one, self.resource)),
            Some(Resources::AllBut(arns)) => !arns.iter().any(|one| overlaps(one, self.resource)),
        };
        action && resource
    }

    fn is_touched_by(self, statement: &Statement) -> bool {
        let action = match &statement.actions {
            Actions::Only(actions) => {
                actions.iter().any(|one| pattern::actions_overlap(one, self.action))
            }
            Actions::AllBut(actions) => {
                !actions.iter().any(|one| pattern::contains_action(one, self.action))
            }
        };
        let resource = match &statement.resources {
            None => true,
            Some(Resources::Only(arns)) => arns.iter().any(|one| overlaps(one, self.resource)),
            Some(Resources::AllBut(arns)) => !arns.iter().any(|one| contains(one, self.resource)),
        };
        action && resource
    }

    /// The first condition of a statement that is not sure to hold in every call that meets the
    /// needed conditions.
    fn first_that_does_not_follow(self, asked: &Conditions) -> Option<(String, String)> {
        for (operator, keys) in asked {
            for (key, values) in keys {
                if !follows(self.conditions, operator, key, values) {
                    return Some((operator.clone(), key.clone()));
                }
            }
        }
        None
    }
}

/// Whether a condition holds in every call that meets `known`.
fn follows(known: &Conditions, operator: &str, key: &str, values: &[String]) -> bool {
    let (base, optional) = match operator.strip_suffix("IfExists") {
        Some(base) => (base, true),
        None => (operator, false),
    };
    known.iter().any(|(known_operator, keys)| {
        let known_base = known_operator.strip_suffix("IfExists");
        // What holds only if the key is there says nothing about calls without it.
        if known_base.is_some() && !optional {
            return false;
        }
        let known_base = known_base.unwrap_or(known_operator);
        keys.iter().any(|(known_key, known_values)| {
            known_key.eq_ignore_ascii_case(key)
                && match (known_base, base) {
                    (one, other) if one == other && is_negative(one) => {
                        values.iter().all(|value| known_values.contains(value))
                    }
                    ("StringEquals", "StringLike") | ("ArnEquals", "ArnLike") => known_values
                        .iter()
                        .all(|known| values.iter().any(|value| contains(value, known))),
                    ("StringLike", "StringLike")
                    | ("ArnLike", "ArnLike" | "ArnEquals")
                    | ("ArnEquals", "ArnEquals") => known_values
                        .iter()
                        .all(|known| values.iter().any(|value| contains(value, known))),
                    (one, other) => {
                        one == other && known_values.iter().all(|known| values.contains(known))
                    }
                }
        })
    })
}

/// A negative condition asks that none of its values match: more values ask for more.
fn is_negative(operator: &str) -> bool {
    operator.contains("Not")
}

#[cfg(test)]
mod tests;
