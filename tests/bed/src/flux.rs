//! A real Flux on a bed: source-controller, kustomize-controller and helm-controller as processes,
//! and what `flux bootstrap` makes in the cluster.

use std::path::Path;
use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tenon_aws_double::cache;
use tenon_aws_double::process::{Process, ProcessSpec};
use tenon_aws_double::progress::Progress;

use crate::bed::Bed;
use crate::control_plane::programs::FluxPrograms;
use crate::failure::Failure;
use crate::http::get;
use crate::kubectl::kubectl;
use crate::objects;
use crate::ports::Ports;
use crate::registry::ServerError;

/// Where Flux and its root are.
pub const NAMESPACE: &str = "flux-system";
/// What Flux reads first: a GitRepository and a Kustomization of this name.
pub const ROOT: &str = "flux-system";
/// Long enough for a machine whose cores are busy.
const READY_LIMIT: Duration = Duration::from_mins(1);

/// A running Flux with the rights of the bed's administrator; killed when dropped.
#[derive(Debug)]
pub struct Flux {
    processes: Vec<Process>,
    _ports: Ports,
}

impl Flux {
    /// Starts it with the settings of Flux' own manifests. `certificate`: a PEM file with the
    /// authority of registries.
    ///
    /// # Errors
    /// When a program can't be built or does not run, or the API server refuses Flux' CRDs.
    pub async fn start(
        bed: &Bed,
        certificate: &Path,
        progress: &Progress,
    ) -> Result<Self, ServerError> {
        let programs = FluxPrograms::provide(progress).await?;
        let mut ports = Ports::reserve(&cache::dir()?)?;
        let dir = bed.dir().join("flux");
        let refused = |source| ServerError::Kubernetes {
            doing: "create Flux' namespace and CRDs".to_owned(),
            source,
        };
        definitions(bed, &programs).await.map_err(refused)?;
        let storage = format!("127.0.0.1:{}", ports.take()?);
        let of_source = [
            format!("--storage-path={}", dir.join("artifacts").display()),
            format!("--storage-addr={storage}"),
            format!("--storage-adv-addr={storage}"),
        ];
        std::fs::create_dir_all(dir.join("artifacts"))
            .map_err(|source| ServerError::Write { path: dir.clone(), source })?;
        let mut processes = Vec::new();
        for (name, program, more) in [
            ("source-controller", programs.source, of_source.as_slice()),
            ("kustomize-controller", programs.kustomize, &[]),
            ("helm-controller", programs.helm, &[]),
        ] {
            let (metrics, health) = (ports.take()?, ports.take()?);
            let mut env = bed.exports().variables;
            for (variable, value) in [
                ("RUNTIME_NAMESPACE", NAMESPACE.to_owned()),
                ("SSL_CERT_FILE", certificate.display().to_string()),
                ("HOME", dir.display().to_string()),
            ] {
                env.insert(variable.to_owned(), value);
            }
            let health = format!("127.0.0.1:{health}");
            let args = [
                format!("--metrics-addr=127.0.0.1:{metrics}"),
                format!("--health-addr={health}"),
                // No notification-controller.
                "--events-addr=".to_owned(),
            ];
            let process = Process::spawn(ProcessSpec {
                name: name.to_owned(),
                program,
                args: args.iter().chain(more).map(Into::into).collect(),
                env,
                log: bed.dir().join(format!("logs/{name}.log")),
                dir: dir.clone(),
            })?;
            let ready = async || matches!(get(&health, "/readyz").await, Ok((200, _)));
            process.ready("it answers /readyz", READY_LIMIT, ready).await?;
            processes.push(process);
        }
        Ok(Self { processes, _ports: ports })
    }

    /// Lets it reconcile a folder of a repository's branch `main`, as `flux bootstrap` does.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn bootstrap(&self, bed: &Bed, url: &str, path: &str) -> Result<(), Failure> {
        let metadata = json!({ "name": ROOT, "namespace": NAMESPACE });
        let repository = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": metadata,
            "spec": { "interval": "1m", "url": url, "ref": { "branch": "main" } },
        });
        let root = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": metadata,
            "spec": {
                "interval": "10m", "prune": true, "path": path,
                "sourceRef": { "kind": "GitRepository", "name": ROOT },
            },
        });
        let file = bed.dir().join("flux/bootstrap.json");
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [repository, root] });
        std::fs::write(&file, list.to_string())?;
        kubectl(bed, &["apply", "--server-side", "-f", &file.display().to_string()]).await
    }

    /// Ends it.
    pub async fn stop(self) {
        for process in &self.processes {
            process.stop(Duration::from_secs(5)).await;
        }
    }
}

/// Creates namespace and CRDs, and waits until the API server serves these.
async fn definitions(bed: &Bed, programs: &FluxPrograms) -> Result<(), Failure> {
    kubectl(bed, &["create", "namespace", NAMESPACE]).await?;
    for crds in &programs.crds {
        let crds = crds.display().to_string();
        kubectl(bed, &["apply", "--server-side", "-f", &crds]).await?;
    }
    Ok(objects::established(&bed.client()).await?)
}

/// Asks Flux to reconcile an object now, as `flux reconcile` and its webhooks do; `at` differs from
/// every earlier one.
///
/// # Errors
/// When the API server refuses.
pub async fn reconcile(
    api: &Api<DynamicObject>,
    name: &str,
    at: &str,
) -> Result<DynamicObject, kube::Error> {
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": at } } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(asked)).await
}

/// Flux' GitRepositories.
pub fn repositories(client: &Client) -> Api<DynamicObject> {
    objects::namespaced(client, NAMESPACE, "source.toolkit.fluxcd.io/v1", "GitRepository")
}

/// Flux' Kustomizations.
pub fn kustomizations(client: &Client) -> Api<DynamicObject> {
    objects::namespaced(client, NAMESPACE, "kustomize.toolkit.fluxcd.io/v1", "Kustomization")
}

/// The HelmReleases of a namespace.
pub fn releases(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects::namespaced(client, namespace, "helm.toolkit.fluxcd.io/v2", "HelmRelease")
}
