//! Kubernetes objects.

use serde_json::Value;

use super::{Differ, ONLY_THE_CHECKSUM, schema};
use crate::kubernetes::client::FIELD_MANAGER;
use crate::kubernetes::fields::{At, Ownership};
use crate::kubernetes::freeze;
use crate::kubernetes::helm::{self, Revision};
use crate::kubernetes::object::{Object, annotation, first_difference, label};
use crate::names::ROLE_ANNOTATION;
use crate::ownership::{INSTALL_ID, SPEC_HASH, VERSION};
use crate::plan::change::{Change, Origin, Path, Segment, changes};
use crate::plan::{Action, Op, Step};

/// The id of the step that removes the canary.
pub const CANARY_GOES: &str = "canary-goes";

/// The id of the step that applies an object.
pub fn step_id(object: &Object) -> String {
    match &object.namespace {
        Some(namespace) => format!("{}/{namespace}/{}", object.resource.kind, object.name),
        None => format!("{}/{}", object.resource.kind, object.name),
    }
}

/// What becomes of an object, field by field, once it is applied.
pub fn object_changes(object: &Object, live: &Value, releases: &[Revision]) -> Vec<Change> {
    if object.resource.kind == "CustomResourceDefinition" {
        return schema::changes_of(live, &object.body);
    }
    let ownership = Ownership::of(live);
    let after = ownership.applied(live, &object.body, &[FIELD_MANAGER, helm::FIELD_MANAGER]);
    let of_mark = |key: &str| Path::default().field("metadata").field("annotations").field(key);
    let (hash, version) = (of_mark(SPEC_HASH), of_mark(VERSION));
    let mut found = changes(live, &after);
    found.retain(|change| change.path != hash);
    // A revision without our mark was written by Helm itself, whose fields then say what others
    // did.
    let latest = releases.iter().max_by_key(|revision| revision.number);
    let by_helm = latest.is_some_and(|revision| revision.hash.is_none());
    let ours = |name: &str| name == FIELD_MANAGER || name == helm::FIELD_MANAGER && !by_helm;
    // With the checksum of what is wanted now, nothing is wanted that was not applied before.
    let applied = annotation(live, SPEC_HASH);
    let is_applied = applied.is_some() && applied == annotation(&object.body, SPEC_HASH);
    for change in found.iter_mut().filter(|change| change.path != version) {
        let mut by = Vec::new();
        if change.before.is_some() {
            by = ownership.owners(&at(&change.path));
        }
        let theirs = by.iter().copied().filter(|name| !ours(name)).map(str::to_owned);
        let theirs = theirs.collect::<Vec<_>>();
        if is_applied || !theirs.is_empty() && theirs.len() == by.len() {
            change.origin = Origin::Outside { by: theirs };
        }
    }
    found
}

/// What makes an object that is ours, or not there, as it should be; none if it is.
pub fn object_step(object: &Object, live: Option<&Value>, releases: &[Revision]) -> Option<Step> {
    let key = object.key();
    let step = |op| {
        let action = Action::Apply(object.clone());
        Step::new(&step_id(object), &object.resource.kind, &key.path(), op, action)
            .needs(&["patch"], &key.to_string())
    };
    let Some(live) = live else { return Some(step(Op::Create)) };
    let is_crd = object.resource.kind == "CustomResourceDefinition";
    let is_applied = annotation(live, SPEC_HASH) == annotation(&object.body, SPEC_HASH);
    // The API server fills in and drops so much of a CRD that only its hash can be compared.
    let is_same = is_crd || first_difference(&object.body, live).is_none();
    if is_applied && is_same {
        return None;
    }
    let changes = object_changes(object, live, releases);
    match (is_applied, changes.is_empty()) {
        // What other managers have added to lists stays, so that it is no difference that applying
        // would end.
        (true, true) => None,
        (false, true) => Some(step(Op::Update).because([ONLY_THE_CHECKSUM])),
        (_, false) => Some(step(Op::Update).changing(changes)),
    }
}

fn at(path: &Path) -> Vec<At<'_>> {
    let segments = path.0.iter().map(|segment| match segment {
        Segment::Field(name) => At::Field(name),
        Segment::Element { key, name } => At::Element(key, name),
    });
    segments.collect()
}

impl Differ<'_> {
    /// A namespace that exists is used, whoever made it.
    pub(super) fn namespace(&mut self) {
        let namespace = &self.desired.namespace;
        if !self.actual.objects.contains_key(&namespace.key()) {
            self.object(namespace, &[]);
        }
    }

    pub(super) fn objects(&mut self) {
        let desired = self.desired;
        let namespace = step_id(&desired.namespace);
        for object in &desired.crds {
            self.object(object, &[]);
        }
        let before_deployment = desired.operator.iter().filter(|object| !object.is_deployment());
        for object in before_deployment.clone() {
            self.object(object, std::slice::from_ref(&namespace));
        }
        // Credentials are injected when a pod is admitted, so everything that they hang on comes
        // first.
        let mut first = vec![namespace];
        let identity = ["association", "controller-role", "oidc-provider", "fargate"];
        first.extend(identity.map(str::to_owned));
        first.extend(["queue", "access-entry", "aws-auth", "spot-role"].map(str::to_owned));
        first.extend(desired.crds.iter().chain(before_deployment).map(step_id));
        if let Some(deployment) = desired.deployment() {
            self.object(deployment, &first);
        }
        self.canary();
        let mut after = desired.crds.iter().map(step_id).collect::<Vec<_>>();
        after.extend(["node-role", "instance-profile"].map(str::to_owned));
        after.extend(desired.discovery.iter().map(|id| format!("discovery/{id}")));
        after.extend(desired.deployment().map(step_id));
        let is_class = |object: &&Object| object.resource.kind == "EC2NodeClass";
        let classes = desired.node_objects.iter().filter(is_class).map(step_id).collect::<Vec<_>>();
        for object in &desired.node_objects {
            let mut after = after.clone();
            if object.resource.kind == "NodePool" {
                after.extend(classes.iter().cloned());
            }
            self.object(object, &after);
        }
        self.surplus();
    }

    /// What earlier settings or another version asked for. CRDs stay: objects of users hang on
    /// them.
    fn surplus(&mut self) {
        let deployment = self.desired.deployment().map(step_id);
        for object in self.desired.surplus(&self.actual.labelled) {
            let key = object.key();
            if key.kind == "CustomResourceDefinition" {
                continue;
            }
            let account = &self.desired.service_account;
            let is_used =
                key.name == account.name && key.namespace.as_ref() == Some(&account.namespace);
            if key.kind == "ServiceAccount" && is_used {
                // Somebody else is to make it from now on, and until then the pods need it.
                continue;
            }
            if key.kind == "ServiceAccount" && self.desired.association().is_some() {
                // Its association would stay, and in another namespace so would the record.
                self.conflicts.push(format!(
                    "{key} belongs to this installation, but the settings name {}/{}: keep the \
                     name, or run `tenon uninstall` with the old one first",
                    account.namespace, account.name
                ));
                continue;
            }
            self.plan.steps.push(
                Step::new(
                    &format!("old/{}", step_id(object)),
                    &key.kind,
                    &key.path(),
                    Op::Delete,
                    Action::Delete(object.clone()),
                )
                .because(["no longer in the settings"])
                .after(deployment.clone())
                .needs(&["delete"], &key.to_string()),
            );
        }
    }

    /// What a run left behind that was killed while it moved to another version.
    fn canary(&mut self) {
        let Some(canary) = self.desired.canary() else { return };
        let live = self.actual.objects.get(&canary.key());
        let id = &self.desired.installation.id;
        if live.is_some_and(|live| label(live, INSTALL_ID) == Some(id)) {
            self.add(
                Step::new(
                    CANARY_GOES,
                    "Deployment",
                    &canary.key().path(),
                    Op::Delete,
                    Action::RemoveCanary { canary: canary.clone() },
                )
                .because(["the canary of an upgrade or rollback"])
                .after(self.desired.deployment().map(step_id))
                .needs(&["delete"], &canary.key().to_string()),
            );
        }
    }

    fn object(&mut self, object: &Object, depends_on: &[String]) {
        let key = object.key();
        let kind = object.resource.kind.as_str();
        let step = |op, action| {
            Step::new(&step_id(object), kind, &key.path(), op, action)
                .after(depends_on)
                .needs(&["patch"], &key.to_string())
        };
        let Some(live) = self.actual.objects.get(&key) else {
            let create = object_step(object, None, &self.actual.releases);
            self.plan.steps.extend(create.map(|create| create.after(depends_on)));
            return;
        };
        if label(live, INSTALL_ID) != Some(&self.desired.installation.id) {
            let by = label(live, "app.kubernetes.io/managed-by")
                .map(|by| format!(", managed by {by}"))
                .unwrap_or_default();
            if matches!(kind, "NodePool" | "EC2NodeClass") {
                self.plan.warnings.push(format!("{key} exists{by}, and is not changed"));
            } else {
                self.conflicts.push(format!(
                    "{key} exists{by}, and has no label {INSTALL_ID}={}",
                    self.desired.installation.id
                ));
            }
            return;
        }
        if freeze::is_frozen(live) {
            self.plan
                .warnings
                .push(format!("{key} is paused and stays paused: see `tenon unfreeze`"));
            return;
        }
        let update = object_step(object, Some(live), &self.actual.releases);
        if object.is_deployment() && self.identity_changes() {
            let mut restart = step(Op::Update, Action::Restart(object.clone()))
                .because(["the pods' identity changes"]);
            restart.changes = update.map(|update| update.changes).unwrap_or_default();
            self.plan.steps.push(restart);
        } else if let Some(update) = update {
            self.plan.steps.push(update.after(depends_on));
        }
    }

    /// What pods get when they are admitted becomes something else, or where they are scheduled
    /// does.
    fn identity_changes(&self) -> bool {
        let by_association = self.plan.steps.iter().any(|step| {
            matches!(
                step.action,
                Action::CreateAssociation(_)
                    | Action::UpdateAssociation { .. }
                    | Action::DeleteAssociation { .. }
                    | Action::CreateFargate { .. }
                    | Action::DeleteFargate { .. }
            )
        });
        let is_account = |object: &&Object| object.resource.kind == "ServiceAccount";
        let by_annotation = self.desired.operator.iter().filter(is_account).any(|object| {
            self.actual.objects.get(&object.key()).is_some_and(|live| {
                annotation(live, ROLE_ANNOTATION) != annotation(&object.body, ROLE_ANNOTATION)
            })
        });
        by_association || by_annotation
    }
}
