//! Devices, and the claims of pods to them, as long as these are planned for.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_crds::NodeClaim;
use tenon_crds::labels::REQUESTED_DRA_DRIVERS;

use super::{Cluster, annotation};
use crate::change::{Kind, ObjectKey};
use crate::wire;

/// Devices, and the claims of pods to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceObjects {
    pub(crate) classes: BTreeMap<String, Arc<wire::DeviceClass>>,
    pub(crate) claims: BTreeMap<ObjectKey, Arc<wire::ResourceClaim>>,
    pub(crate) templates: BTreeMap<ObjectKey, Arc<wire::ResourceClaimTemplate>>,
    pub(crate) slices: BTreeMap<String, Arc<wire::ResourceSlice>>,
}

impl DeviceObjects {
    pub(super) fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::DeviceClass => {
                self.classes.keys().map(|name| ObjectKey::cluster(name.as_str())).collect()
            }
            Kind::ResourceClaim => self.claims.keys().cloned().collect(),
            Kind::ResourceClaimTemplate => self.templates.keys().cloned().collect(),
            Kind::ResourceSlice => {
                self.slices.keys().map(|name| ObjectKey::cluster(name.as_str())).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn remove(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::DeviceClass => drop(self.classes.remove(&*key.name)),
            Kind::ResourceClaim => drop(self.claims.remove(key)),
            Kind::ResourceClaimTemplate => drop(self.templates.remove(key)),
            Kind::ResourceSlice => drop(self.slices.remove(&*key.name)),
            _ => {}
        }
    }

    /// Whether a driver has published all slices of a pool that is about a node.
    fn has_published(&self, driver: &str, node: &str) -> bool {
        let of_driver = || self.slices.values().map(|it| &it.spec).filter(|it| it.driver == driver);
        let mut of_node = of_driver().filter(|spec| spec.node_name.as_deref() == Some(node));
        of_node.any(|spec| {
            let same = of_driver().filter(|other| other.pool.name == spec.pool.name);
            let generations: Vec<i64> = same.map(|other| other.pool.generation).collect();
            let newest = generations.iter().max();
            let n = generations.iter().filter(|it| Some(*it) == newest).count();
            newest == Some(&spec.pool.generation)
                && i64::try_from(n).is_ok_and(|n| n == spec.pool.resource_slice_count)
        })
    }
}

impl Cluster {
    /// From now on pods with resource claims (DRA) are planned for; before, they wait.
    pub fn plan_for_claims(&mut self) {
        self.devices.get_or_insert_default();
        self.expected.extend(Kind::DEVICES);
    }

    /// Whether they are.
    pub(crate) fn plans_for_claims(&self) -> bool {
        self.devices.is_some()
    }

    /// What drivers have published, while claims are planned for.
    pub fn slices(&self) -> impl Iterator<Item = &Arc<wire::ResourceSlice>> {
        self.devices.iter().flat_map(|devices| devices.slices.values())
    }

    /// The first of the drivers whose devices a NodeClaim was launched for that has not published a
    /// complete pool for its Node.
    pub fn unpublished_driver<'c>(&self, claim: &'c NodeClaim, node: &str) -> Option<&'c str> {
        let devices = self.devices.as_deref()?;
        let drivers = annotation(claim, REQUESTED_DRA_DRIVERS)?;
        let mut drivers = drivers.split(',').filter(|driver| !driver.is_empty());
        drivers.find(|driver| !devices.has_published(driver, node))
    }
}
