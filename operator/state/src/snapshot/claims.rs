//! Devices and claims in a snapshot: which claims pods have, what these ask for, and which kinds of
//! devices match. See docs/src/design/dra.md.

mod kinds;
mod pools;
mod templates;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaimSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use tenon_crds::Quantity;
use tenon_crds::labels::LabelRules;
use tenon_planner::snapshot as plan;
use tenon_planner::snapshot::{NodeClassRef, ShapeId};

use super::id;
use super::shape_table::ShapeTable;
use super::virtual_pods::{Kept, keys};
use crate::change::ObjectKey;
use crate::cluster::{Cluster, DeviceObjects};
use crate::pod::PodClaim;
use crate::shape;
use crate::wire;
use kinds::Kinds;

/// What devices add to a snapshot.
pub(super) struct Claims {
    pub(super) devices: plan::Devices,
    /// By pod with claims: the claims, or why nothing can be planned for it.
    pods: BTreeMap<ObjectKey, Result<Vec<u32>, String>>,
}

impl Claims {
    /// `None` while claims are not planned for. Gives instance types of `catalogs` the devices that
    /// machines like them have.
    pub(super) fn of(
        cluster: &Cluster,
        buffers: &[Kept<'_>],
        catalogs: &mut BTreeMap<NodeClassRef, Arc<plan::Catalog>>,
    ) -> Option<Self> {
        let objects = cluster.devices.as_deref()?;
        let mut specs = Specs { list: Vec::new(), by_text: BTreeMap::new() };
        let mut claims: BTreeMap<ObjectKey, plan::Claim> = BTreeMap::new();
        for (key, claim) in &objects.claims {
            claims.insert(key.clone(), allocated(key, claim, &mut specs, cluster.rules()));
        }
        let mut pods: BTreeMap<ObjectKey, Result<Vec<ObjectKey>, String>> = BTreeMap::new();
        let mut add = |key: &ObjectKey, own: &[PodClaim]| {
            let own = own.iter().filter(|claim| **claim != PodClaim::Nothing);
            let own = own.map(|claim| resolve(objects, key, claim, &mut claims, &mut specs));
            pods.insert(key.clone(), own.collect());
        };
        for (key, pod) in cluster.pods().filter(|(_, pod)| !pod.claims.is_empty()) {
            add(key, &pod.claims);
        }
        // Virtual pods have the claims that real ones would get.
        for kept in buffers.iter().filter(|(_, room)| !room.claims.is_empty()) {
            for key in keys(kept).filter(|key| !cluster.pods.contains_key(key)) {
                add(&key, &kept.1.claims);
            }
        }
        let index: BTreeMap<&ObjectKey, u32> =
            claims.keys().enumerate().map(|(at, key)| (key, id(at))).collect();
        let pods = pods
            .into_iter()
            .map(|(key, own)| (key, own.map(|own| own.iter().map(|claim| index[claim]).collect())))
            .collect();
        let mut kinds = Kinds::new(objects, &specs.list);
        let published = pools::published(objects, &mut kinds, cluster.rules());
        templates::learn(cluster, &published, catalogs);
        let (kinds, specs) = kinds.finish();
        let claims = claims.into_values().collect();
        Some(Self { devices: plan::Devices { kinds, pools: published, specs, claims }, pods })
    }

    /// Adds the claims of a pod to it: what they ask for to its shape.
    pub(super) fn add_to(&self, key: &ObjectKey, pod: &mut plan::Pod, shapes: &mut ShapeTable<'_>) {
        match self.pods.get(key) {
            None => {}
            Some(Err(reason)) => pod.problem = pod.problem.take().or_else(|| Some(reason.clone())),
            Some(Ok(claims)) => {
                let specs = claims.iter().map(|&claim| self.devices.claims[claim as usize].spec);
                pod.shape = shapes.with_claims(pod.shape, specs.collect());
                pod.claims.clone_from(claims);
            }
        }
    }
}

/// The shape of a DaemonSet whose pods have claims: they take room, and no devices.
pub(super) fn without(shape: Arc<plan::PodShape>) -> Arc<plan::PodShape> {
    if shape.resource_claims.is_empty() {
        return shape;
    }
    Arc::new(plan::PodShape { resource_claims: Vec::new(), ..(*shape).clone() })
}

impl ShapeTable<'_> {
    fn with_claims(&mut self, shape: ShapeId, specs: Vec<u32>) -> ShapeId {
        if let Some(&known) = self.with_claims.get(&(shape.0, specs.clone())) {
            return known;
        }
        let bare = &self.shapes[shape.0 as usize];
        let with = plan::PodShape {
            resource_claims: Vec::new(),
            device_claims: specs.clone(),
            ..(**bare).clone()
        };
        self.shapes.push(Arc::new(with));
        let known = ShapeId(id(self.shapes.len() - 1));
        self.with_claims.insert((shape.0, specs), known);
        known
    }
}

/// The distinct specifications of claims.
struct Specs {
    list: Vec<ResourceClaimSpec>,
    by_text: BTreeMap<String, u32>,
}

impl Specs {
    fn intern(&mut self, spec: &ResourceClaimSpec) -> u32 {
        let text = serde_json::to_string(spec).expect("specifications are plain data");
        *self.by_text.entry(text).or_insert_with(|| {
            self.list.push(spec.clone());
            id(self.list.len() - 1)
        })
    }
}

/// The claim that a pod means. One that will be made from a template is added.
fn resolve(
    objects: &DeviceObjects,
    pod: &ObjectKey,
    claim: &PodClaim,
    claims: &mut BTreeMap<ObjectKey, plan::Claim>,
    specs: &mut Specs,
) -> Result<ObjectKey, String> {
    match claim {
        PodClaim::Claim(name) => {
            let key = ObjectKey::new(Arc::clone(&pod.namespace), name.as_str());
            if claims.contains_key(&key) {
                Ok(key)
            } else {
                Err(format!("resourceclaim \"{name}\" not found"))
            }
        }
        PodClaim::Template { name, template } => {
            let of = ObjectKey::new(Arc::clone(&pod.namespace), template.as_str());
            let missing = || format!("resourceclaimtemplate \"{template}\" not found");
            let template = objects.templates.get(&of).ok_or_else(missing)?;
            let spec =
                specs.intern(template.spec.spec.as_ref().unwrap_or(&ResourceClaimSpec::default()));
            // As the controller names it, but for the suffix that it draws.
            let key = ObjectKey::new(Arc::clone(&pod.namespace), format!("{}-{name}", pod.name));
            let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
            let made = plan::Claim { namespace, name, spec, ..plan::Claim::default() };
            match claims.insert(key.clone(), made) {
                Some(other) => {
                    claims.insert(key, other);
                    Err("its resource claim has not been generated yet".to_owned())
                }
                None => Ok(key),
            }
        }
        PodClaim::Nothing => Err("it has no such resource claim".to_owned()),
    }
}

fn allocated(
    key: &ObjectKey,
    claim: &wire::ResourceClaim,
    specs: &mut Specs,
    rules: &LabelRules,
) -> plan::Claim {
    let reserved = claim.status.reserved_for.iter().flatten();
    let (pods, others): (Vec<_>, Vec<_>) = reserved.partition(|consumer| {
        consumer.resource == "pods" && consumer.api_group.as_deref().unwrap_or_default().is_empty()
    });
    plan::Claim {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        spec: specs.intern(&claim.spec),
        allocation: claim.status.allocation.as_ref().map(|it| allocation(it, rules)),
        reserved_for: pods.into_iter().map(|pod| pod.uid.clone()).collect(),
        reserved_for_others: !others.is_empty(),
    }
}

fn allocation(allocation: &AllocationResult, rules: &LabelRules) -> plan::ClaimAllocation {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let devices = results.map(|result| plan::AllocatedDevice {
        driver: result.driver.clone(),
        pool: result.pool.clone(),
        device: result.device.clone(),
        admin: result.admin_access == Some(true),
        consumed: result
            .consumed_capacity
            .iter()
            .flatten()
            .map(|(name, amount)| (name.clone(), millis(amount)))
            .collect(),
    });
    let nodes = allocation.node_selector.as_ref().map(|selector| terms(selector, rules));
    plan::ClaimAllocation { devices: devices.collect(), nodes: nodes.unwrap_or_default() }
}

/// The alternatives of a node selector. Of fields only the node's name exists.
fn terms(selector: &NodeSelector, rules: &LabelRules) -> Vec<plan::NodeTerm> {
    let terms = selector.node_selector_terms.iter();
    terms
        .map(|term| {
            let fields = term.match_fields.iter().flatten();
            let mut named =
                fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
            let name = named.find_map(|field| field.values.as_ref()?.first().cloned());
            plan::NodeTerm { name, requirements: shape::conjunction(term, rules) }
        })
        .collect()
}

/// An amount in thousandths; 0 for what is no quantity, which the API server does not admit.
fn millis(text: &Text) -> i64 {
    text.0.parse::<Quantity>().map_or(0, Quantity::millis)
}

#[cfg(test)]
mod tests;
