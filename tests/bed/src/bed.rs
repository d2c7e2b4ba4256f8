//! One bed: the parts brought up together, what a program needs to use them, and their orderly end.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use kube::Client;
use tempfile::TempDir;
use tenon_aws_double::cache::{self, CacheError, Lock};
use tenon_aws_double::clock::Clock;
use tenon_aws_double::process::{Exit, ProcessError};
use tenon_aws_double::progress::Progress;
use tenon_aws_double::response::AwsError;
use tokio::process::Command;

use crate::api_faults::{ApiFaults, ApiFaultsError};
use crate::control::{Control, ControlError};
use crate::control_plane::programs::{ProgramError, Programs};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::environment::Environment;
use crate::kubelet::logs::LogServerError;
use crate::kubelet::{Image, Kubelet, NodeError};
use crate::kwok::KwokError;
use crate::ports::{PortError, Ports};
use crate::programs::{TenonProgramError, TenonPrograms};

pub mod aws;
pub mod caller;
pub mod exports;
mod inventory;
mod servers;

use aws::{Aws, AwsStartError};
use exports::Exports;
use servers::{Servers, Start};

/// The account of every bed.
pub const ACCOUNT: &str = "123456789012";

/// Which parts a bed has beside the control plane and kwok.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parts {
    /// The AWS double with its gateway, and the machines.
    pub aws: bool,
    /// The two system nodes, whose kubelet runs the operator's pods as processes.
    pub kubelet: bool,
    /// The programs of this workspace, brought up to date: `tenon`, and `tenon-operator` as the
    /// image of that name.
    pub tenon: bool,
}

impl Parts {
    /// All parts.
    pub const fn all() -> Self {
        Self { aws: true, kubelet: true, tenon: true }
    }

    /// Nothing but Kubernetes; starts fastest.
    pub const fn control_plane_only() -> Self {
        Self { aws: false, kubelet: false, tenon: false }
    }
}

/// What a bed should be like.
#[derive(Clone, Debug)]
pub struct BedConfig {
    /// The cluster's name in EKS and in the kubeconfig's context.
    pub cluster: String,
    /// The AWS region.
    pub region: String,
    /// After how many seconds without heartbeat a node counts as lost.
    pub node_monitor_grace_seconds: u32,
    /// Which parts it has.
    pub parts: Parts,
    /// The images that the system nodes run as processes; more are added for the programs of this
    /// workspace.
    pub images: Vec<Image>,
    /// Whether the operator's pods reach the API server through [`Bed::api_faults`].
    pub api_faults: bool,
    /// The seed of what happens by chance.
    pub seed: u64,
    /// Where steps are shown.
    pub progress: Progress,
}

impl Default for BedConfig {
    fn default() -> Self {
        Self {
            cluster: "bed".to_owned(),
            region: "eu-central-1".to_owned(),
            node_monitor_grace_seconds: 40,
            parts: Parts::all(),
            images: Vec::new(),
            api_faults: false,
            seed: 1,
            progress: Progress::hidden(),
        }
    }
}

/// The bed can't be brought up or down.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// The cache can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// An environment variable of the bed has an invalid value.
    #[error("the environment is not valid")]
    Environment(#[source] clap::Error),
    /// The bed's directory can't be made or removed.
    #[error("can't make or remove the bed's directory{}", .path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default())]
    Directory {
        /// The directory, if there was one.
        path: Option<PathBuf>,
        /// Why.
        source: io::Error,
    },
    /// No ports are free.
    #[error("the bed got no ports")]
    Ports(#[from] PortError),
    /// A program is missing and can't be built.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The control plane does not run.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// kwok does not run.
    #[error(transparent)]
    Kwok(#[from] KwokError),
    /// A system node can't be registered.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The proxy before the API server does not come up.
    #[error(transparent)]
    ApiFaults(#[from] ApiFaultsError),
    /// The kubelet can't serve logs.
    #[error(transparent)]
    LogServer(#[from] LogServerError),
    /// The programs of this workspace are missing.
    #[error(transparent)]
    Tenon(#[from] TenonProgramError),
    /// A program can't be run on the bed.
    #[error("can't run {}", .program.display())]
    Run {
        /// Path of the executable.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something was asked of a part that this bed was started without.
    #[error("this bed was started without {0}")]
    NoPart(&'static str),
    /// The AWS side does not come up.
    #[error(transparent)]
    Aws(#[from] AwsStartError),
    /// The AWS double can't be looked at.
    #[error("can't list what is in the AWS double")]
    Inventory(#[source] AwsError),
    /// The control API refuses.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// A program that was run and has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finished {
    /// Its exit code; 128 + signal for a signalled one.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            code: Exit::Status(output.status).code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A running bed. [`Bed::stop`] ends it in order; dropping it kills its processes.
#[derive(Debug)]
pub struct Bed {
    config: BedConfig,
    clock: Clock,
    environment: Environment,
    programs: Programs,
    tenon: Option<TenonPrograms>,
    servers: Servers,
    dir: TempDir,
    _ports: Ports,
    _slot: Lock,
}

impl Bed {
    /// Starts a bed; builds what is missing, and waits if as many beds as may (`TENON_BED_SLOTS`)
    /// run already.
    ///
    /// # Errors
    /// When a part does not start; the error names the part, its log, and the log's last lines. The
    /// bed's directory then stays, with all logs.
    pub async fn start(config: BedConfig) -> Result<Self, BedError> {
        let environment = Environment::read().map_err(BedError::Environment)?;
        let cache = cache::dir()?;
        let progress = &config.progress;
        let programs = Programs::provide(progress).await?;
        let tenon =
            if config.parts.tenon { Some(TenonPrograms::provide(progress).await?) } else { None };
        let slot = slot(&cache, environment.slots, progress).await?;
        let mut ports = Ports::reserve(&cache)?;
        let mut dir = tempfile::Builder::new()
            .prefix("tenon-bed-")
            .tempdir()
            .map_err(|source| BedError::Directory { path: None, source })?;
        let clock = Clock::system();
        let start = Start {
            config: &config,
            programs: &programs,
            tenon: tenon.as_ref(),
            dir: dir.path(),
            clock,
        };
        let servers = match start.all(&mut ports).await {
            Ok(servers) => servers,
            Err(error) => {
                // The logs of what did not start are needed.
                dir.disable_cleanup(true);
                return Err(error);
            }
        };
        dir.disable_cleanup(environment.keep);
        Ok(Self {
            config,
            clock,
            environment,
            programs,
            tenon,
            servers,
            dir,
            _ports: ports,
            _slot: slot,
        })
    }

    /// The bed's directory: logs, data, kubeconfig.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The bed's clock.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// A client with the rights of `system:masters`.
    pub fn client(&self) -> Client {
        self.servers.plane.client()
    }

    /// The name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.config.cluster
    }

    /// The AWS region.
    pub fn region(&self) -> &str {
        &self.config.region
    }

    /// The availability zones of the bed's VPC.
    pub fn zones(&self) -> Vec<String> {
        ["a", "b", "c"].map(|letter| format!("{}{letter}", self.config.region)).into()
    }

    /// The control API of the AWS double and the machines.
    ///
    /// # Errors
    /// When the bed was started without AWS.
    pub fn control(&self) -> Result<&Control, BedError> {
        self.aws().map(Aws::control)
    }

    /// The AWS side: the gateway, who may do what, the machines.
    ///
    /// # Errors
    /// When the bed was started without AWS.
    pub fn aws(&self) -> Result<&Aws, BedError> {
        self.servers.aws.as_ref().ok_or(BedError::NoPart("AWS"))
    }

    /// What a program needs in its environment to use the bed.
    pub fn exports(&self) -> Exports {
        let mut variables = BTreeMap::from(
            [
                ("KUBECONFIG", self.servers.plane.kubeconfig().display().to_string()),
                ("AWS_REGION", self.config.region.clone()),
                ("AWS_DEFAULT_REGION", self.config.region.clone()),
                ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
                ("CLUSTER_NAME", self.config.cluster.clone()),
                ("TENON_BED_DIR", self.dir().display().to_string()),
                ("TENON_STATE_DIR", self.dir().join("state").display().to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        if let Some(aws) = &self.servers.aws {
            variables.extend(aws.endpoint());
            variables.extend(aws.administrator());
            variables.insert("TENON_BED_CONTROL".to_owned(), aws.control().base().to_owned());
        }
        let tenon = self.tenon.clone().or_else(TenonPrograms::found);
        let tenon = tenon.as_ref().and_then(|tenon| tenon.tenon.parent());
        let own = tenon.into_iter().chain(self.programs.directories());
        let path = own.map(Path::to_path_buf).collect();
        Exports { variables, path }
    }

    /// The bed's environment for a child process, and nothing of the caller's but the search path.
    pub(crate) fn child_environment(&self) -> BTreeMap<String, String> {
        self.exports().environment(&self.environment.double.path)
    }

    /// A command of a program with the bed's environment and nothing of the caller's but the search
    /// path; its home is the bed's directory.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(self.child_environment())
            .env("HOME", self.dir())
            .current_dir(self.dir())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The built `tenon` program.
    ///
    /// # Errors
    /// When the bed was started without the workspace's programs.
    pub fn tenon(&self) -> Result<&Path, BedError> {
        let tenon = self.tenon.as_ref().ok_or(BedError::NoPart("the programs of the workspace"))?;
        Ok(&tenon.tenon)
    }

    /// Runs `tenon` on the bed to its end. Its stderr is also in `logs/tenon.log`.
    ///
    /// # Errors
    /// When it can't be run; an exit code other than 0 is no error here.
    pub async fn run_tenon<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Finished, BedError> {
        self.run_tenon_with(args, &[]).await
    }

    /// The same with variables in its environment, which win over the bed's.
    ///
    /// # Errors
    /// When it can't be run; an exit code other than 0 is no error here.
    pub async fn run_tenon_with<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        variables: &[(&str, &str)],
    ) -> Result<Finished, BedError> {
        let program = self.tenon()?;
        let failed = |source| BedError::Run { program: program.to_path_buf(), source };
        let mut command = self.command(program);
        command.args(args).envs(variables.iter().copied());
        let output = command.output().await.map_err(failed)?;
        let finished = Finished::from(output);
        let args: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        let entry = format!(
            "$ tenon {}\n{}exit code {}\n\n",
            args.join(" "),
            finished.stderr,
            finished.code
        );
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(self.dir().join("logs/tenon.log"))
            .map_err(failed)?;
        log.write_all(entry.as_bytes()).map_err(failed)?;
        Ok(finished)
    }

    /// Waits until a server of the bed ends by itself, and says which and why.
    ///
    /// # Panics
    /// Never: a process that was waited for has ended.
    pub async fn failed(&self) -> ProcessError {
        let kwok = async {
            self.servers.kwok.process().wait().await;
            self.servers.kwok.process().failure().expect("a process that was waited for has ended")
        };
        let moto = async {
            let Some(aws) = &self.servers.aws else { return std::future::pending().await };
            let process = aws.gateway().moto().process();
            process.wait().await;
            process.failure().expect("a process that was waited for has ended")
        };
        tokio::select! {
            error = self.servers.plane.failed() => error,
            error = kwok => error,
            error = moto => error,
        }
    }

    /// API server, etcd and kube-scheduler.
    pub const fn control_plane(&self) -> &ControlPlane {
        &self.servers.plane
    }

    /// Faults between the operator's pods and the API server, if the bed was started with them.
    pub const fn api_faults(&self) -> Option<&ApiFaults> {
        self.servers.api_faults.as_ref()
    }

    /// The kubelet of the system nodes, if the bed has one.
    pub const fn kubelet(&self) -> Option<&Kubelet> {
        self.servers.kubelet.as_ref()
    }

    /// The process ids of the bed's servers, by name.
    pub fn pids(&self) -> BTreeMap<String, u32> {
        let mut pids = self.servers.plane.pids();
        pids.insert("kwok".to_owned(), self.servers.kwok.process().pid());
        if let Some(aws) = &self.servers.aws {
            pids.insert("moto".to_owned(), aws.gateway().moto().process().pid());
        }
        pids
    }

    /// Takes a spot instance back, with a warning of a few seconds instead of AWS' two minutes.
    ///
    /// # Errors
    /// When there is no such instance, or no AWS.
    pub async fn interrupt(&self, instance: &str) -> Result<(), BedError> {
        let body = serde_json::json!({ "instances": [instance], "notice": 30.0 });
        self.control()?.post("interrupt", &body).await?;
        Ok(())
    }

    /// Everything in the AWS double that the demo accounts for: kind and id.
    ///
    /// # Errors
    /// When the double can't be asked.
    pub async fn aws_inventory(&self) -> Result<Vec<(String, String)>, BedError> {
        inventory::list(self.aws()?).await.map_err(BedError::Inventory)
    }

    /// Kills the API server, leaves it down for `down`, and starts it again.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn restart_api_server(&self, down: Duration) -> Result<(), BedError> {
        Ok(self.servers.plane.restart_api_server(down).await?)
    }

    /// Stops all parts, waits until they are gone, and removes the bed's directory (unless
    /// `TENON_BED_KEEP` is set).
    ///
    /// # Errors
    /// When the directory can't be removed.
    pub async fn stop(self) -> Result<(), BedError> {
        let keep = self.environment.keep;
        let dir = self.stop_parts().await;
        if keep {
            drop(dir.keep());
            return Ok(());
        }
        let path = Some(dir.path().to_path_buf());
        dir.close().map_err(|source| BedError::Directory { path, source })
    }
}

impl Bed {
    /// Stops all parts and keeps the bed's directory, with all logs; returns it.
    pub(crate) async fn stop_and_keep(self) -> PathBuf {
        self.stop_parts().await.keep()
    }

    /// Stops everything, the operator first, so that it ends as it does in a cluster.
    async fn stop_parts(self) -> TempDir {
        let Self { servers, dir, .. } = self;
        servers.stop().await;
        dir
    }
}

/// Waits for one of the machine's slots for beds.
async fn slot(cache: &Path, slots: u16, progress: &Progress) -> Result<Lock, BedError> {
    let mut step = None;
    loop {
        for index in 0..slots {
            if let Some(lock) = Lock::try_acquire(&cache.join(format!("beds/slot-{index}")))? {
                if let Some(step) = step {
                    tenon_aws_double::progress::Step::done(step);
                }
                return Ok(lock);
            }
        }
        let what = format!(
            "waiting for one of the {slots} running beds to stop (TENON_BED_SLOTS allows more)"
        );
        step.get_or_insert_with(|| progress.step(what));
        // Polled, as a lock of several files can't be waited for.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
