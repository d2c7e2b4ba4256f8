//! How clients find an image registry and get in, as OCI's distribution specification has it. Pure:
//! the check of the operator's image and the release program send the requests.

use http::Uri;
use http::uri::{Authority, PathAndQuery};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Host and repository of an image without tag and digest. `None` if it names no registry, such as
/// `library/nginx`: as container runtimes have it, a host has a dot or a port, or is `localhost`.
pub fn split(image: &str) -> Option<(&str, &str)> {
    let (host, repository) = image.split_once('/')?;
    (host == "localhost" || host.contains(['.', ':'])).then_some((host, repository))
}

/// Whether a registry is on this machine.
pub fn is_on_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    ["localhost", "127.0.0.1", "[::1]"].contains(&name)
}

/// As container runtimes have it: nobody has a certificate for loopback.
pub fn scheme(host: &str) -> &'static str {
    if is_on_loopback(host) { "http" } else { "https" }
}

/// Where a registry gives out tokens, from the header `WWW-Authenticate` of its refusal:
/// `Bearer realm="https://…",service="…",scope="…"`. `None` for other challenges, such as `Basic`.
pub fn token_url(challenge: &str) -> Option<String> {
    let (scheme, rest) = challenge.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let part = |name: &str| {
        let (_, after) = rest.split_once(&format!("{name}=\""))?;
        after.split_once('"').map(|(value, _)| value)
    };
    let mut url = part("realm")?.to_owned();
    for name in ["service", "scope"] {
        if let Some(value) = part(name) {
            let sign = if url.contains('?') { '&' } else { '?' };
            url = format!("{url}{sign}{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
    }
    Some(url)
}

/// The token in the answer of such a URL.
pub fn token(answer: &Value) -> Option<&str> {
    answer["token"].as_str().or_else(|| answer["access_token"].as_str())
}

/// A URL as a base and what is asked of it, for clients that take both apart.
///
/// # Errors
/// The URL has no host.
pub fn base_and_path(uri: &Uri) -> Result<(Uri, String), http::Error> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
    let base = Uri::builder()
        .scheme(uri.scheme_str().unwrap_or("https"))
        .authority(uri.authority().map_or("", Authority::as_str))
        .path_and_query("/")
        .build()?;
    Ok((base, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_what_looks_like_a_host() {
        assert_eq!(split("public.ecr.aws/a/b"), Some(("public.ecr.aws", "a/b")));
        assert_eq!(split("localhost:5000/b"), Some(("localhost:5000", "b")));
        assert_eq!(split("localhost/b"), Some(("localhost", "b")));
        assert_eq!(split("library/tenon-operator"), None);
        assert_eq!(split("tenon-operator"), None);
        assert_eq!(scheme("127.0.0.1:5000"), "http");
        assert_eq!(scheme("registry.example:5000"), "https");
    }

    #[test]
    fn a_challenge_says_where_tokens_are() {
        let challenge =
            r#"Bearer realm="https://auth.example/token",service="r",scope="repository:a/b:pull""#;
        let url = "https://auth.example/token?service=r&scope=repository%3Aa%2Fb%3Apull";
        assert_eq!(token_url(challenge).as_deref(), Some(url));
        let challenge = r#"bearer realm="https://r.example/t?a=b",scope="repository:a:pull,push""#;
        let url = "https://r.example/t?a=b&scope=repository%3Aa%3Apull%2Cpush";
        assert_eq!(token_url(challenge).as_deref(), Some(url));
        assert_eq!(token_url("Bearer service=\"r\""), None);
        assert_eq!(token_url("Basic realm=\"x\""), None, "that takes a login");
        assert_eq!(token_url(""), None);
    }

    #[test]
    fn registries_name_their_tokens_in_two_ways() {
        for name in ["token", "access_token"] {
            assert_eq!(token(&serde_json::json!({ name: "t" })), Some("t"));
        }
        assert_eq!(token(&Value::Null), None);
    }

    #[test]
    fn a_url_is_taken_apart_behind_the_host() {
        let uri = "https://r.example:5000/v2/a?b=c".parse().unwrap();
        let (base, path) = base_and_path(&uri).unwrap();
        assert_eq!(
            (base.to_string().as_str(), path.as_str()),
            ("https://r.example:5000/", "/v2/a?b=c")
        );
        assert!(base_and_path(&"/v2/a".parse().unwrap()).is_err());
    }
}
