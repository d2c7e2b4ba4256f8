//! S3 names a bucket and a key by the path, and what is meant by the method and the query.

use axum::http::Method;

use super::Params;

/// The action as IAM spells it, or `None` for one that we do not know.
pub(super) fn action(
    method: &Method,
    segments: &[String],
    params: &Params,
) -> Option<&'static str> {
    let has = |name: &str| params.get(name).is_some();
    Some(match (method.as_str(), segments.len()) {
        ("GET", 0) => "ListAllMyBuckets",
        ("GET", 1) if has("location") => "GetBucketLocation",
        ("GET" | "HEAD", 1) => "ListBucket",
        ("PUT", 1) => "CreateBucket",
        ("DELETE", 1) => "DeleteBucket",
        ("GET" | "HEAD", 2..) => "GetObject",
        ("PUT", 2..) => "PutObject",
        ("DELETE", 2..) => "DeleteObject",
        _ => return None,
    })
}
