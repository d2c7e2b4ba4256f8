//! Quantities of resources (`1500m`, `4Gi`, `1e3`): exact values, compared by value, written in
//! Kubernetes' canonical form.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Resource name to quantity.
pub type ResourceList = BTreeMap<String, Quantity>;

const NANO: i128 = 1_000_000_000;
/// Kubernetes cuts greater values to the greatest 64-bit integer.
const MAX_NANOS: i128 = i64::MAX as i128 * NANO;

/// The schema's pattern, which is the one of the core API.
pub(crate) const PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// An amount of a resource, exact to a billionth. Equality and order look at the amount only, the
/// notation is kept for writing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

/// How a quantity is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notation {
    /// Powers of 1000 by suffix: `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`.
    #[default]
    DecimalSi,
    /// Powers of 1024 by suffix: `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`.
    BinarySi,
    /// Powers of ten by exponent: `1e3`.
    DecimalExponent,
}

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a quantity (examples: `500m`, `2`, `4Gi`)")]
pub struct ParseQuantityError {
    /// What was given.
    pub text: String,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, notation: Notation::DecimalSi };

    /// From thousandths, as CPU is counted.
    pub fn from_millis(millis: i64) -> Self {
        Self { nanos: i128::from(millis) * 1_000_000, notation: Notation::DecimalSi }
    }

    /// From whole units, such as a count of pods.
    pub fn from_units(units: i64) -> Self {
        Self { nanos: i128::from(units) * NANO, notation: Notation::DecimalSi }
    }

    /// From bytes, written with binary suffixes.
    pub fn from_bytes(bytes: i64) -> Self {
        Self { nanos: i128::from(bytes) * NANO, notation: Notation::BinarySi }
    }

    /// From billionths; what lies beyond a 64-bit count of units is cut.
    pub fn from_nanos(nanos: i128, notation: Notation) -> Self {
        Self { nanos: nanos.clamp(-MAX_NANOS, MAX_NANOS), notation }
    }

    /// The exact amount in billionths.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// The amount in thousandths, rounded away from zero, cut to 64 bits.
    pub fn millis(self) -> i64 {
        saturate(div_away_from_zero(self.nanos, 1_000_000))
    }

    /// The amount in whole units, such as bytes, rounded away from zero.
    pub fn units(self) -> i64 {
        saturate(div_away_from_zero(self.nanos, NANO))
    }

    /// How it is written.
    pub fn notation(self) -> Notation {
        self.notation
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The sum, in this quantity's notation.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Self::from_nanos(self.nanos + other.nanos, notation)
    }

    /// The difference, in this quantity's notation; it may be negative.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Self::from_nanos(self.nanos - other.nanos, notation)
    }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn div_away_from_zero(value: i128, divisor: i128) -> i128 {
    let quotient = value / divisor;
    if value % divisor == 0 { quotient } else { quotient + value.signum() }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}
impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    /// Reads the notation of the core API. What is finer than a billionth is rounded away from
    /// zero, as Kubernetes does.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseQuantityError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(number_len);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (notation, unit) = match suffix {
        "n" => (Notation::DecimalSi, 1),
        "u" => (Notation::DecimalSi, 1_000),
        "m" => (Notation::DecimalSi, 1_000_000),
        "" => (Notation::DecimalSi, NANO),
        "k" => (Notation::DecimalSi, NANO * 1_000),
        "M" => (Notation::DecimalSi, NANO * 1_000_000),
        "G" => (Notation::DecimalSi, NANO * 1_000_000_000),
        "T" => (Notation::DecimalSi, NANO * 1_000_000_000_000),
        "P" => (Notation::DecimalSi, NANO * 1_000_000_000_000_000),
        "E" => (Notation::DecimalSi, NANO * 1_000_000_000_000_000_000),
        "Ki" => (Notation::BinarySi, NANO << 10),
        "Mi" => (Notation::BinarySi, NANO << 20),
        "Gi" => (Notation::BinarySi, NANO << 30),
        "Ti" => (Notation::BinarySi, NANO << 40),
        "Pi" => (Notation::BinarySi, NANO << 50),
        "Ei" => (Notation::BinarySi, NANO << 60),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let (whole, fraction) = shift_point(whole, fraction, exponent);
            return Some(Quantity {
                nanos: signed(negative, amount(&whole, &fraction, NANO)),
                notation: Notation::DecimalExponent,
            });
        }
    };
    let nanos = amount(whole, fraction, unit);
    // Kubernetes writes fractions of one in decimal, also when they were given in binary.
    let notation = if notation == Notation::BinarySi && nanos > 0 && nanos < NANO {
        Notation::DecimalSi
    } else {
        notation
    };
    Some(Quantity { nanos: signed(negative, nanos), notation })
}

fn signed(negative: bool, nanos: i128) -> i128 {
    if negative { -nanos } else { nanos }
}

/// Moves the decimal point. Beyond 40 places the result is either more than can be held or a trace
/// that is rounded up.
fn shift_point(whole: &str, fraction: &str, places: i32) -> (String, String) {
    let digits = format!("{whole}{fraction}");
    let n_places = places.unsigned_abs().min(40) as usize;
    if places >= 0 {
        let padded = format!("{fraction:0<n_places$}");
        let (moved, rest) = padded.split_at(n_places);
        (format!("{whole}{moved}"), rest.to_owned())
    } else {
        let padded = format!("{}{digits}", "0".repeat(n_places));
        let (whole, fraction) = padded.split_at(whole.len());
        (whole.to_owned(), fraction.to_owned())
    }
}

/// `whole.fraction × unit`, rounded up, cut to the maximum. `unit` is in billionths.
fn amount(whole: &str, fraction: &str, unit: i128) -> i128 {
    let mut sum = whole
        .bytes()
        .fold(0_i128, |sum, digit| sum.saturating_mul(10).saturating_add(i128::from(digit - b'0')));
    sum = sum.saturating_mul(unit);
    // As many digits as fit into the product; those behind them only decide that the result is
    // rounded up.
    let n_exact = (37 - unit.ilog10() as usize).min(fraction.len());
    let (exact, trace) = fraction.split_at(n_exact);
    let numerator =
        exact.bytes().fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0')) * unit;
    let denominator = 10_i128.pow(u32::try_from(n_exact).expect("at most 37"));
    let inexact = numerator % denominator != 0 || trace.bytes().any(|digit| digit != b'0');
    sum.saturating_add(numerator / denominator).saturating_add(i128::from(inexact)).min(MAX_NANOS)
}

impl fmt::Display for Quantity {
    /// The canonical form: the greatest suffix that leaves a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.pad("0");
        }
        let whole = (self.nanos % NANO == 0).then_some(self.nanos / NANO);
        if self.notation == Notation::BinarySi
            && let Some(mut units) = whole.filter(|units| units.abs() >= 1024)
        {
            let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
            let mut suffix = suffixes.next().unwrap_or_default();
            while units % 1024 == 0
                && let Some(next) = suffixes.next()
            {
                units /= 1024;
                suffix = next;
            }
            return f.pad(&format!("{units}{suffix}"));
        }
        let mut mantissa = self.nanos;
        let mut exponent = -9_i32;
        while mantissa % 1000 == 0 && exponent < 18 {
            mantissa /= 1000;
            exponent += 3;
        }
        let suffix = match (self.notation, exponent) {
            (_, 0) => Cow::Borrowed(""),
            (Notation::DecimalExponent, exponent) => Cow::Owned(format!("e{exponent}")),
            (_, -9) => "n".into(),
            (_, -6) => "u".into(),
            (_, -3) => "m".into(),
            (_, 3) => "k".into(),
            (_, 6) => "M".into(),
            (_, 9) => "G".into(),
            (_, 12) => "T".into(),
            (_, 15) => "P".into(),
            _ => "E".into(),
        };
        f.pad(&format!("{mantissa}{suffix}"))
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Accepts a string or a number, as the API server does.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as `500m`, `2` or `4Gi`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.trim().parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, units: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(units))
            }

            fn visit_u64<E: de::Error>(self, units: u64) -> Result<Quantity, E> {
                Ok(Quantity::from_nanos(i128::from(units) * NANO, Notation::DecimalSi))
            }

            fn visit_f64<E: de::Error>(self, units: f64) -> Result<Quantity, E> {
                self.visit_str(&units.to_string())
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl From<Quantity> for k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl TryFrom<&k8s_openapi::apimachinery::pkg::api::resource::Quantity> for Quantity {
    type Error = ParseQuantityError;

    fn try_from(
        quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity,
    ) -> Result<Self, Self::Error> {
        quantity.0.trim().parse()
    }
}

impl schemars::JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "x-kubernetes-int-or-string": true, "pattern": PATTERN })
    }
}

#[cfg(test)]
mod tests;
