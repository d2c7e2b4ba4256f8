//! Capacity reservations of the double: made and ended by the control, used by launches whose
//! templates name them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A capacity reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Reservation {
    /// `cr-…`.
    pub id: String,
    /// The type that it holds.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// How many instances it holds, used or not.
    pub total: u32,
    /// A capacity block for ML instead of an on-demand capacity reservation.
    pub capacity_block: bool,
    /// Its owner may take it back.
    pub interruptible: bool,
    /// When it ends.
    pub ends: Option<Timestamp>,
    /// It was cancelled: nothing is launched into it any more.
    pub cancelled: bool,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

impl Reservation {
    /// `active` or `cancelled`.
    pub fn state(&self) -> &'static str {
        if self.cancelled { "cancelled" } else { "active" }
    }
}

/// All reservations, by ID.
#[derive(Debug, Default)]
pub struct Reservations {
    all: Mutex<BTreeMap<String, Reservation>>,
}

impl Reservations {
    /// Adds one.
    pub fn add(&self, reservation: Reservation) {
        self.all.lock().insert(reservation.id.clone(), reservation);
    }

    /// All of them, by ID.
    pub fn all(&self) -> Vec<Reservation> {
        self.all.lock().values().cloned().collect()
    }

    /// One of them.
    pub fn get(&self, id: &str) -> Option<Reservation> {
        self.all.lock().get(id).cloned()
    }

    /// Changes one; says whether it exists.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut Reservation)) -> bool {
        self.all.lock().get_mut(id).map(change).is_some()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.all.lock().clear();
    }
}
