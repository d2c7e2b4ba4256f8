//! A real Argo CD on a bed: its application controller, its repo server and a Redis as processes,
//! and the settings that its own manifests create.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tenon_aws_double::cache;
use tenon_aws_double::process::{Process, ProcessSpec};
use tenon_aws_double::progress::Progress;

use crate::bed::Bed;
use crate::control_plane::programs::ArgoCdPrograms;
use crate::failure::Failure;
use crate::http::get;
use crate::kubectl::kubectl;
use crate::objects;
use crate::ports::Ports;
use crate::registry::ServerError;

/// Where Argo CD and its Applications are.
pub const NAMESPACE: &str = "argocd";
/// Annotation: compare with git now.
pub const REFRESH: &str = "argocd.argoproj.io/refresh";
/// Annotation: leave the Application alone.
pub const SKIP: &str = "argocd.argoproj.io/skip-reconcile";
/// Long enough for a machine whose cores are busy.
const READY_LIMIT: Duration = Duration::from_mins(1);

/// A running Argo CD with the rights of the bed's administrator; killed when dropped.
#[derive(Debug)]
pub struct ArgoCd {
    processes: Vec<Process>,
    _ports: Ports,
}

impl ArgoCd {
    /// Starts it with its default settings. `certificate`: a PEM file with the authority of
    /// registries.
    ///
    /// # Errors
    /// When the program can't be built or does not run, or the API server refuses its objects.
    pub async fn start(
        bed: &Bed,
        certificate: &Path,
        progress: &Progress,
    ) -> Result<Self, ServerError> {
        let programs = ArgoCdPrograms::provide(progress).await?;
        let refused = |source| ServerError::Kubernetes {
            doing: "create Argo CD's namespace, CRDs and settings".to_owned(),
            source,
        };
        let dir = bed.dir().join("argocd");
        scripts(&dir.join("bin"), &programs.source)
            .map_err(|source| ServerError::Write { path: dir.clone(), source })?;
        settings(bed, &programs.source.join("manifests")).await.map_err(refused)?;
        let mut ports = Ports::reserve(&cache::dir()?)?;
        let mut port = || ports.take();
        let (redis, server, of_server, of_controller) = (port()?, port()?, port()?, port()?);
        let at = |port: u16| format!("127.0.0.1:{port}");
        let mut env = bed.child_environment();
        let path = env.get("PATH").map(String::as_str).unwrap_or_default();
        let path = format!("{}:{path}", dir.join("bin").display());
        for (variable, value) in [
            ("PATH", path),
            ("HOME", dir.display().to_string()),
            ("TMPDIR", dir.display().to_string()),
            ("SSL_CERT_FILE", certificate.display().to_string()),
            // The cluster in which Argo CD runs is that of KUBECONFIG.
            ("ARGOCD_FAKE_IN_CLUSTER", "true".to_owned()),
            ("ARGOCD_GPG_ENABLED", "false".to_owned()),
            ("ARGOCD_ASK_PASS_SOCK", dir.join("ask-pass.sock").display().to_string()),
        ] {
            env.insert(variable.to_owned(), value);
        }
        let mut processes = Vec::new();
        let args: [(&str, Vec<String>, Option<u16>); 3] = [
            ("redis", vec!["redis".to_owned(), at(redis)], None),
            (
                "repo-server",
                vec![
                    "argocd-repo-server".to_owned(),
                    "--address=127.0.0.1".to_owned(),
                    format!("--port={server}"),
                    "--metrics-address=127.0.0.1".to_owned(),
                    format!("--metrics-port={of_server}"),
                    "--disable-tls".to_owned(),
                    "--client-ca-path=".to_owned(),
                    format!("--redis={}", at(redis)),
                ],
                Some(of_server),
            ),
            (
                "application-controller",
                vec![
                    "application-controller".to_owned(),
                    format!("--redis={}", at(redis)),
                    format!("--repo-server={}", at(server)),
                    format!("--metrics={}", at(of_controller)),
                ],
                Some(of_controller),
            ),
        ];
        for (name, args, health) in args {
            let process = Process::spawn(ProcessSpec {
                name: name.to_owned(),
                program: programs.argocd.clone(),
                args: args.into_iter().map(Into::into).collect(),
                env: env.clone(),
                log: bed.dir().join(format!("logs/argocd-{name}.log")),
                dir: dir.clone(),
            })?;
            if let Some(health) = health {
                let health = at(health);
                let ready = async || matches!(get(&health, "/healthz").await, Ok((200, _)));
                process.ready("it answers /healthz", READY_LIMIT, ready).await?;
            }
            processes.push(process);
        }
        Ok(Self { processes, _ports: ports })
    }

    /// Ends it.
    pub async fn stop(self) {
        for process in self.processes.iter().rev() {
            process.stop(Duration::from_secs(5)).await;
        }
    }
}

/// Copies the script that the repo server calls for each commit, signed or not: a module's files
/// are not executable.
fn scripts(bin: &Path, source: &Path) -> std::io::Result<()> {
    const SCRIPT: &str = "git-verify-wrapper.sh";
    std::fs::create_dir_all(bin)?;
    let text = std::fs::read(source.join("hack").join(SCRIPT))?;
    let copy = bin.join(SCRIPT);
    std::fs::write(&copy, text)?;
    std::fs::set_permissions(&copy, Permissions::from_mode(0o755))
}

/// Creates namespace, CRDs and settings, and what Argo CD's API server adds when it first starts:
/// without its key, changes of the settings go unnoticed.
async fn settings(bed: &Bed, manifests: &Path) -> Result<(), Failure> {
    kubectl(bed, &["create", "namespace", NAMESPACE]).await?;
    let apply = ["apply", "--server-side", "--namespace", NAMESPACE];
    for part in ["crds", "base/config"] {
        let part = manifests.join(part).display().to_string();
        kubectl(bed, &[apply.as_slice(), &["--kustomize", &part]].concat()).await?;
    }
    objects::established(&bed.client()).await?;
    let any = json!([{ "group": "*", "kind": "*" }]);
    let project = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": { "name": "default" },
        "spec": {
            "sourceRepos": ["*"],
            "destinations": [{ "server": "*", "namespace": "*" }],
            "clusterResourceWhitelist": any,
        },
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "argocd-secret" },
        "stringData": { "server.secretkey": "of a bed" },
    });
    let file = bed.dir().join("argocd/first-start.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [project, secret] });
    std::fs::write(&file, list.to_string())?;
    let file = file.display().to_string();
    let manager = ["--field-manager", "argocd-server", "--filename", &file];
    kubectl(bed, &[apply.as_slice(), &manager].concat()).await
}

/// Argo CD's Applications.
pub fn applications(client: &Client) -> Api<DynamicObject> {
    objects::namespaced(client, NAMESPACE, "argoproj.io/v1alpha1", "Application")
}

/// Asks Argo CD to compare an Application with git now, as its webhooks do. It removes the
/// annotation when it has.
///
/// # Errors
/// When the API server refuses.
pub async fn refresh(api: &Api<DynamicObject>, name: &str) -> Result<DynamicObject, kube::Error> {
    let asked = json!({ "metadata": { "annotations": { REFRESH: "normal" } } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(asked)).await
}
