//! Presigned URLs of `sts:GetCallerIdentity`: what they say, and whether the signature is that of a secret.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};
use tenon_iam_policies::Partition;

use super::Refusal;
use crate::front::identity::Credentials;
use crate::front::request::Credential;

/// The header that binds a token to a cluster.
const CLUSTER_HEADER: &str = "x-k8s-aws-id";

/// For how long a token is good after it was signed, whatever it says itself.
const LONGEST: SignedDuration = SignedDuration::from_mins(15);

/// What SigV4 leaves unencoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A decoded token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    access_key: String,
    host: String,
    path: String,
    /// Decoded parameters.
    params: Vec<(String, String)>,
    signed: Timestamp,
    /// `<date>/<region>/sts/aws4_request`.
    scope: String,
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
        let signed = param("X-Amz-Date")
            .and_then(date)
            .ok_or(Refusal::Malformed("the URL has no valid date"))?;
        Ok(Self {
            access_key: access_key.to_owned(),
            host: host.to_owned(),
            path: format!("/{path}"),
            scope: scope.to_owned(),
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
        let seconds = now.to_string();
        let digits: String = seconds.chars().filter(char::is_ascii_digit).take(14).collect();
        let (date, time) = digits.split_at(8);
        let scope = format!("{date}/{region}/sts/aws4_request");
        let mut params: Vec<(String, String)> = [
            ("Action", "GetCallerIdentity".to_owned()),
            ("Version", "2011-06-15".to_owned()),
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("X-Amz-Credential", format!("{}/{scope}", credentials.access_key)),
            ("X-Amz-Date", format!("{date}T{time}Z")),
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
        let signature = hex::encode(request.signature(&credentials.secret_key, cluster));
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

    /// Whether it is still good. `X-Amz-Expires` says for how long the URL is, the token is so for at most 15 minutes.
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
        let expected = hex::encode(self.signature(secret, cluster));
        if self.param("X-Amz-Signature") == Some(expected.as_str()) {
            Ok(())
        } else {
            Err(Refusal::Signature)
        }
    }

    fn signature(&self, secret: &str, cluster: &str) -> [u8; 32] {
        let mut pairs: Vec<String> = self
            .params
            .iter()
            .filter(|(key, _)| !key.eq_ignore_ascii_case("X-Amz-Signature"))
            .map(|(key, value)| format!("{}={}", encode(key), encode(value)))
            .collect();
        pairs.sort_unstable();
        let signed_headers = self.param("X-Amz-SignedHeaders").unwrap_or_default();
        let mut headers = String::new();
        for name in signed_headers.split(';') {
            let value = match name {
                "host" => &self.host,
                CLUSTER_HEADER => cluster,
                _ => "",
            };
            writeln!(headers, "{name}:{value}").expect("a String takes any text");
        }
        let empty = hex::encode(Sha256::digest(""));
        let canonical = format!(
            "GET\n{}\n{}\n{headers}\n{signed_headers}\n{empty}",
            self.path,
            pairs.join("&")
        );
        let date = self.param("X-Amz-Date").unwrap_or_default();
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n{date}\n{}\n{}",
            self.scope,
            hex::encode(Sha256::digest(canonical))
        );
        let key = self.scope.split('/').fold(format!("AWS4{secret}").into_bytes(), |key, part| {
            hmac(&key, part.as_bytes()).to_vec()
        });
        hmac(&key, to_sign.as_bytes())
    }

    fn param(&self, name: &str) -> Option<&str> {
        self.params
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
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

fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests;
