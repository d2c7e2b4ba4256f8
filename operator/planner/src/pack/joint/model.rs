//! The problem in numbers: what may be bought, and what it has to hold.

use smallvec::SmallVec;

use super::super::knapsack::{Row, Takes};
use super::scope::{Crew, Scope};
use crate::dual::{Deal, Zone};
use crate::intern::Value;
use crate::machine_specs::{SpecId, by_price, frontier};
use crate::solver::Solver;
use crate::tables::fits;

/// With more kinds of machines the search takes long.
const BINS: usize = 2_048;

/// So many levels of filling zones are told apart for one shape, see [`Deal`]; with more of them
/// nothing is done.
const PODS: usize = 2_000;

/// A type of machine with a spec, in one zone if pods that are spread over zones may be on it.
pub(super) struct Bin {
    pub(super) spec: SpecId,
    /// The index of its type.
    pub(super) kind: usize,
    /// By column that anybody uses.
    pub(super) net: SmallVec<[i64; 6]>,
    pub(super) room: [f64; 2],
    pub(super) price: f64,
    /// The rows of which it holds a pod.
    pub(super) rows: Vec<usize>,
}

/// What the pods of a row have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Index of [`Scope::crews`].
    pub(super) crew: usize,
    /// Index of [`Model::zones`], for pods that are spread.
    pub(super) zone: Option<usize>,
}

/// How many pods of a crew there are, and where they may be.
pub(super) enum Places {
    /// They are all in one row.
    Free { row: usize, pods: usize },
    /// There is a row for each zone, and as many ways to deal them out as the rule leaves.
    Spread { rows: Vec<Option<usize>>, deal: Deal },
}

/// A machine with pods, by row.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) bin: usize,
    pub(super) takes: Takes,
}

/// Pods and machines.
pub(super) struct Model {
    pub(super) rows: Vec<Row>,
    /// Processors and memory, by row.
    pub(super) requests: Vec<[f64; 2]>,
    pub(super) sources: Vec<Source>,
    /// By crew.
    pub(super) places: Vec<Places>,
    /// Those of one spec follow each other, the cheapest first.
    pub(super) bins: Vec<Bin>,
    /// The number of types.
    pub(super) kinds: usize,
    /// Domains of the label that pods are spread over.
    zones: Vec<Value>,
}

impl Model {
    /// Nothing when there is too much of it, or no way to place all pods.
    pub(super) fn new(solver: &mut Solver<'_, '_>, scope: &Scope) -> Option<Self> {
        let problem = solver.problem;
        let zones: Vec<Value> = scope
            .crews
            .iter()
            .find_map(|crew| crew.spread.as_ref())
            .map(|evenly| evenly.domains.iter().map(|&(value, _)| value).collect())
            .unwrap_or_default();
        let specs = specs(solver, scope, &zones);
        let shape = |crew: &Crew| &problem.tables.shapes[crew.shape];
        let used = |column: usize| {
            column < 2 || scope.crews.iter().any(|crew| shape(crew).requests[column] > 0)
        };
        let columns: Vec<usize> =
            (0..problem.tables.columns.len()).filter(|&it| used(it)).collect();
        let of = |amounts: &[i64]| -> SmallVec<[i64; 6]> {
            columns.iter().map(|&column| amounts[column]).collect()
        };
        let mut model = Self {
            rows: Vec::new(),
            requests: Vec::new(),
            sources: Vec::new(),
            places: Vec::new(),
            bins: Vec::new(),
            kinds: 0,
            zones,
        };
        for (index, crew) in scope.crews.iter().enumerate() {
            let groups = problem.rules.alone_on_hosts(crew.shape);
            let row = Row::new(of(&shape(crew).requests), groups);
            let Some(evenly) = &crew.spread else {
                let row = model.add(Source { crew: index, zone: None }, row);
                model.places.push(Places::Free { row, pods: crew.pods.len() });
                continue;
            };
            if crew.pods.len() > PODS || evenly.domains.len() != model.zones.len() {
                return None;
            }
            let mut rows = Vec::new();
            for (zone, &(value, _)) in evenly.domains.iter().enumerate() {
                if model.zones[zone] != value {
                    return None;
                }
                let is_open = specs
                    .iter()
                    .any(|&(spec, at)| at == Some(zone) && holds_any(solver, spec, crew.shape));
                let source = Source { crew: index, zone: Some(zone) };
                rows.push(is_open.then(|| model.add(source, row.clone())));
            }
            let zone = |row: &Option<usize>| row.map_or(Zone::Closed, Zone::Item);
            let there: Vec<u32> = evenly.domains.iter().map(|&(_, there)| there).collect();
            let deal = Deal::new(
                crew.pods.len(),
                rows.iter().map(zone).collect(),
                &there,
                evenly.max_skew,
                evenly.is_short,
            )?;
            if !deal.is_exact() {
                return None;
            }
            model.places.push(Places::Spread { rows, deal });
        }
        for (spec, zone) in specs {
            model.add_bins(solver, scope, spec, zone, &of);
        }
        let is_held = |row: usize| model.bins.iter().any(|bin| bin.rows.contains(&row));
        let possible = model.bins.len() <= BINS && (0..model.rows.len()).all(is_held);
        possible.then_some(model)
    }

    #[expect(clippy::cast_precision_loss, reason = "a relaxation")]
    fn add(&mut self, source: Source, row: Row) -> usize {
        self.requests.push([row.requests[0] as f64, row.requests[1] as f64]);
        self.rows.push(row);
        self.sources.push(source);
        self.rows.len() - 1
    }

    /// Adds the types of a spec that are worth considering.
    #[expect(clippy::cast_precision_loss, reason = "a relaxation")]
    fn add_bins(
        &mut self,
        solver: &mut Solver<'_, '_>,
        scope: &Scope,
        spec: SpecId,
        zone: Option<usize>,
        of: &dyn Fn(&[i64]) -> SmallVec<[i64; 6]>,
    ) {
        let problem = solver.problem;
        let template = solver.specs[spec].template;
        let mut allowed = solver.specs[spec].types.clone();
        if solver.limits.restrict(&problem.tables, template, &mut allowed).is_err() {
            return;
        }
        let admitted: Vec<usize> = (0..self.rows.len())
            .filter(|&row| {
                let source = self.sources[row];
                let class = problem.tables.shapes[scope.crews[source.crew].shape].class;
                source.zone.is_none_or(|it| zone == Some(it))
                    && solver.specs.keeps(&problem.tables, spec, class, 0)
            })
            .collect();
        let current = &solver.specs[spec];
        let ranked = by_price(&allowed, |kind| current.price(kind));
        let node_price = problem.tables.policy.node_price.0;
        let mut kinds = frontier(&problem.tables, template, &ranked);
        kinds.sort_by_key(|&kind| current.price(kind));
        for kind in kinds {
            let net = of(problem.tables.templates[template].net(kind));
            let holds = |&row: &usize| fits(&self.rows[row].requests, &net);
            let rows: Vec<usize> = admitted.iter().copied().filter(holds).collect();
            if rows.is_empty() {
                continue;
            }
            self.kinds = self.kinds.max(kind + 1);
            let room = [net[0].max(1) as f64, net[1].max(1) as f64];
            let price = current.price(kind).saturating_add(node_price).max(1) as f64;
            self.bins.push(Bin { spec, kind, net, room, price, rows });
        }
    }

    /// A machine of the plan; nothing where the model has none like it.
    pub(super) fn machine(
        &self,
        solver: &mut Solver<'_, '_>,
        scope: &Scope,
        claim: usize,
    ) -> Option<Machine> {
        let problem = solver.problem;
        let claim = &solver.claims[claim];
        let zone = scope.key.and_then(|key| {
            match *solver.specs.values(&problem.tables, claim.spec, key) {
                [value] => self.zones.iter().position(|&it| it == value),
                _ => None,
            }
        });
        let mut takes = Takes::new();
        for (index, crew) in scope.crews.iter().enumerate() {
            let n = claim
                .pods
                .iter()
                .filter(|&&pod| problem.tables.snapshot.pods[pod].shape.0 as usize == crew.shape)
                .count();
            if n > 0 {
                let row = match &self.places[index] {
                    Places::Free { row, .. } => *row,
                    Places::Spread { rows, .. } => rows[zone?]?,
                };
                takes.push((row, n));
            }
        }
        takes.sort_unstable();
        let holds = |bin: &Bin| {
            takes.iter().all(|(row, _)| bin.rows.contains(row)) && self.fits(bin, &takes)
        };
        let (bin, _) = self
            .bins
            .iter()
            .enumerate()
            .filter(|(_, bin)| holds(bin))
            .min_by(|a, b| a.1.price.total_cmp(&b.1.price))?;
        Some(Machine { bin, takes })
    }

    /// Whether a machine has room for pods.
    pub(super) fn fits(&self, bin: &Bin, takes: &Takes) -> bool {
        bin.net.iter().enumerate().all(|(column, &have)| {
            let of = |&(row, n): &(usize, usize)| {
                let n = i64::try_from(n).unwrap_or(i64::MAX);
                self.rows[row].requests[column].saturating_mul(n)
            };
            takes.iter().map(of).fold(0_i64, i64::saturating_add) <= have
        })
    }

    /// The cheapest type of a machine's spec that holds some pods, by bin.
    pub(super) fn cheapest(&self, bin: usize, takes: &Takes) -> usize {
        let spec = self.bins[bin].spec;
        let first = self.bins[..bin].iter().rposition(|it| it.spec != spec).map_or(0, |at| at + 1);
        let holds = |at: &usize| {
            let bin = &self.bins[*at];
            takes.iter().all(|(row, _)| bin.rows.contains(row)) && self.fits(bin, takes)
        };
        (first..bin).find(holds).unwrap_or(bin)
    }
}

/// The specs in which machines may be opened, with the zone where they are: those that pods of a
/// crew have alone, in each zone, and anywhere for pods that are not spread.
fn specs(
    solver: &mut Solver<'_, '_>,
    scope: &Scope,
    zones: &[Value],
) -> Vec<(SpecId, Option<usize>)> {
    let problem = solver.problem;
    let Some(&claim) = scope.claims.first() else { return Vec::new() };
    let template = solver.specs[solver.claims[claim].spec].template;
    let base = solver.specs.base(&problem.tables, template);
    let mut found: Vec<(SpecId, Option<usize>)> = Vec::new();
    let mut add = |spec: SpecId, zone: Option<usize>| {
        if found.iter().all(|&(known, _)| known != spec) {
            found.push((spec, zone));
        }
    };
    for crew in &scope.crews {
        let class = problem.tables.shapes[crew.shape].class;
        let Ok(own) = solver.specs.join(&problem.tables, base, class, 0) else { continue };
        if let Some(key) = scope.key {
            for (zone, &value) in zones.iter().enumerate() {
                if let Some(there) = solver.specs.at(&problem.tables, own, key, value) {
                    add(there, Some(zone));
                }
            }
        }
        if crew.spread.is_none() {
            add(own, None);
        }
    }
    found
}

/// Whether some type of a spec holds a pod.
fn holds_any(solver: &Solver<'_, '_>, spec: SpecId, shape: usize) -> bool {
    let problem = solver.problem;
    let shape = &problem.tables.shapes[shape];
    if !solver.specs.keeps(&problem.tables, spec, shape.class, 0) {
        return false;
    }
    let mut types = solver.specs[spec].types.clone();
    solver.keep_fitting(&mut types, solver.specs[spec].template, &shape.requests, &shape.ports);
    !types.is_clear()
}
