//! Unallocated devices while a plan is made, and the devices of claims.

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::search::{Deadlock, Item, Pick, Search, Side, Site, Stock};
use super::usage::{TEMPLATE, Usage};
use super::{Table, profiles_of};
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::plan::Exclusion;
use crate::requirements::Requirements;
use crate::snapshot::{ClaimSpec, Placement};
use crate::tables::{Tables, machine_meets};

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spot {
    /// Existing: index into [`crate::Snapshot::nodes`].
    Machine(usize),
    /// Planned: index into [`crate::solver::Solver::claims`].
    Claim(usize),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(super) used: Usage,
    /// Taken by claims whose pods move.
    pub(super) freed: Usage,
    /// Taken of the devices that a machine will have, by profile.
    on_machines: FxHashMap<(Spot, u32), Usage>,
    pub(super) seats: FxHashMap<u32, Seat>,
    /// Pods that move.
    leaving: FxHashSet<usize>,
    released: FxHashSet<u32>,
    /// Searches that failed for pods none of whose claims had devices: machine, shape, spec.
    pub(super) failed: FxHashMap<(Spot, u32, Option<SpecId>), Deadlock>,
    /// The result of the last successful search on a machine.
    proposal: Option<Proposal>,
}

/// Where a claim has its devices.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// The pod that it was found for.
    pub(super) pod: usize,
    /// `None` once that machine is not among those to come any more.
    pub(super) spot: Option<Spot>,
    /// Only that machine reaches some of them.
    local: bool,
    /// What else a machine has to meet to reach them.
    reaches: Vec<u32>,
    /// By profile of the machine.
    pub(super) by_profile: Vec<(Option<u32>, Vec<Pick>)>,
}

/// Devices for a pod's claims on a machine.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    pod: usize,
    spot: Spot,
    claims: Vec<u32>,
    by_profile: Vec<(Option<u32>, Vec<Pick>)>,
}

impl State {
    /// The state before any decision.
    pub(crate) fn new(tables: &Tables<'_>, table: &Table<'_>) -> Self {
        let mut state = Self { used: table.allocated.clone(), ..Self::default() };
        let pods = tables.snapshot.pods.iter().enumerate();
        let leaving = pods.filter(|(_, pod)| match pod.placement {
            Placement::Bound(node) => {
                tables.snapshot.nodes[node.0 as usize].deleting && pod.is_currently_reschedulable()
            }
            _ => false,
        });
        state.release(tables, table, leaving.map(|(index, _)| index));
        state
    }

    /// Frees the claims that are reserved for nobody but pods that move.
    pub(crate) fn release(
        &mut self,
        tables: &Tables<'_>,
        table: &Table<'_>,
        pods: impl Iterator<Item = usize>,
    ) {
        let pods: Vec<usize> = pods.collect();
        self.leaving.extend(&pods);
        for &claim in pods.iter().flat_map(|&pod| &tables.snapshot.pods[pod].claims) {
            let source = &table.source.claims[claim as usize];
            let Some(allocation) = &source.allocation else { continue };
            let moves = |uid: &String| {
                table.by_uid.get(uid.as_str()).is_some_and(|pod| self.leaving.contains(pod))
            };
            let all = !source.reserved_for.is_empty()
                && !source.reserved_for_others
                && source.reserved_for.iter().all(moves);
            if !all || !self.released.insert(claim) {
                continue;
            }
            for device in allocation.devices.iter().filter(|device| !device.admin) {
                let Some(id) = table.find(device) else { continue };
                let published = &table.published[id as usize];
                let kind = &table.source.kinds[published.kind as usize];
                let share = kind.shared.then(|| super::consumed(kind, &device.consumed));
                // Who else shares it goes on drawing on its counters.
                let draws = if kind.shared { &[][..] } else { &published.consumes };
                self.freed.take(id, share.as_deref(), draws);
            }
        }
        self.failed.clear();
    }

    /// Withholds the devices of moved pods from others, which may arrive first.
    pub(crate) fn keep_released(&mut self) {
        self.freed = Usage::default();
    }

    /// Machines to come have gone from the plan, or are the business of a command that was decided.
    pub(crate) fn forget_claims(&mut self) {
        for seat in self.seats.values_mut() {
            if matches!(seat.spot, Some(Spot::Claim(_))) {
                seat.spot = None;
            }
        }
        self.on_machines.retain(|(spot, _), _| matches!(spot, Spot::Machine(_)));
        self.failed.clear();
    }

    /// Looks for devices for a pod on a machine that exists. What it finds is taken by
    /// [`Self::take_proposal`].
    pub(crate) fn search(
        &mut self,
        tables: &Tables<'_>,
        table: &Table<'_>,
        pod: usize,
        machine: usize,
    ) -> bool {
        self.proposal = self.on_machine(tables, table, pod, machine).ok();
        self.proposal.is_some()
    }

    /// Allocates the result of the last search.
    pub(crate) fn take_proposal(&mut self) {
        if let Some(proposal) = self.proposal.take() {
            self.take(proposal);
        }
    }

    fn on_machine(
        &mut self,
        tables: &Tables<'_>,
        table: &Table<'_>,
        pod: usize,
        machine: usize,
    ) -> Result<Proposal, Option<Deadlock>> {
        let spot = Spot::Machine(machine);
        let node = &tables.snapshot.nodes[machine];
        let meets = |reach: u32| machine_meets(tables, machine, &table.reaches[reach as usize]);
        let mut claims = Vec::new();
        for &claim in &tables.snapshot.pods[pod].claims {
            let reached = if let Some(seat) = self.seats.get(&claim) {
                seat.spot == Some(spot)
                    || (seat.spot.is_some()
                        && !seat.local
                        && seat.reaches.iter().all(|&reach| meets(reach)))
            } else if self.is_allocated(table, claim) {
                let terms = &table.terms[claim as usize];
                let met = |(name, terms): &(Option<&str>, _)| {
                    name.is_none_or(|name| node.name.as_deref() == Some(name))
                        && machine_meets(tables, machine, terms)
                };
                terms.is_empty() || terms.iter().any(met)
            } else {
                claims.push(claim);
                true
            };
            if !reached {
                return Err(None);
            }
        }
        let fresh = key(tables, pod, spot, None, &claims);
        if let Some(known) = fresh.and_then(|key| self.failed.get(&key)) {
            return Err(Some(*known));
        }
        let claim_specs: Vec<&ClaimSpec> = claims.iter().map(|&claim| table.spec(claim)).collect();
        let profiles =
            if claims.is_empty() { Vec::new() } else { profiles_of(tables, table, machine) };
        if profiles.is_empty() && !claims.is_empty() {
            return Err(None);
        }
        let mut by_profile = Vec::new();
        for profile in profiles {
            let mut items = Vec::new();
            if profile.is_none() {
                items.extend(table.local[machine].iter().filter_map(|&id| table.item(id)));
            }
            let open = table.open.iter().filter_map(|&id| table.item(id));
            items.extend(open.filter(|item| item.reach.is_none_or(meets)));
            for item in &mut items {
                item.reach = None;
            }
            items.extend(table.templates(profile));
            let broken = (profile.is_none() && table.broken[machine])
                || table.broken_open.iter().any(|reach| reach.is_none_or(meets));
            let stock = self.stock(table, spot, profile, broken);
            let mut nothing = |spec, _, _| Some(spec);
            match Search::new(stock, &items, &claim_specs, &mut nothing).run(Site::Known) {
                Ok((picks, _)) => by_profile.push((profile, picks)),
                Err(deadlock) => {
                    if let Some(key) = fresh {
                        self.failed.insert(key, deadlock);
                    }
                    return Err(Some(deadlock));
                }
            }
        }
        // From where a device can be reached matters to other pods of the claim.
        for (_, picks) in &mut by_profile {
            for pick in picks.iter_mut().filter(|pick| pick.id & TEMPLATE == 0) {
                pick.reach = table.published[pick.id as usize].reach;
            }
        }
        Ok(Proposal { pod, spot, claims, by_profile })
    }

    /// Looks for devices for a pod on a machine to come, with those of some types of a spec that
    /// have them. Answers the spec with which it reaches them, and these types.
    pub(crate) fn on_claim(
        &mut self,
        tables: &Tables<'_>,
        table: &Table<'_>,
        specs: &mut MachineSpecs,
        (pod, at): (usize, usize),
        mut spec: SpecId,
        types: &FixedBitSet,
    ) -> Result<(SpecId, FixedBitSet, Proposal), Exclusion> {
        let spot = Spot::Claim(at);
        let mut claims = Vec::new();
        for &claim in &tables.snapshot.pods[pod].claims {
            let elsewhere = || Exclusion::ClaimElsewhere {
                claim: table.source.claims[claim as usize].name.clone(),
            };
            if let Some(seat) = self.seats.get(&claim) {
                if seat.spot != Some(spot) {
                    if seat.local || seat.spot.is_none() {
                        return Err(elsewhere());
                    }
                    for &reach in &seat.reaches {
                        let terms = &table.reaches[reach as usize];
                        spec = specs.narrow(tables, spec, terms).map_err(|_| elsewhere())?;
                    }
                }
            } else if self.is_allocated(table, claim) {
                let terms = &table.terms[claim as usize];
                if !terms.is_empty() {
                    let anywhere = terms.iter().filter(|(name, _)| name.is_none());
                    let mut narrowed =
                        anywhere.filter_map(|(_, terms)| specs.narrow(tables, spec, terms).ok());
                    spec = narrowed.next().ok_or_else(elsewhere)?;
                }
            } else {
                claims.push(claim);
            }
        }
        let mut types = types.clone();
        types.intersect_with(&specs[spec].types);
        let catalog = tables.templates[specs[spec].template].catalog;
        let of_type = &table.of_type[catalog];
        let mut by_profile = Vec::new();
        if !claims.is_empty() {
            let fresh = key(tables, pod, spot, Some(spec), &claims);
            let claim_specs: Vec<&ClaimSpec> =
                claims.iter().map(|&claim| table.spec(claim)).collect();
            let known = fresh.and_then(|key| self.failed.get(&key).copied());
            let mut best: Option<(Deadlock, usize)> = known.map(|it| (it, usize::MAX));
            let mut profiles: Vec<(u32, usize)> = Vec::new();
            for kind in types.ones().filter(|_| known.is_none()) {
                if !profiles.iter().any(|(profile, _)| *profile == of_type[kind]) {
                    profiles.push((of_type[kind], kind));
                }
            }
            for (profile, kind) in profiles {
                let mut items: Vec<_> =
                    table.open.iter().filter_map(|&id| table.item(id)).collect();
                items.extend(table.templates(Some(profile)));
                let mut narrow = |spec, reach: u32, side| {
                    let terms = &table.reaches[reach as usize];
                    match side {
                        Side::Inside => specs.narrow(tables, spec, terms).ok(),
                        Side::Outside => terms.iter().find_map(|(key, values)| {
                            let mut other = Requirements::default();
                            other.replace(key, values.complement()?);
                            specs.narrow(tables, spec, &other).ok()
                        }),
                    }
                };
                let broken = table.broken_open.iter().any(|reach| {
                    reach.is_none_or(|reach| narrow(spec, reach, Side::Inside).is_some())
                });
                let stock = self.stock(table, spot, Some(profile), broken);
                match Search::new(stock, &items, &claim_specs, &mut narrow).run(Site::In(spec)) {
                    Ok((picks, site)) => {
                        if let Site::In(narrowed) = site {
                            spec = narrowed;
                        }
                        by_profile.push((Some(profile), picks));
                    }
                    Err(deadlock) => {
                        if best.is_none_or(|(most, _)| most < deadlock) {
                            best = Some((deadlock, kind));
                        }
                    }
                }
            }
            types.intersect_with(&specs[spec].types);
            let serves = |kind: usize| by_profile.iter().any(|&(it, _)| it == Some(of_type[kind]));
            for kind in types.ones().collect::<Vec<_>>() {
                types.set(kind, serves(kind));
            }
            if types.is_clear() {
                let (deadlock, kind) = best.unwrap_or_default();
                if let Some(key) = fresh {
                    self.failed.insert(key, deadlock);
                }
                let names = &tables.catalogs[catalog].names;
                return Err(table.exclusion(&claims, deadlock, names.get(kind).cloned()));
            }
        }
        Ok((spec, types, Proposal { pod, spot, claims, by_profile }))
    }

    /// Gives the claims of a pod their devices.
    pub(crate) fn take(&mut self, proposal: Proposal) {
        let Proposal { pod, spot, claims, by_profile } = proposal;
        let mut published = Vec::new();
        for (profile, picks) in &by_profile {
            let mut usage = Usage::default();
            for pick in picks.iter().filter(|pick| !pick.admin) {
                if pick.id & TEMPLATE == 0 {
                    usage.take(pick.id, pick.share.as_deref(), &pick.draws);
                } else if let Some(profile) = profile {
                    let on_machine = self.on_machines.entry((spot, *profile)).or_default();
                    on_machine.take(pick.id, pick.share.as_deref(), &pick.draws);
                }
            }
            published.push(usage);
        }
        self.used.add(&Usage::worst_of(published.iter()));
        let picks = || by_profile.iter().flat_map(|(_, picks)| picks);
        for pick in picks().filter(|pick| pick.share.is_none() && !pick.admin) {
            self.freed.give_back(pick.id, None, &[]);
        }
        for (number, claim) in claims.into_iter().enumerate() {
            let own: Vec<(Option<u32>, Vec<Pick>)> = by_profile
                .iter()
                .map(|(profile, picks)| {
                    let own = picks.iter().filter(|pick| pick.claim == number);
                    (*profile, own.cloned().collect())
                })
                .collect();
            let mut reaches: Vec<u32> =
                own.iter().flat_map(|(_, picks)| picks).filter_map(|pick| pick.reach).collect();
            reaches.sort_unstable();
            reaches.dedup();
            let local = own.iter().flat_map(|(_, picks)| picks).any(|pick| pick.local);
            self.seats
                .insert(claim, Seat { pod, spot: Some(spot), local, reaches, by_profile: own });
        }
    }

    fn is_allocated(&self, table: &Table<'_>, claim: u32) -> bool {
        table.source.claims[claim as usize].allocation.is_some() && !self.released.contains(&claim)
    }

    fn stock<'s, 'a>(
        &'s self,
        table: &'s Table<'a>,
        spot: Spot,
        profile: Option<u32>,
        broken: bool,
    ) -> Stock<'s, 'a> {
        let on_machine = profile.and_then(|profile| self.on_machines.get(&(spot, profile)));
        let profile = &table.profiles[profile.unwrap_or(0) as usize];
        Stock { table, profile, used: &self.used, freed: &self.freed, on_machine, broken }
    }
}

impl Table<'_> {
    /// A published device, if it can be relied on.
    fn item(&self, id: u32) -> Option<Item<'_>> {
        let device = &self.published[id as usize];
        device.usable.then_some(Item {
            id,
            kind: device.kind,
            pool: device.pool,
            reach: device.reach,
            local: device.local,
            draws: &device.consumes,
            groups: &[],
        })
    }

    /// What a machine will have.
    fn templates(&self, profile: Option<u32>) -> impl Iterator<Item = Item<'_>> {
        let devices = &self.profiles[profile.unwrap_or(0) as usize].devices;
        (0..).zip(devices).map(|(id, device)| Item {
            id: id | TEMPLATE,
            kind: device.kind,
            pool: device.pool | TEMPLATE,
            reach: None,
            local: true,
            draws: &device.consumes,
            groups: &device.groups,
        })
    }

    fn exclusion(&self, claims: &[u32], deadlock: Deadlock, closest: Option<String>) -> Exclusion {
        let mut at = deadlock.at;
        let mut position = 0;
        while position + 1 < claims.len() && at >= self.spec(claims[position]).requests.len() {
            at -= self.spec(claims[position]).requests.len();
            position += 1;
        }
        let claim = claims[position];
        let request = &self.spec(claim).requests[at];
        let ask = request.alternatives.last();
        Exclusion::Devices {
            claim: self.source.claims[claim as usize].name.clone(),
            request: request.name.clone(),
            class: ask.map(|ask| ask.class.clone()).unwrap_or_default(),
            requested: ask.and_then(|ask| ask.count).unwrap_or(0),
            found: u32::try_from(deadlock.found).unwrap_or(u32::MAX),
            constraint: deadlock
                .refused_by
                .map(|constraint| self.spec(claim).constraints[constraint].attribute.clone()),
            closest,
        }
    }
}

/// What a failure is remembered by: only pods whose claims all need devices are alike.
fn key(
    tables: &Tables<'_>,
    pod: usize,
    spot: Spot,
    spec: Option<SpecId>,
    claims: &[u32],
) -> Option<(Spot, u32, Option<SpecId>)> {
    let pod = &tables.snapshot.pods[pod];
    (pod.claims.len() == claims.len()).then_some((spot, pod.shape.0, spec))
}
