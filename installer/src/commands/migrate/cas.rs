//! `tenon migrate cas`: from Cluster Autoscaler to Tenon.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use tenon_installer_core::apply::wait::deployment_lacks;
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::clock;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::files::FileError;
use tenon_installer_core::kubernetes::object::{Key, Object};
use tenon_installer_core::kubernetes::operator_deployment::{self, OperatorDeployment};
use tenon_installer_core::kubernetes::resources::node_object;
use tenon_installer_core::kubernetes::trial;
use tenon_installer_core::plan::impact::Impact;
use tenon_installer_core::plan::text::{Line, counts, plan_lines};
use tenon_installer_core::plan::{Plan, object_changes};
use tenon_installer_core::words::{count, count_are};
use tenon_simulate::{Drain, Freshness, Loops, Options, Outcome};
use tenon_state::options::FeatureGates;

use super::super::execution::{Execution, confirm, open_audit};
use super::super::session::{Fallback, Session, observe_failed, source};
use super::{agreed, expected, same};
use crate::cli::GlobalArgs;
use crate::cli::migrate::CasArgs;
use crate::errors::ExpectedError;
use crate::migrate::cas::propose::{self, Base, Proposal};
use crate::migrate::cas::steps::{self, Limits, Part, Wanted};
use crate::migrate::cas::{self, Autoscaler, Found, fit};
use crate::migrate::stopped::Stopped as _;
use crate::prices::SpotPrices;
use crate::printer::Printer;

/// The schema of the report.
const SCHEMA: &str = "tenon.sh/migrate-cas/v1alpha1";

pub(super) async fn run(
    global: &GlobalArgs,
    args: &CasArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let settings = args.installation.settings();
    let given = source(&settings)?;
    let session = Box::pin(Session::open(global, &settings, given, Fallback::Record)).await?;
    if !args.propose {
        session.introduce(*printer);
    }
    let command = Command { global, args, printer: *printer, session: &session };
    if args.propose {
        return command.propose().await;
    }
    let at_once = args.yes && !args.dry_run;
    let lock =
        if at_once { Some(session.lock(global, "migrate cas", cleanup).await?) } else { None };
    let move_ = command.look().await?;
    let mut report = command.report(&move_);
    if move_.parts.is_empty() {
        printer.json(&report);
        printer.prose(&nothing(args, &move_));
        command.say_left(&move_);
        return Ok(0);
    }
    let lines = lines(&move_);
    if args.dry_run {
        printer.json(&report);
        printer.lines(&lines);
        return Ok(0);
    }
    printer.note_lines(&lines);
    let lock = match lock {
        Some(lock) => lock,
        None => {
            let what = if args.abort { "return to Cluster Autoscaler" } else { "migration" };
            let lock = agreed(global, &session, ("migrate cas", what), cleanup).await?;
            same(&move_.plan(), &command.look().await?.plan())?;
            lock
        }
    };
    open_audit(&session.aws, "migrate cas", session.file.as_deref())?;
    let done = command.carry_out(&move_).await?;
    drop(lock);
    report["changed"] = done.steps.into();
    report["stoppedBefore"] = json!(done.stopped_before);
    printer.json(&report);
    if let Some(group) = &done.stopped_before {
        printer.prose(&format!(
            "Stopped before group {group}. Run the same command again to continue, or with --abort \
             to return to Cluster Autoscaler."
        ));
        return Ok(0);
    }
    let what = match (args.abort, move_.found.stays.is_empty()) {
        (true, _) => "Cluster Autoscaler runs again",
        (false, true) => "The groups are empty",
        (false, false) => "The nodes that can be drained are gone",
    };
    printer.prose(&format!("{what} ({}).", counts(&move_.plan())));
    command.say_left(&move_);
    Ok(0)
}

/// What was found, and what is to be done.
struct Move {
    found: Found,
    /// Its Deployment, if there is one.
    autoscaler: Option<Autoscaler>,
    objects: Vec<Wanted>,
    notes: Proposal,
    /// Where the pods of the nodes go.
    outcome: Option<Outcome>,
    parts: Vec<Part>,
}

impl Move {
    /// All parts together.
    fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        for part in &self.parts {
            plan.steps.extend(part.plan.steps.iter().cloned());
            plan.warnings.extend(part.plan.warnings.iter().cloned());
        }
        plan
    }
}

/// What has been carried out.
struct Done {
    steps: usize,
    stopped_before: Option<String>,
}

struct Command<'a> {
    global: &'a GlobalArgs,
    args: &'a CasArgs,
    printer: Printer,
    session: &'a Session,
}

impl Command<'_> {
    /// Prints the NodePools and EC2NodeClasses that the groups are.
    async fn propose(&self) -> Result<u8, ExpectedError> {
        let (found, _) = self.read().await?;
        let autoscaler = fit::the_one(&found).map_err(unfit)?;
        let Some(autoscaler) = autoscaler else {
            self.printer.note("There is no Cluster Autoscaler in this cluster.");
            return Ok(0);
        };
        let reasons = fit::against_reading(&found, autoscaler, &self.args.groups);
        if !reasons.is_empty() {
            return Err(unfit(reasons));
        }
        let proposal = propose::propose(&self.only_wanted(found.clone()), autoscaler, &self.base());
        self.printer.json(&json!({
            "schema": SCHEMA,
            "objects": proposal.objects,
            "notes": proposal.notes,
        }));
        self.printer.text(propose::yaml(&proposal).trim_end());
        Ok(0)
    }

    /// Cluster Autoscaler and all its groups, and what the operator lacks.
    async fn read(&self) -> Result<(Found, Option<String>), ExpectedError> {
        let Session { aws, target, desired, .. } = self.session;
        let kube = &target.cluster;
        let read = async {
            let key = expected(self.session);
            let operator = operator_deployment::find(kube, &key).await?;
            let lacks = lacks(operator.as_ref(), &key);
            let cluster = desired.installation.cluster.as_str();
            let is_forced = self.args.force;
            let found = cas::read((aws, kube), cluster, operator.as_ref(), is_forced).await?;
            Ok::<_, Failure>((found, lacks))
        };
        read.await.map_err(observe_failed)
    }

    fn only_wanted(&self, mut found: Found) -> Found {
        let wanted = &self.args.groups;
        found.groups.retain(|group| wanted.is_empty() || wanted.contains(&group.name));
        found
    }

    /// What the installation knows of nodes.
    fn base(&self) -> Base {
        let objects = &self.session.desired.node_objects;
        let mut classes = objects.iter().filter(|it| it.resource.kind == "EC2NodeClass");
        let class = classes.next().and_then(|it| it.body["spec"].as_object().cloned());
        let class = class.unwrap_or_else(|| {
            let cluster = &self.session.desired.installation.cluster;
            let terms = json!([{"tags": {"karpenter.sh/discovery": cluster}}]);
            let spec = json!({
                "role": self.session.desired.node_role.name,
                "securityGroupSelectorTerms": terms,
                "amiSelectorTerms": [{"alias": "al2023@latest"}],
            });
            spec.as_object().cloned().unwrap_or_default()
        });
        Base { class, taken: objects.iter().map(|object| object.name.clone()).collect() }
    }

    async fn look(&self) -> Result<Move, ExpectedError> {
        let (found, lacks) = self.read().await?;
        let autoscaler = fit::the_one(&found).map_err(unfit)?.cloned();
        let mut move_ = Move {
            found,
            autoscaler,
            objects: Vec::new(),
            notes: Proposal::default(),
            outcome: None,
            parts: Vec::new(),
        };
        let Some(autoscaler) = move_.autoscaler.clone() else { return Ok(move_) };
        let id = self.session.desired.installation.id.clone();
        if self.args.abort {
            let seconds = self.args.timeout.as_secs();
            let plan = steps::abort(&move_.found, &autoscaler, (&id, seconds));
            move_.parts.extend((!plan.steps.is_empty()).then_some(Part { group: None, plan }));
            return Ok(move_);
        }
        let lacks = lacks.as_deref();
        let reasons = fit::against(&move_.found, &autoscaler, lacks, &self.args.groups);
        if !reasons.is_empty() {
            return Err(unfit(reasons));
        }
        let all = move_.found.groups.iter().map(|group| group.name.clone());
        let all = all.collect::<BTreeSet<_>>();
        move_.found = self.only_wanted(move_.found);
        let objects = match &self.args.node_pools {
            Some(file) => from_file(file)?,
            None => {
                move_.notes = propose::propose(&move_.found, &autoscaler, &self.base());
                move_.notes.objects.iter().cloned().filter_map(node_object).collect()
            }
        };
        move_.objects = self.missing(objects).await?;
        let is_new = |name: &String| move_.objects.iter().any(|wanted| wanted.object.name == *name);
        move_.notes.notes.retain(|name, _| is_new(name));
        if !move_.found.moving().is_empty() {
            let outcome = self.simulate(&move_).await?;
            let reasons = fit::against_places(&pending(&outcome, &move_.found));
            if !reasons.is_empty() && !self.args.allow_pending {
                return Err(unfit(reasons));
            }
            move_.outcome = Some(outcome);
        }
        let limits = Limits {
            pod_seconds: self.args.pod_timeout.as_secs(),
            node_seconds: self.args.node_timeout.as_secs(),
            seconds: self.args.timeout.as_secs(),
            is_forced: self.args.force,
        };
        move_.parts = steps::migrate(&move_.found, &autoscaler, &move_.objects, (&id, limits));
        let wanted = move_.found.groups.iter().map(|group| group.name.clone()).collect();
        let others = all.difference(&wanted).cloned().collect::<Vec<_>>();
        if let Some(first) = move_.parts.first_mut().filter(|_| !others.is_empty()) {
            first.plan.warnings.push(format!(
                "nothing scales the other groups any more, they keep their nodes: {}",
                others.join(", ")
            ));
        }
        Ok(move_)
    }

    /// Where the pods of the nodes would go.
    async fn simulate(&self, move_: &Move) -> Result<Outcome, ExpectedError> {
        let Session { aws, target, .. } = self.session;
        let mut options = Options::live(clock::now(), FeatureGates::default());
        options.freshness = Freshness::Latest;
        options.drain = vec![Drain::nodes(move_.found.moving())];
        let client = target.cluster.client();
        let bodies = move_.objects.iter().map(|wanted| wanted.object.body.to_string());
        let manifests = bodies.collect::<Vec<_>>().join("\n---\n");
        let mut spot = SpotPrices::new(Some(aws.clone())).briefly();
        spot.ask_all().await;
        let note = |_: &str| ();
        let read = tenon_simulate::read_with(options, &client, &manifests, &note).await;
        let mut simulation = read.map_err(|error| match &self.args.node_pools {
            Some(file) => error.of_file(file),
            None => error,
        })?;
        super::super::simulate::price(&mut simulation, &spot, self.printer);
        Ok(simulation.outcome(Loops::Provision))
    }

    /// Those objects that have to be applied, once the API server would take them. Those of a file
    /// count as they are written. A proposal changes nothing that is there: it may have been edited
    /// since, and of a group that is empty less is known.
    async fn missing(&self, objects: Vec<Object>) -> Result<Vec<Wanted>, ExpectedError> {
        let kube = &self.session.target.cluster;
        let is_file = self.args.node_pools.is_some();
        let mut missing = Vec::new();
        for object in objects {
            let live = kube.get(&object.resource, &object.key()).await.map_err(observe_failed)?;
            let is_as_wanted = live
                .as_ref()
                .is_some_and(|live| !is_file || object_changes(&object, live, &[]).is_empty());
            if live.as_ref().is_some_and(|live| !live["metadata"]["deletionTimestamp"].is_null()) {
                let key = object.key();
                let why = format!("{key} is being deleted: run this command again when it is gone");
                return Err(unfit(vec![why]));
            }
            if !is_as_wanted {
                missing.push(Wanted { object, live });
            }
        }
        let objects = missing.iter().map(|wanted| &wanted.object);
        let trial = trial::attempt(kube, &objects.collect::<Vec<_>>()).await;
        if !trial.refusals.is_empty() {
            let refusals = trial.refusals.iter().map(ToString::to_string).collect();
            return Err(ExpectedError::Rejected { refusals });
        }
        Ok(missing)
    }

    /// Part by part; asks between groups if that is wanted.
    async fn carry_out(&self, move_: &Move) -> Result<Done, ExpectedError> {
        let mut done = Done { steps: 0, stopped_before: None };
        for part in &move_.parts {
            if let Some(group) = part.group.as_ref().filter(|_| done.steps > 0)
                && self.args.pause_between
            {
                if !self.global.may_ask() {
                    done.stopped_before = Some(group.clone());
                    return Ok(done);
                }
                let question = format!("Continue with group {group}?");
                if confirm(self.global, &question).await.is_err() {
                    done.stopped_before = Some(group.clone());
                    return Ok(done);
                }
            }
            let execution = Execution {
                global: self.global,
                session: self.session,
                operation: if self.args.abort { "migrate cas --abort" } else { "migrate cas" },
                parallel: self.args.parallel,
                back_to: None,
                printer: &self.printer,
            };
            done.steps += if self.session.is_recorded() {
                execution.run(part.plan.clone()).await?
            } else {
                execution.run_unrecorded(part.plan.clone()).await?
            };
        }
        Ok(done)
    }

    fn report(&self, move_: &Move) -> Value {
        let groups = move_.found.groups.iter().map(|group| {
            json!({
                "name": group.name,
                "autoScalingGroup": group.scaling.name,
                "isManaged": group.managed.is_some(),
                "min": group.scaling.min,
                "max": group.scaling.max,
                "desired": group.scaling.desired,
                "nodes": group.nodes.iter().map(|node| &node.metadata.name).collect::<Vec<_>>(),
            })
        });
        let plan = move_.plan();
        json!({
            "schema": SCHEMA,
            "target": self.session.target_json(),
            "abort": self.args.abort,
            "clusterAutoscaler": move_.autoscaler.as_ref().map(|one| one.live.key()),
            "groups": groups.collect::<Vec<_>>(),
            "nodesThatStay": move_.found.stays,
            "nodePools": move_.objects.iter().map(|wanted| &wanted.object).collect::<Vec<_>>(),
            "notes": move_.notes.notes,
            "simulation": move_.outcome,
            "actions": plan.steps,
            "warnings": plan.warnings,
            "callerActions": plan.caller_actions(),
            "changed": 0,
        })
    }

    /// What only its owner can remove.
    fn say_left(&self, move_: &Move) {
        let Some(autoscaler) = &move_.autoscaler else { return };
        if self.args.abort {
            self.printer.prose(
                "The NodePools and their nodes stay. To bring their pods back, delete the \
                 NodePools.",
            );
            return;
        }
        let stays = &move_.found.stays;
        if !stays.is_empty() {
            self.printer.prose(&format!("{} as before:", count_are(stays.len(), "node")));
            for (node, why) in stays {
                self.printer.text(&format!("    {node}: {why}"));
            }
        }
        self.printer.prose(
            "Cluster Autoscaler is stopped. When you no longer want to return to it, remove it, \
             its IAM role, and the groups that are empty:",
        );
        self.printer.text(&format!("    {}", autoscaler.live.removal()));
        let cluster = &self.session.desired.installation.cluster;
        let stay = |node: &Option<String>| node.as_ref().is_some_and(|it| stays.contains_key(it));
        let empties = move_
            .found
            .groups
            .iter()
            .filter(|group| !group.nodes.iter().any(|node| stay(&node.metadata.name)));
        for group in empties {
            let name = &group.name;
            self.printer.text(&if group.managed.is_some() {
                format!(
                    "    aws eks delete-nodegroup --cluster-name {cluster} --nodegroup-name {name}"
                )
            } else {
                format!(
                    "    aws autoscaling delete-auto-scaling-group --auto-scaling-group-name {name}"
                )
            });
        }
    }
}

fn unfit(reasons: Vec<String>) -> ExpectedError {
    ExpectedError::Unfit { what: "migration".to_owned(), reasons }
}

/// What the operator is missing until it serves.
fn lacks(operator: Option<&OperatorDeployment>, expected: &Key) -> Option<String> {
    let Some(operator) = operator else {
        return Some(format!("there is no Deployment {}", expected.path()));
    };
    let is_stopped = operator.live["spec"]["replicas"] == 0;
    let stopped = || is_stopped.then(|| "it is scaled to 0 replicas".to_owned());
    deployment_lacks(Some(&operator.live)).or_else(stopped)
}

/// NodePools and EC2NodeClasses of a file.
fn from_file(path: &Path) -> Result<Vec<Object>, ExpectedError> {
    let text = std::fs::read_to_string(path).map_err(FileError::reading(path))?;
    let said = |why: &str| unfit(vec![format!("{}: {why}", path.display())]);
    let bodies = serde_saphyr::from_multiple::<Value>(&text);
    let bodies = bodies.map_err(|error| said(&error.to_string()))?;
    let mut objects = Vec::new();
    for body in bodies.into_iter().filter(|body| !body.is_null()) {
        let kind = body["kind"].as_str().unwrap_or("an object without a kind").to_owned();
        let object = node_object(body);
        objects.push(object.ok_or_else(|| {
            said(&format!(
                "{kind}: only NodePools (karpenter.sh/v1) and EC2NodeClasses \
                           (karpenter.k8s.aws/v1) can be in it"
            ))
        })?);
    }
    Ok(objects)
}

/// Pods of the drained nodes that would find no place, with the reasons.
fn pending(outcome: &Outcome, found: &Found) -> Vec<(String, Vec<String>)> {
    let pods = outcome.unschedulable.iter().map(|pod| {
        let reasons = pod.reasons.iter().map(|why| match &why.node_pool {
            Some(pool) => format!("NodePool {pool}: {}", why.message),
            None => why.message.clone(),
        });
        (format!("{}/{}", pod.namespace, pod.name), reasons.collect::<BTreeSet<_>>())
    });
    let pods = pods.filter(|(name, _)| !found.placeless.contains(name));
    pods.map(|(name, reasons)| (name, reasons.into_iter().collect())).collect()
}

/// What there is and what happens to it, for people.
fn lines(move_: &Move) -> Vec<Line> {
    let mut lines = Vec::new();
    for group in &move_.found.groups {
        let scaling = &group.scaling;
        let kind = if group.managed.is_some() { "node group" } else { "Auto Scaling group" };
        lines.push(format!(
            "{kind} {}: {}, minimum {}, maximum {}",
            group.name,
            count(group.nodes.len(), "node"),
            scaling.min,
            scaling.max
        ));
    }
    for (pool, notes) in &move_.notes.notes {
        lines.extend(notes.iter().map(|note| format!("NodePool {pool}: {note}")));
    }
    for (node, why) in &move_.found.stays {
        lines.push(format!("node {node} stays: {why}"));
    }
    if let Some(outcome) = &move_.outcome {
        let pods = outcome.drained.as_ref().map_or(0, |drained| drained.pods);
        lines.push(format!(
            "{} of {} would move; {} would be launched",
            count(pods, "pod"),
            count(move_.found.moving().len(), "node"),
            count(outcome.launches.len(), "node")
        ));
        let totals = &outcome.totals;
        lines.push(format!(
            "price per hour: ${:.2} → ${:.2}{}",
            totals.price_per_hour_before,
            totals.price_per_hour_after,
            match totals.nodes_without_price {
                0 => String::new(),
                n => format!(" ({} without a known price)", count(n, "node")),
            }
        ));
    }
    let mut lines = lines.iter().map(|line| Line::plain(line)).collect::<Vec<_>>();
    lines.extend(plan_lines(&move_.plan(), &Impact::default()));
    lines
}

fn nothing(args: &CasArgs, move_: &Move) -> String {
    let stay = !move_.found.stays.is_empty();
    let why = match (args.abort, &move_.autoscaler) {
        (_, None) => "there is no Cluster Autoscaler in this cluster",
        (true, _) => "this installation has stopped no Cluster Autoscaler",
        (false, _) if stay => {
            "Cluster Autoscaler is stopped, and the nodes that can be drained are gone"
        }
        (false, _) => "Cluster Autoscaler is stopped, and its groups are empty",
    };
    format!("Nothing to do: {why}.")
}
