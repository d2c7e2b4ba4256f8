use super::*;

#[test]
fn every_kind_but_no_op_is_announced() {
    let kinds = [
        (Kind::SpotInterrupted, "SpotInterrupted", true),
        (Kind::RebalanceRecommendation, "SpotRebalanceRecommendation", false),
        (Kind::ScheduledChange, "InstanceUnhealthy", true),
        (Kind::InstanceStatus, "InstanceUnhealthy", true),
        (Kind::SystemStatus, "InstanceUnhealthy", true),
        (Kind::EventStatus, "InstanceUnhealthy", true),
        (Kind::InstanceStopped, "InstanceStopping", true),
        (Kind::InstanceTerminated, "InstanceTerminating", true),
        (Kind::CapacityReservationInterrupted, "CapacityReservationInstanceInterrupted", true),
    ];
    for (kind, reason, drains) in kinds {
        assert_eq!(announcement(kind).unwrap().1.as_str(), reason);
        assert_eq!(kind.drains(), drains, "{reason}");
    }
    assert!(announcement(Kind::NoOp).is_none());
    assert!(!Kind::NoOp.drains());
}
