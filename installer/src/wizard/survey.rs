//! Reads what the questions are about. What can't be read is left out of the choices, and said.

use serde_json::Value;
use tenon_checks::observe::{rivals, subnet_views, vcpu_quotas};
use tenon_checks::observed::{SubnetClass, SubnetView};
use tenon_installer_core::aws::Aws;
use tenon_installer_core::kubernetes::client::{Cluster, KubeError};
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::names::AGENT;
use tenon_installer_core::observe::facts::Facts;
use tenon_installer_core::observe::{eks, iam, node_groups};

use super::known::{GROUP_LABEL, NodeView, SubnetChoice, Survey};

/// Reads everything, side by side. The second part is what could not be read, and why.
pub(crate) async fn survey(aws: &Aws, cluster: &Cluster, facts: &Facts) -> (Survey, Vec<String>) {
    let name = &facts.cluster.name;
    let (alias, agent, rivals, groups, nodes, subnets, security_groups, quotas) = tokio::join!(
        iam::account_alias(aws),
        eks::addon(aws, name, AGENT),
        rivals(cluster),
        node_groups::read(aws, name),
        nodes(cluster),
        subnet_views(aws, facts.cluster.subnet_ids.clone()),
        node_groups::security_groups(aws, name),
        vcpu_quotas(aws, &facts.cluster.region),
    );
    let mut unread = Vec::new();
    let survey = Survey {
        facts: Some(facts.clone()),
        alias: kept(alias, &mut unread).flatten(),
        agent_is_missing: !facts.cluster.auto_mode
            && kept(agent, &mut unread).is_some_and(|agent| agent.is_none()),
        rivals: kept(rivals, &mut unread).unwrap_or_default(),
        node_groups: kept(groups, &mut unread).unwrap_or_default(),
        nodes: kept(nodes, &mut unread).unwrap_or_default(),
        subnets: kept(subnets, &mut unread).map_or_else(
            || facts.cluster.subnet_ids.iter().map(|id| plain(id)).collect(),
            |views| views.into_iter().map(choice).collect(),
        ),
        security_groups: kept(security_groups, &mut unread).unwrap_or_default(),
        quotas: kept(quotas, &mut unread),
    };
    (survey, unread)
}

/// What was read, if it was; otherwise why not.
fn kept<T>(read: Result<T, impl std::fmt::Display>, unread: &mut Vec<String>) -> Option<T> {
    read.map_err(|error| unread.push(error.to_string())).ok()
}

/// A subnet of which nothing but its id is known.
pub(super) fn plain(id: &str) -> SubnetChoice {
    SubnetChoice { id: id.to_owned(), words: id.to_owned(), is_private: false }
}

fn choice(subnet: SubnetView) -> SubnetChoice {
    let class = format!("{:?}", subnet.class).to_lowercase();
    let SubnetView { id, zone, free_addresses, .. } = subnet;
    SubnetChoice {
        words: format!("{id}  {zone}  {free_addresses} free addresses  {class}"),
        is_private: subnet.class == SubnetClass::Private,
        id,
    }
}

/// The nodes that no NodePool launched and that take pods.
async fn nodes(cluster: &Cluster) -> Result<Vec<NodeView>, KubeError> {
    let nodes = cluster.list(&resources::nodes()).await?;
    let nodes = nodes.iter().map(|node| serde_json::json!(node));
    Ok(nodes.filter_map(|node| view(&node)).collect())
}

fn view(node: &Value) -> Option<NodeView> {
    let label = |key: &str| node["metadata"]["labels"].get(key).and_then(Value::as_str);
    let is_closed = node["spec"]["unschedulable"].as_bool().unwrap_or(false);
    let is_fargate = label("eks.amazonaws.com/compute-type") == Some("fargate");
    if is_closed || is_fargate || label("karpenter.sh/nodepool").is_some() {
        return None;
    }
    let text = |taint: &Value, key: &str| taint[key].as_str().unwrap_or_default().to_owned();
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    Some(NodeView {
        group: label(GROUP_LABEL).map(str::to_owned),
        zone: label("topology.kubernetes.io/zone").map(str::to_owned),
        taints: taints
            .map(|taint| (text(taint, "key"), text(taint, "value"), text(taint, "effect")))
            .filter(|(_, _, effect)| effect != "PreferNoSchedule")
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_of_node_pools_and_closed_ones_are_not_offered() {
        let node = |labels: Value, spec: Value| {
            view(&json!({"metadata": {"labels": labels}, "spec": spec}))
        };
        let taints = json!({"taints": [
            {"key": "dedicated", "value": "system", "effect": "NoSchedule"},
            {"key": "soft", "effect": "PreferNoSchedule"},
        ]});
        let labels = json!({GROUP_LABEL: "system", "topology.kubernetes.io/zone": "eu-west-1a"});
        let found = node(labels, taints).expect("it takes pods");
        assert_eq!(
            (found.group.as_deref(), found.zone.as_deref()),
            (Some("system"), Some("eu-west-1a"))
        );
        let taint = ("dedicated".to_owned(), "system".to_owned(), "NoSchedule".to_owned());
        assert_eq!(found.taints, [taint].into());
        assert_eq!(node(json!({"karpenter.sh/nodepool": "default"}), json!({})), None);
        assert_eq!(node(json!({}), json!({"unschedulable": true})), None);
        assert_eq!(node(json!({"eks.amazonaws.com/compute-type": "fargate"}), json!({})), None);
    }
}
