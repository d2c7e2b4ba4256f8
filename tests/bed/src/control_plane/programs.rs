//! The programs of the control plane: found in the cache or in `KUBEBUILDER_ASSETS`, else built
//! from the Go module in `tests/bed/control-plane` by the machine's Go. The registry, Prometheus,
//! Alertmanager, KEDA, Flux and Argo CD are built in the same way from modules of their own beside
//! it.
//!
//! They are kept in `control-plane/<hash>/` of the cache, where the hash covers go.mod and go.sum:
//! another set of versions gets another directory, and a program that is there is complete (it is
//! built under another name and then renamed).

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sha2::{Digest, Sha256};
use tenon_aws_double::cache::{self, CacheError, Lock};
use tenon_aws_double::progress::Progress;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::environment::Environment;

const GO_MOD: &str = include_str!("../../control-plane/go.mod");
const GO_SUM: &str = include_str!("../../control-plane/go.sum");

/// A Go module, and where what is built of it is kept.
struct Module {
    name: &'static str,
    /// Build tags, separated by commas.
    tags: &'static str,
    files: &'static [(&'static str, &'static str)],
}

const CONTROL_PLANE: Module =
    Module { name: "control-plane", tags: "", files: &[("go.mod", GO_MOD), ("go.sum", GO_SUM)] };

const REGISTRY: Module = Module {
    name: "registry",
    tags: "",
    files: &[
        ("go.mod", include_str!("../../registry/go.mod")),
        ("go.sum", include_str!("../../registry/go.sum")),
        ("main.go", include_str!("../../registry/main.go")),
    ],
};

/// Of the many ways to discover targets, Prometheus has the one that is used here: the others
/// bring the SDKs of all clouds.
const PROMETHEUS: Module = Module {
    name: "prometheus",
    tags: "remove_all_sd,enable_kubernetes_sd",
    files: &[
        ("go.mod", include_str!("../../prometheus/go.mod")),
        ("go.sum", include_str!("../../prometheus/go.sum")),
    ],
};

const ALERTMANAGER: Module = Module {
    name: "alertmanager",
    tags: "",
    files: &[
        ("go.mod", include_str!("../../alertmanager/go.mod")),
        ("go.sum", include_str!("../../alertmanager/go.sum")),
    ],
};

const KEDA: Module = Module {
    name: "keda",
    tags: "",
    files: &[
        ("go.mod", include_str!("../../keda/go.mod")),
        ("go.sum", include_str!("../../keda/go.sum")),
    ],
};

const FLUX: Module = Module {
    name: "flux",
    tags: "",
    files: &[
        ("go.mod", include_str!("../../flux/go.mod")),
        ("go.sum", include_str!("../../flux/go.sum")),
    ],
};

const ARGO_CD: Module = Module {
    name: "argocd",
    tags: "",
    files: &[
        ("go.mod", include_str!("../../argocd/go.mod")),
        ("go.sum", include_str!("../../argocd/go.sum")),
        ("main.go", include_str!("../../argocd/main.go")),
    ],
};

/// KEDA's own module, in which its CRDs are, too.
const KEDA_SOURCE: &str = "github.com/kedacore/keda/v2";

/// The adapter serves metrics on all addresses, and no flag says otherwise; servers of a bed listen
/// on loopback. The file, what is in it, and what is built instead.
const ADAPTER_ON_LOOPBACK: (&str, &str, &str) = (
    "cmd/adapter/main.go",
    "fmt.Sprintf(\":%v\", metricsAPIServerPort)",
    "fmt.Sprintf(\"127.0.0.1:%v\", metricsAPIServerPort)",
);

/// The newest Go language version that go.mod asks for.
pub(crate) const GO_VERSION: &str = "1.26";

/// A program that the bed runs or gives to its users.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Program {
    /// The store of the API server.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-scheduler.
    Scheduler,
    /// kube-controller-manager.
    ControllerManager,
    /// Plays pods and heartbeats on simulated nodes.
    Kwok,
    /// For users and tests.
    Kubectl,
    /// For users and tests.
    Helm,
}

impl Program {
    /// All programs, in the order in which they are built: what the bed can't start without comes
    /// first.
    pub const ALL: [Self; 7] = [
        Self::Etcd,
        Self::ApiServer,
        Self::Scheduler,
        Self::ControllerManager,
        Self::Kwok,
        Self::Kubectl,
        Self::Helm,
    ];

    /// The file name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::Scheduler => "kube-scheduler",
            Self::ControllerManager => "kube-controller-manager",
            Self::Kwok => "kwok",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::Scheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Helm => "helm.sh/helm/v4/cmd/helm",
        }
    }
}

/// A program can't be provided.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The cache can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// An environment variable of the bed has an invalid value.
    #[error("the environment is not valid")]
    Environment(#[source] clap::Error),
    /// The build's directory can't be written.
    #[error("can't write {}", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no Go.
    #[error(
        "can't run `go`, which builds {program}: install Go {GO_VERSION} or newer and put it in PATH"
    )]
    NoGo {
        /// What was to be built.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Go says no.
    #[error("`go build` of {program} failed ({status}); its last lines:\n{output}")]
    Build {
        /// What was to be built.
        program: &'static str,
        /// How go ended.
        status: std::process::ExitStatus,
        /// The end of what it said.
        output: String,
    },
    /// A module can't be downloaded.
    #[error("`go mod download {module}` failed: {said}")]
    Download {
        /// Its path.
        module: &'static str,
        /// What Go said.
        said: String,
    },
    /// A module's source is other than what is known of it.
    #[error("{} does not contain `{expected}`: adapt what the bed builds to this version", .path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
    },
}

/// Where the programs are. All exist.
#[derive(Clone, Debug)]
pub struct Programs {
    paths: Vec<PathBuf>,
}

impl Programs {
    /// Finds all programs, and builds what is missing; of beds that start at the same time, one
    /// builds and the others wait.
    ///
    /// # Errors
    /// When Go is missing or a build fails.
    pub async fn provide(progress: &Progress) -> Result<Self, ProgramError> {
        let environment = Environment::read().map_err(ProgramError::Environment)?;
        let dir = CONTROL_PLANE.directory(&cache::dir()?);
        let mut paths = Vec::new();
        for program in Program::ALL {
            paths.push(match find(program, &dir, environment.kubebuilder_assets.as_deref()) {
                Some(path) => path,
                None => {
                    let (name, package) = (program.name(), program.package());
                    CONTROL_PLANE.build(name, package, &link_flags(), progress).await?
                }
            });
        }
        Ok(Self { paths })
    }

    /// The programs that would have to be built now, with their build times in seconds on two cores
    /// with an empty cache.
    ///
    /// # Errors
    /// When there is no place for the cache.
    pub fn missing() -> Result<Vec<Program>, ProgramError> {
        let environment = Environment::read().map_err(ProgramError::Environment)?;
        let dir = CONTROL_PLANE.directory(&cache::dir()?);
        let assets = environment.kubebuilder_assets.as_deref();
        Ok(Program::ALL
            .into_iter()
            .filter(|program| find(*program, &dir, assets).is_none())
            .collect())
    }

    /// The executable of a program.
    pub fn path(&self, program: Program) -> &Path {
        &self.paths[program as usize]
    }

    /// The directories of the programs, each once, for a `PATH`.
    pub fn directories(&self) -> Vec<&Path> {
        let mut directories: Vec<&Path> =
            self.paths.iter().filter_map(|path| path.parent()).collect();
        directories.sort();
        directories.dedup();
        directories
    }
}

/// The program of a registry (`registry serve <configuration>`), built if it is missing.
///
/// # Errors
/// When Go is missing or the build fails.
pub async fn registry(progress: &Progress) -> Result<PathBuf, ProgramError> {
    REGISTRY.build("registry", ".", "-s -w", progress).await
}

/// Prometheus and what belongs to it. All exist.
#[derive(Clone, Debug)]
pub struct PrometheusPrograms {
    /// The server.
    pub prometheus: PathBuf,
    /// Checks rules and tests them.
    pub promtool: PathBuf,
    /// Path of the program that gets the alerts.
    pub alertmanager: PathBuf,
}

impl PrometheusPrograms {
    /// Finds the programs, and builds what is missing.
    ///
    /// # Errors
    /// When Go is missing or a build fails.
    pub async fn provide(progress: &Progress) -> Result<Self, ProgramError> {
        let build = async |module: Module, name, package| {
            module.build(name, package, "-s -w", progress).await
        };
        const SERVER: &str = "github.com/prometheus/prometheus/cmd/prometheus";
        const TOOL: &str = "github.com/prometheus/prometheus/cmd/promtool";
        const RECEIVER: &str = "github.com/prometheus/alertmanager/cmd/alertmanager";
        Ok(Self {
            prometheus: build(PROMETHEUS, "prometheus", SERVER).await?,
            promtool: build(PROMETHEUS, "promtool", TOOL).await?,
            alertmanager: build(ALERTMANAGER, "alertmanager", RECEIVER).await?,
        })
    }
}

/// KEDA's programs, and what belongs to them. All exist.
#[derive(Clone, Debug)]
pub struct KedaPrograms {
    /// Scales workloads, and answers the adapter.
    pub operator: PathBuf,
    /// The API of external metrics.
    pub adapter: PathBuf,
    /// Directory of the CRDs' manifests, a YAML file each.
    pub crds: PathBuf,
}

impl KedaPrograms {
    /// Finds the programs, and builds what is missing.
    ///
    /// # Errors
    /// When Go is missing, the build fails, or KEDA's source is not as expected.
    pub async fn provide(progress: &Progress) -> Result<Self, ProgramError> {
        const OPERATOR: &str = "github.com/kedacore/keda/v2/cmd/operator";
        let operator = KEDA.build("keda-operator", OPERATOR, "-s -w", progress).await?;
        let source = KEDA.source(KEDA_SOURCE).await?;
        changed(&KEDA.write()?.join("adapter"), &source, ADAPTER_ON_LOOPBACK)?;
        let adapter = KEDA.build("keda-adapter", "./adapter", "-s -w", progress).await?;
        // In Go's own cache of modules, which may be emptied.
        let crds = source.join("config/crd/bases");
        Ok(Self { operator, adapter, crds })
    }
}

/// Flux' programs, and what belongs to them. All exist.
#[derive(Clone, Debug)]
pub struct FluxPrograms {
    /// Fetches repositories and charts.
    pub source: PathBuf,
    /// Applies the manifests of repositories.
    pub kustomize: PathBuf,
    /// Installs charts.
    pub helm: PathBuf,
    /// Directories of the CRDs' manifests, a YAML file each.
    pub crds: Vec<PathBuf>,
}

impl FluxPrograms {
    /// Finds the programs, and builds what is missing.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub async fn provide(progress: &Progress) -> Result<Self, ProgramError> {
        const SOURCE: &str = "github.com/fluxcd/source-controller";
        const KUSTOMIZE: &str = "github.com/fluxcd/kustomize-controller";
        const HELM: &str = "github.com/fluxcd/helm-controller";
        let build = async |name, package| FLUX.build(name, package, "-s -w", progress).await;
        let mut crds = Vec::new();
        for module in [SOURCE, KUSTOMIZE, HELM] {
            crds.push(FLUX.source(module).await?.join("config/crd/bases"));
        }
        Ok(Self {
            source: build("source-controller", SOURCE).await?,
            kustomize: build("kustomize-controller", KUSTOMIZE).await?,
            helm: build("helm-controller", HELM).await?,
            crds,
        })
    }
}

/// Argo CD's program, and what belongs to it. Both exist.
#[derive(Clone, Debug)]
pub struct ArgoCdPrograms {
    /// `redis`, `argocd-repo-server` and `application-controller` are its subcommands.
    pub argocd: PathBuf,
    /// Directory of Argo CD's source, with its manifests and the scripts that its image contains.
    pub source: PathBuf,
}

impl ArgoCdPrograms {
    /// Finds the program, and builds it if it is missing.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub async fn provide(progress: &Progress) -> Result<Self, ProgramError> {
        let source = ARGO_CD.source("github.com/argoproj/argo-cd/v3").await?;
        let argocd = ARGO_CD.build("argocd", ".", "-s -w", progress).await?;
        Ok(Self { argocd, source })
    }
}

/// Writes a changed copy of a package's only file as a package of another module.
fn changed(
    package: &Path,
    source: &Path,
    (file, expected, instead): (&str, &'static str, &str),
) -> Result<(), ProgramError> {
    let original = source.join(file);
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| ProgramError::Write { path, source }
    };
    let text = std::fs::read_to_string(&original).map_err(failed(&original))?;
    if !text.contains(expected) {
        return Err(ProgramError::Source { path: original, expected });
    }
    std::fs::create_dir_all(package).map_err(failed(package))?;
    std::fs::write(package.join("main.go"), text.replace(expected, instead))
        .map_err(failed(package))
}

fn find(program: Program, dir: &Path, assets: Option<&Path>) -> Option<PathBuf> {
    [assets, Some(dir)]
        .into_iter()
        .flatten()
        .map(|dir| dir.join(program.name()))
        .find(|path| path.is_file())
}

impl Module {
    fn directory(&self, cache: &Path) -> PathBuf {
        let mut hash = Sha256::new();
        for (_, text) in self.files {
            hash.update(text);
        }
        cache.join(self.name).join(&hex::encode(hash.finalize())[..16])
    }

    /// Writes its files, and answers where they are.
    fn write(&self) -> Result<PathBuf, ProgramError> {
        let module = self.directory(&cache::dir()?).join("module");
        std::fs::create_dir_all(&module)
            .map_err(|source| ProgramError::Write { path: module.clone(), source })?;
        for (name, text) in self.files {
            let path = module.join(name);
            std::fs::write(&path, text).map_err(|source| ProgramError::Write { path, source })?;
        }
        Ok(module)
    }

    /// The directory of the source of a module that this one needs; downloaded if it is missing.
    async fn source(&self, module: &'static str) -> Result<PathBuf, ProgramError> {
        let output = Command::new("go")
            .args(["mod", "download", "-json", module])
            .current_dir(self.write()?)
            .env("GOWORK", "off")
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|source| ProgramError::NoGo { program: module, source })?;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match answer["Dir"].as_str() {
            Some(dir) => Ok(PathBuf::from(dir)),
            None => Err(ProgramError::Download {
                module,
                said: answer["Error"].as_str().map_or_else(
                    || String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                    str::to_owned,
                ),
            }),
        }
    }

    /// Builds a package, unless it is there, and answers where.
    async fn build(
        &self,
        program: &'static str,
        package: &str,
        link_flags: &str,
        progress: &Progress,
    ) -> Result<PathBuf, ProgramError> {
        let dir = self.directory(&cache::dir()?);
        let target = dir.join(program);
        if target.is_file() {
            return Ok(target);
        }
        let step = progress.step(format!("building {program} (once)"));
        let _lock =
            Lock::acquire(&dir.join("lock"), || step.update("waiting for another bed that builds"))
                .await?;
        if target.is_file() {
            step.done();
            return Ok(target);
        }
        let module = self.write()?;
        let unfinished = dir.join(format!("{program}.unfinished"));
        let mut child = Command::new("go")
            .args(["build", "-trimpath", "-tags", self.tags, "-ldflags", link_flags, "-o"])
            .arg(&unfinished)
            .arg(package)
            .current_dir(&module)
            .env("GOWORK", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| ProgramError::NoGo { program, source })?;
        let failed = |source| ProgramError::NoGo { program, source };
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let mut last = Vec::new();
        while let Some(line) = lines.next_line().await.map_err(failed)? {
            step.update(&line);
            last.push(format!("  | {line}"));
            if last.len() > 20 {
                last.remove(0);
            }
        }
        let status = child.wait().await.map_err(failed)?;
        if !status.success() {
            return Err(ProgramError::Build { program, status, output: last.join("\n") });
        }
        std::fs::rename(&unfinished, &target)
            .map_err(|source| ProgramError::Write { path: target.clone(), source })?;
        step.done();
        Ok(target)
    }
}

/// The version of Kubernetes that go.mod pins (`v1.36.3`).
///
/// # Panics
/// Never: go.mod is part of this program.
pub(crate) fn kubernetes_version() -> &'static str {
    GO_MOD
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .and_then(|rest| rest.split_whitespace().next())
        .expect("go.mod requires k8s.io/kubernetes")
}

/// Without these the API server calls itself v0.0.0, which clients that compare versions refuse.
fn link_flags() -> String {
    let version = kubernetes_version();
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next().expect("a version has three numbers");
    let (major, minor) = (number(), number());
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_linked_in() {
        assert!(link_flags().contains("gitVersion=v1.36.3 -X"), "{}", link_flags());
        assert!(link_flags().ends_with("gitMinor=36"), "{}", link_flags());
    }

    #[test]
    fn assets_come_before_the_cache() {
        let (assets, cache) =
            (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        for dir in [&assets, &cache] {
            std::fs::write(dir.path().join("etcd"), "").expect("write");
        }
        std::fs::write(cache.path().join("kwok"), "").expect("write");
        let find = |program| find(program, cache.path(), Some(assets.path()));
        assert_eq!(find(Program::Etcd), Some(assets.path().join("etcd")));
        assert_eq!(find(Program::Kwok), Some(cache.path().join("kwok")));
        assert_eq!(find(Program::Helm), None);
    }
}
