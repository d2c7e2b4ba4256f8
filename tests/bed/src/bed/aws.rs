//! The AWS side of a bed: the double behind its gateway, the cluster as EKS knows it, and the
//! machines of its instances.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Service as KubeService;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tenon_aws_double::aws_state::{AwsState, Cluster};
use tenon_aws_double::cache::{self, CacheError};
use tenon_aws_double::catalog::Catalog;
use tenon_aws_double::clock::Clock;
use tenon_aws_double::eks::Eks;
use tenon_aws_double::guard::{Guard, pod_credentials_url, token_review_url};
use tenon_aws_double::metadata::metadata_url;
use tenon_aws_double::moto;
use tenon_aws_double::response::AwsError;
use tenon_aws_double::seed::{Seed, network};
use tenon_aws_double::service::Endpoint;
use tenon_aws_double::token_review::policy_bindings;
use tenon_aws_double::zonal_shifts::zones;
use tenon_aws_double::{Gateway, GatewayConfig, GatewayError};
use tokio::task::JoinSet;

use crate::control::Control;
use crate::control_plane::ControlPlane;
use crate::control_plane::programs::kubernetes_version;
use crate::kubelet::{PodIdentity, SystemNode};
use crate::machine::facts::Facts;
use crate::machine::{Config as MachineConfig, Fault, Simulator, Target};

use super::caller::Caller;
use super::{ACCOUNT, BedConfig};

/// The role of the system nodes.
const SYSTEM_ROLE: &str = "bed-system-nodes";

/// The AWS side does not come up.
#[derive(Debug, thiserror::Error)]
pub enum AwsStartError {
    /// The gateway or moto does not start.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The cache can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The account can't be furnished.
    #[error("the AWS double refuses to {doing}")]
    Seed {
        /// What was being done.
        doing: &'static str,
        /// What it said.
        source: AwsError,
    },
    /// The cluster can't be furnished.
    #[error("the API server refuses to {doing}")]
    Kubernetes {
        /// What was being done.
        doing: &'static str,
        /// What it said.
        source: kube::Error,
    },
}

/// The gateway, its guard, and, once the cluster has joined, the machines.
pub struct Aws {
    gateway: Gateway,
    guard: Guard,
    control: Control,
    machines: Arc<OnceLock<Simulator>>,
    seed: Option<Seed>,
    tasks: JoinSet<()>,
}

impl std::fmt::Debug for Aws {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aws").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

/// The URL of the API server's token webhook, for a gateway on this port, before it has started.
pub(super) fn token_webhook(port: u16) -> String {
    token_review_url(&format!("http://127.0.0.1:{port}"))
}

impl Aws {
    /// Starts the double: an account without anything but AWS' own.
    pub(super) async fn start(
        config: &BedConfig,
        logs: &Path,
        port: u16,
        clock: Clock,
    ) -> Result<Self, AwsStartError> {
        let machines = Arc::new(OnceLock::new());
        let mut gateway = GatewayConfig::new(logs);
        gateway.region.clone_from(&config.region);
        ACCOUNT.clone_into(&mut gateway.account);
        gateway.port = port;
        gateway.seed = config.seed;
        gateway.clock = clock;
        gateway.progress = config.progress.clone();
        gateway.endpoints.push(Arc::new(MachineControl { machines: Arc::clone(&machines) }));
        let guard = Guard::new(&gateway);
        guard.install(&mut gateway);
        let gateway = Gateway::start(gateway).await?;
        let control = Control::new(format!("{}/_bed", gateway.url()));
        Ok(Self { gateway, guard, control, machines, seed: None, tasks: JoinSet::new() })
    }

    /// Makes the control plane an EKS cluster of the account: its network, its node group, who may
    /// get in; and starts the machines.
    pub(super) async fn join(
        &mut self,
        config: &BedConfig,
        plane: &ControlPlane,
        nodes: &[SystemNode],
        clock: Clock,
    ) -> Result<(), AwsStartError> {
        let aws_state = self.gateway.state();
        let failed = |doing| move |source| AwsStartError::Seed { doing, source };
        let seed = network(aws_state, &config.cluster)
            .await
            .map_err(failed("make the cluster's network"))?;
        aws_state.set_cluster(Cluster {
            name: config.cluster.clone(),
            endpoint: plane.url().to_owned(),
            ca_pem: plane.ca().to_owned(),
            version: minor_version(),
            issuer: plane.issuer().to_owned(),
            vpc_id: seed.vpc_id.clone(),
            subnet_ids: seed.subnet_ids.clone(),
            cluster_security_group_id: seed.cluster_security_group_id.clone(),
            service_cidr: crate::control_plane::SERVICE_CIDR.to_owned(),
        });
        self.guard.tokens.set_client(plane.client());
        self.guard.admit_administrator(aws_state);
        let role =
            system_role(aws_state).await.map_err(failed("make the role of the system nodes"))?;
        let prefix = aws_state.arn("eks", "");
        let types = nodes.iter().map(|node| node.instance_type.clone()).take(1).collect();
        let n_nodes = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let addresses = nodes.iter().filter_map(|node| node.address.parse().ok());
        aws_state.instances().keep_from(addresses);
        self.guard.eks.add_node_group(&prefix, &config.cluster, "system", &role, types, n_nodes);
        furnish(plane.client()).await?;
        let (authenticator, client) = (Arc::clone(&self.guard.authenticator), plane.client());
        self.tasks.spawn(async move { authenticator.aws_auth().follow(client).await });
        let facts = self.facts(config).await?;
        let machines = MachineConfig { seed: config.seed, ..MachineConfig::default() };
        let simulator =
            Simulator::start(plane.client(), clock, self.gateway.instances(), facts, machines);
        self.machines.set(simulator).expect("a bed joins once");
        self.seed = Some(seed);
        Ok(())
    }

    /// The AWS double that the bed runs.
    pub const fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Who may do what: users, sessions, policies, EKS.
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The client of the control API, with machines.
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// AWS calls as the administrator.
    pub fn caller(&self) -> Caller {
        let aws_state = self.gateway.state();
        Caller::new(
            self.gateway.url(),
            aws_state.region(),
            self.guard.administrator(),
            aws_state.clock(),
        )
    }

    /// The machines.
    ///
    /// # Panics
    /// Never: the cluster joins before a bed is handed out.
    pub fn machines(&self) -> &Simulator {
        self.machines.get().expect("the cluster joined when the bed started")
    }

    /// The cluster's network.
    ///
    /// # Panics
    /// Never: the cluster joins before a bed is handed out.
    pub fn seed(&self) -> &Seed {
        self.seed.as_ref().expect("the cluster joined when the bed started")
    }

    /// Who has a Pod Identity association.
    pub(super) fn pod_identity(&self) -> Arc<dyn PodIdentity> {
        Arc::new(Associations { eks: Arc::clone(&self.guard.eks) })
    }

    /// Where pods get their credentials.
    pub(super) fn credentials_url(&self) -> String {
        pod_credentials_url(self.gateway.url())
    }

    /// Where system nodes find the metadata of their instances, by name.
    pub(super) fn metadata(&self, nodes: &[SystemNode]) -> BTreeMap<String, String> {
        let url = |node: &SystemNode| metadata_url(self.gateway.url(), &node.instance_id);
        nodes.iter().map(|node| (node.name.clone(), url(node))).collect()
    }

    /// Where SDKs find AWS.
    pub(super) fn endpoint(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("AWS_ENDPOINT_URL".to_owned(), self.gateway.url().to_owned())])
    }

    /// The administrator's credentials, as variables.
    pub(super) fn administrator(&self) -> BTreeMap<String, String> {
        let credentials = self.guard.administrator();
        BTreeMap::from([
            ("AWS_ACCESS_KEY_ID".to_owned(), credentials.access_key.clone()),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), credentials.secret_key.clone()),
        ])
    }

    /// Stops the machines, then the double.
    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
        self.gateway.stop().await;
    }

    async fn facts(&self, config: &BedConfig) -> Result<Facts, AwsStartError> {
        let aws_state = self.gateway.state();
        let failed =
            |source| AwsStartError::Seed { doing: "tell its zones and instance types", source };
        let zone_ids = zones(aws_state).await.map_err(failed)?;
        // The gateway has it already: this reads its file.
        let cache = cache::dir()?.join("moto");
        let catalog = Catalog::load(&cache, aws_state.moto(), &config.region, moto::VERSION);
        let authenticator = Arc::clone(&self.guard.authenticator);
        Ok(Facts {
            catalog: Arc::new(catalog.await.map_err(failed)?),
            region: config.region.clone(),
            zone_ids,
            images: aws_state.amis().iter().map(|ami| (ami.id.clone(), ami.family)).collect(),
            admission: Box::new(move |role| authenticator.admits_nodes_of(role)),
        })
    }
}

/// `1.36`
fn minor_version() -> String {
    let version = kubernetes_version().trim_start_matches('v');
    version.rsplit_once('.').map_or(version, |(minor, _)| minor).to_owned()
}

async fn system_role(aws_state: &AwsState) -> Result<String, AwsError> {
    let service = format!("ec2.{}", aws_state.partition().dns_suffix());
    let trust = json!({
        "Version": "2012-10-17",
        "Statement": [{ "Effect": "Allow", "Principal": { "Service": service }, "Action": "sts:AssumeRole" }],
    })
    .to_string();
    let parameters = [("RoleName", SYSTEM_ROLE), ("AssumeRolePolicyDocument", trust.as_str())];
    let answer = aws_state.moto().query("iam", "CreateRole", parameters).await?;
    let arn = answer
        .at(&["CreateRoleResult", "Role"])
        .and_then(|role| role.get("Arn"))
        .map(str::to_owned);
    arn.ok_or_else(|| AwsError::new("InternalError", "moto made a role without an ARN"))
}

/// What an EKS cluster has beside what Kubernetes itself makes: the service of its DNS, and the
/// rights of access policies.
async fn furnish(client: Client) -> Result<(), AwsStartError> {
    let parameters = PatchParams::apply("eks").force();
    let dns = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "kube-dns", "labels": { "k8s-app": "kube-dns" } },
        "spec": {
            "clusterIP": "10.100.0.10",
            "selector": { "k8s-app": "kube-dns" },
            "ports": [
                { "name": "dns", "port": 53, "protocol": "UDP" },
                { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
            ],
        },
    });
    let services: Api<KubeService> = Api::namespaced(client.clone(), "kube-system");
    services.patch("kube-dns", &parameters, &Patch::Apply(dns)).await.map_err(|source| {
        AwsStartError::Kubernetes { doing: "make the service kube-dns", source }
    })?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client);
    for binding in policy_bindings() {
        bindings.patch(&binding.name_any(), &parameters, &Patch::Apply(&binding)).await.map_err(
            |source| AwsStartError::Kubernetes { doing: "bind the access policies", source },
        )?;
    }
    Ok(())
}

struct Associations {
    eks: Arc<Eks>,
}

impl PodIdentity for Associations {
    fn associated<'a>(
        &'a self,
        namespace: &'a str,
        service_account: &'a str,
    ) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(self.eks.association(namespace, service_account).is_some()))
    }
}

/// The machines' part of the control API, `/_bed/machines`: `GET` tells why machines have not
/// joined, `POST` changes delays and sets faults, `DELETE` ends all faults.
struct MachineControl {
    machines: Arc<OnceLock<Simulator>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MachineChange {
    boot_seconds: Option<f64>,
    ready_seconds: Option<f64>,
    fault: Option<Fault>,
    target: Option<Target>,
}

impl Endpoint for MachineControl {
    fn handles(&self, path: &str) -> bool {
        path == "/_bed/machines"
    }

    fn call<'a>(
        &'a self,
        request: Request<Bytes>,
        _aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Response<Bytes>> {
        Box::pin(std::future::ready(self.answer(&request)))
    }
}

impl MachineControl {
    fn answer(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let Some(machines) = self.machines.get() else {
            return json_response(503, &json!({ "error": "the bed is still starting" }));
        };
        match request.method().as_str() {
            "GET" => json_response(200, &json!(machines.problems())),
            "DELETE" => {
                machines.heal();
                json_response(200, &json!({}))
            }
            "POST" => match serde_json::from_slice::<MachineChange>(request.body()) {
                Ok(change) => {
                    apply(machines, change);
                    json_response(200, &json!({}))
                }
                Err(error) => json_response(
                    400,
                    &json!({ "error": format!("the body is not valid: {error}") }),
                ),
            },
            method => json_response(
                405,
                &json!({ "error": format!("machines can't be asked by {method}") }),
            ),
        }
    }
}

fn json_response(status: u16, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

fn apply(machines: &Simulator, change: MachineChange) {
    let MachineChange { boot_seconds, ready_seconds, fault, target } = change;
    let seconds = |seconds: f64| Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0));
    machines.configure(|config| {
        config.boot = boot_seconds.map_or(config.boot, seconds);
        config.ready = ready_seconds.map_or(config.ready, seconds);
    });
    if let Some(fault) = fault {
        machines.inject(target.unwrap_or(Target::Next(1)), fault);
    }
}
