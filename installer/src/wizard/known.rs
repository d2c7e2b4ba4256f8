//! What is known before a question is asked: the choices, the defaults and their reasons.

use std::collections::{BTreeMap, BTreeSet};

use tenon_checks::observe::Rival;
use tenon_installer_core::observe::facts::Facts;
use tenon_installer_core::observe::node_groups::NodeGroup;
use tenon_installer_core::settings::Inferred;
use tenon_installer_core::settings::config::{Architecture, Config};
use tenon_installer_core::target::NamedTarget;
use tenon_installer_core::words::count;

/// The label of nodes of a managed node group.
pub(super) const GROUP_LABEL: &str = "eks.amazonaws.com/nodegroup";

/// What was found out before asking.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// What was given by flag or variable, and is not asked.
    pub(crate) given: Config,
    /// What the kubeconfig's current context says.
    pub(crate) inferred: Inferred,
    /// The contexts that name a cluster.
    pub(crate) contexts: Vec<NamedTarget>,
    /// A region that this version does not know is accepted.
    pub(crate) may_be_unknown_region: bool,
    /// The clusters of the region that was answered, once they were listed.
    pub(crate) clusters: Vec<String>,
    /// The plan is only shown, so that nothing is to be chosen about its delivery.
    pub(crate) only_plans: bool,
    /// What the settings of the installation say of default objects.
    pub(crate) defaults_enabled: Option<bool>,
    /// Cluster and account.
    pub(crate) survey: Survey,
}

impl Known {
    /// The contexts to choose from: where the region is given, only those of clusters in it.
    pub(super) fn offered_contexts(&self) -> Vec<&NamedTarget> {
        let region = self.given.cluster.region.as_ref();
        let offered =
            self.contexts.iter().filter(|one| region.is_none_or(|name| *name == one.region));
        offered.collect()
    }
}

/// What was found in the account and the cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Survey {
    /// Caller and cluster.
    pub(crate) facts: Option<Facts>,
    /// The account's alias.
    pub(crate) alias: Option<String>,
    /// The cluster has no Pod Identity agent, neither as an add-on nor built in.
    pub(crate) agent_is_missing: bool,
    /// Other autoscalers that run.
    pub(crate) rivals: Vec<Rival>,
    /// The managed node groups.
    pub(crate) node_groups: Vec<NodeGroup>,
    /// The nodes that no NodePool launched.
    pub(crate) nodes: Vec<NodeView>,
    /// The cluster's subnets.
    pub(crate) subnets: Vec<SubnetChoice>,
    /// The security groups that instances of node groups have.
    pub(crate) security_groups: Vec<String>,
    /// The account's quotas of vCPUs in the region: on-demand, spot.
    pub(crate) quotas: Option<(f64, f64)>,
}

/// A node that no NodePool launched and that takes pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodeView {
    /// Name of its node group.
    pub(crate) group: Option<String>,
    /// Name of its availability zone; `None` where the node has no label for it.
    pub(crate) zone: Option<String>,
    /// Its taints that keep pods away: key, value, effect.
    pub(crate) taints: BTreeSet<(String, String, String)>,
}

impl NodeView {
    /// The chart tolerates it as it is.
    fn is_open(&self) -> bool {
        self.taints.iter().all(|(key, _, _)| key == "CriticalAddonsOnly")
    }
}

/// A subnet of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubnetChoice {
    /// `subnet-` and hexadecimal digits.
    pub(crate) id: String,
    /// The same with what matters about it.
    pub(crate) words: String,
    /// Instances in it have no public address.
    pub(crate) is_private: bool,
}

/// Where the operator can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostChoice {
    /// On any node that no NodePool launched.
    AnyNode {
        /// How many of them its pods tolerate.
        open: usize,
    },
    /// On the nodes of one group, whose taints are tolerated.
    Group {
        /// Name of the node group.
        name: String,
        /// The taints of its nodes.
        taints: BTreeSet<(String, String, String)>,
    },
    /// On Fargate.
    Fargate,
}

impl Survey {
    /// Where the operator can run, each in words.
    pub(super) fn hosts(&self) -> Vec<(HostChoice, String)> {
        let open = self.nodes.iter().filter(|node| node.is_open()).collect::<Vec<_>>();
        let mut hosts = vec![(
            HostChoice::AnyNode { open: open.len() },
            format!("on the existing nodes: {}", nodes_in_words(&open)),
        )];
        let mut groups: BTreeMap<&str, Vec<&NodeView>> = BTreeMap::new();
        for node in &self.nodes {
            if let Some(group) = &node.group {
                groups.entry(group).or_default().push(node);
            }
        }
        for (name, nodes) in groups {
            let taints = nodes.iter().flat_map(|node| node.taints.clone()).collect::<BTreeSet<_>>();
            let tainted = if taints.is_empty() {
                String::new()
            } else {
                let each = taints.iter().map(|(key, value, effect)| match value.as_str() {
                    "" => format!("{key}:{effect}"),
                    value => format!("{key}={value}:{effect}"),
                });
                let each = each.collect::<Vec<_>>().join(", ");
                format!("; tolerates {each}")
            };
            let words = format!("on node group {name}: {}{tainted}", nodes_in_words(&nodes));
            hosts.push((HostChoice::Group { name: name.to_owned(), taints }, words));
        }
        let words = "on Fargate, which needs no nodes, and private subnets";
        hosts.push((HostChoice::Fargate, words.to_owned()));
        hosts
    }

    /// The subnets that are chosen by default, and why: those of the node groups, else the private
    /// ones.
    pub(super) fn usual_subnets(&self) -> (Vec<&str>, &'static str) {
        let of_groups =
            self.node_groups.iter().flat_map(|group| &group.subnet_ids).collect::<BTreeSet<_>>();
        let ids = |which: &dyn Fn(&SubnetChoice) -> bool| {
            let chosen = self.subnets.iter().filter(|subnet| which(subnet));
            chosen.map(|subnet| subnet.id.as_str()).collect::<Vec<_>>()
        };
        let used = ids(&|subnet| of_groups.contains(&subnet.id));
        if !used.is_empty() {
            return (used, "those of the node groups");
        }
        let private = ids(&|subnet| subnet.is_private);
        if private.is_empty() { (ids(&|_| true), "all") } else { (private, "the private ones") }
    }

    /// The architectures of the node groups' images, in the order in which they are offered.
    pub(super) fn architectures(&self) -> Vec<Architecture> {
        let all = [Architecture::Amd64, Architecture::Arm64];
        let has = |arch| self.node_groups.iter().any(|group| group.architecture() == Some(arch));
        all.into_iter().filter(|arch| has(*arch)).collect()
    }

    /// The alias of the node groups' images, if they all have the same one.
    pub(super) fn ami_alias(&self) -> Option<&'static str> {
        let aliases = self.node_groups.iter().filter_map(NodeGroup::ami_alias);
        let aliases = aliases.collect::<BTreeSet<_>>();
        if aliases.len() == 1 { aliases.into_iter().next() } else { None }
    }

    /// The security groups to choose from: the cluster's own and those of its nodes.
    pub(super) fn all_security_groups(&self) -> Vec<String> {
        let own = self.facts.as_ref().and_then(|facts| facts.cluster.security_group.clone());
        let others = self.security_groups.iter().filter(|id| Some(*id) != own.as_ref()).cloned();
        own.clone().into_iter().chain(others).collect()
    }
}

fn nodes_in_words(nodes: &[&NodeView]) -> String {
    let zones = nodes.iter().filter_map(|node| node.zone.as_deref());
    let zones = zones.collect::<BTreeSet<_>>().len();
    match nodes.len() {
        0 => "none accepts its pods".to_owned(),
        n if zones == 0 => count(n, "node"),
        n => format!("{} in {}", count(n, "node"), count(zones, "zone")),
    }
}
