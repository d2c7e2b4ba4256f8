//! What every replica does all the time, and only reads: watches, prices, instance types, the cluster's version.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use tenon_crds::labels;

use super::catalog::{pricing, refresh_types};
use super::error::Result;
use super::launch::template::ami_for;
use super::store::Store;
use super::{AwsProvider, controller};
use crate::cloud_provider::Context;
use crate::tasks::Tasks;
use crate::watch::wire::Node;

const TYPES: Duration = Duration::from_secs(12 * 60 * 60);
const PRICES: Duration = Duration::from_secs(12 * 60 * 60);
const VERSION: Duration = Duration::from_secs(5 * 60);
/// After a failure.
const RETRY: Duration = Duration::from_secs(30);

/// Starts it all.
pub fn start(provider: &Arc<AwsProvider>, context: &Context, tasks: &mut Tasks) {
    watch(tasks, context, &provider.classes, "watch.ec2nodeclass", Watchers::Provider);
    watch(tasks, context, &provider.claims, "watch.nodeclaim", Watchers::StateToo);

    let nodes: Arc<Store<Node>> = Arc::new(Store::new("Node"));
    watch(tasks, context, &nodes, "watch.node", Watchers::StateToo);
    let this = Arc::clone(provider);
    tasks.spawn("providers.instancetype.capacity", async move {
        let all =
            || nodes.all().iter().filter_map(|node| node.metadata.name.clone()).collect::<Vec<_>>();
        controller::run(nodes.changes(), all, 1, async |name| {
            if let Some(node) = nodes.get(&name) {
                observe_memory(&this, &node);
            }
            controller::Next::OnChange
        })
        .await;
    });

    let (this, ctx) = (Arc::clone(provider), context.clone());
    tasks.spawn("providers.pricing", async move {
        loop {
            let wait = refresh_prices(&this, &ctx).await;
            tokio::time::sleep(wait).await;
        }
    });

    // Types were read before the start; they are read again after the time that they are good for.
    let (this, ctx) = (Arc::clone(provider), context.clone());
    tasks.spawn("providers.instancetype", async move {
        let mut wait = if this.catalogs.has_types() { TYPES } else { Duration::ZERO };
        loop {
            tokio::time::sleep(wait).await;
            let refreshed = refresh_types(&this.clients.ec2, &this.catalogs).await;
            wait = after(&ctx, "providers.instancetype", refreshed, TYPES, RETRY);
        }
    });

    let (this, ctx) = (Arc::clone(provider), context.clone());
    tasks.spawn("providers.version", async move {
        let mut wait = if this.cluster.version().is_some() { VERSION } else { Duration::ZERO };
        loop {
            tokio::time::sleep(wait).await;
            let refreshed = this.cluster.refresh_version(&ctx.client).await;
            wait = after(&ctx, "providers.version", refreshed, VERSION, RETRY);
        }
    });
}

/// Who watches a kind. The only one to watch it wakes those who plan, and tells of objects that do not parse.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watchers {
    /// The provider alone.
    Provider,
    /// The state of the cluster as well.
    StateToo,
}

fn watch<K>(
    tasks: &mut Tasks,
    context: &Context,
    store: &Arc<Store<K>>,
    name: &'static str,
    watchers: Watchers,
) where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let (store, context) = (Arc::clone(store), context.clone());
    tasks.spawn(name, async move {
        let api = Api::all(context.client.clone());
        let only_here = watchers == Watchers::Provider;
        let skip = |invalid| {
            if only_here {
                crate::watch::skip::<K>(&context, invalid);
            }
        };
        let wake = || {
            if only_here {
                context.wake.notify_one();
            }
        };
        store.keep(api, skip, wake).await;
    });
}

/// How long to wait after a refresh; says what failed.
pub fn after(
    context: &Context,
    name: &'static str,
    refreshed: Result<()>,
    good: Duration,
    bad: Duration,
) -> Duration {
    match refreshed {
        Ok(()) => good,
        Err(error) => {
            context.metrics.reconcile_errors.inc([name, error.operation]);
            tracing::error!(controller = name, %error, "failed to refresh, trying again");
            bad
        }
    }
}

async fn refresh_prices(provider: &AwsProvider, context: &Context) -> Duration {
    let prices = &provider.catalogs.prices;
    let clients = &provider.clients;
    // Isolated networks and GovCloud have no price list to ask.
    let list = !provider.options.isolated_vpc && !clients.region.starts_with("us-gov");
    let (on_demand, spot) = tokio::join!(
        async { if list { pricing::refresh_on_demand(clients, prices).await } else { Ok(()) } },
        pricing::refresh_spot(clients, prices, context.clock.now()),
    );
    if prices.with(pricing::PriceTable::is_empty) {
        tracing::warn!(
            region = clients.region,
            "no price list answers: using the prices that come with this version, which may be another region's"
        );
        prices.fall_back();
    }
    let name = "providers.pricing";
    let wait = after(context, name, on_demand, PRICES, RETRY)
        .min(after(context, name, spot, PRICES, RETRY));
    if wait == PRICES {
        tracing::debug!("refreshed prices");
    }
    context.wake.notify_one();
    wait
}

/// The memory of a node that has joined tells the catalog better than any formula, as long as its image is the one that would be used today.
fn observe_memory(provider: &AwsProvider, node: &Node) {
    let Some(all) = &node.metadata.labels else { return };
    let is = |key: &str| all.get(key).map(String::as_str);
    if is(labels::REGISTERED) != Some("true") || is(labels::NODEPOOL).is_none() {
        return;
    }
    let (Some(type_name), Some(class_name)) =
        (is(labels::INSTANCE_TYPE), is(labels::aws::EC2NODECLASS))
    else {
        return;
    };
    let provider_id = node.spec.provider_id.as_deref();
    let claim = provider
        .claims
        .all()
        .into_iter()
        .find(|claim| provider_id.is_some() && claim.provider_id() == provider_id);
    let Some(image) = claim.as_ref().and_then(|claim| claim.status.as_ref()?.image_id.clone())
    else {
        return;
    };
    let Some(class) = provider.classes.get(class_name) else { return };
    let Ok(catalog) = provider.catalog_of(&class) else { return };
    let amis = class.status.as_ref().map(|status| status.amis.as_slice()).unwrap_or_default();
    let current = catalog
        .instance_types
        .iter()
        .find(|known| known.name == type_name)
        .and_then(|known| ami_for(amis, known));
    if current.is_none_or(|ami| ami.id != image) {
        return;
    }
    if let Some(memory) = node.status.capacity.get("memory").map(|quantity| quantity.units())
        && memory > 0
    {
        provider.catalogs.observe_memory(type_name, amis, memory);
    }
}
