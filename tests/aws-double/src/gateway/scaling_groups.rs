//! The Auto Scaling groups that there are.

use std::collections::{BTreeMap, BTreeSet};

use super::request::Params;

/// Sizes, what it launches from, and what it has launched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) min: usize,
    pub(crate) max: usize,
    pub(crate) desired: usize,
    /// `LaunchTemplateId` or `LaunchTemplateName`, and `Version`; empty with a launch
    /// configuration, from which nothing is launched here.
    pub(crate) template: Params,
    pub(crate) subnets: Vec<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) suspended: BTreeSet<String>,
    pub(crate) instances: Vec<String>,
    /// What lifecycle hooks announce to, by their names; empty is EventBridge.
    pub(crate) hooks: BTreeMap<String, String>,
    pub(crate) launched: usize,
}

/// Groups by name.
pub(crate) type Groups = BTreeMap<String, Group>;
