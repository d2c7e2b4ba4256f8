//! What is not as it should be. That both encodings of an object give the same value, the API
//! server itself says (`tests/tests/beds/encodings.rs`).

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;

use super::{ProtobufError, decode_list, decode_status, messages};
use crate::guarded::Guarded;
use crate::wire;

fn body(items: Vec<Bytes>, continue_token: &str) -> Bytes {
    let metadata = messages::ListMeta {
        resource_version: "4711".to_owned(),
        continue_token: continue_token.to_owned(),
    };
    let list = messages::List { metadata: Some(metadata), items };
    let envelope = messages::Unknown { raw: list.encode_to_vec().into() };
    [super::MAGIC, &envelope.encode_to_vec()].concat().into()
}

fn pod(name: &str, cpu: &str) -> Bytes {
    let amount = messages::Quantity { string: cpu.to_owned() };
    let resources = messages::Resources {
        requests: BTreeMap::from([("cpu".to_owned(), amount)]),
        ..messages::Resources::default()
    };
    let container =
        messages::Container { resources: Some(resources), ..messages::Container::default() };
    let spec = messages::PodSpec { containers: vec![container], ..messages::PodSpec::default() };
    let metadata = messages::ObjectMeta {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        ..messages::ObjectMeta::default()
    };
    let pod = messages::Pod { metadata: Some(metadata), spec: Some(spec), status: None };
    pod.encode_to_vec().into()
}

#[test]
fn a_pod_that_is_not_valid_is_named_and_hides_no_other() {
    let broken = pod("third", "1").slice(..20);
    let body = body(vec![pod("first", "a lot"), pod("second", "500m"), broken], "more");
    let page = decode_list::<wire::Pod>(body).expect("a list");
    assert_eq!(page.continue_token.as_deref(), Some("more"));
    assert_eq!(page.resource_version.as_deref(), Some("4711"));
    let results: Vec<_> = page.items.into_iter().map(Guarded::into_result).collect();
    let [first, second, third] = &results[..] else { panic!("{results:?}") };
    let first = first.as_ref().expect_err("it is invalid");
    assert_eq!(first.metadata.name.as_deref(), Some("first"));
    assert!(first.error.starts_with("spec.containers[0].resources.requests.cpu: "), "{first:?}");
    let second = second.as_ref().expect("it is valid");
    assert_eq!(second.spec.containers[0].resources.requests["cpu"].millis(), 500);
    assert!(third.is_err(), "{third:?}");
}

#[test]
fn a_refusal_says_why() {
    let (message, reason) = ("too old".to_owned(), "Expired".to_owned());
    let status = messages::Status { message, reason, code: 410 };
    let envelope = messages::Unknown { raw: status.encode_to_vec().into() };
    let body = [super::MAGIC, &envelope.encode_to_vec()].concat().into();
    let status = decode_status(body).expect("a status");
    assert_eq!((&*status.message, &*status.reason, status.code), ("too old", "Expired", 410));
    assert!(status.is_failure());
}

#[test]
fn what_is_no_list_in_this_encoding_is_refused() {
    let json = Bytes::from_static(b"{\"kind\":\"PodList\",\"items\":[]}");
    assert!(matches!(decode_list::<wire::Pod>(json), Err(ProtobufError::Magic)));
    let whole = body(vec![pod("first", "1")], "");
    let cut = whole.slice(..whole.len() - 3);
    assert!(matches!(decode_list::<wire::Pod>(cut), Err(ProtobufError::Message(_))));
    let page = decode_list::<wire::Pod>(whole).expect("a list");
    assert_eq!((page.items.len(), page.continue_token), (1, None));
}
