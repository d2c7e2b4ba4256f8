//! NodePool limits: how much a pool may still launch.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use crate::compile::Problem;
use crate::compile::types::Template;
use crate::plan::Exclusion;

/// What is left of the limits of each template's pool.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pools: Vec<PoolLimits>,
}

#[derive(Clone, Debug, Default)]
struct PoolLimits {
    /// Column, limit and what is left of it.
    amounts: Vec<(usize, i64, i64)>,
    /// Limit of machines and how many may still come.
    nodes: Option<(i64, i64)>,
}

impl Limits {
    pub(crate) fn new(problem: &Problem<'_>) -> Self {
        let mut used: BTreeMap<&str, (Vec<i64>, i64)> = BTreeMap::new();
        for (index, node) in problem.snapshot.nodes.iter().enumerate() {
            let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
            let Some(pool) = pool.filter(|_| !node.deleting) else { continue };
            let entry = used.entry(pool).or_insert_with(|| (vec![0; problem.columns.len()], 0));
            let capacity = capacity_of(problem, index);
            entry.0.iter_mut().zip(capacity).for_each(|(sum, amount)| *sum += amount);
            entry.1 += 1;
        }
        let pools = problem
            .templates
            .iter()
            .map(|template| {
                let pool = &problem.snapshot.node_pools[template.pool];
                let used = used.get(pool.name.as_str());
                let mut limits = PoolLimits::default();
                for (name, &limit) in &pool.limits {
                    if name == "nodes" {
                        limits.nodes = Some((limit, limit - used.map_or(0, |used| used.1)));
                    } else if let Some(column) = problem.columns.index(name) {
                        limits.amounts.push((
                            column,
                            limit,
                            limit - used.map_or(0, |used| used.0[column]),
                        ));
                    }
                }
                limits
            })
            .collect();
        Self { pools }
    }

    /// Whether a template's pool has limits at all.
    pub(crate) fn any(&self, template: usize) -> bool {
        let pool = &self.pools[template];
        pool.nodes.is_some() || !pool.amounts.is_empty()
    }

    /// Takes out the types of which not one more may be launched. An error when none is left: the limit that is hit.
    pub(crate) fn restrict(
        &self,
        problem: &Problem<'_>,
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
        let table = &problem.catalogs[problem.templates[template].catalog];
        for &(column, limit, left) in &pool.amounts {
            for kind in types.ones().collect::<Vec<_>>() {
                if table.capacity(kind)[column] > left {
                    types.remove(kind);
                }
            }
            if types.is_clear() {
                let resource = problem.columns.name(column).to_owned();
                return Err(Exclusion::Limit { resource, limit, used: limit - left });
            }
        }
        Ok(())
    }

    /// Of the types that one launch may become, those that do not eat up the limit: a launch is charged with the largest of its types, so a small
    /// machine that could also become a huge one would keep the pool from launching anything else.
    pub(crate) fn modest(
        &self,
        problem: &Problem<'_>,
        template: usize,
        types: &FixedBitSet,
        cheapest: usize,
    ) -> FixedBitSet {
        let table = &problem.catalogs[problem.templates[template].catalog];
        let mut modest = types.clone();
        for &(column, _, left) in &self.pools[template].amounts {
            let enough = table.capacity(cheapest)[column].max(left / 8);
            for kind in types.ones() {
                if table.capacity(kind)[column] > enough {
                    modest.remove(kind);
                }
            }
        }
        modest
    }

    /// Charges a launch with the largest of its types, per resource.
    pub(crate) fn charge(&mut self, problem: &Problem<'_>, template: usize, types: &FixedBitSet) {
        let table = &problem.catalogs[problem.templates[template].catalog];
        let pool = &mut self.pools[template];
        for (column, _, left) in &mut pool.amounts {
            let largest = types.ones().map(|kind| table.capacity(kind)[*column]).max();
            *left -= largest.unwrap_or(0);
        }
        if let Some((_, left)) = &mut pool.nodes {
            *left -= 1;
        }
    }
}

/// What counts of a machine against limits: its capacity, or the largest that a claim without an instance may become.
fn capacity_of(problem: &Problem<'_>, machine: usize) -> Vec<i64> {
    let node = &problem.snapshot.nodes[machine];
    let mut capacity = problem.columns.row(&node.capacity);
    if !node.capacity.is_zero() {
        return capacity;
    }
    let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
    let pool =
        pool.and_then(|name| problem.snapshot.node_pools.iter().find(|pool| pool.name == name));
    if let Some(catalog) = pool.and_then(|pool| pool.catalog) {
        let catalog = catalog.0 as usize;
        for kind in promised_types(problem, machine, catalog).ones() {
            let row = problem.catalogs[catalog].capacity(kind);
            capacity.iter_mut().zip(row).for_each(|(most, &amount)| *most = amount.max(*most));
        }
    }
    capacity
}

/// The types that a claim without an instance lists.
pub(crate) fn promised_types(problem: &Problem<'_>, machine: usize, catalog: usize) -> FixedBitSet {
    let table = &problem.catalogs[catalog];
    let mut types = FixedBitSet::with_capacity(table.len());
    let promised = problem.machines.promised[machine].get(problem.keys.instance_type);
    for &value in promised.and_then(|set| set.listed()).unwrap_or_default() {
        if let Some(kind) = table.find(problem.symbols.value_name(value)) {
            types.insert(kind);
        }
    }
    types
}

/// A template's pool's name.
pub(crate) fn pool_name<'p>(problem: &'p Problem<'_>, template: &Template) -> &'p str {
    &problem.snapshot.node_pools[template.pool].name
}
