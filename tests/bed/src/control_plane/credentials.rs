//! Who may talk to the control plane: the administrator's token, the keys of service account
//! tokens, and the kubeconfig files; and by what aggregated APIs know the API server.

use std::path::{Path, PathBuf};

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::error::{KeyRejected, Unspecified};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use super::{ControlPlaneConfig, ControlPlaneError};

/// A key can't be made.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The system has no random numbers, or no memory.
    #[error("can't generate a key pair")]
    Generate(#[source] Unspecified),
    /// The key that was just made can't be read.
    #[error("can't read the generated key pair")]
    Read(#[source] KeyRejected),
    /// A certificate can't be made.
    #[error("can't generate a certificate")]
    Certificate(#[source] rcgen::Error),
}

pub(super) fn certificate_file(dir: &Path) -> PathBuf {
    dir.join("certificates/apiserver.crt")
}

pub(super) fn private_key_file(dir: &Path) -> PathBuf {
    dir.join("etc/service-accounts.key")
}

pub(super) fn public_key_file(dir: &Path) -> PathBuf {
    dir.join("etc/service-accounts.pub")
}

pub(super) fn tokens_file(dir: &Path) -> PathBuf {
    dir.join("etc/tokens.csv")
}

pub(super) fn webhook_file(dir: &Path) -> PathBuf {
    dir.join("etc/token-webhook.json")
}

pub(super) fn front_proxy_certificate_file(dir: &Path) -> PathBuf {
    dir.join("etc/front-proxy.crt")
}

pub(super) fn front_proxy_key_file(dir: &Path) -> PathBuf {
    dir.join("etc/front-proxy.key")
}

/// A self-signed certificate for these host names and addresses, and its key, in PEM. Whoever
/// trusts the certificate as an authority accepts it, of a server as of a client.
pub(crate) fn self_signed(names: &[&str]) -> Result<(String, String), CredentialsError> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let pair = rcgen::generate_simple_self_signed(names).map_err(CredentialsError::Certificate)?;
    Ok((pair.cert.pem(), pair.signing_key.serialize_pem()))
}

/// Writes what the parts need before they start; returns the administrator's token.
pub(super) fn write(dir: &Path, config: &ControlPlaneConfig) -> Result<String, ControlPlaneError> {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
        .map_err(CredentialsError::Generate)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref())
        .map_err(CredentialsError::Read)?;
    let public: PublicKeyX509Der<'_> =
        pair.public_key().as_der().map_err(CredentialsError::Generate)?;
    write_file(private_key_file(dir), pem("PRIVATE KEY", pkcs8.as_ref()))?;
    write_file(public_key_file(dir), pem("PUBLIC KEY", public.as_ref()))?;
    let (certificate, key) = self_signed(&["front-proxy"])?;
    write_file(front_proxy_certificate_file(dir), certificate)?;
    write_file(front_proxy_key_file(dir), key)?;
    let token = uuid::Uuid::new_v4().simple().to_string();
    write_file(tokens_file(dir), format!("{token},administrator,administrator,system:masters\n"))?;
    if let Some(url) = &config.token_webhook {
        let webhook = kubeconfig_json("gateway", &json!({ "server": url }), &json!({}));
        write_file(webhook_file(dir), webhook)?;
    }
    Ok(token)
}

/// Writes the administrator's kubeconfig; returns its path and the API server's CA certificate.
pub(super) fn write_kubeconfig(
    dir: &Path,
    context: &str,
    url: &str,
    token: &str,
) -> Result<(PathBuf, String), ControlPlaneError> {
    let certificate = certificate_file(dir);
    let ca = std::fs::read_to_string(&certificate)
        .map_err(|source| ControlPlaneError::Write { path: certificate, source })?;
    let cluster = json!({ "server": url, "certificate-authority-data": STANDARD.encode(&ca) });
    let path = dir.join("kubeconfig");
    write_file(path.clone(), kubeconfig_json(context, &cluster, &json!({ "token": token })))?;
    Ok((path, ca))
}

/// A client from a kubeconfig file.
pub(super) async fn client(kubeconfig: &Path) -> Result<Client, ControlPlaneError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ControlPlaneError::Kubeconfig {
        path: kubeconfig.to_path_buf(),
        source,
    };
    let read = Kubeconfig::read_from(kubeconfig).map_err(|error| failed(error.into()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .map_err(|error| failed(error.into()))?;
    Client::try_from(config).map_err(|error| failed(error.into()))
}

/// JSON, which is YAML.
fn kubeconfig_json(name: &str, cluster: &serde_json::Value, user: &serde_json::Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": cluster }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "current-context": name,
    })
    .to_string()
}

fn write_file(path: PathBuf, text: String) -> Result<(), ControlPlaneError> {
    std::fs::write(&path, text).map_err(|source| ControlPlaneError::Write { path, source })
}

fn pem(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text + &format!("-----END {label}-----\n")
}
