//! What kOps' own Karpenter add-on lacks: an interruption queue with its rules, the permission to
//! read it, its name in the Deployment, and fields of NodePools that kOps does not set.
//!
//! kOps applies the add-on's manifest by server-side apply as manager `kops`, so fields of ours
//! that the manifest does not have survive `kops update cluster`.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use tenon_iam_policies::controller::ControllerPolicy;
use tenon_iam_policies::interruption::InterruptionRule;
use tenon_iam_policies::{Document, Features, Partition, Scope};
use tenon_installer_core::aws::{Aws, AwsError};
use tenon_installer_core::desired::{Queue, Role, Rule, queue_and_rules};
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::object::{Key, Object, label};
use tenon_installer_core::kubernetes::resources::node_object;
use tenon_installer_core::observe::state::{QueueState, RoleState, RuleState};
use tenon_installer_core::observe::{iam, messaging};
use tenon_installer_core::ownership::{Installation, Tags};
use tenon_installer_core::plan::{
    Action, Op, Plan, RoleChanges, Step, object_changes, queue_step, rule_step, step_id,
};
use tenon_kops::{queue_name, rule_name};

use super::compare::node_objects;

/// The namespace of kOps' add-ons.
const NAMESPACE: &str = "kube-system";
/// The Deployment of the add-on, and its container.
const DEPLOYMENT: &str = "karpenter";
const CONTAINER: &str = "controller";
/// The label of what the add-on applies, and its value.
const ADDON_LABEL: &str = "addon.kops.k8s.io/name";
const ADDON: &str = "karpenter.sh";
/// The variable that names the queue.
const VARIABLE: &str = "INTERRUPTION_QUEUE";
/// The inline policy of ours; kOps looks only after the one with the role's own name.
const POLICY: &str = "tenon-interruption";

/// What should be there.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Marks what is made.
    pub installation: Installation,
    /// Where it is.
    pub scope: Scope,
    queue: Queue,
    rules: Vec<Rule>,
    policy: Document,
}

impl Wanted {
    /// For a cluster of kOps.
    pub(crate) fn new(cluster: &str, region: &str, account: &str) -> Self {
        let scope = Scope {
            partition: Partition::of_region(region),
            region: region.to_owned(),
            account: account.to_owned(),
            cluster: cluster.to_owned(),
            queue: Some(queue_name(cluster)),
            node_roles: Vec::new(),
            features: Features::default(),
        };
        let tags = Tags::from([
            ("KubernetesCluster".to_owned(), cluster.to_owned()),
            (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
        ]);
        // kOps gives its clusters no id of their own.
        let id = format!("kops:{region}:{account}:{cluster}");
        let installation = Installation::new(&id, 0, cluster, tags);
        let rules = InterruptionRule::ALL.map(|rule| (rule_name(cluster, rule.suffix()), rule));
        let events = queue_and_rules(&scope, &installation, &rules, None);
        let policy = ControllerPolicy::Interruption.document(&scope);
        let ((queue, rules), policy) =
            events.zip(policy).expect("a scope with a queue has rules and a policy");
        Self { installation, scope, queue, rules, policy }
    }
}

/// Names of rules with the ids of their targets.
type Rules = Vec<(String, Vec<String>)>;

/// The queue and the rules as they are.
#[derive(Debug)]
pub(crate) struct Events {
    queue: Option<QueueState>,
    rules: BTreeMap<String, RuleState>,
}

impl Events {
    /// Reads those that are wanted.
    pub(crate) async fn read(aws: &Aws, wanted: &Wanted) -> Result<Self, AwsError> {
        let names = wanted.rules.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>();
        let queue = messaging::queue(aws, &wanted.queue.name);
        let (queue, rules) = tokio::try_join!(queue, messaging::rules(aws, &names))?;
        Ok(Self { queue, rules })
    }

    /// Why they must not be touched, each with what to do.
    pub(crate) fn against(&self, wanted: &Wanted) -> Vec<String> {
        let owned = |what: String, tags: &Tags| {
            let why = "exists, and Tenon did not create it for this cluster: rename or remove it";
            (!wanted.installation.owns(tags)).then(|| format!("{what} {why}"))
        };
        let queue = self.queue.as_ref();
        let queue =
            queue.and_then(|queue| owned(format!("SQS queue {}", wanted.queue.name), &queue.tags));
        let rules = self.rules.iter();
        let rules =
            rules.filter_map(|(name, rule)| owned(format!("EventBridge rule {name}"), &rule.tags));
        queue.into_iter().chain(rules).collect()
    }

    /// Makes them as they should be.
    pub(crate) fn ensure(&self, wanted: &Wanted) -> Plan {
        let mut plan = Plan::default();
        plan.steps.extend(queue_step(&wanted.queue, self.queue.as_ref()));
        for rule in &wanted.rules {
            plan.steps.extend(rule_step(rule, self.rules.get(&rule.name)));
        }
        plan.drop_unknown_dependencies();
        plan
    }

    /// The rules with the ids of their targets, and the name and URL of the queue.
    pub(crate) fn names(&self, wanted: &Wanted) -> (Rules, Option<(String, String)>) {
        let targets = |rule: &RuleState| rule.targets.keys().cloned().collect();
        let rules = self.rules.iter().map(|(name, rule)| (name.clone(), targets(rule)));
        let queue = self.queue.as_ref();
        (rules.collect(), queue.map(|queue| (wanted.queue.name.clone(), queue.url.clone())))
    }

    /// Removes them, after what the plan has already.
    pub(crate) fn remove(&self, wanted: &Wanted, plan: &mut Plan) {
        let ids = |plan: &Plan| plan.steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
        let done = ids(plan);
        for (name, state) in &self.rules {
            let id = format!("rule/{name}");
            let targets = state.targets.keys().cloned().collect();
            let action = Action::DeleteRule { name: name.clone(), targets };
            plan.steps.push(
                Step::new(&id, "EventBridge rule", name, Op::Delete, action)
                    .after(done.clone())
                    .needs(&["events:RemoveTargets", "events:DeleteRule"], &state.arn),
            );
        }
        let done = ids(plan);
        if let Some(queue) = &self.queue {
            let name = wanted.queue.name.clone();
            let action = Action::DeleteQueue { url: queue.url.clone(), name: name.clone() };
            plan.steps.push(
                Step::new("queue", "SQS queue", &name, Op::Delete, action)
                    .after(done)
                    .needs(&["sqs:DeleteQueue"], &wanted.queue.arn),
            );
        }
    }
}

/// Whether kOps' add-on has applied an object.
pub(crate) fn is_of_add_on(live: &Value) -> bool {
    label(live, ADDON_LABEL) == Some(ADDON)
}

/// What there is of the add-on.
#[derive(Debug)]
pub(crate) struct Addon {
    deployment: Object,
    /// Name of the role that its container takes.
    role: String,
    role_state: Option<RoleState>,
    events: Events,
    /// NodePools and EC2NodeClasses, by name.
    objects: BTreeMap<Key, Object>,
}

/// Reads it; `None` if the add-on does not run.
pub(crate) async fn read(
    aws: &Aws,
    kube: &Cluster,
    wanted: &Wanted,
) -> Result<Option<Addon>, Failure> {
    let deployments: Vec<Deployment> = kube.all().await?;
    let is_addon = |object: &Object| {
        object.namespace.as_deref() == Some(NAMESPACE)
            && object.name == DEPLOYMENT
            && is_of_add_on(&object.body)
    };
    let Some(deployment) = deployments.iter().map(Object::new).find(is_addon) else {
        return Ok(None);
    };
    let role = variable(&deployment.body, "AWS_ROLE_ARN").unwrap_or_default();
    let role = role["value"].as_str().and_then(|arn| arn.rsplit('/').next()).unwrap_or_default();
    let events = Events::read(aws, wanted).await?;
    let role_state = if role.is_empty() { None } else { iam::role(aws, role).await? };
    let objects = node_objects(kube).await?;
    let role = role.to_owned();
    Ok(Some(Addon { deployment, role, role_state, events, objects }))
}

impl Addon {
    /// Why it must not be touched, each with what to do.
    pub(crate) fn against(&self, wanted: &Wanted, patches: &[Value]) -> Vec<String> {
        let missing = patches.iter().cloned().filter_map(node_object).map(|object| object.key());
        let missing = missing.filter(|key| !self.objects.contains_key(key));
        let missing = missing.map(|key| {
            format!("{key} does not exist: run `kops update cluster --yes`, or remove its patch")
        });
        let mut reasons = missing.collect::<Vec<_>>();
        let key = self.deployment.key();
        if self.role.is_empty() {
            reasons.push(format!(
                "{key} has no AWS_ROLE_ARN: set spec.iam.useServiceAccountExternalPermissions, and \
                 run `kops update cluster --yes`"
            ));
        } else if self.role_state.is_none() {
            reasons.push(format!("the role {} of {key} does not exist", self.role));
        }
        let name = variable(&self.deployment.body, VARIABLE);
        let other = name.and_then(|it| it["value"].as_str()).filter(|it| *it != wanted.queue.name);
        if let Some(other) = other {
            reasons.push(format!(
                "{key} reads the queue {other} already, which is not one of Tenon's: nothing is \
                 lacking"
            ));
        }
        reasons.extend(self.events.against(wanted));
        reasons
    }

    /// Gives it what it lacks. `patches` are fields of NodePools and EC2NodeClasses.
    pub(crate) fn augment(&self, wanted: &Wanted, patches: &[Value]) -> Plan {
        let mut plan = self.events.ensure(wanted);
        let inline = self.role_state.as_ref().and_then(|role| role.inline.get(POLICY));
        let same = |live: &String| {
            Document::parse(live).is_ok_and(|live| live.says_the_same_as(&wanted.policy))
        };
        if !inline.is_some_and(same) {
            let op = if inline.is_some() { Op::Update } else { Op::Create };
            let put = RoleChanges { put: vec![POLICY.to_owned()], ..RoleChanges::default() };
            plan.steps.push(self.role(wanted, op, put).needs(&["iam:PutRolePolicy"], &self.role));
        }
        let env = json!([{"name": VARIABLE, "value": wanted.queue.name}]);
        let done = plan.steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
        plan.steps.extend(self.deployment(Some(env)).map(|step| step.after(done)));
        plan.steps.extend(patches.iter().filter_map(|body| self.patch(body)));
        plan.drop_unknown_dependencies();
        plan
    }

    /// Takes away what was given, the queue last.
    pub(crate) fn restore(&self, wanted: &Wanted) -> Plan {
        let mut plan = Plan::default();
        plan.steps.extend(self.deployment(None));
        let bare = |object: &Object| {
            self.patch(&json!({
                "apiVersion": object.body["apiVersion"],
                "kind": object.body["kind"],
                "metadata": {"name": object.name},
            }))
        };
        let of_addon = |object: &&Object| is_of_add_on(&object.body);
        plan.steps.extend(self.objects.values().filter(of_addon).filter_map(bare));
        let done = plan.steps.iter().map(|step| step.id.clone());
        let done = done.collect::<Vec<_>>();
        if self.role_state.as_ref().is_some_and(|role| role.inline.contains_key(POLICY)) {
            let delete = RoleChanges { delete: vec![POLICY.to_owned()], ..RoleChanges::default() };
            let step = self.role(wanted, Op::Delete, delete).after(done);
            plan.steps.push(step.needs(&["iam:DeleteRolePolicy"], &self.role));
        }
        self.events.remove(wanted, &mut plan);
        plan
    }

    fn role(&self, wanted: &Wanted, op: Op, changes: RoleChanges) -> Step {
        let role = Role {
            name: self.role.clone(),
            path: String::new(),
            trust: Document::new([]),
            attached: Vec::new(),
            inline: BTreeMap::from([(POLICY.to_owned(), wanted.policy.clone())]),
            boundary: None,
            tags: Tags::new(),
        };
        let action = Action::EnsureRole { role, changes };
        Step::new("policy", "IAM role", &self.role, op, action)
            .because([format!("inline policy {POLICY}")])
    }

    /// The queue's name in the Deployment, or no field of ours there.
    fn deployment(&self, env: Option<Value>) -> Option<Step> {
        let mut body = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": DEPLOYMENT, "namespace": NAMESPACE},
        });
        if let Some(env) = env {
            let container = json!({"name": CONTAINER, "env": env});
            body["spec"]["template"]["spec"]["containers"] = json!([container]);
        }
        let object = Object { body, ..self.deployment.clone() };
        apply(object, &self.deployment.body)
    }

    fn patch(&self, body: &Value) -> Option<Step> {
        let object = node_object(body.clone())?;
        let live = self.objects.get(&object.key())?;
        apply(object, &live.body)
    }
}

/// Applies fields of ours beside those of others, if that changes anything.
fn apply(object: Object, live: &Value) -> Option<Step> {
    let changes = object_changes(&object, live, &[]);
    if changes.is_empty() {
        return None;
    }
    let (id, kind) = (step_id(&object), object.resource.kind.clone());
    let (name, plural) = (object.key().path(), object.resource.plural.clone());
    Some(
        Step::new(&id, &kind, &name, Op::Update, Action::Apply(object))
            .changing(changes)
            .needs(&["patch"], &plural),
    )
}

/// A variable of the add-on's container.
fn variable<'a>(deployment: &'a Value, name: &str) -> Option<&'a Value> {
    let containers = deployment.pointer("/spec/template/spec/containers")?.as_array()?;
    let container = containers.iter().find(|container| container["name"] == CONTAINER)?;
    container["env"].as_array()?.iter().find(|variable| variable["name"] == name)
}
