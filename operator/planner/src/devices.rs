//! Devices for the claims of pods (dynamic resource allocation). See docs/src/design/dra.md.
//!
//! A [`Table`] is what the snapshot says, as dense tables; a [`State`] what is left of it while a
//! plan is made. Pods with claims are placed one at a time, before all others ([`crate::pack`]).

mod bindings;
mod narrowing;
mod report;
mod search;
mod state;
mod usage;

use rustc_hash::FxHashMap;

use crate::intern::Symbols;
use crate::requirements::Requirements;
use crate::snapshot::{
    self, AttributeBinding, ClaimSpec, DeviceTemplate, InstanceType, NodePhase, PoolState, Reach,
    Snapshot,
};
use usage::Usage;

use crate::tables::Tables;
use crate::tables::machines::promised_types;
pub(crate) use state::{Proposal, State};

/// Devices and claims of a snapshot.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    source: &'a snapshot::Devices,
    /// Published devices, pool by pool.
    published: Vec<Published>,
    /// By driver, pool and name, the published device.
    by_name: FxHashMap<(&'a str, &'a str, &'a str), u32>,
    /// Selectors of slices.
    reaches: Vec<Requirements>,
    /// By machine: the published devices that only it has.
    local: Vec<Vec<u32>>,
    /// Published devices that several machines can reach.
    open: Vec<u32>,
    /// By machine: whether a pool of its own can't be relied on.
    broken: Vec<bool>,
    /// Pools of several nodes that can't be relied on: from where they can be reached, `None` being
    /// everywhere.
    broken_open: Vec<Option<u32>>,
    /// Counters of published pools.
    counters: Vec<i64>,
    /// Distinct lists of devices that instance types have; the first is empty.
    profiles: Vec<Profile<'a>>,
    /// By catalog and type: the profile.
    of_type: Vec<Vec<u32>>,
    /// By claim: where its allocation can be reached.
    terms: Vec<Vec<(Option<&'a str>, Requirements)>>,
    /// By claim: how many pods use it.
    users: Vec<u32>,
    /// The allocated devices and counters.
    allocated: Usage,
    /// Pods by uid, as far as claims are reserved for them.
    by_uid: FxHashMap<&'a str, usize>,
}

/// A device that a driver has published.
#[derive(Debug)]
struct Published {
    pool: u32,
    kind: u32,
    name: u32,
    slice: u32,
    local: bool,
    /// Index into [`Table::reaches`].
    reach: Option<u32>,
    /// Index into [`Table::counters`], and how much.
    consumes: Vec<(u32, i64)>,
    usable: bool,
}

/// The devices that a machine of some instance types will have.
#[derive(Debug, Default)]
struct Profile<'a> {
    source: &'a [DeviceTemplate],
    bindings: &'a [AttributeBinding],
    /// Pool, index in the pool, kind, counters, groups.
    devices: Vec<Template<'a>>,
    counters: Vec<i64>,
}

/// A device that a machine will have.
#[derive(Debug)]
struct Template<'a> {
    pool: u32,
    at: u32,
    kind: u32,
    consumes: Vec<(u32, i64)>,
    groups: bindings::Groups<'a>,
}

impl<'a> Table<'a> {
    /// `None` where claims are not planned for.
    pub(crate) fn new(snapshot: &'a Snapshot, symbols: &mut Symbols) -> Option<Box<Self>> {
        let source = snapshot.devices.as_deref()?;
        let n = snapshot.nodes.len();
        let mut table = Self {
            source,
            published: Vec::new(),
            by_name: FxHashMap::default(),
            reaches: Vec::new(),
            local: vec![Vec::new(); n],
            open: Vec::new(),
            broken: vec![false; n],
            broken_open: Vec::new(),
            counters: Vec::new(),
            profiles: vec![Profile::default()],
            of_type: Vec::new(),
            terms: Vec::new(),
            users: vec![0; source.claims.len()],
            allocated: Usage::default(),
            by_uid: FxHashMap::default(),
        };
        table.publish(snapshot, symbols);
        table.of_type = snapshot
            .catalogs
            .iter()
            .map(|catalog| catalog.instance_types.iter().map(|kind| table.profile(kind)).collect())
            .collect();
        for claim in &source.claims {
            let nodes = claim.allocation.iter().flat_map(|allocation| &allocation.nodes);
            let terms = nodes
                .map(|term| (term.name.as_deref(), Requirements::new(&term.requirements, symbols)));
            table.terms.push(terms.collect());
        }
        table.allocated = table.in_use();
        let reserved = source.claims.iter().flat_map(|claim| &claim.reserved_for);
        table.by_uid = reserved.map(|uid| (uid.as_str(), usize::MAX)).collect();
        for (index, pod) in snapshot.pods.iter().enumerate() {
            for &claim in &pod.claims {
                table.users[claim as usize] += 1;
            }
            if let Some(known) = table.by_uid.get_mut(&*pod.uid) {
                *known = index;
            }
        }
        Some(Box::new(table))
    }

    /// The requirements that decide which machines reach devices.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = &Requirements> {
        let terms = self.terms.iter().flatten().map(|(_, requirements)| requirements);
        self.reaches.iter().chain(terms)
    }

    fn publish(&mut self, snapshot: &'a Snapshot, symbols: &mut Symbols) {
        let nodes = snapshot.nodes.iter().enumerate();
        let machines: FxHashMap<&str, usize> =
            nodes.filter_map(|(index, node)| Some((node.name.as_deref()?, index))).collect();
        for (number, pool) in (0..).zip(&self.source.pools) {
            let usable = pool.state == PoolState::Complete;
            let counters = flatten(&mut self.counters, &pool.counters);
            for (slice_number, slice) in (0..).zip(&pool.slices) {
                let machine = match &slice.reach {
                    Reach::Node(name) => match machines.get(name.as_str()) {
                        Some(&machine) => Some(machine),
                        // A node that is not there serves nobody.
                        None => continue,
                    },
                    Reach::Everywhere | Reach::Nodes(_) => None,
                };
                let reach = match &slice.reach {
                    Reach::Nodes(terms) => Some(self.reach(Requirements::new(terms, symbols))),
                    _ => None,
                };
                match machine {
                    Some(machine) if !usable => self.broken[machine] = true,
                    None if !usable => self.broken_open.push(reach),
                    _ => {}
                }
                for (name, device) in (0..).zip(&slice.devices) {
                    let id = index(self.published.len());
                    self.by_name.insert((&pool.driver, &pool.name, &device.name), id);
                    let consumes = self.draws(device.kind, &counters);
                    // A counter that its pool does not have.
                    let usable = usable && consumes.is_some();
                    self.published.push(Published {
                        pool: number,
                        kind: device.kind,
                        name,
                        slice: slice_number,
                        local: machine.is_some(),
                        reach,
                        consumes: consumes.unwrap_or_default(),
                        usable,
                    });
                    match machine {
                        Some(machine) => self.local[machine].push(id),
                        None => self.open.push(id),
                    }
                }
            }
        }
    }

    fn reach(&mut self, terms: Requirements) -> u32 {
        let known = self.reaches.iter().position(|known| *known == terms);
        index(known.unwrap_or_else(|| {
            self.reaches.push(terms);
            self.reaches.len() - 1
        }))
    }

    /// What a device of a kind draws on counters; `None` if one of them is missing.
    fn draws(&self, kind: u32, counters: &Counters<'_>) -> Option<Vec<(u32, i64)>> {
        let kind = &self.source.kinds[kind as usize];
        let draws = kind.consumes.iter().map(|(set, counter, amount)| {
            Some((*counters.get(&(set.as_str(), counter.as_str()))?, *amount))
        });
        draws.collect()
    }

    fn profile(&mut self, kind: &'a InstanceType) -> u32 {
        let source = kind.devices.as_slice();
        // Without devices there is nothing that could agree.
        let bindings = if source.is_empty() { &[] } else { kind.attribute_bindings.as_slice() };
        let same = |known: &Profile<'_>| known.source == source && known.bindings == bindings;
        if let Some(known) = self.profiles.iter().position(same) {
            return index(known);
        }
        let groups = bindings::groups(bindings);
        let mut amounts = Vec::new();
        let mut devices = Vec::new();
        for (pool, template) in (0..).zip(source) {
            let counters = flatten(&mut amounts, &template.counters);
            for (at, device) in (0..).zip(&template.devices) {
                if let Some(consumes) = self.draws(device.kind, &counters) {
                    let name = (&template.driver[..], &template.pool[..], &device.name[..]);
                    let groups = groups.get(&name).cloned().unwrap_or_default();
                    devices.push(Template { pool, at, kind: device.kind, consumes, groups });
                }
            }
        }
        self.profiles.push(Profile { source, bindings, devices, counters: amounts });
        index(self.profiles.len() - 1)
    }

    /// The devices and counters that the allocations of all claims use.
    fn in_use(&self) -> Usage {
        let mut usage = Usage::default();
        let allocations = self.source.claims.iter().filter_map(|claim| claim.allocation.as_ref());
        for device in allocations.flat_map(|allocation| &allocation.devices) {
            if let Some(id) = self.find(device).filter(|_| !device.admin) {
                let published = &self.published[id as usize];
                let kind = &self.source.kinds[published.kind as usize];
                let consumed = consumed(kind, &device.consumed);
                let draws = if usage.shares(id).is_some() { &[][..] } else { &published.consumes };
                usage.take(id, kind.shared.then_some(&consumed[..]), draws);
            }
        }
        usage
    }

    fn name(&self, device: &Published) -> &'a str {
        let pool = &self.source.pools[device.pool as usize];
        &pool.slices[device.slice as usize].devices[device.name as usize].name
    }

    /// The published device of an allocation.
    fn find(&self, device: &snapshot::AllocatedDevice) -> Option<u32> {
        let name = (device.driver.as_str(), device.pool.as_str(), device.device.as_str());
        self.by_name.get(&name).copied()
    }

    /// The claims of a pod that others use, too, or that are allocated.
    pub(crate) fn singular_claims(&self, pod: &snapshot::Pod) -> Vec<u32> {
        let singular = |claim: &u32| {
            let source = &self.source.claims[*claim as usize];
            source.allocation.is_some() || self.users[*claim as usize] > 1
        };
        pod.claims.iter().copied().filter(singular).collect()
    }

    fn spec(&self, claim: u32) -> &'a ClaimSpec {
        &self.source.specs[self.source.claims[claim as usize].spec as usize]
    }
}

/// The lists of devices that a machine may have: [`None`] is what it has published itself.
fn profiles_of(tables: &Tables<'_>, table: &Table<'_>, machine: usize) -> Vec<Option<u32>> {
    let node = &tables.snapshot.nodes[machine];
    let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_ref());
    let pool = pool.and_then(|pool| tables.snapshot.node_pools.iter().find(|p| p.name == *pool));
    let Some(catalog) = pool.and_then(|pool| pool.catalog).map(|id| id.0 as usize) else {
        return vec![None];
    };
    match node.phase {
        NodePhase::Initialized => vec![None],
        NodePhase::Pending => {
            let types = promised_types(tables, machine, catalog);
            let mut profiles: Vec<_> =
                types.ones().map(|kind| Some(table.of_type[catalog][kind])).collect();
            profiles.sort_unstable();
            profiles.dedup();
            profiles
        }
        NodePhase::Launched | NodePhase::Registered => {
            let name = node.labels.get(crate::label::INSTANCE_TYPE);
            let kind = name.and_then(|name| tables.catalogs[catalog].find(name));
            vec![kind.map(|kind| table.of_type[catalog][kind])]
        }
    }
}

/// Where the counters of a pool stand, by set and counter.
type Counters<'c> = FxHashMap<(&'c str, &'c str), u32>;

fn flatten<'c>(
    amounts: &mut Vec<i64>,
    sets: &'c std::collections::BTreeMap<String, std::collections::BTreeMap<String, i64>>,
) -> Counters<'c> {
    let mut counters = Counters::default();
    for (set, list) in sets {
        for (counter, &amount) in list {
            counters.insert((set, counter), index(amounts.len()));
            amounts.push(amount);
        }
    }
    counters
}

/// Amounts by dimension, in the order of the kind's capacity.
fn consumed(
    kind: &snapshot::DeviceKind,
    amounts: &std::collections::BTreeMap<String, i64>,
) -> Vec<i64> {
    kind.capacity.keys().map(|name| amounts.get(name).copied().unwrap_or(0)).collect()
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("a cluster has fewer than 2^32 devices")
}
