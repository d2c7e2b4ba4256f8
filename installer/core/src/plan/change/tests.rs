use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Does to a value what a change says.
fn apply(value: &mut Value, segments: &[Segment], after: Option<&Value>) {
    let Some((first, rest)) = segments.split_first() else {
        *value = after.cloned().unwrap_or(Value::Null);
        return;
    };
    match first {
        Segment::Field(field) => {
            if !value.is_object() {
                *value = json!({});
            }
            apply(&mut value[field.as_str()], rest, after);
        }
        Segment::Element { key, name: wanted } => {
            if !value.is_array() {
                *value = json!([]);
            }
            let list = value.as_array_mut().expect("a list");
            let at = list.iter().position(|one| name(one, key).as_ref() == Some(wanted));
            match (at, rest.is_empty(), after) {
                (Some(at), true, None) => drop(list.remove(at)),
                (Some(at), _, _) => apply(&mut list[at], rest, after),
                (None, _, _) => {
                    let mut element = Value::Null;
                    apply(&mut element, rest, after);
                    list.push(element);
                }
            }
        }
    }
}

/// A value without what says nothing, and with lists by key in the order of their keys.
fn plain(value: &Value) -> Value {
    match value {
        value if !says_something(value) => Value::Null,
        Value::Object(map) => {
            let said = map.iter().filter(|(_, value)| says_something(value));
            Value::Object(said.map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        Value::Array(list) => {
            let mut list = list.iter().map(plain).collect::<Vec<_>>();
            if let Some(key) = common_key(&list, &list) {
                list.sort_by_key(|element| name(element, key));
            }
            Value::Array(list)
        }
        other => other.clone(),
    }
}

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4_i64).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("[a-c./]{1,2}|name|key|value", inner.clone(), 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            // Lists by name, as of containers.
            prop::collection::btree_map("[a-e]", inner, 0..5).prop_shuffled(),
        ]
    })
}

trait Shuffled {
    fn prop_shuffled(self) -> BoxedStrategy<Value>;
}

impl<S: Strategy<Value = std::collections::BTreeMap<String, Value>> + 'static> Shuffled for S {
    fn prop_shuffled(self) -> BoxedStrategy<Value> {
        let named = self.prop_map(|map| {
            map.into_iter()
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect::<Vec<_>>()
        });
        named.prop_shuffle().prop_map(Value::Array).boxed()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_changes_applied_to_the_value_before_give_the_value_after(
        before in values(), after in values()
    ) {
        let found = changes(&before, &after);
        let mut value = before.clone();
        for change in &found {
            apply(&mut value, &change.path.0, change.after.as_ref());
        }
        prop_assert_eq!(plain(&value), plain(&after), "{:?}", found);
        let mut back = after;
        for change in &found {
            apply(&mut back, &change.path.0, change.before.as_ref());
        }
        prop_assert_eq!(plain(&back), plain(&before), "{:?}", found);
        prop_assert_eq!(changes(&before, &before), []);
    }

    #[test]
    fn no_two_changes_are_of_the_same_field_or_of_one_within_another(
        before in values(), after in values()
    ) {
        let found = changes(&before, &after);
        for (i, one) in found.iter().enumerate() {
            for other in &found[i + 1..] {
                prop_assert!(!other.path.0.starts_with(&one.path.0), "{} {}", one.path, other.path);
                prop_assert_ne!(one.path.to_string(), other.path.to_string());
            }
        }
    }
}

fn shown(before: &Value, after: &Value) -> Vec<String> {
    let found = changes(before, after);
    let text = |value: Option<Value>| value.map_or_else(|| "none".to_owned(), |it| it.to_string());
    let line = |change: &Change| {
        format!("{}: {} → {}", change.path, text(change.shown_before()), text(change.shown_after()))
    };
    found.iter().map(line).collect()
}

#[test]
fn elements_are_known_by_their_key_and_lists_without_one_are_compared_as_a_whole() {
    let before = json!({
        "containers": [{"name": "a", "image": "x:1"}, {"name": "b"}],
        "labels": {"a.b/c": "1"},
        "zones": ["a", "b"],
        "rules": [{"verbs": ["get"]}],
    });
    let after = json!({
        "containers": [{"name": "a", "image": "x:2"}, {"name": "c"}],
        "labels": {"a.b/c": "2", "d": "3"},
        "zones": ["a"],
        "rules": [{"verbs": ["get"]}, {"verbs": ["list"]}],
    });
    assert_eq!(
        shown(&before, &after),
        [
            r#"containers[name=a].image: "x:1" → "x:2""#,
            r#"containers[name=b]: {"name":"b"} → none"#,
            r#"containers[name=c]: none → {"name":"c"}"#,
            r#"labels["a.b/c"]: "1" → "2""#,
            r#"labels.d: none → "3""#,
            r#"rules: [{"verbs":["get"]}] → [{"verbs":["get"]},{"verbs":["list"]}]"#,
            r#"zones: ["a","b"] → ["a"]"#,
        ]
    );
}

#[test]
fn secrets_and_user_data_are_not_shown_and_their_change_is() {
    let of = |value: &str| {
        json!({
            "env": [
                {"name": "API_TOKEN", "value": value},
                {"name": "LEVEL", "value": value},
            ],
            "spec": {"userData": value},
        })
    };
    let hidden = [
        r#"env[name=API_TOKEN].value: "(sensitive)" → "(sensitive)""#,
        r#"env[name=LEVEL].value: "a" → "b""#,
        r#"spec.userData: "(sensitive)" → "(sensitive)""#,
    ];
    assert_eq!(shown(&of("a"), &of("b")), hidden);
    let json = serde_json::to_string(&changes(&json!({}), &of("hunter2"))).expect("JSON");
    assert_eq!(json.matches("hunter2").count(), 1, "only the one that is no secret: {json}");
}
