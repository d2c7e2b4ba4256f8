//! The problem in numbers: rows of pods that nothing tells apart, and the machines that may be
//! bought for them.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::super::knapsack::{Prospect, Row, Takes};
use super::super::load::Load;
use super::clusters::{Point, clusters};
use super::pools::Pools;
use super::{Candidate, Crew, Known};
use crate::demands::{Demand, LaunchOption};
use crate::dual::{Deals, Item, Kind, evaluate, exact};
use crate::machine_specs::{SpecId, by_price, frontier};
use crate::solver::Solver;
use crate::topology::HostGroup;

/// So many clusters of rows are weighed at most: the work of a step is their square.
const CLUSTERS: usize = 48;

/// With more specs than this nothing is done.
const SPECS: usize = 16;

/// So many types of machines take part, those whose loads are worth most in the relaxation.
const BINS: usize = 64;

/// So are those whose loads are worth so little of their price left out.
const PROMISING: f64 = 0.7;

/// So many types are kept for each cluster of pods that keep off each other's hosts.
const CHEAPEST: usize = 3;

/// How much the relaxation may cost, see [`exact`].
const WORK: u64 = 2_000_000;

/// The same when a part of the pods has been packed.
const REVALUED: u64 = 200_000;

/// A machine that loads may be for.
pub(super) struct Bin {
    pub(super) spec: SpecId,
    /// Index of [`Table::specs`].
    pub(super) place: usize,
    /// By column that anybody uses.
    pub(super) net: SmallVec<[i64; 6]>,
    pub(super) room: [f64; 2],
    pub(super) price: f64,
    /// Rows of which it holds a pod.
    pub(super) rows: Vec<usize>,
    /// Clusters of which it holds every pod.
    pub(super) clusters: Vec<usize>,
}

/// Rows that are weighed as one.
pub(super) struct Cluster {
    pub(super) rows: Vec<usize>,
    /// How many of its pods a machine holds at most, whatever its size.
    pub(super) most: usize,
    /// Index of [`Table::pools`], if only so many of its pods may be in each spec.
    pub(super) pool: Option<usize>,
}

/// Pods that have no place, as the covering problem counts them.
#[derive(Clone, Debug)]
pub(super) struct Left {
    /// By cluster.
    pub(super) pods: Vec<usize>,
    /// By limit: the pods that it still admits.
    pub(super) places: Vec<usize>,
}

/// The problem in numbers.
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
    /// Demands by row.
    pub(super) demands: Vec<Vec<usize>>,
    /// Pods by row.
    pub(super) left: Vec<usize>,
    /// What a pod is worth in the relaxation, by row.
    pub(super) values: Vec<f64>,
    pub(super) clusters: Vec<Cluster>,
    /// By row.
    pub(super) cluster_of: Vec<usize>,
    /// By cluster: what its pods request on average, rounded up.
    pub(super) means: Vec<Row>,
    /// Processors and memory of these.
    pub(super) requests: Vec<[f64; 2]>,
    /// What a pod is worth in the relaxation, by cluster.
    pub(super) worths: Vec<f64>,
    pub(super) bins: Vec<Bin>,
    /// By row: the crew that its pods belong to, as an index of `seats`.
    pub(super) crew_of: Vec<Option<usize>>,
    /// By crew: how many of its pods may be in each spec.
    pub(super) seats: Vec<Vec<usize>>,
    pub(super) pools: Pools,
    specs: Vec<SpecId>,
}

impl Left {
    /// What the covering problem asks for, by row.
    #[expect(clippy::cast_precision_loss, reason = "amounts of pods")]
    pub(super) fn demand(&self) -> Vec<f64> {
        let pods = self.pods.iter().map(|&pods| pods as f64);
        pods.chain(self.places.iter().map(|&pods| -(pods as f64))).collect()
    }
}

/// What pods of one row have in common: the spec that they open machines in, whether they are only
/// on machines of that spec, their crew, class and variant, requests, and groups that keep them
/// apart.
type Alike = (SpecId, bool, Option<usize>, usize, usize, SmallVec<[i64; 6]>, Vec<HostGroup>);

impl Table {
    /// Nothing when there is too much of it, or nothing to weigh.
    pub(super) fn new(
        solver: &mut Solver<'_, '_>,
        demands: &[Demand],
        parts: &[Candidate],
        crews: &[Crew],
    ) -> Option<Self> {
        let problem = solver.problem;
        let used = |column: usize| {
            let shape = |part: &Candidate| &problem.tables.shapes[demands[part.demand].shape];
            column < 2 || parts.iter().any(|part| shape(part).requests[column] > 0)
        };
        let columns: Vec<usize> =
            (0..problem.tables.columns.len()).filter(|&it| used(it)).collect();
        let of = |amounts: &[i64]| -> SmallVec<[i64; 6]> {
            columns.iter().map(|&column| amounts[column]).collect()
        };
        let mut alike: BTreeMap<Alike, Vec<usize>> = BTreeMap::new();
        let mut specs = Vec::new();
        for part in parts {
            let demand = &demands[part.demand];
            let shape = &problem.tables.shapes[demand.shape];
            let LaunchOption::Feasible(_, spec) = demand.launch_option else { continue };
            let takes_part = demand.left() > 0
                && shape.ports.is_empty()
                && shape.requests[..2].iter().any(|&amount| amount > 0)
                && !solver.specs[spec].requirements.has_min_values();
            if takes_part {
                let all = part.crew.map_or(&[][..], |crew| &crews[crew].places);
                for spec in std::iter::once(spec).chain(all.iter().map(|&(spec, _)| spec)) {
                    if !specs.contains(&spec) {
                        specs.push(spec);
                    }
                }
                let requests = of(&shape.requests);
                let key = (
                    spec,
                    part.is_pinned,
                    part.crew,
                    shape.class,
                    demand.variant,
                    requests,
                    part.groups.clone(),
                );
                alike.entry(key).or_default().push(part.demand);
            }
        }
        // Ids depend on the order in which shapes come, that of demands does not.
        let mut alike: Vec<(Alike, Vec<usize>)> = alike.into_iter().collect();
        alike.sort_by_key(|(_, demands)| demands[0]);
        if alike.is_empty() || specs.len() > SPECS {
            return None;
        }
        let mut bins = Vec::new();
        for (place, &spec) in specs.iter().enumerate() {
            bins.extend(bins_of(solver, (spec, place), &alike, crews, &of));
        }
        let left: Vec<usize> = alike
            .iter()
            .map(|(_, of)| of.iter().map(|&demand| demands[demand].left()).sum())
            .collect();
        let seats = |crew: &Crew| {
            let of = |spec: &SpecId| crew.places.iter().find(|seats| seats.0 == *spec);
            specs.iter().map(|spec| of(spec).map_or(0, |seats| seats.1)).collect()
        };
        let seats: Vec<Vec<usize>> = crews.iter().map(seats).collect();
        Some(Self::of(alike, bins, left, seats, specs))
    }

    /// For rows with so many pods each and the machines that hold them.
    fn of(
        alike: Vec<(Alike, Vec<usize>)>,
        mut bins: Vec<Bin>,
        left: Vec<usize>,
        seats: Vec<Vec<usize>>,
        specs: Vec<SpecId>,
    ) -> Self {
        let member = |(alike, _): &(Alike, Vec<usize>)| Some((alike.2?, alike.3, alike.4));
        let pools = Pools::new(&seats, alike.iter().filter_map(member));
        let clusters = clusters_of(&alike, &left, &pools);
        let (mut rows, mut by_row, mut crew_of) = (Vec::new(), Vec::new(), Vec::new());
        for ((_, _, crew, .., requests, groups), demands_of) in alike {
            by_row.push(demands_of);
            crew_of.push(crew);
            rows.push(Row::new(requests, groups));
        }
        let means: Vec<Row> = clusters.iter().map(|it| mean(it, &rows, &left)).collect();
        let clusters: Vec<Cluster> =
            clusters.into_iter().map(|it| Cluster::new(it, &rows, &crew_of, &pools)).collect();
        let requests = means.iter().map(Row::amounts).collect();
        for bin in &mut bins {
            let holds = |&it: &usize| {
                clusters[it].rows.iter().all(|row| bin.rows.binary_search(row).is_ok())
            };
            bin.clusters = (0..clusters.len()).filter(holds).collect();
        }
        let mut cluster_of = vec![0; rows.len()];
        for (index, cluster) in clusters.iter().enumerate() {
            cluster.rows.iter().for_each(|&row| cluster_of[row] = index);
        }
        let mut table = Self {
            rows,
            demands: by_row,
            left,
            values: Vec::new(),
            clusters,
            cluster_of,
            means,
            requests,
            worths: Vec::new(),
            bins,
            crew_of,
            seats,
            pools,
            specs,
        };
        table.keep_promising();
        table
    }

    /// Loads of clusters like some loads of demands, on the cheapest machines that hold them.
    pub(super) fn known(&self, loads: &[Load]) -> Vec<Known> {
        let mut row_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (row, demands) in self.demands.iter().enumerate() {
            row_of.extend(demands.iter().map(|&demand| (demand, row)));
        }
        let known = |load: &Load| {
            let mut used: SmallVec<[i64; 6]> = SmallVec::from_elem(0, self.means[0].requests.len());
            let mut takes: BTreeMap<usize, usize> = BTreeMap::new();
            for (demand, n) in &load.takes {
                let row = *row_of.get(demand)?;
                let by = i64::try_from(*n).unwrap_or(i64::MAX);
                let sums = used.iter_mut().zip(&self.rows[row].requests);
                sums.for_each(|(sum, each)| *sum = sum.saturating_add(each.saturating_mul(by)));
                *takes.entry(self.cluster_of[row]).or_default() += n;
            }
            let holds = |bin: &Bin| {
                bin.spec == load.spec
                    && used.iter().zip(&bin.net).all(|(used, net)| used <= net)
                    && takes.keys().all(|it| bin.clusters.binary_search(it).is_ok())
            };
            let held = self.bins.iter().enumerate().filter(|(_, bin)| holds(bin));
            let (bin, _) = held.min_by(|a, b| a.1.price.total_cmp(&b.1.price))?;
            (!takes.is_empty()).then(|| Known { bin, takes: takes.into_iter().collect() })
        };
        let mut known: Vec<Known> = loads.iter().filter_map(known).collect();
        known.sort_by(|a, b| (a.bin, &a.takes).cmp(&(b.bin, &b.takes)));
        known.dedup_by(|a, b| (a.bin, &a.takes) == (b.bin, &b.takes));
        known
    }

    /// What is known of the loads of a bin at given values of clusters, of which some have pods.
    pub(super) fn prospect(&self, bin: &Bin, on: &[usize], values: &[f64]) -> Prospect {
        Prospect::new(&self.means, on, &self.requests, values, bin.room)
    }

    /// What the pods are worth in the relaxation.
    #[expect(clippy::cast_precision_loss, reason = "amounts of pods")]
    pub(super) fn worth(&self) -> f64 {
        self.values.iter().zip(&self.left).map(|(value, &pods)| value * pods as f64).sum()
    }

    /// Pods by cluster.
    fn by_cluster(&self, left: &[usize]) -> Vec<usize> {
        self.clusters.iter().map(|it| it.rows.iter().map(|&row| left[row]).sum()).collect()
    }

    /// Pods by cluster and places by limit, of pods by row and places by crew and spec.
    pub(super) fn left(&self, left: &[usize], seats: &[Vec<usize>]) -> Left {
        let places = self.pools.places(seats);
        Left { pods: self.by_cluster(left), places }
    }

    /// The limit on pods of a cluster in the spec of a bin.
    pub(super) fn limit(&self, cluster: usize, bin: usize) -> Option<usize> {
        self.pools.limit(self.clusters[cluster].pool?, self.bins[bin].place)
    }

    /// What pods are worth in each spec, by cluster: less where places there are scarce. One for
    /// all specs if there are no limits.
    pub(super) fn by_spec(&self, values: &[f64]) -> Vec<Vec<f64>> {
        let (pods, limits) = values.split_at(self.clusters.len());
        let of = |place: usize| {
            let each = pods.iter().zip(&self.clusters).map(|(value, cluster)| {
                let limit = cluster.pool.and_then(|pool| self.pools.limit(pool, place));
                value - limit.map_or(0.0, |limit| limits[limit])
            });
            each.collect()
        };
        (0..self.n_by_spec()).map(of).collect()
    }

    /// How many specs are told apart: one if there are no limits.
    pub(super) fn n_by_spec(&self) -> usize {
        if self.pools.n_limits > 0 { self.specs.len() } else { 1 }
    }

    /// What a load asks for, by row of the covering problem: pods of clusters, then of limits.
    #[expect(clippy::cast_precision_loss, reason = "amounts of pods")]
    pub(super) fn entries(&self, bin: usize, takes: &Takes) -> SmallVec<[(usize, f64); 8]> {
        let mut entries: SmallVec<[(usize, f64); 8]> =
            takes.iter().map(|&(cluster, n)| (cluster, n as f64)).collect();
        let pods = entries.len();
        for at in 0..pods {
            let (cluster, n) = entries[at];
            let Some(limit) = self.limit(cluster, bin) else { continue };
            let row = self.clusters.len() + limit;
            match entries[pods..].iter_mut().find(|(known, _)| *known == row) {
                Some((_, by)) => *by -= n,
                None => entries.push((row, -n)),
            }
        }
        entries
    }

    /// What a pod of each cluster is worth once only so many are left, wherever it may be.
    #[expect(clippy::cast_precision_loss, reason = "a relaxation")]
    pub(super) fn revalued(&self, left: &[usize]) -> Vec<f64> {
        let kinds: Vec<Kind> =
            self.bins.iter().map(|bin| Kind { room: bin.room, price: bin.price }).collect();
        let item = |(&pods, &requests)| Item { pods: pods as f64, requests, kinds: Vec::new() };
        let mut items: Vec<Item> = left.iter().zip(&self.requests).map(item).collect();
        for (index, bin) in self.bins.iter().enumerate() {
            bin.clusters.iter().for_each(|&it| items[it].kinds.push(index));
        }
        let values = exact(&kinds, &items, &Deals::default(), REVALUED).items;
        let finite = values.into_iter().map(|it| if it.is_finite() { it } else { 0.0 });
        finite.chain(std::iter::repeat_n(0.0, self.pools.n_limits)).collect()
    }

    /// Where pods keep off each other's hosts, the number of machines counts as much as what they
    /// hold, of which the relaxation knows nothing: the cheapest machines that hold one are kept.
    fn keep_cheapest_for_one(&self, kept: &mut [bool]) {
        let mut order: Vec<usize> = (0..self.bins.len()).collect();
        order.sort_by(|&a, &b| self.bins[a].price.total_cmp(&self.bins[b].price).then(a.cmp(&b)));
        for (cluster, _) in self.means.iter().enumerate().filter(|(_, mean)| mean.is_alone()) {
            let mut found: BTreeMap<SpecId, usize> = BTreeMap::new();
            for &bin in &order {
                if self.bins[bin].clusters.binary_search(&cluster).is_ok() {
                    let found = found.entry(self.bins[bin].spec).or_default();
                    *found += 1;
                    kept[bin] |= *found <= CHEAPEST;
                }
            }
        }
    }

    /// Leaves out machines that the relaxation has no use for; each cluster keeps one that holds
    /// it.
    #[expect(clippy::cast_precision_loss, reason = "a relaxation")]
    fn keep_promising(&mut self) {
        let kinds: Vec<Kind> =
            self.bins.iter().map(|bin| Kind { room: bin.room, price: bin.price }).collect();
        let item = |pods: usize, requests: [f64; 2]| Item {
            pods: pods as f64,
            requests,
            kinds: Vec::new(),
        };
        let mut items: Vec<Item> = Vec::new();
        for (cluster, pods) in self.by_cluster(&self.left).into_iter().enumerate() {
            items.push(item(pods, self.requests[cluster]));
        }
        let mut exact_items: Vec<Item> = Vec::new();
        for (row, &pods) in self.rows.iter().zip(&self.left) {
            exact_items.push(item(pods, row.amounts()));
        }
        for (index, bin) in self.bins.iter().enumerate() {
            bin.clusters.iter().for_each(|&it| items[it].kinds.push(index));
            bin.rows.iter().for_each(|&it| exact_items[it].kinds.push(index));
        }
        let finite = |values: Vec<f64>| -> Vec<f64> {
            values.into_iter().map(|it| if it.is_finite() { it } else { 0.0 }).collect()
        };
        let values = exact(&kinds, &items, &Deals::default(), WORK);
        self.values =
            finite(evaluate(&kinds, &exact_items, &Deals::default(), values.splits).items);
        // Nothing is known of what places in a spec are worth.
        let worths = finite(values.items);
        let mut ranked: Vec<(f64, usize)> = self
            .bins
            .iter()
            .enumerate()
            .map(|(index, bin)| {
                let most = self.prospect(bin, &bin.clusters, &worths).most;
                (most / bin.price, index)
            })
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut held = vec![false; self.clusters.len()];
        let mut kept = vec![false; self.bins.len()];
        self.keep_cheapest_for_one(&mut kept);
        for (rank, &(ratio, bin)) in ranked.iter().enumerate() {
            let needed = self.bins[bin].clusters.iter().any(|&it| !held[it]);
            if needed || kept[bin] || rank < BINS && ratio > PROMISING {
                kept[bin] = true;
                self.bins[bin].clusters.iter().for_each(|&it| held[it] = true);
            }
        }
        let mut kept = kept.into_iter();
        self.bins.retain(|_| kept.next().unwrap_or(false));
        self.worths =
            worths.into_iter().chain(std::iter::repeat_n(0.0, self.pools.n_limits)).collect();
        // What no machine holds is left to others.
        for (cluster, _) in self.clusters.iter().zip(held).filter(|(_, held)| !held) {
            cluster.rows.iter().for_each(|&row| self.left[row] = 0);
        }
    }
}

impl Bin {
    /// The entry for its spec of what there is for each spec, see [`Table::by_spec`].
    pub(super) fn here<'v, T>(&self, by_spec: &'v [Vec<T>]) -> &'v [T] {
        &by_spec[self.place.min(by_spec.len() - 1)]
    }
}

impl Cluster {
    fn new(rows: Vec<usize>, all: &[Row], crew_of: &[Option<usize>], pools: &Pools) -> Self {
        let alone = rows.iter().all(|&row| all[row].is_alone());
        let pool = rows.first().and_then(|&row| pools.of(crew_of[row]?));
        Self { most: if alone { rows.len() } else { usize::MAX }, rows, pool }
    }
}

/// What pods of some rows request on average, rounded up.
fn mean(of: &[usize], all: &[Row], left: &[usize]) -> Row {
    if let [row] = *of {
        return all[row].clone();
    }
    let pods: usize = of.iter().map(|&row| left[row]).sum();
    let by = i64::try_from(pods.max(1)).unwrap_or(i64::MAX);
    let mut requests: SmallVec<[i64; 6]> = SmallVec::from_elem(0, all[of[0]].requests.len());
    for &row in of {
        let n = i64::try_from(left[row]).unwrap_or(i64::MAX);
        let sums = requests.iter_mut().zip(&all[row].requests);
        sums.for_each(|(sum, each)| *sum = sum.saturating_add(each.saturating_mul(n)));
    }
    requests.iter_mut().for_each(|sum| *sum = *sum / by + i64::from(*sum % by > 0));
    // Groups of which each of them is a pod limit their average, too.
    let mut groups = all[of[0]].groups.clone();
    groups.retain(|group| of.iter().all(|&row| all[row].groups.contains(group)));
    Row::new(requests, groups)
}

/// Which rows are weighed as one, by their numbers.
#[expect(clippy::cast_precision_loss, reason = "shares, to compare them")]
fn clusters_of(alike: &[(Alike, Vec<usize>)], left: &[usize], pools: &Pools) -> Vec<Vec<usize>> {
    let amounts = |row: usize| [0, 1].map(|at| alike[row].0.5[at] as f64);
    let mut all = [0.0, 0.0];
    for (row, &pods) in left.iter().enumerate() {
        let of = amounts(row);
        for at in [0, 1] {
            all[at] += of[at] * pods as f64;
        }
    }
    // Together are pods that may be on the same machines, ask for the same of everything else, and
    // keep off each other's hosts for the same reason, if it is the one of most such pods.
    let mut apart: BTreeMap<usize, usize> = BTreeMap::new();
    for ((.., groups), &pods) in alike.iter().map(|(alike, _)| alike).zip(left) {
        for group in groups.iter().filter(|group| group.is_alone()) {
            *apart.entry(group.group).or_default() += pods;
        }
    }
    let apart = apart.into_iter().max_by_key(|&(group, pods)| (pods, std::cmp::Reverse(group)));
    let mut classes = BTreeMap::new();
    let points: Vec<Point> = (0..alike.len())
        .map(|row| {
            let (spec, is_pinned, crew, class, variant, requests, groups) = &alike[row].0;
            let next = classes.len();
            let is_apart = groups
                .iter()
                .any(|it| it.is_alone() && apart.is_some_and(|(group, _)| it.group == group));
            let key = (
                *spec,
                (*is_pinned, crew.and_then(|crew| pools.of(crew))),
                *class,
                *variant,
                &requests[2..],
                (is_apart, groups.iter().any(HostGroup::is_alone)),
            );
            let class = *classes.entry(key).or_insert(next);
            let of = amounts(row);
            let shares = [0, 1].map(|at| of[at] / f64::max(all[at], 1.0));
            Point { class, pods: left[row] as f64, shares }
        })
        .collect();
    clusters(&points, CLUSTERS)
}

/// The machines of a spec that hold pods of some rows.
#[expect(clippy::cast_precision_loss, reason = "a relaxation")]
fn bins_of(
    solver: &mut Solver<'_, '_>,
    (spec, place): (SpecId, usize),
    alike: &[(Alike, Vec<usize>)],
    crews: &[Crew],
    of: &dyn Fn(&[i64]) -> SmallVec<[i64; 6]>,
) -> Vec<Bin> {
    let problem = solver.problem;
    let template = solver.specs[spec].template;
    let mut allowed = solver.specs[spec].types.clone();
    if solver.limits.restrict(&problem.tables, template, &mut allowed).is_err() {
        return Vec::new();
    }
    // Pods that would open machines of other specs come along where they narrow nothing.
    let admits = |&(own, is_pinned, crew, class, variant, ..): &Alike| {
        if let Some(crew) = crew {
            return crews[crew].places.iter().any(|seats| seats.0 == spec);
        }
        own == spec
            || !is_pinned
                && solver.specs[own].template == template
                && solver.specs.keeps(&problem.tables, spec, class, variant)
    };
    let admitted: Vec<bool> = alike.iter().map(|(row, _)| admits(row)).collect();
    let current = &solver.specs[spec];
    let kinds = if allowed == current.types {
        current.frontier(&problem.tables).to_vec()
    } else {
        frontier(&problem.tables, template, &by_price(&allowed, |kind| current.price(kind)))
    };
    let bin = |kind: usize| {
        let net = of(problem.tables.templates[template].net(kind));
        let holds = |row: &usize| {
            let (.., requests, _) = &alike[*row].0;
            admitted[*row] && requests.iter().zip(&net).all(|(want, have)| want <= have)
        };
        let rows: Vec<usize> = (0..alike.len()).filter(holds).collect();
        let room = [net[0].max(1) as f64, net[1].max(1) as f64];
        let price =
            current.price(kind).saturating_add(problem.tables.policy.node_price.0).max(1) as f64;
        Bin { spec, place, net, room, price, rows, clusters: Vec::new() }
    };
    kinds.into_iter().map(bin).filter(|bin| !bin.rows.is_empty()).collect()
}
