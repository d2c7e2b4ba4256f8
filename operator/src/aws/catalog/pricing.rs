//! What instance types cost: on-demand prices from the price list, spot prices from EC2's history.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_pricing::types::{Filter, FilterType};
use jiff::Timestamp;
use parking_lot::RwLock;
use serde::Deserialize;
use tenon_planner::resources::MicroUsd;
use tenon_state::ec2::prices as list_prices;
use tokio::sync::watch;

use crate::aws::clients::Clients;
use crate::aws::ec2;
use crate::aws::error::{Error, Result};

/// How long to wait for the first prices.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prices per hour; every change raises the version.
#[derive(Debug, Default)]
pub(crate) struct Prices {
    table: RwLock<PriceTable>,
    known: watch::Sender<bool>,
}

/// Prices per hour at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PriceTable {
    /// Raised with every change.
    pub version: u64,
    on_demand: BTreeMap<String, MicroUsd>,
    /// `None` until spot prices were read for the first time.
    spot: Option<BTreeMap<String, BTreeMap<String, MicroUsd>>>,
}

impl PriceTable {
    /// On-demand price.
    pub(crate) fn on_demand(&self, instance_type: &str) -> Option<MicroUsd> {
        self.on_demand.get(instance_type).copied()
    }

    /// Spot price in a zone. Until spot prices are known it is the on-demand price; from then on a
    /// zone without a price has no offering.
    pub(crate) fn spot(&self, instance_type: &str, zone: &str) -> Option<MicroUsd> {
        match &self.spot {
            Some(spot) => spot.get(instance_type)?.get(zone).copied(),
            None => self.on_demand(instance_type),
        }
    }

    /// Whether anything is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.on_demand.is_empty()
    }
}

impl Prices {
    /// Reads the prices. The closure must be short: writers wait for it.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&PriceTable) -> T) -> T {
        read(&self.table.read())
    }

    /// Waits until there are prices, for a minute at most. Soon after the start there are some in
    /// any case: if no price list answers, those that come with this version.
    pub(crate) async fn known(&self) {
        let mut known = self.known.subscribe();
        // Who waited in vain finds out by itself.
        let _patience = tokio::time::timeout(PATIENCE, known.wait_for(|known| *known)).await;
    }

    /// The version of the prices.
    pub(crate) fn version(&self) -> u64 {
        self.table.read().version
    }

    /// Takes the list prices that come with this version for types whose price is not known: in
    /// networks and partitions without a price list to ask, and while that does not answer. They
    /// are those of one region; the order of types by price is much the same everywhere.
    pub(crate) fn fall_back(&self) {
        let mut table = self.table.write();
        let before = table.on_demand.len();
        for (instance_type, price) in list_prices::on_demand() {
            table.on_demand.entry(instance_type.to_owned()).or_insert(price);
        }
        if table.on_demand.len() != before {
            table.version += 1;
        }
        self.known.send_replace(!table.is_empty());
    }

    /// Merges on-demand prices over those that are known.
    pub(crate) fn set_on_demand(&self, prices: BTreeMap<String, MicroUsd>) {
        let mut table = self.table.write();
        let before = table.on_demand.clone();
        table.on_demand.extend(prices);
        if table.on_demand != before {
            table.version += 1;
        }
        self.known.send_replace(!table.is_empty());
    }

    /// Merges spot prices over those that are known.
    pub(crate) fn set_spot(&self, prices: BTreeMap<String, BTreeMap<String, MicroUsd>>) {
        let mut table = self.table.write();
        let before = table.spot.clone();
        let spot = table.spot.get_or_insert_default();
        for (instance_type, zones) in prices {
            spot.entry(instance_type).or_default().extend(zones);
        }
        if table.spot != before {
            table.version += 1;
        }
    }
}

/// Reads the spot prices. No price at all is an error: then the old ones stay.
pub(crate) async fn refresh_spot(clients: &Clients, prices: &Prices, now: Timestamp) -> Result<()> {
    let found = ec2::spot_prices(&clients.ec2, now).await?;
    if found.is_empty() {
        return Err(Error::unexpected("DescribeSpotPriceHistory", "no spot price was found"));
    }
    prices.set_spot(
        found
            .into_iter()
            .map(|(name, zones)| {
                let zones =
                    zones.into_iter().map(|(zone, usd)| (zone, MicroUsd::from_usd(usd))).collect();
                (name, zones)
            })
            .collect(),
    );
    Ok(())
}

/// Reads the on-demand prices of virtual and of bare-metal machines. A list without any price is an
/// error: then the old ones stay.
pub(crate) async fn refresh_on_demand(clients: &Clients, prices: &Prices) -> Result<()> {
    let (shared, metal) = tokio::join!(
        products(clients, "Shared", "Compute Instance"),
        products(clients, "Dedicated", "Compute Instance (bare metal)"),
    );
    let (shared, metal) = (shared?, metal?);
    if shared.is_empty() {
        return Err(Error::unexpected(
            "GetProducts",
            format!("no on-demand price was found for {}", clients.region),
        ));
    }
    prices.set_on_demand(shared.into_iter().chain(metal).collect());
    Ok(())
}

async fn products(
    clients: &Clients,
    tenancy: &str,
    family: &str,
) -> Result<BTreeMap<String, MicroUsd>> {
    const OPERATION: &str = "GetProducts";
    let currency = if clients.region.starts_with("cn-") { "CNY" } else { "USD" };
    let mut pages = clients
        .pricing
        .get_products()
        .service_code("AmazonEC2")
        .set_filters(Some(product_filters(&clients.region, tenancy, family)))
        .max_results(100)
        .into_paginator()
        .send();
    let mut found = BTreeMap::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| Error::from_sdk(OPERATION, &error))?;
        found.extend(page.price_list().iter().filter_map(|product| price(product, currency)));
    }
    Ok(found)
}

fn product_filters(region: &str, tenancy: &str, family: &str) -> Vec<Filter> {
    [
        ("regionCode", region),
        ("serviceCode", "AmazonEC2"),
        ("preInstalledSw", "NA"),
        ("operatingSystem", "Linux"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
        ("tenancy", tenancy),
        ("productFamily", family),
    ]
    .into_iter()
    .filter_map(|(field, value)| {
        Filter::builder().r#type(FilterType::TermMatch).field(field).value(value).build().ok()
    })
    .collect()
}

#[derive(Deserialize)]
struct Listed {
    product: Product,
    terms: Terms,
}

#[derive(Deserialize)]
struct Product {
    attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attributes {
    instance_type: String,
}

#[derive(Deserialize)]
struct Terms {
    #[serde(rename = "OnDemand", default)]
    on_demand: BTreeMap<String, Term>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    #[serde(default)]
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    #[serde(default)]
    price_per_unit: BTreeMap<String, String>,
}

/// The instance type and the first price that is not zero, of one entry of the price list.
fn price(product: &str, currency: &str) -> Option<(String, MicroUsd)> {
    let listed: Listed = serde_json::from_str(product).ok()?;
    let price = listed
        .terms
        .on_demand
        .values()
        .flat_map(|term| term.price_dimensions.values())
        .filter_map(|dimension| dimension.price_per_unit.get(currency)?.parse::<f64>().ok())
        .map(MicroUsd::from_usd)
        .find(|price| price.0 > 0)?;
    Some((listed.product.attributes.instance_type, price))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_price_that_is_not_zero() {
        let product = r#"{"product":{"productFamily":"Compute Instance","attributes":{"instanceType":"m5.large","x":"y"}},
            "terms":{"OnDemand":{"A.B":{"priceDimensions":{"A.B.1":{"unit":"Hrs","pricePerUnit":{"USD":"0.0000000000"}},
            "A.B.2":{"unit":"Hrs","pricePerUnit":{"USD":"0.1070000000"}}}}}}}"#;
        assert_eq!(price(product, "USD"), Some(("m5.large".to_owned(), MicroUsd(107_000))));
        assert_eq!(price(product, "CNY"), None);
        assert_eq!(price("not json", "USD"), None);
    }

    #[test]
    fn bundled_prices_fill_gaps_and_give_way_to_the_price_list() {
        let prices = Prices::default();
        prices.set_on_demand([("m5.large".to_owned(), MicroUsd(107_000))].into());
        let version = prices.version();
        prices.fall_back();
        assert!(prices.version() > version);
        let on_demand = |name| prices.with(|table| table.on_demand(name));
        assert_eq!(on_demand("m5.large"), Some(MicroUsd(107_000)), "it was known");
        assert_eq!(on_demand("c5.large"), Some(MicroUsd(90_000)));
        prices.set_on_demand([("c5.large".to_owned(), MicroUsd(97_000))].into());
        assert_eq!(on_demand("c5.large"), Some(MicroUsd(97_000)));
        let version = prices.version();
        prices.fall_back();
        assert_eq!(prices.version(), version, "nothing changed");
    }

    #[test]
    fn spot_costs_as_much_as_on_demand_until_spot_prices_are_known() {
        let prices = Prices::default();
        prices.set_on_demand([("m5.large".to_owned(), MicroUsd(100))].into());
        let spot = |zone| prices.with(|table| table.spot("m5.large", zone));
        assert_eq!(spot("a"), Some(MicroUsd(100)));
        let version = prices.version();
        let zone_a = BTreeMap::from([("a".to_owned(), MicroUsd(40))]);
        prices.set_spot([("m5.large".to_owned(), zone_a.clone())].into());
        assert_eq!((spot("a"), spot("b")), (Some(MicroUsd(40)), None));
        assert!(prices.version() > version);
        let version = prices.version();
        prices.set_spot([("m5.large".to_owned(), zone_a)].into());
        assert_eq!(prices.version(), version, "nothing changed");
    }
}
