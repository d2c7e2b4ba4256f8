//! The typed form of one AWS API call: which service, region, caller and action, and its
//! parameters, whatever the wire protocol.
//!
//! moto and we route by the credential scope of the SigV4 signature (`Authorization` header, or
//! `X-Amz-Credential` of a presigned URL) and not by host, so that one loopback port serves every
//! service without TLS. Where the call itself tells its service (by its target, version or path),
//! that counts: a signature for another service is then refused (see [`super::signature`]).

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Uri};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use uuid::Uuid;

mod rest;
mod s3;
#[cfg(test)]
mod tests;

/// How a service encodes requests, answers and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// EC2: form parameters in, XML out, errors in `<Response><Errors>`.
    Ec2,
    /// IAM, STS and the old form of SQS: form parameters in, XML out, errors in `<ErrorResponse>`.
    Query,
    /// SQS, EventBridge, SSM, Pricing: `X-Amz-Target` and JSON; the number is the minor version of
    /// the content type (`1.0` or `1.1`).
    Json(u8),
    /// S3: method, path and query, errors in `<Error>`.
    RestXml,
    /// EKS and other REST services: method and path, JSON bodies, errors named by the header
    /// `x-amzn-ErrorType`.
    RestJson,
}

/// Who signed a call, as its signature claims it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credential {
    /// The access key ID.
    pub access_key: String,
    /// The session token (`X-Amz-Security-Token`), of temporary credentials.
    pub session_token: Option<String>,
}

/// One AWS API call.
#[derive(Clone, Debug)]
pub struct AwsRequest {
    /// Request ID: in the call log and in answers.
    pub id: String,
    /// The service's signing name: `ec2`, `iam`, `sts`, `sqs`, `events`, `ssm`, `pricing`, `eks`,
    /// `eks-auth`; empty when nothing says which.
    pub service: String,
    /// The region of the credential scope; the bed's own for unsigned calls.
    pub region: String,
    /// Who signed; `None` for unsigned calls (`sts:AssumeRoleWithWebIdentity`, `eks-auth`).
    pub credential: Option<Credential>,
    /// How it is encoded.
    pub protocol: Protocol,
    /// The action's name as in IAM and CloudTrail: `DescribeInstances`, `CreateAccessEntry`; `GET
    /// /path` for REST calls that we do not know.
    pub action: String,
    /// HTTP method.
    pub method: Method,
    /// The path as sent, percent-encoded. Use [`AwsRequest::segments`].
    pub path: String,
    /// Parameters of the query string and of a form body, decoded.
    pub params: Params,
    /// The JSON body; `Null` when there is none.
    pub json: Value,
    /// The headers as sent.
    pub headers: HeaderMap,
    /// The query string as sent.
    pub query: Option<String>,
    /// The body as sent.
    pub body: Bytes,
}

impl AwsRequest {
    /// Reads a call. Never fails: what can't be told stays empty, and is then answered as AWS does
    /// (`MissingAction`, `MissingAuthenticationToken`).
    pub fn read(
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
        default_region: &str,
    ) -> Self {
        let mut params = Params::default();
        params.read_form(uri.query().unwrap_or_default());
        let content_type = header(&headers, "content-type").unwrap_or_default().to_owned();
        if content_type.starts_with("application/x-www-form-urlencoded") {
            params.read_form(std::str::from_utf8(&body).unwrap_or_default());
        }
        let json = if content_type.contains("json") || body.first() == Some(&b'{') {
            serde_json::from_slice(&body).unwrap_or(Value::Null)
        } else {
            Value::Null
        };
        let target = header(&headers, "x-amz-target").map(str::to_owned);
        let scope = Scope::of(&headers, &params);
        let path = uri.path().to_owned();
        let form_action = params.get("Action").map(str::to_owned);
        // The path of a call to S3 begins with any bucket's name.
        let is_s3 = scope.as_ref().is_some_and(|scope| scope.service == "s3");
        let called = called_service(target.as_deref(), &params, &path).filter(|_| !is_s3);
        let service = match (called, &scope) {
            (Some(called), _) => called.to_owned(),
            (None, Some(scope)) => scope.service.clone(),
            (None, None) => unsigned_service(form_action.as_deref(), target.as_deref()).to_owned(),
        };
        let (protocol, action) = match (target, form_action) {
            (Some(target), _) => {
                let minor = u8::from(!content_type.contains("1.0"));
                (Protocol::Json(minor), target.rsplit('.').next().unwrap_or_default().to_owned())
            }
            (None, Some(action)) if service == "ec2" => (Protocol::Ec2, action),
            (None, Some(action)) => (Protocol::Query, action),
            (None, None) if is_s3 => {
                let action = s3::action(&method, &segments(&path), &params)
                    .map_or_else(|| format!("{method} {path}"), str::to_owned);
                (Protocol::RestXml, action)
            }
            (None, None) => {
                let action = rest::action(&method, &segments(&path))
                    .map_or_else(|| format!("{method} {path}"), str::to_owned);
                (Protocol::RestJson, action)
            }
        };
        Self {
            id: Uuid::new_v4().to_string(),
            service,
            region: scope
                .as_ref()
                .map_or_else(|| default_region.to_owned(), |scope| scope.region.clone()),
            credential: scope.map(|scope| scope.credential),
            protocol,
            action,
            method,
            path,
            params,
            json,
            headers,
            query: uri.query().map(str::to_owned),
            body,
        }
    }

    /// `ec2:DescribeInstances`: the action as policies and the call log name it.
    pub(crate) fn iam_action(&self) -> String {
        format!("{}:{}", self.service, self.action)
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The path's segments, split first and percent-decoded then: an ARN with a slash stays one
    /// segment.
    pub(crate) fn segments(&self) -> Vec<String> {
        segments(&self.path)
    }

    /// Whether the call only asks if it would be allowed (EC2's `DryRun=true`).
    pub(crate) fn is_dry_run(&self) -> bool {
        self.params.get("DryRun").is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The tags that the call puts on what it makes or on existing resources, whatever the service:
    /// `(resource type or empty, key, value)`.
    pub fn request_tags(&self) -> Vec<(String, String, String)> {
        let mut tags = Vec::new();
        for spec in self.params.structs("TagSpecification") {
            let resource = spec.get("ResourceType").unwrap_or_default().to_owned();
            let mut of_spec = spec.tags("Tag");
            if of_spec.is_empty() {
                of_spec = spec.tags("Tags");
            }
            tags.extend(of_spec.into_iter().map(|(key, value)| (resource.clone(), key, value)));
        }
        for list in ["Tag", "Tags.member"] {
            tags.extend(
                self.params.tags(list).into_iter().map(|(key, value)| (String::new(), key, value)),
            );
        }
        for field in ["tags", "Tags"] {
            match &self.json[field] {
                Value::Object(map) => {
                    tags.extend(map.iter().map(|(key, value)| {
                        (String::new(), key.clone(), value.as_str().unwrap_or_default().to_owned())
                    }));
                }
                Value::Array(list) => tags.extend(list.iter().filter_map(|tag| {
                    let key = tag["Key"].as_str().or_else(|| tag["key"].as_str())?;
                    let value =
                        tag["Value"].as_str().or_else(|| tag["value"].as_str()).unwrap_or_default();
                    Some((String::new(), key.to_owned(), value.to_owned()))
                })),
                _ => {}
            }
        }
        tags
    }
}

/// Decoded parameters of a query string or form, with AWS's ways to flatten lists (`Name.1`) and
/// structures (`Name.1.Field`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// Parameters from pairs.
    pub fn of<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// Parameters of a query string.
    pub fn of_query(query: &str) -> Self {
        let mut params = Self::default();
        params.read_form(query);
        params
    }

    fn read_form(&mut self, form: &str) {
        for pair in form.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            self.0.insert(decode_form(key), decode_form(value));
        }
    }

    /// One parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets one parameter.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Every parameter, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The list `name.1`, `name.2`, …, in order of the index.
    pub fn list(&self, name: &str) -> Vec<&str> {
        let mut found: Vec<(u32, &str)> = self
            .below(name)
            .filter_map(|(rest, value)| rest.parse().ok().map(|index| (index, value)))
            .collect();
        found.sort_unstable_by_key(|(index, _)| *index);
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// The structures `name.1.*`, `name.2.*`, …, in order of the index, each with names relative to
    /// itself.
    pub(crate) fn structs(&self, name: &str) -> Vec<Self> {
        let mut found: BTreeMap<u32, Self> = BTreeMap::new();
        for (rest, value) in self.below(name) {
            if let Some((index, field)) = rest.split_once('.')
                && let Ok(index) = index.parse()
            {
                found.entry(index).or_default().set(field, value);
            }
        }
        found.into_values().collect()
    }

    /// The structure `name.*`, with names relative to it; empty when there is none.
    #[must_use]
    pub fn structure(&self, name: &str) -> Self {
        Self(self.below(name).map(|(rest, value)| (rest.to_owned(), value.to_owned())).collect())
    }

    /// The list of tags `name.1.Key`, `name.1.Value`, ….
    pub fn tags(&self, name: &str) -> Vec<(String, String)> {
        self.structs(name)
            .iter()
            .filter_map(|tag| {
                Some((tag.get("Key")?.to_owned(), tag.get("Value").unwrap_or_default().to_owned()))
            })
            .collect()
    }

    /// EC2's `Filter.n.Name` and `Filter.n.Value.m`.
    pub fn filters(&self) -> Vec<(String, Vec<String>)> {
        self.structs("Filter")
            .iter()
            .filter_map(|filter| {
                Some((
                    filter.get("Name")?.to_owned(),
                    filter.list("Value").into_iter().map(str::to_owned).collect(),
                ))
            })
            .collect()
    }

    /// The parameters as a form body.
    pub fn to_form(&self) -> String {
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
                .to_string()
        };
        let pairs: Vec<String> = self
            .0
            .iter()
            .map(|(key, value)| format!("{}={}", encode(key), encode(value)))
            .collect();
        pairs.join("&")
    }

    fn below<'a>(&'a self, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let prefix = format!("{name}.");
        self.0
            .range(prefix.clone()..)
            .take_while({
                let prefix = prefix.clone();
                move |(key, _)| key.starts_with(&prefix)
            })
            .map(move |(key, value)| (&key[prefix.len()..], value.as_str()))
    }
}

/// What the signature says.
struct Scope {
    credential: Credential,
    region: String,
    service: String,
}

impl Scope {
    fn of(headers: &HeaderMap, params: &Params) -> Option<Self> {
        let from_header = header(headers, "authorization").and_then(|value| {
            let start = value.find("Credential=")? + "Credential=".len();
            value[start..].split([',', ' ']).next()
        });
        let (scope, token) = match from_header {
            Some(scope) => (scope, header(headers, "x-amz-security-token")),
            None => (params.get("X-Amz-Credential")?, params.get("X-Amz-Security-Token")),
        };
        // <access key>/<date>/<region>/<service>/aws4_request
        let mut parts = scope.split('/');
        let access_key = parts.next()?.to_owned();
        let region = parts.nth(1)?.to_owned();
        let service = parts.next()?.to_owned();
        Some(Self {
            credential: Credential { access_key, session_token: token.map(str::to_owned) },
            region,
            service,
        })
    }
}

/// The service that a call is of, as its target, version or path tells; `None` when they do not.
fn called_service(target: Option<&str>, params: &Params, path: &str) -> Option<&'static str> {
    if let Some(target) = target {
        return match target.split('.').next()? {
            "AmazonSQS" => Some("sqs"),
            "AWSEvents" => Some("events"),
            "AmazonSSM" => Some("ssm"),
            "AWSPriceListService" => Some("pricing"),
            "ServiceQuotasV20190624" => Some("servicequotas"),
            "TrentService" => Some("kms"),
            _ => None,
        };
    }
    if params.get("Action").is_some() {
        return match params.get("Version")? {
            "2016-11-15" => Some("ec2"),
            "2010-05-08" => Some("iam"),
            "2011-06-15" => Some("sts"),
            "2012-11-05" => Some("sqs"),
            _ => None,
        };
    }
    rest::service(&segments(path))
}

fn unsigned_service(action: Option<&str>, target: Option<&str>) -> &'static str {
    match (action, target) {
        (Some("AssumeRoleWithWebIdentity" | "AssumeRoleWithSAML"), None) => "sts",
        _ => "",
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn segments(path: &str) -> Vec<String> {
    path.split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect()
}

fn decode_form(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}
