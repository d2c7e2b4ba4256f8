//! What the panes list: references into [`State`], so that a pane of thousands costs little more
//! than what is visible of it.

use jiff::SignedDuration;
use tenon_simulate::{
    Blocked, Disrupting, FleetNode, FleetPool, FleetSum, Kind as Explained, Pending, PodName,
    Subject,
};
use tenon_state::decision::{Decision, Kind};

use super::pane::{Pane, Sort};
use super::state::State;
use crate::ledger::words;

/// For how long an interruption is listed among the disruptions.
const INTERRUPTION: SignedDuration = SignedDuration::from_mins(15);

/// One line of a pane, or two of the log.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    /// With its nodes summed up.
    Pool(&'a FleetPool),
    /// The nodes without a NodePool.
    Others(&'a FleetSum),
    /// All nodes.
    Total(&'a FleetSum),
    /// Of any NodePool, or of none.
    Node(&'a FleetNode),
    /// Pending pods with one reason.
    Pending(&'a Pending),
    /// A node that is being removed.
    Removal(&'a Disrupting),
    /// An interruption that AWS has announced.
    Interruption(&'a Decision),
    /// Nodes that have to stay.
    Kept(&'a Blocked),
    /// An entry of the operator's ledger.
    Decision(&'a Decision),
}

/// All items of a pane that match a filter, in the order in which they are listed; and how many
/// there are without it.
pub(super) fn items<'a>(
    pane: Pane,
    state: &'a State,
    filter: &str,
    sort: Sort,
) -> (Vec<Item<'a>>, usize) {
    let all = all(pane, state, sort);
    let n = all.len();
    let wanted = filter.to_lowercase();
    let matching = all.into_iter().filter(|item| wanted.is_empty() || item.matches(&wanted));
    (matching.collect(), n)
}

fn all(pane: Pane, state: &State, sort: Sort) -> Vec<Item<'_>> {
    if pane == Pane::Decisions {
        return state.log.decisions.values().map(Item::Decision).collect();
    }
    let Some(fleet) = &state.fleet else { return Vec::new() };
    match pane {
        Pane::Pools => {
            let mut items: Vec<_> = fleet.node_pools.iter().map(Item::Pool).collect();
            items.extend((fleet.other_nodes.nodes > 0).then_some(Item::Others(&fleet.other_nodes)));
            items.extend((items.len() > 1).then_some(Item::Total(&fleet.total)));
            items
        }
        Pane::Nodes => {
            let mut nodes: Vec<_> = fleet.nodes.iter().collect();
            // By key where they are alike, so that lines keep their places.
            match sort {
                Sort::Name => nodes.sort_by(|a, b| a.key.cmp(&b.key)),
                Sort::Price => nodes.sort_by(|a, b| {
                    let price = |node: &FleetNode| node.price.unwrap_or(0.0);
                    price(b).total_cmp(&price(a)).then_with(|| a.key.cmp(&b.key))
                }),
                Sort::Cpu => nodes.sort_by_key(|node| (node.cpu.percent(), &node.key)),
                Sort::Age => nodes.sort_by_key(|node| (node.created_at, &node.key)),
            }
            nodes.into_iter().map(Item::Node).collect()
        }
        Pane::Pending => fleet.pending_pods.iter().map(Item::Pending).collect(),
        Pane::Disruptions => {
            let recent = |decision: &&Decision| {
                decision.kind == Kind::Interruption
                    && state.now.duration_since(decision.time) <= INTERRUPTION
            };
            let interruptions = state.log.decisions.values().rev().filter(recent);
            let removals = fleet.disrupting.iter().map(Item::Removal);
            let kept = fleet.blocked.iter().map(Item::Kept);
            removals.chain(interruptions.map(Item::Interruption)).chain(kept).collect()
        }
        Pane::Decisions => Vec::new(),
    }
}

impl Item<'_> {
    /// What it is found by again after the cluster was read again; unique within its pane.
    pub(super) fn id(&self) -> String {
        match self {
            Self::Pool(pool) => format!("pool {}", pool.name),
            Self::Others(_) => "others".to_owned(),
            Self::Total(_) => "total".to_owned(),
            Self::Node(node) => node.key.clone(),
            Self::Pending(pending) => pending.reason.clone(),
            Self::Removal(removal) => format!("removal {}", removal.node),
            Self::Kept(kept) => format!("kept {}", kept.message),
            Self::Interruption(decision) | Self::Decision(decision) => decision.seq.to_string(),
        }
    }

    /// Whether one of its texts contains another, which is in lower case.
    fn matches(&self, wanted: &str) -> bool {
        let contains = |text: &str| text.to_lowercase().contains(wanted);
        let any = |texts: &[Option<&str>]| texts.iter().flatten().any(|text| contains(text));
        match self {
            Self::Pool(pool) => contains(&pool.name),
            Self::Others(_) => contains("(none)"),
            Self::Total(_) => contains("total"),
            Self::Node(node) => any(&[
                Some(&node.key),
                node.name.as_deref(),
                node.node_pool.as_deref(),
                node.instance_type.as_deref(),
                node.zone.as_deref(),
                node.capacity_type.as_deref(),
            ]),
            Self::Pending(pending) => {
                contains(&pending.reason) || pending.pods.iter().any(|pod| contains(&pod_name(pod)))
            }
            Self::Removal(removal) => any(&[Some(&removal.node), removal.reason.as_deref()]),
            Self::Kept(kept) => {
                contains(&kept.message) || kept.nodes.iter().any(|node| contains(node))
            }
            Self::Interruption(decision) | Self::Decision(decision) => {
                let Decision { nodes, node_claims, replacements, pods, .. } = decision;
                let lists = [nodes, node_claims, replacements, pods];
                contains(&words::what(decision))
                    || contains(&decision.reason)
                    || contains(&decision.result.message)
                    || decision.node_pools.iter().any(|pool| contains(pool))
                    || lists.iter().flat_map(|list| &list.names).any(|name| contains(name))
            }
        }
    }

    /// What `tenon explain` is asked about it.
    pub(super) fn subject(&self, state: &State, filter: &str) -> Option<Subject> {
        let subject = |kind, namespace: &str, name: &str| {
            Some(Subject { kind, namespace: namespace.to_owned(), name: name.to_owned() })
        };
        let of_node = |key: &str| {
            let node = state.fleet.iter().flat_map(|fleet| &fleet.nodes);
            let node = node.into_iter().find(|node| node.key == key)?;
            match (&node.name, node.has_claim) {
                (_, true) => subject(Explained::NodeClaim, "", &node.key),
                (Some(name), false) => subject(Explained::Node, "", name),
                (None, false) => None,
            }
        };
        match self {
            Self::Pool(pool) => subject(Explained::NodePool, "", &pool.name),
            Self::Node(node) => of_node(&node.key),
            Self::Pending(pending) => {
                let pod = named(pending, filter)?;
                subject(Explained::Pod, &pod.namespace, &pod.name)
            }
            Self::Removal(removal) => of_node(&removal.node),
            Self::Kept(kept) => of_node(kept.nodes.first()?),
            Self::Others(_) | Self::Total(_) | Self::Interruption(_) | Self::Decision(_) => None,
        }
    }

    /// The NodePool that is paused or resumed with it.
    pub(super) fn node_pool(&self) -> Option<&str> {
        match self {
            Self::Pool(pool) => Some(&pool.name),
            Self::Node(node) => node.node_pool.as_deref(),
            _ => None,
        }
    }
}

/// The pod that stands for pending pods: the first that matches the filter, if one does.
pub(super) fn named<'a>(pending: &'a Pending, filter: &str) -> Option<&'a PodName> {
    let wanted = filter.to_lowercase();
    let matching = |pod: &&PodName| pod_name(pod).to_lowercase().contains(&wanted);
    pending.pods.iter().find(matching).or(pending.pods.first())
}

/// `namespace/name`
pub(super) fn pod_name(pod: &PodName) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}
