//! What NodeOverlays come to: computed once for as long as nothing that they look at changes, for
//! every launch asks for it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use tenon_planner::overlays;
use tenon_planner::snapshot::{Catalog, NodeClassRef, Snapshot};

use crate::state::cluster::Cluster;
use crate::state::snapshot::class_of;

/// NodePools, what can be launched for them, and the NodeOverlays, at one moment. What follows from
/// them takes long enough to be asked for with [`crate::tasks::blocking`].
#[derive(Debug)]
pub(crate) struct Offers {
    version: Version,
    snapshot: Snapshot,
    conflicts: OnceLock<Vec<(String, String)>>,
    /// By NodePool.
    catalogs: Mutex<BTreeMap<String, Option<Arc<Catalog>>>>,
}

impl Offers {
    /// The overlays that are in conflict, each with the name of the other.
    pub(crate) fn conflicts(&self) -> &[(String, String)] {
        self.conflicts.get_or_init(|| overlays::conflicts(&self.snapshot))
    }

    /// What can be launched for a NodePool, with the overlays; nothing where the pool is not known
    /// or has no catalog.
    pub(crate) fn catalog(&self, node_pool: &str) -> Option<Arc<Catalog>> {
        // Whoever asks for the same meanwhile waits for it, instead of computing it as well.
        let mut catalogs = self.catalogs.lock();
        if let Some(known) = catalogs.get(node_pool) {
            return known.clone();
        }
        let catalog = overlays::catalog(&self.snapshot, node_pool);
        catalogs.insert(node_pool.to_owned(), catalog.clone());
        catalog
    }
}

/// The newest [`Offers`].
#[derive(Debug, Default)]
pub(crate) struct LatestOffers {
    latest: Mutex<Option<Arc<Offers>>>,
}

impl LatestOffers {
    /// Those of this moment: the ones that are known, unless something has changed.
    pub(crate) fn at(
        &self,
        state: &Cluster,
        catalog: &impl Fn(&NodeClassRef) -> Option<Arc<Catalog>>,
        now: Timestamp,
    ) -> Arc<Offers> {
        let version = Version::of(state, catalog);
        let mut latest = self.latest.lock();
        match &*latest {
            Some(known) if known.version == version => Arc::clone(known),
            _ => {
                // From the very catalogs that the version names: the provider may have others by
                // now.
                let named = |class: &NodeClassRef| version.catalogs.get(class).cloned();
                let snapshot = state.offers(&named, now);
                let (conflicts, catalogs) = Default::default();
                let offers = Arc::new(Offers { version, snapshot, conflicts, catalogs });
                *latest = Some(Arc::clone(&offers));
                offers
            }
        }
    }
}

/// What offers depend on. Those of equal versions are equal.
#[derive(Debug)]
struct Version {
    overlays: Vec<Identity>,
    pools: Vec<Identity>,
    catalogs: BTreeMap<NodeClassRef, Arc<Catalog>>,
}

impl Version {
    fn of(state: &Cluster, catalog: &impl Fn(&NodeClassRef) -> Option<Arc<Catalog>>) -> Self {
        let classes = state.pools().map(|pool| class_of(&pool.spec.template.spec.node_class_ref));
        let catalogs = classes.filter_map(|class| {
            let catalog = catalog(&class)?;
            Some((class, catalog))
        });
        Self {
            overlays: state.overlays().map(|it| Identity::of(&it.metadata)).collect(),
            pools: state.pools().map(|it| Identity::of(&it.metadata)).collect(),
            catalogs: catalogs.collect(),
        }
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        let Self { overlays, pools, catalogs } = self;
        // A provider that has nothing new to say hands out the same catalog.
        *overlays == other.overlays
            && *pools == other.pools
            && catalogs.len() == other.catalogs.len()
            && catalogs.iter().all(|(class, catalog)| {
                other.catalogs.get(class).is_some_and(|other| Arc::ptr_eq(catalog, other))
            })
    }
}

/// An object whose spec is as it was.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    name: Option<String>,
    uid: Option<String>,
    generation: Option<i64>,
}

impl Identity {
    fn of(metadata: &ObjectMeta) -> Self {
        let ObjectMeta { name, uid, generation, .. } = metadata;
        Self { name: name.clone(), uid: uid.clone(), generation: *generation }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenon_crds::labels::LabelRules;

    use super::*;
    use crate::cloud_provider::NodeClassKind;
    use crate::state::change::{Change, Object};

    const KINDS: &[NodeClassKind] = &[NodeClassKind { group: "g", kind: "k", label: "g/k" }];

    fn put_pool(cluster: &mut Cluster, generation: i64) {
        let pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "default", "uid": "1", "generation": generation, "resourceVersion": generation.to_string()},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "g", "kind": "k", "name": "default"}, "requirements": [],
            }}},
        });
        let pool = serde_json::from_value(pool).unwrap();
        cluster.apply(Change::Applied(Object::NodePool(Box::new(pool))));
    }

    fn put_overlay(cluster: &mut Cluster, generation: i64, version: i64) {
        let overlay = json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
            "metadata": {"name": "a", "uid": "2", "generation": generation, "resourceVersion": version.to_string()},
            "spec": {"requirements": [], "price": "1"},
        });
        let overlay = serde_json::from_value(overlay).unwrap();
        cluster.apply(Change::Applied(Object::NodeOverlay(Box::new(overlay))));
    }

    #[test]
    fn they_are_computed_anew_when_an_overlay_a_pool_or_a_catalog_has_changed() {
        let mut cluster = Cluster::new(KINDS, LabelRules::core());
        let latest = LatestOffers::default();
        let mut catalog = Arc::new(Catalog::default());
        let at = |cluster: &Cluster, catalog: &Arc<Catalog>| {
            latest.at(cluster, &|_| Some(Arc::clone(catalog)), Timestamp::UNIX_EPOCH)
        };
        put_pool(&mut cluster, 1);
        put_overlay(&mut cluster, 1, 1);
        let mut before = at(&cluster, &catalog);
        assert_eq!(before.snapshot.overlays.len(), 1);
        assert!(before.catalog("default").is_some());
        assert!(before.catalog("other").is_none());
        assert!(Arc::ptr_eq(&before, &at(&cluster, &catalog)));
        put_overlay(&mut cluster, 1, 2);
        assert!(Arc::ptr_eq(&before, &at(&cluster, &catalog)), "only its status is another one");
        let mut expect_others = |cluster: &Cluster, catalog: &Arc<Catalog>, why: &str| {
            let after = at(cluster, catalog);
            assert!(!Arc::ptr_eq(&before, &after), "{why}");
            before = after;
        };
        put_overlay(&mut cluster, 2, 3);
        expect_others(&cluster, &catalog, "the overlay");
        put_pool(&mut cluster, 2);
        expect_others(&cluster, &catalog, "the pool");
        catalog = Arc::new(Catalog::default());
        expect_others(&cluster, &catalog, "the catalog");
    }

    #[test]
    fn a_catalog_is_computed_once() {
        let mut cluster = Cluster::new(KINDS, LabelRules::core());
        put_pool(&mut cluster, 1);
        put_overlay(&mut cluster, 1, 1);
        let kind = tenon_planner::snapshot::InstanceType {
            name: "m".to_owned(),
            offerings: vec![tenon_planner::snapshot::Offering::default()],
            ..Default::default()
        };
        let catalog = Arc::new(Catalog { instance_types: vec![kind], ..Catalog::default() });
        let offers = LatestOffers::default().at(
            &cluster,
            &|_| Some(Arc::clone(&catalog)),
            Timestamp::UNIX_EPOCH,
        );
        let first = offers.catalog("default").expect("the pool has a catalog");
        assert!(!Arc::ptr_eq(&first, &catalog), "the overlay changes its prices");
        assert!(Arc::ptr_eq(&first, &offers.catalog("default").expect("it is known")));
    }
}
