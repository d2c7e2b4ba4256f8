//! The steps of the move, there and back. Pure: what is done already needs no step, so a run that
//! was killed is run again.
//!
//! Cluster Autoscaler stops before the first NodePool exists, so that never both launch nodes for
//! the same pods. All nodes that are to be emptied are cordoned at once: a pod moves only once.
//! Then one group after the other is emptied.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::ownership::SIZES;
use tenon_installer_core::plan::change::changes;
use tenon_installer_core::plan::{Action, GroupSize, NodeMove, Op, Plan, Step, object_changes};
use tenon_installer_core::words::some;

use super::super::stopped::Stopped as _;
use super::size::{Size, Sizes};
use super::{Autoscaler, Found, Group};

/// How the move is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// How long one pod may take to leave its node, in seconds.
    pub pod_seconds: u64,
    /// How long a node may take, in seconds.
    pub node_seconds: u64,
    /// How long everything else may take, in seconds.
    pub seconds: u64,
    /// Protected pods go as well.
    pub is_forced: bool,
}

/// A part of the move, after which one may pause.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    /// The group that it empties; none for what comes before the first.
    pub group: Option<String>,
    /// Its steps.
    pub plan: Plan,
}

/// A NodePool or EC2NodeClass that is not as it should be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    /// As it should be.
    pub object: Object,
    /// As it is, if it is there.
    pub live: Option<Value>,
}

/// Where a Deployment is, without what it holds: that changes while one looks.
fn place(autoscaler: &Autoscaler) -> Object {
    Object::at(&autoscaler.live.resource, &autoscaler.live.key())
}

/// The move to Tenon, with the NodePools and EC2NodeClasses that it lacks.
pub(crate) fn migrate(
    found: &Found,
    autoscaler: &Autoscaler,
    objects: &[Wanted],
    (install_id, limits): (&str, Limits),
) -> Vec<Part> {
    let groups = found.groups.iter().map(|group| (group, of_group(found, group, limits)));
    let groups = groups.filter(|(_, plan)| !plan.steps.is_empty()).collect::<Vec<_>>();
    let mut first = Plan::default();
    prepare(&mut first, found, autoscaler, objects, (install_id, limits));
    let mut parts = vec![Part { group: None, plan: first }];
    parts.extend(
        groups.into_iter().map(|(group, plan)| Part { group: Some(group.name.clone()), plan }),
    );
    parts.retain(|part| !part.plan.steps.is_empty());
    parts
}

fn prepare(
    plan: &mut Plan,
    found: &Found,
    autoscaler: &Autoscaler,
    objects: &[Wanted],
    (install_id, limits): (&str, Limits),
) {
    let mut before = Vec::new();
    let kind = |wanted: &&Wanted, kind: &str| wanted.object.resource.kind == kind;
    for wanted in objects.iter().filter(|wanted| kind(wanted, "EC2NodeClass")) {
        let class = &wanted.object;
        let ready = format!("ready/{}", class.name);
        plan.steps.push(apply(wanted));
        let object = Object::at(&class.resource, &class.key());
        let action = Action::AwaitReady { object, seconds: limits.seconds };
        plan.steps.push(
            Step::new(&ready, "EC2NodeClass", &class.name, Op::Update, action)
                .because(["the operator finds its images, subnets and security groups"])
                .after([apply_id(class)]),
        );
        before.push(ready);
    }
    let key = autoscaler.live.key();
    let sizes = sizes(found, autoscaler);
    if sizes != autoscaler.sizes() {
        let text = serde_json::to_string(&sizes).expect("maps of numbers always serialise");
        let annotations = BTreeMap::from([(SIZES.to_owned(), Some(text))]);
        let action = Action::Annotate { object: place(autoscaler), annotations };
        plan.steps.push(
            Step::new("sizes", &key.kind, &key.path(), Op::Update, action)
                .because(["remembers the sizes of the groups, for --abort"])
                .after(before.clone())
                .needs(&["patch"], &key.to_string()),
        );
        before.push("sizes".to_owned());
    }
    if autoscaler.live.replicas_now() > 0 {
        let replicas = |n: i64| json!({"spec": {"replicas": n}});
        let action = Action::HandOver {
            deployment: place(autoscaler),
            replicas: autoscaler.live.replicas(),
            install_id: install_id.to_owned(),
            seconds: limits.seconds,
        };
        plan.steps.push(
            Step::new("stop", &key.kind, &key.path(), Op::Update, action)
                .because(["it stays"])
                .changing(changes(&replicas(autoscaler.live.replicas_now()), &replicas(0)))
                .after(before.clone())
                .needs(&["patch"], &key.to_string()),
        );
        before = vec!["stop".to_owned()];
    }
    let mut pools = Vec::new();
    for pool in objects.iter().filter(|wanted| kind(wanted, "NodePool")) {
        plan.steps.push(apply(pool).after(before.clone()));
        pools.push(apply_id(&pool.object));
    }
    let to_cordon = uncordoned(found);
    if !to_cordon.is_empty() {
        let what = some(&to_cordon, 2);
        let action = Action::Cordon { nodes: to_cordon, install_id: install_id.to_owned() };
        plan.steps.push(
            Step::new("cordon", "Node", &what, Op::Update, action)
                .because(["cordoned: pods that are evicted go to Tenon's nodes"])
                .after(before.into_iter().chain(pools))
                .needs(&["patch"], "nodes"),
        );
    }
}

fn apply_id(object: &Object) -> String {
    format!("{}/{}", object.resource.kind, object.name)
}

fn apply(Wanted { object, live }: &Wanted) -> Step {
    let key = object.key();
    let action = Action::Apply(object.clone());
    let (op, changes) = match live {
        Some(live) => (Op::Update, object_changes(object, live, &[])),
        None => (Op::Create, Vec::new()),
    };
    Step::new(&apply_id(object), &key.kind, &key.name, op, action)
        .changing(changes)
        .needs(&["patch"], &key.to_string())
}

/// What the groups were like before the first was touched.
fn sizes(found: &Found, autoscaler: &Autoscaler) -> Sizes {
    let mut sizes = autoscaler.sizes();
    for group in &found.groups {
        sizes.entry(group.scaling.name.clone()).or_insert_with(|| Size::of(&group.scaling));
    }
    sizes
}

/// Nodes that are to be emptied and can still get pods.
fn uncordoned(found: &Found) -> Vec<String> {
    let moving = found.moving();
    let nodes = found.groups.iter().flat_map(|group| &group.nodes);
    let open =
        nodes.filter(|node| node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true)));
    let names = open.filter_map(|node| node.metadata.name.clone());
    names.filter(|name| moving.contains(name)).collect()
}

/// Steps that empty a group.
fn of_group(found: &Found, group: &Group, limits: Limits) -> Plan {
    let mut plan = Plan::default();
    let name = &group.scaling.name;
    let leaving = group.scaling.instances.iter().filter(|instance| {
        group.node_of(instance).is_none_or(|node| !found.stays.contains_key(&node))
    });
    let leaving = leaving.collect::<Vec<_>>();
    let kept = i32::try_from(group.scaling.instances.len() - leaving.len()).unwrap_or(i32::MAX);
    let mut before = Vec::new();
    let suspends = !leaving.is_empty() && !group.scaling.is_rebalance_suspended;
    if suspends {
        let id = format!("suspend/{name}");
        plan.steps.push(rebalance(&id, name, true));
        before.push(id);
    }
    if group.scaling.min > kept {
        let id = format!("size/{name}");
        plan.steps.push(resize(&id, group, (kept, None), limits.seconds).after(before.clone()));
        before.push(id);
    }
    let mut last = before.clone();
    for instance in leaving {
        let node = group.node_of(instance);
        let id = format!("node/{}", node.as_deref().unwrap_or(instance));
        let reason = match &node {
            Some(_) => format!("drained, and {instance} terminated"),
            None => "terminated: it never joined the cluster".to_owned(),
        };
        let resource = node.clone().unwrap_or_else(|| instance.clone());
        let action = Action::EmptyNode(NodeMove {
            group: name.clone(),
            instance: instance.clone(),
            node,
            is_forced: limits.is_forced,
            pod_seconds: limits.pod_seconds,
            seconds: limits.node_seconds,
        });
        plan.steps.push(
            Step::new(&id, "Node", &resource, Op::Delete, action)
                .because([reason])
                .after(before.clone())
                .needs(&["autoscaling:TerminateInstanceInAutoScalingGroup"], name)
                .needs(&["create"], "pods/eviction"),
        );
        last.push(id);
    }
    let was = found.autoscalers.iter().find_map(|one| one.sizes().get(name).copied());
    let was_on = was.map_or(!group.scaling.is_rebalance_suspended, |was| was.rebalance);
    let is_suspended = suspends || group.scaling.is_rebalance_suspended;
    if was_on && is_suspended {
        plan.steps.push(rebalance(&format!("resume/{name}"), name, false).after(last));
    }
    plan
}

fn rebalance(id: &str, group: &str, is_suspended: bool) -> Step {
    let (what, call) = if is_suspended {
        ("AZRebalance is suspended", "autoscaling:SuspendProcesses")
    } else {
        ("AZRebalance is resumed", "autoscaling:ResumeProcesses")
    };
    let action = Action::SetRebalance { group: group.to_owned(), is_suspended };
    Step::new(id, "Auto Scaling group", group, Op::Update, action)
        .because([what])
        .needs(&[call], group)
}

fn resize(id: &str, group: &Group, (min, desired): (i32, Option<i32>), seconds: u64) -> Step {
    let scaling = &group.scaling;
    let node_group = group.managed.as_ref().map(|managed| managed.name.clone());
    let (kind, call) = match &node_group {
        Some(_) => ("node group", "eks:UpdateNodegroupConfig"),
        None => ("Auto Scaling group", "autoscaling:UpdateAutoScalingGroup"),
    };
    let of = |min: i32, desired: i32| -> Value { json!({"minSize": min, "desiredSize": desired}) };
    let after = of(min, desired.unwrap_or(scaling.desired));
    let action = Action::ResizeGroup(GroupSize {
        group: scaling.name.clone(),
        node_group,
        min,
        desired,
        seconds,
    });
    Step::new(id, kind, &group.name, Op::Update, action)
        .changing(changes(&of(scaling.min, scaling.desired), &after))
        .needs(&[call], &group.name)
}

/// The way back: the groups get their sizes, the nodes that are left take pods again, and Cluster
/// Autoscaler runs. NodePools stay, and so do the pods on their nodes.
pub(crate) fn abort(
    found: &Found,
    autoscaler: &Autoscaler,
    (install_id, seconds): (&str, u64),
) -> Plan {
    let mut plan = Plan::default();
    if autoscaler.live.stopped_by() != Some(install_id) {
        return plan;
    }
    let mut done = Vec::new();
    let sizes = autoscaler.sizes();
    for group in &found.groups {
        let (name, scaling) = (&group.scaling.name, &group.scaling);
        let Some(was) = sizes.get(name) else { continue };
        let desired = was.desired.max(scaling.desired).min(scaling.max.max(was.min));
        if scaling.min != was.min || scaling.desired != desired {
            let id = format!("size/{name}");
            plan.steps.push(resize(&id, group, (was.min, Some(desired)), seconds));
            done.push(id);
        }
        if was.rebalance && scaling.is_rebalance_suspended {
            let id = format!("resume/{name}");
            plan.steps.push(rebalance(&id, name, false).after(done.clone()));
            done.push(id);
        }
    }
    let ours = found.cordoned.iter().filter(|(_, by)| *by == install_id);
    let nodes = ours.map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if !nodes.is_empty() {
        let what = some(&nodes, 2);
        plan.steps.push(
            Step::new("uncordon", "Node", &what, Op::Update, Action::Uncordon { nodes })
                .because(["uncordoned"])
                .needs(&["patch"], "nodes"),
        );
        done.push("uncordon".to_owned());
    }
    let key = autoscaler.live.key();
    let step = |id: &str, action| {
        let step = Step::new(id, &key.kind, &key.path(), Op::Update, action);
        step.needs(&["patch"], &key.to_string())
    };
    let replicas = autoscaler.live.replicas();
    let of = |n: i64| json!({"spec": {"replicas": n}});
    let deployment = place(autoscaler);
    plan.steps.push(
        step("start", Action::HandBack { deployment, replicas, seconds })
            .changing(changes(&of(autoscaler.live.replicas_now()), &of(replicas)))
            .after(done),
    );
    // Last: as long as the marks are there, a run that was killed knows what it was about.
    let annotations = BTreeMap::from([(SIZES.to_owned(), None)]);
    let object = place(autoscaler);
    plan.steps.push(
        step("sizes", Action::Annotate { object, annotations })
            .because(["without the sizes of the groups"])
            .after(["start"]),
    );
    let deployment = place(autoscaler);
    plan.steps.push(
        step("forget", Action::ForgetHandOver { deployment, replicas: None })
            .because(["without our annotations"])
            .after(["sizes"]),
    );
    plan
}
