//! How the cluster is reached: by a kubeconfig when one is given, else by a token made from the AWS
//! credentials, as `aws eks get-token` does.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, SystemTime};

use aws_credential_types::provider::ProvideCredentials;
use aws_sigv4::http_request::{
    SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign,
};
use aws_sigv4::sign::v4;
use base64::Engine;
use kube::config::{
    AuthInfo, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use kube::{Client, Config};
use tempfile::NamedTempFile;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::audit::Audit;
use crate::aws::Aws;
use crate::clock;
use crate::kubernetes::client::{Cluster, with_deadline, without_hidden_retries};
use crate::observe::facts::ClusterFacts;
use crate::plugin::{self, Bearer, ClientError};
use crate::settings::document::first_line;
use crate::settings::{Inferred, infer_from_context};
use crate::words::{chain, root, without_types};

/// EKS accepts a token for 15 minutes; it is made anew well before.
const TOKEN_REFRESH: Duration = Duration::from_mins(10);

/// How long the AWS credentials may take that a token is made from: the profile's
/// `credential_process` may wait for something that never comes.
const CREDENTIALS: Duration = Duration::from_secs(30);

/// The cluster can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no client for the kubeconfig.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There are no AWS credentials.
    #[error("there are no usable AWS credentials: {0}")]
    Credentials(String),
    /// The token can't be made.
    #[error("can't make a token for the cluster: {0}")]
    Token(String),
    /// The program does not run in a pod, or its pod has no token.
    #[error("can't connect as a pod's ServiceAccount: {0}")]
    ServiceAccount(String),
    /// EKS did not say how the cluster is reached.
    #[error("EKS reports no endpoint for the cluster yet; it is {status}")]
    NoEndpoint {
        /// The cluster's status.
        status: String,
    },
}

impl TargetError {
    /// Everything that is known, in one line, with what can be done about it.
    pub fn in_one_line(&self) -> String {
        match self {
            Self::Client(ClientError::Plugin(error)) => error.in_one_line(),
            other => other.to_string(),
        }
    }
}

/// Which kubeconfig is meant, and whether its credential plugin may ask questions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeconfigOptions {
    /// Files, as in `KUBECONFIG`.
    pub files: Option<String>,
    /// `None` for the kubeconfig's current context.
    pub context: Option<String>,
    /// Somebody can answer.
    pub attended: bool,
}

/// A connection to the cluster.
pub struct Target {
    /// The connection.
    pub cluster: Cluster,
    /// The API server's address.
    pub endpoint: String,
    /// What it is reached by, in words.
    pub by: String,
    /// Keeps the token fresh for as long as the connection lives.
    _refresh: JoinSet<()>,
}

/// Whether the user named a kubeconfig.
pub fn has_kubeconfig(options: &KubeconfigOptions) -> bool {
    options.context.is_some() || options.files.as_ref().is_some_and(|files| !files.is_empty())
}

/// What the kubeconfig's context says of cluster and region. Reads files only.
pub fn infer(options: &KubeconfigOptions) -> Inferred {
    let Ok(kubeconfig) = read_kubeconfig(options) else { return Inferred::default() };
    let Some(name) = options.context.clone().or(kubeconfig.current_context.clone()) else {
        return Inferred::default();
    };
    let from_context = infer_from_context(&name);
    if from_context != Inferred::default() {
        return from_context;
    }
    let context = kubeconfig
        .contexts
        .iter()
        .find(|context| context.name == name)
        .and_then(|context| context.context.as_ref());
    context.map(|context| infer_from_context(&context.cluster)).unwrap_or_default()
}

/// A context of the kubeconfig that names an EKS cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTarget {
    /// The context's name.
    pub context: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Region of the cluster.
    pub region: String,
    /// It is the current context.
    pub current: bool,
}

/// The contexts that say which EKS cluster they are about, the current one first; only the chosen
/// one, if one is chosen. Reads files only.
pub fn contexts(options: &KubeconfigOptions) -> Vec<NamedTarget> {
    let Ok(kubeconfig) = read_kubeconfig(options) else { return Vec::new() };
    let current = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let named = kubeconfig.contexts.iter().filter_map(|context| {
        let by_cluster =
            context.context.as_ref().map(|context| infer_from_context(&context.cluster));
        let found = Some(infer_from_context(&context.name))
            .filter(|found| *found != Inferred::default())
            .or(by_cluster)?;
        Some(NamedTarget {
            context: context.name.clone(),
            cluster: found.cluster?,
            region: found.region?,
            current: current == Some(&context.name),
        })
    });
    let chosen =
        |target: &NamedTarget| options.context.as_ref().is_none_or(|name| *name == target.context);
    let mut targets = named.filter(chosen).collect::<Vec<_>>();
    targets.sort_by_key(|target| !target.current);
    targets
}

/// Whether a kubeconfig that is named can be read and has the context. Reads files only, so that a
/// wrong name is found before anything is called.
pub fn check(options: &KubeconfigOptions) -> Result<(), ClientError> {
    if !has_kubeconfig(options) {
        return Ok(());
    }
    check_context(&read_kubeconfig(options)?, options)
}

fn check_context(kubeconfig: &Kubeconfig, options: &KubeconfigOptions) -> Result<(), ClientError> {
    let current = kubeconfig.current_context.clone().filter(|name| !name.is_empty());
    let name = options.context.clone().or(current);
    let known = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect::<Vec<_>>();
    match &name {
        Some(name) if known.contains(name) => Ok(()),
        _ => Err(ClientError::UnknownContext { name, known }),
    }
}

fn read_kubeconfig(options: &KubeconfigOptions) -> Result<Kubeconfig, ClientError> {
    let failed = |error: &KubeconfigError| {
        ClientError::Kubeconfig(match error {
            KubeconfigError::ReadConfig(error, path) => {
                format!("can't read {}: {error}", path.display())
            }
            KubeconfigError::Parse(error) => without_types(&first_line(&error.to_string())),
            other => chain(other),
        })
    };
    match &options.files {
        Some(files) if !files.is_empty() => {
            let mut merged: Option<Kubeconfig> = None;
            for file in files.split(':').filter(|file| !file.is_empty()) {
                let next = Kubeconfig::read_from(file).map_err(|error| failed(&error))?;
                merged = Some(match merged {
                    Some(before) => before.merge(next).map_err(|error| failed(&error))?,
                    None => next,
                });
            }
            merged.ok_or_else(|| ClientError::Kubeconfig("KUBECONFIG names no file".to_owned()))
        }
        _ => Kubeconfig::read().map_err(|error| failed(&error)),
    }
}

/// The cluster of the kubeconfig, without a question to AWS.
pub async fn client(options: &KubeconfigOptions) -> Result<Client, ClientError> {
    let config = with_deadline(config(options).await?);
    plugin::client(config, options.attended).await
}

/// The same, and where the token comes from that it sends: for a server that asks the API server
/// who its caller is.
///
/// # Errors
/// When the kubeconfig can't be used, or its credential plugin gives no credential.
pub async fn client_and_bearer(
    options: &KubeconfigOptions,
) -> Result<(Client, Bearer), ClientError> {
    let config = with_deadline(config(options).await?);
    plugin::client_and_bearer(config, options.attended).await
}

async fn config(options: &KubeconfigOptions) -> Result<Config, ClientError> {
    let chosen =
        KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let kubeconfig = read_kubeconfig(options)?;
    check_context(&kubeconfig, options)?;
    Config::from_custom_kubeconfig(kubeconfig, &chosen)
        .await
        .map_err(|error| ClientError::Kubeconfig(chain(&error)))
}

impl Target {
    /// Connects as the ServiceAccount of the pod that this program runs in.
    pub async fn of_service_account() -> Result<Self, TargetError> {
        let config = Config::incluster()
            .map_err(|error| TargetError::ServiceAccount(without_types(&chain(&error))))?;
        let endpoint = config.cluster_url.to_string();
        let config = with_deadline(without_hidden_retries(config));
        let client = plugin::client(config, false).await?;
        Ok(Self {
            cluster: Cluster::new(client, Audit::default()),
            endpoint,
            by: "ServiceAccount".to_owned(),
            _refresh: JoinSet::new(),
        })
    }

    /// Connects by the kubeconfig if one is named, else by the AWS credentials.
    pub async fn connect(
        options: &KubeconfigOptions,
        aws: &Aws,
        facts: &ClusterFacts,
    ) -> Result<Self, TargetError> {
        if has_kubeconfig(options) {
            Self::by_kubeconfig(options, aws.audit.clone()).await
        } else {
            Self::by_token(aws, facts).await
        }
    }

    /// Connects by the kubeconfig, whatever AWS knows of its cluster. `audit` hears of what is
    /// changed.
    ///
    /// # Errors
    /// When there is no usable kubeconfig.
    pub async fn by_kubeconfig(
        options: &KubeconfigOptions,
        audit: Audit,
    ) -> Result<Self, TargetError> {
        let config = config(options).await?;
        let endpoint = config.cluster_url.to_string();
        let config = with_deadline(without_hidden_retries(config));
        let client = plugin::client(config, options.attended).await?;
        let by = "kubeconfig".to_owned();
        Ok(Self { cluster: Cluster::new(client, audit), endpoint, by, _refresh: JoinSet::new() })
    }

    /// Connects by a token that is made from the AWS credentials, and made anew for as long as the
    /// connection lives.
    ///
    /// # Errors
    /// When there are no usable credentials, or the cluster has no endpoint yet.
    pub async fn by_token(aws: &Aws, facts: &ClusterFacts) -> Result<Self, TargetError> {
        let file = token_file(aws, facts).await?;
        let config = own_config(facts, &file).await?;
        let mut refresh = JoinSet::new();
        refresh.spawn(keep_fresh(aws.clone(), facts.clone(), file));
        let endpoint = config.cluster_url.to_string();
        let config = with_deadline(without_hidden_retries(config));
        let client = plugin::client(config, false).await?;
        let cluster = Cluster::new(client, aws.audit.clone());
        Ok(Self { cluster, endpoint, by: "EKS token".to_owned(), _refresh: refresh })
    }
}

async fn own_config(facts: &ClusterFacts, token: &NamedTempFile) -> Result<Config, TargetError> {
    let endpoint = facts
        .endpoint
        .clone()
        .ok_or_else(|| TargetError::NoEndpoint { status: facts.status.clone() })?;
    let name = "cluster".to_owned();
    let kubeconfig = Kubeconfig {
        current_context: Some(name.clone()),
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(kube::config::Cluster {
                server: Some(endpoint),
                certificate_authority_data: facts.certificate_authority.clone(),
                ..kube::config::Cluster::default()
            }),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(AuthInfo {
                token_file: Some(token.path().display().to_string()),
                ..AuthInfo::default()
            }),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(Context {
                cluster: name.clone(),
                user: Some(name),
                ..Context::default()
            }),
            ..NamedContext::default()
        }],
        ..Kubeconfig::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Ok(config.map_err(|error| ClientError::Kubeconfig(chain(&error)))?)
}

/// The token goes through a file that only the user can read, because the Kubernetes client reads
/// token files anew while it runs.
async fn token_file(aws: &Aws, facts: &ClusterFacts) -> Result<NamedTempFile, TargetError> {
    let failed = |error: std::io::Error| TargetError::Token(error.to_string());
    let mut file = NamedTempFile::with_prefix("tenon-token-").map_err(failed)?;
    file.write_all(token(aws, facts).await?.as_bytes()).map_err(failed)?;
    Ok(file)
}

async fn keep_fresh(aws: Aws, facts: ClusterFacts, file: NamedTempFile) {
    let mut ticks = tokio::time::interval(TOKEN_REFRESH);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        match token(&aws, &facts).await {
            Ok(token) => {
                if let Err(error) = std::fs::write(file.path(), token) {
                    tracing::warn!(%error, "can't refresh the cluster's token");
                }
            }
            Err(error) => tracing::warn!(%error, "can't refresh the cluster's token"),
        }
    }
}

/// A presigned GetCallerIdentity, signed over the cluster's name: what EKS takes for a bearer
/// token.
async fn token(aws: &Aws, facts: &ClusterFacts) -> Result<String, TargetError> {
    let provider = aws
        .config
        .credentials_provider()
        .ok_or_else(|| TargetError::Credentials("none are configured".to_owned()))?;
    let credentials = timeout(CREDENTIALS, provider.provide_credentials())
        .await
        .map_err(|_| {
            TargetError::Credentials(format!(
                "they were not available within {} s; run the profile's credential_process \
                 manually to see what it is waiting for, or log in again (`aws sso login`)",
                CREDENTIALS.as_secs()
            ))
        })?
        .map_err(|error| TargetError::Credentials(root(&error)))?;
    let url = presign(
        &credentials.into(),
        &facts.region,
        facts.partition.dns_suffix(),
        &facts.name,
        clock::now().into(),
    )
    .map_err(|error| TargetError::Token(chain(error.as_ref())))?;
    Ok(format!("k8s-aws-v1.{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(url)))
}

fn presign(
    identity: &aws_smithy_runtime_api::client::identity::Identity,
    region: &str,
    dns_suffix: &str,
    cluster: &str,
    now: SystemTime,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let host = format!("sts.{region}.{dns_suffix}");
    let url = format!("https://{host}/?Action=GetCallerIdentity&Version=2011-06-15");
    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(Duration::from_mins(1));
    let params = v4::SigningParams::builder()
        .identity(identity)
        .region(region)
        .name("sts")
        .time(now)
        .settings(settings)
        .build()?
        .into();
    let headers = BTreeMap::from([("host", host.as_str()), ("x-k8s-aws-id", cluster)]);
    let request = SignableRequest::new("GET", &url, headers.into_iter(), SignableBody::Bytes(b""))?;
    let (instructions, _signature) = sign(request, &params)?.into_parts();
    let mut signed = url;
    for (key, value) in instructions.params() {
        signed = format!("{signed}&{key}={}", encode(value));
    }
    Ok(signed)
}

/// Percent-encodes everything but what RFC 3986 leaves alone, as signatures demand.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded = format!("{encoded}%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_credential_types::Credentials;

    #[test]
    fn a_token_is_signed_over_the_clusters_name() {
        let identity =
            Credentials::new("AKIDEXAMPLE", "secret", Some("session/+=".to_owned()), None, "test")
                .into();
        let url = |cluster: &str| {
            presign(&identity, "eu-central-1", "amazonaws.com", cluster, SystemTime::UNIX_EPOCH)
                .expect("signed")
        };
        let a = url("a");
        assert!(a.starts_with("https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-"), "{a}");
        assert!(a.contains("X-Amz-SignedHeaders=host%3Bx-k8s-aws-id"), "{a}");
        assert!(a.contains("X-Amz-Expires=60"), "{a}");
        assert!(a.contains("X-Amz-Security-Token=session%2F%2B%3D"), "{a}");
        assert_ne!(a, url("b"));
    }
}
