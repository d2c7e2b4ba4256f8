//! Lists in Kubernetes' Protobuf encoding. The API server writes it several times as fast as JSON,
//! and it is a third of the size: for 10,000 pods 0.24 s instead of 1.1 s.
//!
//! Only the fields that the wire types have are decoded (`messages.rs`); numbers and types are
//! those of the `generated.proto` files of `k8s.io/api` and `k8s.io/apimachinery`. Objects of
//! custom resources have no such encoding.

mod convert;
mod messages;
mod pieces;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ObjectList, Status};
use prost::Message as _;

pub use self::pieces::ListDecoder;
use crate::change::Watched;
use crate::guarded::{Guarded, Invalid};
use crate::wire;

/// The media type to accept.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// A kind whose lists can be decoded.
pub trait Encoded: Watched {
    /// An object, from its bytes in a list.
    ///
    /// # Errors
    /// When the bytes are not such a message, or a field has a value that its type does not allow.
    fn decode(bytes: Bytes) -> Result<Self, Box<Invalid>>;
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page<K> {
    /// The objects; one that can't be read does not hide the others.
    pub items: Vec<Guarded<K>>,
    /// Where the next page begins; `None` on the last one.
    pub continue_token: Option<String>,
    /// The version of the list, from which a watch goes on.
    pub resource_version: Option<String>,
}

impl<K: Encoded> From<ObjectList<Guarded<K>>> for Page<K> {
    /// The same page, from JSON.
    fn from(list: ObjectList<Guarded<K>>) -> Self {
        Self {
            items: list.items,
            continue_token: list.metadata.continue_.filter(|token| !token.is_empty()),
            resource_version: list.metadata.resource_version.filter(|version| !version.is_empty()),
        }
    }
}

/// A body that is not what it should be in this encoding.
#[derive(Debug, thiserror::Error)]
pub enum ProtobufError {
    /// Without the four bytes that every body begins with.
    #[error("the body is not in Kubernetes' Protobuf encoding")]
    Magic,
    /// Envelope or content.
    #[error("the body is not what was expected in Kubernetes' Protobuf encoding")]
    Message(#[from] prost::DecodeError),
    /// A field of a type that does not exist, or longer than what contains it.
    #[error("the body has a field that does not exist in Kubernetes' Protobuf encoding")]
    Malformed,
    /// Less than what was announced.
    #[error("the body ends within its list")]
    Truncated,
}

/// Decodes the body of an answer that refuses a request.
///
/// # Errors
/// When it is not a status in this encoding.
pub fn decode_status(body: Bytes) -> Result<Status, ProtobufError> {
    let status = messages::Status::decode(content(body)?)?;
    let code = u16::try_from(status.code).unwrap_or_default();
    Ok(Status::failure(&status.message, &status.reason).with_code(code))
}

/// What the envelope of a body contains.
fn content(mut body: Bytes) -> Result<Bytes, ProtobufError> {
    if !body.starts_with(MAGIC) {
        return Err(ProtobufError::Magic);
    }
    Ok(messages::Unknown::decode(body.split_off(MAGIC.len()))?.raw)
}

/// A field that has a value which its type does not allow: its path, and why.
type InvalidField = (String, String);

/// Decodes and converts an object; names it if that fails.
fn object<M, K>(
    bytes: &Bytes,
    convert: impl FnOnce(M) -> Result<K, InvalidField>,
) -> Result<K, Box<Invalid>>
where
    M: prost::Message + Default,
{
    let error = match M::decode(bytes.clone()) {
        Ok(message) => match convert(message) {
            Ok(object) => return Ok(object),
            Err((path, why)) => format!("{path}: {why}"),
        },
        Err(error) => error.to_string(),
    };
    let named = messages::MetadataOnly::decode(bytes.clone()).unwrap_or_default();
    let metadata = named.metadata.map(|metadata| ObjectMeta {
        name: convert::text(metadata.name),
        namespace: convert::text(metadata.namespace),
        uid: convert::text(metadata.uid),
        resource_version: convert::text(metadata.resource_version),
        ..ObjectMeta::default()
    });
    Err(Box::new(Invalid { error, metadata: metadata.unwrap_or_default() }))
}

impl Encoded for wire::Pod {
    fn decode(bytes: Bytes) -> Result<Self, Box<Invalid>> {
        object(&bytes, convert::pod)
    }
}

impl Encoded for wire::Node {
    fn decode(bytes: Bytes) -> Result<Self, Box<Invalid>> {
        object(&bytes, convert::node)
    }
}

#[cfg(test)]
mod tests;
