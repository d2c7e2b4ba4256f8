//! What objects are made from, and what is found on the way.

use std::collections::BTreeMap;

use tenon_crds::Taint;

use crate::boot::Boot;
use crate::cluster::{Cluster, Subnet};
use crate::group::Group;
use crate::image::Image;

/// Something to know about a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The field's path in the InstanceGroup.
    pub field: String,
    /// What becomes of it.
    pub text: String,
}

/// Everything that objects are made from.
pub(crate) struct Input<'a> {
    pub cluster: &'a Cluster,
    pub group: &'a Group,
    pub boot: &'a Boot,
    pub image: &'a Image,
    pub instance_types: &'a [String],
    /// Where nodes may be.
    pub subnets: Vec<&'a Subnet>,
    /// Labels of nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints with which nodes register.
    pub taints: Vec<Taint>,
    /// Taints of the group's own, which kOps tags instances with.
    pub own_taints: Vec<Taint>,
}

/// What was found on the way.
#[derive(Default)]
pub(crate) struct Report {
    pub notes: Vec<Note>,
    /// Fields and what is wrong with them.
    pub problems: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn note(&mut self, field: &str, text: String) {
        self.notes.push(Note { field: field.to_owned(), text });
    }

    pub(crate) fn problem(&mut self, field: &str, message: String) {
        self.problems.push((field.to_owned(), message));
    }
}
