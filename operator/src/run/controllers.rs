//! The controllers of the leader, one a line: its name, what it works with, what has it look at
//! everything again, and the gate that it depends on.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::capacitybuffer::Outcomes;
use crate::cloud_provider::CloudProvider;
use crate::controller::{Controller, Periodic, Reconciler, repeat_until};
use crate::deletioncost::DeletionCosts;
use crate::disruption::queue::Commands;
use crate::node::evictions::Evictions;
use crate::node::protection::ProtectionEvents;
use crate::node::termination::Termination;
use crate::nodeclaim::consistency::Consistency;
use crate::nodeclaim::disruption::Disruption;
use crate::nodeclaim::expiration::Expiration;
use crate::nodeclaim::garbage_collection::GarbageCollection;
use crate::nodeclaim::lifecycle::Lifecycle;
use crate::nodeclaim::reboot::Reboots;
use crate::nodeoverlay::NodeOverlays;
use crate::nodepool::NodePools;
use crate::nodepool::counter::Counter;
use crate::nodepool::registration::Health;
use crate::operator::Operator;
use crate::tasks::Tasks;
use crate::{disruption, node, nomination, provisioning};

/// Starts them all, and the provider's.
pub(super) fn start<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    wake: &watch::Receiver<u64>,
    tasks: &mut Tasks,
) {
    let rows = table(operator, wake, tasks.stop_token());
    for Row { name, task, .. } in rows.into_iter().filter(|row| row.is_on) {
        tasks.spawn_graceful(name, task);
    }
    operator.cloud.start_controllers(&operator.context, &operator.write, tasks);
}

/// The table. `wake` tells when a NodeClass, the catalog or an interruption has changed what can be
/// planned.
fn table<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    wake: &watch::Receiver<u64>,
    stop: &CancellationToken,
) -> Vec<Row> {
    let gates = &operator.options.feature_gates;
    let (o, stop, wake) = (|| Arc::clone(operator), || stop.clone(), || wake.clone());
    let health = Arc::new(Health::default());
    let evictions = Evictions::new();
    let commands = Commands::new();
    let buffers = Outcomes::default();

    let node_pools = Controller::new(NodePools::new(o(), Arc::clone(&health)));
    let node_pools = node_pools.on(wake()).on(operator.pauses.changes());
    let overlays = Controller::new(NodeOverlays::new(o())).on(wake());
    let lifecycle = Controller::new(Lifecycle::new(o(), health));
    let conditions = Controller::new(Disruption::new(o())).on(wake());
    let expiration = Controller::new(Expiration(o()));
    let consistency = Controller::new(Consistency::new(o()));
    let termination = Controller::new(Termination::new(o(), evictions.clone()));
    let reboots = Controller::new(Reboots::new(o(), evictions.clone()));
    let protection = Controller::new(ProtectionEvents(o()));
    let deletion_costs = Controller::new(DeletionCosts::new(o(), stop()));
    let provisioner = provisioning::run(o(), buffers.clone(), wake(), stop());
    let disruption = disruption::run(o(), commands.clone(), wake(), stop());

    vec![
        row(operator, stop(), node_pools),
        row(operator, stop(), overlays).only_if(operator.overlays_count()),
        row(operator, stop(), buffers.controller(o())).only_if(gates.is_on("CapacityBuffer")),
        row(operator, stop(), lifecycle),
        row(operator, stop(), conditions),
        row(operator, stop(), expiration),
        row(operator, stop(), consistency),
        row(operator, stop(), termination),
        row(operator, stop(), reboots),
        row(operator, stop(), evictions.controller(o())),
        row(operator, stop(), protection),
        row(operator, stop(), deletion_costs),
        row(operator, stop(), commands.controller(o())),
        periodic(stop(), Counter(o())),
        periodic(stop(), GarbageCollection(o())),
        task("node.health", node::health::run(o(), stop()))
            .only_if(gates.is_on("NodeRepair") && operator.options.legacy_node_repair),
        task("pod.nomination", nomination::run(o(), stop())),
        task("provisioner", provisioner),
        task("static.provisioning", provisioning::replicas::run(o(), stop())),
        task("disruption", disruption),
    ]
}

/// A controller, which has not begun yet.
struct Row {
    name: &'static str,
    is_on: bool,
    task: BoxFuture<'static, ()>,
}

impl Row {
    /// Only with this.
    fn only_if(self, is_on: bool) -> Self {
        Self { is_on, ..self }
    }
}

/// The row of a reconciler.
fn row<P: CloudProvider, R: Reconciler>(
    operator: &Operator<P>,
    stop: CancellationToken,
    controller: Controller<R>,
) -> Row {
    task(R::NAME, operator.run(controller, stop))
}

/// The row of something that is done again and again.
fn periodic<P: Periodic>(stop: CancellationToken, periodic: P) -> Row {
    task(P::NAME, repeat_until(stop, periodic))
}

/// The row of a loop that is neither, and watches the token to stop itself.
fn task(name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> Row {
    Row { name, is_on: true, task: task.boxed() }
}
