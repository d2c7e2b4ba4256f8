//! A last look at all machines to come: pods move into room on others, so that theirs may be
//! smaller or need not come.
//!
//! Machines are filled one after the other, and once the last pods have a place there is room left
//! here and there. Types come in steps: a pod that leaves may save a step where it was and cost
//! none where it goes. And a machine whose pods all find a place on others does not come at all,
//! even if these have to become larger, as long as that costs less than the machine.
//!
//! Zones and other domains stay as they are: pods that rules about them count only move between
//! machines of one spec. Rules about hosts are asked for each move.

use smallvec::SmallVec;

use super::bins::Bins;
use super::strategy::Strategy;
use crate::Cancel;
use crate::solver::{Place, Solver, none_left_out, room_for};
use crate::tables::shapes::ports_conflict;
use crate::tables::{add_times, fits, take_times};
use crate::topology::Mobility;

/// How many machines that would have to grow are compared for one pod.
const GROWING: usize = 6;

/// How many machines are looked at for one pod that rules may keep off them.
const LOOKS: usize = 24;

/// So many specs besides its own are looked at for a pod.
const SPECS: usize = 64;

/// Machines with more pods than this are not dissolved: hardly ever is there a place for all of
/// them.
const DISSOLVED: usize = 32;

/// Moves pods between machines to come where the plan gets cheaper by it, as far as counts are up
/// to date. Only for a finished plan: claims have other numbers then.
pub(crate) fn relocate(solver: &mut Solver<'_, '_>, cancel: &dyn Cancel) {
    if solver.claims.len() < 2 || cancel.is_cancelled() {
        return;
    }
    let mut bins = Bins::new(solver, Strategy::Cheapest);
    let bound: Vec<bool> = (0..solver.claims.len()).map(|claim| is_bound(solver, claim)).collect();
    for claim in (0..bound.len()).filter(|&claim| bound[claim]) {
        bins.close(claim);
    }
    let mobility = vec![None; solver.problem.tables.shapes.len()];
    let mut relocation = Relocation { solver, bins, bound, mobility };
    relocation.shrink(cancel);
    relocation.dissolve(cancel);
    solver.claims.retain(|claim| !claim.pods.is_empty());
    solver.narrow_claims();
}

/// Whether more than room decides about a machine's types, so that it stays as it is.
fn is_bound(solver: &Solver<'_, '_>, claim: usize) -> bool {
    let claim = &solver.claims[claim];
    let has_claims = |&pod: &usize| solver.problem.tables.shapes[shape_of(solver, pod)].has_claims;
    let with_devices = solver.devices.is_some() && claim.pods.iter().any(has_claims);
    with_devices || solver.specs[claim.spec].requirements.has_min_values()
}

fn shape_of(solver: &Solver<'_, '_>, pod: usize) -> usize {
    solver.problem.tables.snapshot.pods[pod].shape.0 as usize
}

struct Relocation<'s, 'p, 'a> {
    solver: &'s mut Solver<'p, 'a>,
    /// Machines to come by the room that their target leaves.
    bins: Bins,
    /// By claim, see [`is_bound`].
    bound: Vec<bool>,
    /// By shape, once somebody has asked.
    mobility: Vec<Option<Mobility>>,
}

/// Another machine to come as a place for a pod that moves.
struct Elsewhere<'r, 's, 'p, 'a> {
    relocation: &'r Relocation<'s, 'p, 'a>,
    to: usize,
    shape: usize,
    /// What the type that it aims at has to hold, if it must not grow.
    requests: Option<&'r [i64]>,
}

impl Place for Elsewhere<'_, '_, '_, '_> {
    fn by_room(&mut self) -> usize {
        let room = self.relocation.bins.room(self.to);
        usize::from(self.requests.is_none_or(|requests| fits(requests, room)))
    }

    fn by_hosts(&mut self) -> usize {
        let solver = &self.relocation.solver;
        usize::from(solver.counts.suits_host(&solver.problem.topology(), self.shape, self.to))
    }
}

/// A pod that has come to a machine.
struct Moved {
    shape: usize,
    to: usize,
    /// What the machine aimed at before.
    target: usize,
}

impl Relocation<'_, '_, '_> {
    /// Lets pods leave for room elsewhere where that makes their machine cheaper.
    fn shrink(&mut self, cancel: &dyn Cancel) {
        let mut in_vain = None;
        for claim in 0..self.solver.claims.len() {
            if cancel.is_cancelled() {
                return;
            }
            if !self.bound[claim] && !self.is_like(claim, in_vain) {
                in_vain = if self.shrink_one(claim) { None } else { Some(claim) };
            }
        }
    }

    /// Whether a machine holds as much as another that was tried in vain: what is bought many times
    /// is tried once.
    fn is_like(&self, claim: usize, in_vain: Option<usize>) -> bool {
        in_vain.is_some_and(|other| {
            let (it, other) = (&self.solver.claims[claim], &self.solver.claims[other]);
            (it.spec, it.target) == (other.spec, other.target) && it.used == other.used
        })
    }

    /// Returns whether any pod has left.
    fn shrink_one(&mut self, claim: usize) -> bool {
        let problem = self.solver.problem;
        let mut cheaper = self.cheaper(claim);
        if cheaper.is_empty() {
            return false;
        }
        let mut shrunk = false;
        for pod in self.largest_first(claim) {
            let shape = shape_of(self.solver, pod);
            let requests = &problem.tables.shapes[shape].requests;
            if self.mobility(shape) == Mobility::Stays
                || !self.do_without(claim, requests, &cheaper)
            {
                continue;
            }
            if let Some(to) = self.room_elsewhere(claim, shape) {
                self.put(pod, claim, to);
                self.take_off(pod, claim);
                cheaper = self.cheaper(claim);
                shrunk = true;
            }
        }
        shrunk
    }

    /// Lets whole machines go, the cheapest first.
    fn dissolve(&mut self, cancel: &dyn Cancel) {
        let mut order: Vec<usize> = (0..self.solver.claims.len()).collect();
        order.sort_by_key(|&claim| (self.price(claim), claim));
        let mut in_vain = None;
        for claim in order {
            if cancel.is_cancelled() {
                return;
            }
            let pods = self.solver.claims[claim].pods.len();
            let tried = self.bound[claim] || self.is_like(claim, in_vain);
            if !tried && (1..=DISSOLVED).contains(&pods) {
                in_vain = if self.dissolve_one(claim) { None } else { Some(claim) };
            }
        }
    }

    /// Finds places elsewhere for all pods of a machine, for less than it costs. Returns whether
    /// there are.
    fn dissolve_one(&mut self, claim: usize) -> bool {
        let pods = self.largest_first(claim);
        for &pod in &pods {
            let shape = shape_of(self.solver, pod);
            if self.mobility(shape) == Mobility::Stays || !self.has_host_elsewhere(claim, shape) {
                return false;
            }
        }
        let saved = self.price(claim) + self.solver.problem.tables.policy.node_price.0;
        let (mut spent, mut moves) = (0, Vec::with_capacity(pods.len()));
        for &pod in &pods {
            let shape = shape_of(self.solver, pod);
            let place = match self.room_elsewhere(claim, shape) {
                Some(to) => Some((0, to, self.solver.claims[to].target)),
                None => self.growing(claim, shape),
            };
            let Some((dearer, to, target)) = place.filter(|&(dearer, ..)| spent + dearer < saved)
            else {
                self.take_back(claim, &moves);
                return false;
            };
            spent += dearer;
            moves.push(Moved { shape, to, target: self.solver.claims[to].target });
            self.solver.claims[to].target = target;
            self.put(pod, claim, to);
        }
        self.solver.claims[claim].pods.clear();
        self.bins.close(claim);
        true
    }

    /// Undoes moves of pods that are still on their machine as well.
    fn take_back(&mut self, from: usize, moves: &[Moved]) {
        for moved in moves.iter().rev() {
            let requests = &self.solver.problem.tables.shapes[moved.shape].requests;
            let claim = &mut self.solver.claims[moved.to];
            claim.pods.pop();
            take_times(&mut claim.used, requests, 1);
            claim.target = moved.target;
            self.count(moved.shape, moved.to, from);
            self.bins.refresh(self.solver, moved.to);
        }
    }

    /// What a machine costs.
    fn price(&self, claim: usize) -> i64 {
        let claim = &self.solver.claims[claim];
        self.solver.specs[claim.spec].price(claim.target)
    }

    /// How a pod's shape may move.
    fn mobility(&mut self, shape: usize) -> Mobility {
        let problem = self.solver.problem;
        *self.mobility[shape].get_or_insert_with(|| {
            let compiled = &problem.tables.shapes[shape];
            let free = compiled.ports.is_empty() && !compiled.has_claims;
            if free { problem.rules.mobility(shape) } else { Mobility::Stays }
        })
    }

    /// The pods of a machine, the largest first.
    fn largest_first(&self, claim: usize) -> SmallVec<[usize; 16]> {
        let mut pods: SmallVec<[usize; 16]> = self.solver.claims[claim].pods.as_slice().into();
        pods.sort_by_key(|&pod| {
            let requests = &self.solver.problem.tables.shapes[shape_of(self.solver, pod)].requests;
            std::cmp::Reverse((requests[0], requests[1]))
        });
        pods
    }

    /// Cheaper types that may hold a machine's pods but for one.
    fn cheaper(&self, claim: usize) -> SmallVec<[usize; 8]> {
        let problem = self.solver.problem;
        let claim = &self.solver.claims[claim];
        let mut largest = vec![0; claim.used.len()];
        for &pod in &claim.pods {
            let requests = &problem.tables.shapes[shape_of(self.solver, pod)].requests;
            largest.iter_mut().zip(requests).for_each(|(most, &amount)| *most = amount.max(*most));
        }
        let mut least = claim.used.clone();
        take_times(&mut least, &largest, 1);
        let spec = &self.solver.specs[claim.spec];
        let template = &problem.tables.templates[spec.template];
        let price = spec.price(claim.target);
        let cheaper = spec.ranked(&spec.types).take_while(|&kind| spec.price(kind) < price);
        let holds = |&kind: &usize| {
            fits(&least, template.net(kind))
                && !ports_conflict(&claim.ports, template.overheads.ports(kind))
        };
        cheaper.filter(holds).collect()
    }

    /// Whether one of some types holds a machine's pods but for one with such requests.
    fn do_without(&self, claim: usize, requests: &[i64], types: &[usize]) -> bool {
        let claim = &self.solver.claims[claim];
        let template =
            &self.solver.problem.tables.templates[self.solver.specs[claim.spec].template];
        types.iter().any(|&kind| {
            let mut rows = claim.used.iter().zip(requests).zip(template.net(kind));
            rows.all(|((&used, &less), &have)| used - less <= have)
        })
    }

    /// Whether rules about hosts leave any other machine for a shape.
    fn has_host_elsewhere(&mut self, claim: usize, shape: usize) -> bool {
        self.ask_others(claim, shape, None, |_, to| Some(to)).is_some()
    }

    /// Another machine that holds a pod of a shape as it is.
    fn room_elsewhere(&mut self, claim: usize, shape: usize) -> Option<usize> {
        let requests = &self.solver.problem.tables.shapes[shape].requests;
        self.ask_others(claim, shape, Some(requests), |_, to| Some(to))
    }

    /// Of some other machines the one that gets least dearer by a pod of a shape: by how much,
    /// which, and what it then aims at.
    fn growing(&mut self, claim: usize, shape: usize) -> Option<(i64, usize, usize)> {
        let requests = &self.solver.problem.tables.shapes[shape].requests;
        let mut best: Option<(i64, usize, usize)> = None;
        let mut compared = 0;
        self.ask_others(claim, shape, None, |this, to| {
            let spec = this.solver.claims[to].spec;
            let types = this.solver.with(to, spec, requests, &[], 1);
            if let Some(target) = this.solver.specs[spec].cheapest(&types) {
                let dearer = this.solver.specs[spec].price(target) - this.price(to);
                if best.is_none_or(|(least, ..)| dearer < least) {
                    best = Some((dearer, to, target));
                }
            }
            compared += 1;
            (compared == GROWING).then_some(())
        });
        best
    }

    /// Asks one after the other of the machines that admit a pod of a shape, with requests for
    /// which they have room as they are, until one answers.
    fn ask_others<T>(
        &mut self,
        claim: usize,
        shape: usize,
        requests: Option<&[i64]>,
        mut ask: impl FnMut(&Self, usize) -> Option<T>,
    ) -> Option<T> {
        let problem = self.solver.problem;
        let slots = self.slots(claim, shape);
        let closed = self.solver.counts.closed_hosts(&problem.topology(), shape, 0, true);
        let query = requests.map(|requests| self.bins.query(requests)).unwrap_or_default();
        let mut looks = 0;
        for slot in slots {
            let mut from = 0;
            loop {
                let found = self.bins.next(&query, slot, &closed, from);
                let room =
                    |to| room_for(&mut Elsewhere { relocation: self, to, shape, requests }, 1);
                none_left_out(self.bins.passed_over(slot, from, found), room);
                let Some(to) = found else { break };
                (from, looks) = (to + 1, looks + 1);
                if looks > LOOKS {
                    return None;
                }
                if to != claim
                    && room(to) > 0
                    && let Some(answer) = ask(self, to)
                {
                    return Some(answer);
                }
            }
        }
        None
    }

    /// The specs of machines on which a pod of a machine may be, as numbers in [`Bins`], its own
    /// first.
    fn slots(&mut self, claim: usize, shape: usize) -> SmallVec<[usize; 8]> {
        let problem = self.solver.problem;
        let own = self.solver.claims[claim].spec;
        let moves_far = self.mobility(shape) == Mobility::InTemplate;
        let class = problem.tables.shapes[shape].class;
        let specs = &self.solver.specs;
        let others = self.bins.live().filter(|&slot| {
            let spec = self.bins.spec(slot);
            spec != own
                && specs[spec].template == specs[own].template
                && specs.keeps(&problem.tables, spec, class, 0)
        });
        let mut slots: SmallVec<[usize; 8]> = SmallVec::new();
        slots.push(self.bins.slot_of(claim));
        if moves_far {
            slots.extend(others.take(SPECS));
        }
        slots
    }

    /// Puts a pod of one machine on another.
    fn put(&mut self, pod: usize, from: usize, to: usize) {
        let shape = shape_of(self.solver, pod);
        let claim = &mut self.solver.claims[to];
        claim.pods.push(pod);
        add_times(&mut claim.used, &self.solver.problem.tables.shapes[shape].requests, 1);
        self.count(shape, from, to);
        self.bins.refresh(self.solver, to);
    }

    /// Takes a pod that is on another machine now off the one where it was, which may then be
    /// smaller.
    fn take_off(&mut self, pod: usize, claim: usize) {
        let problem = self.solver.problem;
        let shape = shape_of(self.solver, pod);
        let left = &mut self.solver.claims[claim];
        left.pods.retain(|&other| other != pod);
        take_times(&mut left.used, &problem.tables.shapes[shape].requests, 1);
        if left.pods.is_empty() {
            self.bins.close(claim);
            return;
        }
        let left = &self.solver.claims[claim];
        let spec = &self.solver.specs[left.spec];
        let mut types = spec.types.clone();
        self.solver.keep_fitting(&mut types, spec.template, &left.used, &left.ports);
        self.solver.limits.keep_no_larger(&problem.tables, spec.template, &mut types, &left.types);
        let target = spec.cheapest(&types).unwrap_or(left.target);
        let left = &mut self.solver.claims[claim];
        (left.target, left.types) = (target, types);
        self.bins.refresh(self.solver, claim);
    }

    /// Counts a pod on another machine, for rules about hosts.
    fn count(&mut self, shape: usize, from: usize, to: usize) {
        let problem = self.solver.problem;
        for (claim, by) in [(from, -1), (to, 1)] {
            self.solver.counts.add_on_host(&problem.topology(), shape, claim, by);
        }
    }
}
