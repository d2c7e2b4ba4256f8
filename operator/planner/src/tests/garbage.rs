//! Whatever parses as a snapshot gives plans or errors, never a panic.

use proptest::prelude::*;
use serde_json::Value;

use super::fixtures::*;
use crate::policy::Policy;
use crate::snapshot::Snapshot;
use crate::{check, disrupt, provision, replicas};

/// A snapshot in which everything occurs that can be damaged.
fn whole() -> Value {
    let mut drifted = node("b", "default", "c.large", "zone-b");
    drifted.claim.as_mut().expect("a claim").drifted = Some(("NodePoolDrifted".to_owned(), now()));
    let mut fixed = on_demand("fixed");
    fixed.replicas = Some(2);
    let mut limited = pool("limited");
    limited.limits.insert("cpu".to_owned(), 8000);
    let app = |name: &str| super::behaviour::app(name, 700);
    let snapshot = builder()
        .pool(on_demand("default"))
        .pool(fixed)
        .pool(limited)
        .node(node("a", "default", "m.xlarge", "zone-a"))
        .node(drifted)
        .node(node("c", "fixed", "m.large", "zone-a"))
        .daemon_set("agent", shape(100, GI / 8))
        .pod("web-1", super::behaviour::spread(app("web"), super::behaviour::ZONE, 1), Some("a"))
        .pod("web-2", super::behaviour::spread(app("web"), super::behaviour::ZONE, 1), Some("b"))
        .pod(
            "db",
            super::behaviour::near(app("db"), super::behaviour::HOSTNAME, "db", true),
            Some("a"),
        )
        .pending("new-1", app("db"))
        .pending("new-2", shape(3000, 9 * GI))
        .build();
    serde_json::to_value(snapshot).expect("snapshots are plain data")
}

/// What a leaf or a list becomes.
#[derive(Clone, Debug)]
enum Damage {
    Number(i64),
    Text(&'static str),
    Null,
    Emptied,
    Doubled,
    Dropped,
}

fn any_damage() -> impl Strategy<Value = Damage> {
    let numbers =
        vec![0, 1, -1, 7, 1000, 1 << 40, -(1 << 40), i64::from(i32::MAX), i64::from(u32::MAX)];
    prop_oneof![
        4 => prop::sample::select(numbers).prop_map(Damage::Number),
        2 => prop::sample::select(vec!["", "spot", "kubernetes.io/hostname", "In", "Exists", "a", "-9", "zone-a"])
            .prop_map(Damage::Text),
        1 => Just(Damage::Null),
        1 => Just(Damage::Emptied),
        1 => Just(Damage::Doubled),
        1 => Just(Damage::Dropped),
    ]
}

/// Every place in a value.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                places(item, &format!("{path}/{index}"), found);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(item, &format!("{path}/{key}"), found);
            }
        }
        _ => {}
    }
}

fn damage(value: &mut Value, damage: &Damage) {
    *value = match (damage, value.take()) {
        (Damage::Number(number), _) => (*number).into(),
        (Damage::Text(text), _) => (*text).into(),
        (Damage::Null, _) => Value::Null,
        (Damage::Emptied, Value::Array(_)) => Value::Array(Vec::new()),
        (Damage::Emptied, Value::Object(_)) => Value::Object(serde_json::Map::new()),
        (Damage::Doubled, Value::Array(list)) => list.iter().chain(&list).cloned().collect(),
        (Damage::Dropped, Value::Array(mut list)) => {
            list.pop();
            Value::Array(list)
        }
        (_, other) => other,
    };
}

proptest! {
    #[test]
    fn a_damaged_snapshot_gives_plans_or_errors(
        wounds in prop::collection::vec((any::<prop::sample::Index>(), any_damage()), 1..4),
    ) {
        let mut value = whole();
        let mut found = Vec::new();
        places(&value, "", &mut found);
        for (index, wound) in &wounds {
            let place: &String = index.get(&found);
            if let Some(at) = value.pointer_mut(place) {
                damage(at, wound);
            }
        }
        let Ok(snapshot) = serde_json::from_value::<Snapshot>(value) else { return Ok(()) };
        if let Err(errors) = snapshot.validate() {
            prop_assert!(!errors.is_empty());
            return Ok(());
        }
        let policy = Policy::default();
        // Amounts and rules may make no sense; plans need not either, but there have to be some.
        let plan = provision(&snapshot, &policy, now(), 1, &());
        let _ = check(&snapshot, &plan);
        let plan = disrupt(&snapshot, &policy, now(), 1, &());
        let _ = check(&snapshot, &plan);
        for command in &plan.commands {
            let _ = crate::revalidate(command, &snapshot, &policy, now());
        }
        let _ = replicas(&snapshot, &policy, now(), 1);
    }
}
