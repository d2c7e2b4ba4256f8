//! CRDs that have objects stay: with a CRD its objects go, too, and it waits for their finalizers.

use tenon_installer_core::kubernetes::client::{Cluster, KubeError};
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::words::count;

use super::{Inventory, Nodes};

/// A CRD, and how many objects of it there are.
pub(super) struct Use {
    pub(super) crd: Object,
    plural: String,
    objects: usize,
}

impl Use {
    /// Looks at each of the CRDs.
    pub(super) async fn of(cluster: &Cluster, crds: &[Object]) -> Result<Vec<Self>, KubeError> {
        let looks = crds.iter().map(|crd| async move {
            let live = match resources::served_by(&crd.body) {
                // What this version does not know is known by its place only.
                None => cluster.get(&crd.resource, &crd.key()).await?,
                Some(_) => None,
            };
            let (plural, objects) = match resources::served_by(live.as_ref().unwrap_or(&crd.body)) {
                Some(served) => (served.plural.clone(), cluster.list(&served).await?.len()),
                None => (String::new(), 0),
            };
            Ok(Self { crd: crd.clone(), plural, objects })
        });
        futures::future::try_join_all(looks).await
    }

    /// Why it stays; `None` when it has no objects.
    pub(super) fn why(&self) -> Option<String> {
        let are = if self.objects == 1 { "is" } else { "are" };
        let objects = || count(self.objects, "object");
        (self.objects > 0).then(|| format!("{}: there {are} still {}", self.crd.key(), objects()))
    }

    /// What is left once those are gone that an uninstall removes.
    fn after(mut self, nodes: &Nodes) -> Self {
        let removed = [
            (resources::node_pools(), nodes.pools.len()),
            (resources::node_claims(), nodes.claims.len()),
            (resources::node_classes(), nodes.classes.len()),
            (resources::node_overlays(), nodes.overlays.len()),
        ];
        let own = removed.iter().find(|(resource, _)| resource.plural == self.plural);
        self.objects = self.objects.saturating_sub(own.map_or(0, |(_, objects)| *objects));
        self
    }
}

/// Takes CRDs out of an inventory that will have objects once all of it is gone, and says which and
/// why.
pub(crate) async fn keep_used(
    cluster: &Cluster,
    inventory: &mut Inventory,
) -> Result<Vec<String>, KubeError> {
    let mut kept = Vec::new();
    for used in Use::of(cluster, &inventory.crds).await? {
        let used = used.after(&inventory.nodes);
        if let Some(why) = used.why() {
            inventory.crds.retain(|crd| crd.key() != used.crd.key());
            kept.push(why);
        }
    }
    Ok(kept)
}
