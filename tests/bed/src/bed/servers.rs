//! The servers of a bed: started in parallel where they can be, each told of the others, and
//! stopped in order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tenon_aws_double::clock::Clock;
use tenon_iam_policies::Partition;

use super::aws::{self, Aws};
use super::{ACCOUNT, BedConfig, BedError};
use crate::api_faults::ApiFaults;
use crate::attacher::Attacher;
use crate::control_plane::programs::Programs;
use crate::control_plane::{ControlPlane, ControlPlaneConfig};
use crate::kubelet::logs::LogServer;
use crate::kubelet::{Image, Kubelet, KubeletConfig, NoPodIdentity, SystemNode};
use crate::kwok::Kwok;
use crate::ports::Ports;
use crate::programs::TenonPrograms;

/// What runs.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) aws: Option<Aws>,
    pub(super) plane: ControlPlane,
    pub(super) api_faults: Option<ApiFaults>,
    pub(super) kwok: Kwok,
    pub(super) kubelet: Option<Kubelet>,
    pub(super) attacher: Attacher,
}

/// What is needed to start them.
pub(super) struct Start<'a> {
    pub(super) config: &'a BedConfig,
    pub(super) programs: &'a Programs,
    pub(super) tenon: Option<&'a TenonPrograms>,
    pub(super) dir: &'a Path,
    pub(super) clock: Clock,
}

impl Start<'_> {
    /// Starts all servers.
    pub(super) async fn all(self, ports: &mut Ports) -> Result<Servers, BedError> {
        let Self { config, programs, dir, clock, .. } = self;
        let logs = dir.join("logs");
        std::fs::create_dir_all(&logs)
            .map_err(|source| BedError::Directory { path: Some(logs.clone()), source })?;
        // The gateway's port is known before it listens, because the API server must be told.
        let gateway_port = if config.parts.aws { Some(ports.take()?) } else { None };
        let start_aws = async {
            match gateway_port {
                Some(port) => Ok(Some(Aws::start(config, &logs, port, clock).await?)),
                None => Ok(None),
            }
        };
        let addresses = ports.loopback_prefix();
        let start_plane = async {
            let plane = self.control_plane(gateway_port);
            let plane = ControlPlane::start(&plane, programs, ports, &config.progress).await?;
            let kwok =
                Kwok::start(dir, plane.kubeconfig(), programs, ports, &config.progress).await?;
            Ok::<_, BedError>((plane, kwok))
        };
        let (mut aws, (plane, kwok)) = tokio::try_join!(start_aws, start_plane)?;
        let nodes = system_nodes(&config.region);
        if let Some(aws) = &mut aws {
            let step = config.progress.step("making the cluster known to AWS");
            aws.join(config, &plane, &nodes, clock).await?;
            step.done();
        }
        let api_faults =
            if config.api_faults { Some(ApiFaults::start(&plane).await?) } else { None };
        let api_server_port = api_faults.as_ref().map_or(plane.port(), ApiFaults::port);
        let kubelet = if config.parts.kubelet {
            Some(self.kubelet(aws.as_ref(), &plane, api_server_port, nodes, addresses).await?)
        } else {
            None
        };
        let attacher = Attacher::start(plane.client(), clock);
        Ok(Servers { aws, plane, api_faults, kwok, kubelet, attacher })
    }

    fn control_plane(&self, gateway_port: Option<u16>) -> ControlPlaneConfig {
        let BedConfig { region, cluster, .. } = self.config;
        let partition = Partition::of_region(region);
        ControlPlaneConfig {
            dir: self.dir.to_path_buf(),
            context: format!("arn:{partition}:eks:{region}:{ACCOUNT}:cluster/{cluster}"),
            // In the form that EKS gives it.
            issuer: format!(
                "https://oidc.eks.{region}.{}/id/0123456789ABCDEF0123456789ABCDEF",
                partition.dns_suffix()
            ),
            token_webhook: gateway_port.map(aws::token_webhook),
            node_monitor_grace_seconds: self.config.node_monitor_grace_seconds,
        }
    }

    async fn kubelet(
        &self,
        aws: Option<&Aws>,
        plane: &ControlPlane,
        api_server_port: u16,
        nodes: Vec<SystemNode>,
        addresses: [u8; 3],
    ) -> Result<Kubelet, BedError> {
        let step = self.config.progress.step("registering the system nodes");
        let pods = self.dir.join("pods");
        std::fs::create_dir_all(&pods)
            .map_err(|source| BedError::Directory { path: Some(pods.clone()), source })?;
        let mut images = self.config.images.clone();
        // Also without the workspace's programs somebody may install Tenon. If its program is not
        // built then, the pod's status names the missing file.
        let operator = self.tenon.cloned().or_else(TenonPrograms::place);
        // It plays Karpenter, too: its image is `karpenter/controller`.
        let names = ["tenon-operator", "controller"];
        let of = |name: &str, program| Image { name: name.to_owned(), program };
        images
            .extend(operator.iter().flat_map(|it| names.map(|name| of(name, it.operator.clone()))));
        let log_server = LogServer::bind(&plane.certificates()).await?;
        let config = KubeletConfig {
            dir: pods,
            logs: self.dir.join("logs"),
            client: plane.client(),
            api_server_port,
            images,
            addresses,
            pod_identity: aws.map_or_else(|| Arc::new(NoPodIdentity) as _, Aws::pod_identity),
            credentials_url: aws.map(Aws::credentials_url).unwrap_or_default(),
            metadata: aws.map(|aws| aws.metadata(&nodes)).unwrap_or_default(),
            region: self.config.region.clone(),
            env: aws.map(Aws::endpoint).unwrap_or_default(),
            nodes,
            clock: self.clock,
        };
        let kubelet = Kubelet::start(config, log_server).await?;
        step.done();
        Ok(kubelet)
    }
}

impl Servers {
    /// Stops everything, the operator first, so that it ends as it does in a cluster.
    pub(super) async fn stop(self) {
        let Self { aws, plane, api_faults, kwok, kubelet, attacher } = self;
        if let Some(kubelet) = kubelet {
            kubelet.stop().await;
        }
        drop(api_faults);
        if let Some(aws) = aws {
            aws.stop().await;
        }
        drop(attacher);
        kwok.stop().await;
        plane.stop().await;
    }
}

/// Two nodes of a managed node group, in two zones.
fn system_nodes(region: &str) -> Vec<SystemNode> {
    // Each has an address of its zone's subnet.
    let node = |zone: &str, number: u8, subnet: u8| SystemNode {
        name: format!("ip-10-0-{subnet}-10.{region}.compute.internal"),
        zone: format!("{region}{zone}"),
        region: region.to_owned(),
        address: format!("10.0.{subnet}.10"),
        instance_id: format!("i-0000000000000000{number}"),
        instance_type: "m6i.xlarge".to_owned(),
        labels: BTreeMap::from([
            ("eks.amazonaws.com/nodegroup".to_owned(), "system".to_owned()),
            ("eks.amazonaws.com/capacityType".to_owned(), "ON_DEMAND".to_owned()),
        ]),
        critical_addons_only: true,
    };
    vec![node("a", 1, 1), node("b", 2, 33)]
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use tenon_aws_double::seed::{SUBNET_PREFIX, ZONES, subnet};

    #[test]
    fn system_nodes_have_addresses_of_their_zones_subnets() {
        let mask = u32::MAX << (32 - SUBNET_PREFIX);
        for node in system_nodes("eu-north-1") {
            let zone = ZONES.iter().position(|zone| node.zone.ends_with(zone)).expect("a zone");
            let address: Ipv4Addr = node.address.parse().unwrap();
            assert_eq!(u32::from(address) & mask, u32::from(subnet(zone)), "{}", node.name);
        }
    }
}
