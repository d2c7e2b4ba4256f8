//! The operator by its Helm charts, for Flux and Argo CD. NodePools and CRDs are never pruned: removing them removes nodes, and that belongs to `tenon uninstall`.

use serde_json::{Value, json};
use tenon_installer_core::desired::Desired;
use tenon_installer_core::settings::Settings;

use super::values;
use crate::cli::export::GitOpsArgs;

/// Charts are in place before the operator, and the operator before NodePools.
pub(super) fn flux(args: &GitOpsArgs, settings: &Settings, desired: &Desired) -> Vec<Value> {
    let namespace = &settings.namespace;
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
                    "version": args.chart_version,
                    "sourceRef": {"kind": "HelmRepository", "name": "tenon"},
                }},
                "install": {"crds": "CreateReplace"},
                "upgrade": {"crds": "CreateReplace"},
                "values": values,
            },
        })
    };
    let kind = if args.charts.starts_with("oci://") { "oci" } else { "default" };
    let repository = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "HelmRepository",
        "metadata": metadata("tenon"),
        "spec": {"type": kind, "interval": "1h", "url": args.charts},
    });
    let mut operator = release("tenon", values(desired));
    operator["spec"]["dependsOn"] = json!([{"name": "tenon-crds"}]);
    let mut all = vec![repository, release("tenon-crds", json!({})), operator];
    all.extend(desired.node_objects.iter().map(|object| {
        let mut body = object.body.clone();
        body["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/prune"] = json!("disabled");
        body
    }));
    all
}

/// The waves put CRDs first and NodePools last.
pub(super) fn argocd(args: &GitOpsArgs, settings: &Settings, desired: &Desired) -> Vec<Value> {
    let namespace = &settings.namespace;
    let application = |name: &str, wave: &str, source: Value, prune: bool| {
        json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {
                "name": name,
                "namespace": "argocd",
                "annotations": {"argocd.argoproj.io/sync-wave": wave},
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
    let registry = args.charts.trim_start_matches("oci://");
    let chart = |name: &str, values: Option<Value>| {
        let mut source = json!({
            "repoURL": registry,
            "chart": name,
            "targetRevision": args.chart_version,
        });
        if let Some(values) = values {
            source["helm"] = json!({"releaseName": name, "valuesObject": values});
        }
        source
    };
    let mut all = vec![
        application("tenon-crds", "-2", chart("tenon-crds", None), false),
        application("tenon", "0", chart("tenon", Some(values(desired))), true),
    ];
    if !args.repository.is_empty() {
        let source =
            json!({"repoURL": args.repository, "path": "nodepools", "targetRevision": "HEAD"});
        all.push(application("tenon-nodepools", "1", source, false));
    }
    all.extend(desired.node_objects.iter().map(|object| {
        let mut body = object.body.clone();
        body["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] =
            json!("Prune=false,Delete=false");
        body
    }));
    all
}
