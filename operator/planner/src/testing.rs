//! For tests and tools (feature `testing`): building snapshots, and carrying plans out on them.

pub mod dealing;
mod devices;
pub mod mixes;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::plan::{Launch, Plan, PodRef};
use crate::resources::{MicroUsd, Resources};
use crate::snapshot::{
    Budget, BudgetNodes, Catalog, CatalogId, ClaimState, ConsolidationPolicy, DisruptionPolicy,
    InstanceType, Node, NodeId, NodePhase, NodePool, Offering, Operator, Placement, Pod, PodBudget,
    PodShape, Requirement, ShapeId, Snapshot, Template,
};

/// A NodePool without requirements and limits, which consolidates all of its nodes at once.
pub fn node_pool(name: &str) -> NodePool {
    NodePool {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        not_ready: None,
        weight: 0,
        replicas: None,
        catalog: None,
        template: Template::default(),
        limits: BTreeMap::new(),
        disruption: DisruptionPolicy {
            consolidation_policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: Some(jiff::SignedDuration::ZERO),
            budgets: vec![Budget { nodes: BudgetNodes::Percent(100), reasons: Vec::new() }],
        },
    }
}

/// The cluster once a plan has been carried out and all is up: launches have become the cheapest of
/// their types, pods are where they were expected, the nodes that had to go have gone, new nodes
/// are consolidatable.
pub fn apply(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut after = snapshot.clone();
    let mut places: BTreeMap<(Arc<str>, Arc<str>), String> = BTreeMap::new();
    let name = |pod: &PodRef| (Arc::clone(&pod.namespace), Arc::clone(&pod.name));
    let nominations = plan
        .nominations
        .iter()
        .chain(plan.commands.iter().flat_map(|command| &command.nominations));
    for nomination in nominations {
        places.insert(name(&nomination.pod), nomination.node.clone());
    }
    let launches =
        plan.launches.iter().chain(plan.commands.iter().flat_map(|command| &command.replacements));
    let taken: std::collections::BTreeSet<String> =
        snapshot.nodes.iter().map(|node| node.key.clone()).collect();
    let mut number = 0;
    for launch in launches {
        let key = loop {
            number += 1;
            let key = format!("{}-{number:05}", launch.node_pool);
            if !taken.contains(&key) {
                break key;
            }
        };
        for pod in &launch.pods {
            places.insert(name(pod), key.clone());
        }
        let (machine, reservation) = machine(snapshot, launch, &key);
        after.nodes.push(machine);
        if let Some(id) = reservation {
            take_reserved(&mut after, &id);
        }
    }
    let going: Vec<&str> = plan
        .commands
        .iter()
        .filter(|command| !command.is_reboot())
        .flat_map(|command| &command.candidates)
        .map(|candidate| candidate.node.as_str())
        .collect();
    let before: Vec<String> = snapshot.nodes.iter().map(|node| node.key.clone()).collect();
    after.nodes.retain(|node| !going.contains(&node.key.as_str()));
    after.nodes.sort_by(|a, b| a.key.cmp(&b.key));
    let index: BTreeMap<String, u32> =
        (0..).zip(&after.nodes).map(|(i, node)| (node.key.clone(), i)).collect();
    after.pods.retain_mut(|pod| {
        let place = places.get(&(Arc::clone(&pod.namespace), Arc::clone(&pod.name)));
        let place = match (place, pod.placement) {
            (Some(place), _) => place.clone(),
            (None, Placement::Bound(node)) => before[node.0 as usize].clone(),
            (None, _) => return true,
        };
        match index.get(&place) {
            Some(&node) => pod.placement = Placement::Bound(NodeId(node)),
            // Daemons and pods that were glad to go have gone with their node.
            None if pod.daemon || pod.mirror => return false,
            None => pod.placement = Placement::Unschedulable,
        }
        true
    });
    devices::allocate(snapshot, plan, &mut after);
    after
}

/// One machine less in a reservation.
fn take_reserved(snapshot: &mut Snapshot, id: &str) {
    for catalog in &mut snapshot.catalogs {
        for kind in &mut Arc::make_mut(catalog).instance_types {
            for offer in kind.offerings.iter_mut().filter(|offer| offer.reservation() == Some(id)) {
                offer.reservation_capacity = offer.reservation_capacity.map(|left| left - 1);
            }
        }
    }
}

/// The machine that a launch becomes, and the reservation that it takes it from.
fn machine(snapshot: &Snapshot, launch: &Launch, key: &str) -> (Node, Option<String>) {
    let overlaid = crate::overlays::apply(snapshot);
    let snapshot = &*overlaid.snapshot;
    let pool = snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool);
    let catalog = pool.and_then(|pool| pool.catalog).map(|id| &snapshot.catalogs[id.0 as usize]);
    let kinds = catalog.map(|catalog| &catalog.instance_types[..]).unwrap_or_default();
    let kind =
        launch.instance_types.first().and_then(|name| kinds.iter().find(|kind| kind.name == *name));
    let kind = kind.expect("a launch carries types of its pool's catalog");
    let admits = |key: &str, value: &str| {
        let mut about = launch.requirements.iter().filter(|need| need.key == key);
        about.all(|need| dealing::holds(need, Some(value)))
    };
    let offer = kind
        .offerings
        .iter()
        .filter(|offer| {
            offer.is_launchable()
                && admits("topology.kubernetes.io/zone", &offer.zone)
                && admits("karpenter.sh/capacity-type", offer.capacity_type.as_str())
                && offer
                    .requirements
                    .iter()
                    .filter(|need| need.operator == Operator::In && need.values.len() == 1)
                    .all(|need| admits(&need.key, &need.values[0]))
        })
        .min_by_key(|offer| offer.price)
        .expect("a launch has an offering");
    let mut labels = BTreeMap::new();
    let single = kind.requirements.iter().chain(&offer.requirements).chain(&launch.requirements);
    for need in single.filter(|need| need.operator == Operator::In && need.values.len() == 1) {
        labels.insert(need.key.clone(), need.values[0].clone());
    }
    labels.extend((*launch.labels).clone());
    for (name, value) in [
        ("topology.kubernetes.io/zone", offer.zone.as_str()),
        ("karpenter.sh/capacity-type", offer.capacity_type.as_str()),
        ("node.kubernetes.io/instance-type", kind.name.as_str()),
        ("karpenter.sh/registered", "true"),
        ("karpenter.sh/initialized", "true"),
        ("kubernetes.io/hostname", key),
    ] {
        labels.insert(name.to_owned(), value.to_owned());
    }
    let claim = ClaimState {
        name: key.to_owned(),
        uid: format!("uid-{key}"),
        node_pool: Some(launch.node_pool.clone()),
        provider_id: Some(format!("test:///{key}")),
        drifted: None,
        consolidatable: Some(Timestamp::UNIX_EPOCH),
        expires_at: None,
        expire_after: None,
        has_termination_grace_period: launch.termination_grace_period.is_some(),
        termination_grace_period: None,
    };
    let node = Node {
        key: key.to_owned(),
        name: Some(key.to_owned()),
        claim: Some(claim),
        phase: NodePhase::Initialized,
        labels,
        taints: launch.taints.to_vec(),
        capacity: kind.capacity.clone(),
        allocatable: kind.allocatable(),
        price: Some(offer.price),
        deleting: false,
        nominated_until: None,
        do_not_disrupt: false,
        refusal: None,
        created_at: Timestamp::UNIX_EPOCH,
        ready: true,
        ..Node::default()
    };
    (node, offer.reservation().map(str::to_owned))
}

/// An instance type with what every type has.
pub fn instance_type(
    name: &str,
    cpu: i64,
    memory: i64,
    pods: i64,
    offerings: Vec<Offering>,
) -> InstanceType {
    let one = |key: &str, value: String| Requirement {
        key: key.to_owned(),
        operator: Operator::In,
        values: vec![value],
        min_values: None,
    };
    let mut zones: Vec<_> = offerings.iter().map(|offer| offer.zone.clone()).collect();
    zones.sort_unstable();
    zones.dedup();
    let mut capacity_types: Vec<_> =
        offerings.iter().map(|offer| offer.capacity_type.as_str().to_owned()).collect();
    capacity_types.sort_unstable();
    capacity_types.dedup();
    let mut requirements = vec![
        one("node.kubernetes.io/instance-type", name.to_owned()),
        one("kubernetes.io/arch", "amd64".to_owned()),
        one("kubernetes.io/os", "linux".to_owned()),
        Requirement { values: zones, ..one("topology.kubernetes.io/zone", String::new()) },
        Requirement { values: capacity_types, ..one("karpenter.sh/capacity-type", String::new()) },
        one("example.com/cpu", (cpu / 1000).to_string()),
    ];
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    let capacity =
        Resources { cpu, memory, pods, ephemeral_storage: 20 << 30, ..Resources::default() };
    let overhead = Resources { cpu: 100, memory: 10 << 20, ..Resources::default() };
    InstanceType {
        name: name.to_owned(),
        requirements,
        capacity,
        overhead,
        offerings,
        ..InstanceType::default()
    }
}

/// Collects pods into a snapshot, shapes and order included.
#[derive(Debug)]
pub struct Builder {
    snapshot: Snapshot,
    pods: Vec<(Pod, PodShape, Option<String>)>,
}

impl Builder {
    /// An empty cluster with one catalog.
    pub fn new(mut catalog: Catalog) -> Self {
        catalog.instance_types.sort_by(|a, b| a.name.cmp(&b.name));
        let snapshot = Snapshot { catalogs: vec![Arc::new(catalog)], ..Snapshot::default() };
        Self { snapshot, pods: Vec::new() }
    }

    /// Adds a NodePool.
    #[must_use]
    pub fn pool(mut self, mut pool: NodePool) -> Self {
        pool.catalog = Some(CatalogId(0));
        self.snapshot.node_pools.push(pool);
        self
    }

    /// Sets the NodeOverlays, the heaviest first.
    #[must_use]
    pub fn overlays(mut self, overlays: Vec<crate::snapshot::NodeOverlay>) -> Self {
        self.snapshot.overlays = overlays;
        self
    }

    /// Sets the devices and claims.
    #[must_use]
    pub fn devices(mut self, devices: crate::snapshot::Devices) -> Self {
        self.snapshot.devices = Some(Arc::new(devices));
        self
    }

    /// Adds a PodDisruptionBudget that allows so many evictions; pods name it by its index
    /// ([`Pod::pod_budget`]).
    #[must_use]
    pub fn pod_budget(mut self, name: &str, allowed: u32) -> Self {
        let namespace = "default".to_owned();
        self.snapshot.pod_budgets.push(PodBudget { namespace, name: name.to_owned(), allowed });
        self
    }

    /// Adds a machine.
    #[must_use]
    pub fn node(mut self, node: Node) -> Self {
        self.snapshot.nodes.push(node);
        self
    }

    /// Adds a DaemonSet.
    #[must_use]
    pub fn daemon_set(mut self, name: &str, shape: PodShape) -> Self {
        self.snapshot.daemon_sets.push(crate::snapshot::DaemonSet {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            shape: Arc::new(shape),
        });
        self
    }

    /// Adds a pod that waits for a place.
    #[must_use]
    pub fn pending(self, name: &str, shape: PodShape) -> Self {
        self.pod(name, shape, None)
    }

    /// Adds a pod, on a machine if one is named.
    #[must_use]
    pub fn pod(self, name: &str, shape: PodShape, on: Option<&str>) -> Self {
        self.pod_with(name, shape, on, |_| {})
    }

    /// The same, changed.
    #[must_use]
    pub fn pod_with(
        mut self,
        name: &str,
        shape: PodShape,
        on: Option<&str>,
        change: impl FnOnce(&mut Pod),
    ) -> Self {
        let mut pod = Pod {
            namespace: shape.namespace.as_str().into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
            placement: Placement::Unschedulable,
            ..Pod::default()
        };
        change(&mut pod);
        self.pods.push((pod, shape, on.map(str::to_owned)));
        self
    }

    /// The snapshot, in the order that its fields promise.
    ///
    /// # Panics
    /// When a pod is on a machine that was not added.
    pub fn build(mut self) -> Snapshot {
        self.snapshot.node_pools.sort_by(|a, b| a.name.cmp(&b.name));
        self.snapshot.nodes.sort_by(|a, b| a.key.cmp(&b.key));
        self.snapshot.daemon_sets.sort_by(|a, b| a.name.cmp(&b.name));
        self.pods.sort_by(|a, b| (&a.0.namespace, &a.0.name).cmp(&(&b.0.namespace, &b.0.name)));
        let mut known: BTreeMap<String, u32> = BTreeMap::new();
        for (mut pod, shape, on) in self.pods {
            let key = serde_json::to_string(&shape).expect("shapes are plain data");
            let next = u32::try_from(known.len()).expect("few shapes");
            let id = *known.entry(key).or_insert(next);
            if id == next {
                self.snapshot.shapes.push(Arc::new(shape));
            }
            pod.shape = ShapeId(id);
            if let Some(on) = on {
                let node = self.snapshot.nodes.iter().position(|node| node.key == on);
                let node = node.expect("pods are put on machines that were added");
                pod.placement = Placement::Bound(NodeId(u32::try_from(node).expect("few nodes")));
            }
            self.snapshot.pods.push(pod);
        }
        self.snapshot
    }
}

/// A price in dollars per hour.
pub fn usd(price: f64) -> MicroUsd {
    MicroUsd::from_usd(price)
}
