//! `tenon kops uninstall`: nodes first, while the operator can drain them, then the operator, its
//! CRDs and its queue. For an operator that does not run it waits a minute, then does its work.
//!
//! Nothing is recorded: what is there tells the next run what is left.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use serde_json::{Value, json};
use tenon_installer_core::apply::Context;
use tenon_installer_core::apply::ec2::delete_launch_template;
use tenon_installer_core::aws::Aws;
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::lease::Place;
use tenon_installer_core::kubernetes::object::{Object, label};
use tenon_installer_core::kubernetes::operator_deployment::{self, OperatorDeployment};
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::observe::{ec2, facts, labelled};
use tenon_installer_core::ownership::INSTALL_ID;
use tenon_installer_core::plan::{Action, Op, Plan, Step, step_id};
use tenon_installer_core::words::some;
use tokio::time::{Instant, sleep};

use super::super::kops_cluster::KopsCluster;
use super::super::kops_observation::{NO_REGION, connect, region};
use super::super::session::{observe_failed, take_lock_of};
use super::super::uninstall::{confirm, enough_room, risk_of_nodes};
use super::addon::apply;
use super::{lock_file, unfit};
use crate::cli::GlobalArgs;
use crate::cli::kops::UninstallArgs;
use crate::errors::ExpectedError;
use crate::exit_codes::EXIT_PARTIAL;
use crate::kops::augment::{Events, Wanted, is_of_add_on};
use crate::kops::operator;
use crate::printer::{Printer, StatusLine};
use crate::uninstall::{
    Abandoned, ClaimRemoval, EVICT_FOR, Inventory, Nodes, OperatorWatch, POLL, delete_all,
    is_available, own_leases, release_classes, remove_instances, save_anew, waiting_for,
};

/// The schema of the report.
const SCHEMA: &str = "tenon.sh/kops-uninstall/v1alpha1";

/// Where it is removed from.
struct Installation {
    name: String,
    kube: Cluster,
    aws: Aws,
    wanted: Wanted,
    deployment: Object,
}

/// What there is.
struct Found {
    inventory: Inventory,
    events: Events,
    /// The Deployment with the name of the operator's, whoever has installed it.
    live: Option<Value>,
    /// Tenon's operator, under whatever name.
    operator: Option<OperatorDeployment>,
}

pub(super) async fn run(
    global: &GlobalArgs,
    args: &UninstallArgs,
    printer: Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let installation = Installation::find(global).await?;
    let kube = &installation.kube;
    printer.note(&format!("kOps cluster {}, by kubeconfig", installation.name));
    let file = lock_file(global, &installation.name);
    let take_lock = || take_lock_of(kube, file.as_deref(), global, "kops uninstall", cleanup);
    let mut lock = None;
    if args.consent.yes && !args.consent.dry_run {
        lock = Some(take_lock().await?);
    }
    let found = installation.look().await?;
    let risk = risk_of_nodes(kube, &found.inventory).await?;
    let goes = found.inventory.lines();
    let report = |removed: &[String], left: &[String]| {
        json!({
            "schema": SCHEMA,
            "cluster": installation.name,
            "inventory": goes,
            "risk": risk,
            "removed": removed,
            "left": left,
        })
    };
    if goes.is_empty() {
        printer.json(&report(&[], &[]));
        printer.prose("Nothing to do: nothing of Tenon is there.");
        return Ok(0);
    }
    let mut lines = goes.iter().cloned().chain(risk.lines()).collect::<Vec<_>>();
    if found.inventory.nodes.need_operator() && !found.live.as_ref().is_some_and(is_available) {
        lines.push(
            "the operator does not run: unless it does within a minute, tenon drains the nodes and \
             terminates their instances itself"
                .to_owned(),
        );
    }
    if args.consent.dry_run {
        printer.json(&report(&[], &[]));
        printer.text(&lines.join("\n"));
        return Ok(0);
    }
    for line in &lines {
        printer.note(line);
    }
    if !args.force_capacity {
        enough_room(&risk)?;
    }
    if lock.is_none() {
        confirm(global, &installation.name).await?;
        lock = Some(take_lock().await?);
        if installation.look().await?.inventory.lines() != goes {
            return Err(unfit(vec!["something has changed since: review the list again".into()]));
        }
    }
    installation.remove_nodes(global, &found.inventory, args, printer).await?;
    let found = installation.observe().await?;
    let reasons = installation.against(&found);
    if !reasons.is_empty() {
        let what = "the nodes are gone, and all else stays".to_owned();
        return Err(ExpectedError::Unfit { what, reasons });
    }
    let plan = found.rest(&installation.wanted);
    apply(global, installation.context(), plan, printer).await?;
    drop(lock);
    let left = installation.observe().await?.inventory.lines();
    let is_clean = left.is_empty();
    printer.json(&report(if is_clean { &goes } else { &[] }, &left));
    if !is_clean {
        printer.warn("not everything is gone: run the command again, or remove the rest yourself:");
        for line in &left {
            printer.text(line);
        }
        return Ok(EXIT_PARTIAL);
    }
    printer.prose("Tenon is removed, and nothing of it is left.");
    printer.note(
        "kOps keeps the operator's role until you remove its entry of \
         spec.iam.serviceAccountExternalPermissions with `kops edit cluster` and run `kops update \
         cluster --yes`",
    );
    Ok(0)
}

impl Installation {
    async fn find(global: &GlobalArgs) -> Result<Self, ExpectedError> {
        let KopsCluster { name, kube } = connect(global).await?;
        let Some(region) = region(global, &kube).await? else {
            return Err(unfit(vec![NO_REGION.to_owned()]));
        };
        let aws = global.connect_region(&region).await?;
        let caller = facts::read_caller(&aws).await.map_err(observe_failed)?;
        let wanted = Wanted::new(&name, &region, &caller.account);
        let deployment = operator::deployment();
        let deployment = Object::at(&operator::deployments(), &deployment);
        Ok(Self { name, kube, aws, wanted, deployment })
    }

    fn context(&self) -> Context {
        Context {
            aws: self.aws.clone(),
            cluster: self.kube.clone(),
            cluster_name: self.name.clone(),
            install_id: self.wanted.installation.id.clone(),
        }
    }

    /// What is there, or why it must stay.
    async fn look(&self) -> Result<Found, ExpectedError> {
        let found = self.observe().await?;
        let reasons = self.against(&found);
        if reasons.is_empty() { Ok(found) } else { Err(unfit(reasons)) }
    }

    async fn observe(&self) -> Result<Found, ExpectedError> {
        let (kube, id) = (&self.kube, &self.wanted.installation.id);
        let list = async |resource: ApiResource| kube.list(&resource).await;
        let (resource, expected) = (&self.deployment.resource, self.deployment.key());
        let lists = async {
            tokio::try_join!(
                list(resources::node_pools()),
                list(resources::node_claims()),
                list(resources::node_classes()),
                list(resources::node_overlays()),
                labelled::read_all(kube, id),
                kube.get(resource, &expected),
                operator_deployment::find(kube, &expected),
            )
            .map_err(observe_failed)
        };
        let in_aws = async {
            tokio::try_join!(
                Events::read(&self.aws, &self.wanted),
                ec2::instances(&self.aws, &self.wanted.scope),
                ec2::launch_templates(&self.aws, &self.wanted.scope),
            )
            .map_err(observe_failed)
        };
        let places = [Place::usual(operator::NAMESPACE)].into();
        let leases = own_leases(kube, &places);
        let (lists, (events, instances, launch_templates), leases) =
            tokio::try_join!(lists, in_aws, leases)?;
        let (pools, claims, classes, overlays, labelled, live, operator) = lists;
        let is_crd = |object: &Object| object.resource.kind == "CustomResourceDefinition";
        let (crds, objects) = labelled.into_iter().partition(is_crd);
        let mut inventory = Inventory::default();
        inventory.nodes.pools = pools;
        inventory.nodes.claims = claims;
        inventory.nodes.classes = classes;
        inventory.nodes.overlays = overlays;
        inventory.nodes.instances = instances;
        inventory.nodes.launch_templates = launch_templates;
        inventory.leases = leases;
        inventory.crds = crds;
        inventory.operator = objects;
        (inventory.rules, inventory.queue) = events.names(&self.wanted);
        Ok(Found { inventory, events, live, operator })
    }

    /// Why nothing may be removed, each with what to do. Without an operator of this installation,
    /// the NodePools and the queue may be those of another one.
    fn against(&self, found: &Found) -> Vec<String> {
        let mut reasons = found.events.against(&self.wanted);
        let is_other =
            |live: &&Value| label(live, INSTALL_ID) != Some(self.wanted.installation.id.as_str());
        let elsewhere = found.operator.as_ref().map(|operator| &operator.live);
        if let Some(other) = found.live.as_ref().or(elsewhere).filter(is_other) {
            let name = |key: &str| other["metadata"][key].as_str().unwrap_or_default();
            let other_name = format!("{}/{}", name("namespace"), name("name"));
            reasons.push(if is_of_add_on(other) {
                format!(
                    "Deployment {other_name} is kOps' Karpenter: `tenon kops augment --remove` \
                     removes what Tenon has added to it"
                )
            } else {
                format!(
                    "`tenon kops install` has not installed Deployment {other_name}: delete the \
                     NodePools (`kubectl delete nodepools --all`), wait until the NodeClaims are \
                     gone, then remove the operator with the tool that has installed it, and the \
                     queue with `tenon kops queue --remove`"
                )
            });
        } else if found.inventory.nodes.need_operator() && found.live.is_none() {
            reasons.push(
                "there is no operator, so the nodes may be those of another installation: run \
                 `tenon kops install` first"
                    .to_owned(),
            );
        }
        reasons
    }

    /// The operator drains and terminates nodes, and nothing that it needs for that is touched
    /// before they are gone. Where it does not run, its work is done here.
    async fn remove_nodes(
        &self,
        global: &GlobalArgs,
        inventory: &Inventory,
        args: &UninstallArgs,
        printer: Printer,
    ) -> Result<(), ExpectedError> {
        let Nodes { pools, classes, overlays, .. } = &inventory.nodes;
        if let Some(dir) = global.records().filter(|_| inventory.nodes.objects() > 0) {
            let stamp = tenon_installer_core::clock::now().strftime("%Y%m%dT%H%M%SZ");
            let name = format!("backup-{}-{stamp}", self.name);
            let file = save_anew(&dir, &name, &inventory.backup())?;
            printer.note(&format!(
                " NodePools, EC2NodeClasses and NodeOverlays are saved in {}",
                file.display()
            ));
        }
        let names = |objects: &[DynamicObject]| {
            objects.iter().map(DynamicObject::name_any).collect::<Vec<_>>()
        };
        let (context, scope) = (self.context(), &self.wanted.scope);
        let abandoned = Abandoned::new(false);
        let removal = ClaimRemoval {
            context: &context,
            evict_for: EVICT_FOR,
            timeout: args.timeout,
            abandoned: &abandoned,
        };
        let not_removed = |failure| not_removed(failure, args.timeout);
        let mut operator = OperatorWatch::new(&self.kube, Some(&self.deployment));
        self.delete(resources::node_pools(), &names(pools)).await?;
        let wait = Wait { timeout: args.timeout, printer };
        wait.until("NodeClaims and their nodes", async || {
            let claims = self.list(resources::node_claims()).await?;
            // A NodePool may have launched one while it was deleted.
            let is_left = |claim: &&DynamicObject| claim.metadata.deletion_timestamp.is_none();
            let left = claims.iter().filter(is_left).map(DynamicObject::name_any);
            self.delete(resources::node_claims(), &left.collect::<Vec<_>>()).await?;
            if !claims.is_empty() && operator.is_gone().await {
                removal.claims(scope, &claims).await.map_err(not_removed)?;
            }
            Ok((!claims.is_empty()).then(|| waiting_for(&claims)))
        })
        .await?;
        wait.until("NodePools", async || {
            let left = names(&self.list(resources::node_pools()).await?);
            Ok((!left.is_empty()).then(|| format!("still present: {}", some(&left, 3))))
        })
        .await?;
        let mut empty = 0;
        wait.until("EC2 instances", async || {
            let left = ec2::instances(&self.aws, scope).await;
            let left = left.map_err(observe_failed)?;
            if !left.is_empty() && operator.is_gone().await {
                remove_instances(&context, &left, EVICT_FOR, args.timeout, &abandoned)
                    .await
                    .map_err(not_removed)?;
            }
            // EC2's lists lag behind: once empty is no proof.
            empty = if left.is_empty() { empty + 1 } else { 0 };
            let what = format!("still present: {}", some(&left, 3));
            Ok((empty < 2).then_some(if left.is_empty() { "asking again".into() } else { what }))
        })
        .await?;
        self.delete(resources::node_classes(), &names(classes)).await?;
        wait.until("EC2NodeClasses", async || {
            let left = self.list(resources::node_classes()).await?;
            if !left.is_empty() && operator.is_gone().await {
                self.delete_launch_templates().await?;
                release_classes(&context, &left).await.map_err(not_removed)?;
            }
            let left = names(&left);
            Ok((!left.is_empty()).then(|| format!("still present: {}", some(&left, 3))))
        })
        .await?;
        self.delete(resources::node_overlays(), &names(overlays)).await?;
        // The operator deletes its own with their EC2NodeClass, unless it was killed in between.
        self.delete_launch_templates().await
    }

    async fn delete_launch_templates(&self) -> Result<(), ExpectedError> {
        let left = ec2::launch_templates(&self.aws, &self.wanted.scope).await;
        for id in left.map_err(observe_failed)? {
            delete_launch_template(&self.aws, &id).await.map_err(ExpectedError::Observe)?;
        }
        Ok(())
    }

    async fn list(&self, resource: ApiResource) -> Result<Vec<DynamicObject>, ExpectedError> {
        self.kube.list(&resource).await.map_err(observe_failed)
    }

    async fn delete(&self, resource: ApiResource, names: &[String]) -> Result<(), ExpectedError> {
        let deleted = delete_all(&self.kube, resource, names).await;
        deleted.map_err(ExpectedError::Observe)
    }
}

/// Something of a node did not go, after this time at most.
fn not_removed(failure: Failure, timeout: Duration) -> ExpectedError {
    match failure {
        Failure::Wait { what, last } => {
            ExpectedError::Timeout { what, seconds: timeout.as_secs(), last }
        }
        failure => ExpectedError::Observe(failure),
    }
}

/// Waiting, in front of a person.
struct Wait {
    timeout: Duration,
    printer: Printer,
}

impl Wait {
    /// Asks until nothing holds it up any more.
    async fn until(
        &self,
        what: &str,
        mut lacks: impl AsyncFnMut() -> Result<Option<String>, ExpectedError>,
    ) -> Result<(), ExpectedError> {
        let began = Instant::now();
        let mut status = StatusLine::new(self.printer);
        loop {
            let Some(last) = lacks().await? else {
                status.end();
                self.printer.done(what, "gone", began.elapsed());
                return Ok(());
            };
            status.show(&last, began.elapsed());
            if began.elapsed() >= self.timeout {
                status.end();
                let what = format!("{what} to be gone");
                return Err(ExpectedError::Timeout {
                    what,
                    seconds: began.elapsed().as_secs(),
                    last,
                });
            }
            sleep(POLL).await;
        }
    }
}

impl Found {
    /// What is removed once there are no nodes: the operator's pods first, the queue last.
    fn rest(&self, wanted: &Wanted) -> Plan {
        let mut plan = Plan::default();
        let delete = |object: &Object| {
            let key = object.key();
            let action = Action::Delete(object.clone());
            Step::new(&step_id(object), &key.kind, &key.path(), Op::Delete, action)
                .needs(&["delete"], &key.to_string())
        };
        let Inventory { operator, leases, crds, .. } = &self.inventory;
        let (deployments, others): (Vec<_>, Vec<_>) =
            operator.iter().partition(|object| object.is_deployment());
        plan.steps.extend(deployments.into_iter().map(delete));
        let stopped = plan.steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
        let then = others.into_iter().chain(leases).chain(crds);
        plan.steps.extend(then.map(|object| delete(object).after(stopped.clone())));
        self.events.remove(wanted, &mut plan);
        plan
    }
}
