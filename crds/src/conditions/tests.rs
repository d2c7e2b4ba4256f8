use super::nodeclaim::{CONSOLIDATABLE, DRIFTED, INITIALIZED, LAUNCHED, REGISTERED, TYPES};
use super::*;

const CREATED: i64 = 1_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second)
}

fn subject(generation: i64) -> Subject {
    Subject { generation, created: at(CREATED), deleting: false }
}

fn line(condition: &Condition) -> String {
    format!(
        "{}={} {} g{} t{} {}",
        condition.type_,
        condition.status,
        condition.reason,
        condition.observed_generation.unwrap(),
        condition.last_transition_time.0.as_second(),
        condition.message
    )
    .trim_end()
    .to_owned()
}

fn lines(list: &[Condition]) -> Vec<String> {
    list.iter().map(line).collect()
}

#[test]
fn a_fresh_object_awaits_reconciliation_since_it_was_created() {
    let mut list = Vec::new();
    Conditions::new(TYPES, &mut list, subject(1), at(2_000));
    assert_eq!(
        lines(&list),
        [
            "Launched=Unknown AwaitingReconciliation g1 t1000 object is awaiting reconciliation",
            "Registered=Unknown AwaitingReconciliation g1 t1000 object is awaiting reconciliation",
            "Initialized=Unknown AwaitingReconciliation g1 t1000 object is awaiting reconciliation",
            "Ready=Unknown ReconcilingDependents g1 t1000 Launched=Unknown, Registered=Unknown, Initialized=Unknown",
        ]
    );
}

#[test]
fn the_root_follows_its_dependents() {
    let mut list = Vec::new();
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(2_000));
    assert!(conditions.set_true(LAUNCHED));
    assert_eq!(
        line(conditions.root().unwrap()),
        "Ready=Unknown ReconcilingDependents g1 t1000 Registered=Unknown, Initialized=Unknown"
    );
    conditions.set_false(REGISTERED, "NodeNotFound", "no node yet");
    assert_eq!(
        line(conditions.root().unwrap()),
        "Ready=False UnhealthyDependents g1 t2000 Registered=False, Initialized=Unknown",
        "the newest transition comes first"
    );
    conditions.set_true(REGISTERED);
    conditions.set_true(INITIALIZED);
    assert_eq!(line(conditions.root().unwrap()), "Ready=True Ready g1 t2000");
    assert_eq!(line(conditions.get(LAUNCHED).unwrap()), "Launched=True Launched g1 t2000");
}

#[test]
fn independent_conditions_leave_the_root_alone() {
    let mut list = Vec::new();
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(2_000));
    for type_ in [LAUNCHED, REGISTERED, INITIALIZED] {
        conditions.set_true(type_);
    }
    assert_eq!(
        conditions.status(DRIFTED),
        ConditionStatus::Unknown,
        "what was never set is Unknown"
    );
    conditions.set_false(DRIFTED, "No", "");
    assert!(conditions.is_true(READY));
    assert_eq!(
        line(conditions.get(DRIFTED).unwrap()),
        "Drifted=False No g1 t2000",
        "its time is now"
    );
}

#[test]
fn without_a_root_every_condition_stands_for_itself() {
    use super::capacitybuffer::{PROVISIONING, READY_FOR_PROVISIONING, TYPES};
    let mut list = Vec::new();
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(2_000));
    assert_eq!(conditions.root(), None);
    conditions.set_true_because(READY_FOR_PROVISIONING, "Resolved", "");
    conditions.set_false(PROVISIONING, "RequiresNewCapacity", "");
    assert_eq!(
        lines(&list),
        [
            "ReadyForProvisioning=True Resolved g1 t2000",
            "Provisioning=False RequiresNewCapacity g1 t2000"
        ]
    );
}

#[test]
fn a_condition_of_an_older_generation_makes_the_root_unknown_until_it_is_set_again() {
    let mut list = Vec::new();
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(2_000));
    for type_ in [LAUNCHED, REGISTERED, INITIALIZED] {
        conditions.set_true(type_);
    }
    let mut conditions = Conditions::new(TYPES, &mut list, subject(2), at(3_000));
    assert!(conditions.is_true(READY), "looking changes nothing");
    assert!(conditions.set_true(LAUNCHED), "the generation moved");
    assert_eq!(
        line(conditions.root().unwrap()),
        "Ready=Unknown ReconcilingDependents g2 t3000 Registered=True, Initialized=True"
    );
    conditions.set_true(REGISTERED);
    conditions.set_true(INITIALIZED);
    assert_eq!(line(conditions.root().unwrap()), "Ready=True Ready g2 t3000");
    assert_eq!(
        conditions.get(LAUNCHED).unwrap().last_transition_time,
        at(2_000),
        "the status did not change"
    );
}

#[test]
fn a_false_of_an_older_generation_proves_nothing() {
    let mut list = Vec::new();
    Conditions::new(TYPES, &mut list, subject(1), at(2_000)).set_false(
        LAUNCHED,
        "LaunchFailed",
        "",
    );
    let mut conditions = Conditions::new(TYPES, &mut list, subject(2), at(3_000));
    conditions.set_true(REGISTERED);
    assert_eq!(conditions.root().unwrap().status, ConditionStatus::Unknown);
}

#[test]
fn setting_the_same_again_changes_nothing() {
    let mut list = Vec::new();
    Conditions::new(TYPES, &mut list, subject(1), at(2_000)).set_false(
        LAUNCHED,
        "LaunchFailed",
        "no capacity",
    );
    let before = list.clone();
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(9_000));
    assert!(!conditions.set_false(LAUNCHED, "LaunchFailed", "no capacity"));
    assert_eq!(list, before);
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(9_000));
    assert!(conditions.set_false(LAUNCHED, "LaunchFailed", "still no capacity"));
    assert_eq!(
        conditions.get(LAUNCHED).unwrap().last_transition_time,
        at(2_000),
        "only the message changed"
    );
}

#[test]
fn conditions_are_in_the_order_of_their_transitions_with_the_root_last() {
    let mut list = Vec::new();
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(2_000));
    conditions.set_true(CONSOLIDATABLE);
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(3_000));
    conditions.set_true(REGISTERED);
    let types: Vec<&str> = list.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, [LAUNCHED, INITIALIZED, CONSOLIDATABLE, REGISTERED, READY]);
}

#[test]
fn while_deleting_every_set_moves_all_generations() {
    let mut list = Vec::new();
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(2_000));
    for type_ in [LAUNCHED, REGISTERED, INITIALIZED] {
        conditions.set_true(type_);
    }
    let deleting = Subject { deleting: true, ..subject(2) };
    Conditions::new(TYPES, &mut list, deleting, at(3_000)).set_unknown("Drained", "Draining", "");
    assert!(list.iter().all(|condition| condition.observed_generation == Some(2)));
}

#[test]
fn only_independent_conditions_can_be_cleared() {
    let mut list = Vec::new();
    let mut conditions = Conditions::new(TYPES, &mut list, subject(1), at(2_000));
    conditions.set_true(DRIFTED);
    assert_eq!(conditions.clear(CONSOLIDATABLE), Ok(false));
    assert_eq!(conditions.clear(DRIFTED), Ok(true));
    assert!(conditions.clear(LAUNCHED).is_err());
    assert!(conditions.clear(READY).is_err());
    let types: Vec<&str> = list.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, [INITIALIZED, LAUNCHED, READY, REGISTERED], "in alphabetical order");
}

#[test]
fn times_are_whole_seconds_as_the_api_keeps_them() {
    let mut list = Vec::new();
    let now = Timestamp("2026-01-02T03:04:05.678Z".parse().unwrap());
    Conditions::new(TYPES, &mut list, subject(1), now).set_true(DRIFTED);
    let json = serde_json::to_value(&list).unwrap();
    let back: Vec<Condition> = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(back, list);
    assert_eq!(json[3]["lastTransitionTime"], "2026-01-02T03:04:05Z");
}
