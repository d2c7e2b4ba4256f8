//! What changes from one version of a role's documents to the next, and the documents under which
//! both versions can work.
//!
//! Statements are known by their id: a statement of the same id in the document of the same name is
//! the same statement, changed or not.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::cover::gaps;
use crate::document::{Actions, Document, Effect, Resources, Statement};
use crate::size::{INLINE_LIMIT, SizeError};

/// Documents by the name that they are stored under.
pub type Documents = BTreeMap<String, Document>;

/// What happens to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Only the new documents have it.
    Added,
    /// Only the old ones have it.
    Removed,
    /// Both have it, and it says something else.
    Changed,
}

/// One statement that is not the same in both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// Name of the document.
    pub policy: String,
    /// The statement's id, or its number, counted from 1, in a document without ids.
    pub statement: String,
    /// What happens to it.
    pub change: Change,
    /// In short what it says, or what about it changes.
    pub detail: String,
}

/// What is different, in the order of names and ids.
pub fn differences(old: &Documents, new: &Documents) -> Vec<Difference> {
    let empty = Document::new([]);
    let names = old.keys().chain(new.keys()).collect::<BTreeSet<_>>();
    let mut found = Vec::new();
    for name in names {
        let before = by_id(old.get(name).unwrap_or(&empty));
        let after = by_id(new.get(name).unwrap_or(&empty));
        let mut add = |statement: &str, change, detail| {
            found.push(Difference {
                policy: name.clone(),
                statement: statement.to_owned(),
                change,
                detail,
            });
        };
        for (id, statement) in &after {
            match before.get(id) {
                None => add(id, Change::Added, in_words(statement)),
                Some(earlier) => {
                    if let Some(detail) = change_in_words(earlier, statement) {
                        add(id, Change::Changed, detail);
                    }
                }
            }
        }
        for (id, statement) in before.iter().filter(|(id, _)| !after.contains_key(*id)) {
            add(id, Change::Removed, in_words(statement));
        }
    }
    found
}

/// The documents that allow what either of both allows: the new ones, and those old statements that
/// the new documents together don't cover.
///
/// Applied to its own result it changes nothing more, so it may be done again after a crash.
///
/// # Errors
/// When IAM would not store them as inline policies of one role.
pub fn union(old: &Documents, new: &Documents) -> Result<Documents, SizeError> {
    let mut both = new.clone();
    for (name, document) in old {
        for statement in &document.statements {
            if !is_needed_beside(statement, new) {
                continue;
            }
            let into = both.entry(name.clone()).or_insert_with(|| Document::new([]));
            let same = |known: &Statement| {
                Document::new([known.clone()]).says_the_same_as(&Document::new([statement.clone()]))
            };
            if into.statements.iter().any(same) {
                continue;
            }
            let mut statement = statement.clone();
            let taken = into.statements.iter().any(|one| one.sid == statement.sid);
            if let Some(sid) = statement.sid.as_mut().filter(|_| taken) {
                sid.push_str("Before");
            }
            into.statements.push(statement);
        }
    }
    let size = both.values().map(Document::size).sum();
    if size > INLINE_LIMIT { Err(SizeError::Inline { size }) } else { Ok(both) }
}

/// A statement that allows something that the documents don't. What denies is dropped: it would
/// take from the new version what it needs.
fn is_needed_beside(statement: &Statement, documents: &Documents) -> bool {
    if statement.effect == Effect::Deny {
        return false;
    }
    match (&statement.actions, &statement.resources) {
        (Actions::Only(_), Some(Resources::Only(_))) => {
            !gaps(documents.values(), &Document::new([statement.clone()])).is_empty()
        }
        // Nothing can be said about what is written the other way round.
        _ => true,
    }
}

fn by_id(document: &Document) -> BTreeMap<String, &Statement> {
    let ids = document.statements.iter().zip(1..).map(|(statement, number): (_, usize)| {
        (statement.sid.clone().unwrap_or_else(|| format!("#{number}")), statement)
    });
    ids.collect()
}

fn actions(statement: &Statement) -> Vec<String> {
    match &statement.actions {
        Actions::Only(actions) => actions.clone(),
        Actions::AllBut(actions) => vec![format!("all but {}", actions.join(", "))],
    }
}

fn in_words(statement: &Statement) -> String {
    let verb = match statement.effect {
        Effect::Allow => "allows",
        Effect::Deny => "denies",
    };
    format!("{verb} {}", actions(statement).join(", "))
}

/// What about a statement is different; `None` if it says the same.
fn change_in_words(old: &Statement, new: &Statement) -> Option<String> {
    let alone = |statement: &Statement| Document::new([statement.clone()]);
    if alone(old).says_the_same_as(&alone(new)) {
        return None;
    }
    let (before, after) = (actions(old), actions(new));
    let has =
        |list: &[String], action: &str| list.iter().any(|known| known.eq_ignore_ascii_case(action));
    let added = after.iter().filter(|action| !has(&before, action)).map(|one| format!("+{one}"));
    let removed = before.iter().filter(|action| !has(&after, action)).map(|one| format!("-{one}"));
    let mut parts = added.chain(removed).collect::<Vec<_>>();
    if old.effect != new.effect {
        parts.push(in_words(new));
    }
    if old.resources != new.resources {
        parts.push("other resources".to_owned());
    }
    if old.conditions != new.conditions {
        parts.push("other conditions".to_owned());
    }
    Some(parts.join(", "))
}

#[cfg(test)]
mod tests;
