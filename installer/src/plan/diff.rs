//! The difference between what should be there and what is. Pure: same values, same plan.

use std::collections::BTreeSet;

use tenon_iam_policies::Document;

use super::{Action, CallerAction, Op, Plan, RoleChanges, Step};
use crate::desired::{AGENT, Desired, Queue, Role, RoleUse, Rule};
use crate::kubernetes::object::{Object, annotation, first_difference, label};
use crate::observe::world::{AgentState, QueueState, RoleState, RuleState, World};
use crate::ownership::{DISCOVERY, DISCOVERY_MARK, INSTALL_ID, Installation, SPEC_HASH, Tags};

/// What has to be done, or everything that stands in the way: things under our names that aren't ours. Then nothing at all is done.
pub fn diff(desired: &Desired, world: &World) -> Result<Plan, Vec<String>> {
    let mut differ = Differ { desired, world, plan: Plan::default(), conflicts: Vec::new() };
    let node_role_is_new = differ.role("node-role", &desired.node_role);
    differ.role("controller-role", &desired.controller_role);
    differ.agent();
    differ.association();
    differ.access_entry(node_role_is_new);
    differ.queue();
    differ.rules();
    differ.network();
    differ.namespace();
    differ.objects();
    differ.drop_unknown_dependencies();
    if differ.conflicts.is_empty() { Ok(differ.plan) } else { Err(differ.conflicts) }
}

struct Differ<'a> {
    desired: &'a Desired,
    world: &'a World,
    plan: Plan,
    conflicts: Vec<String>,
}

fn needs(actions: &[&str], resource: &str) -> Vec<CallerAction> {
    actions
        .iter()
        .map(|action| CallerAction { action: (*action).to_owned(), resource: resource.to_owned() })
        .collect()
}

/// Every tag of ours is there with its value; what else is there doesn't matter.
fn has_tags(live: &Tags, wanted: &Tags) -> bool {
    wanted.iter().all(|(key, value)| live.get(key) == Some(value))
}

fn same_document(live: &str, wanted: &Document) -> bool {
    Document::parse(live).is_ok_and(|live| live.says_the_same_as(wanted))
}

impl Differ<'_> {
    fn owns(&mut self, what: &str, tags: &Tags) -> bool {
        let owns = self.desired.installation.owns(tags);
        if !owns {
            self.conflicts
                .push(format!("{what} exists, and {}", Installation::owner_in_words(tags)));
        }
        owns
    }

    #[expect(clippy::too_many_arguments, reason = "these are the fields of a step")]
    fn step(
        &mut self,
        id: &str,
        kind: &str,
        resource: &str,
        op: Op,
        reasons: Vec<String>,
        depends_on: &[&str],
        needs: Vec<CallerAction>,
        action: Action,
    ) {
        self.plan.steps.push(Step {
            id: id.to_owned(),
            kind: kind.to_owned(),
            resource: resource.to_owned(),
            op,
            reasons,
            depends_on: depends_on.iter().map(|id| (*id).to_owned()).collect(),
            needs,
            action,
        });
    }

    /// Whether the role has to be made.
    fn role(&mut self, id: &str, role: &RoleUse) -> bool {
        let Some(spec) = &role.spec else { return false };
        let state = self.world.roles.get(&spec.name);
        if state.is_some_and(|state| !self.owns(&format!("IAM role {}", spec.name), &state.tags)) {
            return false;
        }
        if let Some(state) = state.filter(|state| state.arn != role.arn) {
            self.conflicts.push(format!(
                "IAM role {} exists as {}, and its path can't be changed",
                spec.name, state.arn
            ));
            return false;
        }
        let changes = role_changes(spec, state);
        if changes == RoleChanges::default() {
            return false;
        }
        let op = if changes.create { Op::Create } else { Op::Update };
        let create = changes.create;
        let (actions, reasons) = role_calls(spec, &changes);
        let action = Action::EnsureRole { role: spec.clone(), changes };
        self.step(id, "IAM role", &role.arn, op, reasons, &[], needs(&actions, &role.arn), action);
        create
    }

    fn agent(&mut self) {
        match &self.world.agent {
            AgentState::BuiltIn => {}
            AgentState::Addon(status) => {
                if status != "ACTIVE" {
                    self.plan.warnings.push(format!("the add-on {AGENT} is {status}: the operator gets no credentials until it is ACTIVE"));
                }
            }
            AgentState::Missing if self.desired.install_agent => {
                let resource = format!("addon {AGENT} of cluster {}", self.desired.scope.cluster);
                let needs = needs(&["eks:CreateAddon"], &resource);
                self.step(
                    "agent-addon",
                    "EKS add-on",
                    AGENT,
                    Op::Create,
                    Vec::new(),
                    &[],
                    needs,
                    Action::InstallAgent,
                );
            }
            // Said before anything is changed, by `preflight`.
            AgentState::Missing => {}
        }
    }

    fn association(&mut self) {
        let wanted = &self.desired.association;
        let resource = format!("{}/{}", wanted.namespace, wanted.service_account);
        let depends_on = ["controller-role", "agent-addon"];
        let association = format!("association of {resource}");
        let pass =
            CallerAction { action: "iam:PassRole".to_owned(), resource: wanted.role_arn.clone() };
        match &self.world.association {
            None => {
                let mut needs =
                    needs(&["eks:CreatePodIdentityAssociation", "eks:TagResource"], &association);
                needs.push(pass);
                let action = Action::CreateAssociation(wanted.clone());
                self.step(
                    "association",
                    "Pod Identity association",
                    &resource,
                    Op::Create,
                    Vec::new(),
                    &depends_on,
                    needs,
                    action,
                );
            }
            Some(state) => {
                let state = state.clone();
                if !self.owns(&format!("Pod Identity association of {resource}"), &state.tags) {
                    return;
                }
                if state.role_arn != wanted.role_arn {
                    let mut needs = needs(&["eks:UpdatePodIdentityAssociation"], &association);
                    needs.push(pass);
                    let action = Action::UpdateAssociation {
                        id: state.id,
                        arn: state.arn,
                        association: wanted.clone(),
                    };
                    let reasons =
                        vec![format!("role {} instead of {}", wanted.role_arn, state.role_arn)];
                    self.step(
                        "association",
                        "Pod Identity association",
                        &resource,
                        Op::Update,
                        reasons,
                        &depends_on,
                        needs,
                        action,
                    );
                } else if !has_tags(&state.tags, &wanted.tags) {
                    let action = Action::TagEks { arn: state.arn, tags: wanted.tags.clone() };
                    let needs = needs(&["eks:TagResource"], &association);
                    self.step(
                        "association",
                        "Pod Identity association",
                        &resource,
                        Op::Update,
                        vec!["tags".into()],
                        &[],
                        needs,
                        action,
                    );
                }
            }
        }
    }

    fn access_entry(&mut self, node_role_is_new: bool) {
        let wanted = &self.desired.access_entry;
        let resource = wanted.principal_arn.clone();
        let create = |replace: bool| Action::CreateAccessEntry { entry: wanted.clone(), replace };
        let entry = format!("access entry of {resource}");
        let Some(state) = &self.world.access_entry else {
            let needs = needs(&["eks:CreateAccessEntry", "eks:TagResource"], &entry);
            self.step(
                "access-entry",
                "EKS access entry",
                &resource,
                Op::Create,
                Vec::new(),
                &["node-role"],
                needs,
                create(false),
            );
            return;
        };
        let state = state.clone();
        let is_ours = self.desired.installation.owns(&state.tags);
        if !is_ours && self.desired.node_role.spec.is_none() && state.kind == wanted.kind {
            // Somebody else's role, and its entry is there as well: used, never touched.
            return;
        }
        if !self.owns(&format!("EKS access entry of {resource}"), &state.tags) {
            return;
        }
        if node_role_is_new || state.kind != wanted.kind {
            // An entry keeps the id of the role that it was made for, and its type can't be changed.
            let needs = needs(
                &["eks:DeleteAccessEntry", "eks:CreateAccessEntry", "eks:TagResource"],
                &entry,
            );
            let reasons = vec!["made for a role that is no more, or of another type".to_owned()];
            self.step(
                "access-entry",
                "EKS access entry",
                &resource,
                Op::Update,
                reasons,
                &["node-role"],
                needs,
                create(true),
            );
        } else if !has_tags(&state.tags, &wanted.tags) {
            let action = Action::TagEks { arn: state.arn, tags: wanted.tags.clone() };
            let needs = needs(&["eks:TagResource"], &entry);
            self.step(
                "access-entry",
                "EKS access entry",
                &resource,
                Op::Update,
                vec!["tags".into()],
                &[],
                needs,
                action,
            );
        }
    }

    fn queue(&mut self) {
        let name = self.desired.queue_name.clone();
        match (&self.desired.queue, &self.world.queue) {
            (None, None) => {}
            (None, Some(state)) => {
                if self.desired.installation.owns(&state.tags) {
                    let action = Action::DeleteQueue { url: state.url.clone(), name: name.clone() };
                    let resource = format!("queue {name}");
                    let rules = self
                        .desired
                        .rule_names
                        .iter()
                        .map(|rule| format!("rule/{rule}"))
                        .collect::<Vec<_>>();
                    let depends_on = rules.iter().map(String::as_str).collect::<Vec<_>>();
                    let needs = needs(&["sqs:DeleteQueue"], &resource);
                    self.step(
                        "queue",
                        "SQS queue",
                        &name,
                        Op::Delete,
                        vec!["interruption handling is off".into()],
                        &depends_on,
                        needs,
                        action,
                    );
                }
            }
            (Some(queue), None) => {
                let needs = needs(
                    &["sqs:CreateQueue", "sqs:SetQueueAttributes", "sqs:TagQueue"],
                    &queue.arn,
                );
                self.step(
                    "queue",
                    "SQS queue",
                    &name,
                    Op::Create,
                    Vec::new(),
                    &[],
                    needs,
                    Action::CreateQueue(queue.clone()),
                );
            }
            (Some(queue), Some(state)) => {
                let state = state.clone();
                if !self.owns(&format!("SQS queue {name}"), &state.tags) {
                    return;
                }
                let reasons = queue_differences(queue, &state);
                if !reasons.is_empty() {
                    let needs = needs(&["sqs:SetQueueAttributes", "sqs:TagQueue"], &queue.arn);
                    let action = Action::UpdateQueue { url: state.url, queue: queue.clone() };
                    self.step("queue", "SQS queue", &name, Op::Update, reasons, &[], needs, action);
                }
            }
        }
    }

    fn rules(&mut self) {
        for name in &self.desired.rule_names {
            let id = format!("rule/{name}");
            let state = self.world.rules.get(name);
            match (self.desired.rules.iter().find(|rule| rule.name == *name), state) {
                (None, None) => {}
                (None, Some(state)) => {
                    if self.desired.installation.owns(&state.tags) {
                        let targets = state.targets.keys().cloned().collect();
                        let action = Action::DeleteRule { name: name.clone(), targets };
                        let needs = needs(
                            &["events:RemoveTargets", "events:DeleteRule"],
                            &self.desired.scope.rule_arn(name),
                        );
                        self.step(
                            &id,
                            "EventBridge rule",
                            name,
                            Op::Delete,
                            vec!["its events are not wanted".into()],
                            &[],
                            needs,
                            action,
                        );
                    }
                }
                (Some(rule), None) => {
                    let needs = needs(
                        &["events:PutRule", "events:TagResource", "events:PutTargets"],
                        &rule.arn,
                    );
                    let action = Action::EnsureRule { rule: rule.clone(), create: true };
                    self.step(
                        &id,
                        "EventBridge rule",
                        name,
                        Op::Create,
                        Vec::new(),
                        &["queue"],
                        needs,
                        action,
                    );
                }
                (Some(rule), Some(state)) => {
                    if !self.owns(&format!("EventBridge rule {name}"), &state.tags) {
                        continue;
                    }
                    let reasons = rule_differences(rule, state);
                    if !reasons.is_empty() {
                        let needs = needs(
                            &["events:PutRule", "events:TagResource", "events:PutTargets"],
                            &rule.arn,
                        );
                        let action = Action::EnsureRule { rule: rule.clone(), create: false };
                        self.step(
                            &id,
                            "EventBridge rule",
                            name,
                            Op::Update,
                            reasons,
                            &["queue"],
                            needs,
                            action,
                        );
                    }
                }
            }
        }
    }

    fn network(&mut self) {
        let cluster = &self.desired.scope.cluster;
        for id in &self.desired.discovery {
            let Some(tags) = self.world.network.get(id) else {
                self.conflicts.push(format!(
                    "there is no {id} in {}: correct network.subnetIds or network.securityGroupIds",
                    self.desired.scope.region
                ));
                continue;
            };
            match (tags.get(DISCOVERY), tags.get(DISCOVERY_MARK)) {
                (Some(value), _) if value != cluster => {
                    self.conflicts.push(format!(
                        "{id} has the tag {DISCOVERY}={value} for another cluster, and one key holds one value: use --discovery ids"
                    ));
                }
                // There before us, with the right value: used, never removed.
                (Some(_), _) => {}
                (None, _) => {
                    let needs = needs(&["ec2:CreateTags"], id);
                    let action =
                        Action::Tag { id: id.clone(), tags: self.desired.discovery_tags.clone() };
                    let reasons = vec![format!("{DISCOVERY}={cluster}")];
                    self.step(
                        &format!("discovery/{id}"),
                        kind_of(id),
                        id,
                        Op::Tag,
                        reasons,
                        &[],
                        needs,
                        action,
                    );
                }
            }
        }
        for id in self.world.marked.iter().filter(|id| !self.desired.discovery.contains(id)) {
            let needs = needs(&["ec2:DeleteTags"], id);
            let action =
                Action::Untag { id: id.clone(), tags: self.desired.discovery_tags.clone() };
            let reasons = vec![format!("{DISCOVERY} is not wanted there any more")];
            self.step(
                &format!("discovery/{id}"),
                kind_of(id),
                id,
                Op::Delete,
                reasons,
                &[],
                needs,
                action,
            );
        }
    }

    /// A namespace that exists is used, whoever made it.
    fn namespace(&mut self) {
        let namespace = &self.desired.namespace;
        if !self.world.objects.contains_key(&namespace.key()) {
            self.object(namespace, &[]);
        }
    }

    fn objects(&mut self) {
        let desired = self.desired;
        let namespace = step_id(&desired.namespace);
        for object in &desired.crds {
            self.object(object, &[]);
        }
        let before_deployment =
            desired.operator.iter().filter(|object| object.resource.kind != "Deployment");
        for object in before_deployment.clone() {
            self.object(object, &[&namespace]);
        }
        // Credentials are injected when a pod is admitted, so everything that they hang on comes first.
        let mut first = vec![
            namespace,
            "association".to_owned(),
            "queue".to_owned(),
            "access-entry".to_owned(),
        ];
        first.extend(desired.crds.iter().chain(before_deployment).map(step_id));
        let first = first.iter().map(String::as_str).collect::<Vec<_>>();
        if let Some(deployment) = desired.deployment() {
            self.object(deployment, &first);
        }
        let mut after = desired.crds.iter().map(step_id).collect::<Vec<_>>();
        after.push("node-role".to_owned());
        after.extend(desired.discovery.iter().map(|id| format!("discovery/{id}")));
        after.extend(desired.deployment().map(step_id));
        let after_classes = desired
            .node_objects
            .iter()
            .filter(|object| object.resource.kind == "EC2NodeClass")
            .map(step_id)
            .collect::<Vec<_>>();
        for object in &desired.node_objects {
            let mut after = after.iter().map(String::as_str).collect::<Vec<_>>();
            if object.resource.kind == "NodePool" {
                after.extend(after_classes.iter().map(String::as_str));
            }
            self.object(object, &after);
        }
    }

    fn object(&mut self, object: &Object, depends_on: &[&str]) {
        let key = object.key();
        let id = step_id(object);
        let verbs = needs(&["patch"], &key.to_string());
        let kind = object.resource.kind.clone();
        let resource = key.path();
        let Some(live) = self.world.objects.get(&key) else {
            self.step(
                &id,
                &kind,
                &resource,
                Op::Create,
                Vec::new(),
                depends_on,
                verbs,
                Action::Apply(object.clone()),
            );
            return;
        };
        if label(live, INSTALL_ID) != Some(&self.desired.installation.id) {
            let by = label(live, "app.kubernetes.io/managed-by")
                .map(|by| format!(", managed by {by}"))
                .unwrap_or_default();
            if matches!(kind.as_str(), "NodePool" | "EC2NodeClass") {
                self.plan.warnings.push(format!("{key} exists{by}, and is left as it is"));
            } else {
                self.conflicts.push(format!(
                    "{key} exists{by}, and has no label {INSTALL_ID}={}",
                    self.desired.installation.id
                ));
            }
            return;
        }
        let difference = if annotation(live, SPEC_HASH) != annotation(&object.body, SPEC_HASH) {
            Some("asked for differently".to_owned())
        } else if kind == "CustomResourceDefinition" {
            // The API server fills in and drops so much of a CRD that only its hash can be compared.
            None
        } else {
            first_difference(&object.body, live).map(|path| format!("{path} was changed"))
        };
        let identity_changes = self.plan.steps.iter().any(|step| {
            matches!(step.action, Action::CreateAssociation(_) | Action::UpdateAssociation { .. })
        });
        if kind == "Deployment" && identity_changes {
            let reasons = vec!["the pods' identity changes".to_owned()];
            self.step(
                &id,
                &kind,
                &resource,
                Op::Update,
                reasons,
                depends_on,
                verbs,
                Action::Restart(object.clone()),
            );
        } else if let Some(reason) = difference {
            self.step(
                &id,
                &kind,
                &resource,
                Op::Update,
                vec![reason],
                depends_on,
                verbs,
                Action::Apply(object.clone()),
            );
        }
    }

    /// A step waits only for steps of this plan: what needs no step is done already.
    fn drop_unknown_dependencies(&mut self) {
        let ids = self.plan.steps.iter().map(|step| step.id.clone()).collect::<BTreeSet<_>>();
        for step in &mut self.plan.steps {
            step.depends_on.retain(|id| ids.contains(id));
        }
    }
}

/// The id of the step that applies an object.
pub(super) fn step_id(object: &Object) -> String {
    match &object.namespace {
        Some(namespace) => format!("{}/{namespace}/{}", object.resource.kind, object.name),
        None => format!("{}/{}", object.resource.kind, object.name),
    }
}

fn kind_of(id: &str) -> &'static str {
    if id.starts_with("sg-") { "security group" } else { "subnet" }
}

fn role_changes(spec: &Role, state: Option<&RoleState>) -> RoleChanges {
    let Some(state) = state else {
        return RoleChanges {
            create: true,
            attach: spec.attached.clone(),
            put: spec.inline.keys().cloned().collect(),
            ..RoleChanges::default()
        };
    };
    RoleChanges {
        create: false,
        trust: !same_document(&state.trust, &spec.trust),
        boundary: state.boundary != spec.boundary,
        tags: !has_tags(&state.tags, &spec.tags),
        attach: spec
            .attached
            .iter()
            .filter(|arn| !state.attached.contains(*arn))
            .cloned()
            .collect(),
        detach: state.attached.iter().filter(|arn| !spec.attached.contains(arn)).cloned().collect(),
        put: spec
            .inline
            .iter()
            .filter(|(name, wanted)| {
                !state.inline.get(*name).is_some_and(|live| same_document(live, wanted))
            })
            .map(|(name, _)| name.clone())
            .collect(),
        delete: state
            .inline
            .keys()
            .filter(|name| !spec.inline.contains_key(*name))
            .cloned()
            .collect(),
    }
}

fn role_calls(spec: &Role, changes: &RoleChanges) -> (Vec<&'static str>, Vec<String>) {
    let mut actions = Vec::new();
    let mut reasons = Vec::new();
    let short = |arns: &[String]| {
        arns.iter().map(|arn| arn.rsplit('/').next().unwrap_or(arn)).collect::<Vec<_>>().join(", ")
    };
    if changes.create {
        actions.extend(["iam:CreateRole", "iam:TagRole"]);
        if spec.boundary.is_some() {
            actions.push("iam:PutRolePermissionsBoundary");
        }
    }
    if changes.trust {
        actions.push("iam:UpdateAssumeRolePolicy");
        reasons.push("trust policy".to_owned());
    }
    if changes.boundary {
        actions.push(if spec.boundary.is_some() {
            "iam:PutRolePermissionsBoundary"
        } else {
            "iam:DeleteRolePermissionsBoundary"
        });
        reasons.push("permissions boundary".to_owned());
    }
    if changes.tags {
        actions.push("iam:TagRole");
        reasons.push("tags".to_owned());
    }
    if !changes.attach.is_empty() {
        actions.push("iam:AttachRolePolicy");
        reasons.push(format!("attach {}", short(&changes.attach)));
    }
    if !changes.detach.is_empty() {
        actions.push("iam:DetachRolePolicy");
        reasons.push(format!("detach {}", short(&changes.detach)));
    }
    if !changes.put.is_empty() {
        actions.push("iam:PutRolePolicy");
        reasons.push(format!("inline {}", changes.put.join(", ")));
    }
    if !changes.delete.is_empty() {
        actions.push("iam:DeleteRolePolicy");
        reasons.push(format!("remove {}", changes.delete.join(", ")));
    }
    (actions, reasons)
}

fn queue_differences(queue: &Queue, state: &QueueState) -> Vec<String> {
    let mut reasons = Vec::new();
    for (name, value) in &queue.attributes {
        if state.attributes.get(name) != Some(value) {
            reasons.push(format!("{name}={value}"));
        }
    }
    if !state.attributes.get("Policy").is_some_and(|live| same_document(live, &queue.policy)) {
        reasons.push("policy".to_owned());
    }
    if !has_tags(&state.tags, &queue.tags) {
        reasons.push("tags".to_owned());
    }
    reasons
}

fn rule_differences(rule: &Rule, state: &RuleState) -> Vec<String> {
    let mut reasons = Vec::new();
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    if state.pattern.as_deref().and_then(json) != json(&rule.pattern) {
        reasons.push("pattern".to_owned());
    }
    if !state.enabled {
        reasons.push("is disabled".to_owned());
    }
    if state.targets.get(&rule.target_id) != Some(&rule.target_arn) {
        reasons.push("target".to_owned());
    }
    if !has_tags(&state.tags, &rule.tags) {
        reasons.push("tags".to_owned());
    }
    reasons
}
