//! The zonal shifts of the bed's cluster. A shift of a person's has an end and goes before an
//! autoshift of AWS's, which has none.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

/// Who moves the traffic away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum By {
    /// A user, with `StartZonalShift`.
    Person,
    /// AWS itself.
    Autoshift,
}

/// A shift away from one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZonalShift {
    /// Its ID.
    pub id: String,
    /// The zone's ID.
    pub away_from: String,
    /// Who began it.
    pub by: By,
    /// When it began.
    pub started: Timestamp,
    /// When it ends by itself; an autoshift ends when AWS says so.
    pub expires: Option<Timestamp>,
    /// What its author said of it.
    pub comment: String,
    /// It was ended before its time.
    pub cancelled: bool,
}

impl ZonalShift {
    fn status(&self, now: Timestamp) -> &'static str {
        match self.expires {
            _ if self.cancelled => "CANCELED",
            Some(expires) if expires <= now => "EXPIRED",
            _ => "ACTIVE",
        }
    }

    fn is_active(&self, now: Timestamp) -> bool {
        self.status(now) == "ACTIVE"
    }

    pub(super) fn described(&self, resource: &str, now: Timestamp) -> Value {
        json!({
            "zonalShiftId": self.id,
            "resourceIdentifier": resource,
            "awayFrom": self.away_from,
            "startTime": self.started.as_second(),
            "expiryTime": self.expires.map(Timestamp::as_second),
            "status": self.status(now),
            "comment": self.comment,
        })
    }
}

/// All shifts of the bed's cluster, in the order in which they began.
#[derive(Debug, Default)]
pub struct ZonalShifts {
    all: Mutex<Vec<ZonalShift>>,
}

impl ZonalShifts {
    /// Begins a shift; returns its ID. One without an end is an autoshift.
    pub fn start(
        &self,
        away_from: &str,
        lasts: Option<SignedDuration>,
        comment: &str,
        now: Timestamp,
    ) -> String {
        let id = Uuid::new_v4().to_string();
        let expires = lasts.map(|lasts| now.saturating_add(lasts).unwrap_or(Timestamp::MAX));
        self.all.lock().push(ZonalShift {
            id: id.clone(),
            away_from: away_from.to_owned(),
            by: if expires.is_some() { By::Person } else { By::Autoshift },
            started: now,
            expires,
            comment: comment.to_owned(),
            cancelled: false,
        });
        id
    }

    /// Ends a shift before its time; `None` when there is none of this ID that is active.
    pub fn cancel(&self, id: &str, now: Timestamp) -> Option<ZonalShift> {
        let mut all = self.all.lock();
        let shift = all.iter_mut().find(|shift| shift.id == id && shift.is_active(now))?;
        shift.cancelled = true;
        Some(shift.clone())
    }

    /// Those that are neither over nor cancelled.
    pub fn active(&self, now: Timestamp) -> Vec<ZonalShift> {
        self.all.lock().iter().filter(|shift| shift.is_active(now)).cloned().collect()
    }

    pub(super) fn all(&self) -> Vec<ZonalShift> {
        self.all.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_is_active_until_its_end_or_until_it_is_cancelled() {
        let shifts = ZonalShifts::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let active = |second| -> Vec<String> {
            shifts.active(at(second)).into_iter().map(|shift| shift.away_from).collect()
        };
        shifts.start("euc1-az1", Some(SignedDuration::from_secs(60)), "power", at(100));
        let auto = shifts.start("euc1-az2", None, "", at(110));
        assert_eq!(active(159), ["euc1-az1", "euc1-az2"]);
        assert_eq!(active(160), ["euc1-az2"]);
        assert!(shifts.cancel("unknown", at(170)).is_none());
        assert!(shifts.cancel(&auto, at(170)).is_some_and(|shift| shift.by == By::Autoshift));
        assert!(shifts.cancel(&auto, at(171)).is_none(), "it has ended already");
        assert_eq!(active(172), Vec::<String>::new());
    }
}
