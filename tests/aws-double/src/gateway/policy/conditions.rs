//! Condition blocks and policy variables.

use std::cmp::Ordering;
use std::net::IpAddr;

use jiff::Timestamp;
use tenon_iam_policies::document::{Conditions, Version};

use super::Context;
use super::pattern::{LITERAL, arn_matches, glob, unmarked};

/// Whether all conditions hold.
pub(super) fn hold(conditions: &Conditions, version: Version, context: &Context) -> bool {
    conditions.iter().all(|(operator, keys)| {
        let Some(operator) = Operator::parse(operator) else {
            // IAM stores no document with an operator that it doesn't know. Should one get here, it
            // must not grant anything.
            return false;
        };
        keys.iter()
            .all(|(key, expected)| operator.holds(context.get(key), expected, version, context))
    })
}

/// A text with its policy variables replaced; `None` when one has no value, which makes the pattern
/// match nothing.
pub(super) fn substitute(text: &str, version: Version, context: &Context) -> Option<String> {
    if version == Version::V2008 || !text.contains("${") {
        return Some(text.to_owned());
    }
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        result.push_str(before);
        let (variable, behind) = after.split_once('}')?;
        let (name, default) = match variable.split_once(',') {
            Some((name, default)) => (name.trim(), Some(default.trim().trim_matches('\''))),
            None => (variable.trim(), None),
        };
        let value = match context.get(name) {
            Some([value]) => value.clone(),
            _ if matches!(name, "*" | "?" | "$") => name.to_owned(),
            _ => default?.to_owned(),
        };
        // Whatever a value contains, it is no pattern.
        result.extend(
            value.chars().map(|c| {
                LITERAL.iter().find(|(plain, _)| *plain == c).map_or(c, |(_, mark)| *mark)
            }),
        );
        rest = behind;
    }
    result.push_str(rest);
    Some(result)
}

/// How many of a key's values must satisfy the condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quantifier {
    /// The key has one value.
    One,
    /// Each of them, even when there is none.
    ForAll,
    /// At least one.
    ForAny,
}

struct Operator {
    quantifier: Quantifier,
    test: Test,
    /// `StringNotEquals` and its like: true when no expected value matches, also when the key is
    /// absent.
    negated: bool,
    /// `…IfExists`: true when the key is absent.
    if_exists: bool,
}

#[derive(Clone, Copy)]
enum Test {
    Null,
    StringEquals,
    StringEqualsIgnoreCase,
    StringLike,
    Bool,
    Arn,
    Numeric(fn(Ordering) -> bool),
    Date(fn(Ordering) -> bool),
    IpAddress,
}

impl Operator {
    fn parse(name: &str) -> Option<Self> {
        let (quantifier, name) = match name.split_once(':') {
            Some(("ForAllValues", name)) => (Quantifier::ForAll, name),
            Some(("ForAnyValue", name)) => (Quantifier::ForAny, name),
            Some(_) => return None,
            None => (Quantifier::One, name),
        };
        let (name, if_exists) =
            name.strip_suffix("IfExists").map_or((name, false), |name| (name, true));
        let (test, negated) = match name {
            "Null" => (Test::Null, false),
            "StringEquals" => (Test::StringEquals, false),
            "StringNotEquals" => (Test::StringEquals, true),
            "StringEqualsIgnoreCase" => (Test::StringEqualsIgnoreCase, false),
            "StringNotEqualsIgnoreCase" => (Test::StringEqualsIgnoreCase, true),
            "StringLike" => (Test::StringLike, false),
            "StringNotLike" => (Test::StringLike, true),
            "Bool" => (Test::Bool, false),
            "ArnEquals" | "ArnLike" => (Test::Arn, false),
            "ArnNotEquals" | "ArnNotLike" => (Test::Arn, true),
            "NumericEquals" => (Test::Numeric(Ordering::is_eq), false),
            "NumericNotEquals" => (Test::Numeric(Ordering::is_eq), true),
            "NumericLessThan" => (Test::Numeric(Ordering::is_lt), false),
            "NumericLessThanEquals" => (Test::Numeric(Ordering::is_le), false),
            "NumericGreaterThan" => (Test::Numeric(Ordering::is_gt), false),
            "NumericGreaterThanEquals" => (Test::Numeric(Ordering::is_ge), false),
            "DateEquals" => (Test::Date(Ordering::is_eq), false),
            "DateNotEquals" => (Test::Date(Ordering::is_eq), true),
            "DateLessThan" => (Test::Date(Ordering::is_lt), false),
            "DateLessThanEquals" => (Test::Date(Ordering::is_le), false),
            "DateGreaterThan" => (Test::Date(Ordering::is_gt), false),
            "DateGreaterThanEquals" => (Test::Date(Ordering::is_ge), false),
            "IpAddress" => (Test::IpAddress, false),
            "NotIpAddress" => (Test::IpAddress, true),
            _ => return None,
        };
        Some(Self { quantifier, test, negated, if_exists })
    }

    fn holds(
        &self,
        actual: Option<&[String]>,
        expected: &[String],
        version: Version,
        context: &Context,
    ) -> bool {
        if matches!(self.test, Test::Null) {
            let wanted = if actual.is_none() { "true" } else { "false" };
            return expected.iter().any(|value| value.eq_ignore_ascii_case(wanted));
        }
        let Some(actual) = actual.filter(|values| !values.is_empty()) else {
            return self.if_exists
                || match self.quantifier {
                    Quantifier::One => self.negated,
                    Quantifier::ForAll => true,
                    Quantifier::ForAny => false,
                };
        };
        let expected: Vec<String> =
            expected.iter().filter_map(|value| substitute(value, version, context)).collect();
        let satisfies = |value: &String| {
            expected.iter().any(|expected| self.test.passes(value, expected)) != self.negated
        };
        match self.quantifier {
            Quantifier::ForAll => actual.iter().all(satisfies),
            Quantifier::ForAny => actual.iter().any(satisfies),
            // Several values of a key that is asked for without a quantifier: no value may match a
            // negated operator, any may match the others.
            Quantifier::One if self.negated => actual.iter().all(satisfies),
            Quantifier::One => actual.iter().any(satisfies),
        }
    }
}

impl Test {
    fn passes(self, actual: &str, expected: &str) -> bool {
        match self {
            Self::Null => false,
            Self::StringEquals => actual == unmarked(expected),
            Self::StringEqualsIgnoreCase => {
                actual.to_lowercase() == unmarked(expected).to_lowercase()
            }
            Self::StringLike => glob(expected, actual),
            Self::Bool => actual.eq_ignore_ascii_case(expected),
            Self::Arn => arn_matches(expected, actual),
            Self::Numeric(holds) => {
                let number = |text: &str| text.parse::<f64>().ok();
                let order = number(actual)
                    .zip(number(expected))
                    .and_then(|(actual, expected)| actual.partial_cmp(&expected));
                order.is_some_and(holds)
            }
            Self::Date(holds) => {
                let order = instant(actual)
                    .zip(instant(expected))
                    .map(|(actual, expected)| actual.cmp(&expected));
                order.is_some_and(holds)
            }
            Self::IpAddress => in_network(actual, expected).unwrap_or(false),
        }
    }
}

/// A time as policies write it: RFC 3339, a date alone, or seconds since 1970.
fn instant(text: &str) -> Option<Timestamp> {
    if let Ok(seconds) = text.parse::<i64>() {
        return Timestamp::from_second(seconds).ok();
    }
    text.parse().or_else(|_| format!("{text}T00:00:00Z").parse()).ok()
}

fn in_network(address: &str, network: &str) -> Option<bool> {
    let address: IpAddr = address.parse().ok()?;
    let (base, length) = match network.split_once('/') {
        Some((base, length)) => (base.parse::<IpAddr>().ok()?, Some(length.parse::<u32>().ok()?)),
        None => (network.parse::<IpAddr>().ok()?, None),
    };
    match (address, base) {
        (IpAddr::V4(address), IpAddr::V4(base)) => {
            let shift = 32 - length.unwrap_or(32).min(32);
            let kept = |address: u32| address.checked_shr(shift).unwrap_or(0);
            Some(kept(address.to_bits()) == kept(base.to_bits()))
        }
        (IpAddr::V6(address), IpAddr::V6(base)) => {
            let shift = 128 - length.unwrap_or(128).min(128);
            let kept = |address: u128| address.checked_shr(shift).unwrap_or(0);
            Some(kept(address.to_bits()) == kept(base.to_bits()))
        }
        _ => Some(false),
    }
}
