//! One pod's life on a system node: volumes, init containers, containers, status, termination.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::container::{Board, End, Phase, Program, Restart, Runner};
use super::environment::{ConfigError, Facts, HOST_ADDRESS};
use super::identity::Identity;
use super::images::Pulled;
use super::status::{self, Seen};
use super::volumes::Volumes;

/// Runs a pod until it is deleted; `gone` is cancelled when it is no longer in the API server, or
/// the kubelet stops.
pub(super) async fn run(
    shared: Arc<Shared>,
    newest: watch::Receiver<Arc<Pod>>,
    gone: CancellationToken,
) {
    let pod = newest.borrow().clone();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let finished = matches!(phase, Some("Succeeded" | "Failed"));
    let Some(address) = shared.take_address() else {
        tracing::error!(pod = pod.name_any(), "no loopback address is left for the pod");
        return;
    };
    let grace =
        pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
    let life = Life {
        dir: shared.config.dir.join(pod.uid().unwrap_or_default()),
        spec: Arc::new(pod.spec.clone().unwrap_or_default()),
        main: Arc::new(Board::new(pod.spec.as_ref().map_or(0, |spec| spec.containers.len()))),
        init: Arc::new(Board::new(
            pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref()).map_or(0, Vec::len),
        )),
        grace: Arc::new(Mutex::new(Duration::from_secs(grace.unsigned_abs()))),
        stop: CancellationToken::new(),
        images: BTreeMap::new(),
        shared: Arc::clone(&shared),
        pod,
        address,
        published: None,
    };
    if finished {
        life.wait_for_deletion(newest, gone).await;
    } else {
        life.live(newest, gone).await;
    }
    shared.give_back(address);
}

struct Life {
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    spec: Arc<PodSpec>,
    address: Ipv4Addr,
    dir: PathBuf,
    init: Arc<Board>,
    main: Arc<Board>,
    grace: Arc<Mutex<Duration>>,
    stop: CancellationToken,
    /// What was pulled for its containers.
    images: BTreeMap<String, Arc<Pulled>>,
    published: Option<Value>,
}

impl Life {
    async fn live(mut self, mut newest: watch::Receiver<Arc<Pod>>, gone: CancellationToken) {
        let started = self.shared.config.clock.time();
        let mut containers = JoinSet::new();
        let mut volumes: Option<Volumes> = None;
        let mut init_begun = false;
        let mut main_begun = false;
        let mut problem: Option<String> = None;
        let mut next_try = Instant::now();
        let mut next_report = Instant::now();
        let mut unreported = true;
        loop {
            if deletion(&newest.borrow()).is_some() || gone.is_cancelled() {
                let grace = deletion(&newest.borrow()).unwrap_or(Duration::from_secs(1));
                *self.grace.lock() = grace;
                self.stop.cancel();
                if containers.is_empty() {
                    break;
                }
            }
            if !self.stop.is_cancelled() && volumes.is_none() && Instant::now() >= next_try {
                match self.prepare().await {
                    Ok(written) => {
                        volumes = Some(written);
                        problem = None;
                    }
                    Err(error) => {
                        problem = Some(error.to_string());
                        next_try = Instant::now() + Duration::from_secs(1);
                    }
                }
                unreported = true;
            }
            if let Some(volumes) = &volumes
                && !self.stop.is_cancelled()
            {
                if !init_begun {
                    init_begun = true;
                    self.begin_init(volumes, &mut containers);
                }
                let done = self
                    .init
                    .states()
                    .iter()
                    .all(|it| matches!(&it.phase, Phase::Ended(end) if end.code == 0));
                if done && !main_begun {
                    main_begun = true;
                    self.begin_main(volumes, &mut containers);
                }
            }
            if unreported && Instant::now() >= next_report {
                unreported = !self.report(&started, problem.clone()).await;
                // When the API server is down: not at once again.
                next_report =
                    Instant::now() + Duration::from_millis(if unreported { 1000 } else { 20 });
            }
            let renewal = volumes.as_ref().and_then(Volumes::next_renewal);
            let waits_for_volumes = volumes.is_none().then_some(next_try);
            let report = unreported.then_some(next_report);
            let wake = [renewal, waits_for_volumes, report].into_iter().flatten().min();
            tokio::select! {
                changed = newest.changed(), if !self.stop.is_cancelled() => if changed.is_err() {
                    gone.cancel();
                },
                () = gone.cancelled(), if !self.stop.is_cancelled() => {}
                () = self.main.changed.notified() => unreported = true,
                () = self.init.changed.notified() => unreported = true,
                Some(_) = containers.join_next(), if !containers.is_empty() => unreported = true,
                () = sleep_until(wake) => if let Some(volumes) = &mut volumes {
                    volumes.renew(&self.shared, Facts { pod: &self.pod, address: self.address }).await;
                },
            }
        }
        if let Some(volumes) = volumes {
            volumes.remove();
        }
        if !gone.is_cancelled() {
            self.report(&started, problem).await;
            self.delete(&gone).await;
        }
    }

    /// For a pod that had ended before: only its deletion is left to do.
    async fn wait_for_deletion(
        self,
        mut newest: watch::Receiver<Arc<Pod>>,
        gone: CancellationToken,
    ) {
        let deleted = async { newest.wait_for(|pod| deletion(pod).is_some()).await.is_ok() };
        if gone.run_until_cancelled(deleted).await == Some(true) {
            self.delete(&gone).await;
        }
    }

    /// Writes the volumes, after what the identity webhook adds.
    async fn prepare(&mut self) -> Result<Volumes, ConfigError> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let mut spec = self.pod.spec.clone().unwrap_or_default();
        let config = &self.shared.config;
        let account = spec.service_account_name.clone().unwrap_or_else(|| "default".to_owned());
        let accounts: Api<ServiceAccount> = Api::namespaced(config.client.clone(), &namespace);
        let found = accounts.get(&account).await.map_err(|error| ConfigError(error.to_string()))?;
        let associated = config.pod_identity.associated(&namespace, &account).await;
        let identity = Identity::of(found.annotations(), associated, &config.credentials_url);
        identity.inject(&mut spec, &config.region);
        self.spec = Arc::new(spec);
        self.pull().await?;
        let facts = Facts { pod: &self.pod, address: self.address };
        Volumes::write(&self.shared, facts, &self.spec, self.dir.clone()).await
    }

    /// Pulls what its containers need; the state of one whose image is not there says so.
    async fn pull(&mut self) -> Result<(), ConfigError> {
        let init = self.spec.init_containers.iter().flatten().enumerate();
        let init = init.map(|(index, container)| (&self.init, index, container));
        let main = self.spec.containers.iter().enumerate();
        let main = main.map(|(index, container)| (&self.main, index, container));
        for (board, index, container) in init.chain(main) {
            let Some(image) = container.image.as_deref() else { continue };
            match self.shared.pulled.get(image).await {
                Ok(pulled) => {
                    self.images.extend(pulled.map(|pulled| (image.to_owned(), pulled)));
                }
                Err(error) => {
                    let message = error.to_string();
                    board.update(index, |state| {
                        state.phase = Phase::Waiting { reason: "ErrImagePull", message };
                    });
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Runs the init containers one after the other; the ones of other images count as done.
    fn begin_init(&self, volumes: &Volumes, containers: &mut JoinSet<()>) {
        let all = self.spec.init_containers.clone().unwrap_or_default();
        let mut runners = Vec::new();
        for (index, container) in all.into_iter().enumerate() {
            let restart = match self.spec.restart_policy.as_deref() {
                Some("Never") => Restart::Never,
                _ => Restart::OnFailure,
            };
            runners.push(self.runner(container, index, volumes, &self.init, restart));
        }
        containers.spawn(async move {
            for runner in runners {
                match runner {
                    Run::Process(runner) => runner.run().await,
                    Run::Played { board, index, now } => {
                        board.update(index, |state| state.phase = completed(now));
                    }
                    Run::Never => return,
                }
            }
        });
    }

    fn begin_main(&self, volumes: &Volumes, containers: &mut JoinSet<()>) {
        let restart = Restart::of(self.spec.restart_policy.as_deref());
        for (index, container) in self.spec.containers.iter().cloned().enumerate() {
            match self.runner(container, index, volumes, &self.main, restart) {
                Run::Process(runner) => {
                    containers.spawn(runner.run());
                }
                Run::Played { board, index, now } => {
                    board.update(index, |state| {
                        if restart == Restart::Always {
                            state.phase = Phase::Running { since: now };
                            state.started = true;
                            state.ready = true;
                        } else {
                            state.phase = completed(now);
                        }
                    });
                }
                Run::Never => {}
            }
        }
    }

    fn runner(
        &self,
        container: Container,
        index: usize,
        volumes: &Volumes,
        board: &Arc<Board>,
        restart: Restart,
    ) -> Run {
        let now = self.shared.config.clock.now();
        let image = container.image.as_deref().unwrap_or_default();
        let program = match self.images.get(image) {
            Some(pulled) => Some(Program::Image(Arc::clone(pulled))),
            None => self.shared.program(image).map(Program::Local),
        };
        let Some(program) = program else {
            return Run::Played { board: Arc::clone(board), index, now };
        };
        let files = volumes
            .mounts(&self.spec, &container)
            .and_then(|mounts| Ok((mounts, volumes.message(&container)?)));
        match files {
            Ok((mut mounts, message)) => Run::Process(Box::new(Runner {
                message: message.as_ref().map(|mount| mount.source.clone()),
                mounts: {
                    mounts.extend(message);
                    mounts
                },
                shared: Arc::clone(&self.shared),
                pod: Arc::clone(&self.pod),
                container,
                program,
                address: self.address,
                restart,
                board: Arc::clone(board),
                index,
                stop: self.stop.clone(),
                grace: Arc::clone(&self.grace),
            })),
            Err(error) => {
                board.update(index, |state| {
                    state.phase = Phase::Waiting {
                        reason: "CreateContainerConfigError",
                        message: error.to_string(),
                    };
                });
                Run::Never
            }
        }
    }

    /// Writes the status if it has changed; false if the API server did not take it.
    async fn report(
        &mut self,
        started: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
        message: Option<String>,
    ) -> bool {
        let (init, main) = (self.init.states(), self.main.states());
        let seen = Seen {
            spec: self.pod.spec.as_ref().unwrap_or(&self.spec),
            init: &init,
            main: &main,
            address: Some(self.address.to_string()),
            host_address: HOST_ADDRESS,
            started: started.clone(),
            message,
        };
        let status =
            status::status(&seen, &self.shared.config.clock.time(), self.published.as_ref());
        if self.published.as_ref() == Some(&status) {
            return true;
        }
        let patch = json!({ "metadata": { "uid": self.pod.uid() }, "status": status });
        match self
            .pods()
            .patch_status(&self.pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch))
            .await
        {
            Ok(_) => {
                self.published = Some(status);
                true
            }
            // The pod is gone, or another one has its name.
            Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => true,
            Err(error) => {
                let error = crate::wait::chain(&error);
                tracing::warn!(pod = self.pod.name_any(), error, "a pod's status was not written");
                false
            }
        }
    }

    /// Takes the pod out of the API server, now that nothing of it runs.
    async fn delete(&self, gone: &CancellationToken) {
        let uid = self.pod.uid();
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        loop {
            match self.pods().delete(&self.pod.name_any(), &parameters).await {
                Ok(_) => return,
                Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => return,
                Err(error) => {
                    let error = crate::wait::chain(&error);
                    tracing::warn!(pod = self.pod.name_any(), error, "a pod was not deleted");
                    let pause = tokio::time::sleep(Duration::from_secs(1));
                    if gone.run_until_cancelled(pause).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(
            self.shared.config.client.clone(),
            &self.pod.namespace().unwrap_or_default(),
        )
    }
}

/// How a container is run.
enum Run {
    /// As a process.
    Process(Box<Runner>),
    /// Not at all: its image is not one of ours.
    Played { board: Arc<Board>, index: usize, now: jiff::Timestamp },
    /// Its mounts are wrong; its state says so.
    Never,
}

fn completed(now: jiff::Timestamp) -> Phase {
    let (code, reason, message) = (0, "Completed", String::new());
    Phase::Ended(End { code, reason, message, started: now, finished: now })
}

/// The grace period, if the pod is being deleted.
fn deletion(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
    Some(Duration::from_secs(seconds.unsigned_abs()))
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
