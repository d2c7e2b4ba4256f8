//! Which machines the cluster takes for dead though their kubelets run: after a stall of the whole
//! host, leases have expired and kube-controller-manager has set the Nodes' conditions to Unknown.
//! kwok renews the leases by itself; the conditions are the kubelet's to post.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::kwok::{self, MACHINE_ANNOTATION};

/// As often as a kubelet compares its Node with what it has to say.
const EVERY: Duration = Duration::from_secs(10);

/// Reports the names of such Nodes until there is no receiver any more.
pub(super) async fn watch_dead_nodes(client: Client, dead: watch::Sender<BTreeSet<String>>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = dead.closed() => return,
            _ = ticks.tick() => {}
        }
        match taken_for_dead(&client).await {
            // Told each time: a report may have come before the node controller's last word.
            Ok(names) => dead.send_if_modified(|told| {
                *told = names;
                !told.is_empty()
            }),
            // The API server may be down for a moment.
            Err(error) => {
                tracing::debug!(%error, "can't list the machines' Nodes");
                false
            }
        };
    }
}

async fn taken_for_dead(client: &Client) -> Result<BTreeSet<String>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let from_cache = ListParams::default().match_any();
    let mut names: BTreeSet<String> = nodes
        .list(&from_cache)
        .await?
        .iter()
        .filter(|it| is_unknown(it))
        .map(ResourceExt::name_any)
        .collect();
    if !names.is_empty() {
        let leases: Api<Lease> = Api::namespaced(client.clone(), kwok::LEASES);
        for lease in leases.list(&from_cache).await?.iter().filter(|it| kwok::is_silent(it)) {
            names.remove(&lease.name_any());
        }
    }
    Ok(names)
}

/// Whether this is a machine's Node of which the node controller has said that nothing is heard.
fn is_unknown(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let unknown = |all: &Vec<_>| {
        all.iter().any(|it: &k8s_openapi::api::core::v1::NodeCondition| {
            it.type_ == "Ready" && it.status == "Unknown"
        })
    };
    node.annotations().contains_key(MACHINE_ANNOTATION) && conditions.is_some_and(unknown)
}
