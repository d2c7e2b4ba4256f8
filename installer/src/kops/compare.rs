//! How far a cluster is from what its InstanceGroups ask for.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use serde_json::Value;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::freeze::is_frozen;
use tenon_installer_core::kubernetes::object::{Key, Object, label};
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::plan::impact::Impact;
use tenon_installer_core::plan::{Action, Op, Plan, Step, object_changes, step_id};
use tenon_kops::{GROUP_LABEL, config_hash};

/// What there is to do.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// The steps.
    pub plan: Plan,
    /// What they do to nodes.
    pub impact: Impact,
    /// Why the cluster would not take it, each with what to do.
    pub reasons: Vec<String>,
    /// Objects that no InstanceGroup asks for any more.
    pub surplus: Vec<Key>,
    /// NodePools that `tenon freeze` has paused: they stay as they are.
    pub frozen: Vec<Key>,
}

/// The cluster's name in kOps, which tells it to kops-controller; none without kops-controller.
pub(crate) async fn cluster_name(kube: &Cluster) -> Result<Option<String>, Failure> {
    let key = Key {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("kube-system".to_owned()),
        name: "kops-controller".to_owned(),
    };
    let found = kube.get(&ApiResource::erase::<ConfigMap>(&()), &key).await?.unwrap_or_default();
    let config = found["data"]["config.yaml"].as_str().unwrap_or_default();
    let config: Value = serde_saphyr::from_str(config).unwrap_or_default();
    Ok(config["clusterName"].as_str().map(str::to_owned))
}

/// Why this is not the cluster of kOps that is meant, with what to do; none if it is.
pub(crate) async fn against_cluster(kube: &Cluster, name: &str) -> Result<Option<String>, Failure> {
    Ok(match cluster_name(kube).await? {
        Some(there) if there == name => None,
        Some(there) => Some(format!(
            "the kubeconfig is for cluster {there}, and the state store for {name}: choose the \
             context with --context, or the cluster with --name"
        )),
        None => Some(format!(
            "the kubeconfig is for a cluster without kops-controller, and so not for {name}: choose \
             the context with --context"
        )),
    })
}

/// All NodePools and EC2NodeClasses.
pub(super) async fn node_objects(kube: &Cluster) -> Result<BTreeMap<Key, Object>, Failure> {
    let mut objects = BTreeMap::new();
    for resource in [resources::node_classes(), resources::node_pools()] {
        for object in kube.list(&resource).await? {
            let body = serde_json::to_value(object).unwrap_or_default();
            let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let object = Object { resource: resource.clone(), namespace: None, name, body };
            objects.insert(object.key(), object);
        }
    }
    Ok(objects)
}

/// Compares. `groups` are the names of all InstanceGroups that become NodePools; with `prunes`,
/// objects of others are removed.
pub(crate) async fn compare(
    kube: &Cluster,
    wanted: Vec<Value>,
    groups: &[String],
    prunes: bool,
) -> Result<Comparison, Failure> {
    let mut found = Comparison::default();
    let live = node_objects(kube).await?;
    let wanted = wanted.into_iter().filter_map(resources::node_object).collect::<Vec<_>>();
    let keys = wanted.iter().map(Object::key).collect::<BTreeSet<_>>();
    let asked = wanted.iter().filter_map(|object| label(&object.body, GROUP_LABEL));
    let asked = asked.map(str::to_owned).collect::<BTreeSet<_>>();
    for object in wanted {
        let key = object.key();
        match live.get(&key) {
            None => found.plan.steps.push(apply(object, Op::Create)),
            // Its limits and budgets are those of `tenon freeze`.
            Some(there) if is_frozen(&there.body) => found.frozen.push(key),
            Some(there) => {
                found.reasons.extend(against(&object, &there.body));
                let changes = object_changes(&object, &there.body, &[]);
                if !changes.is_empty() {
                    let why = other_script(&object.body, &there.body);
                    let step = apply(object, Op::Update).changing(changes).because(why);
                    found.plan.steps.push(step);
                }
            }
        }
    }
    // Of groups that were not asked for, nothing is wanted, and nothing is known.
    let is_surplus = |object: &&Object| {
        label(&object.body, GROUP_LABEL).is_some_and(|group| {
            let is_gone = !groups.iter().any(|known| known == group);
            (is_gone || asked.contains(group)) && !keys.contains(&object.key())
        })
    };
    // NodePools first: an EC2NodeClass stays until no NodeClaim refers to it.
    for object in live.values().filter(is_surplus).rev() {
        found.surplus.push(object.key());
        if prunes {
            let group = label(&object.body, GROUP_LABEL).unwrap_or_default();
            let action = Action::Delete(Object::at(&object.resource, &object.key()));
            found.plan.steps.push(
                Step::new(
                    &format!("old/{}", step_id(object)),
                    &object.resource.kind,
                    &object.name,
                    Op::Delete,
                    action,
                )
                .because([format!("InstanceGroup {group} no longer asks for it")])
                .needs(&["delete"], &object.resource.plural),
            );
        }
    }
    if Impact::needs_claims(&found.plan) {
        let claims = kube.list(&resources::node_claims()).await?;
        let claims = claims.into_iter().map(|it| serde_json::to_value(it).unwrap_or_default());
        let claims = claims.collect::<Vec<_>>();
        let live = live.into_iter().map(|(key, object)| (key, object.body)).collect();
        found.impact = Impact::on_nodes(&found.plan, &live, &claims);
    }
    Ok(found)
}

fn apply(object: Object, op: Op) -> Step {
    let (kind, name) = (object.resource.kind.clone(), object.name.clone());
    let plural = object.resource.plural.clone();
    Step::new(&step_id(&object), &kind, &name, op, Action::Apply(object)).needs(&["patch"], &plural)
}

/// What the API server would refuse, or what would be lost.
fn against(object: &Object, live: &Value) -> Vec<String> {
    let key = object.key();
    let mut reasons = Vec::new();
    if !live["metadata"]["deletionTimestamp"].is_null() {
        reasons.push(format!("{key} is being deleted: run this command again when it is gone"));
    }
    let is_static = |body: &Value| !body["spec"]["replicas"].is_null();
    if object.resource.kind == "NodePool" && is_static(&object.body) != is_static(live) {
        let (now, wanted) = if is_static(live) {
            ("has a fixed size", "without minSize, it has as many nodes as pods need")
        } else {
            ("has as many nodes as pods need", "with minSize, it has a fixed size")
        };
        reasons.push(format!(
            "{key} {now}; {wanted}. One cannot become the other: delete it (`kubectl delete \
             nodepool {}`, which drains its nodes), then run this command again",
            object.name
        ));
    }
    reasons
}

/// That nodes boot with another script, which is not shown as a field.
fn other_script(wanted: &Value, live: &Value) -> Option<String> {
    let hash = |body: &Value| config_hash(body["spec"]["userData"].as_str().unwrap_or_default());
    match (hash(live), hash(wanted)) {
        (Some(before), Some(after)) if before != after => {
            Some(format!("nodeup config {before} → {after}"))
        }
        _ => None,
    }
}
