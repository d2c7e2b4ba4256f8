//! kwok plays the nodes annotated `kwok.x-k8s.io/node=fake` and the pods on them, by the stages in
//! `tests/bed/kwok/stages.yaml`.
//!
//! Nodes that also carry [`MACHINE_ANNOTATION`] belong to a simulated machine: kwok keeps their
//! leases and plays their pods, but their status is the machine's. For the others, which the
//! operator's `kwok` cloud provider or a test makes, kwok plays the boot, too.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tenon_aws_double::clock::Clock;
use tenon_aws_double::process::{Process, ProcessError, ProcessSpec};
use tenon_aws_double::progress::Progress;

use crate::control_plane::programs::{Program, Programs};
use crate::ports::{PortError, Ports};

const STAGES: &str = include_str!("../kwok/stages.yaml");

/// The annotation by which kwok knows its nodes; its value is `fake`.
pub const NODE_ANNOTATION: &str = "kwok.x-k8s.io/node";
/// On a Node: a simulated machine decides its status; kwok plays only its lease and pods.
pub(crate) const MACHINE_ANNOTATION: &str = "bed.tenon.dev/machine";

/// As a kubelet's: the node's heartbeat comes every quarter of it.
const LEASE_SECONDS: u32 = 40;
/// Enough that 250 nodes and 1,000 pods that appear at once are played within seconds; kwok's own
/// default is 4.
const WORKERS: u32 = 32;

/// A node that kwok plays from its boot on, with this room for pods.
pub fn node(name: &str, cpu: &str, memory: &str, pods: &str) -> Node {
    let room = json!({ "cpu": cpu, "memory": memory, "pods": pods });
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": { NODE_ANNOTATION: "fake" },
            "labels": { "kubernetes.io/hostname": name },
        },
        "status": { "capacity": room, "allocatable": room },
    }))
    .expect("a Node")
}

/// kwok does not run.
#[derive(Debug, thiserror::Error)]
pub enum KwokError {
    /// Its configuration can't be written.
    #[error("can't write kwok's configuration {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It got no port.
    #[error("kwok got no port")]
    Port(#[from] PortError),
    /// It can't be started, ended, or does not become ready.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A running kwok; killed when dropped.
#[derive(Debug)]
pub struct Kwok {
    process: Process,
}

impl Kwok {
    /// Starts kwok in the bed's directory `dir` (which has `logs/` and `etc/`) and waits until it
    /// serves.
    ///
    /// # Errors
    /// When it can't be started, ends, or is not ready after two minutes.
    pub async fn start(
        dir: &Path,
        kubeconfig: &Path,
        programs: &Programs,
        ports: &mut Ports,
        progress: &Progress,
    ) -> Result<Self, KwokError> {
        let step = progress.step("starting kwok");
        let config = dir.join("etc/kwok.yaml");
        let options = json!({
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "options": {
                "podPlayStageParallelism": WORKERS,
                "nodePlayStageParallelism": WORKERS,
                "nodeLeaseParallelism": WORKERS,
                "podsOnNodeSyncParallelism": WORKERS,
            },
        });
        std::fs::write(&config, format!("{options}\n---\n{STAGES}"))
            .map_err(|source| KwokError::Write { path: config.clone(), source })?;
        let port = ports.take()?;
        let args = [
            format!("--config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--manage-nodes-with-annotation-selector={NODE_ANNOTATION}=fake"),
            format!("--node-lease-duration-seconds={LEASE_SECONDS}"),
            // Pods of nodes without a podCIDR get their addresses from here, 65,000 of them.
            "--cidr=10.96.0.0/16".to_owned(),
            "--node-ip=10.0.0.1".to_owned(),
            format!("--server-address=127.0.0.1:{port}"),
        ];
        let process = Process::spawn(ProcessSpec {
            name: "kwok".to_owned(),
            program: programs.path(Program::Kwok).to_path_buf(),
            args: args.into_iter().map(Into::into).collect(),
            env: BTreeMap::from([("HOME".to_owned(), dir.display().to_string())]),
            dir: dir.to_path_buf(),
            log: dir.join("logs/kwok.log"),
        })?;
        let ready = || async { tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() };
        process.ready("it serves", Duration::from_mins(2), ready).await?;
        step.done();
        Ok(Self { process })
    }

    /// By which it is stopped and killed.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Stops kwok: no node has heartbeats any more, and no pod changes.
    pub async fn stop(self) {
        self.process.stop(Duration::ZERO).await;
    }
}

/// The namespace of the nodes' leases.
pub(crate) const LEASES: &str = "kube-node-lease";

/// Who holds the lease of a node that has fallen silent.
const SILENT: &str = "silent";

/// Whether somebody has made the node of this lease fall silent.
pub(crate) fn is_silent(lease: &Lease) -> bool {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(SILENT)
}

/// Makes a node fall silent: its lease is taken from kwok, which then neither renews it nor touches
/// the node's pods, until [`wake`].
///
/// # Errors
/// When the API server refuses.
pub async fn silence(client: Client, node: &str, clock: Clock) -> Result<(), kube::Error> {
    let now = clock.micro_time();
    // kwok takes a lease back when it has expired by its own terms, so it lasts for ten years.
    let lease = json!({ "spec": {
        "holderIdentity": SILENT, "leaseDurationSeconds": 315_360_000, "acquireTime": now, "renewTime": now,
    } });
    patch_lease(client, node, &lease).await
}

/// Lets kwok take the node's lease again, so that heartbeats go on.
///
/// # Errors
/// When the API server refuses.
pub async fn wake(client: Client, node: &str) -> Result<(), kube::Error> {
    patch_lease(client, node, &json!({ "spec": { "holderIdentity": null } })).await
}

async fn patch_lease(
    client: Client,
    node: &str,
    lease: &serde_json::Value,
) -> Result<(), kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client, LEASES);
    leases.patch(node, &PatchParams::default(), &Patch::Merge(lease)).await.map(drop)
}
