//! The manifests in `docs/examples` say nothing that the types don't know: a misspelt field would
//! be dropped without a word.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenon_crds::{EC2NodeClass, KWOKNodeClass, NodePool};

/// What the type makes of a document.
fn read<T: DeserializeOwned + Serialize>(document: &Value) -> Value {
    let object: T = serde_json::from_value(document.clone()).expect("a document of its kind");
    serde_json::to_value(object).expect("it was JSON")
}

/// Fields of `document` that `read` has lost, as paths.
fn lost(document: &Value, read: Option<&Value>, path: &str) -> Vec<String> {
    let Some(read) = read else { return vec![path.to_owned()] };
    match document {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, field)| lost(field, read.get(name), &format!("{path}.{name}")))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(index, item)| lost(item, read.get(index), &format!("{path}[{index}]")))
            .collect(),
        _ => Vec::new(),
    }
}

#[test]
fn every_field_of_the_examples_is_known() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    let mut documents = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let known = match document["kind"].as_str() {
                Some("NodePool") => read::<NodePool>(&document),
                Some("EC2NodeClass") => read::<EC2NodeClass>(&document),
                Some("KWOKNodeClass") => read::<KWOKNodeClass>(&document),
                kind => panic!("{}: no type for {kind:?}", path.display()),
            };
            let lost = lost(&document, Some(&known), "");
            assert!(lost.is_empty(), "{}: {lost:?}", path.display());
            documents += 1;
        }
    }
    assert!(documents > 0, "there are examples");
}
