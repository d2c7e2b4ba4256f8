//! Finds devices for claims on one machine: a depth-first search over requests and devices.

use super::usage::{TEMPLATE, Usage};
use super::{Profile, Table};
use crate::machine_specs::SpecId;
use crate::snapshot::{AttributeValue, ClaimSpec, DeviceAsk, DeviceKind};

/// The maximum number of devices that are tried for the claims of one pod on one machine.
const STEPS: usize = 5_000;

/// The maximum number of devices of a claim (`AllocationResultsMaxSize` of the API).
const MOST: usize = 32;

/// A device that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'s> {
    /// Index into the table's published devices; with [`TEMPLATE`] into those of the profile.
    pub(super) id: u32,
    pub(super) kind: u32,
    /// Its pool; devices of different pools may draw on different counters.
    pub(super) pool: u32,
    /// The nodes that can reach it, if that narrows the machine.
    pub(super) reach: Option<u32>,
    /// No other machine can reach it.
    pub(super) local: bool,
    pub(super) draws: &'s [(u32, i64)],
    /// With which devices it will agree in an attribute that it does not have: attribute, group.
    /// Sorted.
    pub(super) groups: &'s [(&'s str, u32)],
}

/// What a `matchAttribute` or `distinctAttribute` constraint compares. Values and groups are never
/// equal: which value a group will have is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared<'s> {
    Value(&'s AttributeValue),
    Group(u32),
}

/// A device that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    /// Which of the claims, which of its requests, and which alternative.
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
    pub(super) id: u32,
    pub(super) reach: Option<u32>,
    pub(super) local: bool,
    pub(super) admin: bool,
    /// Of a shared device, by dimension.
    pub(super) share: Option<Vec<i64>>,
    /// The counters that it draws on for the first time: those who share a device draw once.
    pub(super) draws: Vec<(u32, i64)>,
}

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// Known: what it can't reach is not among the devices.
    Known,
    /// With this spec, which what it has to reach narrows.
    In(SpecId),
}

type Narrow<'n> = &'n mut dyn FnMut(SpecId, u32, Side) -> Option<SpecId>;

/// Whether a machine has to be inside or outside of the nodes that can reach a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Inside.
    Inside,
    /// Outside.
    Outside,
}

/// Where a search came to an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deadlock {
    /// The request, counted over all claims.
    pub(super) at: usize,
    /// The number of devices that were found for it.
    pub(super) found: usize,
    /// The constraint of its claim that refused a further one.
    pub(super) refused_by: Option<usize>,
}

/// The devices that can be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stock<'s, 'a> {
    pub(super) table: &'s Table<'a>,
    pub(super) profile: &'s Profile<'a>,
    /// Taken of published devices, and given back.
    pub(super) used: &'s Usage,
    pub(super) freed: &'s Usage,
    /// Taken of the devices that the machine will have.
    pub(super) on_machine: Option<&'s Usage>,
    /// Whether a pool that the machine can reach can't be relied on.
    pub(super) broken: bool,
}

impl Stock<'_, '_> {
    fn is_taken(&self, id: u32) -> bool {
        (self.used.has(id) && !self.freed.has(id))
            || self.on_machine.is_some_and(|usage| usage.has(id))
    }

    fn shared(&self, id: u32, dimension: usize) -> i64 {
        let of = |usage: &Usage| usage.shares(id).map_or(0, |amounts| amounts[dimension]);
        let published = of(self.used).saturating_sub(of(self.freed));
        published.saturating_add(self.on_machine.map_or(0, of))
    }

    fn is_shared_already(&self, id: u32) -> bool {
        self.used.shares(id).is_some() || self.on_machine.is_some_and(|it| it.shares(id).is_some())
    }

    fn left(&self, counter: u32) -> i64 {
        let all = match counter & TEMPLATE {
            0 => self.table.counters[counter as usize],
            _ => self.profile.counters[(counter & !TEMPLATE) as usize],
        };
        all.saturating_sub(self.used.drawn(counter))
            .saturating_add(self.freed.drawn(counter))
            .saturating_sub(self.on_machine.map_or(0, |usage| usage.drawn(counter)))
    }
}

/// A request of one of the claims of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestId {
    /// Index of the claims.
    claim: usize,
    /// Index of the claim's requests.
    request: usize,
}

/// A search. `narrow` answers which spec a machine to come has once it has to reach a device, or
/// must not.
pub(super) struct Search<'s, 'a, 'n> {
    stock: Stock<'s, 'a>,
    items: &'s [Item<'s>],
    claim_specs: &'s [&'a ClaimSpec],
    /// In the order in which they are served.
    requests: Vec<RequestId>,
    narrow: Narrow<'n>,
    path: Usage,
    picks: Vec<Pick>,
    /// By claim and constraint: what it compares of the devices so far.
    compared: Vec<Vec<Vec<Compared<'s>>>>,
    n_of_claim: Vec<usize>,
    steps: usize,
    deadlock: Deadlock,
}

impl<'s, 'a, 'n> Search<'s, 'a, 'n> {
    pub(super) fn new(
        stock: Stock<'s, 'a>,
        items: &'s [Item<'s>],
        claim_specs: &'s [&'a ClaimSpec],
        narrow: Narrow<'n>,
    ) -> Self {
        let requests = claim_specs.iter().enumerate();
        let requests = requests
            .flat_map(|(claim, spec)| {
                (0..spec.requests.len()).map(move |request| RequestId { claim, request })
            })
            .collect();
        Self {
            stock,
            items,
            claim_specs,
            requests,
            narrow,
            path: Usage::default(),
            picks: Vec::new(),
            compared: claim_specs
                .iter()
                .map(|spec| vec![Vec::new(); spec.constraints.len()])
                .collect(),
            n_of_claim: vec![0; claim_specs.len()],
            steps: STEPS,
            deadlock: Deadlock::default(),
        }
    }

    /// Devices for all claims, and the spec of the machine; otherwise the request that failed with
    /// the fewest devices after all before it were served.
    pub(super) fn run(mut self, site: Site) -> Result<(Vec<Pick>, Site), Deadlock> {
        match self.request(0, site) {
            Some(site) => Ok((self.picks, site)),
            None => Err(self.deadlock),
        }
    }

    /// Serves the requests from one on.
    fn request(&mut self, at: usize, site: Site) -> Option<Site> {
        let Some(&RequestId { claim, request }) = self.requests.get(at) else { return Some(site) };
        let claim_specs = self.claim_specs;
        self.deadlock = self.deadlock.max(Deadlock { at, ..Deadlock::default() });
        for (alternative, ask) in
            claim_specs[claim].requests[request].alternatives.iter().enumerate()
        {
            let served = match ask.count {
                Some(count) => self.some(at, alternative, ask, (count as usize, 0), site),
                None => self.all(at, alternative, ask, 0, site),
            };
            if served.is_some() {
                return served;
            }
        }
        None
    }

    /// Finds so many more devices, none of them before `from`, and serves the requests that follow.
    fn some(
        &mut self,
        at: usize,
        alternative: usize,
        ask: &'a DeviceAsk,
        (left, from): (usize, usize),
        site: Site,
    ) -> Option<Site> {
        if left == 0 {
            return self.request(at + 1, site);
        }
        let claim = self.requests[at].claim;
        if self.n_of_claim[claim] + left > MOST {
            return None;
        }
        // What is equal to a device that did not do won't do either.
        let mut failed = Vec::new();
        for position in from..self.items.len() {
            let item = self.items[position];
            let like = (item.kind, item.pool, item.reach, item.groups);
            if failed.contains(&like) || ask.kinds.binary_search(&item.kind).is_err() {
                continue;
            }
            let Some(site) = self.take(at, alternative, ask, item, site) else { continue };
            let found = ask.count.map_or(0, |count| count as usize + 1 - left);
            self.deadlock = self.deadlock.max(Deadlock { at, found, refused_by: None });
            let done = self.some(at, alternative, ask, (left - 1, position + 1), site);
            if done.is_some() {
                return done;
            }
            self.put_back();
            if self.steps == 0 {
                return None;
            }
            if !self.kind(item).shared {
                failed.push(like);
            }
        }
        None
    }

    /// Takes all devices from one on that match, and serves the requests that follow. A machine to
    /// come may be where it doesn't reach some of them.
    fn all(
        &mut self,
        at: usize,
        alternative: usize,
        ask: &'a DeviceAsk,
        from: usize,
        site: Site,
    ) -> Option<Site> {
        if self.stock.broken {
            return None;
        }
        let RequestId { claim, request } = self.requests[at];
        let matches = |item: &Item<'_>| ask.kinds.binary_search(&item.kind).is_ok();
        let next = (from..self.items.len()).find(|&position| matches(&self.items[position]));
        let Some(position) = next else {
            let mut own = self.picks.iter().rev();
            let has_some = own.next().is_some_and(|it| (it.claim, it.request) == (claim, request));
            return if has_some { self.request(at + 1, site) } else { None };
        };
        let item = self.items[position];
        let is_full = self.n_of_claim[claim] == MOST;
        let taken = if is_full { None } else { self.take(at, alternative, ask, item, site) };
        if let Some(narrowed) = taken {
            let done = self.all(at, alternative, ask, position + 1, narrowed);
            if done.is_some() {
                return done;
            }
            self.put_back();
        }
        let (Site::In(spec), Some(reach)) = (site, item.reach) else { return None };
        let elsewhere = match (self.narrow)(spec, reach, Side::Inside) {
            Some(_) => (self.narrow)(spec, reach, Side::Outside)?,
            None => spec,
        };
        self.all(at, alternative, ask, position + 1, Site::In(elsewhere))
    }

    fn kind(&self, item: Item<'_>) -> &'a DeviceKind {
        &self.stock.table.source.kinds[item.kind as usize]
    }

    /// Takes a device, if it can be had. Answers where a machine is that reaches it.
    fn take(
        &mut self,
        at: usize,
        alternative: usize,
        ask: &'a DeviceAsk,
        item: Item<'s>,
        site: Site,
    ) -> Option<Site> {
        self.steps = self.steps.checked_sub(1)?;
        let kind = self.kind(item);
        let share =
            if kind.shared && !ask.admin { Some(self.share(kind, ask, item.id)?) } else { None };
        let mut draws = Vec::new();
        if !ask.admin {
            if share.is_none() && (self.stock.is_taken(item.id) || self.path.has(item.id)) {
                return None;
            }
            let shared =
                self.stock.is_shared_already(item.id) || self.path.shares(item.id).is_some();
            if !shared {
                draws.extend_from_slice(item.draws);
            }
            let mark = item.id & TEMPLATE;
            let enough = draws.iter().all(|&(counter, amount)| {
                let left = self.stock.left(counter | mark);
                amount <= left.saturating_sub(self.path.drawn(counter | mark))
            });
            if !enough {
                return None;
            }
        }
        let RequestId { claim, request } = self.requests[at];
        let constrained = self.constrained(claim, request, alternative);
        let compared: Result<Vec<_>, usize> = constrained
            .map(|constraint| Ok((constraint, self.compare(claim, constraint, item)?)))
            .collect();
        let compared = match compared {
            Ok(compared) => compared,
            Err(constraint) => {
                self.refuse(at, constraint);
                return None;
            }
        };
        let site = match (site, item.reach) {
            (Site::In(spec), Some(reach)) => Site::In((self.narrow)(spec, reach, Side::Inside)?),
            _ => site,
        };
        for (constraint, value) in compared {
            self.compared[claim][constraint].push(value);
        }
        if !ask.admin {
            self.path.take(item.id, share.as_deref(), &draws);
        }
        self.n_of_claim[claim] += 1;
        let Item { id, reach, local, .. } = item;
        let admin = ask.admin;
        self.picks.push(Pick {
            claim,
            request,
            alternative,
            id,
            reach,
            local,
            admin,
            share,
            draws,
        });
        Some(site)
    }

    /// What a constraint compares of a device, if it admits the device next to those so far; else
    /// the constraint.
    fn compare(
        &self,
        claim: usize,
        constraint: usize,
        item: Item<'s>,
    ) -> Result<Compared<'s>, usize> {
        let rule = &self.claim_specs[claim].constraints[constraint];
        let known = &self.compared[claim][constraint];
        let value = self.kind(item).attributes.get(&rule.attribute).map(Compared::Value);
        let of_group = || {
            // Two groups may turn out to have one value.
            let mut groups = item.groups.iter().filter(|_| !rule.distinct);
            let (_, group) = groups.find(|(attribute, _)| *attribute == rule.attribute)?;
            Some(Compared::Group(*group))
        };
        let value = value.or_else(of_group).ok_or(constraint)?;
        let admitted = if rule.distinct {
            !known.contains(&value)
        } else {
            known.first().is_none_or(|first| *first == value)
        };
        if admitted { Ok(value) } else { Err(constraint) }
    }

    /// Notes that a constraint refused a device, if the search has come no further elsewhere.
    fn refuse(&mut self, at: usize, constraint: usize) {
        let RequestId { claim, request } = self.requests[at];
        let of_request = |pick: &&Pick| (pick.claim, pick.request) == (claim, request);
        let found = self.picks.iter().rev().take_while(of_request).count();
        if at == self.deadlock.at && found >= self.deadlock.found {
            self.deadlock.refused_by.get_or_insert(constraint);
        }
    }

    /// The amount that a request gets of a shared device, if that is available.
    fn share(&self, kind: &DeviceKind, ask: &DeviceAsk, id: u32) -> Option<Vec<i64>> {
        if ask.capacity.keys().any(|name| !kind.capacity.contains_key(name)) {
            return None;
        }
        let dimensions = kind.capacity.iter().enumerate();
        dimensions
            .map(|(dimension, (name, capacity))| {
                let amount = capacity.grant(ask.capacity.get(name).copied())?;
                let path = self.path.shares(id).map_or(0, |amounts| amounts[dimension]);
                let taken = self.stock.shared(id, dimension).saturating_add(path);
                (amount <= capacity.value.saturating_sub(taken)).then_some(amount)
            })
            .collect()
    }

    fn put_back(&mut self) {
        let Some(pick) = self.picks.pop() else { return };
        if !pick.admin {
            self.path.give_back(pick.id, pick.share.as_deref(), &pick.draws);
        }
        self.n_of_claim[pick.claim] -= 1;
        let concerned: Vec<usize> =
            self.constrained(pick.claim, pick.request, pick.alternative).collect();
        for constraint in concerned {
            self.compared[pick.claim][constraint].pop();
        }
    }

    fn constrained(
        &self,
        claim: usize,
        request: usize,
        alternative: usize,
    ) -> impl Iterator<Item = usize> + use<'s, 'a, 'n> {
        let spec: &'a ClaimSpec = self.claim_specs[claim];
        let request = &spec.requests[request];
        let alternative = request.alternatives[alternative].name.as_deref();
        let constraints = spec.constraints.iter().enumerate();
        constraints
            .filter(move |(_, rule)| rule.concerns(&request.name, alternative))
            .map(|(index, _)| index)
    }
}
