//! What an uninstall does to workloads, said before it begins: which pods have to move, what holds
//! them, what they lose, and whether the nodes that stay have room.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use serde::Serialize;
use tenon_crds::quantity::Quantity;
use tenon_crds::selector;
use tenon_crds::toleration::tolerates;
use tenon_installer_core::apply::drain::must_leave;
use tenon_installer_core::words::{count, some};

/// Nodes of NodePools carry it.
const POOL: &str = "karpenter.sh/nodepool";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// What there is to lose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Risk {
    /// Pods that have to leave their nodes, as `namespace/name`.
    pub pods: Vec<String>,
    /// Budgets that allow none of their pods to go now, with why that matters.
    pub blocking_budgets: Vec<String>,
    /// Pods that ask not to be disrupted: they hold their node until they end.
    pub do_not_disrupt: Vec<String>,
    /// Pods that nobody starts again.
    pub unmanaged: Vec<String>,
    /// Pods with volumes that go with the node.
    pub local_volumes: Vec<String>,
    /// Pods for which the nodes that stay have no room.
    pub without_room: Vec<String>,
}

impl Risk {
    /// For people; empty if no pod has to move.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut add = |what: String, names: &[String]| {
            if !names.is_empty() {
                lines.push(format!(" ! {what}: {}", some(names, 5)));
            }
        };
        let of = |names: &[String], noun: &str| count(names.len(), noun);
        add(format!("{} to move", of(&self.pods, "pod")), &self.pods);
        add(
            format!("{} blocked by a disruption budget", of(&self.blocking_budgets, "set")),
            &self.blocking_budgets,
        );
        add(
            format!("{} not to be disrupted", of(&self.do_not_disrupt, "pod")),
            &self.do_not_disrupt,
        );
        add(format!("{} without a controller", of(&self.unmanaged, "pod")), &self.unmanaged);
        add(
            format!("{} with data on the node's local disk", of(&self.local_volumes, "pod")),
            &self.local_volumes,
        );
        add(
            format!("{} for which the other nodes have no room", of(&self.without_room, "pod")),
            &self.without_room,
        );
        lines
    }

    /// Looks at a cluster. Room is counted in CPU, memory and pods, on nodes whose taints a pod
    /// tolerates; affinity and spread are not considered, so it may be tighter than this says.
    pub(crate) fn of(nodes: &[Node], pods: &[Pod], budgets: &[PodDisruptionBudget]) -> Self {
        let is_ours = |node: &&Node| node.labels().contains_key(POOL);
        let ours = nodes.iter().filter(is_ours).map(ResourceExt::name_any).collect::<Vec<_>>();
        let node_of = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let moving = pods
            .iter()
            .filter(|pod| node_of(pod).is_some_and(|node| ours.contains(&node)))
            // Those that end already need no other place.
            .filter(|pod| must_leave(pod) && pod.metadata.deletion_timestamp.is_none())
            .collect::<Vec<_>>();
        let names = |which: &dyn Fn(&Pod) -> bool| {
            moving.iter().filter(|pod| which(pod)).map(|pod| name(pod)).collect::<Vec<_>>()
        };
        Self {
            pods: names(&|_| true),
            blocking_budgets: blocking(budgets, &moving),
            do_not_disrupt: names(&|pod| {
                pod.annotations().get(DO_NOT_DISRUPT).is_some_and(|value| value == "true")
            }),
            unmanaged: names(&|pod| pod.owner_references().is_empty()),
            local_volumes: names(&has_local_volume),
            without_room: without_room(nodes, pods, &moving),
        }
    }
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn has_local_volume(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.into_iter().any(|volume| {
        let scratch = volume.empty_dir.as_ref();
        volume.host_path.is_some()
            // A scratch volume in memory is lost at every restart anyway.
            || scratch.is_some_and(|scratch| scratch.medium.as_deref() != Some("Memory"))
    })
}

fn selects(selector: Option<&LabelSelector>, pod: &Pod) -> bool {
    selector.is_some_and(|selector| selector::selects(selector, pod.labels()))
}

fn blocking(budgets: &[PodDisruptionBudget], moving: &[&Pod]) -> Vec<String> {
    let none_allowed = |budget: &&PodDisruptionBudget| {
        budget.status.as_ref().is_some_and(|status| status.disruptions_allowed.unwrap_or(0) == 0)
    };
    let held = budgets.iter().filter(none_allowed).filter_map(|budget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let pods = moving
            .iter()
            .filter(|pod| pod.namespace() == budget.namespace() && selects(selector, pod))
            .count();
        (pods > 0).then(|| {
            format!(
                "{}/{} ({})",
                budget.namespace().unwrap_or_default(),
                budget.name_any(),
                count(pods, "pod")
            )
        })
    });
    held.collect()
}

/// CPU in millis, memory in bytes, and pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    cpu: i64,
    memory: i64,
    pods: i64,
}

impl Amount {
    fn of(quantities: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        let get = |name: &str| {
            quantities
                .and_then(|all| all.get(name))
                .and_then(|quantity| quantity.0.parse::<Quantity>().ok())
        };
        Self {
            cpu: get("cpu").map_or(0, Quantity::millis),
            memory: get("memory").map_or(0, Quantity::units),
            pods: get("pods").map_or(0, Quantity::units),
        }
    }

    /// What a pod asks for: the sum of its containers, or its largest init container if that is
    /// more.
    fn asked_by(pod: &Pod) -> Self {
        let mut all = Self { pods: 1, ..Self::default() };
        let Some(spec) = &pod.spec else { return all };
        let requests = |resources: Option<&k8s_openapi::api::core::v1::ResourceRequirements>| {
            Self::of(resources.and_then(|resources| resources.requests.as_ref()))
        };
        for container in &spec.containers {
            let asked = requests(container.resources.as_ref());
            all.cpu = all.cpu.saturating_add(asked.cpu);
            all.memory = all.memory.saturating_add(asked.memory);
        }
        for container in spec.init_containers.iter().flatten() {
            let asked = requests(container.resources.as_ref());
            all.cpu = all.cpu.max(asked.cpu);
            all.memory = all.memory.max(asked.memory);
        }
        all
    }

    fn fits(self, room: Self) -> bool {
        self.cpu <= room.cpu && self.memory <= room.memory && self.pods <= room.pods
    }

    fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
            pods: self.pods.saturating_sub(other.pods),
        }
    }
}

/// The largest pods first, each onto the first node with room.
fn without_room(nodes: &[Node], pods: &[Pod], moving: &[&Pod]) -> Vec<String> {
    let takes_pods = |node: &&Node| {
        let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable);
        !node.labels().contains_key(POOL) && unschedulable != Some(true)
    };
    let mut rooms = nodes
        .iter()
        .filter(takes_pods)
        .map(|node| {
            let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
            (node.name_any(), Amount::of(allocatable))
        })
        .collect::<BTreeMap<_, _>>();
    for pod in pods {
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            continue;
        }
        if let Some(room) =
            spec.and_then(|spec| spec.node_name.as_ref()).and_then(|node| rooms.get_mut(node))
        {
            *room = room.minus(Amount::asked_by(pod));
        }
    }
    let taints = nodes.iter().map(|node| (node.name_any(), keeping_off(node)));
    let taints = taints.collect::<BTreeMap<_, _>>();
    let mut asked = moving.iter().map(|pod| (Amount::asked_by(pod), *pod)).collect::<Vec<_>>();
    asked.sort_by(|(a, pod_a), (b, pod_b)| {
        (b.cpu, b.memory).cmp(&(a.cpu, a.memory)).then_with(|| name(pod_a).cmp(&name(pod_b)))
    });
    let mut left = Vec::new();
    for (amount, pod) in asked {
        let spec = pod.spec.as_ref();
        let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        let tolerated = |taint: &&Taint| tolerations.iter().any(|one| tolerates(one, taint));
        let mut open = rooms.iter_mut().filter(|(node, _)| taints[*node].iter().all(tolerated));
        match open.find(|(_, room)| amount.fits(**room)) {
            Some((_, room)) => *room = room.minus(amount),
            None => left.push(name(pod)),
        }
    }
    left
}

/// The taints of a node that keep pods off it which don't tolerate them.
fn keeping_off(node: &Node) -> Vec<&Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect != "PreferNoSchedule").collect()
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn object<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("valid")
    }

    fn node(name: &str, ours: bool, cpu: &str) -> Node {
        let labels = if ours { json!({POOL: "default"}) } else { json!({}) };
        object(json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
        }))
    }

    fn pod(name: &str, node: &str, cpu: &str) -> Pod {
        object(json!({
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": {"app": "web"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}],
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
            },
        }))
    }

    fn budget(allowed: i32) -> PodDisruptionBudget {
        object(json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
    }

    #[test]
    fn only_pods_on_nodes_of_node_pools_have_to_move() {
        let nodes = [node("ours", true, "4"), node("system", false, "4")];
        let pods = [pod("a", "ours", "500m"), pod("b", "system", "500m")];
        let risk = Risk::of(&nodes, &pods, &[budget(1)]);
        assert_eq!(risk, Risk { pods: vec!["default/a".to_owned()], ..Risk::default() });
        assert_eq!(risk.lines(), [" ! 1 pod to move: default/a"]);
    }

    #[test]
    fn a_budget_without_allowance_is_named_if_it_holds_a_pod_that_has_to_move() {
        let nodes = [node("ours", true, "4"), node("system", false, "4")];
        let pods = [pod("a", "ours", "500m")];
        assert_eq!(Risk::of(&nodes, &pods, &[budget(0)]).blocking_budgets, ["default/web (1 pod)"]);
        let elsewhere = [pod("a", "system", "500m")];
        assert!(Risk::of(&nodes, &elsewhere, &[budget(0)]).blocking_budgets.is_empty());
    }

    #[test]
    fn what_the_other_nodes_can_t_hold_is_named() {
        let nodes = [node("ours", true, "8"), node("system", false, "2")];
        let pods = [pod("a", "ours", "1500m"), pod("b", "ours", "1"), pod("c", "system", "400m")];
        assert_eq!(Risk::of(&nodes, &pods, &[]).without_room, ["default/b"]);
    }

    #[test]
    fn pods_that_end_already_need_no_other_place() {
        let mut ending = pod("a", "ours", "1");
        ending.metadata.deletion_timestamp = Some(object(json!("2026-11-29T12:00:00Z")));
        let risk = Risk::of(&[node("ours", true, "8")], &[ending], &[budget(0)]);
        assert_eq!(risk, Risk::default());
    }

    #[test]
    fn a_tainted_node_has_room_for_pods_that_tolerate_it_only() {
        let mut control_plane = node("control-plane", false, "8");
        let key = "node-role.kubernetes.io/control-plane";
        let taint = json!({"key": key, "effect": "NoSchedule"});
        control_plane.spec = Some(object(json!({ "taints": [taint] })));
        let nodes = [node("ours", true, "8"), control_plane];
        let mut allowed = pod("b", "ours", "1");
        let tolerations = vec![object(json!({"key": key, "operator": "Exists"}))];
        allowed.spec.get_or_insert_default().tolerations = Some(tolerations);
        let risk = Risk::of(&nodes, &[pod("a", "ours", "1"), allowed], &[]);
        assert_eq!(risk.without_room, ["default/a"]);
    }

    #[test]
    fn bare_pods_and_scratch_data_are_named() {
        let nodes = [node("ours", true, "8"), node("system", false, "8")];
        let mut bare = pod("a", "ours", "1");
        bare.metadata.owner_references = None;
        bare.metadata.annotations = Some([(DO_NOT_DISRUPT.to_owned(), "true".to_owned())].into());
        let spec = bare.spec.get_or_insert_default();
        spec.volumes = Some(vec![object(json!({"name": "scratch", "emptyDir": {}}))]);
        let risk = Risk::of(&nodes, &[bare], &[]);
        let all = ["default/a".to_owned()];
        assert_eq!(risk.unmanaged, all);
        assert_eq!(risk.do_not_disrupt, all);
        assert_eq!(risk.local_volumes, all);
    }
}
