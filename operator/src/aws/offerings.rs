//! The gauges of instance types and offerings: what the catalogs of all NodeClasses say, and
//! nothing that they say no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenon_crds::labels::aws as keys;
use tenon_planner::snapshot::Catalog;

use crate::aws::AwsProvider;
use crate::aws::matching::single_value;
use crate::aws::metrics::AwsMetrics;
use crate::controller::Periodic;

/// Between updates.
const PERIOD: Duration = Duration::from_secs(60);

/// Sets the gauges.
pub(super) struct OfferingGauges {
    provider: Arc<AwsProvider>,
    published: Published,
}

impl OfferingGauges {
    pub(super) fn new(provider: Arc<AwsProvider>) -> Self {
        Self { provider, published: Published::default() }
    }
}

impl Periodic for OfferingGauges {
    const NAME: &'static str = "cloudprovider.metrics";

    async fn pass(&mut self) -> Duration {
        let catalogs = catalogs(&self.provider);
        self.published.publish(&self.provider.metrics, catalogs.iter().map(Arc::as_ref));
        PERIOD
    }
}

/// The catalogs of all NodeClasses that have one.
fn catalogs(provider: &AwsProvider) -> Vec<Arc<Catalog>> {
    let classes = provider.classes.all();
    classes.iter().filter_map(|class| provider.catalog_of(class).ok()).collect()
}

/// Type, capacity type, zone.
type OfferingKey = (String, &'static str, String);

/// Which series were set last.
#[derive(Debug, Default)]
struct Published {
    types: BTreeSet<String>,
    offerings: BTreeSet<OfferingKey>,
}

impl Published {
    /// Sets the gauges, over all NodeClasses: available is what one of them can use. Series that
    /// were set before and are in no catalog any more go.
    fn publish<'c>(
        &mut self,
        metrics: &AwsMetrics,
        catalogs: impl IntoIterator<Item = &'c Catalog>,
    ) {
        let mut types = BTreeSet::new();
        let mut offered: BTreeMap<OfferingKey, (f64, bool)> = BTreeMap::new();
        for known in catalogs.into_iter().flat_map(|catalog| &catalog.instance_types) {
            // The raw memory, as EC2 describes it, is a label of the type.
            let number = |key: &str| {
                single_value(&known.requirements, key).and_then(|value| value.parse::<f64>().ok())
            };
            if let Some(cores) = number(keys::INSTANCE_CPU) {
                metrics.type_cores.set([&known.name], cores);
            }
            if let Some(mib) = number(keys::INSTANCE_MEMORY) {
                metrics.type_memory.set([&known.name], mib * f64::from(1 << 20));
            }
            types.insert(known.name.clone());
            for offering in &known.offerings {
                let key =
                    (known.name.clone(), offering.capacity_type.as_str(), offering.zone.clone());
                let entry = offered.entry(key).or_insert((0.0, false));
                // Zero where no price is known, as upstream has it.
                *entry = (offering.price.as_usd(), entry.1 || offering.is_launchable());
            }
        }
        for ((name, capacity_type, zone), &(price, available)) in &offered {
            metrics.offering_price.set([name, capacity_type, zone], price);
            metrics.offering_available.set([name, capacity_type, zone], f64::from(available));
        }
        for gone in self.types.difference(&types) {
            metrics.type_cores.remove([gone]);
            metrics.type_memory.remove([gone]);
        }
        for (name, capacity_type, zone) in
            self.offerings.iter().filter(|key| !offered.contains_key(*key))
        {
            metrics.offering_price.remove([name, capacity_type, zone]);
            metrics.offering_available.remove([name, capacity_type, zone]);
        }
        *self = Self { types, offerings: offered.into_keys().collect() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::catalog::tests::{mk_catalogs, mk_class};
    use crate::metrics::Metrics;

    #[test]
    fn series_of_what_left_the_catalog_go() {
        let all = Metrics::new();
        let metrics = AwsMetrics::new(&all);
        let catalogs = mk_catalogs(&["m5.large", "m5.metal"]);
        let class = mk_class();
        let both = catalogs.catalog(&class, None).unwrap();
        let mut published = Published::default();
        published.publish(&metrics, [&*both]);
        let told =
            |text: &str| all.encode().unwrap().lines().filter(|it| it.contains(text)).count();
        let per_type = told("m5.large");
        assert!(per_type > 2, "cores, memory and offerings");
        assert_eq!(told("m5.metal"), per_type);

        let mut left = (*both).clone();
        left.instance_types.retain(|known| known.name == "m5.large");
        left.instance_types[0].offerings.retain(|offering| offering.zone == "eu-central-1a");
        published.publish(&metrics, [&left]);
        assert_eq!(told("m5.metal"), 0);
        assert_eq!(told("eu-central-1b"), 0);
        assert!(told("eu-central-1a") > 0);

        // Another class still has them.
        published.publish(&metrics, [&left, &*both]);
        assert_eq!(told("m5.metal"), per_type);
        published.publish(&metrics, []);
        assert_eq!(told("instance_type"), 0);
    }
}
