//! What is not as it should be. That both encodings of an object give the same value, the API server
//! itself says (`tests/tests/beds/requests.rs`).

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;

use super::{ProtobufError, decode_list, messages};
use crate::wire;

fn body(items: Vec<Bytes>, continue_token: &str) -> Bytes {
    let metadata = messages::ListMeta { continue_token: continue_token.to_owned() };
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
    let [first, second, third] = &page.items[..] else { panic!("{:?}", page.items) };
    let first = first.as_ref().expect_err("it is invalid");
    assert_eq!(first.metadata.name.as_deref(), Some("first"));
    assert!(first.error.starts_with("spec.containers[0].resources.requests.cpu: "), "{first:?}");
    let second = second.as_ref().expect("it is valid");
    assert_eq!(second.spec.containers[0].resources.requests["cpu"].millis(), 500);
    assert!(third.is_err(), "{third:?}");
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
