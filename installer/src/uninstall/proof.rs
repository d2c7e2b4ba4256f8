//! What an uninstall comes to, and the queries that prove it.

use serde::Serialize;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::ownership::{DISCOVERY_MARK, INSTALL_ID};
use tenon_installer_core::words::count;

use super::Inventory;

/// What was asked at the end, and how much it found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Query {
    /// What was looked for, and by what.
    pub query: String,
    /// How many there are.
    pub found: usize,
}

/// The queries behind an inventory.
pub(super) fn queries(desired: &Desired, inventory: &Inventory) -> Vec<Query> {
    let scope = &desired.scope;
    let (id, cluster) = (&desired.installation.id, &scope.cluster);
    let owned = format!("{}=owned", scope.cluster_tag());
    let by_tag = format!("by tag {INSTALL_ID}={id}");
    let query = |query: String, found| Query { query, found };
    let objects = inventory.operator.len()
        + inventory.releases.len()
        + inventory.crds.len()
        + usize::from(inventory.namespace.is_some())
        + inventory.leases.len()
        + usize::from(inventory.aws_auth.is_some());
    let eks = usize::from(inventory.association.is_some())
        + inventory.access_entries.len()
        + usize::from(inventory.fargate.is_some());
    let iam = inventory.roles.len()
        + usize::from(inventory.profile.is_some())
        + usize::from(inventory.provider.is_some());
    vec![
        query(
            "NodePools, NodeClaims, EC2NodeClasses, NodeOverlays".to_owned(),
            inventory.nodes.objects(),
        ),
        query(
            format!("Kubernetes objects of the installation, by label {INSTALL_ID}={id}"),
            objects,
        ),
        query(
            format!("EC2 instances by tags {owned} and karpenter.sh/nodepool"),
            inventory.nodes.instances.len(),
        ),
        query(
            format!("launch templates by tags {owned} and eks:eks-cluster-name={cluster}"),
            inventory.nodes.launch_templates.len(),
        ),
        query(
            format!("instance profiles under {}", scope.instance_profile_path()),
            inventory.nodes.instance_profiles.len(),
        ),
        query(
            format!("associations, access entries, Fargate profiles of the cluster, {by_tag}"),
            eks,
        ),
        query(
            format!("queue and event rules, {by_tag}"),
            inventory.rules.len() + usize::from(inventory.queue.is_some()),
        ),
        query(
            format!("subnets and security groups by tag {DISCOVERY_MARK}={id}"),
            inventory.marked.len(),
        ),
        query(format!("IAM roles, instance profiles, identity providers, {by_tag}"), iam),
    ]
}

/// What an uninstall comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Proof {
    /// What was removed.
    pub removed: Vec<String>,
    /// What was left on purpose, and why.
    pub kept: Vec<String>,
    /// What is still there although it should not be.
    pub left: Vec<String>,
    /// Instances that may still run although nobody looks after them any more: the user said that
    /// they are to be let go of.
    pub abandoned: Vec<String>,
    /// What was asked at the end. What is kept on purpose is not counted.
    pub queries: Vec<Query>,
}

impl Proof {
    /// For people.
    pub(crate) fn text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.kept.iter().map(|kept| format!("kept: {kept}")));
        if !self.queries.is_empty() {
            let besides = if self.kept.is_empty() { "" } else { ", except for kept resources" };
            lines.push(format!("Verified{besides}:"));
            lines.extend(
                self.queries.iter().map(|query| format!("  {:>3}  {}", query.found, query.query)),
            );
        }
        if !self.abandoned.is_empty() {
            lines.push(format!(
                "Abandoned, and possibly still running: {}. `tenon sweep` finds and removes them.",
                self.abandoned.join(", ")
            ));
        }
        let removed = count(self.removed.len(), "thing");
        if !self.left.is_empty() {
            lines.push("Still present:".to_owned());
            lines.extend(self.left.iter().map(|left| format!("  {left}")));
        } else if !self.abandoned.is_empty() {
            lines.push(format!(
                "{removed} removed. The record stays until a later run finds nothing left."
            ));
        } else {
            let nothing = if self.kept.is_empty() { "nothing" } else { "nothing else" };
            lines.push(format!("{removed} removed, {nothing} is left."));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uninstall::Nodes;
    use tenon_installer_core::testing::desired;

    #[test]
    fn the_proof_shows_each_query_and_what_it_found() {
        let desired = desired("");
        let proof = Proof {
            removed: vec!["queue".to_owned(), "role".to_owned()],
            queries: queries(&desired, &Inventory::default()),
            ..Proof::default()
        };
        insta::assert_snapshot!(proof.text().join("\n"));
        let left = Inventory {
            nodes: Nodes { instances: vec!["i-1".to_owned()], ..Nodes::default() },
            ..Inventory::default()
        };
        let found = queries(&desired, &left).iter().map(|query| query.found).sum::<usize>();
        assert_eq!(found, 1);
    }
    #[test]
    fn nobody_is_told_that_nothing_is_left_while_instances_may_run() {
        let proof = Proof { abandoned: vec!["i-1".to_owned()], ..Proof::default() };
        let text = proof.text().join("\n");
        assert!(text.contains("i-1") && text.contains("The record stays"), "{text}");
        assert!(!text.contains("nothing is left"), "{text}");
    }
}
