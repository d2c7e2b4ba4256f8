//! Kinds of NodeClasses: the providers' own API objects that NodePools refer to.

use tenon_crds::labels;

/// Kind of NodeClass that a provider serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeClassKind {
    /// API group.
    pub group: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Label on NodeClaims and Nodes whose value is the NodeClass' name: `<group>/<kind in lower
    /// case>`.
    pub label: &'static str,
}

/// What AWS serves.
pub const EC2: NodeClassKind = NodeClassKind {
    group: labels::aws::GROUP,
    kind: "EC2NodeClass",
    label: labels::aws::EC2NODECLASS,
};

/// What the kwok provider serves.
pub const KWOK: NodeClassKind = NodeClassKind {
    group: labels::kwok::GROUP,
    kind: "KWOKNodeClass",
    label: labels::kwok::KWOKNODECLASS,
};
