//! One container's life: created when its configuration is complete, started, probed, restarted
//! with back-off, ended on request.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use parking_lot::Mutex;
use tenon_aws_double::process::{Process, ProcessSpec};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::environment::{self, ConfigError, Facts};
use super::images::Pulled;
use super::isolation::{Mount, Root};
use super::probes::{Prober, Streak};
use super::{Running, Shared};

/// The first restart is immediate; then the waits double from one second to a minute (Kubernetes'
/// ReduceDefaultCrashLoopBackOffDecay).
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const LAST_BACK_OFF: Duration = Duration::from_mins(1);
/// A container that ran this long starts from the first back-off again.
const FORGIVEN_AFTER: Duration = Duration::from_mins(2);

/// Bytes of a message that a kubelet takes from a container.
const LONGEST_MESSAGE: usize = 4096;

/// What a container does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// It is not running, for this reason.
    Waiting { reason: &'static str, message: String },
    /// It runs since.
    Running { since: Timestamp },
    /// It has ended for good.
    Ended(End),
}

/// How a run ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct End {
    pub(super) code: i32,
    pub(super) reason: &'static str,
    /// What it left at its termination message path.
    pub(super) message: String,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

/// A container's state, as the pod's status shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) last: Option<End>,
    pub(super) restarts: i32,
    pub(super) started: bool,
    pub(super) ready: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            phase: Phase::Waiting { reason: "ContainerCreating", message: String::new() },
            last: None,
            restarts: 0,
            started: false,
            ready: false,
        }
    }
}

/// The states of a pod's containers, and the bell that rings when one changes.
#[derive(Debug, Default)]
pub(super) struct Board {
    states: Mutex<Vec<State>>,
    pub(super) changed: Notify,
}

impl Board {
    pub(super) fn new(n_containers: usize) -> Self {
        Self { states: Mutex::new(vec![State::default(); n_containers]), changed: Notify::new() }
    }

    pub(super) fn states(&self) -> Vec<State> {
        self.states.lock().clone()
    }

    pub(super) fn update(&self, index: usize, change: impl FnOnce(&mut State)) {
        let mut states = self.states.lock();
        let before = states[index].clone();
        change(&mut states[index]);
        if states[index] != before {
            self.changed.notify_one();
        }
    }
}

/// Whether a container that has ended starts again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    pub(super) fn of(policy: Option<&str>) -> Self {
        match policy {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    const fn again(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// What a container runs.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// A program of this machine, which stands for the image's.
    Local(PathBuf),
    /// The image's own, in the image's files.
    Image(Arc<Pulled>),
}

/// All that a container's run needs.
pub(super) struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) pod: Arc<Pod>,
    pub(super) container: Container,
    pub(super) program: Program,
    pub(super) address: Ipv4Addr,
    pub(super) mounts: Vec<Mount>,
    /// The file that becomes the message of its end.
    pub(super) message: Option<PathBuf>,
    pub(super) restart: Restart,
    pub(super) board: Arc<Board>,
    pub(super) index: usize,
    /// Cancelled when the container must end; with how much grace is in the pod.
    pub(super) stop: CancellationToken,
    pub(super) grace: Arc<Mutex<Duration>>,
}

impl Runner {
    /// Runs the container until it has ended for good.
    pub(super) async fn run(self) {
        let mut back_off = Duration::ZERO;
        loop {
            let begun = Instant::now();
            match self.run_once().await {
                Err(error) => {
                    self.update(|state| {
                        state.phase = Phase::Waiting {
                            reason: "CreateContainerConfigError",
                            message: error.to_string(),
                        };
                    });
                    if self.pause(Duration::from_secs(1)).await {
                        continue;
                    }
                    let now = self.shared.config.clock.now();
                    self.finish(End {
                        code: 137,
                        reason: "ContainerStatusUnknown",
                        message: String::new(),
                        started: now,
                        finished: now,
                    });
                    return;
                }
                Ok(end) if self.stop.is_cancelled() || !self.restart.again(end.code) => {
                    self.finish(end);
                    return;
                }
                Ok(end) => {
                    if begun.elapsed() >= FORGIVEN_AFTER {
                        back_off = Duration::ZERO;
                    }
                    let message = format!(
                        "back-off {}s restarting failed container={}",
                        back_off.as_secs(),
                        self.container.name
                    );
                    self.update(|state| {
                        state.phase = Phase::Waiting { reason: "CrashLoopBackOff", message };
                        state.last = Some(end.clone());
                        state.ready = false;
                        state.started = false;
                    });
                    if !self.pause(back_off).await {
                        self.finish(end);
                        return;
                    }
                    self.update(|state| state.restarts += 1);
                    back_off = (back_off * 2).clamp(FIRST_BACK_OFF, LAST_BACK_OFF);
                }
            }
        }
    }

    /// Waits; false if the container must end meanwhile.
    async fn pause(&self, time: Duration) -> bool {
        self.stop.run_until_cancelled(tokio::time::sleep(time)).await.is_some()
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        self.board.update(self.index, change);
    }

    fn finish(&self, end: End) {
        self.update(|state| {
            state.phase = Phase::Ended(end);
            state.ready = false;
            state.started = false;
        });
    }

    /// Starts the process and stays with it until it has ended.
    async fn run_once(&self) -> Result<End, ConfigError> {
        let clock = self.shared.config.clock;
        let facts = Facts { pod: &self.pod, address: self.address };
        let spec = self.process_spec(facts).await?;
        let prober = |probe: &Option<_>| {
            probe
                .as_ref()
                .map(|probe| Prober::new(&self.container, probe, self.address))
                .transpose()
        };
        let startup = prober(&self.container.startup_probe)?;
        let liveness = prober(&self.container.liveness_probe)?;
        let readiness = prober(&self.container.readiness_probe)?;
        let log = spec.log.clone();
        let process =
            Arc::new(Process::spawn(spec).map_err(|error| ConfigError(error.to_string()))?);
        let started = clock.now();
        self.update(|state| {
            state.phase = Phase::Running { since: started };
            state.started = startup.is_none();
            state.ready = startup.is_none() && readiness.is_none();
        });
        let key = (self.pod.uid().unwrap_or_default(), self.container.name.clone());
        let running = Running {
            namespace: self.pod.namespace().unwrap_or_default(),
            pod: self.pod.name_any(),
            container: self.container.name.clone(),
            address: self.address,
            restarts: self.board.states()[self.index].restarts,
            log,
            process: Arc::clone(&process),
        };
        self.shared.running.lock().insert(key.clone(), running);
        let probes = async {
            if let Some(probe) = &startup {
                if !self.until_started(probe).await {
                    return;
                }
                self.update(|state| {
                    state.started = true;
                    state.ready = readiness.is_none();
                });
            }
            tokio::join!(self.watch_readiness(readiness.as_ref()), async {
                if self.until_dead(liveness.as_ref()).await {
                    let grace = self
                        .container
                        .liveness_probe
                        .as_ref()
                        .and_then(|it| it.termination_grace_period_seconds);
                    tracing::info!(
                        pod = self.pod.name_any(),
                        container = self.container.name,
                        "liveness failed, restarting"
                    );
                    let grace = grace.map_or_else(
                        || *self.grace.lock(),
                        |it| Duration::from_secs(it.unsigned_abs()),
                    );
                    process.stop(grace).await;
                }
            });
        };
        let exit = tokio::select! {
            exit = process.wait() => exit,
            // A startup probe that gave up ends here, too.
            () = probes => {
                let grace = *self.grace.lock();
                process.stop(grace).await
            }
            () = self.stop.cancelled() => {
                self.update(|state| state.ready = false);
                let grace = *self.grace.lock();
                process.stop(grace).await
            }
        };
        self.shared.running.lock().remove(&key);
        let code = exit.code();
        let reason = match code {
            0 => "Completed",
            _ => "Error",
        };
        // What is not text, or too long, is no message.
        let message = self.message.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let message = message.filter(|text| text.len() <= LONGEST_MESSAGE).unwrap_or_default();
        Ok(End { code, reason, message, started, finished: clock.now() })
    }

    async fn process_spec(&self, facts: Facts<'_>) -> Result<ProcessSpec, ConfigError> {
        let mut env = environment::resolve(&self.shared, facts, &self.container).await?;
        let mut command: Vec<String> = self.container.command.iter().flatten().cloned().collect();
        if let Program::Image(image) = &self.program {
            for (name, value) in &image.process.env {
                // The kubelet has a search path for every container; the image's own comes first.
                if name == "PATH" || !env.contains_key(name) {
                    env.insert(name.clone(), value.clone());
                }
            }
            if command.is_empty() {
                command.clone_from(&image.process.entrypoint);
            }
        }
        // The first word of `command` is the image's program.
        let words = command.iter().skip(1).chain(self.container.args.iter().flatten());
        let args: Vec<String> = words.map(|arg| environment::expand(arg, &env)).collect();
        let isolation = &self.shared.isolation;
        let api_server =
            format!("https://{}:{}", environment::HOST_ADDRESS, self.shared.config.api_server_port);
        if let Some(kubeconfig) = isolation.kubeconfig(&self.mounts, &api_server) {
            let uid = self.pod.uid().unwrap_or_default();
            let path = self.shared.config.dir.join(uid).join("kubeconfig");
            std::fs::write(&path, kubeconfig.to_string())
                .map_err(|error| ConfigError(format!("can't write {}: {error}", path.display())))?;
            env.insert("KUBECONFIG".to_owned(), path.display().to_string());
        }
        let name = self.pod.name_any();
        let invocation = match &self.program {
            Program::Local(program) => {
                // Images of Tenon hold several programs, which are built side by side.
                let named = command.first().and_then(|path| Path::new(path).file_name());
                let named = named.map(|name| program.with_file_name(name));
                let program = named.filter(|path| path.exists()).unwrap_or_else(|| program.clone());
                isolation.command(&program, &args, &self.mounts, &name)
            }
            Program::Image(image) => {
                let root = Root { dir: &image.root, user: &image.process.user };
                let program = command.first().map(PathBuf::from);
                let program =
                    program.ok_or_else(|| ConfigError("the image has no program".to_owned()))?;
                isolation.command_in(root, &program, &args, &self.mounts, &name)
            }
        };
        let config = &self.shared.config;
        let log = format!(
            "{}_{name}_{}.log",
            self.pod.namespace().unwrap_or_default(),
            self.container.name
        );
        Ok(ProcessSpec {
            name: format!("container {} of pod {name}", self.container.name),
            program: invocation.program,
            args: invocation.args,
            env: env
                .into_iter()
                .map(|(name, value)| (name, isolation.value(&value, &self.mounts)))
                .collect(),
            dir: config.dir.clone(),
            log: config.logs.join(log),
        })
    }

    /// Whether it started; false when the probe gave up.
    async fn until_started(&self, probe: &Prober) -> bool {
        tokio::time::sleep(probe.initial_delay).await;
        let mut streak = Streak::default();
        loop {
            let answer = probe.ask().await;
            if let Some(verdict) = probe.count(&mut streak, answer) {
                return verdict;
            }
            tokio::time::sleep(probe.period).await;
        }
    }

    async fn watch_readiness(&self, probe: Option<&Prober>) {
        let Some(probe) = probe else { return std::future::pending().await };
        tokio::time::sleep(probe.initial_delay).await;
        let mut streak = Streak::default();
        loop {
            let answer = probe.ask().await;
            if let Some(ready) = probe.count(&mut streak, answer) {
                self.update(|state| state.ready = ready);
            }
            // A kubelet asks sooner while the container is not ready yet, too.
            let ready = self.board.states()[self.index].ready;
            let pause = if ready { probe.period } else { probe.period.min(Duration::from_secs(1)) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns true when the container counts as dead.
    async fn until_dead(&self, probe: Option<&Prober>) -> bool {
        let Some(probe) = probe else { return std::future::pending().await };
        tokio::time::sleep(probe.initial_delay).await;
        let mut streak = Streak::default();
        loop {
            let answer = probe.ask().await;
            if probe.count(&mut streak, answer) == Some(false) {
                return true;
            }
            tokio::time::sleep(probe.period).await;
        }
    }
}
