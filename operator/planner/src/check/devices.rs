//! Whether the devices that a plan counts on serve the claims of its pods.

mod amounts;
mod constraints;

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::labels::Labels;
use super::places::{labels_of, offers};
use crate::plan::{ChosenDevice, ClaimDevices, Launch, PlacedDevices, Plan};
use crate::snapshot::{
    Claim, ClaimAllocation, DeviceAsk, DeviceKind, Devices, InstanceType, Node, NodePhase,
    Placement, PodShape, PoolState, Reach, Requirement, Snapshot,
};
use amounts::{due, within};

/// Where pods are: a machine, or a launch by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place<'p> {
    Machine(&'p str),
    Launch(usize),
}

/// Driver, pool, device.
type Name<'p> = (&'p str, &'p str, &'p str);

/// Who has a device that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner<'p> {
    /// A claim that has it already, by namespace and name.
    Claim(&'p str, &'p str),
    /// A claim of a place. As each type that the place may become it may be another one.
    Place(Place<'p>),
}

/// What is known about a place as one instance type, or as it is.
struct View<'v> {
    /// Its labels, for every way in which it may come to be.
    labels: Vec<Labels>,
    node: Option<&'v Node>,
    kind: Option<&'v InstanceType>,
}

impl View<'_> {
    fn meets(&self, terms: &[Requirement]) -> bool {
        self.labels.iter().all(|labels| terms.iter().all(|term| labels.meet(term)))
    }

    fn reaches(&self, reach: &Reach) -> bool {
        match reach {
            Reach::Everywhere => true,
            Reach::Nodes(terms) => self.meets(terms),
            Reach::Node(name) => self.is_called(name),
        }
    }

    fn is_called(&self, name: &str) -> bool {
        self.node.is_some_and(|node| node.name.as_deref() == Some(name))
    }

    fn reaches_allocation(&self, allocation: &ClaimAllocation) -> bool {
        let met = |term: &crate::snapshot::NodeTerm| {
            term.name.as_deref().is_none_or(|name| self.is_called(name))
                && self.meets(&term.requirements)
        };
        allocation.nodes.is_empty() || allocation.nodes.iter().any(met)
    }
}

struct Checker<'c> {
    snapshot: &'c Snapshot,
    devices: &'c Devices,
    launches: &'c [&'c Launch],
    /// Pods that move.
    moving: BTreeSet<&'c str>,
    found: &'c mut BTreeSet<Violation>,
}

pub(super) fn check_devices(
    snapshot: &Snapshot,
    plan: &Plan,
    going: &BTreeSet<&str>,
    on_machine: &BTreeMap<String, Vec<usize>>,
    (launches, in_launch): (&[&Launch], &[Vec<usize>]),
    found: &mut BTreeSet<Violation>,
) {
    let machines = on_machine.iter().map(|(key, pods)| (Place::Machine(key), pods));
    let to_come = in_launch.iter().enumerate().map(|(number, pods)| (Place::Launch(number), pods));
    let with_claims = |pod: &usize| !shape(snapshot, *pod).device_claims.is_empty();
    let placed: Vec<(Place<'_>, usize)> = machines
        .chain(to_come)
        .flat_map(|(place, pods)| pods.iter().map(move |&pod| (place, pod)))
        .filter(|(_, pod)| with_claims(pod))
        .collect();
    let Some(devices) = snapshot.devices.as_deref() else {
        for (_, pod) in placed {
            let claim = snapshot.pods[pod].name.to_string();
            found.insert(Violation::Devices { claim, why: "claims are not planned for" });
        }
        return;
    };
    let moving = snapshot.pods.iter().filter(|pod| match pod.placement {
        Placement::Bound(node) => {
            let node = &snapshot.nodes[node.0 as usize];
            node.deleting || going.contains(node.key.as_str())
        }
        _ => false,
    });
    let moving = moving.map(|pod| &*pod.uid).collect();
    let of_commands = plan.commands.iter().flat_map(|command| &command.devices);
    let certified = plan.devices.iter().chain(of_commands);
    let certified =
        certified.filter_map(|placed| Some((Place::Machine(placed.machine.as_deref()?), placed)));
    let of_launches = launches.iter().enumerate();
    let of_launches = of_launches
        .flat_map(|(at, launch)| launch.devices.iter().map(move |it| (Place::Launch(at), it)));
    let certified: Vec<_> = certified.chain(of_launches).collect();
    let mut checker = Checker { snapshot, devices, launches, moving, found };
    for &(place, pod) in &placed {
        checker.check_pod(place, pod, &certified);
    }
    for &(place, placed) in &certified {
        checker.check_certificate(place, placed);
    }
    checker.check_sums(&certified);
}

impl<'c> Checker<'c> {
    fn violate(&mut self, claim: &str, why: &'static str) {
        self.found.insert(Violation::Devices { claim: claim.to_owned(), why });
    }

    /// A claim keeps its devices unless all that it is reserved for moves.
    fn in_force(&self, claim: &'c Claim) -> Option<&'c ClaimAllocation> {
        let freed = !claim.reserved_for.is_empty()
            && !claim.reserved_for_others
            && claim.reserved_for.iter().all(|uid| self.moving.contains(uid.as_str()));
        claim.allocation.as_ref().filter(|_| !freed)
    }

    /// The place as each of the types that it may become.
    fn views(&self, place: Place<'_>) -> Vec<View<'c>> {
        let pool = |name: &str| self.snapshot.node_pools.iter().find(|pool| pool.name == name);
        match place {
            Place::Launch(number) => {
                let launch = self.launches[number];
                let Some(pool) = pool(&launch.node_pool) else { return Vec::new() };
                let Some(catalog) = pool.catalog else { return Vec::new() };
                let kinds = self.snapshot.catalogs[catalog.0 as usize].instance_types.iter();
                kinds
                    .filter(|kind| launch.instance_types.contains(&kind.name))
                    .map(|kind| {
                        let offers = offers(launch, kind);
                        let labels = offers.map(|offer| labels_of(launch, pool, kind, offer));
                        View { labels: labels.collect(), node: None, kind: Some(kind) }
                    })
                    .collect()
            }
            Place::Machine(key) => {
                let Some(node) = self.snapshot.nodes.iter().find(|node| node.key == key) else {
                    return Vec::new();
                };
                let of_node =
                    |kind| View { labels: vec![Labels::of(node)], node: Some(node), kind };
                let claim = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
                let catalog = claim.and_then(pool).and_then(|pool| pool.catalog);
                let Some(catalog) = catalog.filter(|_| node.phase != NodePhase::Initialized) else {
                    return vec![of_node(None)];
                };
                let kinds = self.snapshot.catalogs[catalog.0 as usize].instance_types.iter();
                let labels = Labels::of(node);
                let key = "node.kubernetes.io/instance-type";
                let may_be = |kind: &&InstanceType| match labels.certain.get(key) {
                    Some(name) => kind.name == *name,
                    None => labels.possible.get(key).is_none_or(|it| it.contains(&kind.name)),
                };
                kinds.filter(may_be).map(|kind| of_node(Some(kind))).collect()
            }
        }
    }

    /// Each claim of a pod is allocated where the pod can reach it, or will be.
    fn check_pod(
        &mut self,
        place: Place<'c>,
        pod: usize,
        certified: &[(Place<'c>, &'c PlacedDevices)],
    ) {
        let pod = &self.snapshot.pods[pod];
        if pod.claims.len() != self.snapshot.shapes[pod.shape.0 as usize].device_claims.len() {
            self.violate(&pod.name, "the pod has no claims of its own");
        }
        let views = self.views(place);
        for &index in &pod.claims {
            let claim = &self.devices.claims[index as usize];
            if let Some(allocation) = self.in_force(claim) {
                if !views.iter().all(|view| view.reaches_allocation(allocation)) {
                    self.violate(&claim.name, "it is allocated where the pod can't reach it");
                }
                continue;
            }
            let same =
                |it: &&ClaimDevices| it.namespace == claim.namespace && it.name == claim.name;
            let own: Vec<_> = certified
                .iter()
                .filter_map(|(at, placed)| Some((*at, *placed, placed.claims.iter().find(same)?)))
                .collect();
            let Some(&(at, ..)) = own.first() else {
                self.violate(&claim.name, "no devices were found for it");
                continue;
            };
            if own.iter().any(|(other, ..)| *other != at) {
                self.violate(&claim.name, "it has devices on two machines");
            }
            for view in self.views(at) {
                let covered = own.iter().any(|(_, placed, _)| match view.kind {
                    Some(kind) => placed.instance_types.contains(&kind.name),
                    None => placed.instance_types.is_empty(),
                });
                if !covered {
                    self.violate(
                        &claim.name,
                        "the machine may become a type without devices for it",
                    );
                }
            }
            if at != place {
                let chosen = own.iter().flat_map(|(_, _, claim)| &claim.devices);
                let mut far = chosen.map(|it| self.published(it).filter(|_| !it.template));
                let reached = far.all(|device| {
                    device.is_some_and(|(reach, ..)| {
                        !matches!(reach, Reach::Node(_)) && views.iter().all(|it| it.reaches(reach))
                    })
                });
                if !reached {
                    self.violate(&claim.name, "the pod can't reach its devices");
                }
            }
        }
    }

    fn published(&self, chosen: &ChosenDevice) -> Option<(&'c Reach, &'c DeviceKind, u32)> {
        let mut pools = self.devices.pools.iter();
        let pool = pools.find(|pool| pool.driver == chosen.driver && pool.name == chosen.pool)?;
        if pool.state != PoolState::Complete {
            return None;
        }
        pool.slices.iter().find_map(|slice| {
            let device = slice.devices.iter().find(|device| device.name == chosen.device)?;
            Some((&slice.reach, &self.devices.kinds[device.kind as usize], device.kind))
        })
    }

    /// The kind of a device that a place has as one type.
    fn kind_at(&self, view: &View<'c>, chosen: &ChosenDevice) -> Option<(&'c DeviceKind, u32)> {
        if chosen.template {
            let mut pools = view.kind?.devices.iter();
            let pool = pools.find(|it| it.driver == chosen.driver && it.pool == chosen.pool)?;
            let device = pool.devices.iter().find(|device| device.name == chosen.device)?;
            return Some((&self.devices.kinds[device.kind as usize], device.kind));
        }
        let (reach, kind, number) = self.published(chosen)?;
        // What a node publishes counts once it is up.
        let early = view.kind.is_some() && matches!(reach, Reach::Node(_));
        (view.reaches(reach) && !early).then_some((kind, number))
    }

    fn check_certificate(&mut self, place: Place<'c>, placed: &'c PlacedDevices) {
        for view in self.views(place) {
            let listed = match view.kind {
                Some(kind) => placed.instance_types.contains(&kind.name),
                None => placed.instance_types.is_empty(),
            };
            if !listed {
                continue;
            }
            for claim in &placed.claims {
                let known =
                    self.devices.claims.iter().find(|known| {
                        known.namespace == claim.namespace && known.name == claim.name
                    });
                match known {
                    Some(known) => self.check_claim(&view, known, claim),
                    None => self.violate(&claim.name, "there is no such claim"),
                }
            }
        }
    }

    /// Whether the devices are what the claim asks for.
    fn check_claim(&mut self, view: &View<'c>, claim: &'c Claim, chosen: &'c ClaimDevices) {
        let spec = &self.devices.specs[claim.spec as usize];
        if spec.problem.is_some() || chosen.devices.len() > 32 {
            self.violate(&claim.name, "no devices can be given to it");
        }
        let mut kinds = Vec::new();
        for device in &chosen.devices {
            let Some((kind, number)) = self.kind_at(view, device) else {
                self.violate(&claim.name, "a device is not there");
                return;
            };
            kinds.push((device, kind, number));
        }
        let mut served = 0;
        for request in &spec.requests {
            let mut chosen_alternatives = 0;
            for ask in &request.alternatives {
                let label = match &ask.name {
                    Some(name) => format!("{}/{name}", request.name),
                    None => request.name.clone(),
                };
                let own: Vec<_> = kinds.iter().filter(|(it, ..)| it.request == label).collect();
                if own.is_empty() {
                    continue;
                }
                chosen_alternatives += 1;
                served += own.len();
                let enough = match ask.count {
                    Some(count) => own.len() == count as usize,
                    None => self.all_that_match(view, ask) == Some(own.len()),
                };
                let fit = own.iter().all(|(device, kind, number)| {
                    ask.kinds.contains(number)
                        && device.admin == ask.admin
                        && device.consumed == due(kind, ask)
                });
                if !enough || !fit {
                    self.violate(&claim.name, "a request gets other devices than it asks for");
                }
            }
            if chosen_alternatives != 1 {
                self.violate(&claim.name, "a request has no devices, or those of two alternatives");
            }
        }
        if served != chosen.devices.len() {
            self.violate(&claim.name, "a device is for no request");
        }
        let mut rules = spec.constraints.iter();
        if !rules.all(|rule| constraints::holds(rule, view.kind, &kinds)) {
            self.violate(&claim.name, "its devices break a constraint");
        }
    }

    /// How many devices that a place reaches match; `None` if a pool can't be relied on.
    fn all_that_match(&self, view: &View<'c>, ask: &DeviceAsk) -> Option<usize> {
        let mut n = 0;
        for pool in &self.devices.pools {
            for slice in pool.slices.iter().filter(|slice| view.reaches(&slice.reach)) {
                if view.kind.is_some() && matches!(slice.reach, Reach::Node(_)) {
                    continue;
                }
                if pool.state != PoolState::Complete {
                    return None;
                }
                n += slice.devices.iter().filter(|it| ask.kinds.contains(&it.kind)).count();
            }
        }
        let templates = view.kind.iter().flat_map(|kind| &kind.devices);
        let devices = templates.flat_map(|template| &template.devices);
        Some(n + devices.filter(|device| ask.kinds.contains(&device.kind)).count())
    }

    /// No device is given away twice, no counter and no share exceeded.
    fn check_sums(&mut self, certified: &[(Place<'c>, &'c PlacedDevices)]) {
        let mut owners: BTreeMap<Name<'c>, BTreeSet<Owner<'c>>> = BTreeMap::new();
        let mut shares: BTreeMap<(Name<'c>, &str), i64> = BTreeMap::new();
        let devices = self.devices;
        for claim in &devices.claims {
            let Some(allocation) = self.in_force(claim) else { continue };
            for device in allocation.devices.iter().filter(|device| !device.admin) {
                let name: Name<'c> = (&device.driver, &device.pool, &device.device);
                owners.entry(name).or_default().insert(Owner::Claim(&claim.namespace, &claim.name));
                for (dimension, amount) in &device.consumed {
                    *shares.entry((name, dimension)).or_default() += amount;
                }
            }
        }
        let mut places: BTreeMap<Place<'c>, Vec<&PlacedDevices>> = BTreeMap::new();
        for &(place, placed) in certified {
            places.entry(place).or_default().push(placed);
        }
        for (place, list) in &places {
            let mut most: BTreeMap<(Name<'c>, &str), i64> = BTreeMap::new();
            for view in self.views(*place) {
                let mut own: BTreeMap<Name<'c>, usize> = BTreeMap::new();
                let mut others: BTreeMap<Name<'c>, usize> = BTreeMap::new();
                let mut sums: BTreeMap<(Name<'c>, &str), i64> = BTreeMap::new();
                let listed = list.iter().filter(|placed| match view.kind {
                    Some(kind) => placed.instance_types.contains(&kind.name),
                    None => placed.instance_types.is_empty(),
                });
                for claim in listed.flat_map(|placed| &placed.claims) {
                    for device in claim.devices.iter().filter(|device| !device.admin) {
                        let name: Name<'c> = (&device.driver, &device.pool, &device.device);
                        let Some((kind, _)) = self.kind_at(&view, device) else { continue };
                        let taken = if device.template { &mut own } else { &mut others };
                        let times = taken.entry(name).or_default();
                        *times += 1;
                        if !kind.shared && *times > 1 {
                            self.violate(&claim.name, "a device is given away twice");
                        }
                        if !device.template {
                            owners.entry(name).or_default().insert(Owner::Place(*place));
                        }
                        for (dimension, amount) in &device.consumed {
                            let sum = sums.entry((name, dimension)).or_default();
                            *sum += amount;
                            let capacity = kind.capacity.get(dimension);
                            if device.template && capacity.is_none_or(|it| *sum > it.value) {
                                self.violate(&claim.name, "a device is shared beyond its capacity");
                            }
                        }
                    }
                }
                self.check_counters(&view, &own);
                for (key, sum) in sums {
                    let most = most.entry(key).or_default();
                    *most = sum.max(*most);
                }
            }
            for (key, sum) in most {
                *shares.entry(key).or_default() += sum;
            }
        }
        self.check_published(&owners, &shares);
    }

    /// The counters of what a machine will have.
    fn check_counters(&mut self, view: &View<'c>, taken: &BTreeMap<Name<'c>, usize>) {
        for pool in view.kind.iter().flat_map(|kind| &kind.devices) {
            let taken = pool.devices.iter().filter(|device| {
                taken.contains_key(&(&pool.driver[..], &pool.pool[..], &device.name[..]))
            });
            let kinds = taken.map(|device| &self.devices.kinds[device.kind as usize]);
            if !within(&pool.counters, kinds) {
                self.violate(&pool.pool, "its counters are exceeded");
            }
        }
    }

    fn check_published(
        &mut self,
        owners: &BTreeMap<Name<'c>, BTreeSet<Owner<'c>>>,
        shares: &BTreeMap<(Name<'c>, &str), i64>,
    ) {
        let devices = self.devices;
        for pool in &devices.pools {
            let mut taken = Vec::new();
            for device in pool.slices.iter().flat_map(|slice| &slice.devices) {
                let name: Name<'c> = (&pool.driver, &pool.name, &device.name);
                let kind = &devices.kinds[device.kind as usize];
                let Some(owners) = owners.get(&name) else { continue };
                taken.push(kind);
                if !kind.shared && owners.len() > 1 {
                    self.violate(&device.name, "a device is given away twice");
                }
                for (dimension, capacity) in &kind.capacity {
                    let sum = shares.get(&(name, dimension.as_str())).copied().unwrap_or(0);
                    if sum > capacity.value {
                        self.violate(&device.name, "a device is shared beyond its capacity");
                    }
                }
            }
            if !within(&pool.counters, taken.into_iter()) {
                self.violate(&pool.name, "its counters are exceeded");
            }
        }
    }
}

fn shape(snapshot: &Snapshot, pod: usize) -> &PodShape {
    &snapshot.shapes[snapshot.pods[pod].shape.0 as usize]
}
