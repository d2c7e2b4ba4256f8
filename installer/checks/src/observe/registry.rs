//! Whether a registry has the operator's image, and for which architectures: its manifest is asked
//! for as nodes do (OCI distribution specification).

use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use hyper_util::client::proxy::matcher::Matcher;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::super::observed::RegistryView;
use super::Sources;
use super::unread::Unread;

/// Longer than any of these calls takes, and short enough not to hold up the other checks.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Indices of several architectures, and manifests of one.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

/// What the registry says of the operator's image; none where the image names no registry.
pub(super) async fn image(sources: &Sources<'_>) -> Result<Option<RegistryView>, Unread> {
    let image = &sources.settings.values.controller.image;
    let Some((host, repository)) = split(&image.repository) else { return Ok(None) };
    let version = if image.digest.is_empty() { image.tag() } else { &image.digest };
    let url = format!("{}://{host}/v2/{repository}/manifests/{version}", scheme(host));
    let asked = tokio::time::timeout(TIMEOUT, manifest(&url, &proxies(sources))).await;
    asked.map_err(|_| format!("no answer from {host} in {} s", TIMEOUT.as_secs()))?.map(Some)
}

/// The registry's host and the repository in it.
fn split(image: &str) -> Option<(&str, &str)> {
    let (host, repository) = image.split_once('/')?;
    (host == "localhost" || host.contains(['.', ':'])).then_some((host, repository))
}

/// As container runtimes have it: nobody has a certificate for loopback.
fn scheme(host: &str) -> &'static str {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if ["localhost", "127.0.0.1", "[::1]"].contains(&name) { "http" } else { "https" }
}

/// What this program was told of proxies: registries are asked as AWS is.
fn proxies(sources: &Sources<'_>) -> Matcher {
    let (https, past) = sources.proxies.clone();
    Matcher::builder().https(https.unwrap_or_default()).no(past.unwrap_or_default()).build()
}

async fn manifest(url: &str, proxies: &Matcher) -> Result<RegistryView, Unread> {
    let mut answer = get(url, None, proxies).await?;
    if answer.status() == StatusCode::UNAUTHORIZED
        && let Some(token) = token(&answer, proxies).await?
    {
        answer = get(url, Some(&token), proxies).await?;
    }
    let status = answer.status().as_u16();
    let body = if status == 200 { json(answer).await? } else { Value::Null };
    let manifests = body["manifests"].as_array().into_iter().flatten();
    let architectures = manifests
        .filter_map(|one| one.pointer("/platform/architecture")?.as_str())
        // What signs and describes an image is listed beside it.
        .filter(|architecture| *architecture != "unknown")
        .map(str::to_owned)
        .collect();
    Ok(RegistryView { status, architectures })
}

/// What opens the repository for everybody, if the registry says where that is given out.
async fn token(refusal: &Response<Body>, proxies: &Matcher) -> Result<Option<String>, Unread> {
    let header = refusal.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
    let Some(url) = header.and_then(token_url) else { return Ok(None) };
    let answer = get(&url, None, proxies).await?;
    if answer.status() != StatusCode::OK {
        return Ok(None);
    }
    let answer = json(answer).await?;
    let token = answer["token"].as_str().or_else(|| answer["access_token"].as_str());
    Ok(token.map(str::to_owned))
}

/// `Bearer realm="https://…",service="…",scope="…"`
fn token_url(challenge: &str) -> Option<String> {
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

async fn get(url: &str, token: Option<&str>, proxies: &Matcher) -> Result<Response<Body>, Unread> {
    let failed = |error: &dyn std::error::Error| format!("{url}: {error}");
    let uri = url.parse::<http::Uri>().map_err(|error| failed(&error))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut base = http::uri::Parts::default();
    (base.scheme, base.authority) = (uri.scheme().cloned(), uri.authority().cloned());
    base.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
    let base = http::Uri::from_parts(base).map_err(|error| failed(&error))?;
    let mut config = kube::Config::new(base);
    config.proxy_url = proxies.intercept(&uri).map(|proxy| proxy.uri().clone());
    let client = kube::Client::try_from(config).map_err(|error| failed(&error))?;
    let mut request = Request::get(path).header(ACCEPT, MANIFESTS);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Body::empty()).map_err(|error| failed(&error))?;
    Ok(client.send(request).await.map_err(|error| failed(&error))?)
}

async fn json(answer: Response<Body>) -> Result<Value, Unread> {
    let body = answer.into_body().collect_bytes().await.map_err(Unread::of)?;
    Ok(serde_json::from_slice(&body).map_err(|error| format!("the registry's answer: {error}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_what_looks_like_a_host() {
        assert_eq!(split("public.ecr.aws/a/b"), Some(("public.ecr.aws", "a/b")));
        assert_eq!(split("localhost:5000/b"), Some(("localhost:5000", "b")));
        assert_eq!(split("library/tenon-operator"), None);
        assert_eq!(split("tenon-operator"), None);
        assert_eq!(scheme("127.0.0.1:5000"), "http");
        assert_eq!(scheme("registry.example:5000"), "https");
    }

    #[test]
    fn a_challenge_says_where_tokens_are() {
        let challenge =
            r#"Bearer realm="https://auth.example/token",service="r",scope="repository:a/b:pull""#;
        assert_eq!(
            token_url(challenge).as_deref(),
            Some("https://auth.example/token?service=r&scope=repository%3Aa%2Fb%3Apull")
        );
        assert_eq!(token_url("Basic realm=\"x\""), None, "that takes a login");
    }
}
