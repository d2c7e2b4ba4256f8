//! The JSON that `aws ec2 describe-reserved-instances`, `aws savingsplans describe-savings-plans`
//! and `aws savingsplans describe-savings-plan-rates` print.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{CommitmentKind, RateKey, ReservedInstances, SavingsPlan};

/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// One file.
#[derive(Debug, PartialEq)]
pub(super) enum Document {
    Reserved(Vec<ReservedInstances>),
    /// Without their rates.
    Plans(Vec<SavingsPlan>),
    /// A page of the rates of a plan.
    Rates {
        plan: String,
        rates: BTreeMap<RateKey, f64>,
        is_last: bool,
    },
}

impl Document {
    /// Reads a text; the error says what is wrong with it.
    pub(super) fn parse(text: &str, now: Timestamp) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        if value.get("ReservedInstances").is_some() {
            let answer: Answer = typed(value)?;
            let active = answer.reserved_instances.into_iter().filter(|it| it.is_active(now));
            let read = active.filter_map(|it| it.read().transpose()).collect::<Result<_, _>>()?;
            return Ok(Self::Reserved(read));
        }
        if value.get("savingsPlans").is_some() {
            let answer: PlansAnswer = typed(value)?;
            if answer.next_token.is_some_and(|token| !token.is_empty()) {
                return Err(
                    "it has only the first Savings Plans: add `--max-results 1000` to the \
                            command that wrote it"
                        .to_owned(),
                );
            }
            let active = answer.savings_plans.into_iter().filter(|it| it.is_active(now));
            let read = active.filter_map(|it| it.read().transpose()).collect::<Result<_, _>>()?;
            return Ok(Self::Plans(read));
        }
        if value.get("searchResults").is_some() {
            let answer: RatesAnswer = typed(value)?;
            let rates = answer.search_results.into_iter().filter_map(|it| it.read().transpose());
            return Ok(Self::Rates {
                plan: answer.savings_plan_id,
                rates: rates.collect::<Result<_, _>>()?,
                is_last: answer.next_token.is_none_or(|token| token.is_empty()),
            });
        }
        Err("it has none of ReservedInstances, savingsPlans and searchResults".to_owned())
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| format!("{}: {}", error.path(), error.inner()))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    reserved_instances: Vec<Bought>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Bought {
    reserved_instances_id: String,
    instance_type: String,
    instance_count: u32,
    product_description: String,
    state: String,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    availability_zone: Option<String>,
    #[serde(default)]
    instance_tenancy: Option<String>,
    #[serde(default)]
    currency_code: Option<String>,
    /// In seconds.
    #[serde(default)]
    duration: f64,
    #[serde(default)]
    fixed_price: f64,
    #[serde(default)]
    usage_price: f64,
    #[serde(default)]
    recurring_charges: Vec<Charge>,
    #[serde(default)]
    start: Option<Timestamp>,
    #[serde(default)]
    end: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Charge {
    amount: f64,
    frequency: String,
}

impl Bought {
    fn is_active(&self, now: Timestamp) -> bool {
        self.state == "active" && lasts(self.start, self.end, now)
    }

    /// None if they are for nothing that a node is.
    fn read(self) -> Result<Option<ReservedInstances>, String> {
        let dedicated = self.instance_tenancy.as_deref().is_some_and(|it| it != "default");
        if dedicated || !is_linux(&self.product_description) {
            return Ok(None);
        }
        let id = self.reserved_instances_id;
        in_dollars(self.currency_code.as_deref(), &format!("reserved instances {id}"))?;
        if self.fixed_price > 0.0 && self.duration <= 0.0 {
            return Err(format!("reserved instances {id} have a FixedPrice but no Duration"));
        }
        let upfront =
            if self.fixed_price > 0.0 { self.fixed_price * HOUR / self.duration } else { 0.0 };
        let hourly = self.recurring_charges.iter().filter(|it| it.frequency == "Hourly");
        let zone = self.availability_zone.filter(|zone| !zone.is_empty());
        Ok(Some(ReservedInstances {
            id,
            instance_type: self.instance_type,
            zone: zone.filter(|_| self.scope.as_deref() != Some("Region")),
            count: f64::from(self.instance_count),
            price: upfront + self.usage_price + hourly.map(|it| it.amount).sum::<f64>(),
            end: self.end,
        }))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlansAnswer {
    savings_plans: Vec<Plan>,
    #[serde(default)]
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    savings_plan_id: String,
    savings_plan_type: String,
    state: String,
    commitment: String,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default)]
    start: Option<Timestamp>,
    #[serde(default)]
    end: Option<Timestamp>,
}

impl Plan {
    fn is_active(&self, now: Timestamp) -> bool {
        self.state == "active" && lasts(self.start, self.end, now)
    }

    /// None if it is not for EC2.
    fn read(self) -> Result<Option<SavingsPlan>, String> {
        let kind = match self.savings_plan_type.as_str() {
            "Compute" => CommitmentKind::ComputeSavingsPlan,
            "EC2Instance" => CommitmentKind::Ec2InstanceSavingsPlan,
            _ => return Ok(None),
        };
        let id = self.savings_plan_id;
        in_dollars(self.currency.as_deref(), &format!("Savings Plan {id}"))?;
        let commitment = amount(&self.commitment)
            .ok_or_else(|| format!("the commitment of Savings Plan {id} is not a price"))?;
        Ok(Some(SavingsPlan { id, kind, commitment, end: self.end, rates: BTreeMap::new() }))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RatesAnswer {
    savings_plan_id: String,
    search_results: Vec<Rate>,
    #[serde(default)]
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rate {
    rate: String,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default)]
    product_type: Option<String>,
    #[serde(default)]
    usage_type: Option<String>,
    #[serde(default)]
    properties: Vec<Property>,
}

#[derive(Debug, Deserialize)]
struct Property {
    name: String,
    value: String,
}

impl Rate {
    /// None if it is for nothing that a node is.
    fn read(self) -> Result<Option<(RateKey, f64)>, String> {
        let is_ec2 = self.product_type.as_deref().is_none_or(|it| it == "EC2");
        // Reserved capacity without an instance in it has rates of its own.
        let is_unused = self.usage_type.as_deref().is_some_and(|it| it.contains("Unused"));
        let property = |name: &str| {
            let found = self.properties.iter().find(|it| it.name == name);
            found.map(|it| it.value.as_str())
        };
        let tenancy = property("tenancy").unwrap_or("shared");
        let is_linux = property("productDescription").is_none_or(is_linux);
        let (Some(region), Some(instance_type)) = (property("region"), property("instanceType"))
        else {
            return Ok(None);
        };
        if !is_ec2 || !is_linux || is_unused || !matches!(tenancy, "shared" | "dedicated") {
            return Ok(None);
        }
        in_dollars(self.currency.as_deref(), &format!("the rate of {instance_type}"))?;
        let rate = amount(&self.rate)
            .ok_or_else(|| format!("the rate of {instance_type} is not a price"))?;
        let key = RateKey {
            region: region.to_owned(),
            instance_type: instance_type.to_owned(),
            dedicated: tenancy == "dedicated",
        };
        Ok(Some((key, rate)))
    }
}

/// Whether it is for instances with Linux whose license is not part of the price.
fn is_linux(product: &str) -> bool {
    matches!(product, "Linux/UNIX" | "Linux/UNIX (Amazon VPC)")
}

fn lasts(start: Option<Timestamp>, end: Option<Timestamp>, now: Timestamp) -> bool {
    start.is_none_or(|start| start <= now) && end.is_none_or(|end| now < end)
}

fn in_dollars(currency: Option<&str>, what: &str) -> Result<(), String> {
    match currency {
        None | Some("USD") => Ok(()),
        Some(other) => Err(format!("{what}: prices are in {other}, not in USD")),
    }
}

/// A price that is written as a text.
fn amount(text: &str) -> Option<f64> {
    text.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0)
}
