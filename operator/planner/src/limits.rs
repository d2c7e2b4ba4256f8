//! NodePool limits: the remaining amounts that a pool may launch.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::plan::Exclusion;
use crate::tables::Tables;
use crate::tables::machines::promised_types;
use crate::tables::templates::Template;
use crate::tables::types::TypeTable;

/// Remaining limits of each template's pool.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pools: Vec<PoolLimits>,
    /// The most processors and the most memory that a machine of a pool with limits has for pods.
    largest: [i64; 2],
    /// Processors and memory of all pods that machines may be launched for.
    needed: [i64; 2],
}

#[derive(Clone, Debug, Default)]
struct PoolLimits {
    amounts: Vec<Amount>,
    /// The limit `nodes`, and the number of machines that may still be launched.
    nodes: Option<(i64, i64)>,
}

/// The limit of one resource.
#[derive(Clone, Debug)]
struct Amount {
    column: usize,
    limit: i64,
    left: i64,
    /// The pool's types, those with the most of it first.
    descending: Arc<[usize]>,
}

impl Amount {
    /// The largest amount of it among the types of a set.
    fn largest(&self, table: &TypeTable, types: &FixedBitSet) -> i64 {
        let largest = self.descending.iter().find(|&&kind| types[kind]);
        largest.map_or(0, |&kind| table.capacity(kind)[self.column])
    }

    /// Whether some type of the pool has more of it than an amount.
    fn excludes(&self, table: &TypeTable, amount: i64) -> bool {
        self.descending.first().is_some_and(|&kind| table.capacity(kind)[self.column] > amount)
    }
}

impl Limits {
    pub(crate) fn new(tables: &Tables<'_>) -> Self {
        let pool = |template: &Template| &tables.snapshot.node_pools[template.pool];
        let limited = tables.templates.iter().filter(|template| !pool(template).limits.is_empty());
        let mut used: FxHashMap<&str, (Vec<i64>, i64)> = limited
            .map(|template| (pool(template).name.as_str(), (vec![0; tables.columns.len()], 0)))
            .collect();
        let nodes = if used.is_empty() { &[][..] } else { &tables.snapshot.nodes[..] };
        let mut capacity = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
            let entry = pool.filter(|_| !node.deleting).and_then(|pool| used.get_mut(pool));
            let Some(entry) = entry else { continue };
            capacity_of(tables, index, &mut capacity);
            entry.0.iter_mut().zip(&capacity).for_each(|(sum, amount)| *sum += amount);
            entry.1 += 1;
        }
        let pools: Vec<PoolLimits> = tables
            .templates
            .iter()
            .map(|template| {
                let pool = &tables.snapshot.node_pools[template.pool];
                let used = used.get(pool.name.as_str());
                let mut limits = PoolLimits::default();
                for (name, &limit) in &pool.limits {
                    if name == "nodes" {
                        limits.nodes = Some((limit, limit - used.map_or(0, |used| used.1)));
                    } else if let Some(column) = tables.columns.index(name) {
                        let table = &tables.catalogs[template.catalog];
                        let mut descending: Vec<usize> = template.types.ones().collect();
                        let most = |kind: &usize| std::cmp::Reverse(table.capacity(*kind)[column]);
                        descending.sort_by_key(most);
                        let left = limit - used.map_or(0, |used| used.0[column]);
                        let descending = descending.into();
                        limits.amounts.push(Amount { column, limit, left, descending });
                    }
                }
                limits
            })
            .collect();
        let limited = tables.templates.iter().zip(&pools);
        let limited = limited.filter(|(_, pool)| !pool.amounts.is_empty());
        let rooms =
            limited.flat_map(|(template, _)| template.types.ones().map(|kind| template.net(kind)));
        let largest = rooms.fold([0; 2], |most, net| [0, 1].map(|at| net[at].max(most[at])));
        Self { pools, largest, needed: [0; 2] }
    }

    /// Whether a template's pool has limits at all.
    pub(crate) fn any(&self, template: usize) -> bool {
        let pool = &self.pools[template];
        pool.nodes.is_some() || !pool.amounts.is_empty()
    }

    /// Removes the types of which no more machine may be launched. The error, if none remains, is
    /// the exhausted limit.
    pub(crate) fn restrict(
        &self,
        tables: &Tables<'_>,
        template: usize,
        types: &mut FixedBitSet,
    ) -> Result<(), Exclusion> {
        let pool = &self.pools[template];
        if let Some((limit, left)) = pool.nodes.filter(|&(_, left)| left <= 0) {
            return Err(Exclusion::Limit {
                resource: "nodes".to_owned(),
                limit,
                used: limit - left,
            });
        }
        let table = &tables.catalogs[tables.templates[template].catalog];
        for amount in &pool.amounts {
            let (column, limit, left) = (amount.column, amount.limit, amount.left);
            if !amount.excludes(table, left) {
                continue;
            }
            for kind in types.ones().collect::<Vec<_>>() {
                if table.capacity(kind)[column] > left {
                    types.remove(kind);
                }
            }
            if types.is_clear() {
                let resource = tables.columns.name(column).to_owned();
                return Err(Exclusion::Limit { resource, limit, used: limit - left });
            }
        }
        Ok(())
    }

    /// Whether the remaining limits exclude types, or will after one more launch.
    pub(crate) fn binds(&self, tables: &Tables<'_>, template: usize) -> bool {
        let table = &tables.catalogs[tables.templates[template].catalog];
        let pool = &self.pools[template];
        pool.nodes.is_some_and(|(_, left)| left <= 1)
            || pool.amounts.iter().any(|amount| amount.excludes(table, amount.left))
    }

    /// The number of launches with the same types that the limits allow.
    pub(crate) fn affordable(
        &self,
        tables: &Tables<'_>,
        template: usize,
        types: &FixedBitSet,
    ) -> usize {
        let table = &tables.catalogs[tables.templates[template].catalog];
        let pool = &self.pools[template];
        let of_amounts =
            pool.amounts.iter().map(|amount| amount.left / amount.largest(table, types).max(1));
        let least = of_amounts.chain(pool.nodes.map(|(_, left)| left)).min();
        least.map_or(usize::MAX, |least| usize::try_from(least).unwrap_or(0))
    }

    /// Shares the remaining limits among the machines for these pods: their requests by column, and
    /// their number. Pods that no machine of a pool with limits could hold don't count.
    pub(crate) fn share_among<'r>(&mut self, pods: impl Iterator<Item = (&'r [i64], usize)>) {
        self.needed = [0; 2];
        if self.largest == [0; 2] {
            return;
        }
        let Self { largest, needed, .. } = self;
        for (requests, n) in pods.filter(|(it, _)| (0..2).all(|at| it[at] <= largest[at])) {
            let n = i64::try_from(n).unwrap_or(i64::MAX);
            *needed = [0, 1].map(|at| needed[at].saturating_add(requests[at].saturating_mul(n)));
        }
    }

    /// The types of a launch that do not use up the limit. A launch is charged with the largest of
    /// its types, so a small machine that could also become a huge one would prevent the pool from
    /// launching anything else. If all planned machines were like the cheapest of these types, each
    /// may be charged with half of its share of the remaining limit, and with an eighth of that
    /// limit at most.
    pub(crate) fn modest(
        &self,
        tables: &Tables<'_>,
        template: usize,
        types: &FixedBitSet,
        cheapest: usize,
    ) -> FixedBitSet {
        let table = &tables.catalogs[tables.templates[template].catalog];
        let mut modest = types.clone();
        let capacity = table.capacity(cheapest);
        let machines = [0, 1].map(|at| self.needed[at] / capacity[at].max(1));
        let part = machines[0].max(machines[1]).saturating_mul(2).max(8);
        for amount in &self.pools[template].amounts {
            let column = amount.column;
            let enough = capacity[column].max(amount.left / part);
            if !amount.excludes(table, enough) {
                continue;
            }
            for kind in types.ones() {
                if table.capacity(kind)[column] > enough {
                    modest.remove(kind);
                }
            }
        }
        modest
    }

    /// Keeps the types that have no more of the limited resources than some others, so that a
    /// launch is charged no more for them.
    pub(crate) fn keep_no_larger(
        &self,
        tables: &Tables<'_>,
        template: usize,
        types: &mut FixedBitSet,
        than: &FixedBitSet,
    ) {
        let table = &tables.catalogs[tables.templates[template].catalog];
        for amount in &self.pools[template].amounts {
            let most = amount.largest(table, than);
            if !amount.excludes(table, most) {
                continue;
            }
            for kind in types.ones().collect::<Vec<_>>() {
                if table.capacity(kind)[amount.column] > most {
                    types.remove(kind);
                }
            }
        }
    }

    /// Charges a launch with the largest of its types, per resource.
    pub(crate) fn charge(&mut self, tables: &Tables<'_>, template: usize, types: &FixedBitSet) {
        let table = &tables.catalogs[tables.templates[template].catalog];
        let pool = &mut self.pools[template];
        for amount in &mut pool.amounts {
            amount.left -= amount.largest(table, types);
        }
        if let Some((_, left)) = &mut pool.nodes {
            *left -= 1;
        }
    }

    /// Returns a machine's share of its pool's limits, for its replacement.
    pub(crate) fn credit(&mut self, tables: &Tables<'_>, machine: usize) {
        let node = &tables.snapshot.nodes[machine];
        let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
        let Some(template) = pool.and_then(|pool| tables.template_of(pool)) else { return };
        let mut capacity = Vec::new();
        capacity_of(tables, machine, &mut capacity);
        let pool = &mut self.pools[template];
        for amount in &mut pool.amounts {
            amount.left += capacity[amount.column];
        }
        if let Some((_, left)) = &mut pool.nodes {
            *left += 1;
        }
    }

    /// Caps the remaining limits at their previous values: the share of a machine is only for its
    /// own replacement.
    pub(crate) fn at_most(&mut self, before: &Self) {
        for (pool, before) in self.pools.iter_mut().zip(&before.pools) {
            pool.at_most(before);
        }
    }

    /// Caps the remaining limits at those of another problem with the same NodePools.
    pub(crate) fn at_most_in(&mut self, tables: &Tables<'_>, (other, left): (&Tables<'_>, &Self)) {
        for (template, pool) in tables.templates.iter().zip(&mut self.pools) {
            let same = other.templates.iter().position(|it| it.pool == template.pool);
            if let Some(same) = same {
                pool.at_most(&left.pools[same]);
            }
        }
    }
}

impl PoolLimits {
    fn at_most(&mut self, other: &Self) {
        for (amount, other) in self.amounts.iter_mut().zip(&other.amounts) {
            amount.left = amount.left.min(other.left);
        }
        if let (Some((_, left)), Some((_, other))) = (&mut self.nodes, other.nodes) {
            *left = other.min(*left);
        }
    }
}

/// The amounts of a machine that count against limits: its capacity or, for a claim without an
/// instance, the largest of its types.
fn capacity_of(tables: &Tables<'_>, machine: usize, capacity: &mut Vec<i64>) {
    let node = &tables.snapshot.nodes[machine];
    capacity.clear();
    tables.columns.extend_row(&node.capacity, capacity);
    if !node.capacity.is_zero() {
        return;
    }
    let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
    let pool =
        pool.and_then(|name| tables.snapshot.node_pools.iter().find(|pool| pool.name == name));
    if let Some(catalog) = pool.and_then(|pool| pool.catalog) {
        let catalog = catalog.0 as usize;
        for kind in promised_types(tables, machine, catalog).ones() {
            let row = tables.catalogs[catalog].capacity(kind);
            capacity.iter_mut().zip(row).for_each(|(most, &amount)| *most = amount.max(*most));
        }
    }
}
