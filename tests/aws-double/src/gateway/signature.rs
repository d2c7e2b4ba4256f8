//! AWS Signature Version 4: whether a call was signed with the secret of its access key, for the
//! service and the region that it was sent to.
//!
//! What a signature covers is told by the call itself (`SignedHeaders`), so every program's way to
//! sign is understood. The age of a signature is not looked at: a machine that slept has another
//! time than a bed that ran on it, and its programs could never call again.

use std::fmt::Write as _;

use axum::body::Bytes;
use axum::http::Uri;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};
use tenon_iam_policies::Partition;

use super::aws_state::AwsState;
use super::identity::Credentials;
use super::request::{AwsRequest, Protocol};
use super::response::AwsError;

/// The only algorithm.
pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The header with the hash of the body.
const CONTENT_HASH: &str = "x-amz-content-sha256";

/// What SigV4 leaves unencoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The same for a path.
const IN_PATHS: &AsciiSet = &UNRESERVED.remove(b'/');

/// The regions that serve price lists; the price lists of all others are asked for there.
const PRICING: [&str; 4] = ["us-east-1", "eu-central-1", "ap-south-1", "cn-northwest-1"];

/// Why a signature is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A part of it is missing or no sense can be made of it.
    #[error("Authorization header requires {0}.")]
    Incomplete(&'static str),
    /// It is for another region.
    #[error("Credential should be scoped to a valid region, not '{0}'.")]
    Region(String),
    /// It is for another service.
    #[error("Credential should be scoped to correct service: '{0}'.")]
    Service(String),
    /// The day in its scope is not that of the call.
    #[error(
        "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{scope}' != '{call}'."
    )]
    Date {
        /// The day in the scope.
        scope: String,
        /// The day of the call.
        call: String,
    },
    /// It was made with another secret, or for another call.
    #[error(
        "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details."
    )]
    Mismatch,
}

impl Refusal {
    /// The error as the called service words it.
    pub fn error(&self, request: &AwsRequest) -> AwsError {
        let message = self.to_string();
        let json = matches!(request.protocol, Protocol::Json(_) | Protocol::RestJson);
        // SQS keeps the codes of its query protocol.
        let exception = json && request.service != "sqs";
        let status =
            if matches!(request.protocol, Protocol::Json(_)) && exception { 400 } else { 403 };
        match self {
            Self::Incomplete(_) if exception => {
                AwsError::new("IncompleteSignatureException", message).with_status(400)
            }
            Self::Incomplete(_) => AwsError::new("IncompleteSignature", message).with_status(400),
            // EC2 does not say what is wrong with credentials.
            _ if request.protocol == Protocol::Ec2 => AwsError::new(
                "AuthFailure",
                "AWS was not able to validate the provided access credentials",
            ),
            _ if exception => {
                AwsError::new("InvalidSignatureException", message).with_status(status)
            }
            _ => AwsError::new("SignatureDoesNotMatch", message),
        }
    }
}

/// What a signature is good for: `<date>/<region>/<service>/aws4_request`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    /// `20261120`.
    pub(super) date: String,
    pub(super) region: String,
    pub(super) service: String,
}

impl Scope {
    /// The scope for a service and region at some time, and that time as signatures write it.
    pub(super) fn at(now: Timestamp, region: &str, service: &str) -> (Self, String) {
        let text = now.to_string();
        let digits: String = text.chars().filter(char::is_ascii_digit).take(14).collect();
        let (date, time) = digits.split_at(8);
        let scope =
            Self { date: date.to_owned(), region: region.to_owned(), service: service.to_owned() };
        (scope, format!("{date}T{time}Z"))
    }

    /// `<date>/<region>/<service>/aws4_request`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let [date, region, service, "aws4_request"] = parts[..] else { return None };
        Some(Self { date: date.to_owned(), region: region.to_owned(), service: service.to_owned() })
    }

    fn key(&self, secret: &str) -> [u8; 32] {
        let parts = [self.region.as_str(), &self.service, "aws4_request"];
        let first = hmac(format!("AWS4{secret}").as_bytes(), self.date.as_bytes());
        parts.into_iter().fold(first, |key, part| hmac(&key, part.as_bytes()))
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { date, region, service } = self;
        write!(f, "{date}/{region}/{service}/aws4_request")
    }
}

/// A call in the form that signatures cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Canonical<'a> {
    pub(super) method: &'a str,
    /// The path, encoded as the signature wants it.
    pub(super) path: &'a str,
    /// The decoded parameters of the query string, without the signature itself.
    pub(super) params: Vec<(String, String)>,
    /// The signed headers in the order of their names, which are in lower case.
    pub(super) headers: Vec<(&'a str, String)>,
    /// The hash of the body in hexadecimal digits, or what stands for it.
    pub(super) content_hash: &'a str,
}

impl Canonical<'_> {
    /// Its signature, in hexadecimal digits. `time` is `20261120T103000Z`.
    pub(super) fn signature(&self, secret: &str, scope: &Scope, time: &str) -> String {
        let mut params: Vec<(String, String)> =
            self.params.iter().map(|(name, value)| (encode(name), encode(value))).collect();
        params.sort_unstable();
        let params: Vec<String> =
            params.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut headers = String::new();
        for (name, value) in &self.headers {
            writeln!(headers, "{name}:{value}").expect("a String takes any text");
        }
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        let canonical = format!(
            "{}\n{}\n{}\n{headers}\n{}\n{}",
            self.method,
            self.path,
            params.join("&"),
            names.join(";"),
            self.content_hash
        );
        let to_sign =
            format!("{ALGORITHM}\n{time}\n{scope}\n{}", hex::encode(Sha256::digest(canonical)));
        hex::encode(hmac(&scope.key(secret), to_sign.as_bytes()))
    }
}

/// The signature of a call, in its `Authorization` header or in its query string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    scope: Scope,
    time: String,
    signed_headers: Vec<String>,
    signature: String,
}

impl Signature {
    /// Reads a call's signature; `None` when it has none.
    pub(super) fn read(request: &AwsRequest) -> Result<Option<Self>, Refusal> {
        let (credential, signed_headers, signature, time) =
            if let Some(header) = request.header("authorization") {
                let parts = header
                    .strip_prefix(ALGORITHM)
                    .ok_or(Refusal::Incomplete("the algorithm 'AWS4-HMAC-SHA256'"))?;
                let part = |name: &str| {
                    let mut parts = parts.split(',').filter_map(|part| part.trim().split_once('='));
                    parts.find(|(key, _)| *key == name).map(|(_, value)| value)
                };
                let time = request.header("x-amz-date");
                (part("Credential"), part("SignedHeaders"), part("Signature"), time)
            } else if request.query.as_deref().is_some_and(|query| query.contains("X-Amz-")) {
                let param = |name: &str| request.params.get(name);
                (
                    param("X-Amz-Credential"),
                    param("X-Amz-SignedHeaders"),
                    param("X-Amz-Signature"),
                    param("X-Amz-Date"),
                )
            } else {
                return Ok(None);
            };
        let credential = credential.ok_or(Refusal::Incomplete("'Credential' parameter"))?;
        let signed_headers =
            signed_headers.ok_or(Refusal::Incomplete("'SignedHeaders' parameter"))?;
        let signature = signature.ok_or(Refusal::Incomplete("'Signature' parameter"))?;
        let time = time.ok_or(Refusal::Incomplete("existence of an 'X-Amz-Date' header"))?;
        let scope = credential.split_once('/').and_then(|(_, scope)| Scope::parse(scope)).ok_or(
            Refusal::Incomplete(
                "a 'Credential' of <access key>/<date>/<region>/<service>/aws4_request",
            ),
        )?;
        let signed_headers: Vec<String> = signed_headers.split(';').map(str::to_owned).collect();
        if !signed_headers.iter().any(|name| name == "host") {
            return Err(Refusal::Incomplete("'host' to be a 'SignedHeader'"));
        }
        Ok(Some(Self {
            scope,
            time: time.to_owned(),
            signed_headers,
            signature: signature.to_owned(),
        }))
    }

    /// Whether it is for the service that the call is of, in a region that the double stands for.
    pub(super) fn check_scope(
        &self,
        request: &AwsRequest,
        aws_state: &AwsState,
    ) -> Result<(), Refusal> {
        let Scope { date, region, service } = &self.scope;
        if *service != request.service {
            return Err(Refusal::Service(request.service.clone()));
        }
        if !is_served(service, region, aws_state.region()) {
            return Err(Refusal::Region(region.clone()));
        }
        let call = self.time.get(..8).unwrap_or(&self.time);
        if date != call {
            return Err(Refusal::Date { scope: date.clone(), call: call.to_owned() });
        }
        Ok(())
    }

    /// Whether it was made with this secret for this call.
    pub(super) fn check(&self, request: &AwsRequest, secret: &str) -> Result<(), Refusal> {
        let hash = hash(&request.body);
        let content_hash = match request.header(CONTENT_HASH) {
            Some(told) if told != "UNSIGNED-PAYLOAD" && told != hash => {
                return Err(Refusal::Mismatch);
            }
            Some(told) => told,
            None => hash.as_str(),
        };
        let path = match self.scope.service.as_str() {
            "s3" => request.path.clone(),
            _ => canonical_path(&request.path),
        };
        let canonical = Canonical {
            method: request.method.as_str(),
            path: &path,
            params: params(request.query.as_deref().unwrap_or_default()),
            headers: self
                .signed_headers
                .iter()
                .map(|name| (name.as_str(), header(request, name)))
                .collect(),
            content_hash,
        };
        if canonical.signature(secret, &self.scope, &self.time) == self.signature {
            Ok(())
        } else {
            Err(Refusal::Mismatch)
        }
    }
}

/// Whether the double answers for a region. It stands for the endpoints of the bed's own. The
/// programs' SDKs send all calls to it, so those of global services come with whatever region the
/// program is in. Buckets may be in any region of the partition.
fn is_served(service: &str, region: &str, own: &str) -> bool {
    match service {
        "iam" | "sts" | "s3" => Partition::of_region(region) == Partition::of_region(own),
        "pricing" => region == own || PRICING.contains(&region),
        _ => region == own,
    }
}

/// Signs a call: the headers that it needs beside `headers`. `uri` names host, path and query.
pub fn sign(
    credentials: &Credentials,
    (service, region): (&str, &str),
    method: &str,
    uri: &Uri,
    headers: &[(&str, &str)],
    body: &Bytes,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let (scope, time) = Scope::at(now, region, service);
    let host = uri.authority().map(ToString::to_string).unwrap_or_default();
    let mut added = vec![("host", host), ("x-amz-date", time.clone())];
    added.extend(credentials.session_token.clone().map(|it| ("x-amz-security-token", it)));
    let mut signed: Vec<(String, String)> = headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), trimmed(value)))
        .chain(added.iter().map(|(name, value)| ((*name).to_owned(), value.clone())))
        .collect();
    signed.sort_unstable();
    let path = canonical_path(uri.path());
    let canonical = Canonical {
        method,
        path: &path,
        params: params(uri.query().unwrap_or_default()),
        headers: signed.iter().map(|(name, value)| (name.as_str(), value.clone())).collect(),
        content_hash: &hash(body),
    };
    let signature = canonical.signature(&credentials.secret_key, &scope, &time);
    let names: Vec<&str> = signed.iter().map(|(name, _)| name.as_str()).collect();
    let authorization = format!(
        "{ALGORITHM} Credential={}/{scope}, SignedHeaders={}, Signature={signature}",
        credentials.access_key,
        names.join(";")
    );
    added.push(("authorization", authorization));
    added
}

/// The path as all services but S3 sign it: normalised, and what is encoded already encoded once
/// more. S3 signs it as it is sent.
fn canonical_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let mut normal = format!("/{}", segments.join("/"));
    if path.ends_with('/') && normal.len() > 1 {
        normal.push('/');
    }
    utf8_percent_encode(&normal, IN_PATHS).to_string()
}

/// The decoded parameters of a query string, without the signature.
fn params(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .filter(|(name, _)| name != "X-Amz-Signature")
        .collect()
}

/// A header's values as signatures cover them.
fn header(request: &AwsRequest, name: &str) -> String {
    let values: Vec<String> = request
        .headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(trimmed)
        .collect();
    values.join(",")
}

fn trimmed(value: &str) -> String {
    value.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn hash(body: &[u8]) -> String {
    hex::encode(Sha256::digest(body))
}

/// HMAC-SHA256 (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0u8; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

/// Text in a query string.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// Text of a query string.
pub(super) fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests;
