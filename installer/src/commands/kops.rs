//! `tenon kops`: InstanceGroups as NodePools and EC2NodeClasses.

mod addon;
mod export;
mod install;
mod uninstall;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use tenon_installer_core::apply::StepError;
use tenon_installer_core::audit::Audit;
use tenon_installer_core::aws::Aws;
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::files::FileError;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::trial;
use tenon_installer_core::observe::facts;
use tenon_installer_core::plan::text::{counts, plan_lines};
use tenon_installer_core::plan::{Action, Op};
use tenon_installer_core::target;
use tenon_installer_core::words::count;
use tenon_kops::read::State;
use tenon_kops::{Generated, Location, Patches, parse_patches};

use super::execution::confirm;
use super::session::observe_failed;
use crate::cli::GlobalArgs;
use crate::cli::kops::{GenerateArgs, KopsArgs, KopsCommand, StateArgs, StoreArgs, SyncArgs};
use crate::errors::ExpectedError;
use crate::exit_codes::EXIT_DRIFT;
use crate::kops::ReadError;
use crate::kops::compare::{Comparison, against_cluster, compare};
use crate::kops::operator::{Identity, Place};
use crate::kops::read;
use crate::printer::Printer;

/// The schemas of the reports.
const GENERATE: &str = "tenon.sh/kops-generate/v1alpha1";
const SYNC: &str = "tenon.sh/kops-sync/v1alpha1";

/// The region that is asked where a bucket is, if no other is known.
const FIRST_REGION: &str = "us-east-1";

/// Generates, compares or applies.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &KopsArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    match &args.what {
        KopsCommand::Install(args) => Box::pin(install::run(global, args, *printer, cleanup)).await,
        KopsCommand::Uninstall(args) => {
            Box::pin(uninstall::run(global, args, *printer, cleanup)).await
        }
        KopsCommand::Generate(args) => generate(global, args, *printer).await,
        KopsCommand::Diff(args) => diff(global, &args.state, *printer).await,
        KopsCommand::Sync(args) => sync(global, args, *printer).await,
        KopsCommand::Augment(args) => addon::run(global, args, *printer).await,
        KopsCommand::Queue(args) => addon::queue(global, args, *printer).await,
        KopsCommand::Export(args) => export::run(global, args, *printer).await,
    }
}

async fn generate(
    global: &GlobalArgs,
    args: &GenerateArgs,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let (source, generated) = Source::with_objects(global, &args.state).await?;
    let groups = generated.iter().map(|one| {
        let notes = one.notes.iter().map(|note| json!({"field": note.field, "text": note.text}));
        json!({
            "instanceGroup": one.group,
            "objects": one.objects,
            "notes": notes.collect::<Vec<_>>(),
        })
    });
    printer.json(&json!({
        "schema": GENERATE,
        "cluster": source.state.cluster.name,
        "instanceGroups": groups.collect::<Vec<_>>(),
        "autoScalingGroups": source.state.others,
    }));
    printer.text(yaml(&generated).trim_end());
    source.say_others(printer);
    Ok(0)
}

async fn diff(
    global: &GlobalArgs,
    args: &StateArgs,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let (source, generated) = Source::with_objects(global, args).await?;
    let kube = source.connect(global).await?;
    let found = source.compare(&generated, &kube, false).await?;
    printer.json(&report(&source, &found));
    let is_same = found.plan.steps.is_empty() && found.surplus.is_empty();
    if is_same {
        say_rest(&found, printer);
        printer.prose("The cluster has what its InstanceGroups ask for.");
        return Ok(0);
    }
    if !found.plan.steps.is_empty() {
        printer.lines(&plan_lines(&found.plan, &found.impact));
    }
    say_rest(&found, printer);
    found.reasons.iter().for_each(|reason| printer.warn(reason));
    Ok(EXIT_DRIFT)
}

async fn sync(global: &GlobalArgs, args: &SyncArgs, printer: Printer) -> Result<u8, ExpectedError> {
    let (source, generated) = Source::with_objects(global, &args.state).await?;
    source.has_no_add_on()?;
    let kube = source.connect(global).await?;
    let mut found = source.compare(&generated, &kube, args.prune).await?;
    let objects = found.plan.applied_objects();
    if !found.reasons.is_empty() {
        return Err(unfit(found.reasons));
    }
    let trial = trial::attempt(&kube, &objects).await;
    if !trial.untried.is_empty() {
        return Err(unfit(trial.untried));
    }
    if !trial.refusals.is_empty() {
        let refusals = trial.refusals.iter().map(ToString::to_string).collect();
        return Err(ExpectedError::Rejected { refusals });
    }
    let mut report = report(&source, &found);
    report["changed"] = 0.into();
    if found.plan.steps.is_empty() {
        printer.json(&report);
        printer.prose("Nothing to do: the cluster has what its InstanceGroups ask for.");
        say_rest(&found, printer);
        return Ok(0);
    }
    let lines = plan_lines(&found.plan, &found.impact);
    if args.consent.dry_run {
        printer.json(&report);
        printer.lines(&lines);
        say_rest(&found, printer);
        return Ok(0);
    }
    printer.note_lines(&lines);
    if !args.consent.yes {
        confirm(global, "Apply these changes?").await?;
        if source.compare(&generated, &kube, args.prune).await?.plan != found.plan {
            return Err(unfit(vec!["the cluster has changed since: review the plan again".into()]));
        }
    }
    let done = carry_out(&kube, &found, printer).await?;
    report["changed"] = done.into();
    printer.json(&report);
    printer.prose(&format!(
        "The cluster has what its InstanceGroups ask for ({}).",
        counts(&found.plan)
    ));
    if args.prune {
        found.surplus.clear();
    }
    say_rest(&found, printer);
    Ok(0)
}

/// Step by step; each may be done twice. Nothing is waited for: the nodes of a NodePool that is
/// deleted go as their pods do.
async fn carry_out(
    kube: &Cluster,
    found: &Comparison,
    printer: Printer,
) -> Result<usize, ExpectedError> {
    for (done, step) in found.plan.steps.iter().enumerate() {
        let began = Instant::now();
        let result = match &step.action {
            Action::Apply(object) => kube.apply(object).await,
            Action::Delete(object) => {
                kube.delete(&object.resource, &object.key(), PropagationPolicy::Background).await
            }
            _ => Ok(()),
        };
        result.map_err(|error| {
            ExpectedError::Step(StepError { step: step.id.clone(), done, source: error.into() })
        })?;
        let what = match step.op {
            Op::Create => "created",
            Op::Delete => "deleted",
            Op::Update | Op::Tag | Op::Adopt => "updated",
        };
        printer.done(&format!("{} {}", step.kind, step.resource), what, began.elapsed());
    }
    Ok(found.plan.steps.len())
}

/// What the state store says.
struct Source {
    location: Location,
    state: State,
    aws: Aws,
    /// Where its nodes are.
    region: String,
}

impl Source {
    /// The cluster, and those of its InstanceGroups that are named, or all.
    async fn read(
        global: &GlobalArgs,
        args: &StoreArgs,
        groups: &[String],
    ) -> Result<Self, ExpectedError> {
        let location = location(global, args)?;
        let given = global.region.clone().or(global.default_region.clone());
        let first = given.as_deref().unwrap_or(FIRST_REGION);
        let mut aws = global.connect_region(first).await?;
        let name = name(global, args, &aws, &location).await?;
        let state = read::state(&aws, &location, &name, groups).await.map_err(failed)?;
        let Some(region) = state.region().or(given.clone()) else {
            let why = "the zones of the Cluster's subnets name no region: add --region";
            return Err(unfit(vec![why.to_owned()]));
        };
        if region != first {
            aws = global.connect_region(&region).await?;
        }
        Ok(Self { location, state, aws, region })
    }

    /// The same, and what its InstanceGroups become with the patches.
    async fn with_objects(
        global: &GlobalArgs,
        args: &StateArgs,
    ) -> Result<(Self, Vec<Generated>), ExpectedError> {
        let patches = patches(args)?;
        let source = Self::read(global, &args.store, &args.groups).await?;
        let mut generated = source.generate().await?;
        let elsewhere = source.elsewhere(&generated);
        let objects = generated.iter_mut().flat_map(|one| one.objects.iter_mut());
        patches.apply(objects, &elsewhere).map_err(|problems| failed(problems.into()))?;
        Ok((source, generated))
    }

    /// The InstanceGroups that become NodePools and were not asked for.
    fn elsewhere(&self, generated: &[Generated]) -> Vec<String> {
        let is_there = |group: &String| generated.iter().any(|one| one.group == *group);
        self.state.all.iter().filter(|group| !is_there(group)).cloned().collect()
    }

    /// Two operators must not apply NodePools.
    fn has_no_add_on(&self) -> Result<(), ExpectedError> {
        let why = "the Cluster has spec.karpenter.enabled: kOps applies NodePools and \
                   EC2NodeClasses of its own; set it to false (`kops edit cluster`), run `kops \
                   update cluster --yes`, then delete the Deployment: `kubectl -n kube-system \
                   delete deployment karpenter`";
        let has_it = self.state.cluster.has_karpenter_addon;
        if has_it { Err(unfit(vec![why.to_owned()])) } else { Ok(()) }
    }

    /// Where the operator runs, and the roles of its nodes if they are asked for.
    async fn place(&self, with_roles: bool) -> Result<Place, ExpectedError> {
        let caller = facts::read_caller(&self.aws).await.map_err(observe_failed)?;
        let roles = async |profiles: &BTreeSet<String>| {
            if !with_roles {
                return Ok(Vec::new());
            }
            read::profile_roles(&self.aws, profiles).await.map_err(failed)
        };
        let node_roles = roles(&read::node_profiles(&self.state)).await?;
        let cluster = &self.state.cluster;
        let identity = if cluster.has_oidc_provider {
            Identity::ServiceAccount
        } else {
            if self.state.control_plane_profiles.is_empty() {
                let why = "the state store holds no InstanceGroup of the control plane, whose role \
                           has the operator's permissions in a cluster without an OIDC provider";
                return Err(unfit(vec![why.to_owned()]));
            }
            Identity::ControlPlane {
                roles: roles(&self.state.control_plane_profiles).await?,
                policy: cluster.control_plane_policy.clone(),
            }
        };
        let folder = self.location.join(&self.state.cluster.name);
        let config_base = self.state.config_base(&folder).map_err(|error| failed(error.into()))?;
        Ok(Place {
            store: self.location.clone(),
            config_base,
            cluster: self.state.cluster.name.clone(),
            region: self.region.clone(),
            account: caller.account,
            control_planes: self.state.control_planes,
            identity,
            node_roles,
        })
    }

    async fn generate(&self) -> Result<Vec<Generated>, ExpectedError> {
        read::objects(&self.aws, &self.state).await.map_err(failed)
    }

    /// The cluster of the kubeconfig, if it is the one that is meant.
    async fn connect(&self, global: &GlobalArgs) -> Result<Cluster, ExpectedError> {
        let client = target::client(&global.kubeconfig()).await?;
        let kube = Cluster::new(client, Audit::default());
        let name = &self.state.cluster.name;
        match against_cluster(&kube, name).await.map_err(observe_failed)? {
            None => Ok(kube),
            Some(reason) => Err(unfit(vec![reason])),
        }
    }

    async fn compare(
        &self,
        generated: &[Generated],
        kube: &Cluster,
        prunes: bool,
    ) -> Result<Comparison, ExpectedError> {
        let objects = generated.iter().flat_map(|one| one.objects.iter().cloned()).collect();
        compare(kube, objects, &self.state.all, prunes).await.map_err(observe_failed)
    }

    /// Who else has the operator's permissions.
    fn say_identity(&self, printer: Printer) {
        if !self.state.cluster.has_oidc_provider {
            printer.note(
                "AWS does not trust tokens of this cluster, so the operator's permissions belong \
                 to the control plane: all that runs on the network of its nodes has them, too.",
            );
        }
    }

    fn say_others(&self, printer: Printer) {
        if !self.state.others.is_empty() {
            printer.note(&format!(
                "Auto Scaling groups, which are left out: {}.",
                self.state.others.join(", ")
            ));
        }
    }
}

/// The state store that is named, as kOps looks for it.
fn location(global: &GlobalArgs, args: &StoreArgs) -> Result<Location, ExpectedError> {
    let of_file = |path: PathBuf| -> Option<String> {
        let text = std::fs::read_to_string(path).ok()?;
        let config: Value = serde_saphyr::from_str(&text).ok()?;
        config["kops_state_store"].as_str().map(str::to_owned)
    };
    let at_home = || {
        let home = global.home.as_ref()?;
        of_file(home.join(".kops.yaml")).or_else(|| of_file(home.join(".kops/config")))
    };
    let Some(text) = args.state.clone().filter(|text| !text.is_empty()).or_else(at_home) else {
        let why = "no state store is named: add --state s3://BUCKET, or set KOPS_STATE_STORE";
        return Err(unfit(vec![why.to_owned()]));
    };
    Location::parse(&text).map_err(|error| unfit(vec![error.to_string()]))
}

/// The cluster that is named, or the only one of the state store.
async fn name(
    global: &GlobalArgs,
    args: &StoreArgs,
    aws: &Aws,
    location: &Location,
) -> Result<String, ExpectedError> {
    if let Some(name) = args.name.clone().or_else(|| global.cluster.clone()) {
        return Ok(name);
    }
    let clusters = read::clusters(aws, location).await.map_err(failed)?;
    match <[String; 1]>::try_from(clusters) {
        Ok([name]) => Ok(name),
        Err(none) if none.is_empty() => {
            Err(unfit(vec![format!("there is no cluster in {location}")]))
        }
        Err(several) => Err(unfit(vec![format!(
            "{location} holds {}: {}; choose one with --name",
            count(several.len(), "cluster"),
            several.join(", ")
        )])),
    }
}

fn patches(args: &StateArgs) -> Result<Patches, ExpectedError> {
    let Some(path) = &args.patch else { return Ok(Patches::default()) };
    let text = std::fs::read_to_string(path).map_err(FileError::reading(path))?;
    parse_patches(&text).map_err(|problems| {
        let file = path.display();
        unfit(problems.iter().map(|problem| format!("{file}: {problem}")).collect())
    })
}

/// The objects as people would write them, with the notes as comments.
fn yaml(generated: &[Generated]) -> String {
    let mut documents = Vec::new();
    for one in generated {
        let notes = one.notes.iter().map(|note| format!("# {}: {}\n", note.field, note.text));
        let mut begin = format!("# InstanceGroup {}\n{}", one.group, notes.collect::<String>());
        for object in &one.objects {
            let text = serde_saphyr::to_string(object).expect("JSON always goes into YAML");
            documents.push(format!("{begin}{text}"));
            begin.clear();
        }
    }
    documents.join("---\n")
}

fn report(source: &Source, found: &Comparison) -> Value {
    json!({
        "schema": SYNC,
        "cluster": source.state.cluster.name,
        "instanceGroups": source.state.all,
        "autoScalingGroups": source.state.others,
        "actions": found.plan.steps,
        "outlook": found.impact,
        "surplus": found.surplus.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "frozen": found.frozen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "blockedBy": found.reasons,
    })
}

/// What is left as it is.
fn say_rest(found: &Comparison, printer: Printer) {
    for key in &found.frozen {
        printer.note(&format!("{key} is paused and stays as it is: see `tenon unfreeze`"));
    }
    if !found.surplus.is_empty() {
        let names = found.surplus.iter().map(ToString::to_string).collect::<Vec<_>>();
        printer.prose(&format!(
            "No InstanceGroup asks for {} any more; `tenon kops sync --prune` deletes {}.",
            names.join(", "),
            if names.len() == 1 { "it" } else { "them" }
        ));
    }
}

/// By which the next run on this machine knows that the one that held the lock was killed.
fn lock_file(global: &GlobalArgs, cluster: &str) -> Option<PathBuf> {
    Some(global.records()?.join(format!("kops-{cluster}.lock")))
}

/// The name of a role.
fn role_of(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or(arn)
}

fn failed(error: ReadError) -> ExpectedError {
    match error {
        ReadError::Aws(error) => observe_failed(error),
        ReadError::File(error) => error.into(),
        ReadError::Unfit(reasons) => unfit(reasons),
    }
}

fn unfit(reasons: Vec<String>) -> ExpectedError {
    ExpectedError::Unfit { what: "nothing was changed".to_owned(), reasons }
}
