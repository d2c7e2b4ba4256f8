//! Clusters in which everything that scheduling sees may occur.

use super::any_rules::{OTHER, RACK, add_rules, any_rules, namespaces};
use super::*;

#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) kinds: Vec<InstanceType>,
    pub(super) pools: Vec<NodePool>,
    pub(super) daemon: Option<PodShape>,
    /// Pods that run before, and whether they have gone since.
    pub(super) before: Vec<(PodShape, bool)>,
    pub(super) pending: Vec<PodShape>,
    /// Virtual pods of a buffer.
    pub(super) spare: usize,
    pub(super) overlays: Vec<NodeOverlay>,
    /// By machine that exists, in turn: the rack that it is in.
    pub(super) racks: Vec<Option<&'static str>>,
}

fn any_kinds() -> impl Strategy<Value = Vec<InstanceType>> {
    prop::collection::vec(0..4_u8, 15 * 6).prop_map(|bits| {
        let mut kinds = kinds();
        let offers = kinds.iter_mut().flat_map(|kind| &mut kind.offerings);
        for (offer, bit) in offers.zip(&bits) {
            offer.available = *bit > 0;
        }
        for (kind, bit) in kinds.iter_mut().zip(&bits) {
            if *bit > 1 {
                kind.volume_limits.insert("disks".to_owned(), u32::from(*bit) + 1);
            }
        }
        kinds
    })
}

/// Reservations of some types, and how many machines they have left.
pub(super) fn any_reservations() -> impl Strategy<Value = Vec<(&'static str, u32)>> {
    let kind = prop::sample::select(vec!["c.large", "m.xlarge", "r.2xlarge"]);
    prop::collection::vec((kind, 0..3_u32), 0..3)
}

pub(super) fn reserve(kinds: &mut [InstanceType], reservations: &[(&'static str, u32)]) {
    for (number, (name, left)) in reservations.iter().enumerate() {
        for kind in kinds.iter_mut().filter(|kind| kind.name == *name) {
            let id = format!("cr-{number}");
            kind.offerings.push(Offering {
                zone: ZONES[number].to_owned(),
                capacity_type: CapacityType::Reserved,
                requirements: vec![need("example.com/reservation-id", Operator::In, &[&id])],
                price: MicroUsd(1),
                available: true,
                reservation_capacity: Some(*left),
                unpriced: None,
            });
            let of_kind = kind.requirements.iter_mut();
            for need in of_kind.filter(|need| need.key == "karpenter.sh/capacity-type") {
                need.values.push("reserved".to_owned());
                need.values.sort_unstable();
                need.values.dedup();
            }
        }
    }
}

fn any_overlays() -> impl Strategy<Value = Vec<NodeOverlay>> {
    let overlay =
        (any_need(), prop::sample::select(vec![-900_000_i64, -100_000, 500_000]), 0..3_i32);
    prop::collection::vec(overlay, 0..3).prop_map(|list| {
        let mut overlays: Vec<NodeOverlay> = (0..)
            .zip(list)
            .map(|(number, (need, scale, weight))| NodeOverlay {
                name: format!("overlay-{number}"),
                weight,
                requirements: vec![need],
                price: Some(PriceChange::Scale(scale)),
                ..NodeOverlay::default()
            })
            .collect();
        overlays.sort_by(|a, b| (b.weight, &b.name).cmp(&(a.weight, &a.name)));
        overlays
    })
}

fn any_need() -> impl Strategy<Value = Requirement> {
    prop_oneof![
        prop::sample::subsequence(ZONES.to_vec(), 1..3).prop_map(|zones| need(
            "topology.kubernetes.io/zone",
            Operator::In,
            &zones
        )),
        prop::sample::select(ZONES.to_vec()).prop_map(|zone| need(
            "topology.kubernetes.io/zone",
            Operator::NotIn,
            &[zone]
        )),
        prop::sample::select(vec!["spot", "on-demand"]).prop_map(|kind| need(
            "karpenter.sh/capacity-type",
            Operator::In,
            &[kind]
        )),
        Just(need("example.com/cpu", Operator::Gt, &["4"])),
        Just(need("example.com/cpu", Operator::Lte, &["8"])),
        prop::sample::select(vec!["a", "b"]).prop_map(|team| need("team", Operator::In, &[team])),
        Just(need("team", Operator::NotIn, &["a"])),
        Just(need("team", Operator::Exists, &[])),
        Just(need("team", Operator::DoesNotExist, &[])),
        Just(need("kubernetes.io/arch", Operator::In, &["amd64"])),
    ]
}

/// What a NodePool says of racks: some, one, or that there is to be one.
fn any_rack_need() -> impl Strategy<Value = Requirement> {
    prop::sample::select(vec![
        need(RACK, Operator::In, &["r1", "r2"]),
        need(RACK, Operator::In, &["r1"]),
        need(RACK, Operator::NotIn, &["r1"]),
        need(RACK, Operator::Exists, &[]),
    ])
}

fn any_racks() -> impl Strategy<Value = Vec<Option<&'static str>>> {
    let rack = prop::option::of(prop::sample::select(vec!["r1", "r2"]));
    prop_oneof![2 => Just(vec![None]), 1 => prop::collection::vec(rack, 1..4)]
}

fn any_pool(name: &'static str) -> impl Strategy<Value = NodePool> {
    (
        prop::collection::vec(any_need(), 0..2),
        prop::option::weighted(0.3, prop::sample::select(vec!["NoSchedule", "PreferNoSchedule"])),
        0..3_i32,
        prop::option::weighted(0.2, 4..64_i64),
        prop::option::weighted(0.2, 1..6_i64),
        prop::option::of(prop::sample::select(vec!["a", "b"])),
        prop::option::weighted(0.2, 1..4_u32),
        prop::option::weighted(0.2, any_rack_need()),
        // Mostly at once, else in a minute, or never.
        prop_oneof![6 => Just(Some(0)), 3 => Just(Some(60)), 1 => Just(None)],
    )
        .prop_map(move |(needs, effect, weight, cpu, nodes, team, min_values, rack, after)| {
            let mut pool = pool(name);
            pool.disruption.consolidate_after = after.map(jiff::SignedDuration::from_secs);
            pool.weight = weight;
            pool.template.requirements.extend(needs.into_iter().chain(rack));
            pool.template.taints.extend(effect.map(|effect| taint("dedicated", effect)));
            pool.limits.extend(cpu.map(|cores| ("cpu".to_owned(), cores * 1000)));
            pool.limits.extend(nodes.map(|nodes| ("nodes".to_owned(), nodes)));
            pool.template.labels.extend(team.map(|team| ("team".to_owned(), team.to_owned())));
            if let Some(min_values) = min_values {
                let mut many = need("node.kubernetes.io/instance-type", Operator::Exists, &[]);
                many.min_values = Some(min_values);
                pool.template.requirements.push(many);
            }
            pool
        })
}

fn any_shape() -> impl Strategy<Value = PodShape> {
    (
        prop::sample::select(vec![100, 500, 1000, 1500, 3000, 9000, 33_000]),
        prop::sample::select(vec![128 << 20, GI, 2 * GI, 6 * GI, 20 * GI]),
        prop::collection::vec(any_need(), 0..2),
        prop::collection::vec(prop::collection::vec(any_need(), 1..3), 0..3),
        prop::option::weighted(0.3, any_need()),
        any::<bool>(),
        prop::option::weighted(0.1, 8000..8002_u16),
        (
            prop::sample::select(vec!["x", "y", "z"]),
            any_rules(),
            prop::bool::weighted(0.15),
            prop::option::weighted(0.2, 1..4_u32),
            prop::option::weighted(0.15, prop::sample::subsequence(ZONES.to_vec(), 1..3)),
        ),
    )
        .prop_map(
            |(
                cpu,
                memory,
                selector,
                terms,
                preferred,
                tolerates,
                port,
                (app, rules, elsewhere, disks, volumes_in),
            )| {
                let mut shape = shape(cpu, memory);
                shape.volumes.extend(disks.map(|disks| ("disks".to_owned(), disks)));
                // Each of these zones is a place of its own for the volumes.
                for zone in volumes_in.into_iter().flatten() {
                    let there = need("topology.kubernetes.io/zone", Operator::In, &[zone]);
                    shape.volume_topology.push(vec![there]);
                }
                shape.labels.insert("app".to_owned(), app.to_owned());
                add_rules(&mut shape, rules);
                if elsewhere {
                    OTHER.clone_into(&mut shape.namespace);
                }
                for need in selector.into_iter().filter(|need| need.operator == Operator::In) {
                    shape.node_selector.insert(need.key, need.values[0].clone());
                }
                shape.required_affinity = terms;
                shape.preferred_affinity =
                    preferred.into_iter().map(|need| (1, vec![need])).collect();
                shape.tolerations.extend(tolerates.then(|| tolerate("dedicated")));
                shape.host_ports.extend(port.map(|port| ("TCP".to_owned(), String::new(), port)));
                shape
            },
        )
}

pub(super) fn any_scene() -> impl Strategy<Value = Scene> {
    (
        any_kinds(),
        (any_pool("one"), any_pool("two"), any::<bool>()),
        prop::option::of(any_shape()),
        prop::collection::vec((any_shape(), any::<bool>(), 1..6_usize), 0..6),
        prop::collection::vec((any_shape(), 1..8_usize), 0..6),
        (0..3_usize, any_overlays(), any_racks()),
    )
        .prop_map(
            |(kinds, (one, two, both), daemon, before, pending, (spare, overlays, racks))| {
                Scene {
                    kinds,
                    spare,
                    overlays,
                    racks,
                    pools: if both { vec![one, two] } else { vec![one] },
                    daemon: daemon.map(|mut daemon| {
                        daemon.requests.cpu = 100;
                        daemon.requests.memory = 128 << 20;
                        daemon.preferred_affinity.clear();
                        // Where a daemon runs is told by instance type, not by zone or capacity
                        // type: what it takes is reserved on machines to come, too, that it stays
                        // out of.
                        let by_type = |need: &Requirement| {
                            need.key.starts_with("example.com") || need.key == "team"
                        };
                        daemon.required_affinity.retain(|term| term.iter().all(by_type));
                        daemon.node_selector.retain(|key, _| key == "team");
                        daemon.pod_affinity.clear();
                        daemon.topology_spread.clear();
                        daemon.volumes.clear();
                        daemon.volume_topology.clear();
                        daemon
                    }),
                    before: before
                        .into_iter()
                        .flat_map(|(shape, gone, n)| {
                            (0..n).map(move |i| (shape.clone(), gone && i % 2 == 0))
                        })
                        .collect(),
                    pending: pending
                        .into_iter()
                        .flat_map(|(shape, n)| std::iter::repeat_n(shape, n))
                        .collect(),
                }
            },
        )
}

impl Scene {
    fn builder(&self, pods: impl Iterator<Item = (String, PodShape)>, nodes: Vec<Node>) -> Builder {
        let mut builder = Builder::new(catalog(self.kinds.clone()));
        for pool in &self.pools {
            builder = builder.pool(pool.clone());
        }
        for node in nodes {
            builder = builder.node(node);
        }
        if let Some(daemon) = &self.daemon {
            builder = builder.daemon_set("agent", daemon.clone());
        }
        for (name, shape) in pods {
            builder = builder.pending(&name, shape);
        }
        builder.overlays(self.overlays.clone())
    }

    /// A cluster that grew for some pods, of which a part has gone; others are waiting.
    pub(super) fn snapshot(&self) -> Snapshot {
        let old = self.before.iter().enumerate();
        let names = old.map(|(index, (shape, _))| (format!("old-{index:03}"), shape.clone()));
        let mut first = self.builder(names, Vec::new()).build();
        first.namespaces = namespaces();
        let plan = provision(&first, &Policy::default(), now(), 1, &());
        let mut grown = apply(&first, &plan);
        for (node, rack) in grown.nodes.iter_mut().zip(self.racks.iter().cycle()) {
            if let Some(rack) = rack {
                node.labels.entry(RACK.to_owned()).or_insert_with(|| (*rack).to_owned());
            }
        }
        let new = self.pending.iter().enumerate();
        let names = new.map(|(index, shape)| (format!("new-{index:03}"), shape.clone()));
        let mut builder = self.builder(names, grown.nodes.clone());
        for pod in &grown.pods {
            let Placement::Bound(node) = pod.placement else { continue };
            let number: usize = pod.name[4..].parse().expect("a numbered pod");
            if !self.before[number].1 {
                let shape = PodShape::clone(&grown.shapes[pod.shape.0 as usize]);
                builder = builder.pod(&pod.name, shape, Some(&grown.nodes[node.0 as usize].key));
            }
        }
        for number in 0..self.spare {
            builder = builder.pod_with(&format!("spare-{number}"), shape(700, GI), None, |pod| {
                pod.buffer = Some("spare".to_owned());
            });
        }
        let mut snapshot = builder.build();
        snapshot.namespaces = namespaces();
        snapshot
    }
}
