//! Requests of DaemonSets: per NodePool and group of instance types for planned machines, and of
//! daemons that are still to start on existing ones.

use fixedbitset::FixedBitSet;
use indexmap::IndexMap;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use rustc_hash::FxBuildHasher;

use super::Tables;
use super::columns::{Columns, add_times, take_times};
use super::machines::{machine_meets, promised_types};
use super::shapes::{HostPort, host_ports, ports_conflict, terms};
use super::taints::{Preferred, untolerated};
use super::types::TypeTable;
use crate::intern::Symbols;
use crate::requirements::Requirements;
use crate::snapshot::{NodePhase, Snapshot};

/// The DaemonSets of a snapshot.
#[derive(Debug)]
pub(super) struct Daemons {
    list: Vec<Daemon>,
}

#[derive(Debug)]
struct Daemon {
    requests: Vec<i64>,
    ports: Vec<HostPort>,
    tolerations: Vec<Toleration>,
    /// One of them has to be met.
    terms: Vec<Requirements>,
}

impl Daemon {
    fn runs_on(&self, tables: &Tables<'_>, machine: usize) -> bool {
        let taints = &tables.snapshot.nodes[machine].taints;
        untolerated(taints, &self.tolerations, Preferred::Ignored).is_none()
            && self.terms.iter().any(|term| machine_meets(tables, machine, term))
    }
}

/// Daemons per instance type, for one NodePool: types with the same daemons form a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Overheads {
    groups: Vec<Group>,
    of_type: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    requests: Vec<i64>,
    ports: Vec<HostPort>,
}

impl Overheads {
    /// Requests of the daemons of a type.
    pub(super) fn of(&self, kind: usize) -> &[i64] {
        &self.groups[self.of_type[kind] as usize].requests
    }

    /// Host ports of the daemons of a type.
    pub(crate) fn ports(&self, kind: usize) -> &[HostPort] {
        &self.groups[self.of_type[kind] as usize].ports
    }

    /// Per column, the minimum of the daemons' requests over some of the types.
    pub(crate) fn least(&self, types: &FixedBitSet) -> Vec<i64> {
        if let [only] = &self.groups[..] {
            return only.requests.clone();
        }
        let mut least: Option<Vec<i64>> = None;
        for kind in types.ones() {
            let requests = self.of(kind);
            match &mut least {
                None => least = Some(requests.to_vec()),
                Some(least) => {
                    least.iter_mut().zip(requests).for_each(|(a, &b)| *a = b.min(*a));
                }
            }
        }
        least.unwrap_or_else(|| vec![0; self.groups[0].requests.len()])
    }
}

impl Daemons {
    pub(super) fn new(snapshot: &Snapshot, columns: &Columns, symbols: &mut Symbols) -> Self {
        let list = snapshot
            .daemon_sets
            .iter()
            // Their claims are not planned for, so they would reserve room that they may never use.
            .filter(|daemon| daemon.shape.resource_claims.is_empty())
            .map(|daemon| Daemon {
                requests: columns.row_of(&daemon.shape),
                ports: host_ports(&daemon.shape),
                tolerations: daemon.shape.tolerations.clone(),
                terms: terms(&daemon.shape, symbols),
            })
            .collect();
        Self { list }
    }

    /// The daemons of machines that a NodePool launches.
    pub(super) fn overheads(
        &self,
        tables: &Tables<'_>,
        template: &Requirements,
        taints: &[Taint],
        types: &TypeTable,
    ) -> Overheads {
        let symbols = &tables.symbols;
        let candidates: Vec<(usize, Vec<&Requirements>)> = self
            .list
            .iter()
            .enumerate()
            .filter(|(_, daemon)| {
                untolerated(taints, &daemon.tolerations, Preferred::Ignored).is_none()
            })
            .map(|(index, daemon)| {
                let met = |term: &&Requirements| {
                    template.compatible(term, |key| tables.is_well_known(key), symbols).is_ok()
                };
                (index, daemon.terms.iter().filter(met).collect())
            })
            .collect();
        let mut groups: IndexMap<Vec<usize>, u32, FxBuildHasher> = IndexMap::default();
        let mut of_type = Vec::with_capacity(types.len());
        for requirements in &types.requirements {
            let runs: Vec<usize> = candidates
                .iter()
                .filter(|(_, terms)| {
                    terms.iter().any(|term| requirements.intersects(term, symbols).is_ok())
                })
                .map(|&(index, _)| index)
                .collect();
            let next =
                u32::try_from(groups.len()).expect("there are at most as many groups as types");
            of_type.push(*groups.entry(runs).or_insert(next));
        }
        let mut made: Vec<_> =
            groups.keys().map(|runs| self.group(runs, tables.columns.len())).collect();
        if made.is_empty() {
            made.push(self.group(&[], tables.columns.len()));
        }
        Overheads { groups: made, of_type }
    }

    fn group(&self, runs: &[usize], width: usize) -> Group {
        let mut group = Group { requests: vec![0; width], ports: Vec::new() };
        for &index in runs {
            add_times(&mut group.requests, &self.list[index].requests, 1);
            group.ports.extend(self.list[index].ports.iter().cloned());
        }
        group
    }

    /// What they ask of machines.
    pub(super) fn terms(&self) -> impl Iterator<Item = &Requirements> {
        self.list.iter().flat_map(|daemon| &daemon.terms)
    }

    /// Subtracts the requests of daemons that are still to start from a machine's row.
    pub(super) fn take_to_come(&self, tables: &Tables<'_>, machine: usize, row: &mut [i64]) {
        let pending = tables.snapshot.nodes[machine].phase == NodePhase::Pending;
        if pending || !self.list.is_empty() {
            take_times(row, &self.still_to_come(tables, machine), 1);
        }
    }

    /// Requests of daemons that are still to start on an existing machine, at least zero.
    pub(super) fn still_to_come(&self, tables: &Tables<'_>, machine: usize) -> Vec<i64> {
        let node = &tables.snapshot.nodes[machine];
        if node.phase == NodePhase::Pending {
            return Self::of_pending(tables, machine);
        }
        let mut rest = vec![0; tables.columns.len()];
        for daemon in self.list.iter().filter(|daemon| daemon.runs_on(tables, machine)) {
            add_times(&mut rest, &daemon.requests, 1);
        }
        for &pod in &tables.pods_on[machine] {
            let pod = &tables.snapshot.pods[pod];
            if pod.daemon {
                let running = &tables.shapes[pod.shape.0 as usize].requests;
                rest.iter_mut().zip(running).for_each(|(rest, &have)| *rest -= have);
            }
        }
        for amount in &mut rest {
            *amount = (*amount).max(0);
        }
        rest
    }

    /// Reserves the host ports of daemons that are still to start.
    pub(super) fn reserve_ports(
        &self,
        tables: &Tables<'_>,
        machine: usize,
        used: &mut Vec<HostPort>,
    ) {
        for daemon in self.list.iter().filter(|daemon| !daemon.ports.is_empty()) {
            // In use already: by the daemon itself, or it will not come.
            if daemon.runs_on(tables, machine) && !ports_conflict(&daemon.ports, used) {
                used.extend(daemon.ports.iter().cloned());
            }
        }
    }

    /// A claim without an instance asks for its pods and the least that daemons take of any of its
    /// types: so much is taken off again.
    fn of_pending(tables: &Tables<'_>, machine: usize) -> Vec<i64> {
        let none = vec![0; tables.columns.len()];
        let node = &tables.snapshot.nodes[machine];
        let template = node
            .claim
            .as_ref()
            .and_then(|claim| claim.node_pool.as_deref())
            .and_then(|pool| tables.template_of(pool))
            .map(|template| &tables.templates[template]);
        let Some(template) = template else { return none };
        let types = promised_types(tables, machine, template.catalog);
        if types.is_clear() { none } else { template.overheads.least(&types) }
    }
}
