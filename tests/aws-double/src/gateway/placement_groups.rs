//! Placement groups of the double: made and deleted over EC2's API, used by launches whose
//! parameters name them.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// How a group places its instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Close together.
    #[default]
    Cluster,
    /// Into partitions that share no hardware.
    Partition,
    /// Each on a rack of its own.
    Spread,
}

impl Strategy {
    /// As EC2 writes it; `None` for a word that is none of its strategies.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Cluster, Self::Partition, Self::Spread].into_iter().find(|it| it.as_str() == word)
    }

    /// As EC2 writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Partition => "partition",
            Self::Spread => "spread",
        }
    }
}

/// A placement group. It is available as soon as it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementGroup {
    /// `pg-…`.
    pub id: String,
    /// Its name, of which there is one in the region.
    pub name: String,
    /// How it places its instances.
    pub strategy: Strategy,
    /// How many partitions it has; 0 unless that is its strategy.
    pub partitions: u32,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// All groups, by name.
#[derive(Debug, Default)]
pub struct PlacementGroups {
    all: Mutex<BTreeMap<String, PlacementGroup>>,
}

impl PlacementGroups {
    /// Adds one; says whether its name was free.
    pub fn add(&self, group: PlacementGroup) -> bool {
        let mut all = self.all.lock();
        if all.contains_key(&group.name) {
            return false;
        }
        all.insert(group.name.clone(), group);
        true
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<PlacementGroup> {
        self.all.lock().values().cloned().collect()
    }

    /// The one with this name.
    pub fn named(&self, name: &str) -> Option<PlacementGroup> {
        self.all.lock().get(name).cloned()
    }

    /// The one with this ID.
    pub fn get(&self, id: &str) -> Option<PlacementGroup> {
        self.all.lock().values().find(|group| group.id == id).cloned()
    }

    /// Changes the one with this ID.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut PlacementGroup)) {
        if let Some(group) = self.all.lock().values_mut().find(|group| group.id == id) {
            change(group);
        }
    }

    /// Forgets the one with this name.
    pub fn remove(&self, name: &str) {
        self.all.lock().remove(name);
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.all.lock().clear();
    }
}
