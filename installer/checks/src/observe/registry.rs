//! Whether a registry has the operator's image, and for which architectures: its manifest is asked
//! for as nodes do (OCI distribution specification).

use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use hyper_util::client::proxy::matcher::Matcher;
use kube::client::Body;
use serde_json::Value;
use tenon_registry::{base_and_path, scheme, split, token_url};

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
    Ok(tenon_registry::token(&answer).map(str::to_owned))
}

async fn get(url: &str, token: Option<&str>, proxies: &Matcher) -> Result<Response<Body>, Unread> {
    let failed = |error: &dyn std::error::Error| format!("{url}: {error}");
    let uri = url.parse::<http::Uri>().map_err(|error| failed(&error))?;
    let (base, path) = base_and_path(&uri).map_err(|error| failed(&error))?;
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
