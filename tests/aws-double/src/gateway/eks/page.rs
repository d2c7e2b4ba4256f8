//! Pages of lists: `maxResults` and `nextToken`.

use serde_json::{Value, json};

use super::invalid;
use crate::gateway::request::AwsRequest;
use crate::gateway::response::AwsError;

/// Most items that one page may hold; also the default.
const LARGEST: usize = 100;

/// The page of `items` that the call asks for, as the member `field`.
pub(super) fn page(
    request: &AwsRequest,
    field: &str,
    items: Vec<Value>,
) -> Result<Value, AwsError> {
    // Insights and add-on versions are asked for by POST and GET alike: the parameters are in the
    // query or in the body.
    let param = |name: &str| {
        let body = &request.json[name];
        request.params.get(name).map(str::to_owned).or_else(|| {
            body.as_str()
                .map(str::to_owned)
                .or_else(|| body.as_u64().map(|number| number.to_string()))
        })
    };
    let size = match param("maxResults") {
        None => LARGEST,
        Some(text) => {
            text.parse().ok().filter(|size| (1..=LARGEST).contains(size)).ok_or_else(|| {
                invalid(&format!("maxResults needs to be 1 to {LARGEST} but was {text}"))
            })?
        }
    };
    let start: usize = match param("nextToken").filter(|token| !token.is_empty()) {
        None => 0,
        Some(token) => token
            .strip_prefix("from-")
            .and_then(|start| start.parse().ok())
            .filter(|start| *start < items.len())
            .ok_or_else(|| invalid("Invalid token"))?,
    };
    let n_items = items.len();
    let page: Vec<Value> = items.into_iter().skip(start).take(size).collect();
    let mut answer = json!({ field: page });
    if start + size < n_items {
        answer["nextToken"] = json!(format!("from-{}", start + size));
    }
    Ok(answer)
}
