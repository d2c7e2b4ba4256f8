//! Plans carried out in memory: whatever was there, afterwards there is nothing left to do, and
//! what isn't ours is what it was.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::testing::carry_out;

const WAYS: [&str; 10] = [
    "",
    "identity:\n  mode: irsa\n",
    "deploy:\n  host: fargate\n  replicas: 1\n",
    "nodes:\n  authorization: aws-auth\n",
    "nodes:\n  instanceProfile: static\n  extraPolicies: [\"arn:aws:iam::aws:policy/X\"]\n",
    "deploy:\n  helmRecord: false\n",
    "interruption:\n  enabled: false\n",
    "interruption:\n  kmsKey: arn:aws:kms:eu-central-1:111122223333:key/k\n  events: [spot, state]\n",
    "network:\n  discovery: ids\n",
    "tags:\n  team: x\nidentity:\n  boundary: arn:aws:iam::111122223333:policy/b\n",
];

/// What should be there, for each of them: made once, because the CRDs are large.
static DESIRED: LazyLock<Vec<Desired>> =
    LazyLock::new(|| WAYS.iter().map(|way| desired(way)).collect());

/// Something changed from outside what is ours.
fn damage(actual: &mut Actual, kind: usize) {
    match kind {
        0 => actual.roles.values_mut().for_each(|role| role.inline.clear()),
        1 => actual.roles.values_mut().for_each(|role| role.trust = "{}".to_owned()),
        2 => actual.rules.values_mut().for_each(|rule| rule.enabled = false),
        3 => actual.queue.iter_mut().for_each(|queue| queue.attributes.clear()),
        4 => actual.association.iter_mut().for_each(|found| found.role_arn = "other".to_owned()),
        5 => actual.access_entry.iter_mut().for_each(|entry| entry.kind = "STANDARD".to_owned()),
        6 => actual.profile.iter_mut().for_each(|profile| profile.roles.clear()),
        7 => actual.network.values_mut().for_each(Tags::clear),
        8 => {
            for (key, object) in &mut actual.objects {
                if key.kind == "Deployment" {
                    object["spec"]["replicas"] = 7.into();
                }
            }
        }
        _ => {}
    }
}

/// The parts of an actual state that can belong to others under our names.
fn make_foreign(actual: &mut Actual, kind: usize) -> bool {
    fn clear<'a>(all: impl Iterator<Item = &'a mut Tags>) -> bool {
        let mut any = false;
        for tags in all {
            any |= !tags.is_empty();
            tags.clear();
        }
        any
    }
    match kind {
        0 => clear(actual.roles.values_mut().map(|role| &mut role.tags)),
        1 => clear(actual.queue.iter_mut().map(|queue| &mut queue.tags)),
        2 => clear(actual.rules.values_mut().map(|rule| &mut rule.tags)),
        _ => clear(actual.association.iter_mut().map(|found| &mut found.tags)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_is_there_one_plan_is_enough(
        from in 0..WAYS.len(),
        to in 0..WAYS.len(),
        there in proptest::collection::vec(any::<bool>(), 50),
        damaged in 0_usize..12,
    ) {
        let (from, to) = (&DESIRED[from], &DESIRED[to]);
        let mut actual = partial(from, &there);
        damage(&mut actual, damaged);
        let plan = diff(to, &actual).expect("nothing is in the way");
        carry_out(&plan, to, &mut actual);
        let again = diff(to, &actual).expect("nothing is in the way");
        prop_assert_eq!(ids(&again), Vec::<&str>::new());
    }

    #[test]
    fn what_is_somebody_else_s_stops_everything_or_is_left_alone(
        way in 0..WAYS.len(),
        foreign in 0_usize..4,
    ) {
        let desired = &DESIRED[way];
        let mut actual = complete(desired);
        if make_foreign(&mut actual, foreign) {
            prop_assert!(diff(desired, &actual).is_err(), "something foreign would be touched");
        }
    }
}
