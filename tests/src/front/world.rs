//! What every service of the front can see: the account, the clock, moto behind us, and the cluster that the account holds.

use parking_lot::RwLock;

use super::moto_client::MotoClient;
use crate::clock::Clock;

/// The EKS cluster of the bed, as `DescribeCluster` and the machines see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Name.
    pub name: String,
    /// URL of the API server.
    pub endpoint: String,
    /// The API server's CA certificate in PEM.
    pub ca_pem: String,
    /// Kubernetes minor version: `1.36`.
    pub version: String,
    /// Issuer URL of service account tokens.
    pub issuer: String,
    /// The VPC.
    pub vpc_id: String,
    /// Its subnets, one per zone.
    pub subnet_ids: Vec<String>,
    /// The cluster security group.
    pub cluster_security_group_id: String,
    /// Service CIDR (IPv4).
    pub service_cidr: String,
}

/// The state of the double that services share.
#[derive(Debug)]
pub struct World {
    account: String,
    region: String,
    clock: Clock,
    moto: MotoClient,
    cluster: RwLock<Option<Cluster>>,
}

impl World {
    /// A world before moto at `moto`.
    pub fn new(
        account: impl Into<String>,
        region: impl Into<String>,
        clock: Clock,
        moto: MotoClient,
    ) -> Self {
        Self {
            account: account.into(),
            region: region.into(),
            clock,
            moto,
            cluster: RwLock::new(None),
        }
    }

    /// The account ID.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The bed's region.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// moto, for calls of our own that are neither authorised nor logged.
    pub fn moto(&self) -> &MotoClient {
        &self.moto
    }

    /// The cluster, once the bed has announced it.
    pub fn cluster(&self) -> Option<Cluster> {
        self.cluster.read().clone()
    }

    /// Announces the cluster.
    pub fn set_cluster(&self, cluster: Cluster) {
        *self.cluster.write() = Some(cluster);
    }
}
