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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_the_path_and_the_query_name_the_action() {
        let named = |method: &Method, path: &[&str], query: &str| {
            let path = path.iter().map(|&segment| segment.to_owned()).collect::<Vec<_>>();
            action(method, &path, &Params::of_query(query))
        };
        let cases = [
            (Method::GET, &["b"][..], "location", Some("GetBucketLocation")),
            (Method::GET, &["b"], "list-type=2&prefix=a/", Some("ListBucket")),
            (Method::GET, &["b", "a", "config"], "", Some("GetObject")),
            (Method::HEAD, &["b", "a"], "", Some("GetObject")),
            (Method::PUT, &["b"], "", Some("CreateBucket")),
            (Method::PUT, &["b", "a"], "", Some("PutObject")),
            (Method::DELETE, &["b", "a"], "", Some("DeleteObject")),
            (Method::POST, &["b"], "delete", None),
        ];
        for (method, path, query, wanted) in cases {
            assert_eq!(named(&method, path, query), wanted, "{method} {path:?} {query}");
        }
    }
}
