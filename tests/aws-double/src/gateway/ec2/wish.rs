//! What a launch asks for, from its launch template and its request.

use std::collections::{BTreeMap, BTreeSet};

use super::super::instance::TemplateRef;
use super::super::prices::CapacityType;
use super::super::request::Params;

/// What to launch in one pool.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// Launch parameters, template and request merged.
    pub(super) params: Params,
    /// Tags by resource type, template and request merged.
    pub(super) tags: TagSpecs,
    pub(super) template: Option<TemplateRef>,
    pub(super) capacity_type: CapacityType,
}

pub(super) type TagSpecs = BTreeMap<String, BTreeMap<String, String>>;

/// Tags by resource type of `TagSpecification.n` parameters.
pub(super) fn tag_specs(params: &Params) -> TagSpecs {
    let mut specs = TagSpecs::new();
    for spec in params.structs("TagSpecification") {
        specs
            .entry(spec.get("ResourceType").unwrap_or_default().to_owned())
            .or_default()
            .extend(spec.tags("Tag"));
    }
    specs
}

/// `over` wins, parameter by parameter; lists and structures are taken as a whole.
pub(super) fn overlay(base: &Params, over: &Params) -> Params {
    let top = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let replaced: BTreeSet<String> = over.iter().map(|(name, _)| top(name)).collect();
    let kept = base.iter().filter(|(name, _)| !replaced.contains(&top(name)));
    Params::of(kept.chain(over.iter()))
}

/// `over`'s tags are added, key by key.
pub(super) fn overlay_tags(mut base: TagSpecs, over: &TagSpecs) -> TagSpecs {
    for (resource, tags) in over {
        base.entry(resource.clone()).or_default().extend(tags.clone());
    }
    base
}
