//! A snapshot as dense tables: what is known of labels, amounts, instance types, NodePools, pods
//! and machines before any rule between pods is looked at.
//!
//! Names become ids, requirements become value sets over ids, amounts become rows of integers with
//! one column per resource. Instance types, machines and shapes are tables (struct of arrays); a
//! pod is an index. Everything here is immutable while a plan is made.

mod by_value;
mod columns;
mod daemons;
mod fitting;
pub(crate) mod machines;
mod room;
pub(crate) mod shapes;
pub(crate) mod taints;
pub(crate) mod templates;
pub(crate) mod types;
pub(crate) mod variants;
mod volumes;

use crate::intern::{Key, Symbols};
use crate::label;
use crate::plan::SkippedPool;
use crate::policy::Policy;
use crate::requirements::Requirements;
use crate::snapshot::Snapshot;
use by_value::ByValue;
use columns::Columns;
pub(crate) use columns::{add_times, fits, take_times, times};
use daemons::Daemons;
pub(crate) use machines::machine_meets;
use machines::{Machines, PodsOn};
use shapes::{Class, Shape, is_restricted};
use templates::{Kits, Template};
use types::TypeTable;

/// Ids of the keys in [`label`] that need no look-up; they are interned first, so their ids are
/// constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WellKnownKeys {
    pub(crate) capacity_type: Key,
    pub(crate) instance_type: Key,
    pub(crate) hostname: Key,
    registered: Key,
    initialized: Key,
}

/// The tables of a snapshot, with the policy.
#[derive(Debug)]
pub(crate) struct Tables<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) policy: &'a Policy,
    pub(crate) symbols: Symbols,
    pub(crate) keys: WellKnownKeys,
    pub(crate) columns: Columns,
    /// By key: whether planned machines define the label (well-known labels).
    well_known: Vec<bool>,
    pub(crate) catalogs: Vec<TypeTable>,
    /// NodePools that may launch, the heaviest first.
    pub(crate) templates: Vec<Template>,
    /// The templates by what they require.
    pub(crate) by_value: ByValue,
    /// NodePools that may not launch, with the reason.
    pub(crate) skipped: Vec<SkippedPool>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) classes: Vec<Class>,
    pub(crate) machines: Machines,
    /// Pods by the machine they are bound to.
    pub(crate) pods_on: PodsOn,
    /// Pods that may need a place, as indices of [`Snapshot::pods`].
    pub(crate) restless: Vec<usize>,
}

/// Tables of which machines and templates are still missing: only labels that something asks for
/// are read from machines, and rules and device selectors ask, too.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) tables: Tables<'a>,
    daemons: Daemons,
    /// By index into [`Snapshot::node_pools`]: what its machines have, or why there are none.
    pools: Vec<(usize, Result<Requirements, String>)>,
}

impl<'a> Draft<'a> {
    /// Reads labels, amounts, instance types and the shapes of pods.
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        let mut symbols = Symbols::default();
        let keys = WellKnownKeys {
            capacity_type: symbols.key(label::CAPACITY_TYPE),
            instance_type: symbols.key(label::INSTANCE_TYPE),
            hostname: symbols.key(label::HOSTNAME),
            registered: symbols.key(label::REGISTERED),
            initialized: symbols.key(label::INITIALIZED),
        };
        let columns = Columns::collect(snapshot);
        let catalogs = snapshot.catalogs.iter();
        let catalogs: Vec<TypeTable> =
            catalogs.map(|catalog| TypeTable::new(catalog, &columns, &mut symbols)).collect();
        let well_known = well_known(&catalogs, &mut symbols);
        let daemons = Daemons::new(snapshot, &columns, &mut symbols);
        let (shapes, classes) = shapes::compile(snapshot, policy, &columns, &mut symbols);
        let tables = Tables {
            snapshot,
            policy,
            symbols,
            keys,
            columns,
            well_known,
            catalogs,
            templates: Vec::new(),
            by_value: ByValue::default(),
            skipped: Vec::new(),
            shapes,
            classes,
            machines: Machines::default(),
            pods_on: PodsOn::default(),
            restless: Vec::new(),
        };
        Self { tables, daemons, pools: Vec::new() }
    }

    /// Reads what NodePools require of their machines.
    pub(crate) fn read_node_pools(&mut self) {
        let Tables { snapshot, symbols, .. } = &mut self.tables;
        self.pools = templates::required(snapshot, symbols);
    }

    /// Reads machines, of which pods, daemons and others ask for some labels, and the templates of
    /// NodePools.
    pub(crate) fn finish(self, asked: impl Iterator<Item = Key>) -> Tables<'a> {
        let Self { mut tables, daemons, pools } = self;
        let snapshot = tables.snapshot;
        let of_pods = tables.classes.iter().flat_map(|class| class.variants.keys());
        let of_daemons = daemons.terms().flat_map(|term| term.iter().map(|(key, _)| key));
        let asked = of_pods.chain(of_daemons).chain(asked).collect();
        let mut scan = machines::scan_pods(snapshot, &tables.shapes, tables.columns.len());
        tables.machines = Machines::new(snapshot, &asked, &mut tables.symbols);
        tables.pods_on = std::mem::take(&mut scan.on);
        tables.restless = std::mem::take(&mut scan.restless);
        tables.well_known.resize(tables.symbols.n_keys(), false);
        let mut kits = Kits::default();
        for (pool, requirements) in pools {
            match requirements.and_then(|requirements| {
                Template::new(&tables, pool, requirements, &daemons, &mut kits)
            }) {
                Ok(template) => tables.templates.push(template),
                Err(reason) => tables
                    .skipped
                    .push(SkippedPool { name: snapshot.node_pools[pool].name.clone(), reason }),
            }
        }
        tables.by_value =
            ByValue::new(tables.templates.iter().map(|template| &template.requirements));
        room::fill(&mut tables, &daemons, &scan);
        tables
    }
}

/// By key: whether planned machines define the label.
fn well_known(catalogs: &[TypeTable], symbols: &mut Symbols) -> Vec<bool> {
    let of_kubernetes = [
        label::NODE_POOL,
        label::ZONE,
        label::REGION,
        label::INSTANCE_TYPE,
        label::ARCH,
        label::OS,
        label::CAPACITY_TYPE,
        label::WINDOWS_BUILD,
    ]
    .map(|name| symbols.key(name));
    let of_types = catalogs.iter().flat_map(|catalog| catalog.keys.iter().copied());
    let mut well_known = vec![false; symbols.n_keys()];
    for key in of_kubernetes.into_iter().chain(of_types) {
        well_known[key.index()] = true;
    }
    well_known
}

impl Tables<'_> {
    /// Whether planned machines define a label that neither pool nor type mentions.
    pub(crate) fn is_well_known(&self, key: Key) -> bool {
        self.well_known[key.index()]
    }

    /// Whether only the simulation uses a label.
    pub(crate) fn is_simulation_only(&self, key: Key) -> bool {
        [self.keys.registered, self.keys.initialized, self.keys.hostname].contains(&key)
    }

    /// Whether a label is restricted: it belongs to Karpenter or a provider, and users may require
    /// it only if it is well-known.
    pub(crate) fn is_restricted(&self, key: &str) -> bool {
        is_restricted(key, self.snapshot)
    }

    /// The template of a pool of the snapshot, if it may launch.
    pub(crate) fn template_of(&self, pool: &str) -> Option<usize> {
        self.templates
            .iter()
            .position(|template| self.snapshot.node_pools[template.pool].name == pool)
    }
}
