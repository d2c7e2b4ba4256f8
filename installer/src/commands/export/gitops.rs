//! The operator by its Helm charts, for Flux and Argo CD, as files of a git repository: CRDs,
//! operator and custom resources, each applied when the one before is ready. What the settings
//! leave to others is not among them. NodePools and CRDs are never pruned: removing them removes
//! nodes, and that belongs to `tenon uninstall`.

use serde_json::{Value, json};
use tenon_installer_core::desired::Desired;
use tenon_installer_core::settings::Settings;

use super::values;
use crate::cli::export::{ArgocdArgs, ChartArgs, FluxArgs};

/// Annotation of Argo CD: how it treats an object.
const OPTIONS: &str = "argocd.argoproj.io/sync-options";

/// A file: its path below the export's folder, and its documents.
pub(super) type File = (String, Vec<Value>);

/// A Kustomization for each of the folders, in the order in which they depend on each other. The
/// folders themselves are for these alone: the `kustomization.yaml` keeps a Kustomization of a
/// folder above from applying them all at once.
pub(super) fn flux(args: &FluxArgs, settings: &Settings, desired: &Desired) -> Vec<File> {
    let namespace = &settings.namespace;
    let ChartArgs { charts, chart_version, path, .. } = &args.charts;
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    let release = |name: &str, values: Value| {
        json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": metadata(name),
            "spec": {
                "interval": "10m",
                "chart": {"spec": {
                    "chart": name,
                    "version": chart_version,
                    "sourceRef": {"kind": "HelmRepository", "name": "tenon"},
                }},
                "install": {"crds": "CreateReplace"},
                "upgrade": {"crds": "CreateReplace"},
                "values": values,
            },
        })
    };
    let kind = if charts.starts_with("oci://") { "oci" } else { "default" };
    let repository = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "HelmRepository",
        "metadata": metadata("tenon"),
        "spec": {"type": kind, "interval": "1h", "url": charts},
    });
    let mut operator = release("tenon", values(desired));
    if settings.manage_crds {
        operator["spec"]["dependsOn"] = json!([{"name": "tenon-crds"}]);
    }
    let kustomization = |name: &str, folder: &str, after: Option<&str>| {
        let mut body = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "flux-system"},
            "spec": {
                "interval": "10m",
                "sourceRef": {"kind": "GitRepository", "name": args.source},
                "path": format!("./{path}/{folder}"),
                // Pruned, a HelmRelease would uninstall its chart.
                "prune": false,
                "wait": true,
                "timeout": "10m",
            },
        });
        if let Some(after) = after {
            body["spec"]["dependsOn"] = json!([{ "name": after }]);
        }
        body
    };
    let nodes = node_objects(desired, "kustomize.toolkit.fluxcd.io/prune", "disabled");
    let crds = settings.manage_crds.then(|| kustomization("tenon-crds", "crds", None));
    let mut chain = crds.into_iter().collect::<Vec<_>>();
    chain.push(kustomization("tenon", "operator", settings.manage_crds.then_some("tenon-crds")));
    if !nodes.is_empty() {
        chain.push(kustomization("tenon-nodepools", "nodepools", Some("tenon")));
    }
    let mut files = vec![
        (
            "kustomization.yaml".to_owned(),
            vec![json!({
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": ["flux.yaml"],
            })],
        ),
        ("flux.yaml".to_owned(), chain),
    ];
    if settings.manage_crds {
        let crds = vec![repository, release("tenon-crds", json!({}))];
        files.push(("crds/release.yaml".to_owned(), crds));
        files.push(("operator/release.yaml".to_owned(), vec![operator]));
    } else {
        files.push(("operator/release.yaml".to_owned(), vec![repository, operator]));
    }
    files.extend(nodes);
    files
}

/// An Application for each: the waves put CRDs first and NodePools last.
pub(super) fn argocd(args: &ArgocdArgs, settings: &Settings, desired: &Desired) -> Vec<File> {
    let namespace = &settings.namespace;
    let ChartArgs { charts, chart_version, path, .. } = &args.charts;
    let application = |name: &str, wave: &str, source: Value, prune: bool| {
        json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {
                "name": name,
                "namespace": "argocd",
                "annotations": {
                    "argocd.argoproj.io/sync-wave": wave,
                    // To remove files is not to decide that the operator goes.
                    OPTIONS: "Prune=false",
                },
            },
            "spec": {
                "project": "default",
                "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace},
                "source": source,
                "syncPolicy": {
                    "automated": {"prune": prune, "selfHeal": true},
                    "syncOptions": ["ServerSideApply=true", format!("Prune={prune}")],
                },
            },
        })
    };
    let registry = charts.trim_start_matches("oci://");
    let chart = |name: &str, values: Value| {
        json!({
            "repoURL": registry,
            "chart": name,
            "targetRevision": chart_version,
            "helm": {"releaseName": name, "valuesObject": values},
        })
    };
    let in_git = json!({
        "repoURL": args.repository,
        "path": format!("{path}/nodepools"),
        "targetRevision": "HEAD",
    });
    // Argo CD overlooks that a new CRD is established until it compares the next time, minutes
    // later, and the operator would wait as long.
    let unchecked =
        json!({"additionalAnnotations": {"argocd.argoproj.io/ignore-healthcheck": "true"}});
    let crds = || application("tenon-crds", "-2", chart("tenon-crds", unchecked), false);
    // What is there already and has the labels of the Helm release, Argo CD takes for applied, and
    // then it does not mark it as its own. A difference makes it apply every object once.
    let mut values = values(desired);
    values["additionalAnnotations"][OPTIONS] = "ServerSideApply=true".into();
    let operator = application("tenon", "0", chart("tenon", values), true);
    let crds = settings.manage_crds.then(crds);
    let mut applications = crds.into_iter().chain([operator]).collect::<Vec<_>>();
    let nodes = node_objects(desired, OPTIONS, "Prune=false,Delete=false");
    if !nodes.is_empty() {
        applications.push(application("tenon-nodepools", "1", in_git, false));
    }
    let mut files = vec![("applications.yaml".to_owned(), applications)];
    files.extend(nodes);
    files
}

/// NodePools and EC2NodeClasses, each in a file, with an annotation that keeps it.
fn node_objects(desired: &Desired, annotation: &str, value: &str) -> Vec<File> {
    let files = desired.node_objects.iter().map(|object| {
        let mut body = object.body.clone();
        body["metadata"]["annotations"][annotation] = value.into();
        let kind = object.resource.kind.to_lowercase();
        (format!("nodepools/{kind}-{}.yaml", object.name), vec![body])
    });
    files.collect()
}
