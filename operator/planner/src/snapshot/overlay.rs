//! NodeOverlays: an administrator's corrections to the provider's prices and capacity.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Requirement;
use crate::resources::MicroUsd;

/// A NodeOverlay that is valid by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlay {
    /// `metadata.name`.
    pub name: String,
    /// `spec.weight`, 0 when unset. Of two overlays that change the same price or resource, the
    /// heavier one counts.
    pub weight: i32,
    /// `spec.requirements`: the NodePools, instance types and offerings that it is about.
    pub requirements: Vec<Requirement>,
    /// `spec.price` or `spec.priceAdjustment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceChange>,
    /// `spec.capacity` in the units of [`crate::resources::Resources`]: it adds to, or replaces,
    /// the provider's amounts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, i64>,
}

/// A change to a price. No price falls below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PriceChange {
    /// Sets the price per hour.
    Set(MicroUsd),
    /// Adds an amount per hour, which may be negative.
    Add(MicroUsd),
    /// Adds this many millionths of the price: -150000 subtracts 15 %.
    Scale(i64),
}

impl PriceChange {
    /// From `spec.price` or `spec.priceAdjustment` (`+0.1`, `-0.1`, `+10%`, `-10%`), of which at
    /// most one is set. An error when neither form fits.
    pub fn parse(price: Option<&str>, adjustment: Option<&str>) -> Result<Option<Self>, String> {
        let millionths =
            |text: &str| decimal(text).ok_or_else(|| format!("{text:?} is not a decimal number"));
        match (price, adjustment) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err("price and priceAdjustment exclude each other".to_owned()),
            (Some(price), None) => match millionths(price)? {
                amount if amount < 0 => Err(format!("price {price:?} is below zero")),
                amount => Ok(Some(Self::Set(MicroUsd(amount)))),
            },
            (None, Some(adjustment)) => match adjustment.strip_suffix('%') {
                Some(percent) => Ok(Some(Self::Scale(millionths(percent)? / 100))),
                None => Ok(Some(Self::Add(MicroUsd(millionths(adjustment)?)))),
            },
        }
    }

    /// The changed price, at least zero.
    #[must_use]
    pub fn apply(self, price: MicroUsd) -> MicroUsd {
        let changed = match self {
            Self::Set(price) => price.0,
            Self::Add(more) => price.0.saturating_add(more.0),
            Self::Scale(by) => {
                let more = i128::from(price.0) * i128::from(by) / 1_000_000;
                i64::try_from(i128::from(price.0) + more).unwrap_or(i64::MAX)
            }
        };
        MicroUsd(changed.max(0))
    }
}

/// A decimal number in millionths; further digits are cut off.
fn decimal(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let numeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !numeric(whole) || !numeric(fraction) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: i64 = format!("{fraction:0<6}")[..6].parse().ok()?;
    let amount = whole.checked_mul(1_000_000)?.checked_add(fraction)?;
    Some(if negative { -amount } else { amount })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(price: Option<&str>, adjustment: Option<&str>) -> Option<i64> {
        let change = PriceChange::parse(price, adjustment).expect("a valid change")?;
        Some(change.apply(MicroUsd(200_000)).0)
    }

    #[test]
    fn prices_are_set_moved_and_scaled_and_never_negative() {
        for (price, adjustment, expected) in [
            (Some("0.3"), None, Some(300_000)),
            (Some("5"), None, Some(5_000_000)),
            (None, Some("+0.05"), Some(250_000)),
            (None, Some("-.05"), Some(150_000)),
            (None, Some("-1"), Some(0)),
            (None, Some("+10%"), Some(220_000)),
            (None, Some("-12.5%"), Some(175_000)),
            (None, Some("-100%"), Some(0)),
            (None, None, None),
        ] {
            assert_eq!(after(price, adjustment), expected, "{price:?} {adjustment:?}");
        }
    }

    #[test]
    fn what_is_no_price_is_an_error() {
        for (price, adjustment) in [
            (Some("x"), None),
            (Some("-1"), None),
            (Some(""), None),
            (Some("."), None),
            (None, Some("10 %")),
            (None, Some("é%")),
            (Some("1"), Some("+1")),
        ] {
            assert!(PriceChange::parse(price, adjustment).is_err(), "{price:?} {adjustment:?}");
        }
    }
}
