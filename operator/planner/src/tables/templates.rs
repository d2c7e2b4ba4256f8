//! NodePools as templates of machines: what they require, and the instance types that each can
//! launch.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::Tables;
use super::columns::fits;
use super::daemons::{Daemons, Overheads};
use super::fitting::Fitting;
use super::types::NOT_FOR_SALE;
use crate::intern::Symbols;
use crate::label;
use crate::requirements::{Requirements, ValueSet};
use crate::snapshot::Snapshot;

/// A NodePool, compiled: its requirements and the types that it can launch.
#[derive(Debug)]
pub(crate) struct Template {
    /// Index into [`Snapshot::node_pools`].
    pub(crate) pool: usize,
    /// Index into [`Tables::catalogs`].
    pub(crate) catalog: usize,
    /// Requirements of the pool, its labels, and the two labels of machines that are up.
    pub(crate) requirements: Requirements,
    kit: Arc<Kit>,
}

impl std::ops::Deref for Template {
    type Target = Kit;

    fn deref(&self) -> &Kit {
        &self.kit
    }
}

/// The part that templates share if they differ only in labels that no instance type has.
#[derive(Debug)]
pub(crate) struct Kit {
    /// Unique per kit: key of what is cached for it.
    pub(crate) id: usize,
    /// Types that meet the requirements, have an offering that does, and hold their own daemons.
    pub(crate) types: FixedBitSet,
    /// By type and column: room for pods, whose number the policy limits.
    net: Vec<i64>,
    width: usize,
    /// Which types hold an amount next to their daemons.
    pub(crate) fitting: Fitting,
    /// Daemons per group of types.
    pub(crate) overheads: Overheads,
}

/// The kits of a snapshot: by catalog, what is asked of its types, and daemons. `None` where no
/// type is left.
pub(super) type Kits = FxHashMap<(usize, Requirements, Overheads), Option<Arc<Kit>>>;

/// The requirements of every NodePool that could launch, the heaviest pool first, or why it can't.
pub(super) fn required(
    snapshot: &Snapshot,
    symbols: &mut Symbols,
) -> Vec<(usize, Result<Requirements, String>)> {
    let mut order: Vec<usize> = (0..snapshot.node_pools.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&snapshot.node_pools[a], &snapshot.node_pools[b]);
        b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name))
    });
    order
        .into_iter()
        .filter(|&index| snapshot.node_pools[index].replicas.is_none())
        .map(|index| {
            let pool = &snapshot.node_pools[index];
            let mut requirements = Requirements::new(&pool.template.requirements, symbols);
            let labels = Requirements::from_labels(&pool.template.labels, symbols);
            requirements.extend(&labels, symbols);
            for (key, value) in [
                (label::NODE_POOL, pool.name.as_str()),
                (label::REGISTERED, "true"),
                (label::INITIALIZED, "true"),
            ] {
                let (key, value) = (symbols.key(key), symbols.value(value));
                requirements.add(key, ValueSet::one_of([value]), symbols);
            }
            (index, pool.not_ready.clone().map_or(Ok(requirements), Err))
        })
        .collect()
}

impl Template {
    pub(super) fn new(
        tables: &Tables<'_>,
        pool: usize,
        requirements: Requirements,
        daemons: &Daemons,
        kits: &mut Kits,
    ) -> Result<Self, String> {
        if let Some((key, _)) = requirements.iter().find(|(_, set)| set.is_contradiction()) {
            let key = tables.symbols.key_name(key);
            return Err(format!("its labels and requirements leave no value for {key}"));
        }
        let catalog = tables.snapshot.node_pools[pool]
            .catalog
            .ok_or("the instance types of its NodeClass are not known yet")?
            .0 as usize;
        let table = &tables.catalogs[catalog];
        let taints = &tables.snapshot.node_pools[pool].template.taints;
        let overheads = daemons.overheads(tables, &requirements, taints, table);
        let id = kits.len();
        let key = (catalog, table.about(&requirements), overheads);
        let kit = kits.entry(key).or_insert_with_key(|(_, about, overheads)| {
            Kit::new(tables, catalog, id, about, overheads).map(Arc::new)
        });
        let kit = kit
            .clone()
            .ok_or("none of its instance types meets its requirements and is available")?;
        Ok(Self { pool, catalog, requirements, kit })
    }
}

impl Kit {
    fn new(
        tables: &Tables<'_>,
        catalog: usize,
        id: usize,
        requirements: &Requirements,
        overheads: &Overheads,
    ) -> Option<Self> {
        let table = &tables.catalogs[catalog];
        let on_sale = markets_meeting(tables, catalog, requirements);
        let width = tables.columns.len();
        let mut net = Vec::with_capacity(table.len() * width);
        let mut types = FixedBitSet::with_capacity(table.len());
        let nothing = vec![0; width];
        let pods = tables.columns.index("pods");
        let most_pods = pods.zip(tables.policy.most_pods(tables.snapshot));
        for kind in 0..table.len() {
            let overhead = overheads.of(kind);
            net.extend(
                table.allocatable(kind).iter().zip(overhead).map(|(have, less)| have - less),
            );
            if let Some((column, most)) = most_pods {
                let left = &mut net[kind * width + column];
                *left = most.min(*left);
            }
            let room = &net[kind * width..];
            let sold = on_sale.ones().any(|market| table.prices(kind)[market] != NOT_FOR_SALE);
            if sold
                && fits(&nothing, room)
                && table.requirements[kind].intersects(requirements, &tables.symbols).is_ok()
            {
                types.insert(kind);
            }
        }
        if types.is_clear() {
            return None;
        }
        let fitting = Fitting::new(&types, &net, width);
        Some(Self { id, types, net, width, fitting, overheads: overheads.clone() })
    }

    /// Room for pods on a machine of a type, next to its daemons.
    pub(crate) fn net(&self, kind: usize) -> &[i64] {
        &self.net[kind * self.width..(kind + 1) * self.width]
    }
}

/// The markets of a catalog that meet a set.
pub(crate) fn markets_meeting(
    tables: &Tables<'_>,
    catalog: usize,
    requirements: &Requirements,
) -> FixedBitSet {
    let markets = &tables.catalogs[catalog].markets;
    let mut meeting = FixedBitSet::with_capacity(markets.len());
    for (index, market) in markets.iter().enumerate() {
        meeting.set(index, market.requirements.intersects(requirements, &tables.symbols).is_ok());
    }
    meeting
}

/// `metadata.name` of the template's pool.
pub(crate) fn pool_name<'p>(tables: &'p Tables<'_>, template: &Template) -> &'p str {
    &tables.snapshot.node_pools[template.pool].name
}
