//! Names by which `kops delete cluster` finds what belongs to a cluster.

use crate::truncate;

/// Longest name of a queue.
const LONGEST_QUEUE: usize = 80;

/// Longest name of a role.
const LONGEST_ROLE: usize = 64;

/// How much of the cluster's name a rule's name begins with.
const RULE_PREFIX: usize = 40;

/// The interruption queue of a cluster: kOps deletes queues whose names begin with the cluster's
/// name, with dashes for dots.
pub fn queue_name(cluster: &str) -> String {
    let suffix = "-tenon";
    let prefix = truncate::name(&cluster.replace('.', "-"), LONGEST_QUEUE - suffix.len());
    format!("{prefix}{suffix}")
}

/// An EventBridge rule of a cluster: kOps deletes rules whose names begin with the first 40
/// characters of the cluster's name, shortened as it shortens names.
pub fn rule_name(cluster: &str, suffix: &str) -> String {
    format!("{}-tenon-{suffix}", truncate::name(cluster, RULE_PREFIX))
}

/// The role that kOps creates for a ServiceAccount.
pub fn role_name(account: &str, namespace: &str, cluster: &str) -> String {
    truncate::name(&format!("{account}.{namespace}.sa.{cluster}"), LONGEST_ROLE)
}

/// The instance profile of nodes, and its role, unless an InstanceGroup names another profile.
pub fn profile_name(cluster: &str) -> String {
    truncate::name(&format!("nodes.{cluster}"), LONGEST_ROLE)
}

/// The same for the nodes of the control plane.
pub fn control_plane_profile_name(cluster: &str) -> String {
    truncate::name(&format!("masters.{cluster}"), LONGEST_ROLE)
}

/// The inline policy into which kOps writes what the Cluster adds to a role of its own.
pub fn additional_policy_name(role: &str) -> String {
    format!("additional.{role}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_with_what_kops_looks_for_and_are_short_enough() {
        assert_eq!(queue_name("shop.example.com"), "shop-example-com-tenon");
        assert_eq!(rule_name("shop.example.com", "spot"), "shop.example.com-tenon-spot");
        let long = "a".repeat(100);
        assert_eq!(queue_name(&long).len(), 80);
        assert!(rule_name(&long, "rebalance").len() <= 64);
    }
}
