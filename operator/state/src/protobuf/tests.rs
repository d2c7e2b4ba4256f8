//! What is not as it should be. That both encodings of an object give the same value, the API
//! server itself says (`tests/tests/beds/encodings.rs`).

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::{ListDecoder, Page, ProtobufError, decode_status, messages};
use crate::guarded::Guarded;
use crate::wire;

/// A list as it is written.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, optional, tag = "1")]
    metadata: Option<messages::ListMeta>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    items: Vec<Bytes>,
}

fn body(items: Vec<Bytes>, continue_token: &str) -> Bytes {
    let metadata = messages::ListMeta {
        resource_version: "4711".to_owned(),
        continue_token: continue_token.to_owned(),
    };
    let list = List { metadata: Some(metadata), items };
    let envelope = messages::Unknown { raw: list.encode_to_vec().into() };
    [super::MAGIC, &envelope.encode_to_vec()].concat().into()
}

/// From a body in one piece.
fn whole_list(body: &[u8]) -> Result<Page<wire::Pod>, ProtobufError> {
    let mut decoder = ListDecoder::new();
    decoder.push(body);
    decoder.finish()
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
    let page = whole_list(&body).expect("a list");
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
    assert!(matches!(whole_list(&json), Err(ProtobufError::Magic)));
    let whole = body(vec![pod("first", "1")], "");
    let cut = whole.slice(..whole.len() - 3);
    assert!(matches!(whole_list(&cut), Err(ProtobufError::Truncated)));
    let page = whole_list(&whole).expect("a list");
    assert_eq!((page.items.len(), page.continue_token), (1, None));
}

#[test]
fn pieces_of_any_size_give_the_same_list() {
    let broken = pod("third", "1").slice(..20);
    let whole = body(vec![pod("first", "1"), pod("second", "a lot"), broken], "more");
    let expected = format!("{:?}", whole_list(&whole).expect("a list"));
    assert!(expected.contains("first") && expected.contains("second"), "{expected}");
    for size in 1..=whole.len() {
        let mut decoder = ListDecoder::<wire::Pod>::new();
        for piece in whole.chunks(size) {
            decoder.push(piece);
            decoder.decode().expect("nothing is wrong so far");
        }
        let page = decoder.finish().expect("a list");
        assert_eq!(format!("{page:?}"), expected, "in pieces of {size} bytes");
    }
}

#[test]
fn a_body_that_ends_early_is_no_list_wherever_it_ends() {
    let whole = body(vec![pod("first", "1"), pod("second", "1")], "");
    for end in 0..whole.len() {
        let mut decoder = ListDecoder::<wire::Pod>::new();
        decoder.push(&whole[..end]);
        decoder.decode().expect("nothing is wrong so far");
        let error = decoder.finish().expect_err("something is missing");
        assert!(matches!(error, ProtobufError::Truncated), "after {end} bytes: {error}");
    }
}

/// An envelope around bytes that are no list.
fn around(raw: &[u8]) -> Bytes {
    let envelope = messages::Unknown { raw: Bytes::copy_from_slice(raw) };
    [super::MAGIC, &envelope.encode_to_vec()].concat().into()
}

#[test]
fn fields_that_are_not_known_are_left_out() {
    let list = List { metadata: None, items: vec![pod("first", "1")] };
    // A number, four bytes, eight bytes, and a text, as fields 3 to 6.
    let unknown = [0x18, 0x96, 0x01, 0x25, 1, 2, 3, 4, 0x29, 1, 2, 3, 4, 5, 6, 7, 8, 0x32, 1, b'a'];
    let page = whole_list(&around(&[&unknown[..], &list.encode_to_vec()].concat()));
    assert_eq!(page.expect("a list").items.len(), 1);
    // After the list, the envelope says how it is written.
    let mut body = around(&list.encode_to_vec()).to_vec();
    body.extend([0x1a, 0, 0x22, 0]);
    assert_eq!(whole_list(&body).expect("a list").items.len(), 1);
}

#[test]
fn fields_that_cannot_be_are_refused() {
    let endless = [0xff; 10];
    let group = [0x13];
    let longer_than_the_list = [0x12, 0x05, 0, 0];
    for raw in [&endless[..], &group, &longer_than_the_list] {
        let error = whole_list(&around(raw)).expect_err("no list");
        assert!(matches!(error, ProtobufError::Malformed), "{raw:?}: {error}");
    }
}
