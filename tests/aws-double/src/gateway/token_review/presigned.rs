//! Presigned URLs of `sts:GetCallerIdentity`: what they say, and whether the signature is that of a
//! secret.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use tenon_iam_policies::Partition;

use super::Refusal;
use crate::gateway::identity::Credentials;
use crate::gateway::request::Credential;
use crate::gateway::signature::{ALGORITHM, Canonical, Scope, decode, encode};

/// The header that binds a token to a cluster.
const CLUSTER_HEADER: &str = "x-k8s-aws-id";

/// For how long a token is good after it was signed, whatever it says itself.
const LONGEST: SignedDuration = SignedDuration::from_mins(15);

/// The SHA-256 of nothing: such a URL is fetched without a body.
const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A decoded token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    access_key: String,
    host: String,
    path: String,
    /// Decoded parameters.
    params: Vec<(String, String)>,
    signed: Timestamp,
    scope: Scope,
}

impl Request {
    pub(super) fn decode(url: &str) -> Result<Self, Refusal> {
        let url = URL_SAFE_NO_PAD
            .decode(url.trim_end_matches('='))
            .map_err(|_| Refusal::Malformed("it is not base64"))?;
        let url = String::from_utf8(url).map_err(|_| Refusal::Malformed("it is not a URL"))?;
        let rest = url.split_once("://").ok_or(Refusal::Malformed("it is not a URL"))?.1;
        let (address, query) =
            rest.split_once('?').ok_or(Refusal::Malformed("the URL has no parameters"))?;
        let (host, path) = address.split_once('/').unwrap_or((address, ""));
        let params: Vec<(String, String)> = query
            .split('&')
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(key), decode(value))
            })
            .collect();
        let param = |name: &str| {
            params
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.as_str())
        };
        if param("Action") != Some("GetCallerIdentity") {
            return Err(Refusal::Malformed("the URL does not call GetCallerIdentity"));
        }
        let signed_headers = param("X-Amz-SignedHeaders").unwrap_or_default();
        if !signed_headers.split(';').any(|header| header == CLUSTER_HEADER) {
            return Err(Refusal::Malformed("the header x-k8s-aws-id is not signed"));
        }
        let credential =
            param("X-Amz-Credential").ok_or(Refusal::Malformed("the URL is not signed"))?;
        let (access_key, scope) =
            credential.split_once('/').ok_or(Refusal::Malformed("the credential has no scope"))?;
        let scope = Scope::parse(scope).ok_or(Refusal::Malformed(
            "the credential's scope is not <date>/<region>/sts/aws4_request",
        ))?;
        let signed = param("X-Amz-Date")
            .and_then(date)
            .ok_or(Refusal::Malformed("the URL has no valid date"))?;
        Ok(Self {
            access_key: access_key.to_owned(),
            host: host.to_owned(),
            path: format!("/{path}"),
            scope,
            signed,
            params,
        })
    }

    /// The URL for `credentials`, as `aws eks get-token` makes it.
    pub(super) fn sign(
        credentials: &Credentials,
        region: &str,
        cluster: &str,
        now: Timestamp,
    ) -> String {
        let (scope, time) = Scope::at(now, region, "sts");
        let mut params: Vec<(String, String)> = [
            ("Action", "GetCallerIdentity".to_owned()),
            ("Version", "2011-06-15".to_owned()),
            ("X-Amz-Algorithm", ALGORITHM.to_owned()),
            ("X-Amz-Credential", format!("{}/{scope}", credentials.access_key)),
            ("X-Amz-Date", time),
            ("X-Amz-Expires", "60".to_owned()),
            ("X-Amz-SignedHeaders", format!("host;{CLUSTER_HEADER}")),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec();
        params.extend(
            credentials
                .session_token
                .clone()
                .map(|token| ("X-Amz-Security-Token".to_owned(), token)),
        );
        let mut request = Self {
            access_key: credentials.access_key.clone(),
            host: format!("sts.{region}.{}", Partition::of_region(region).dns_suffix()),
            path: "/".to_owned(),
            params,
            signed: now,
            scope,
        };
        let signature = request.signature(&credentials.secret_key, cluster);
        request.params.push(("X-Amz-Signature".to_owned(), signature));
        let pairs: Vec<String> = request
            .params
            .iter()
            .map(|(key, value)| format!("{}={}", encode(key), encode(value)))
            .collect();
        URL_SAFE_NO_PAD.encode(format!("https://{}/?{}", request.host, pairs.join("&")))
    }

    /// Who signed it.
    pub(super) fn credential(&self) -> Credential {
        let session_token = self.param("X-Amz-Security-Token").map(str::to_owned);
        Credential { access_key: self.access_key.clone(), session_token }
    }

    /// Whether it is still good. `X-Amz-Expires` says for how long the URL is, the token is so for
    /// at most 15 minutes.
    pub(super) fn check_time(&self, now: Timestamp) -> Result<(), Refusal> {
        let expires =
            self.param("X-Amz-Expires").and_then(|text| text.parse::<i64>().ok()).unwrap_or(60);
        if !(0..=LONGEST.as_secs()).contains(&expires) {
            return Err(Refusal::Malformed("X-Amz-Expires is not 0 to 900"));
        }
        let age = now.duration_since(self.signed);
        // Clocks differ: a token may come from up to 15 minutes ahead.
        if age > LONGEST || age < -LONGEST { Err(Refusal::Expired) } else { Ok(()) }
    }

    /// Whether the signature is made with this secret for this cluster.
    pub(super) fn check_signature(&self, secret: &str, cluster: &str) -> Result<(), Refusal> {
        let expected = self.signature(secret, cluster);
        if self.param("X-Amz-Signature") == Some(expected.as_str()) {
            Ok(())
        } else {
            Err(Refusal::Signature)
        }
    }

    fn signature(&self, secret: &str, cluster: &str) -> String {
        let params = self.params.iter();
        let header = |name| match name {
            "host" => self.host.clone(),
            CLUSTER_HEADER => cluster.to_owned(),
            _ => String::new(),
        };
        let canonical = Canonical {
            method: "GET",
            path: &self.path,
            params: params
                .filter(|(key, _)| !key.eq_ignore_ascii_case("X-Amz-Signature"))
                .cloned()
                .collect(),
            headers: self
                .param("X-Amz-SignedHeaders")
                .unwrap_or_default()
                .split(';')
                .map(|name| (name, header(name)))
                .collect(),
            content_hash: NOTHING,
        };
        let time = self.param("X-Amz-Date").unwrap_or_default();
        canonical.signature(secret, &self.scope, time)
    }

    fn param(&self, name: &str) -> Option<&str> {
        self.params
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// `20261120T103000Z`.
fn date(text: &str) -> Option<Timestamp> {
    let digits = |range: std::ops::Range<usize>| text.get(range);
    let iso = format!(
        "{}-{}-{}T{}:{}:{}Z",
        digits(0..4)?,
        digits(4..6)?,
        digits(6..8)?,
        digits(9..11)?,
        digits(11..13)?,
        digits(13..15)?
    );
    iso.parse().ok()
}

#[cfg(test)]
mod tests;
