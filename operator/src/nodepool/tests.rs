use super::*;
use jiff::Timestamp;
use tenon_crds::ConditionStatus;

fn judged(class: Option<&NodeClassState>) -> (ConditionStatus, String) {
    let mut list = Vec::new();
    let subject = Subject { generation: 1, created: Timestamp::UNIX_EPOCH.into(), deleting: false };
    let mut set = Conditions::new(TYPES, &mut list, subject, Timestamp::UNIX_EPOCH);
    judge_class(&mut set, class);
    let condition = set.get(NODE_CLASS_READY).unwrap();
    (condition.status, condition.reason.clone())
}

#[test]
fn a_pool_is_ready_when_its_class_exists_stays_and_is_ready() {
    let ready = || NodeClassState { ready: Ok(()), unknown: false, deleting: false, generation: 1 };
    let not_ready = Err(("NoSubnets".to_owned(), "none match".to_owned()));
    for (class, status, reason) in [
        (None, ConditionStatus::False, "NodeClassNotFound"),
        (Some(ready()), ConditionStatus::True, "NodeClassReady"),
        (
            Some(NodeClassState { deleting: true, ..ready() }),
            ConditionStatus::False,
            "NodeClassTerminating",
        ),
        (
            Some(NodeClassState { unknown: true, ready: not_ready.clone(), ..ready() }),
            ConditionStatus::False,
            "NodeClassReadinessUnknown",
        ),
        (Some(NodeClassState { ready: not_ready, ..ready() }), ConditionStatus::False, "NoSubnets"),
    ] {
        assert_eq!(judged(class.as_ref()), (status, reason.to_owned()));
    }
}

#[test]
fn all_problems_of_a_pool_are_told() {
    let mut list = Vec::new();
    let subject = Subject { generation: 1, created: Timestamp::UNIX_EPOCH.into(), deleting: false };
    let mut set = Conditions::new(TYPES, &mut list, subject, Timestamp::UNIX_EPOCH);
    judge_validation(&mut set, &["one".to_owned(), "two".to_owned()]);
    assert_eq!(set.get(VALIDATION_SUCCEEDED).unwrap().message, "one; two");
    judge_validation(&mut set, &[]);
    assert!(set.is_true(VALIDATION_SUCCEEDED));
}
