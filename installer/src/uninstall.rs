//! Removes an installation: nodes first, while the operator can still drain them, then the
//! operator, then what it lived on, and the record last.
//!
//! The order is the whole point: without its operator a node costs money for ever, and without its
//! role or queue the operator can't drain. A finalizer is removed by hand only when the operator is
//! gone, and only after what it protects is proven gone. Every step may be repeated, so an
//! interrupted uninstall is resumed by running it again.

mod abandoned;
mod adopted;
mod crds;
mod discovery;
pub(crate) mod former;
mod guard;
mod inventory;
mod kept_nodes;
mod mode;
mod namespace;
mod nodes;
mod objects;
mod pools;
mod proof;
mod removal;
mod repair;
pub(crate) mod risk;
mod steps;
mod stranded;

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::ResourceExt;
use tenon_installer_core::apply::{Context, FaultCounter, StepError};
use tenon_installer_core::desired::Desired;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::files::FileError;
use tenon_installer_core::journal::Journal;
use tenon_installer_core::kubernetes::client::KubeError;
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::observe::{self, actual};
use tenon_installer_core::words::{count, some};

pub(crate) use abandoned::Abandoned;
pub(crate) use crds::keep_used;
pub(crate) use discovery::{Nodes, own_leases};
pub(crate) use guard::guard;
pub(crate) use inventory::Inventory;
pub(crate) use mode::{Mode, Side};
pub(crate) use nodes::{OperatorWatch, POLL, is_available, operator_lives, waiting_for};
pub(crate) use objects::delete_all;
pub(crate) use pools::{Motion, frozen_in_words, set_motion, set_motion_of};
pub(crate) use proof::{Proof, Query};
pub(crate) use removal::Removal;
pub(crate) use repair::repair;
pub(crate) use stranded::{ClaimRemoval, prove_terminated, release_classes, remove_instances};

use crate::errors::ExpectedError;
use crate::printer::Printer;
use steps::Task;

/// How long pods may take to leave their nodes when we drain them ourselves and nobody said how
/// long.
pub(crate) const EVICT_FOR: Duration = Duration::from_mins(5);

/// How to uninstall.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// What is removed.
    pub mode: Mode,
    /// How long pods may take to leave their nodes; without it as long as their budgets want, if
    /// the operator drains them.
    pub drain_timeout: Option<Duration>,
    /// How long any one wait may take.
    pub timeout: Duration,
    /// How many NodePools are drained at once; all, if `None`.
    pub parallel: Option<usize>,
    /// Claims are let go of although their instances can't be proven gone.
    pub abandon: bool,
    /// For tests of resuming: abort right after this many steps.
    pub fault_after: Option<usize>,
    /// Where the backup of NodePools, NodeClasses and NodeOverlays goes.
    pub backup_dir: Option<PathBuf>,
}

impl Options {
    /// How long pods may take when there is no operator to wait for.
    fn evict_for(&self) -> Duration {
        self.drain_timeout.unwrap_or(EVICT_FOR)
    }
}

/// Carries an uninstall out.
pub(crate) struct Remover<'a> {
    context: Context,
    desired: &'a Desired,
    namespace: &'a str,
    options: Options,
    journal: Journal,
    printer: Printer,
    counter: FaultCounter,
    removed: Vec<String>,
    abandoned: Abandoned,
}

impl<'a> Remover<'a> {
    /// For an installation that would look like `desired`.
    pub(crate) fn new(
        context: Context,
        desired: &'a Desired,
        namespace: &'a str,
        options: Options,
        journal: Journal,
        printer: Printer,
    ) -> Self {
        let counter = FaultCounter::new(options.fault_after);
        let abandoned = Abandoned::new(options.abandon);
        Self {
            abandoned,
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
    pub(crate) async fn run(mut self, mut inventory: Inventory) -> Result<Proof, ExpectedError> {
        if inventory.is_empty() {
            return Ok(Proof::default());
        }
        // Where there are no nodes, there is nothing to keep for them.
        self.options.mode.keep_nodes &= inventory.nodes.has_any();
        let mode = self.options.mode;
        let mut kept = Vec::from_iter(inventory.provider_stays.clone());
        kept.extend(mode.narrow(&mut inventory, self.desired));
        if inventory.nodes.objects() > 0 {
            self.back_up(&inventory)?;
        }
        if mode.keep_nodes {
            self.stop_operator(&mut inventory).await?;
            self.release_nodes(&inventory).await?;
        } else {
            self.remove_nodes(&inventory).await?;
            self.stop_operator(&mut inventory).await?;
        }
        self.remove_overlays(&inventory).await?;
        if mode.side == Side::Both && !mode.keep_nodes {
            Box::pin(self.leave_adopted(&mut kept)).await?;
        }
        self.remove_rest(&inventory, &mut kept).await?;
        let (left, queries) = Box::pin(self.observe_again(&inventory)).await?;
        let abandoned = self.abandoned.ids();
        // As long as something is left, the record says whose it is, and its namespace stays with
        // it.
        if !left.is_empty() || !abandoned.is_empty() {
            kept.extend(
                inventory
                    .namespace
                    .map(|namespace| format!("{} (it holds the record)", namespace.key())),
            );
            return Ok(Proof { removed: self.removed, kept, left, abandoned, queries });
        }
        self.remove_namespace(&inventory, &mut kept).await?;
        let done = self.counter.done();
        let Self { mut journal, mut removed, .. } = self;
        let failed =
            |source| ExpectedError::Step(StepError { step: "record".to_owned(), done, source });
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
        Ok(Proof { removed, kept, left, abandoned, queries })
    }

    /// NodePools, NodeClasses and NodeOverlays as they are, in a file that `kubectl apply` takes.
    fn back_up(&self, inventory: &Inventory) -> Result<(), ExpectedError> {
        let Some(dir) = &self.options.backup_dir else { return Ok(()) };
        let stamp = tenon_installer_core::clock::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let name = format!("backup-{}-{stamp}", self.context.cluster_name);
        let file = save_anew(dir, &name, &inventory.backup())?;
        self.printer.note(&format!(
            " NodePools, EC2NodeClasses and NodeOverlays are saved in {}",
            file.display()
        ));
        Ok(())
    }

    /// The Deployment with its pods: nobody is left then who needs the rest.
    async fn stop_operator(&mut self, inventory: &mut Inventory) -> Result<(), ExpectedError> {
        let deployments = inventory.deployments();
        if deployments.is_empty() {
            return Ok(());
        }
        self.remove(deployments).await?;
        // An operator that had only just come up has taken its Lease since we looked.
        let places = &inventory.known.lease_places;
        inventory.leases = own_leases(&self.context.cluster, places).await?;
        Ok(())
    }

    /// NodeOverlays, once there is no operator that would decide anew without them.
    async fn remove_overlays(&mut self, inventory: &Inventory) -> Result<(), ExpectedError> {
        let names = inventory.nodes.overlays.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        if names.is_empty() {
            return Ok(());
        }
        let context = self.context.clone();
        let delete = delete_all(&context.cluster, resources::node_overlays(), &names);
        self.step("nodeoverlays", &format!("NodeOverlays {}", names.join(", ")), delete).await
    }

    /// What the operator lived on. Most of it has no order; the queue goes after the rules that
    /// send to it, and roles after what holds them.
    async fn remove_rest(
        &mut self,
        inventory: &Inventory,
        kept: &mut Vec<String>,
    ) -> Result<(), ExpectedError> {
        let mut free = self.unused_crds(inventory, kept).await?;
        free.extend(inventory.free());
        free.extend(self.made_by_operator(inventory).await?);
        self.remove(free).await?;
        self.remove(inventory.last()).await
    }

    /// Removes things that need no order.
    async fn remove(&mut self, things: Vec<Removal>) -> Result<(), ExpectedError> {
        let context = &self.context.clone();
        let timeout = self.options.timeout;
        let tasks = things
            .iter()
            .map(|thing| Task::new(thing.id(), thing.what(), thing.perform(context, timeout)));
        self.steps(tasks.collect()).await
    }

    /// CRDs without objects.
    async fn unused_crds(
        &self,
        inventory: &Inventory,
        kept: &mut Vec<String>,
    ) -> Result<Vec<Removal>, ExpectedError> {
        let found = crds::Use::of(&self.context.cluster, &inventory.crds).await;
        let mut unused = Vec::new();
        for found in found.map_err(|error: KubeError| ExpectedError::Observe(error.into()))? {
            match found.why() {
                Some(why) => kept.push(why),
                None => unused.push(Removal::Object(found.crd)),
            }
        }
        Ok(unused)
    }

    /// Launch templates and instance profiles that the operator made and did not get to remove.
    async fn made_by_operator(&self, inventory: &Inventory) -> Result<Vec<Removal>, ExpectedError> {
        if self.options.mode.keep_nodes || self.options.mode.side == Side::Aws {
            // Nodes hold the profiles; and in AWS alone, what was found was found just now.
            return Ok(inventory.nodes.made_by_operator());
        }
        // Asked anew: the operator has removed most of what was there before.
        let path = self.desired.scope.instance_profile_path();
        let (launch_templates, instance_profiles) = tokio::try_join!(
            observe::ec2::launch_templates(&self.context.aws, &self.desired.scope),
            observe::iam::instance_profiles(&self.context.aws, &path),
        )
        .map_err(|error| ExpectedError::Observe(error.into()))?;
        let left = Nodes { launch_templates, instance_profiles, ..Nodes::default() };
        Ok(left.made_by_operator())
    }

    /// The namespace, if nobody else has anything in it.
    async fn remove_namespace(
        &mut self,
        inventory: &Inventory,
        kept: &mut Vec<String>,
    ) -> Result<(), ExpectedError> {
        let Some(namespace) = &inventory.namespace else { return Ok(()) };
        let (cluster, id) = (&self.context.cluster, &self.context.install_id);
        match namespace::of_others(cluster, &namespace.name, id).await {
            Ok(others) if others.is_empty() => {
                self.remove(vec![Removal::Object(namespace.clone())]).await
            }
            Ok(others) => {
                let (all, names) = (count(others.len(), "object"), some(&others, 5));
                kept.push(format!(
                    "{}: it contains {all} of other owners: {names}",
                    namespace.key()
                ));
                Ok(())
            }
            // Whatever the reason: what can't be seen is not deleted.
            Err(error) => {
                kept.push(format!(
                    "{}: its other objects can't be listed ({error})",
                    namespace.key()
                ));
                Ok(())
            }
        }
    }

    /// The proof: the same queries as at the beginning, and they must find nothing but the record
    /// and its namespace, which go last. Lists of EC2 lag behind, so it is asked until two answers
    /// agree.
    async fn observe_again(
        &self,
        before: &Inventory,
    ) -> Result<(Vec<String>, Vec<Query>), ExpectedError> {
        let mut last = None;
        for _ in 0..10 {
            let actual = Box::pin(actual::read(
                &self.context.aws,
                &self.context.cluster,
                &self.desired.lookup(),
            ))
            .await
            .map_err(ExpectedError::Observe)?;
            let (context, desired, namespace) = (&self.context, self.desired, self.namespace);
            let mut inventory = before.left(context, desired, &actual, namespace).await?;
            inventory.has_record = false;
            inventory.namespace = None;
            self.options.mode.narrow(&mut inventory, self.desired);
            let used = keep_used(&self.context.cluster, &mut inventory).await;
            used.map_err(|error| ExpectedError::Observe(error.into()))?;
            let found = (inventory.lines(), proof::queries(self.desired, &inventory));
            if last.as_ref() == Some(&found) {
                return Ok(found);
            }
            last = Some(found);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(last.unwrap_or_default())
    }
}

/// Writes a file that was not there before, and answers which: somebody may have made one in the
/// same second.
pub(crate) fn save_anew(dir: &Path, name: &str, text: &str) -> Result<PathBuf, FileError> {
    std::fs::create_dir_all(dir).map_err(FileError::writing(dir))?;
    let mut n = 1;
    loop {
        let suffix = if n == 1 { String::new() } else { format!("-{n}") };
        let file = dir.join(format!("{name}{suffix}.yaml"));
        match std::fs::File::create_new(&file) {
            Ok(mut new) => {
                let written = new.write_all(text.as_bytes());
                return written.map_err(FileError::writing(&file)).map(|()| file);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => n += 1,
            Err(source) => return Err(FileError::writing(&file)(source)),
        }
    }
}

#[cfg(test)]
mod tests;
