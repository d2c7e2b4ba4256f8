//! CapacityBuffers that come to some room, and the names of the pods that they keep it for.

use tenon_crds::CapacityBuffer;

use crate::change::ObjectKey;
use crate::cluster::{Cluster, Room, name};

/// A CapacityBuffer and the room that it keeps.
pub(super) type Kept<'c> = (&'c CapacityBuffer, Room);

/// The virtual pods of a buffer.
pub(super) fn keys<'k>((buffer, room): &'k Kept<'_>) -> impl Iterator<Item = ObjectKey> + 'k {
    let namespace = buffer.metadata.namespace.as_deref().unwrap_or_default();
    let name = name(&buffer.metadata);
    (0..room.replicas)
        .map(move |index| ObjectKey::new(namespace, format!("capacity-buffer-{name}-{index}")))
}

impl Cluster {
    /// The CapacityBuffers that come to some room.
    pub(super) fn kept(&self) -> Vec<Kept<'_>> {
        let rooms = self.buffers().filter_map(|(_, buffer)| {
            let room = self.room(buffer).ok().filter(|room| room.replicas > 0)?;
            Some((&**buffer, room))
        });
        rooms.collect()
    }
}
