//! Durations in Go's notation (`1h30m`), which keep the text that the user wrote.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A length of time in Go's notation. Written back exactly as it was read: `720h` stays `720h`.
/// Compared by length, not by text.
#[derive(Clone, Debug)]
pub struct Duration {
    nanos: i64,
    text: Box<str>,
}

/// A length of time, or `Never`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NillableDuration {
    /// No end; also what an unset value means.
    Never,
    /// After this time.
    After(Duration),
}

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration: {problem} (examples: `30s`, `1h30m`, `720h`)")]
pub struct ParseDurationError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Duration {
    /// No time at all, written `0s`.
    pub fn zero() -> Self {
        Self::from_nanos(0)
    }

    /// From whole seconds.
    pub fn from_secs(seconds: i64) -> Self {
        Self::from_nanos(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    /// From nanoseconds; the text is Go's canonical form, such as `1h30m0s`.
    pub fn from_nanos(nanos: i64) -> Self {
        Self { nanos, text: go_text(nanos).into_boxed_str() }
    }

    /// Length in nanoseconds. The API allows no negative durations, but Go's notation does.
    pub fn as_nanos(&self) -> i64 {
        self.nanos
    }

    /// Length in whole seconds, rounded towards zero.
    pub fn as_secs(&self) -> i64 {
        self.nanos / NANOS_PER_SECOND
    }

    /// Length for the standard library; negative lengths become zero.
    pub fn as_std(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.nanos).unwrap_or(0))
    }

    /// Length for arithmetic with timestamps.
    pub fn as_signed(&self) -> jiff::SignedDuration {
        jiff::SignedDuration::from_nanos(self.nanos)
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl NillableDuration {
    /// The length, unless it never ends.
    pub fn duration(&self) -> Option<&Duration> {
        match self {
            Self::Never => None,
            Self::After(duration) => Some(duration),
        }
    }

    /// The text as it was written, or `Never`.
    pub fn as_str(&self) -> &str {
        self.duration().map_or("Never", Duration::as_str)
    }
}

impl PartialEq for Duration {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Duration {}
impl PartialOrd for Duration {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Duration {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}
impl Hash for Duration {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Display for NillableDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Duration {
    type Err = ParseDurationError;

    /// Reads Go's notation: an optional sign, then numbers with a unit of `ns`, `us`, `ms`, `s`,
    /// `m` or `h`; `0` needs no unit. A length beyond 292 years is cut to that, because the API
    /// server's patterns accept any number of digits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let problem = |problem| ParseDurationError { text: text.to_owned(), problem };
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self { nanos: 0, text: text.into() });
        }
        if rest.is_empty() {
            return Err(problem("it is empty"));
        }
        let mut nanos: i128 = 0;
        while !rest.is_empty() {
            let number_len =
                rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, tail) = rest.split_at(number_len);
            let unit_len =
                tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_len);
            let unit: i128 = match unit {
                "ns" => 1,
                "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                "" => return Err(problem("a number has no unit")),
                _ => return Err(problem("the units are h, m, s, ms, us and ns")),
            };
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
                return Err(problem("a unit has no number"));
            }
            let digits = |digits: &str| {
                digits.bytes().fold(0_i128, |sum, digit| {
                    sum.saturating_mul(10).saturating_add(i128::from(digit - b'0'))
                })
            };
            nanos = nanos.saturating_add(digits(whole).saturating_mul(unit));
            let fraction = &fraction[..fraction.len().min(18)];
            let scale = 10_i128.pow(u32::try_from(fraction.len()).expect("at most 18 digits"));
            nanos = nanos.saturating_add(digits(fraction) * unit / scale);
            rest = tail;
        }
        let nanos = if negative { -nanos } else { nanos };
        let nanos = i64::try_from(nanos).unwrap_or(if negative { i64::MIN } else { i64::MAX });
        Ok(Self { nanos, text: text.into() })
    }
}

impl FromStr for NillableDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "Never" { Ok(Self::Never) } else { text.parse().map(Self::After) }
    }
}

/// Go's canonical text: `1h30m0s`, `1.5s`, `100ms`, `0s`.
fn go_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let fraction = |value: u64, unit: u64| {
        let digits = unit.ilog10() as usize;
        let rest = format!("{:0digits$}", value % unit);
        let rest = rest.trim_end_matches('0');
        if rest.is_empty() {
            (value / unit).to_string()
        } else {
            format!("{}.{rest}", value / unit)
        }
    };
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < 1_000 {
        return format!("{sign}{nanos}ns");
    }
    if nanos < 1_000_000 {
        return format!("{sign}{}\u{b5}s", fraction(nanos, 1_000));
    }
    if nanos < 1_000_000_000 {
        return format!("{sign}{}ms", fraction(nanos, 1_000_000));
    }
    let minutes = nanos / 60_000_000_000;
    let seconds = fraction(nanos % 60_000_000_000, 1_000_000_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for NillableDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for NillableDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl schemars::JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^([0-9]+(s|m|h))+$" })
    }
}

impl schemars::JsonSchema for NillableDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NillableDuration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^(([0-9]+(s|m|h))+|Never)$" })
    }
}

#[cfg(test)]
mod tests;
