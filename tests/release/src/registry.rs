//! Registries, as OCI's distribution specification has them: an image layout goes there, or comes
//! from there.

use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode, Uri};
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tenon_registry::{base_and_path, is_on_loopback, scheme, split, token_url};

use crate::error::Error;
use crate::layout::{Descriptor, INDEX, Index, Layout, MANIFEST, Manifest, digest_of};
use crate::proxy::Proxies;

/// What a registry is asked for, and what else it may have.
const MANIFESTS: &str =
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json";

/// A registry does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// What is sent or came can't be read or written, or has another digest.
    #[error(transparent)]
    Content(#[from] Error),
    /// It can't be asked.
    #[error("can't ask {url}")]
    Ask {
        /// What was asked.
        url: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It refuses.
    #[error("{method} {url}: the registry answers {status}{}", hint(*.status))]
    Refused {
        /// How it was asked.
        method: Method,
        /// What was asked.
        url: String,
        /// HTTP status of the registry's answer.
        status: StatusCode,
    },
    /// Its answer says not what it must.
    #[error("{url}: {why}")]
    Answer {
        /// What was asked.
        url: String,
        /// What is missing or wrong.
        why: String,
    },
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ": log in with `docker login` or `helm registry login`, or set REGISTRY_USERNAME and REGISTRY_PASSWORD"
        }
        StatusCode::NOT_FOUND => ": there is no such repository or tag",
        _ => "",
    }
}

/// A name in a registry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reference {
    /// The registry's host, with its port if it is not the usual one.
    pub host: String,
    /// The repository in it.
    pub repository: String,
    /// A tag or a digest.
    pub version: String,
}

impl std::str::FromStr for Reference {
    type Err = String;

    /// `registry.example:5000/tenon/tenon-operator:1.2.3`, or with `@sha256:…`; `:latest` if it has
    /// neither.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} names no registry: <host>/<repository>:<tag> is needed");
        let (host, rest) = split(text).ok_or_else(wrong)?;
        let (repository, version) = match (rest.split_once('@'), rest.split_once(':')) {
            // A digest decides, whatever the tag is.
            (Some((name, digest)), _) => (name.split(':').next().unwrap_or(name), digest),
            (None, Some((name, tag))) => (name, tag),
            (None, None) => (rest, "latest"),
        };
        if repository.is_empty() || version.is_empty() {
            return Err(wrong());
        }
        let (host, repository) = (host.to_owned(), repository.to_owned());
        Ok(Self { host, repository, version: version.to_owned() })
    }
}

impl Reference {
    /// Whether the registry is on this machine.
    pub fn is_on_loopback(&self) -> bool {
        is_on_loopback(&self.host)
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}/v2/{}/{path}", scheme(&self.host), self.host, self.repository)
    }
}

/// Credentials for a registry.
#[derive(Clone, Debug)]
pub struct Login {
    /// User of the registry.
    pub username: String,
    /// The password, or a token.
    pub password: String,
}

impl Login {
    fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.username, self.password)))
    }

    /// What a Docker configuration file (`docker login`, `helm registry login`) has for a host.
    pub(crate) fn of_docker_config(config: &str, host: &str) -> Option<Self> {
        let config: Value = serde_json::from_str(config).ok()?;
        let auth = config["auths"][host]["auth"].as_str()?;
        let pair = String::from_utf8(STANDARD.decode(auth).ok()?).ok()?;
        let (username, password) = pair.split_once(':')?;
        Some(Self { username: username.to_owned(), password: password.to_owned() })
    }
}

/// A repository of a registry, and how to get in.
#[derive(Debug)]
pub struct Registry {
    reference: Reference,
    login: Option<Login>,
    proxies: Proxies,
    /// What opened it last.
    authorization: Mutex<Option<String>>,
}

impl Registry {
    /// The registry that a reference names.
    pub const fn of(reference: Reference, login: Option<Login>, proxies: Proxies) -> Self {
        Self { reference, login, proxies, authorization: Mutex::new(None) }
    }

    /// Sends a layout's image there: what it has already is not sent again. Answers the image's
    /// digest.
    ///
    /// # Errors
    /// When the layout is not complete, or the registry refuses.
    pub async fn push(&self, layout: &Layout) -> Result<String, RegistryError> {
        let (image, _) = layout.image()?;
        if image.media_type == INDEX {
            let index: Index = layout.document(&image)?;
            for manifest in &index.manifests {
                self.push_manifest(layout, manifest, &manifest.digest).await?;
            }
            self.put_manifest(&image, layout.blob(&image)?, &self.reference.version).await?;
        } else {
            self.push_manifest(layout, &image, &self.reference.version).await?;
        }
        Ok(image.digest)
    }

    async fn push_manifest(
        &self,
        layout: &Layout,
        manifest: &Descriptor,
        name: &str,
    ) -> Result<(), RegistryError> {
        let document: Manifest = layout.document(manifest)?;
        for blob in document.layers.iter().chain([&document.config]) {
            self.push_blob(layout, blob).await?;
        }
        self.put_manifest(manifest, layout.blob(manifest)?, name).await
    }

    async fn push_blob(&self, layout: &Layout, blob: &Descriptor) -> Result<(), RegistryError> {
        let url = self.reference.url(&format!("blobs/{}", blob.digest));
        let there = self.ask(Method::HEAD, &url, None, Vec::new()).await?;
        if there.status() == StatusCode::OK {
            return Ok(());
        }
        let url = self.reference.url("blobs/uploads/");
        let begun = self.ask(Method::POST, &url, None, Vec::new()).await?;
        let begun = accepted(begun, &Method::POST, &url, StatusCode::ACCEPTED)?;
        let location = begun.headers().get(LOCATION).and_then(|it| it.to_str().ok());
        let location = location.ok_or_else(|| RegistryError::Answer {
            url: url.clone(),
            why: "it tells no location for the upload".to_owned(),
        })?;
        let digest = utf8_percent_encode(&blob.digest, NON_ALPHANUMERIC);
        let sign = if location.contains('?') { '&' } else { '?' };
        let target = format!("{}{sign}digest={digest}", self.absolute(location));
        let content = layout.blob(blob)?;
        let done =
            self.ask(Method::PUT, &target, Some("application/octet-stream"), content).await?;
        accepted(done, &Method::PUT, &target, StatusCode::CREATED)?;
        Ok(())
    }

    /// A location may be relative to the registry.
    fn absolute(&self, location: &str) -> String {
        if location.starts_with('/') {
            let url = self.reference.url("");
            let (scheme, _) = url.split_once("://").unwrap_or_default();
            format!("{scheme}://{}{location}", self.reference.host)
        } else {
            location.to_owned()
        }
    }

    async fn put_manifest(
        &self,
        manifest: &Descriptor,
        content: Vec<u8>,
        name: &str,
    ) -> Result<(), RegistryError> {
        let url = self.reference.url(&format!("manifests/{name}"));
        let answer = self.ask(Method::PUT, &url, Some(&manifest.media_type), content).await?;
        accepted(answer, &Method::PUT, &url, StatusCode::CREATED)?;
        Ok(())
    }

    /// Fetches the image for an architecture into a layout, every part checked against its digest;
    /// answers its manifest.
    ///
    /// # Errors
    /// When the registry has no such image, or what it sends has another digest.
    pub async fn pull(
        &self,
        layout: &Layout,
        architecture: &str,
    ) -> Result<Descriptor, RegistryError> {
        let version = &self.reference.version;
        let image = self.fetch_manifest(layout, version).await?;
        layout.set_image(&image, version)?;
        let manifest = match image.media_type.as_str() {
            INDEX => {
                let wanted = layout.manifest_for(&image, architecture)?;
                self.fetch_manifest(layout, &wanted.digest).await?
            }
            _ => image,
        };
        let document: Manifest = layout.document(&manifest)?;
        for blob in document.layers.iter().chain([&document.config]) {
            let url = self.reference.url(&format!("blobs/{}", blob.digest));
            let content = self.get(&url).await?.1;
            verified(&url, &blob.digest, &content)?;
            layout.add(&blob.media_type, &content)?;
        }
        Ok(manifest)
    }

    async fn fetch_manifest(
        &self,
        layout: &Layout,
        version: &str,
    ) -> Result<Descriptor, RegistryError> {
        let url = self.reference.url(&format!("manifests/{version}"));
        let (kind, content) = self.get(&url).await?;
        if version.starts_with("sha256:") {
            verified(&url, version, &content)?;
        }
        match kind.as_deref() {
            Some(kind @ (INDEX | MANIFEST)) => Ok(layout.add(kind, &content)?),
            other => {
                let why = format!("it sends {other:?} instead of an OCI manifest");
                Err(RegistryError::Answer { url, why })
            }
        }
    }

    async fn get(&self, url: &str) -> Result<(Option<String>, Vec<u8>), RegistryError> {
        let answer = self.ask(Method::GET, url, None, Vec::new()).await?;
        let answer = accepted(answer, &Method::GET, url, StatusCode::OK)?;
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let kind = kind.map(str::to_owned);
        let content = answer.into_body().collect_bytes().await;
        let content = content
            .map_err(|source| RegistryError::Ask { url: url.to_owned(), source: source.into() })?;
        Ok((kind, content.to_vec()))
    }

    /// Asks, and once more with what opens the registry if it says so.
    async fn ask(
        &self,
        method: Method,
        url: &str,
        content_type: Option<&str>,
        content: Vec<u8>,
    ) -> Result<Response<Body>, RegistryError> {
        let known = self.known();
        let answer =
            self.send(&method, url, content_type, content.clone(), known.as_deref()).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let challenge = answer.headers().get(WWW_AUTHENTICATE).and_then(|it| it.to_str().ok());
        let Some(authorization) = self.authorize(challenge.unwrap_or_default()).await? else {
            return Ok(answer);
        };
        let answer = self.send(&method, url, content_type, content, Some(&authorization)).await?;
        *self.authorization.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(authorization);
        Ok(answer)
    }

    fn known(&self) -> Option<String> {
        self.authorization.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// What a challenge asks for, if there is a way to have it.
    async fn authorize(&self, challenge: &str) -> Result<Option<String>, RegistryError> {
        let scheme = challenge.split(' ').next().unwrap_or_default();
        if scheme.eq_ignore_ascii_case("basic") {
            return Ok(self.login.as_ref().map(Login::basic));
        }
        let Some(url) = token_url(challenge) else { return Ok(None) };
        let login = self.login.as_ref().map(Login::basic);
        let answer = self.send(&Method::GET, &url, None, Vec::new(), login.as_deref()).await?;
        let answer = accepted(answer, &Method::GET, &url, StatusCode::OK)?;
        let failed = |source| RegistryError::Ask { url: url.clone(), source };
        let body = answer.into_body().collect_bytes().await.map_err(|it| failed(it.into()))?;
        let body: Value = serde_json::from_slice(&body).map_err(|it| failed(it.into()))?;
        Ok(tenon_registry::token(&body).map(|token| format!("Bearer {token}")))
    }

    async fn send(
        &self,
        method: &Method,
        url: &str,
        content_type: Option<&str>,
        content: Vec<u8>,
        authorization: Option<&str>,
    ) -> Result<Response<Body>, RegistryError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| RegistryError::Ask {
            url: url.to_owned(),
            source,
        };
        let uri = url.parse::<Uri>().map_err(|error| failed(error.into()))?;
        let (base, path) = base_and_path(&uri).map_err(|error| failed(error.into()))?;
        let mut config = kube::Config::new(base);
        config.proxy_url = self.proxies.of(&uri);
        config.default_retry = false;
        config.write_timeout = None;
        let client = kube::Client::try_from(config).map_err(|error| failed(error.into()))?;
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, MANIFESTS);
        if let Some(kind) = content_type {
            request = request.header(CONTENT_TYPE, kind);
        }
        if let Some(value) = authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Body::from(content)).map_err(|error| failed(error.into()))?;
        client.send(request).await.map_err(|error| failed(error.into()))
    }
}

fn accepted(
    answer: Response<Body>,
    method: &Method,
    url: &str,
    status: StatusCode,
) -> Result<Response<Body>, RegistryError> {
    if answer.status() == status {
        return Ok(answer);
    }
    let (method, url, status) = (method.clone(), url.to_owned(), answer.status());
    Err(RegistryError::Refused { method, url, status })
}

fn verified(what: &str, expected: &str, content: &[u8]) -> Result<(), Error> {
    let found = digest_of(content);
    if found == expected {
        return Ok(());
    }
    Err(Error::Digest { what: what.to_owned(), expected: expected.to_owned(), found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_a_host_a_repository_and_a_version() {
        let of = |text: &str| {
            text.parse::<Reference>().map(|it| (it.host.clone(), it.repository.clone(), it.version))
        };
        let parts = |host: &str, repository: &str, version: &str| {
            Ok((host.to_owned(), repository.to_owned(), version.to_owned()))
        };
        assert_eq!(of("r.example/a/b:1.2"), parts("r.example", "a/b", "1.2"));
        assert_eq!(of("localhost:5000/b"), parts("localhost:5000", "b", "latest"));
        assert_eq!(of("r.example/b:1@sha256:ab"), parts("r.example", "b", "sha256:ab"));
        for wrong in ["tenon-operator:1", "library/tenon-operator", "r.example/", "r.example/a:"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn logins_are_those_of_docker_and_helm() {
        let config = r#"{"auths":{"r.example":{"auth":"bWU6c2VjcmV0OnRvbw=="}}}"#;
        let login = Login::of_docker_config(config, "r.example").expect("it is there");
        assert_eq!((login.username.as_str(), login.password.as_str()), ("me", "secret:too"));
        assert!(Login::of_docker_config(config, "other.example").is_none());
        assert!(Login::of_docker_config("", "r.example").is_none());
    }
}
