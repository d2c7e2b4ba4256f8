//! EventBridge event patterns: exact values, prefix, suffix, equals-ignore-case, wildcard,
//! anything-but, exists.

use serde_json::Value;

use super::super::policy::glob;

/// A pattern that can't be evaluated here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    /// Patterns are objects, also where they are nested.
    #[error("a pattern is a JSON object")]
    NotAnObject,
    /// A field has a bare value.
    #[error("the value of {0} is neither a list nor an object")]
    BareValue(String),
    /// `anything-but` of anything but values.
    #[error("anything-but with another matcher is not known to the double")]
    NestedAnythingBut,
    /// EventBridge has more matchers than this.
    #[error("the matcher {0} is not known to the double")]
    UnknownMatcher(String),
}

/// Whether an event matches a pattern.
pub(super) fn matches(pattern: &Value, event: &Value) -> Result<bool, PatternError> {
    let Some(fields) = pattern.as_object() else {
        return Err(PatternError::NotAnObject);
    };
    for (name, wanted) in fields {
        let present = &event[name];
        let matched = match wanted {
            Value::Object(_) => match present {
                Value::Array(items) => items
                    .iter()
                    .map(|item| matches(wanted, item))
                    .collect::<Result<Vec<_>, _>>()?
                    .contains(&true),
                _ => matches(wanted, present)?,
            },
            Value::Array(alternatives) => any(alternatives, present)?,
            _ => return Err(PatternError::BareValue(name.clone())),
        };
        if !matched {
            return Ok(false);
        }
    }
    Ok(true)
}

fn any(alternatives: &[Value], present: &Value) -> Result<bool, PatternError> {
    let values: Vec<&Value> = match present {
        Value::Array(items) => items.iter().collect(),
        Value::Null => vec![],
        other => vec![other],
    };
    for alternative in alternatives {
        let matched = match alternative {
            Value::Object(matcher) => {
                let Some((kind, operand)) = matcher.iter().next() else { continue };
                if kind == "exists" {
                    values.is_empty() != operand.as_bool().unwrap_or(true)
                } else {
                    let mut one = false;
                    for value in &values {
                        one |= is_matched(kind, operand, value)?;
                    }
                    one
                }
            }
            Value::Null => values.is_empty(),
            literal => values.contains(&literal),
        };
        if matched {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_matched(kind: &str, operand: &Value, value: &Value) -> Result<bool, PatternError> {
    let (text, wanted) = (value.as_str().unwrap_or_default(), operand.as_str().unwrap_or_default());
    Ok(match kind {
        "prefix" => text.starts_with(wanted),
        "suffix" => text.ends_with(wanted),
        "equals-ignore-case" => text.eq_ignore_ascii_case(wanted),
        "wildcard" => glob(wanted, text),
        "anything-but" => match operand {
            Value::Array(unwanted) => !unwanted.contains(value),
            Value::Object(_) => return Err(PatternError::NestedAnythingBut),
            one => one != value,
        },
        other => return Err(PatternError::UnknownMatcher(other.to_owned())),
    })
}
