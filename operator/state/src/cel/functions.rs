//! Functions and methods, CEL's own and those that Kubernetes adds.

use regex_lite::RegexBuilder;
use tenon_crds::Quantity;

use super::EvalError;
use super::budget::{Budget, wrong};
use super::value::{Value, Version};

/// How much memory a pattern may take once compiled.
const PATTERN: usize = 1 << 18;

/// Whether there is such a function with so many arguments.
pub(super) fn is_function(name: &str, arguments: usize) -> bool {
    let known =
        ["size", "string", "int", "double", "bool", "quantity", "isQuantity", "semver", "isSemver"];
    known.contains(&name) && arguments == 1
}

/// Whether there is such a method with so many arguments.
pub(super) fn is_method(name: &str, arguments: usize) -> bool {
    match name {
        "size" | "lowerAscii" | "upperAscii" | "trim" | "sign" | "asInteger" | "isInteger"
        | "asApproximateFloat" | "major" | "minor" | "patch" => arguments == 0,
        "startsWith" | "endsWith" | "contains" | "matches" | "indexOf" | "split" | "join"
        | "isGreaterThan" | "isLessThan" | "compareTo" | "add" | "sub" => arguments == 1,
        "replace" => arguments == 2,
        "substring" => arguments == 1 || arguments == 2,
        _ => false,
    }
}

type Result = std::result::Result<Value, EvalError>;

#[expect(clippy::cast_precision_loss, reason = "as CEL converts integers to doubles")]
#[expect(clippy::cast_possible_truncation, reason = "doubles beyond the range are refused before")]
pub(super) fn call(budget: &mut Budget, name: &str, arguments: &[Value]) -> Result {
    let [argument] = arguments else { return wrong(format!("{name} takes one argument")) };
    match (name, argument) {
        ("size", _) => size(argument),
        ("string", Value::Text(_)) => Ok(argument.clone()),
        ("string", Value::Int(value)) => Ok(Value::text(&value.to_string())),
        ("string", Value::Bool(value)) => Ok(Value::text(&value.to_string())),
        ("int", Value::Int(_)) | ("double", Value::Double(_)) | ("bool", Value::Bool(_)) => {
            Ok(argument.clone())
        }
        ("int", Value::Double(value)) if value.abs() < 9e18 => Ok(Value::Int(value.trunc() as i64)),
        ("int", Value::Text(text)) => {
            text.parse().map_or_else(|_| wrong("no integer"), |value| Ok(Value::Int(value)))
        }
        ("double", Value::Int(value)) => Ok(Value::Double(*value as f64)),
        ("double", Value::Text(text)) => {
            text.parse().map_or_else(|_| wrong("no double"), |value| Ok(Value::Double(value)))
        }
        ("bool", Value::Text(text)) => match &**text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => wrong("no bool"),
        },
        ("quantity" | "isQuantity" | "semver" | "isSemver", Value::Text(text)) => {
            budget.spend(text.len() / 16)?;
            let parsed = if name.ends_with("uantity") {
                text.parse().ok().map(Value::Quantity)
            } else {
                Version::parse(text).map(Value::Version)
            };
            match parsed {
                _ if name.starts_with("is") => Ok(Value::Bool(parsed.is_some())),
                Some(value) => Ok(value),
                None => wrong(format!("{text:?} is no {name}")),
            }
        }
        _ => wrong(format!("{name}() of {}", argument.kind())),
    }
}

fn size(value: &Value) -> Result {
    let size = match value {
        Value::Text(text) => text.chars().count(),
        Value::List(list) => list.len(),
        Value::Map(map) | Value::Domains(map) => map.len(),
        other => return wrong(format!("{} has no size", other.kind())),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

pub(super) fn method(budget: &mut Budget, base: &Value, name: &str, arguments: &[Value]) -> Result {
    budget.spend(base.weight())?;
    match base {
        _ if name == "size" => size(base),
        Value::Text(text) => of_text(budget, text, name, arguments),
        Value::List(list) if name == "join" => {
            let [Value::Text(separator)] = arguments else { return wrong("join takes a string") };
            let mut parts = Vec::new();
            for part in &**list {
                let Value::Text(part) = part else { return wrong("join is for lists of strings") };
                budget.spend((part.len() + separator.len()) / 16 + 1)?;
                parts.push(&**part);
            }
            Ok(Value::text(&parts.join(&**separator)))
        }
        Value::Quantity(quantity) => of_quantity(*quantity, name, arguments),
        Value::Version(version) => of_version(version, name, arguments),
        other => wrong(format!("{} has no method {name}", other.kind())),
    }
}

fn of_text(budget: &mut Budget, text: &str, name: &str, arguments: &[Value]) -> Result {
    let chars = |text: &str| i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    match (name, arguments) {
        ("lowerAscii", _) => Ok(Value::text(&text.to_ascii_lowercase())),
        ("upperAscii", _) => Ok(Value::text(&text.to_ascii_uppercase())),
        ("trim", _) => Ok(Value::text(text.trim())),
        ("startsWith", [Value::Text(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::Text(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("contains", [Value::Text(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("matches", [Value::Text(pattern)]) => {
            // Matching takes time in proportion to both lengths.
            budget.spend(pattern.len() + text.len() * pattern.len() / 64)?;
            match RegexBuilder::new(pattern).size_limit(PATTERN).build() {
                Ok(pattern) => Ok(Value::Bool(pattern.is_match(text))),
                Err(error) => wrong(format!("{pattern:?}: {error}")),
            }
        }
        ("indexOf", [Value::Text(part)]) => {
            Ok(Value::Int(text.find(&**part).map_or(-1, |at| chars(&text[..at]))))
        }
        ("split", [Value::Text(separator)]) => {
            budget.spend(text.len())?;
            let parts: Vec<Value> = if separator.is_empty() {
                text.chars().map(|part| Value::text(&part.to_string())).collect()
            } else {
                text.split(&**separator).map(Value::text).collect()
            };
            Ok(Value::List(parts.into()))
        }
        ("replace", [Value::Text(from), Value::Text(to)]) => {
            budget.spend((text.len() + 1) * (to.len() + 1) / 16)?;
            Ok(Value::text(&text.replace(&**from, to)))
        }
        ("substring", [Value::Int(from)]) => substring(text, *from, chars(text)),
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(text, *from, *to),
        _ => wrong(format!("a string has no such method {name}")),
    }
}

fn substring(text: &str, from: i64, to: i64) -> Result {
    let length = text.chars().count();
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(from), Ok(to)) if from <= to && to <= length => {
            Ok(Value::text(&text.chars().skip(from).take(to - from).collect::<String>()))
        }
        _ => wrong("an index is out of range"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the method is called approximate")]
fn of_quantity(quantity: Quantity, name: &str, arguments: &[Value]) -> Result {
    let nanos = quantity.nanos();
    let whole = i64::try_from(nanos / 1_000_000_000).ok().filter(|_| nanos % 1_000_000_000 == 0);
    match (name, arguments) {
        ("isGreaterThan", [Value::Quantity(other)]) => Ok(Value::Bool(nanos > other.nanos())),
        ("isLessThan", [Value::Quantity(other)]) => Ok(Value::Bool(nanos < other.nanos())),
        ("compareTo", [Value::Quantity(other)]) => Ok(Value::Int(nanos.cmp(&other.nanos()) as i64)),
        ("add", [Value::Quantity(other)]) => Ok(Value::Quantity(quantity.plus(*other))),
        ("sub", [Value::Quantity(other)]) => Ok(Value::Quantity(quantity.minus(*other))),
        ("sign", []) => Ok(Value::Int(i64::try_from(nanos.signum()).unwrap_or(0))),
        ("isInteger", []) => Ok(Value::Bool(whole.is_some())),
        ("asInteger", []) => {
            whole.map_or_else(|| wrong("no integer"), |value| Ok(Value::Int(value)))
        }
        ("asApproximateFloat", []) => Ok(Value::Double(nanos as f64 / 1e9)),
        _ => wrong(format!("a quantity has no such method {name}")),
    }
}

fn of_version(version: &Version, name: &str, arguments: &[Value]) -> Result {
    let number = |at: usize| {
        i64::try_from(version.numbers[at])
            .map_or_else(|_| wrong("out of range"), |number| Ok(Value::Int(number)))
    };
    match (name, arguments) {
        ("isGreaterThan", [Value::Version(other)]) => Ok(Value::Bool(version > other)),
        ("isLessThan", [Value::Version(other)]) => Ok(Value::Bool(version < other)),
        ("compareTo", [Value::Version(other)]) => Ok(Value::Int(version.cmp(other) as i64)),
        ("major", []) => number(0),
        ("minor", []) => number(1),
        ("patch", []) => number(2),
        _ => wrong(format!("a version has no such method {name}")),
    }
}
