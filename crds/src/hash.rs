//! The drift hashes of NodePool and EC2NodeClass, bit for bit as Karpenter writes them into
//! annotations.
//!
//! A node has drifted when the hash on its NodeClaim differs from the one on its NodePool or
//! EC2NodeClass. A cluster moves between Karpenter and Tenon without replacing a node because both
//! compute the same numbers; so nothing here may be "improved". The algorithm is the second format
//! of Go's `hashstructure` with lists as sets and zero values ignored. The names of types and
//! fields that enter the hash are those of Karpenter's Go types.

mod ec2nodeclass;
mod nodepool;
mod structure;

pub use ec2nodeclass::{
    EC2_NODE_CLASS_HASH_VERSION, KubeletIn, ec2_node_class, ec2_node_class_with,
};
pub use nodepool::{NODE_POOL_HASH_VERSION, node_pool};

#[cfg(test)]
mod tests;
