//! Lists of a running cluster in the encoding that the API server writes fastest.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use kube::api::ListParams;
use kube::client::Body;
use kube::core::{ObjectList, Status};
use kube::{Api, Client};
use tenon_state::guarded::Guarded;
use tenon_state::protobuf::{self, Encoded, ListDecoder, Page, ProtobufError};

/// The media types to accept.
const EITHER: &str = "application/vnd.kubernetes.protobuf, application/json;q=0.5";

/// How many bytes of a body are decoded at a time. It is received item by item, and decoding after
/// each would wake this task once per item.
const AT_ONCE: usize = 256 * 1024;

/// A page of all objects of a kind, in the Protobuf encoding, which the API server writes several
/// times as fast as JSON; as JSON if the answer is JSON all the same. If the server offers neither
/// of both, or what it sends can't be decoded, JSON alone is requested.
///
/// # Errors
/// When the API server does not answer, or refuses the request.
pub async fn list_page<K: Encoded>(client: &Client, params: &ListParams) -> kube::Result<Page<K>> {
    let request = kube::core::Request::new(K::url_path(&(), None)).list(params);
    let mut request = request.map_err(kube::Error::BuildRequest)?.map(Body::from);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(EITHER));
    let answer = client.send(request).await?;
    let code = answer.status();
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_encoded = kind.is_some_and(|kind| kind.starts_with(protobuf::MEDIA_TYPE));
    if code != StatusCode::NOT_ACCEPTABLE && code != StatusCode::UNSUPPORTED_MEDIA_TYPE {
        let body = answer.into_body();
        if !code.is_success() {
            let body = body.collect_bytes().await?;
            return Err(kube::Error::Api(refusal(code, &body, is_encoded).boxed()));
        }
        let page = if is_encoded {
            decode(body).await?.map_err(|error| error.to_string())
        } else {
            let body = body.collect_bytes().await?;
            let list = serde_json::from_slice::<ObjectList<Guarded<K>>>(&body);
            list.map(Page::from).map_err(|error| error.to_string())
        };
        match page {
            Ok(page) => return Ok(page),
            Err(error) => {
                tracing::debug!(kind = %K::kind(&()), error, "requesting the list as JSON");
            }
        }
    }
    Ok(Api::<Guarded<K>>::all(client.clone()).list(params).await?.into())
}

/// Decodes a list while it comes in: the API server writes one item after the other, so that both
/// work at the same time, and nothing holds the whole body.
async fn decode<K: Encoded>(mut body: Body) -> kube::Result<Result<Page<K>, ProtobufError>> {
    let mut decoder = ListDecoder::new();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            decoder.push(&piece);
        }
        if decoder.waiting() >= AT_ONCE
            && let Err(error) = decoder.decode()
        {
            return Ok(Err(error));
        }
    }
    Ok(decoder.finish())
}

/// Why a request was refused, as far as the answer says so.
fn refusal(code: StatusCode, body: &Bytes, is_encoded: bool) -> Status {
    let status = if is_encoded {
        protobuf::decode_status(body.clone()).ok()
    } else {
        serde_json::from_slice::<Status>(body).ok()
    };
    let said = status.filter(|status| status.code == code.as_u16());
    said.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(body);
        Status::failure(text.trim(), "").with_code(code.as_u16())
    })
}
