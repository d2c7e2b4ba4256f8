//! Removes an installation: nodes first, while the operator can still drain them, then the operator, then what it lived on, and the record last.
//!
//! The order is the whole point: without its operator a node costs money for ever, and without its role or queue the operator can't drain. A finalizer
//! is removed by hand only when the operator is gone, and only after what it protects is proven gone. Every step may be repeated, so an interrupted
//! uninstall is resumed by running it again.

mod guard;
mod inventory;
mod kept_nodes;
mod mode;
mod nodes;
mod objects;
mod proof;
pub mod resources;
pub mod risk;
mod steps;
mod stranded;

use std::path::PathBuf;
use std::time::Duration;

use kube::api::PropagationPolicy;

pub use guard::guard;
pub use inventory::Inventory;
pub use mode::{Mode, Side};
pub use proof::{Proof, Query};
pub(crate) use stranded::{prove_terminated, remove_instances};

use crate::apply::{Context, FaultCounter, aws_auth, ec2, eks, iam, messaging, release};
use crate::desired::Desired;
use crate::errors::{ExpectedError, Failure};
use crate::journal::Journal;
use crate::kubernetes::client::KubeError;
use crate::kubernetes::object::Object;
use crate::observe;
use crate::observe::world;
use crate::printer::Printer;
use steps::Task;

/// How long pods may take to leave their nodes when we drain them ourselves and nobody said how long.
const EVICT_FOR: Duration = Duration::from_mins(5);

/// How to uninstall.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is removed.
    pub mode: Mode,
    /// How long pods may take to leave their nodes; without it as long as their budgets want, if the operator drains them.
    pub drain_timeout: Option<Duration>,
    /// How long any one wait may take.
    pub timeout: Duration,
    /// For tests of resuming: abort right after this many steps.
    pub fault_after: Option<usize>,
    /// Where the backup of NodePools and NodeClasses goes.
    pub backup_dir: Option<PathBuf>,
}

impl Options {
    /// How long pods may take when there is no operator to wait for.
    fn evict_for(&self) -> Duration {
        self.drain_timeout.unwrap_or(EVICT_FOR)
    }
}

/// Carries an uninstall out.
pub struct Remover<'a> {
    context: Context,
    desired: &'a Desired,
    namespace: &'a str,
    options: Options,
    journal: Journal,
    printer: Printer,
    counter: FaultCounter,
    removed: Vec<String>,
}

impl<'a> Remover<'a> {
    /// For an installation that would look like `desired`.
    pub fn new(
        context: Context,
        desired: &'a Desired,
        namespace: &'a str,
        options: Options,
        journal: Journal,
        printer: Printer,
    ) -> Self {
        let counter = FaultCounter::new(options.fault_after);
        Self {
            context,
            desired,
            namespace,
            options,
            journal,
            printer,
            counter,
            removed: Vec::new(),
        }
    }

    /// Removes everything in order, then looks whether anything is left.
    pub async fn run(mut self, mut inventory: Inventory) -> Result<Proof, ExpectedError> {
        if inventory.is_empty() {
            return Ok(Proof::default());
        }
        // Where there are no nodes, there is nothing to keep for them.
        self.options.mode.keep_nodes &= inventory.has_nodes();
        let mode = self.options.mode;
        let mut kept = Vec::from_iter(inventory.provider_stays.clone());
        kept.extend(mode.narrow(&mut inventory, self.desired));
        if inventory.has_node_objects() {
            self.back_up(&inventory)?;
        }
        if mode.keep_nodes {
            self.stop_operator(&inventory).await?;
            self.release_nodes(&inventory).await?;
        } else {
            self.remove_nodes(&inventory).await?;
            self.stop_operator(&inventory).await?;
        }
        self.remove_rest(&inventory, &mut kept).await?;
        self.remove_namespace(&inventory).await?;
        let (left, queries) = Box::pin(self.look_again()).await?;
        let done = self.counter.done();
        let Self { mut journal, mut removed, .. } = self;
        let failed = |source| ExpectedError::Step { step: "record".to_owned(), done, source };
        if !left.is_empty() {
            return Ok(Proof { removed, kept, left, queries });
        }
        if mode.keep_nodes {
            journal.finish().await.map_err(|error| failed(Failure::Journal(error)))?;
        } else {
            let gone = match mode.side {
                Side::Kubernetes => journal.leave_cluster().await,
                Side::Both | Side::Aws => journal.remove().await,
            };
            gone.map_err(|error| failed(error.into()))?;
            removed.push("the record of the installation".to_owned());
        }
        Ok(Proof { removed, kept, left, queries })
    }

    /// NodePools, NodeClaims and NodeClasses as they are, in a file that `kubectl apply` takes.
    fn back_up(&self, inventory: &Inventory) -> Result<(), ExpectedError> {
        let Some(dir) = &self.options.backup_dir else { return Ok(()) };
        let stamp = crate::clock::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let file = dir.join(format!("backup-{}-{stamp}.yaml", self.context.cluster_name));
        let failed =
            |source| ExpectedError::File { operation: "write", path: file.clone(), source };
        std::fs::create_dir_all(dir).map_err(failed)?;
        std::fs::write(&file, inventory.backup()).map_err(failed)?;
        self.printer
            .note(&format!(" NodePools and EC2NodeClasses are saved in {}", file.display()));
        Ok(())
    }

    /// The Deployment with its pods: nobody is left then who needs the rest.
    async fn stop_operator(&mut self, inventory: &Inventory) -> Result<(), ExpectedError> {
        let context = &self.context.clone();
        let timeout = self.options.timeout;
        let deployments = inventory.operator.iter().filter(|object| object.is_deployment());
        let remove = |object| Task::object(context, object, PropagationPolicy::Foreground, timeout);
        self.steps(deployments.map(remove).collect()).await
    }

    /// What the operator lived on. Most of it has no order; the queue goes after the rules that send to it, and roles after what holds them.
    async fn remove_rest(
        &mut self,
        inventory: &Inventory,
        kept: &mut Vec<String>,
    ) -> Result<(), ExpectedError> {
        let context = &self.context.clone();
        let timeout = self.options.timeout;
        let crds = self.unused_crds(inventory, kept).await?;
        let others = inventory.operator.iter().filter(|object| !object.is_deployment());
        let objects = others.chain(&inventory.lease).chain(crds);
        let mut tasks = objects
            .map(|object| Task::object(context, object, PropagationPolicy::Background, timeout))
            .collect::<Vec<_>>();
        if !inventory.releases.is_empty() {
            let delete = release::delete(context, self.namespace, &inventory.releases);
            tasks.push(Task::new("helm-release", "Helm release", delete));
        }
        tasks.extend(self.swept(inventory, context).await?);
        tasks.extend(in_aws(self.desired, inventory, context));
        self.steps(tasks).await?;
        let mut last = Vec::new();
        if let Some((name, url)) = &inventory.queue {
            let delete = messaging::delete_queue(&context.aws, url, name);
            last.push(Task::new("queue", format!("SQS queue {name}"), delete));
        }
        last.extend(inventory.roles.iter().map(|name| {
            let delete = iam::delete_role(&context.aws, &context.install_id, name);
            Task::new(format!("role/{name}"), format!("IAM role {name}"), delete)
        }));
        self.steps(last).await
    }

    /// CRDs without objects. Removing one with objects would remove those, too, and wait for their finalizers.
    async fn unused_crds<'i>(
        &self,
        inventory: &'i Inventory,
        kept: &mut Vec<String>,
    ) -> Result<Vec<&'i Object>, ExpectedError> {
        let cluster = &self.context.cluster;
        let looks = inventory.crds.iter().filter_map(|crd| {
            let served = resources::served_by(&crd.body)?;
            Some(async move { Ok((crd, cluster.list(&served).await?.len())) })
        });
        let found = futures::future::try_join_all(looks).await;
        let found = found.map_err(|error: KubeError| ExpectedError::Observe(error.into()))?;
        let (unused, used): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, objects)| *objects == 0);
        kept.extend(used.into_iter().map(|(crd, objects)| {
            format!("{}: there are still {}", crd.key(), crate::errors::count(objects, "object"))
        }));
        Ok(unused.into_iter().map(|(crd, _)| crd).collect())
    }

    /// Launch templates and instance profiles that the operator made and did not get to remove.
    async fn swept<'t>(
        &self,
        inventory: &Inventory,
        context: &'t Context,
    ) -> Result<Vec<Task<'t>>, ExpectedError> {
        if self.options.mode.keep_nodes || self.options.mode.side == Side::Aws {
            // Nodes hold the profiles; and in AWS alone, what was found was found just now.
            let templates = inventory.launch_templates.iter().cloned();
            let profiles = inventory.instance_profiles.iter().cloned();
            return Ok(templates
                .map(|id| launch_template(context, id))
                .chain(profiles.map(|name| instance_profile(context, name)))
                .collect());
        }
        // Asked anew: the operator has removed most of what was there before.
        let path = self.desired.scope.instance_profile_path();
        let (templates, profiles) = tokio::try_join!(
            observe::ec2::launch_templates(&context.aws, &self.desired.scope),
            observe::iam::instance_profiles(&context.aws, &path),
        )
        .map_err(|error| ExpectedError::Observe(error.into()))?;
        Ok(templates
            .into_iter()
            .map(|id| launch_template(context, id))
            .chain(profiles.into_iter().map(|name| instance_profile(context, name)))
            .collect())
    }

    async fn remove_namespace(&mut self, inventory: &Inventory) -> Result<(), ExpectedError> {
        let context = &self.context.clone();
        let timeout = self.options.timeout;
        let namespace = inventory.namespace.iter();
        let remove = |object| Task::object(context, object, PropagationPolicy::Background, timeout);
        self.steps(namespace.map(remove).collect()).await
    }

    /// The proof: the same queries as at the beginning, and they must find nothing. Lists of EC2 lag behind, so it is asked until two answers agree.
    async fn look_again(&self) -> Result<(Vec<String>, Vec<Query>), ExpectedError> {
        let mut before = None;
        for _ in 0..10 {
            let world =
                Box::pin(world::read(&self.context.aws, &self.context.cluster, self.desired))
                    .await
                    .map_err(ExpectedError::Observe)?;
            let mut inventory =
                Inventory::read(&self.context, self.desired, &world, self.namespace).await?;
            inventory.has_record = false;
            self.options.mode.narrow(&mut inventory, self.desired);
            let found = (inventory.lines(), proof::queries(self.desired, &inventory));
            if before.as_ref() == Some(&found) {
                return Ok(found);
            }
            before = Some(found);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(before.unwrap_or_default())
    }
}

/// Steps in AWS that need no other.
fn in_aws<'t>(
    desired: &'t Desired,
    inventory: &'t Inventory,
    context: &'t Context,
) -> Vec<Task<'t>> {
    let mut tasks = Vec::new();
    if let Some(id) = &inventory.association {
        let delete = eks::delete_association(context, id);
        tasks.push(Task::new("association", "Pod Identity association", delete));
    }
    if let Some(name) = &inventory.fargate {
        let delete = eks::delete_fargate(context, name);
        tasks.push(Task::new("fargate", format!("Fargate profile {name}"), delete));
    }
    if let Some(role) = &inventory.aws_auth {
        let unmap = aws_auth::unmap(context);
        tasks.push(Task::new("aws-auth", format!("{role} in aws-auth"), unmap));
    }
    if let Some(arn) = &inventory.access_entry {
        let delete = eks::delete_access_entry(context, arn);
        tasks.push(Task::new("access-entry", "EKS access entry", delete));
    }
    for (name, targets) in &inventory.rules {
        let delete = messaging::delete_rule(&context.aws, name, targets);
        let what = format!("EventBridge rule {name}");
        tasks.push(Task::new(format!("rule/{name}"), what, delete));
    }
    for id in &inventory.marked {
        let untag = ec2::untag(context, id, &desired.discovery_tags);
        let what = format!("discovery tag of {id}");
        tasks.push(Task::new(format!("discovery/{id}"), what, untag));
    }
    tasks.extend(inventory.profile.iter().map(|name| instance_profile(context, name.clone())));
    if let Some(arn) = &inventory.provider {
        let delete = iam::delete_provider(context, arn);
        tasks.push(Task::new("oidc-provider", "identity provider", delete));
    }
    tasks
}

fn launch_template(context: &Context, id: String) -> Task<'_> {
    let (step, what) = (format!("launch-template/{id}"), format!("launch template {id}"));
    Task::new(step, what, async move { ec2::delete_launch_template(&context.aws, &id).await })
}

fn instance_profile(context: &Context, name: String) -> Task<'_> {
    let (step, what) = (format!("instance-profile/{name}"), format!("instance profile {name}"));
    Task::new(step, what, async move { iam::delete_instance_profile(&context.aws, &name).await })
}
