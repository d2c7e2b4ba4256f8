//! Facts about the cluster that machines need to join it, and its version.

use std::net::IpAddr;

use aws_sdk_eks::Client;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use parking_lot::RwLock;
use tenon_crds::versions::{SUPPORTED_MINORS, minor};

use super::error::{Error, Result};
use super::options::AwsSettings;
use super::user_data::ClusterFacts;

/// Where a pod finds the CA of its API server.
const IN_CLUSTER_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The cluster, as far as it is known.
#[derive(Debug)]
pub(crate) struct Cluster {
    eks: Client,
    from_eks: bool,
    facts: RwLock<ClusterFacts>,
    version: RwLock<Option<String>>,
}

/// What `eks:DescribeCluster` says.
struct Described {
    arn: Option<String>,
    endpoint: Option<String>,
    ca: Option<String>,
    service_cidr: Option<String>,
    version: Option<String>,
}

impl Cluster {
    /// Finds out what options don't say. The endpoint must be found; CA and DNS address are looked
    /// for and may stay unknown.
    pub(crate) async fn discover(
        eks: Client,
        options: &AwsSettings,
        kubernetes: &kube::Client,
    ) -> Result<Self> {
        let mut facts = ClusterFacts {
            name: options.cluster_name.clone(),
            endpoint: options.cluster_endpoint.clone(),
            ca_bundle: Some(options.cluster_ca_bundle.clone()).filter(|ca| !ca.is_empty()),
            service_cidr: None,
            dns_ip: dns_ip(kubernetes).await,
        };
        if facts.ca_bundle.is_none() {
            facts.ca_bundle = own_ca().await;
        }
        if facts.endpoint.is_empty() || facts.ca_bundle.is_none() {
            let described = describe(&eks, &facts.name).await?;
            if facts.endpoint.is_empty() {
                facts.endpoint = described.endpoint.ok_or_else(|| {
                    Error::unexpected("DescribeCluster", "the cluster has no endpoint yet")
                })?;
            }
            facts.ca_bundle = facts.ca_bundle.or(described.ca);
            facts.service_cidr = described.service_cidr;
        }
        tracing::info!(
            cluster = facts.name,
            endpoint = facts.endpoint,
            dns_ip = ?facts.dns_ip,
            "found the cluster"
        );
        Ok(Self {
            eks,
            from_eks: options.eks_control_plane,
            facts: RwLock::new(facts),
            version: RwLock::default(),
        })
    }

    /// Known facts.
    #[cfg(test)]
    pub(crate) fn known(eks: Client, facts: ClusterFacts, version: &str) -> Self {
        Self {
            eks,
            from_eks: false,
            facts: RwLock::new(facts),
            version: RwLock::new(Some(version.to_owned())),
        }
    }

    /// What is known now.
    pub(crate) fn facts(&self) -> ClusterFacts {
        self.facts.read().clone()
    }

    /// The CA as it goes into user data and into the hash of NodeClasses.
    pub(crate) fn ca_bundle(&self) -> Option<String> {
        self.facts.read().ca_bundle.clone()
    }

    /// `1.33`; `None` until it was read once.
    pub(crate) fn version(&self) -> Option<String> {
        self.version.read().clone()
    }

    /// Makes sure that the address range of Services is known.
    pub(crate) async fn resolve_service_cidr(&self) -> Result<()> {
        let name = {
            let facts = self.facts.read();
            if facts.service_cidr.is_some() {
                return Ok(());
            }
            facts.name.clone()
        };
        let cidr = describe(&self.eks, &name).await?.service_cidr.ok_or_else(|| {
            Error::unexpected("DescribeCluster", "the cluster has no service CIDR")
        })?;
        tracing::info!(cidr, "discovered the cluster's service CIDR");
        self.facts.write().service_cidr = Some(cidr);
        Ok(())
    }

    /// The cluster's ARN.
    pub(crate) async fn arn(&self) -> Result<String> {
        let name = self.facts.read().name.clone();
        describe(&self.eks, &name)
            .await?
            .arn
            .ok_or_else(|| Error::unexpected("DescribeCluster", "the cluster has no ARN"))
    }

    /// Reads the version again.
    pub(crate) async fn refresh_version(&self, kubernetes: &kube::Client) -> Result<()> {
        let found = if self.from_eks {
            let name = self.facts.read().name.clone();
            describe(&self.eks, &name)
                .await?
                .version
                .ok_or_else(|| Error::unexpected("DescribeCluster", "the cluster has no version"))?
        } else {
            let info = kubernetes
                .apiserver_version()
                .await
                .map_err(|error| Error::unexpected("GET /version", error.to_string()))?;
            format!("{}.{}", info.major, info.minor.trim_end_matches('+'))
        };
        let changed = self.version.read().as_deref() != Some(found.as_str());
        if changed {
            tracing::info!(version = found, "discovered the cluster's version");
            if !minor(&found).is_some_and(|minor| SUPPORTED_MINORS.contains(&minor)) {
                tracing::error!(version = found, "this version of Kubernetes is not supported");
            }
            *self.version.write() = Some(found);
        }
        Ok(())
    }
}

async fn describe(eks: &Client, name: &str) -> Result<Described> {
    let answer = eks
        .describe_cluster()
        .name(name)
        .send()
        .await
        .map_err(|error| Error::from_sdk("DescribeCluster", &error))?;
    let cluster = answer.cluster.ok_or_else(|| {
        Error::unexpected("DescribeCluster", format!("there is no cluster named {name}"))
    })?;
    let network = cluster.kubernetes_network_config.as_ref();
    let ipv4 = network.and_then(|network| network.service_ipv4_cidr.clone());
    let ipv6 = network.and_then(|network| network.service_ipv6_cidr.clone());
    Ok(Described {
        arn: cluster.arn.clone(),
        endpoint: cluster.endpoint.clone(),
        ca: cluster.certificate_authority.as_ref().and_then(|ca| ca.data.clone()),
        service_cidr: ipv4.or(ipv6).filter(|cidr| !cidr.is_empty()),
        version: cluster.version.clone(),
    })
}

/// The DNS service's address; without it machines use the kubelet's own default.
async fn dns_ip(kubernetes: &kube::Client) -> Option<IpAddr> {
    let services: Api<Service> = Api::namespaced(kubernetes.clone(), "kube-system");
    match services.get("kube-dns").await {
        Ok(service) => service.spec?.cluster_ip?.parse().ok(),
        Err(error) => {
            tracing::warn!(%error, "the service kube-system/kube-dns cannot be read: nodes get no \
                 DNS address");
            None
        }
    }
}

/// The CA that the operator itself trusts, as its bytes stand in the file: the hash of NodeClasses
/// depends on them.
async fn own_ca() -> Option<String> {
    if let Ok(pem) = tokio::fs::read(IN_CLUSTER_CA).await {
        return Some(BASE64.encode(pem));
    }
    let kubeconfig = kube::config::Kubeconfig::read().ok()?;
    let context = kubeconfig.current_context.as_deref()?;
    let cluster = kubeconfig
        .contexts
        .iter()
        .find(|named| named.name == context)
        .and_then(|named| named.context.as_ref())
        .map(|context| context.cluster.as_str())?;
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|named| named.name == cluster)
        .and_then(|named| named.cluster.as_ref())?;
    if let Some(data) = &cluster.certificate_authority_data {
        return Some(data.clone());
    }
    let pem = tokio::fs::read(cluster.certificate_authority.as_ref()?).await.ok()?;
    Some(BASE64.encode(pem))
}
