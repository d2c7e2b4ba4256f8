//! Which capacity reservations an EC2NodeClass may use: its selectors' matches, without those that
//! have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenon_crds::ec2nodeclass::{
    CapacityReservation, CapacityReservationSelectorTerm, InstanceMatchCriteria, ReservationState,
    ReservationType,
};
use tenon_crds::{EC2NodeClass, EC2NodeClassStatus};

use super::lookups::{class_key, failed};
use super::status::Resolved;
use crate::aws::AwsProvider;
use crate::aws::ec2::{self, Ec2, Filter, filter, tag_filters};
use crate::aws::error::Result;

/// A capacity block counts as expiring so long before its end: EC2 takes the instances half an hour
/// before it, and a drain takes time.
const EXPIRING: SignedDuration = SignedDuration::from_mins(40);

/// The reservations of a class. Each real look at them also tells how many instances they have room
/// for.
pub(super) async fn resolve(
    provider: &AwsProvider,
    class: &EC2NodeClass,
    now: Timestamp,
) -> Resolved<Vec<CapacityReservation>> {
    if !provider.options.reserved_capacity {
        return Resolved::Some(Vec::new());
    }
    let key = class_key(class);
    if let Some(found) = provider.lookups.reservations.get(&key) {
        return Resolved::Some(usable(&found, now));
    }
    let terms = &class.spec.capacity_reservation_selector_terms;
    match select(&provider.clients.ec2, terms).await {
        Ok(found) => {
            for reservation in &found {
                provider.catalogs.reservations.observe(&reservation.id, reservation.left);
            }
            let usable = usable(&found, now);
            provider.lookups.reservations.insert(key, found);
            Resolved::Some(usable)
        }
        Err(error) => failed(class, "capacity reservations", &error),
    }
}

/// How long until one of the reservations ends, or its instances are about to be taken away.
pub(super) fn next_change(status: &EC2NodeClassStatus, now: Timestamp) -> Option<Duration> {
    let ends = status.capacity_reservations.iter().filter_map(|it| it.end_time);
    let moments = ends.flat_map(|end| [Some(end.0), end.0.checked_sub(EXPIRING).ok()]);
    let waits = moments.flatten().map(|moment| moment.duration_since(now));
    waits.filter_map(|wait| Duration::try_from(wait).ok()).filter(|wait| !wait.is_zero()).min()
}

/// Whether the instances of a reservation are about to be taken away. Ordinary reservations let
/// them run on.
pub(crate) fn is_expiring(reservation: &ec2::CapacityReservation, now: Timestamp) -> bool {
    let ends_soon = |end: Timestamp| end.checked_sub(EXPIRING).is_ok_and(|soon| soon <= now);
    reservation.kind == ReservationType::CapacityBlock.as_str()
        && reservation.ends_at.is_some_and(ends_soon)
}

async fn select(
    client: &Ec2,
    terms: &[CapacityReservationSelectorTerm],
) -> Result<Vec<ec2::CapacityReservation>> {
    let mut found = BTreeMap::new();
    for term in terms {
        let (id, filters) = query(term);
        for reservation in ec2::capacity_reservations(client, id, &filters).await? {
            found.insert(reservation.id.clone(), reservation);
        }
    }
    Ok(found.into_values().collect())
}

fn query(term: &CapacityReservationSelectorTerm) -> (Option<&str>, Vec<Filter>) {
    let mut filters = vec![filter("state", ["active"])];
    if term.id.is_none() {
        filters.extend(term.owner_id.as_ref().map(|owner| filter("owner-id", [owner])));
        let criteria = term.instance_match_criteria.map(InstanceMatchCriteria::as_str);
        filters.extend(criteria.map(|criteria| filter("instance-match-criteria", [criteria])));
        filters.extend(tag_filters(&term.tags));
    }
    (term.id.as_deref(), filters)
}

/// Those that have not ended, by id, as the status lists them. One of a kind that is not known is
/// left out.
fn usable(found: &[ec2::CapacityReservation], now: Timestamp) -> Vec<CapacityReservation> {
    let mut usable: Vec<CapacityReservation> = found
        .iter()
        .filter(|reservation| reservation.ends_at.is_none_or(|end| end > now))
        .filter_map(|reservation| listed(reservation, now))
        .collect();
    usable.sort_by(|a, b| a.id.cmp(&b.id));
    usable
}

fn listed(reservation: &ec2::CapacityReservation, now: Timestamp) -> Option<CapacityReservation> {
    let criteria = reservation.match_criteria.parse().ok();
    let kind = match reservation.kind.as_str() {
        "" => Some(ReservationType::Default),
        kind => kind.parse().ok(),
    };
    let (Some(instance_match_criteria), Some(reservation_type)) = (criteria, kind) else {
        tracing::error!(
            id = reservation.id,
            criteria = reservation.match_criteria,
            kind = reservation.kind,
            "ignoring a capacity reservation of a kind that this version does not know"
        );
        return None;
    };
    Some(CapacityReservation {
        availability_zone: reservation.zone.clone(),
        end_time: reservation.ends_at.map(Into::into),
        id: reservation.id.clone(),
        instance_match_criteria,
        instance_type: reservation.instance_type.clone(),
        interruptible: reservation.interruptible,
        owner_id: reservation.owner_id.clone(),
        reservation_type,
        state: if is_expiring(reservation, now) {
            ReservationState::Expiring
        } else {
            ReservationState::Active
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-20T12:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn found(id: &str, kind: &str, minutes: Option<i64>) -> ec2::CapacityReservation {
        ec2::CapacityReservation {
            id: id.to_owned(),
            kind: kind.to_owned(),
            match_criteria: "targeted".to_owned(),
            ends_at: minutes.map(|minutes| now() + SignedDuration::from_mins(minutes)),
            ..ec2::CapacityReservation::default()
        }
    }

    #[test]
    fn each_term_is_asked_for_alone_and_an_id_without_its_other_fields() {
        let term = CapacityReservationSelectorTerm {
            id: None,
            instance_match_criteria: Some(InstanceMatchCriteria::Open),
            owner_id: Some("123456789012".to_owned()),
            tags: BTreeMap::from([("team".to_owned(), "*".to_owned())]),
        };
        let active = filter("state", ["active"]);
        let expected = vec![
            active.clone(),
            filter("owner-id", ["123456789012"]),
            filter("instance-match-criteria", ["open"]),
            filter("tag-key", ["team"]),
        ];
        assert_eq!(query(&term), (None, expected));
        let by_id = CapacityReservationSelectorTerm { id: Some("cr-1".to_owned()), ..term };
        assert_eq!(query(&by_id), (Some("cr-1"), vec![active]));
    }

    #[test]
    fn reservations_are_listed_until_they_end_and_capacity_blocks_expire_before() {
        let list = usable(
            &[
                found("cr-5", "capacity-block", Some(41)),
                found("cr-4", "capacity-block", Some(40)),
                found("cr-3", "default", Some(1)),
                found("cr-2", "default", Some(0)),
                found("cr-1", "", None),
                found("cr-0", "of tomorrow", None),
            ],
            now(),
        );
        let list: Vec<_> = list.into_iter().map(|it| (it.id, it.state)).collect();
        let listed = |id: &str, state| (id.to_owned(), state);
        assert_eq!(
            list,
            [
                listed("cr-1", ReservationState::Active),
                listed("cr-3", ReservationState::Active),
                listed("cr-4", ReservationState::Expiring),
                listed("cr-5", ReservationState::Active),
            ]
        );
    }

    #[test]
    fn the_class_is_looked_at_again_when_a_reservation_ends_or_is_about_to() {
        let wait = |minutes: &[Option<i64>]| {
            let list: Vec<_> =
                minutes.iter().map(|&minutes| found("cr-1", "capacity-block", minutes)).collect();
            let capacity_reservations = usable(&list, now());
            let status = EC2NodeClassStatus { capacity_reservations, ..Default::default() };
            next_change(&status, now()).map(|wait| wait.as_secs() / 60)
        };
        assert_eq!(wait(&[None]), None);
        assert_eq!(wait(&[None, Some(90), Some(60)]), Some(20));
        assert_eq!(wait(&[Some(30)]), Some(30));
    }
}
