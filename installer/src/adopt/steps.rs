//! The steps of an adoption, there and back. Pure: what is done already needs no step, so a run
//! that was killed is run again.

use serde_json::json;
use tenon_iam_policies::Document;
use tenon_iam_policies::controller::controller_policies;
use tenon_iam_policies::cover::gaps;
use tenon_installer_core::apply::wait::deployment_lacks;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::kubernetes::correction::Correction;
use tenon_installer_core::kubernetes::git_source::GitSource;
use tenon_installer_core::kubernetes::helm;
use tenon_installer_core::kubernetes::lease::Place;
use tenon_installer_core::kubernetes::object::{Object, label};
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::ownership::{ADOPTED_BY, INSTALL_ID, Tags};
use tenon_installer_core::plan::change::{Change, changes};
use tenon_installer_core::plan::{Action, Adoptee, Op, Plan, Step, policy, step_id};
use tenon_installer_core::words::count;

use super::karpenter::Operator;
use super::{Karpenter, NAME, POLICY, settings};

const ROLLOUT: &str = "rollout";
const OVER: &str = "hand-over";
const BACK: &str = "hand-back";
const LEADER: &str = "leader";
const ADDED: &str = "adopted-role-policy";

/// Everything in AWS that is taken over: id of its step, kind, name, what it is, its tags.
fn adoptees(found: &Karpenter) -> Vec<(String, &'static str, Adoptee, &Tags)> {
    let role = |name: &str| Adoptee::Role { name: name.to_owned() };
    let (name, state) = &found.role;
    let mut all = vec![("adopt/controller-role".to_owned(), "IAM role", role(name), &state.tags)];
    all.extend(found.node_roles.iter().filter(|(other, _)| *other != name).map(|(name, state)| {
        (format!("adopt/node-role/{name}"), "IAM role", role(name), &state.tags)
    }));
    all.extend(found.queue.iter().map(|(name, state)| {
        let queue = Adoptee::Queue { name: name.clone(), url: state.url.clone() };
        ("adopt/queue".to_owned(), "SQS queue", queue, &state.tags)
    }));
    all.extend(found.rules.iter().map(|(name, state)| {
        let rule = Adoptee::Rule { name: name.clone(), arn: state.arn.clone() };
        (format!("adopt/rule/{name}"), "EventBridge rule", rule, &state.tags)
    }));
    all
}

/// What Karpenter's role lacks of what the operator needs: whole statements.
pub(crate) fn lacking(found: &Karpenter, desired: &Desired) -> Option<Document> {
    let granted = found.granted.iter().filter(|(name, _)| *name != POLICY);
    let granted = granted.map(|(_, document)| document).collect::<Vec<_>>();
    let needed = controller_policies(&desired.scope).into_iter();
    let needed = needed.flat_map(|policy| policy.document.statements);
    let lacking = needed.filter(|statement| {
        let alone = Document::new([statement.clone()]);
        !gaps(granted.iter().copied(), &alone).is_empty()
    });
    let lacking = lacking.collect::<Vec<_>>();
    (!lacking.is_empty()).then(|| Document::new(lacking))
}

/// A plan for Tenon beside Karpenter, and then the hand-over.
pub(crate) fn adopt(mut plan: Plan, found: &Karpenter, desired: &Desired, seconds: u64) -> Plan {
    let id = &desired.installation.id;
    let mut first = Vec::new();
    for (step, kind, what, tags) in adoptees(found) {
        if tags.get(ADOPTED_BY) == Some(id) {
            continue;
        }
        let (call, name) = what.tagging();
        let action = Action::Adopt { what: what.clone(), install_id: id.clone() };
        first.push(
            Step::new(&step, kind, &name, Op::Adopt, action)
                .because(["used, never changed"])
                .changing(changes(&json!({}), &json!({"tags": {(ADOPTED_BY): id}})))
                .needs(&[call], &name),
        );
    }
    let (role, state) = &found.role;
    if let Some(document) = lacking(found, desired) {
        let there = state.inline.get(POLICY).and_then(|text| Document::parse(text).ok());
        if !there.as_ref().is_some_and(|there| there.says_the_same_as(&document)) {
            let before = json!({"inline": {(POLICY): there.as_ref().map(policy)}});
            let after = json!({"inline": {(POLICY): policy(&document)}});
            let action =
                Action::AddPolicy { role: role.clone(), name: POLICY.to_owned(), document };
            first.push(
                Step::new(ADDED, "IAM role", &state.arn, Op::Update, action)
                    .because(["permissions that Karpenter's policies lack"])
                    .changing(changes(&before, &after))
                    .needs(&["iam:PutRolePolicy"], &state.arn),
            );
        }
    }
    let ours = desired.deployment();
    for step in &mut plan.steps {
        if ours.is_some_and(|ours| step.id == step_id(ours)) {
            step.depends_on.extend(first.iter().map(|step| step.id.clone()));
        }
    }
    first.append(&mut plan.steps);
    plan.steps = first;
    plan.warnings.extend(settings::carried(found).told);
    let operator = &found.operator;
    let handed_over = operator.replicas_now() == 0 && operator.adopted_by.as_ref() == Some(id);
    let (Some(ours), false) = (ours, handed_over) else { return plan };
    plan.warnings.extend(in_git(operator, "after the adoption", 0));
    let before = plan.steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
    let action = Action::AwaitRollout { deployment: ours.clone(), seconds };
    // Also when they did a moment ago: it is what the hand-over rests on.
    plan.steps.push(
        Step::new(ROLLOUT, "Deployment", &ours.key().path(), Op::Update, action)
            .because(["wait until its pods stand by"])
            .after(before),
    );
    let key = operator.live.key();
    let action = Action::HandOver {
        deployment: place(&operator.live),
        replicas: operator.replicas,
        install_id: id.clone(),
        seconds,
    };
    plan.steps.push(
        Step::new(OVER, "Deployment", &key.path(), Op::Adopt, action)
            .because(["it stays"])
            .changing(replicas(operator.replicas_now(), 0))
            .after([ROLLOUT])
            .needs(&["patch"], &key.to_string()),
    );
    plan.steps.push(leader(operator.lease(), ours, OVER, seconds));
    plan
}

fn leader(lease: Place, deployment: &Object, after: &str, seconds: u64) -> Step {
    let resource = lease.to_string();
    let action = Action::AwaitLeader { lease, deployment: place(deployment), seconds };
    Step::new(LEADER, "Lease", &resource, Op::Update, action)
        .because([format!("wait until a pod of {} holds it", deployment.name)])
        .after([after])
        .needs(&["get"], &format!("Lease {resource}"))
}

/// How many replicas Karpenter gets. What is there may be what is wanted already, and the step
/// still waits for its pods.
fn replicas(before: i64, after: i64) -> Vec<Change> {
    let of = |n: i64| json!({"spec": {"replicas": n}});
    changes(&of(before), &of(after))
}

/// What to do about a tool that applies Karpenter's Deployment from git, and would scale it back.
fn in_git(karpenter: &Operator, when: &str, replicas: i64) -> Option<String> {
    let (GitSource { tool, object, values, .. }, correction) = karpenter.in_git.as_ref()?;
    let (first, then) = match correction {
        Correction::Paused(pause) => {
            (String::new(), format!(", and resume {tool} with `{}`", pause.off))
        }
        Correction::Unknown => {
            let heal = "is self-healing, which can't be seen from here, pause it first";
            (format!("if {object} {heal}; "), String::new())
        }
        Correction::Restores(_) | Correction::OnChange => Default::default(),
    };
    Some(format!(
        "{} is managed by {tool}, which can reset its replicas: {first}{when}, set them to \
         {replicas} in {values} of {object} in git{then}",
        karpenter.live.key()
    ))
}

/// Where an object is, without what it holds: that changes while one looks.
fn place(object: &Object) -> Object {
    Object::at(&object.resource, &object.key())
}

/// The way back: Karpenter's pods first, then ours go, then our marks.
pub(crate) fn undo(found: &Karpenter, desired: &Desired, actual: &Actual, seconds: u64) -> Plan {
    let id = &desired.installation.id;
    let operator = &found.operator;
    let key = operator.live.key();
    let mut steps = Vec::new();
    let is_ours = |object: &&Object| {
        let live = actual.objects.get(&object.key());
        live.is_some_and(|live| label(live, INSTALL_ID) == Some(id))
    };
    let ours = desired.operator.iter().filter(is_ours).collect::<Vec<_>>();
    let adopted = operator.adopted_by.as_ref() == Some(id);
    let mut warnings = Vec::new();
    let stands_by = operator.replicas_now() == operator.replicas
        && deployment_lacks(Some(&operator.live.body)).is_none();
    if adopted && !stands_by {
        warnings.extend(in_git(operator, "before the return", operator.replicas));
        let action = Action::HandBack {
            deployment: place(&operator.live),
            replicas: operator.replicas,
            seconds,
        };
        steps.push(
            Step::new(BACK, "Deployment", &key.path(), Op::Update, action)
                .because(["on standby"])
                .changing(replicas(operator.replicas_now(), operator.replicas))
                .needs(&["patch"], &key.to_string()),
        );
    }
    let (deployments, others): (Vec<_>, Vec<_>) =
        ours.into_iter().partition(|object| object.resource.kind == "Deployment");
    let gone = |object: &Object, after: &str| {
        let key = object.key();
        Step::new(
            &step_id(object),
            &key.kind,
            &key.path(),
            Op::Delete,
            Action::Delete(place(object)),
        )
        .after([after])
        .needs(&["delete"], &key.to_string())
    };
    for object in &deployments {
        steps.push(gone(object, BACK));
    }
    let mut last = BACK.to_owned();
    if let Some(deployment) = deployments.first() {
        last = step_id(deployment);
    }
    // Also when our Deployment went in a run that was killed: nobody has looked since. Without
    // replicas there is nobody who could lead, and without a Lease nothing that could be looked at.
    if adopted && operator.replicas > 0 && !operator.is_without_lease() {
        steps.push(leader(operator.lease(), &operator.live, &last, seconds));
        LEADER.clone_into(&mut last);
    }
    for object in others.into_iter().rev() {
        steps.push(gone(object, &last));
    }
    let secrets = helm::secrets_of(&actual.releases, id);
    if !secrets.is_empty() {
        let namespace = operator.service_account.namespace.clone();
        let action = Action::DeleteRelease { namespace, secrets };
        steps.push(
            Step::new("helm-release", "Helm release", NAME, Op::Delete, action)
                .after([last.as_str()])
                .needs(&["delete"], "secrets"),
        );
    }
    steps.extend(unmark(found, id, &last));
    if adopted {
        // Last: as long as the mark is there, a run that was killed knows what it was about.
        let before = steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
        steps.push(forget(found, None).after(before));
    }
    let ids = steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
    for step in &mut steps {
        step.depends_on.retain(|id| ids.contains(id));
    }
    Plan { steps, warnings }
}

/// Takes our policy and our tags off what is somebody else's.
fn unmark(found: &Karpenter, install_id: &str, after: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let (role, state) = &found.role;
    if let Some(text) = state.inline.get(POLICY) {
        let there = Document::parse(text).map_or_else(|_| text.as_str().into(), |it| policy(&it));
        let action = Action::RemovePolicy { role: role.clone(), name: POLICY.to_owned() };
        steps.push(
            Step::new(ADDED, "IAM role", &state.arn, Op::Update, action)
                .changing(changes(&json!({"inline": {(POLICY): there}}), &json!({})))
                .after([after])
                .needs(&["iam:DeleteRolePolicy"], &state.arn),
        );
    }
    for (step, kind, what, tags) in adoptees(found) {
        if tags.get(ADOPTED_BY).is_none_or(|by| by != install_id) {
            continue;
        }
        let (call, name) = what.untagging();
        let action = Action::Release { what: what.clone() };
        steps.push(
            Step::new(&step, kind, &name, Op::Update, action)
                .changing(changes(&json!({"tags": {(ADOPTED_BY): install_id}}), &json!({})))
                .after([after])
                .needs(&[call], &name),
        );
    }
    steps
}

fn forget(found: &Karpenter, replicas: Option<i64>) -> Step {
    let live = &found.operator.live;
    let key = live.key();
    let action = Action::ForgetHandOver { deployment: place(live), replicas };
    Step::new("forget", "Deployment", &key.path(), Op::Update, action)
        .because(
            replicas.map(|n| {
                format!("{} again", count(usize::try_from(n).unwrap_or_default(), "replica"))
            }),
        )
        .because(["without our annotations"])
        .needs(&["patch"], &key.to_string())
}

/// Whether it does not have the replicas that it had.
pub(crate) fn away(operator: &Operator) -> bool {
    operator.replicas_now() != operator.replicas
}

/// What takes an installation's marks off in an uninstall. Karpenter's Deployment gets its replicas
/// back; nobody waits for its pods, because nothing hangs on them any more.
pub(crate) fn leave(found: &Karpenter, install_id: &str) -> Vec<Step> {
    let operator = &found.operator;
    if operator.adopted_by.as_deref() != Some(install_id) {
        return Vec::new();
    }
    let mut steps = unmark(found, install_id, "");
    for step in &mut steps {
        step.depends_on.clear();
    }
    // Last: as long as it is there, a run that was killed knows what it was about.
    steps.push(forget(found, away(operator).then_some(operator.replicas)));
    steps
}
