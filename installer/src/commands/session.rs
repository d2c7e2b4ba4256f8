//! What most commands begin with: resolve the settings, find cluster and caller, say what should be
//! there, and look at what is.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tenon_crds::labels;
use tenon_installer_core::apply::Context;
use tenon_installer_core::aws::Aws;
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::clock;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::journal::{self, Record};
use tenon_installer_core::kubernetes::client::{Cluster, KubeError};
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::kubernetes::trial::{self, Trial};
use tenon_installer_core::lock::{Holder, Lock, LockError};
use tenon_installer_core::names::AGENT;
use tenon_installer_core::observe::actual::{self, Actual};
use tenon_installer_core::observe::facts::{self, Facts};
use tenon_installer_core::observe::state::AgentState;
use tenon_installer_core::ownership::Installation;
use tenon_installer_core::plan::impact::Impact;
use tenon_installer_core::plan::{Plan, diff};
use tenon_installer_core::settings::renamed::renamed;
use tenon_installer_core::settings::{Inferred, Settings, Source};
use tenon_installer_core::target::{self, Target};

use super::kops_cluster;
use crate::cli::overlay::resolve;
use crate::cli::{GlobalArgs, SettingArgs};
use crate::errors::ExpectedError;
use crate::printer::Printer;

/// Everything that is known before anything is done.
pub(super) struct Session {
    /// What was asked for.
    pub(super) settings: Settings,
    /// AWS.
    pub(super) aws: Aws,
    /// The cluster.
    pub(super) target: Target,
    /// Caller and cluster.
    pub(super) facts: Facts,
    /// What should be there.
    pub(super) desired: Desired,
    /// What is there.
    pub(super) actual: Actual,
    /// The record on this machine.
    pub(super) file: Option<PathBuf>,
    /// What the record in the cluster says, and whose it is.
    pub(super) recorded: Option<(String, Option<Record>)>,
}

/// Where settings come from when no file is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// Flags and defaults.
    Defaults,
    /// What the installation recorded.
    Record,
}

/// The region that nodes have as their label; none where no node has it.
pub(super) async fn region_of_nodes(client: &Client) -> Result<Option<String>, ExpectedError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let one = ListParams::default().labels(labels::REGION).limit(1);
    let listed = nodes.list_metadata(&one).await.map_err(|cause| {
        observe_failed(KubeError {
            verb: "list",
            resource: "nodes".to_owned(),
            cause: cause.into(),
        })
    })?;
    Ok(listed.items.first().and_then(|node| node.labels().get(labels::REGION).cloned()))
}

pub(super) fn observe_failed(failure: impl Into<Failure>) -> ExpectedError {
    ExpectedError::Observe(failure.into())
}

/// The settings file, if one is named.
pub(super) fn source(args: &SettingArgs) -> Result<Source, ExpectedError> {
    Ok(args.aws.installation.file.as_deref().map(Source::read).transpose()?.unwrap_or_default())
}

/// The cluster is found and reached; nothing was looked at yet.
pub(super) struct Connection {
    settings: Settings,
    aws: Aws,
    facts: Facts,
    target: Target,
    file: Option<PathBuf>,
}

impl Connection {
    /// Resolves and finds. Changes nothing.
    pub(super) async fn open(
        global: &GlobalArgs,
        args: &SettingArgs,
        source: Source,
        fallback: Fallback,
    ) -> Result<Self, ExpectedError> {
        kops_cluster::refuse(global, source.config.cluster.name.as_deref()).await?;
        let inferred = target::infer(&global.kubeconfig());
        if fallback == Fallback::Record && source.file.is_none() {
            return Box::pin(Self::open_recorded(global, args, &inferred)).await;
        }
        let settings = resolve(source, global, args, &inferred)?;
        let aws = global.connect(&settings).await?;
        let (facts, target) = connect(global, &aws, &settings).await?;
        Ok(Self::new(global, settings, aws, facts, target))
    }

    async fn open_recorded(
        global: &GlobalArgs,
        args: &SettingArgs,
        inferred: &Inferred,
    ) -> Result<Self, ExpectedError> {
        let first = resolve(Source::default(), global, args, inferred)?;
        let aws = global.connect(&first).await?;
        let (facts, target) = connect(global, &aws, &first).await?;
        let id = install_id(&facts, &first);
        let is_ours = |record: &Record| record.install_id == id;
        let in_cluster = recorded(&target, &facts, &first).await?;
        let on_machine = || journal::read_file(&record_file(global, &facts, &first)?);
        let record = in_cluster.or_else(on_machine).filter(is_ours);
        let Some(record) = record else {
            return Ok(Self::new(global, first, aws, facts, target));
        };
        let settings = resolve(
            Source::recorded(without_missing_manifests(record.config)),
            global,
            args,
            inferred,
        )?;
        Self::new(global, first, aws, facts, target).with(settings).await
    }

    fn new(
        global: &GlobalArgs,
        settings: Settings,
        aws: Aws,
        facts: Facts,
        target: Target,
    ) -> Self {
        let file = record_file(global, &facts, &settings);
        Self { settings, aws, facts, target, file }
    }

    /// The same cluster with other settings.
    pub(super) async fn with(self, settings: Settings) -> Result<Self, ExpectedError> {
        let facts = if settings.node_role_name == self.settings.node_role_name {
            self.facts
        } else {
            read_facts(&self.aws, &settings).await?
        };
        Ok(Self { settings, facts, ..self })
    }

    /// AWS.
    pub(super) fn aws(&self) -> &Aws {
        &self.aws
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.target.cluster
    }

    /// What was asked for.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the cluster records of its installation, if there is one.
    pub(super) async fn record(&self) -> Result<Option<Record>, ExpectedError> {
        recorded(&self.target, &self.facts, &self.settings).await
    }

    /// Keeps other installers away from the cluster until the command ends.
    pub(super) async fn lock(
        &self,
        global: &GlobalArgs,
        operation: &str,
        cleanup: &Cleanup,
    ) -> Result<Lock, ExpectedError> {
        take_lock(&self.target, self.file.as_deref(), global, operation, cleanup).await
    }

    /// Says what should be there and looks at what is.
    pub(super) async fn observe(self) -> Result<Session, ExpectedError> {
        let Self { settings, aws, facts, target, file } = self;
        let desired = Desired::new(&settings, &facts)
            .map_err(|reasons| ExpectedError::Preflight { reasons })?;
        let (actual, recorded) = look_at(&aws, &target, &desired, &settings).await?;
        Ok(Session { settings, aws, target, facts, desired, actual, file, recorded })
    }
}

/// Asks what the cluster is, and connects to it. A kubeconfig says how by itself, and its
/// credential plugin may take a second.
async fn connect(
    global: &GlobalArgs,
    aws: &Aws,
    settings: &Settings,
) -> Result<(Facts, Target), ExpectedError> {
    let kubeconfig = global.kubeconfig();
    if !target::has_kubeconfig(&kubeconfig) {
        let facts = read_facts(aws, settings).await?;
        let target = Target::by_token(aws, &facts.cluster).await?;
        return Ok((facts, target));
    }
    // What AWS refuses is said first, whatever fails first.
    let target = async { Ok(Target::by_kubeconfig(&kubeconfig, aws.audit.clone()).await) };
    let (facts, target) = tokio::try_join!(read_facts(aws, settings), target)?;
    Ok((facts, target?))
}

/// What the cluster records of its installation, if there is one.
pub(super) async fn recorded(
    target: &Target,
    facts: &Facts,
    settings: &Settings,
) -> Result<Option<Record>, ExpectedError> {
    let id = install_id(facts, settings);
    let record = journal::find(&target.cluster, &id).await.map_err(observe_failed)?;
    Ok(record.filter(|record| record.install_id == id))
}

fn install_id(facts: &Facts, settings: &Settings) -> String {
    let Facts { cluster, .. } = facts;
    let tags = settings.tags.clone();
    Installation::new(&cluster.arn, cluster.created_at, &settings.cluster, tags).id
}

async fn read_facts(aws: &Aws, settings: &Settings) -> Result<Facts, ExpectedError> {
    let node_role = settings.node_role_name.as_deref();
    facts::read(aws, &settings.cluster, &settings.region, node_role).await.map_err(observe_failed)
}

async fn look_at(
    aws: &Aws,
    target: &Target,
    desired: &Desired,
    settings: &Settings,
) -> Result<(Actual, Option<(String, Option<Record>)>), ExpectedError> {
    let actual = async {
        Box::pin(actual::read(aws, &target.cluster, &desired.lookup()))
            .await
            .map_err(ExpectedError::Observe)
    };
    let recorded = async {
        let recorded = journal::read_cluster(&target.cluster, &settings.namespace).await;
        recorded.map_err(observe_failed)
    };
    tokio::try_join!(actual, recorded)
}

pub(super) async fn take_lock(
    target: &Target,
    file: Option<&Path>,
    global: &GlobalArgs,
    operation: &str,
    cleanup: &Cleanup,
) -> Result<Lock, ExpectedError> {
    take_lock_of(&target.cluster, file, global, operation, cleanup).await
}

/// The same where nothing is known but the cluster.
pub(super) async fn take_lock_of(
    cluster: &Cluster,
    file: Option<&Path>,
    global: &GlobalArgs,
    operation: &str,
    cleanup: &Cleanup,
) -> Result<Lock, ExpectedError> {
    let holder = Holder {
        who: format!("{}@{}", global.user.as_deref().unwrap_or("unknown"), host(global)),
        operation: format!("tenon {operation}"),
        since: clock::now(),
    };
    let file = file.map(|file| file.with_extension("lock"));
    let lock = Lock::take(cluster, holder, file.as_deref(), cleanup).await;
    lock.map_err(|error| match error {
        LockError::Held { holder, ends } => ExpectedError::Locked { holder, ends },
        LockError::Kubernetes(error) => observe_failed(error),
    })
}

impl Session {
    /// Resolves, finds and looks. Changes nothing.
    pub(super) async fn open(
        global: &GlobalArgs,
        args: &SettingArgs,
        source: Source,
        fallback: Fallback,
    ) -> Result<Self, ExpectedError> {
        let connection = Box::pin(Connection::open(global, args, source, fallback)).await?;
        Box::pin(connection.observe()).await
    }

    /// The same cluster with other settings, looked at anew.
    pub(super) async fn with(self, settings: Settings) -> Result<Self, ExpectedError> {
        let Self { aws, target, facts, file, settings: before, .. } = self;
        let connection = Connection { settings: before, aws, facts, target, file };
        Box::pin(connection.with(settings).await?.observe()).await
    }

    /// Looks once more: what was seen without the lock may have changed since.
    pub(super) async fn observe_again(&mut self) -> Result<(), ExpectedError> {
        let seen = look_at(&self.aws, &self.target, &self.desired, &self.settings).await?;
        (self.actual, self.recorded) = seen;
        Ok(())
    }

    /// Keeps other installers away from the cluster until the command ends.
    pub(super) async fn lock(
        &self,
        global: &GlobalArgs,
        operation: &str,
        cleanup: &Cleanup,
    ) -> Result<Lock, ExpectedError> {
        take_lock(&self.target, self.file.as_deref(), global, operation, cleanup).await
    }

    /// The last command, as the record in the cluster has it, if it did not come to its end.
    pub(super) fn unfinished(&self) -> Option<&Record> {
        let ours = |(id, _): &&(String, Option<Record>)| *id == self.desired.installation.id;
        let (_, record) = self.recorded.as_ref().filter(ours)?;
        record.as_ref().filter(|record| !record.finished)
    }

    /// Whether `tenon install` made the installation, and not Helm or a GitOps tool.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.as_ref().is_some_and(|(id, _)| *id == self.desired.installation.id)
    }

    /// How the last command ended, if it did not come to its end.
    pub(super) fn interruption(&self) -> Option<String> {
        self.unfinished()?.interruption()
    }

    /// The plan, or what stands in its way.
    pub(super) fn plan(&self) -> Result<Plan, ExpectedError> {
        if self.actual.agent == AgentState::Missing
            && self.desired.association().is_some()
            && !self.desired.installs_agent()
            && !self.facts.cluster.auto_mode
        {
            return Err(ExpectedError::Preflight {
                reasons: vec![format!(
                    "the cluster has no Pod Identity agent: add --install-agent, install the EKS add-on {AGENT}, or use --identity irsa"
                )],
            });
        }
        let recorded = self.recorded.as_ref();
        let is_ours = |(id, _): &&(String, Option<Record>)| *id == self.desired.installation.id;
        let record = recorded.filter(is_ours).and_then(|(_, record)| record.as_ref());
        let reasons = record.map(|record| renamed(&record.config, &self.settings));
        if let Some(reasons) = reasons.filter(|reasons| !reasons.is_empty()) {
            return Err(ExpectedError::Refused {
                reasons,
                hints: vec![
                    "the resources with the old names would be orphaned: keep the names, \
                     or run `tenon uninstall` with the old settings first"
                        .to_owned(),
                ],
            });
        }
        let foreign =
            recorded.filter(|(id, _)| *id != self.desired.installation.id).map(|(id, _)| {
                format!(
                    "ConfigMap {}/{} belongs to installation {id}",
                    self.settings.namespace,
                    journal::CONFIG_MAP
                )
            });
        let mut plan = match (diff(&self.desired, &self.actual), foreign) {
            (Ok(plan), None) => plan,
            (Ok(_), Some(foreign)) => {
                return Err(ExpectedError::Foreign { conflicts: vec![foreign] });
            }
            (Err(mut conflicts), foreign) => {
                conflicts.extend(foreign);
                return Err(ExpectedError::Foreign { conflicts });
            }
        };
        if self.unfinished().is_some() {
            plan.blame_interruption();
        }
        plan.warnings.extend(plan.outside());
        plan.warnings.extend(self.warnings());
        Ok(plan)
    }

    /// Asks the cluster what it would make of the plan's objects.
    pub(super) async fn try_out(&self, plan: &Plan) -> Trial {
        let objects = plan.applied_objects();
        trial::attempt(&self.target.cluster, &objects).await
    }

    /// What a plan adds to the bill and does to nodes.
    pub(super) async fn impact(&self, plan: &Plan) -> Result<Impact, ExpectedError> {
        let claims = if Impact::needs_claims(plan) {
            let claims = self.target.cluster.list(&resources::node_claims()).await;
            let claims = claims.map_err(observe_failed)?;
            Some(claims.iter().map(|claim| json!(claim)).collect::<Vec<_>>())
        } else {
            None
        };
        Ok(Impact::of(plan, &self.desired, &self.actual, claims.as_deref()))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let cluster = &self.facts.cluster;
        let host =
            |url: &str| url.trim_start_matches("https://").trim_end_matches('/').to_lowercase();
        if let Some(endpoint) = cluster
            .endpoint
            .as_deref()
            .filter(|endpoint| host(endpoint) != host(&self.target.endpoint))
        {
            warnings.push(format!(
                "the kubeconfig points to {}, but EKS reports {endpoint} as the endpoint of \
                 cluster {}: make sure that both are the same cluster",
                self.target.endpoint, cluster.name
            ));
        }
        if cluster.auto_mode {
            warnings.push(
                "EKS Auto Mode also manages nodes in this cluster: make sure that its \
                 NodePools and Tenon's never match the same pods"
                    .to_owned(),
            );
        }
        warnings
    }

    /// What everything is about, for people and programs.
    pub(super) fn target_json(&self) -> Value {
        json!({
            "cluster": self.facts.cluster.name,
            "region": self.facts.cluster.region,
            "account": self.facts.caller.account,
            "caller": self.facts.caller.arn,
            "kubernetesVersion": self.facts.cluster.version,
            "installId": self.desired.installation.id,
            "namespace": self.settings.namespace,
        })
    }

    /// The first line of every command.
    pub(super) fn introduce(&self, printer: Printer) {
        let cluster = &self.facts.cluster;
        printer.note(&format!(
            "cluster {} in {}, account {}, Kubernetes {} ({}), by {}",
            cluster.name,
            cluster.region,
            self.facts.caller.account,
            cluster.version,
            cluster.authentication_mode,
            self.target.by
        ));
        if let Some(interruption) = self.interruption() {
            printer.note(&format!("{interruption}; completed steps stay and are not repeated"));
        }
    }

    /// What steps are carried out with.
    pub(super) fn context(&self) -> Context {
        Context {
            aws: self.aws.clone(),
            cluster: self.target.cluster.clone(),
            cluster_name: self.settings.cluster.clone(),
            install_id: self.desired.installation.id.clone(),
        }
    }
}

fn host(global: &GlobalArgs) -> String {
    let from_system = || std::fs::read_to_string("/etc/hostname").ok();
    let host = global.host.clone().or_else(from_system).unwrap_or_default();
    Some(host.trim().to_owned())
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}

pub(super) fn record_file(
    global: &GlobalArgs,
    facts: &Facts,
    settings: &Settings,
) -> Option<PathBuf> {
    Some(journal::file(
        &global.records()?,
        &facts.caller.account,
        &settings.region,
        &settings.cluster,
    ))
}

/// A record doesn't hold the files that it was made from; status and uninstall can do without them.
fn without_missing_manifests(
    mut config: tenon_installer_core::settings::config::Config,
) -> tenon_installer_core::settings::config::Config {
    if !config.defaults.manifests.iter().all(|file| file.exists()) {
        config.defaults.manifests.clear();
        config.defaults.enabled = Some(false);
    }
    config
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenon_installer_core::testing::Double;

    use super::*;

    #[tokio::test]
    async fn a_node_says_in_which_region_the_cluster_is() {
        let list = |items: Value| {
            json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {}, "items": items,
            })
        };
        let node =
            json!({ "metadata": { "name": "a", "labels": { labels::REGION: "eu-west-3" } } });
        let region = async |answer| {
            let api = Double::start(&[("/api/v1/nodes", answer)]).await;
            region_of_nodes(&api.cluster().client()).await
        };
        let found = region(list(json!([node]))).await.expect("it may be listed");
        assert_eq!(found.as_deref(), Some("eu-west-3"));
        assert_eq!(region(list(json!([]))).await.expect("it may be listed"), None);
        let error = region(Double::denied()).await.expect_err("it may not be listed");
        assert!(error.message().contains("nodes"), "{}", error.message());
    }
}
