//! The devices that a plan relies on, for reports and the checker.

use std::collections::BTreeMap;

use super::search::Pick;
use super::state::{Spot, State};
use super::usage::TEMPLATE;
use super::{Table, profiles_of};
use crate::plan::{ChosenDevice, ClaimDevices, PlacedDevices};
use crate::snapshot::NodePhase;
use crate::tables::Tables;
use crate::tables::machines::promised_types;

impl State {
    /// The devices of pods on machines that exist.
    pub(crate) fn on_machines(
        &self,
        tables: &Tables<'_>,
        table: &Table<'_>,
        pods: impl Iterator<Item = usize>,
    ) -> Vec<PlacedDevices> {
        let mut placed: BTreeMap<(usize, Option<u32>), Vec<ClaimDevices>> = BTreeMap::new();
        for pod in pods {
            for (claim, spot, profile, picks) in self.picks_for(tables, pod) {
                if let Spot::Machine(machine) = spot {
                    let devices = table.describe(claim, profile, picks);
                    placed.entry((machine, profile)).or_default().push(devices);
                }
            }
        }
        placed
            .into_iter()
            .map(|((machine, profile), claims)| {
                let instance_types = profile.map(|it| types_of(tables, table, machine, it));
                PlacedDevices {
                    machine: Some(tables.snapshot.nodes[machine].key.clone()),
                    instance_types: instance_types.unwrap_or_default(),
                    claims: sorted(claims),
                }
            })
            .collect()
    }

    /// The devices of the pods of a machine to come, for the types of a catalog that its launch
    /// carries.
    pub(crate) fn on_launch(
        &self,
        tables: &Tables<'_>,
        table: &Table<'_>,
        pods: &[usize],
        catalog: usize,
        types: &[usize],
    ) -> Vec<PlacedDevices> {
        let mut placed: BTreeMap<u32, Vec<ClaimDevices>> = BTreeMap::new();
        for &pod in pods {
            for (claim, spot, profile, picks) in self.picks_for(tables, pod) {
                if let (Spot::Claim(_), Some(profile)) = (spot, profile) {
                    let devices = table.describe(claim, Some(profile), picks);
                    placed.entry(profile).or_default().push(devices);
                }
            }
        }
        let mut list: Vec<PlacedDevices> = placed
            .into_iter()
            .map(|(profile, claims)| {
                let types = types.iter().filter(|&&it| table.of_type[catalog][it] == profile);
                let names = &tables.catalogs[catalog].names;
                let mut instance_types: Vec<_> = types.map(|&it| names[it].clone()).collect();
                instance_types.sort_unstable();
                PlacedDevices { machine: None, instance_types, claims: sorted(claims) }
            })
            .filter(|placed| !placed.instance_types.is_empty())
            .collect();
        list.sort_by(|a, b| a.instance_types.cmp(&b.instance_types));
        list
    }

    fn picks_for<'s>(
        &'s self,
        tables: &'s Tables<'_>,
        pod: usize,
    ) -> impl Iterator<Item = (u32, Spot, Option<u32>, &'s [Pick])> {
        let claims = tables.snapshot.pods[pod].claims.iter();
        let seats = claims.filter_map(|&claim| Some((claim, self.seats.get(&claim)?)));
        seats.filter(move |(_, seat)| seat.pod == pod).flat_map(|(claim, seat)| {
            let spot = seat.spot;
            let found = seat.by_profile.iter();
            found.filter_map(move |(profile, picks)| Some((claim, spot?, *profile, &picks[..])))
        })
    }
}

impl Table<'_> {
    fn describe(&self, claim: u32, profile: Option<u32>, picks: &[Pick]) -> ClaimDevices {
        let spec = self.spec(claim);
        let devices = picks.iter().map(|pick| {
            let request = &spec.requests[pick.request];
            let request = match &request.alternatives[pick.alternative].name {
                Some(alternative) => format!("{}/{alternative}", request.name),
                None => request.name.clone(),
            };
            let template = pick.id & TEMPLATE != 0;
            let (kind, driver, pool, device) = if template {
                let profile = &self.profiles[profile.unwrap_or(0) as usize];
                let device = &profile.devices[(pick.id & !TEMPLATE) as usize];
                let pool = &profile.source[device.pool as usize];
                let name = &pool.devices[device.at as usize].name;
                (device.kind, &pool.driver, &pool.pool, name.as_str())
            } else {
                let device = &self.published[pick.id as usize];
                let pool = &self.source.pools[device.pool as usize];
                (device.kind, &pool.driver, &pool.name, self.name(device))
            };
            let names = self.source.kinds[kind as usize].capacity.keys().cloned();
            ChosenDevice {
                request,
                driver: driver.clone(),
                pool: pool.clone(),
                device: device.to_owned(),
                template,
                admin: pick.admin,
                consumed: names.zip(pick.share.iter().flatten().copied()).collect(),
            }
        });
        let source = &self.source.claims[claim as usize];
        ClaimDevices {
            namespace: source.namespace.clone(),
            name: source.name.clone(),
            devices: devices.collect(),
        }
    }
}

fn sorted(mut claims: Vec<ClaimDevices>) -> Vec<ClaimDevices> {
    claims.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    claims
}

/// The instance types with a profile that a machine is or may become.
fn types_of(tables: &Tables<'_>, table: &Table<'_>, machine: usize, profile: u32) -> Vec<String> {
    let node = &tables.snapshot.nodes[machine];
    let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_ref());
    let pool = pool.and_then(|pool| tables.snapshot.node_pools.iter().find(|p| p.name == *pool));
    let Some(catalog) = pool.and_then(|pool| pool.catalog).map(|id| id.0 as usize) else {
        return Vec::new();
    };
    debug_assert!(
        profiles_of(tables, table, machine).contains(&Some(profile)),
        "a profile of its own"
    );
    if node.phase != NodePhase::Pending {
        let name = node.labels.get(crate::label::INSTANCE_TYPE);
        return name.cloned().into_iter().collect();
    }
    let types = promised_types(tables, machine, catalog);
    let types = types.ones().filter(|&kind| table.of_type[catalog][kind] == profile);
    types.map(|kind| tables.catalogs[catalog].names[kind].clone()).collect()
}
