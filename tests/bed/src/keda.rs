//! A real KEDA on a bed: its operator and its metrics adapter as processes, and what its chart
//! makes in the cluster for both.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::json;
use tenon_aws_double::cache;
use tenon_aws_double::process::{Process, ProcessSpec};
use tenon_aws_double::progress::Progress;

use crate::bed::Bed;
use crate::control_plane::credentials::self_signed;
use crate::control_plane::programs::KedaPrograms;
use crate::failure::Failure;
use crate::http::get;
use crate::kubectl::kubectl;
use crate::objects;
use crate::ports::Ports;
use crate::registry::ServerError;

/// Long enough for a machine whose cores are busy.
const READY_LIMIT: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "keda";
/// The API by which the controller of HorizontalPodAutoscalers asks the adapter.
const API_SERVICE: &str = "v1beta1.external.metrics.k8s.io";

/// A running KEDA with the rights of the bed's administrator, in Kubernetes as in AWS; killed when
/// dropped.
#[derive(Debug)]
pub struct Keda {
    processes: [Process; 2],
    _ports: Ports,
}

impl Keda {
    /// Starts it, and waits until the API server serves external metrics.
    ///
    /// # Errors
    /// When a program can't be built or does not run, or the API server refuses KEDA's objects.
    pub async fn start(bed: &Bed, progress: &Progress) -> Result<Self, ServerError> {
        let programs = KedaPrograms::provide(progress).await?;
        let mut ports = Ports::reserve(&cache::dir()?)?;
        let (metrics, probes, grpc) = (ports.take()?, ports.take()?, ports.take()?);
        let (secure, adapter_metrics) = (ports.take()?, ports.take()?);
        let dir = bed.dir().join("keda");
        write_certificate(&dir)?;
        let refused = |doing: &str| {
            let doing = doing.to_owned();
            move |source| ServerError::Kubernetes { doing, source }
        };
        definitions(bed, &programs).await.map_err(refused("create KEDA's CRDs"))?;
        objects(bed, secure).await.map_err(refused("register KEDA's API of external metrics"))?;

        let mut env = bed.exports().variables;
        env.extend(
            [
                ("WATCH_NAMESPACE", ""),
                ("POD_NAMESPACE", NAMESPACE),
                ("KEDA_CLUSTER_OBJECT_NAMESPACE", NAMESPACE),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        env.insert("HOME".to_owned(), dir.display().to_string());
        let process = |name: &str, program: PathBuf, args: Vec<String>| {
            Process::spawn(ProcessSpec {
                name: name.to_owned(),
                program,
                args: args.into_iter().map(Into::into).collect(),
                env: env.clone(),
                log: bed.dir().join(format!("logs/{name}.log")),
                dir: dir.clone(),
            })
        };
        let certificates = format!("--cert-dir={}", dir.display());
        let operator = process(
            "keda-operator",
            programs.operator,
            vec![
                certificates.clone(),
                format!("--metrics-bind-address=127.0.0.1:{metrics}"),
                format!("--health-probe-bind-address=127.0.0.1:{probes}"),
                format!("--metrics-service-bind-address=127.0.0.1:{grpc}"),
                "--enable-webhook-patching=false".to_owned(),
                "--enable-apiservice-patching=false".to_owned(),
            ],
        )?;
        let probes = format!("127.0.0.1:{probes}");
        let ready = async || matches!(get(&probes, "/readyz").await, Ok((200, _)));
        operator.ready("it answers /readyz", READY_LIMIT, ready).await?;
        let kubeconfig = bed.control_plane().kubeconfig().display();
        let adapter = process(
            "keda-adapter",
            programs.adapter,
            vec![
                certificates,
                format!("--lister-kubeconfig={kubeconfig}"),
                format!("--authentication-kubeconfig={kubeconfig}"),
                format!("--authorization-kubeconfig={kubeconfig}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={secure}"),
                format!("--port={adapter_metrics}"),
                format!("--metrics-service-address=localhost:{grpc}"),
            ],
        )?;
        let services = api_services(bed);
        let available = async || {
            let service = services.get(API_SERVICE).await;
            service.is_ok_and(|service| objects::holds(&service, "Available"))
        };
        adapter.ready("the API server reaches it", READY_LIMIT, available).await?;
        Ok(Self { processes: [operator, adapter], _ports: ports })
    }

    /// Ends both.
    pub async fn stop(self) {
        for process in &self.processes {
            process.stop(Duration::from_secs(5)).await;
        }
    }
}

/// Operator and adapter know each other by one certificate, which is its own authority.
fn write_certificate(dir: &std::path::Path) -> Result<(), ServerError> {
    let (certificate, key) = self_signed(&["localhost"])?;
    let files =
        BTreeMap::from([("ca.crt", &certificate), ("tls.crt", &certificate), ("tls.key", &key)]);
    std::fs::create_dir_all(dir)
        .map_err(|source| ServerError::Write { path: dir.to_path_buf(), source })?;
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|source| ServerError::Write { path, source })?;
    }
    Ok(())
}

/// Creates the CRDs, and waits until the API server serves them.
async fn definitions(bed: &Bed, programs: &KedaPrograms) -> Result<(), Failure> {
    let crds = programs.crds.display().to_string();
    kubectl(bed, &["apply", "--server-side", "-f", &crds]).await?;
    Ok(objects::established(&bed.client()).await?)
}

/// Makes the adapter the API server's source of external metrics. The name of an ExternalName
/// Service is the host that the API server connects to.
async fn objects(bed: &Bed, port: u16) -> Result<(), Failure> {
    const SERVICE: &str = "keda-metrics-apiserver";
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": SERVICE, "namespace": NAMESPACE },
        "spec": { "type": "ExternalName", "externalName": "localhost" },
    });
    let api = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": API_SERVICE },
        "spec": {
            "service": { "name": SERVICE, "namespace": NAMESPACE, "port": port },
            "group": "external.metrics.k8s.io", "version": "v1beta1",
            // The adapter makes its own certificate.
            "insecureSkipTLSVerify": true,
            "groupPriorityMinimum": 100, "versionPriority": 100,
        },
    });
    let file = bed.dir().join("keda/objects.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [namespace, service, api] });
    std::fs::write(&file, list.to_string())?;
    kubectl(bed, &["apply", "--server-side", "-f", &file.display().to_string()]).await
}

fn api_services(bed: &Bed) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    Api::all_with(bed.client(), &ApiResource::from_gvk(&kind))
}
