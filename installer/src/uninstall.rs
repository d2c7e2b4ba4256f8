//! Removes an installation: nodes first, while the operator can still drain them, then the operator, then what it lived on, and the record last.
//!
//! The order is the whole point: without its operator a node costs money for ever, and without its role or queue the operator can't drain. A finalizer
//! is removed by hand only when the operator is gone, and only after what it protects is proven gone. Every step may be repeated, so an interrupted
//! uninstall is resumed by running it again.

mod inventory;
mod nodes;
pub mod resources;
pub mod risk;
mod stranded;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use kube::api::PropagationPolicy;
use tokio::time::Instant;

pub use inventory::Inventory;

use crate::apply::{Context, FaultCounter, aws_auth, ec2, eks, iam, messaging, release, wait};
use crate::desired::Desired;
use crate::errors::{ExpectedError, Failure};
use crate::journal::{Journal, State};
use crate::kubernetes::object::{Object, label};
use crate::observe;
use crate::observe::world;
use crate::ownership::INSTALL_ID;
use crate::printer::Printer;

/// How to uninstall.
#[derive(Debug, Clone)]
pub struct Options {
    /// Leave the CRDs.
    pub keep_crds: bool,
    /// How long pods may take to leave their nodes when we drain them ourselves.
    pub drain_timeout: Duration,
    /// How long any one wait may take.
    pub timeout: Duration,
    /// For tests of resuming: abort right after this many steps.
    pub fault_after: Option<usize>,
    /// Where the backup of NodePools and NodeClasses goes.
    pub backup_dir: Option<PathBuf>,
}

/// What an uninstall comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proof {
    /// What was removed.
    pub removed: Vec<String>,
    /// What was left on purpose, and why.
    pub kept: Vec<String>,
    /// What is still there although it should not be.
    pub left: Vec<String>,
}

impl Proof {
    /// For people.
    pub fn text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.kept.iter().map(|kept| format!("kept: {kept}")));
        if self.left.is_empty() {
            lines.push(format!("{} removed. Looked again for everything that bears this installation's mark or belongs to its nodes: nothing is left.", crate::errors::count(self.removed.len(), "thing")));
        } else {
            lines.push("Still there:".to_owned());
            lines.extend(self.left.iter().map(|left| format!("  {left}")));
        }
        lines
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
    pub async fn run(mut self, inventory: Inventory) -> Result<Proof, ExpectedError> {
        let mut kept = Vec::from_iter(inventory.provider_stays.clone());
        if inventory.is_empty() {
            return Ok(Proof::default());
        }
        if inventory.has_node_objects() {
            self.back_up(&inventory)?;
        }
        self.remove_nodes(&inventory).await?;
        self.remove_operator(&inventory).await?;
        if self.options.keep_crds {
            kept.extend(inventory.crds.iter().map(|crd| format!("{} (--keep-crds)", crd.key())));
        } else {
            self.remove_crds(&inventory, &mut kept).await?;
        }
        self.remove_aws(&inventory).await?;
        self.remove_namespace(&inventory).await?;
        let left = Box::pin(self.look_again()).await?;
        if left.is_empty() {
            let done = self.counter.done();
            let Self { journal, mut removed, .. } = self;
            journal.remove().await.map_err(|error| ExpectedError::Step {
                step: "record".to_owned(),
                done,
                source: error.into(),
            })?;
            removed.push("the record of the installation".to_owned());
            return Ok(Proof { removed, kept, left });
        }
        Ok(Proof { removed: self.removed, kept, left })
    }

    /// Notes a step, takes it, notes that it was taken.
    async fn step<F>(&mut self, id: &str, what: &str, action: F) -> Result<(), ExpectedError>
    where
        F: Future<Output = Result<(), Failure>>,
    {
        let began = Instant::now();
        let done = self.counter.done();
        let failed = |source: Failure| ExpectedError::Step { step: id.to_owned(), done, source };
        self.journal
            .note(id, State::Begun)
            .await
            .map_err(|error| failed(Failure::Journal(error)))?;
        if let Err(error) = action.await {
            let _ = self.journal.note(id, State::Failed).await;
            return Err(failed(error));
        }
        self.counter.step_done();
        let _ = self.journal.note(id, State::Done).await;
        self.printer.done(what, "removed", began.elapsed());
        self.removed.push(what.to_owned());
        Ok(())
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

    async fn remove_operator(&mut self, inventory: &Inventory) -> Result<(), ExpectedError> {
        let context = self.context.clone();
        let timeout = self.options.timeout;
        // The Deployment first and with its pods, so that nobody is left who needs the rest.
        let (deployments, others): (Vec<_>, Vec<_>) =
            inventory.operator.iter().partition(|object| object.resource.kind == "Deployment");
        for object in deployments {
            self.step(
                &step_id(object),
                &object.key().to_string(),
                delete_and_wait(&context, object, PropagationPolicy::Foreground, timeout),
            )
            .await?;
        }
        for object in others.into_iter().rev() {
            self.step(
                &step_id(object),
                &object.key().to_string(),
                delete_and_wait(&context, object, PropagationPolicy::Background, timeout),
            )
            .await?;
        }
        if !inventory.releases.is_empty() {
            self.step(
                "helm-release",
                "Helm release",
                release::delete(&context, self.namespace, &inventory.releases),
            )
            .await?;
        }
        if let Some(lease) = &inventory.lease {
            self.step(
                &step_id(lease),
                &lease.key().to_string(),
                delete_and_wait(&context, lease, PropagationPolicy::Background, timeout),
            )
            .await?;
        }
        Ok(())
    }

    async fn remove_crds(
        &mut self,
        inventory: &Inventory,
        kept: &mut Vec<String>,
    ) -> Result<(), ExpectedError> {
        let context = self.context.clone();
        let timeout = self.options.timeout;
        for crd in &inventory.crds {
            let Some(served) = resources::served_by(&crd.body) else { continue };
            let objects = context
                .cluster
                .list(&served)
                .await
                .map_err(|error| ExpectedError::Observe(error.into()))?;
            if objects.is_empty() {
                self.step(
                    &step_id(crd),
                    &crd.key().to_string(),
                    delete_and_wait(&context, crd, PropagationPolicy::Background, timeout),
                )
                .await?;
            } else {
                kept.push(format!(
                    "{}: there are still {}",
                    crd.key(),
                    crate::errors::count(objects.len(), "object")
                ));
            }
        }
        Ok(())
    }

    async fn remove_aws(&mut self, inventory: &Inventory) -> Result<(), ExpectedError> {
        let context = self.context.clone();
        self.sweep(inventory).await?;
        if let Some(id) = &inventory.association {
            self.step(
                "association",
                "Pod Identity association",
                eks::delete_association(&context, id),
            )
            .await?;
        }
        if let Some(name) = &inventory.fargate {
            self.step(
                "fargate",
                &format!("Fargate profile {name}"),
                eks::delete_fargate(&context, name),
            )
            .await?;
        }
        if let Some(role) = &inventory.aws_auth {
            self.step("aws-auth", &format!("{role} in aws-auth"), aws_auth::unmap(&context))
                .await?;
        }
        if let Some(arn) = &inventory.access_entry {
            self.step("access-entry", "EKS access entry", eks::delete_access_entry(&context, arn))
                .await?;
        }
        for (name, targets) in &inventory.rules {
            self.step(
                &format!("rule/{name}"),
                &format!("EventBridge rule {name}"),
                messaging::delete_rule(&context, name, targets),
            )
            .await?;
        }
        if let Some((name, url)) = &inventory.queue {
            self.step(
                "queue",
                &format!("SQS queue {name}"),
                messaging::delete_queue(&context, url, name),
            )
            .await?;
        }
        let tags = self.desired.discovery_tags.clone();
        for id in &inventory.marked {
            self.step(
                &format!("discovery/{id}"),
                &format!("discovery tag of {id}"),
                ec2::untag(&context, id, &tags),
            )
            .await?;
        }
        if let Some(name) = &inventory.profile {
            self.step(
                &format!("instance-profile/{name}"),
                &format!("instance profile {name}"),
                iam::delete_instance_profile(&context, name),
            )
            .await?;
        }
        if let Some(arn) = &inventory.provider {
            self.step("oidc-provider", "identity provider", iam::delete_provider(&context, arn))
                .await?;
        }
        for name in &inventory.roles {
            self.step(
                &format!("role/{name}"),
                &format!("IAM role {name}"),
                iam::delete_role(&context, name),
            )
            .await?;
        }
        Ok(())
    }

    /// Launch templates and instance profiles that the operator made and did not get to remove.
    async fn sweep(&mut self, inventory: &Inventory) -> Result<(), ExpectedError> {
        let context = self.context.clone();
        let observe = |error: crate::aws::AwsError| ExpectedError::Observe(error.into());
        // Asked anew: the operator has removed most of what was there before.
        let templates = observe::ec2::launch_templates(&context.aws, &self.desired.scope)
            .await
            .map_err(observe)?;
        for id in templates {
            self.step(
                &format!("launch-template/{id}"),
                &format!("launch template {id}"),
                ec2::delete_launch_template(&context, &id),
            )
            .await?;
        }
        let profiles = observe::iam::instance_profiles(
            &context.aws,
            &self.desired.scope.instance_profile_path(),
        )
        .await
        .map_err(observe)?;
        for name in profiles {
            self.step(
                &format!("instance-profile/{name}"),
                &format!("instance profile {name}"),
                iam::delete_instance_profile(&context, &name),
            )
            .await?;
        }
        tracing::debug!(
            before = inventory.launch_templates.len() + inventory.instance_profiles.len(),
            "swept"
        );
        Ok(())
    }

    async fn remove_namespace(&mut self, inventory: &Inventory) -> Result<(), ExpectedError> {
        let Some(namespace) = &inventory.namespace else { return Ok(()) };
        let context = self.context.clone();
        let timeout = self.options.timeout;
        self.step(
            &step_id(namespace),
            &namespace.key().to_string(),
            delete_and_wait(&context, namespace, PropagationPolicy::Background, timeout),
        )
        .await
    }

    /// The proof: the same queries as at the beginning, and they must find nothing. Lists of EC2 lag behind, so it is asked until two answers agree.
    async fn look_again(&self) -> Result<Vec<String>, ExpectedError> {
        let mut before: Option<Vec<String>> = None;
        for _ in 0..10 {
            let world =
                Box::pin(world::read(&self.context.aws, &self.context.cluster, self.desired))
                    .await
                    .map_err(ExpectedError::Observe)?;
            let mut inventory =
                Inventory::read(&self.context, self.desired, &world, self.namespace).await?;
            inventory.has_record = false;
            if self.options.keep_crds {
                inventory.crds.clear();
            }
            let left = inventory.lines();
            if before.as_ref() == Some(&left) {
                return Ok(left);
            }
            before = Some(left);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(before.unwrap_or_default())
    }
}

fn step_id(object: &Object) -> String {
    format!("{}/{}", object.resource.kind, object.name)
}

/// Deletes an object of ours, and waits until it is gone.
async fn delete_and_wait(
    context: &Context,
    object: &Object,
    propagation: PropagationPolicy,
    timeout: Duration,
) -> Result<(), Failure> {
    let key = object.key();
    wait::transient(wait::Tries::seconds(60), || {
        context.cluster.delete(&object.resource, &key, propagation.clone())
    })
    .await?;
    wait::until(
        &format!("{} to be gone", object.key()),
        timeout,
        Duration::from_millis(200),
        || async {
            Ok(match context.cluster.get(&object.resource, &object.key()).await? {
                None => Ok(()),
                // Deleted and made anew by somebody else is gone, too.
                Some(live)
                    if live.pointer("/metadata/deletionTimestamp").is_none()
                        && label(&live, INSTALL_ID).is_none()
                        && object.resource.kind != "Lease" =>
                {
                    Ok(())
                }
                Some(live) => {
                    let finalizers = live
                        .pointer("/metadata/finalizers")
                        .map(ToString::to_string)
                        .unwrap_or_default();
                    Err(format!("it is still there, with finalizers {finalizers}"))
                }
            })
        },
    )
    .await
}
