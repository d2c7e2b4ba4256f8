//! The shapes of a snapshot: those of the state, with what volumes, claims and the scheduler's
//! defaults add to them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tenon_planner::snapshot as plan;
use tenon_planner::snapshot::ShapeId;

use super::{id, spread};
use crate::pod::Pod;
use crate::volumes;

/// The shapes of a snapshot, in the order of first use.
#[derive(Default)]
pub(super) struct ShapeTable<'c> {
    pub(super) shapes: Vec<Arc<plan::PodShape>>,
    /// Interned shapes are equal exactly when they are the same value.
    ids: BTreeMap<usize, ShapeId>,
    /// What pods get that have no topology spread of their own.
    pub(super) defaults: spread::Defaults<'c>,
    /// By shape without volumes, and what the volumes add.
    with_volumes: BTreeMap<(usize, Volumes), ShapeId>,
    /// By shape without claims, and what the claims ask for.
    pub(super) with_claims: BTreeMap<(u32, Vec<u32>), ShapeId>,
}

/// What a pod's volumes add to its shape.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Volumes {
    pub(super) topology: volumes::Topology,
    pub(super) mounted: volumes::Mounted,
}

impl<'c> ShapeTable<'c> {
    /// No shapes yet.
    pub(super) fn new(defaults: spread::Defaults<'c>) -> Self {
        Self { defaults, ..Self::default() }
    }

    /// The pod's shape with the topology spread that it gets by default.
    pub(super) fn spread(&mut self, pod: &'c Pod) -> Arc<plan::PodShape> {
        if pod.is_daemon() || pod.is_mirror() {
            // The node of each is settled from the start: there is nothing to spread.
            return Arc::clone(&pod.shape);
        }
        self.defaults.shape(&pod.shape, pod.controller.as_ref())
    }

    pub(super) fn shared(&mut self, shape: &Arc<plan::PodShape>) -> ShapeId {
        let address = Arc::as_ptr(shape).addr();
        *self.ids.entry(address).or_insert_with(|| {
            self.shapes.push(Arc::clone(shape));
            ShapeId(id(self.shapes.len() - 1))
        })
    }

    pub(super) fn with_volumes(&mut self, shape: &Arc<plan::PodShape>, added: Volumes) -> ShapeId {
        if added.topology.is_empty() && added.mounted.is_empty() {
            return self.shared(shape);
        }
        let address = Arc::as_ptr(shape).addr();
        let entry = match self.with_volumes.entry((address, added)) {
            Entry::Occupied(known) => return *known.get(),
            Entry::Vacant(entry) => entry,
        };
        let Volumes { topology, mounted } = &entry.key().1;
        self.shapes.push(Arc::new(plan::PodShape {
            volume_topology: topology.clone(),
            volumes: mounted.own.clone(),
            shared_volumes: mounted.shared.clone(),
            ..(**shape).clone()
        }));
        *entry.insert(ShapeId(id(self.shapes.len() - 1)))
    }
}
