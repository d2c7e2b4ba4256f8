//! What follows from the objects, made anew from them: after a change that broke off in the middle
//! the indexes may be between two versions of an object.

use std::collections::BTreeMap;

use super::pods::occupy;
use super::{Cluster, Names};

impl Cluster {
    /// Makes the indexes of machines and what is bound to each Node anew. A state that is whole
    /// stays as it is.
    pub fn rebuild(&mut self) {
        let claims = self.claims.iter();
        let claims = claims.map(|(name, claim)| (name, claim.object.provider_id()));
        self.claims_by_provider_id = index(claims);
        self.nodes_by_provider_id =
            index(self.nodes.iter().map(|(name, node)| (name, node.provider_id())));
        self.usage.clear();
        for (key, pod) in &self.pods {
            occupy(&mut self.usage, key, pod);
        }
    }
}

/// `objects` are in the order of their names.
fn index<'o>(
    objects: impl Iterator<Item = (&'o String, Option<&'o str>)>,
) -> BTreeMap<String, Names> {
    let mut index: BTreeMap<String, Names> = BTreeMap::new();
    for (name, id) in objects {
        if let Some(id) = id {
            index.entry(id.to_owned()).or_default().push(name.clone());
        }
    }
    index
}
