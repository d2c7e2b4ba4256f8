//! A real Kubernetes control plane on loopback: etcd, API server, scheduler and controller manager,
//! as child processes.
//!
//! It starts in seconds with empty state in a directory of its own, and everything is gone when it
//! stops. The ServiceAccount admission plugin stays on and the controller manager makes the default
//! accounts, so that pods get projected tokens as in a real cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, select_all};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use parking_lot::Mutex;
use tenon_aws_double::process::{Process, ProcessError, ProcessSpec};
use tenon_aws_double::progress::Progress;

use crate::ports::{PortError, Ports};

pub(crate) mod credentials;
mod flags;
pub mod programs;

use credentials::CredentialsError;
use programs::{Program, Programs};

pub(crate) use flags::SERVICE_CIDR;

/// Long enough for a machine whose cores are busy with a build.
const READY_LIMIT: Duration = Duration::from_mins(2);

/// What the control plane should be like.
#[derive(Clone, Debug)]
pub struct ControlPlaneConfig {
    /// The directory for its data, credentials and logs; must exist and be empty.
    pub dir: PathBuf,
    /// The name of cluster, context and user in the kubeconfig (`arn:aws:eks:…:cluster/bed`, as
    /// `aws eks update-kubeconfig` writes it).
    pub context: String,
    /// The issuer of service account tokens, an `https` URL; the EKS double describes the cluster
    /// with the same.
    pub issuer: String,
    /// Where the API server asks who a bearer token belongs to that is neither the administrator's
    /// nor a service account's: the URL of a TokenReview webhook.
    pub token_webhook: Option<String>,
    /// After how many seconds without a heartbeat a node counts as lost (Kubernetes' default: 50).
    pub node_monitor_grace_seconds: u32,
}

/// A part of the control plane did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// A directory or file can't be written.
    #[error("can't write {}", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No port is free.
    #[error("the control plane got no port")]
    Port(#[from] PortError),
    /// The keys for service account tokens can't be made.
    #[error("can't make the credentials of the control plane")]
    Credentials(#[from] CredentialsError),
    /// A process can't be started, ended, or does not become ready.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The kubeconfig can't be used.
    #[error("can't make a client from {}", .path.display())]
    Kubeconfig {
        /// The kubeconfig.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A running control plane; its processes are killed when it is dropped.
pub struct ControlPlane {
    url: String,
    port: u16,
    issuer: String,
    token: String,
    certificates: PathBuf,
    kubeconfig: PathBuf,
    ca: String,
    client: Client,
    api_server_spec: ProcessSpec,
    etcd: Arc<Process>,
    /// Another one after each restart.
    api_server: Mutex<Arc<Process>>,
    controller_manager: Arc<Process>,
    scheduler: Arc<Process>,
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane").field("url", &self.url).finish_non_exhaustive()
    }
}

impl ControlPlane {
    /// Starts the control plane and waits until it serves and has made the default service account.
    ///
    /// # Errors
    /// When a part can't be started, ends, or is not ready after two minutes; the error names it,
    /// its log and the log's last lines.
    pub async fn start(
        config: &ControlPlaneConfig,
        programs: &Programs,
        ports: &mut Ports,
        progress: &Progress,
    ) -> Result<Self, ControlPlaneError> {
        // Every TLS client of the process needs it; a second call, by another bed, changes nothing.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let dir = &config.dir;
        for part in ["logs", "etcd", "certificates", "etc"] {
            let path = dir.join(part);
            std::fs::create_dir_all(&path)
                .map_err(|source| ControlPlaneError::Write { path, source })?;
        }
        let token = credentials::write(dir, config)?;
        let (client_port, peer_port, port) = (ports.take()?, ports.take()?, ports.take()?);
        let spec = |program: Program, args: Vec<String>| process_spec(dir, programs, program, args);

        let step = progress.step("starting etcd and the API server");
        let etcd = Process::spawn(spec(Program::Etcd, flags::etcd(dir, client_port, peer_port)))?;
        etcd.ready("it listens", READY_LIMIT, || connects(client_port)).await?;
        let api_server_spec =
            spec(Program::ApiServer, flags::api_server(config, client_port, port));
        let api_server = Process::spawn(api_server_spec.clone())?;
        // The certificate exists long before the server is ready, so that the others can start
        // meanwhile.
        let certificate = credentials::certificate_file(dir);
        api_server
            .ready("it has written its certificate", READY_LIMIT, async || {
                std::fs::read_to_string(&certificate)
                    .is_ok_and(|pem| pem.contains("END CERTIFICATE"))
            })
            .await?;
        let url = format!("https://127.0.0.1:{port}");
        let (kubeconfig, ca) = credentials::write_kubeconfig(dir, &config.context, &url, &token)?;
        flags::write_scheduler_config(dir, &kubeconfig)?;
        let controller_manager = Process::spawn(spec(
            Program::ControllerManager,
            flags::controller_manager(config, &kubeconfig),
        ))?;
        let scheduler = Process::spawn(spec(Program::Scheduler, flags::scheduler(dir)))?;
        let client = credentials::client(&kubeconfig).await?;
        let plane = Self {
            url,
            port,
            issuer: config.issuer.clone(),
            token,
            certificates: dir.join("certificates"),
            kubeconfig,
            ca,
            client,
            api_server_spec,
            etcd: Arc::new(etcd),
            api_server: Mutex::new(Arc::new(api_server)),
            controller_manager: Arc::new(controller_manager),
            scheduler: Arc::new(scheduler),
        };
        plane.serves().await?;
        step.done();
        let step = progress.step("waiting for the controller manager");
        plane.has_default_account().await?;
        step.done();
        Ok(plane)
    }

    /// A client with the rights of `system:masters`.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The directory of the API server's certificate and its key.
    pub fn certificates(&self) -> PathBuf {
        self.certificates.clone()
    }

    /// The kubeconfig file of the same administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API server's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The API server's port on loopback.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The API server's CA certificate, in PEM.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// The issuer of service account tokens.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The administrator's bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Kills the API server, leaves it down for `down`, starts it again with the same state, and
    /// waits until it serves.
    ///
    /// # Errors
    /// When it can't be started or does not become ready.
    pub async fn restart_api_server(&self, down: Duration) -> Result<(), ControlPlaneError> {
        self.api_server().stop(Duration::ZERO).await;
        tokio::time::sleep(down).await;
        *self.api_server.lock() = Arc::new(Process::spawn(self.api_server_spec.clone())?);
        self.serves().await
    }

    /// Waits until a part ends by itself, and says which. Not to be used across
    /// [`Self::restart_api_server`].
    ///
    /// # Panics
    /// Never: a process that was waited for has ended.
    pub async fn failed(&self) -> ProcessError {
        let waits = self.processes().map(|process| {
            Box::pin(async move {
                process.wait().await;
                process.failure()
            })
        });
        let (failure, ..) = select_all(waits).await;
        failure.expect("a process that was waited for has ended")
    }

    /// Stops all parts and waits until they are gone. Their data is not saved: they are killed.
    pub async fn stop(self) {
        let processes = self.processes();
        join_all(processes.iter().map(|process| process.stop(Duration::ZERO))).await;
    }

    /// The process ids of the parts, by name.
    pub fn pids(&self) -> BTreeMap<String, u32> {
        self.processes().map(|process| (process.name().to_owned(), process.pid())).into()
    }

    fn processes(&self) -> [Arc<Process>; 4] {
        // In the order in which errors should be seen: what ends first makes the others end.
        [&self.etcd, &self.api_server(), &self.controller_manager, &self.scheduler].map(Arc::clone)
    }

    fn api_server(&self) -> Arc<Process> {
        Arc::clone(&self.api_server.lock())
    }

    async fn serves(&self) -> Result<(), ControlPlaneError> {
        let ready = || async {
            let request = http::Request::get("/readyz").body(Vec::new()).expect("a valid request");
            self.client.request_text(request).await.is_ok()
        };
        Ok(self.api_server().ready("it answers /readyz", READY_LIMIT, ready).await?)
    }

    async fn has_default_account(&self) -> Result<(), ControlPlaneError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), "default");
        let ready =
            || async { accounts.get_opt("default").await.is_ok_and(|account| account.is_some()) };
        let what = "it has made the default service account";
        Ok(self.controller_manager.ready(what, READY_LIMIT, ready).await?)
    }
}

async fn connects(port: u16) -> bool {
    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

fn process_spec(
    dir: &Path,
    programs: &Programs,
    program: Program,
    args: Vec<String>,
) -> ProcessSpec {
    ProcessSpec {
        name: program.name().to_owned(),
        program: programs.path(program).to_path_buf(),
        args: args.into_iter().map(Into::into).collect(),
        env: BTreeMap::from([("HOME".to_owned(), dir.display().to_string())]),
        dir: dir.to_path_buf(),
        log: dir.join("logs").join(format!("{}.log", program.name())),
    }
}
