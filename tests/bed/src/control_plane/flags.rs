//! The command lines of the control plane's parts.

use std::path::{Path, PathBuf};

use super::{ControlPlaneConfig, ControlPlaneError, credentials};

/// The range of cluster IPs; EKS uses the same for VPCs outside of 10.0.0.0/8.
pub(crate) const SERVICE_CIDR: &str = "10.100.0.0/16";

/// More than any test asks for; a real cluster's limits are there to share, and nobody shares here.
const QPS: u32 = 500;
const BURST: u32 = 1000;

pub(super) fn etcd(dir: &Path, client_port: u16, peer_port: u16) -> Vec<String> {
    let (client, peer) =
        (format!("http://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer_port}"));
    vec![
        "--name=bed".to_owned(),
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=bed={peer}"),
        "--unsafe-no-fsync".to_owned(),
        format!("--quota-backend-bytes={}", 8_u64 << 30),
        // The only member needs no second to find out that it leads.
        "--heartbeat-interval=20".to_owned(),
        "--election-timeout=200".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

pub(super) fn api_server(config: &ControlPlaneConfig, etcd_port: u16, port: u16) -> Vec<String> {
    let dir = &config.dir;
    let issuer = &config.issuer;
    let mut flags = vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // Endpoints must not be on loopback, so the service `kubernetes` gets none.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={port}"),
        format!(
            "--cert-dir={}",
            credentials::certificate_file(dir).parent().expect("a file in it").display()
        ),
        format!("--service-account-issuer={issuer}"),
        // Tokens for other audiences (`sts.amazonaws.com`, `pods.eks.amazonaws.com`) are issued and
        // reviewed, but open nothing here.
        format!("--api-audiences={issuer},https://kubernetes.default.svc"),
        format!("--service-account-key-file={}", credentials::public_key_file(dir).display()),
        format!(
            "--service-account-signing-key-file={}",
            credentials::private_key_file(dir).display()
        ),
        "--authorization-mode=Node,RBAC".to_owned(),
        // The addresses in the VPC lead nowhere; the kubelet of the system nodes listens on
        // loopback.
        "--kubelet-preferred-address-types=ExternalIP".to_owned(),
        format!("--token-auth-file={}", credentials::tokens_file(dir).display()),
        format!("--service-cluster-ip-range={SERVICE_CIDR}"),
        // By this certificate the servers of aggregated APIs know that a request comes from the API
        // server, which says in headers whose it is.
        format!(
            "--proxy-client-cert-file={}",
            credentials::front_proxy_certificate_file(dir).display()
        ),
        format!("--proxy-client-key-file={}", credentials::front_proxy_key_file(dir).display()),
        format!(
            "--requestheader-client-ca-file={}",
            credentials::front_proxy_certificate_file(dir).display()
        ),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--allow-privileged".to_owned(),
        "--max-requests-inflight=1500".to_owned(),
        "--max-mutating-requests-inflight=750".to_owned(),
        "--profiling=false".to_owned(),
    ];
    if config.token_webhook.is_some() {
        flags.extend([
            format!(
                "--authentication-token-webhook-config-file={}",
                credentials::webhook_file(dir).display()
            ),
            "--authentication-token-webhook-version=v1".to_owned(),
            // Short, so that a removed access entry locks out soon, as EKS does.
            "--authentication-token-webhook-cache-ttl=5s".to_owned(),
        ]);
    }
    flags
}

pub(super) fn controller_manager(config: &ControlPlaneConfig, kubeconfig: &Path) -> Vec<String> {
    let dir = &config.dir;
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--service-account-private-key-file={}", credentials::private_key_file(dir).display()),
        format!("--root-ca-file={}", credentials::certificate_file(dir).display()),
        "--use-service-account-credentials".to_owned(),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--controllers=*,-node-ipam-controller,-node-route-controller,-service-lb-controller,-cloud-node-lifecycle-controller"
            .to_owned(),
        format!("--node-monitor-grace-period={}s", config.node_monitor_grace_seconds),
        "--node-monitor-period=2s".to_owned(),
        format!("--kube-api-qps={QPS}"),
        format!("--kube-api-burst={BURST}"),
        "--profiling=false".to_owned(),
    ]
}

pub(super) fn scheduler(dir: &Path) -> Vec<String> {
    vec![format!("--config={}", scheduler_config_file(dir).display()), "--secure-port=0".to_owned()]
}

fn scheduler_config_file(dir: &Path) -> PathBuf {
    dir.join("etc/scheduler.yaml")
}

pub(super) fn write_scheduler_config(
    dir: &Path,
    kubeconfig: &Path,
) -> Result<(), ControlPlaneError> {
    let config = serde_json::json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": { "kubeconfig": kubeconfig, "qps": QPS, "burst": BURST },
        "leaderElection": { "leaderElect": false },
    });
    let path = scheduler_config_file(dir);
    std::fs::write(&path, config.to_string())
        .map_err(|source| ControlPlaneError::Write { path, source })
}
