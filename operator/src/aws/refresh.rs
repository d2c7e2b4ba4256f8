//! What every replica does all the time, and only reads: watches, prices, instance types, the
//! cluster's version.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tenon_crds::NodeClaim;
use tenon_crds::labels;

use super::AwsProvider;
use super::catalog::{pricing, refresh_types};
use super::clients::pricing_region;
use super::error::Result;
use super::launcher::template::ami_for;
use super::zonal_shift::ShiftPoll;
use crate::context::Context;
use crate::controller::{Affected, Controller, Periodic, Reconciler, repeat};
use crate::logging::log_failure;
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::Cluster;
use crate::tasks::Tasks;
use crate::watch::wire::Node;
use crate::work_queue::Action;

const TYPES: Duration = Duration::from_secs(12 * 60 * 60);
const PRICES: Duration = Duration::from_secs(12 * 60 * 60);
const VERSION: Duration = Duration::from_secs(5 * 60);
/// After a failure.
const RETRY: Duration = Duration::from_secs(30);

/// Starts it all.
pub(super) fn start(
    provider: &Arc<AwsProvider>,
    context: &Context,
    state: &State,
    tasks: &mut Tasks,
) {
    let (this, ctx) = (Arc::clone(provider), context.clone());
    tasks.spawn("watch.ec2nodeclass", async move {
        let on_change = || classes_changed(&this, &ctx);
        Arc::clone(&this.classes).keep(&ctx, on_change).await;
    });
    super::metrics::follow(&provider.classes, context, tasks);

    let controller = Controller::new(ObservedMemory(Arc::clone(provider)));
    let stop = tasks.stop_token().clone();
    let controller = controller.run(state.clone(), context.metrics.clone(), stop);
    tasks.spawn(ObservedMemory::NAME, controller);

    let own = || (Arc::clone(provider), context.clone());
    periodic(Prices(own()), tasks);
    periodic(InstanceTypes(own()), tasks);
    periodic(Version(own()), tasks);
    if let Some(cluster_arn) = provider.watches_shifts_of.clone() {
        let (provider, context) = own();
        periodic(ShiftPoll { provider, context, cluster_arn }, tasks);
    }
}

fn periodic<P: Periodic>(periodic: P, tasks: &mut Tasks) {
    tasks.spawn(P::NAME, repeat(periodic));
}

/// What a refresh is handed.
type Own = (Arc<AwsProvider>, Context);

/// Reads prices again.
struct Prices(Own);

impl Periodic for Prices {
    const NAME: &'static str = "providers.pricing";

    async fn pass(&mut self) -> Duration {
        let (provider, context) = &self.0;
        refresh_prices(provider, context).await
    }
}

/// Reads instance types again. They were read before the start; they are read again after the time
/// that they are good for.
struct InstanceTypes(Own);

impl Periodic for InstanceTypes {
    const NAME: &'static str = "providers.instancetype";

    async fn begin(&mut self) -> Duration {
        if self.0.0.catalogs.has_types() { TYPES } else { Duration::ZERO }
    }

    async fn pass(&mut self) -> Duration {
        let (provider, context) = &self.0;
        let refreshed = refresh_types(&provider.clients.ec2, &provider.catalogs).await;
        after(context, Self::NAME, refreshed, TYPES, RETRY)
    }
}

/// Asks for the cluster's version again.
struct Version(Own);

impl Periodic for Version {
    const NAME: &'static str = "providers.version";

    async fn begin(&mut self) -> Duration {
        if self.0.0.cluster.version().is_some() { VERSION } else { Duration::ZERO }
    }

    async fn pass(&mut self) -> Duration {
        let (provider, context) = &self.0;
        let refreshed = provider.cluster.refresh_version(&context.client).await;
        after(context, Self::NAME, refreshed, VERSION, RETRY)
    }
}

/// Corrects the catalog by the memory of nodes that have joined.
struct ObservedMemory(Arc<AwsProvider>);

impl Reconciler for ObservedMemory {
    const NAME: &'static str = "providers.instancetype.capacity";
    type Key = String;
    type Error = Infallible;

    fn workers(&self) -> usize {
        1
    }

    fn affected(&self, touched: &Touched, _: &State) -> Affected<String> {
        match touched {
            Touched::Node(name) => Affected::One(name.clone()),
            _ => Affected::None,
        }
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        state.nodes().map(|node| node.name().to_owned()).collect()
    }

    async fn reconcile(&self, name: &String) -> std::result::Result<Action, Infallible> {
        let seen = self.0.state.get().and_then(|state| {
            let state = state.read();
            let node = state.node(name).cloned()?;
            Some((Arc::clone(state.claim_of(&node)?), node))
        });
        if let Some((claim, node)) = seen {
            observe_memory(&self.0, &claim, &node);
        }
        Ok(Action::Wait)
    }
}

/// NodeClasses came, changed or went: who plans looks again, and what was computed for those that
/// are gone is dropped. A standby computes as well, so that it has to be here and not in the
/// leader's controller.
pub(super) fn classes_changed(provider: &AwsProvider, context: &Context) {
    provider.forget_gone();
    context.wake.notify_one();
}

/// How long to wait after a refresh; says what failed.
pub(super) fn after(
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
            log_failure!(passing: error.is_retryable(), controller = name, %error, "failed to \
                 refresh, retrying");
            bad
        }
    }
}

async fn refresh_prices(provider: &AwsProvider, context: &Context) -> Duration {
    let prices = &provider.catalogs.prices;
    let clients = &provider.clients;
    let list = !provider.options.isolated_vpc && pricing_region(&clients.region).is_some();
    let (on_demand, spot) = tokio::join!(
        async { if list { pricing::refresh_on_demand(clients, prices).await } else { Ok(()) } },
        pricing::refresh_spot(clients, prices, context.clock.now()),
    );
    if prices.with(pricing::PriceTable::is_empty) {
        tracing::warn!(
            region = clients.region,
            "no price list is available: using this version's built-in prices, which may be those \
             of another region"
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

/// The memory of a node that has joined tells the catalog better than any formula, as long as its
/// image is the one that would be used today.
fn observe_memory(provider: &AwsProvider, claim: &NodeClaim, node: &Node) {
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
    let Some(image) = claim.status.as_ref().and_then(|status| status.image_id.as_deref()) else {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::aws::catalog::tests::{mk_catalogs, mk_class};
    use crate::aws::error::{Error, Kind};
    use crate::aws::tests::mk_provider;
    use crate::testing::bench::Bench;

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_tried_again_soon_and_counted() {
        let context = Bench::new().await.context;
        let failed = || {
            Err(Error {
                operation: "DescribeInstanceTypes",
                kind: Kind::Other,
                code: None,
                message: "refused".to_owned(),
                request_id: None,
            })
        };
        let wait = |refreshed| after(&context, "providers.instancetype", refreshed, TYPES, RETRY);
        assert_eq!(wait(Ok(())), TYPES);
        let count = || {
            let labels = ["providers.instancetype", "DescribeInstanceTypes"];
            context.metrics.reconcile_errors.get(labels)
        };
        assert_eq!(count(), 0);
        assert_eq!((wait(failed()), count()), (RETRY, 1));
    }

    /// What the catalog says of the memory of an m5.large after a node with this much was seen.
    fn seen(memory: &str, image: &str, labels: &Value) -> i64 {
        let mut provider = mk_provider(&[]);
        provider.catalogs = mk_catalogs(&["m5.large"]);
        let class = mk_class();
        provider.classes.apply(class.clone());
        let claim = json!({
            "metadata": {"name": "a"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
            "status": {"imageID": image},
        });
        let mut node = json!({
            "metadata": {"name": "n", "labels": {
                "karpenter.sh/registered": "true", "karpenter.sh/nodepool": "default",
                "node.kubernetes.io/instance-type": "m5.large", "karpenter.k8s.aws/ec2nodeclass": "default",
            }},
            "status": {"capacity": {"memory": memory}},
        });
        json_patch::merge(&mut node["metadata"]["labels"], labels);
        let (claim, node) =
            (serde_json::from_value(claim).unwrap(), serde_json::from_value(node).unwrap());
        observe_memory(&provider, &claim, &node);
        let catalog = provider.catalog_of(&class).unwrap();
        catalog.instance_types[0].capacity.get("memory")
    }

    /// The image that [`mk_class`] has for an m5.large.
    fn current() -> String {
        let mut provider = mk_provider(&[]);
        provider.catalogs = mk_catalogs(&["m5.large"]);
        let class = mk_class();
        let catalog = provider.catalog_of(&class).unwrap();
        let amis = class.status.unwrap().amis;
        ami_for(&amis, &catalog.instance_types[0]).unwrap().id.clone()
    }

    #[test]
    fn the_memory_of_a_node_that_has_joined_corrects_the_catalog() {
        let image = current();
        let (guess, nothing) = (seen("0", &image, &json!({})), json!({}));
        let real = guess - 64 * 1024 * 1024;
        assert_eq!(seen(&real.to_string(), &image, &nothing), real);
    }

    #[test]
    fn a_node_that_says_nothing_about_machines_to_come_corrects_nothing() {
        let image = current();
        let (guess, less) = (seen("0", &image, &json!({})), "1Gi");
        // It has another image than new machines get.
        assert_eq!(seen(less, "ami-old", &json!({})), guess);
        for labels in [
            json!({"karpenter.sh/registered": null}),
            json!({"karpenter.sh/nodepool": null}),
            json!({"karpenter.k8s.aws/ec2nodeclass": "gone"}),
            json!({"node.kubernetes.io/instance-type": "m5.xlarge"}),
        ] {
            assert_eq!(seen(less, &image, &labels), guess, "{labels}");
        }
        // Otherwise it counts.
        assert_eq!(seen(less, &image, &json!({})), 1 << 30);
    }
}
