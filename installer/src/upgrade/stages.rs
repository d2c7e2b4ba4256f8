//! Takes a plan apart into stages: widen, canary, roll, narrow, record.
//!
//! The stages follow from the plan and from what is there, and from nothing else: a run after a
//! crash sees what is done and plans the rest.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenon_iam_policies::Document;
use tenon_iam_policies::difference::{Documents, union};
use tenon_installer_core::apply::wait::deployment_lacks;
use tenon_installer_core::desired::{Desired, Role};
use tenon_installer_core::kubernetes::helm::Revision;
use tenon_installer_core::kubernetes::object::{Object, annotation, first_difference};
use tenon_installer_core::names;
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::observe::state::RoleState;
use tenon_installer_core::ownership::SPEC_HASH;
use tenon_installer_core::plan::change::{Change, changes as field_changes};
use tenon_installer_core::plan::{
    Action, CANARY_GOES, Op, Plan, RoleChanges, Step, calls, changes, object_changes, role_changes,
    step_id,
};

/// Id of the step that tries one pod of the new version.
pub(crate) const CANARY: &str = "canary";
/// Id of the step that waits for all pods.
pub(crate) const ROLLOUT: &str = "rollout";
/// What the hash of a Kubernetes role begins with whose rules are those of two versions.
const WIDE: &str = "both-";
/// Id of the step that writes the Helm revision.
const RECORD: &str = "helm-release";

/// The same plan in stages. `seconds` is how long canary and pods may each take to become ready.
///
/// # Errors
/// When a role can't hold what both versions need.
pub(crate) fn staged(
    plan: Plan,
    desired: &Desired,
    actual: &Actual,
    seconds: u64,
) -> Result<Plan, Vec<String>> {
    let Some(deployment) = desired.deployment() else { return Ok(plan) };
    let applied = step_id(deployment);
    let mut early = Vec::new();
    let mut late = Vec::new();
    let mut record = None;
    let mut refused = Vec::new();
    for step in plan.steps {
        match &step.action {
            Action::EnsureRole { role, changes } if !changes.create => {
                match widened(&step, role, actual.roles.get(&role.name)) {
                    Ok((wide, narrow)) => {
                        early.extend(wide);
                        late.extend(narrow);
                    }
                    Err(reason) => refused.push(reason),
                }
            }
            Action::Apply(object) if grants(object) => {
                let live = actual.objects.get(&object.key());
                let (wide, narrow) = widened_rules(&step, object, live, &actual.releases);
                early.extend(wide);
                late.extend(narrow);
            }
            _ if step.id == RECORD => record = Some(step),
            _ if is_late(&step) => late.push(step),
            _ => early.push(step),
        }
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    let pods_change =
        early.iter().position(|step| step.id == applied && changes_pods(step, actual));
    if let (Some(at), Some(canary)) = (pods_change, desired.canary()) {
        if !is_proven(&canary, actual) {
            let step = prove(&canary, &early[at], seconds);
            early[at].depends_on.push(CANARY.to_owned());
            early.insert(at, step);
        }
        if !late.iter().any(|step| step.id == CANARY_GOES) {
            late.insert(0, goes(&canary));
        }
    }
    let applies = early.iter().any(|step| step.id == applied);
    if applies || !late.is_empty() && !is_ready(deployment, actual) {
        // After everything that is not for later: what is late must not begin while anything is
        // still to be done for the new version.
        let first = early.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
        early.push(rollout(deployment, seconds).after(first));
    }
    for step in &mut late {
        step.depends_on.push(ROLLOUT.to_owned());
    }
    let mut steps = early;
    steps.extend(late);
    if let Some(mut record) = record {
        record.depends_on = steps.iter().map(|step| step.id.clone()).collect();
        steps.push(record);
    }
    // A role that is wide enough already has no step for that.
    let ids = steps.iter().map(|step| step.id.clone()).collect::<BTreeSet<_>>();
    for step in &mut steps {
        step.depends_on.retain(|id| ids.contains(id));
    }
    Ok(Plan { steps, warnings: plan.warnings })
}

/// Whether all pods of a Deployment serve.
pub(crate) fn is_ready(deployment: &Object, actual: &Actual) -> bool {
    let live = actual.objects.get(&deployment.key());
    live.is_some() && deployment_lacks(live).is_none()
}

/// Whether a run before this one has seen this very canary ready.
fn is_proven(canary: &Object, actual: &Actual) -> bool {
    let live = actual.objects.get(&canary.key());
    live.is_some_and(|live| annotation(live, SPEC_HASH) == annotation(&canary.body, SPEC_HASH))
        && is_ready(canary, actual)
}

/// What the old version may still need, or what nodes are made from.
fn is_late(step: &Step) -> bool {
    step.op == Op::Delete || matches!(step.kind.as_str(), "NodePool" | "EC2NodeClass")
}

/// Whether a step makes other pods of the operator, and not just other labels or another number of
/// them.
fn changes_pods(step: &Step, actual: &Actual) -> bool {
    match &step.action {
        Action::Restart(_) => true,
        Action::Apply(object) => {
            actual.objects.get(&object.key()).is_some_and(|live| has_other_pods(object, live))
        }
        _ => false,
    }
}

/// Whether a Deployment makes other pods than the live one.
pub(crate) fn has_other_pods(deployment: &Object, live: &Value) -> bool {
    let template = |body: &Value| body["spec"]["template"].clone();
    first_difference(&template(&deployment.body), &template(live)).is_some()
}

/// Tries one pod before the step that changes them all.
pub(crate) fn prove(canary: &Object, deployment: &Step, seconds: u64) -> Step {
    let key = canary.key();
    let action = Action::ProveCanary { canary: canary.clone(), seconds };
    Step::new(CANARY, "Deployment", &key.path(), Op::Create, action)
        .because(["one pod of the new version, which has to become ready"])
        .after(deployment.depends_on.clone())
        .needs(&["patch", "get", "delete"], &key.to_string())
        .needs(&["create"], "subjectaccessreviews")
}

/// Waits for all pods.
pub(crate) fn rollout(deployment: &Object, seconds: u64) -> Step {
    let action = Action::AwaitRollout { deployment: deployment.clone(), seconds };
    let path = deployment.key().path();
    Step::new(ROLLOUT, "Deployment", &path, Op::Update, action).because(["wait for all pods"])
}

/// Removes the pod that was tried.
pub(crate) fn goes(canary: &Object) -> Step {
    let key = canary.key();
    let action = Action::RemoveCanary { canary: canary.clone() };
    Step::new(CANARY_GOES, "Deployment", &key.path(), Op::Delete, action)
        .because(["the canary, once all pods are replaced"])
        .needs(&["delete"], &key.to_string())
}

/// A role's step in two: what both versions need, and what only the new one does.
fn widened(
    step: &Step,
    role: &Role,
    state: Option<&RoleState>,
) -> Result<(Option<Step>, Option<Step>), String> {
    let Some(state) = state else { return Ok((Some(step.clone()), None)) };
    let old = documents(state);
    let inline = union(&old, &role.inline).map_err(|error| {
        format!(
            "the permissions of both versions exceed the limits of role {}: {error}. `tenon \
             install` changes it in one step; until the new pods run, calls of the old ones may be \
             denied",
            role.name
        )
    })?;
    let mut attached = role.attached.clone();
    attached.extend(state.attached.iter().filter(|arn| !role.attached.contains(arn)).cloned());
    let wide = Role { attached, inline, ..role.clone() };
    let widened = state_of(&wide, state);
    let narrow = changes(role, Some(&widened));
    if narrow == RoleChanges::default() {
        return Ok((Some(step.clone()), None));
    }
    let first = changes(&wide, Some(state));
    let split = |id: &str, (before, role): (&RoleState, &Role), changes: RoleChanges, why: &str| {
        let (actions, _) = calls(role, &changes);
        let action = Action::EnsureRole { role: role.clone(), changes };
        Step::new(id, &step.kind, &step.resource, Op::Update, action)
            .because([why])
            .changing(with_origins(role_changes(role, before), step))
            .after(step.depends_on.clone())
            .needs(&actions, &step.resource)
    };
    let narrow = split(
        &format!("{}/narrow", step.id),
        (&widened, role),
        narrow,
        "without the permissions that only the old version needed",
    );
    let wide = (first != RoleChanges::default())
        .then(|| split(&step.id, (state, &wide), first, "for both versions"));
    Ok((wide, Some(narrow)))
}

/// Changes of a part of a step, as far as they are the whole step's with why they are made.
fn with_origins(mut changes: Vec<Change>, step: &Step) -> Vec<Change> {
    for change in &mut changes {
        let whole = step.changes.iter().find(|whole| whole.path == change.path);
        change.origin = whole.map(|whole| whole.origin.clone()).unwrap_or_default();
    }
    changes
}

/// Whether an object says what the operator may do in the cluster.
pub(crate) fn grants(object: &Object) -> bool {
    matches!(object.resource.kind.as_str(), "ClusterRole" | "Role")
}

/// The step of a Kubernetes role in two, if the live one grants what the new one does not: rules
/// for both versions, and those of the new one alone.
pub(crate) fn widened_rules(
    step: &Step,
    object: &Object,
    live: Option<&Value>,
    releases: &[Revision],
) -> (Option<Step>, Option<Step>) {
    let rules = |body: &Value| body["rules"].as_array().cloned().unwrap_or_default();
    let wanted = rules(&object.body);
    let granted = live.map(rules).unwrap_or_default();
    let old = granted.iter().filter(|rule| !wanted.contains(rule)).cloned().collect::<Vec<_>>();
    if old.is_empty() {
        return (Some(step.clone()), None);
    }
    let mut wide = object.clone();
    wide.body["rules"] = wanted.iter().cloned().chain(old).collect();
    // Another hash than that of the new version alone: a run after a crash sees that it is still to
    // be narrowed.
    let hash = names::hash(&wide.body["rules"].to_string(), 12);
    wide.annotate([(SPEC_HASH.to_owned(), format!("{WIDE}{hash}"))].into());
    let is_wide = wanted.iter().all(|rule| granted.contains(rule))
        && live.is_some_and(|live| {
            annotation(live, SPEC_HASH).is_some_and(|hash| hash.starts_with(WIDE))
        });
    let rules = json!({"rules": wide.body["rules"]});
    let mut narrow = step.clone().because(["without the rules that only the old version needed"]);
    narrow.changes = with_origins(field_changes(&rules, &json!({"rules": wanted})), step);
    let first = (!is_wide).then(|| {
        let changes = live
            .map(|live| with_origins(object_changes(&wide, live, releases), step))
            .unwrap_or_default();
        let action = Action::Apply(wide);
        Step { action, changes, ..step.clone() }.because(["rules for both versions"])
    });
    narrow.id = format!("{}/narrow", step.id);
    (first, Some(narrow))
}

/// The inline policies that a role has. One that doesn't parse allows nothing that could be kept.
pub(crate) fn documents(state: &RoleState) -> Documents {
    let parsed = state.inline.iter().filter_map(|(name, text)| {
        let document = Document::parse(text).ok()?;
        Some((name.clone(), document))
    });
    parsed.collect()
}

/// A role as it is when it is as it should be.
fn state_of(role: &Role, state: &RoleState) -> RoleState {
    let mut inline = state.inline.clone();
    inline.extend(role.inline.iter().map(|(name, document)| (name.clone(), document.to_json())));
    RoleState {
        arn: state.arn.clone(),
        trust: role.trust.to_json(),
        attached: role.attached.iter().cloned().collect(),
        inline,
        boundary: role.boundary.clone(),
        tags: role.tags.clone(),
    }
}
