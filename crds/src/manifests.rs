//! The CustomResourceDefinitions, made from the Rust types and from tables of what types cannot
//! say.
//!
//! Field names, types, enums, required fields, defaults and descriptions come from the types.
//! Patterns, bounds, CEL rules, list types, printer columns and subresources are in one table per
//! kind under `manifests/`, so that all rules of a kind are read together. `manifests/*.yaml` in
//! this crate's folder are these definitions as files; a test keeps them in step.
//!
//! Do not use `NodePool::crd()` and the like: it lacks the rules.

mod capacitybuffer;
mod ec2nodeclass;
mod kwoknodeclass;
mod nodeclaim;
mod nodeoverlay;
mod nodepool;
mod schema;
mod shared;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::CustomResourceExt;

use self::schema::Schema;

/// All definitions, in the order in which they are best installed.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        node_pool(),
        node_claim(),
        node_overlay(),
        capacity_buffer(),
        ec2_node_class(),
        kwok_node_class(),
    ]
}

/// The definition of NodePool.
pub fn node_pool() -> CustomResourceDefinition {
    define::<crate::NodePool>(nodepool::COLUMNS, nodepool::constrain, nodepool::finish)
}

/// The definition of NodeClaim.
pub fn node_claim() -> CustomResourceDefinition {
    define::<crate::NodeClaim>(nodeclaim::COLUMNS, nodeclaim::constrain, |_| {})
}

/// The definition of NodeOverlay.
pub fn node_overlay() -> CustomResourceDefinition {
    define::<crate::NodeOverlay>(nodeoverlay::COLUMNS, nodeoverlay::constrain, |_| {})
}

/// The definition of CapacityBuffer.
pub fn capacity_buffer() -> CustomResourceDefinition {
    define::<crate::CapacityBuffer>(capacitybuffer::COLUMNS, capacitybuffer::constrain, |_| {})
}

/// The definition of EC2NodeClass.
pub fn ec2_node_class() -> CustomResourceDefinition {
    define::<crate::EC2NodeClass>(ec2nodeclass::COLUMNS, ec2nodeclass::constrain, |_| {})
}

/// The definition of KWOKNodeClass.
fn kwok_node_class() -> CustomResourceDefinition {
    define::<crate::KWOKNodeClass>(&[], kwoknodeclass::constrain, |_| {})
}

/// A printer column: name, type, JSON path, priority (0 is always shown, 1 only in wide output).
type Column = (&'static str, &'static str, &'static str, i32);

const READY_PATH: &str = r#".status.conditions[?(@.type=="Ready")].status"#;
const AGE_PATH: &str = ".metadata.creationTimestamp";

fn define<K: CustomResourceExt>(
    columns: &[Column],
    constrain: fn(&mut Schema),
    finish: fn(&mut CustomResourceDefinitionVersion),
) -> CustomResourceDefinition {
    let mut crd = K::crd();
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let version = crd.spec.versions.first_mut().expect("kube's derive makes one version");
    version.additional_printer_columns =
        (!columns.is_empty()).then(|| columns.iter().map(column).collect());
    let validation = version.schema.as_mut().expect("kube's derive makes a schema");
    let properties = validation.open_api_v3_schema.take().expect("kube's derive makes a schema");
    let mut schema = Schema::new(serde_json::to_value(properties).expect("a schema is JSON"));
    constrain(&mut schema);
    let properties = serde_json::from_value(schema.into_value())
        .expect("the tables only set keywords that schemas have");
    validation.open_api_v3_schema = Some(properties);
    finish(version);
    crd
}

fn column(&(name, type_, json_path, priority): &Column) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        priority: (priority != 0).then_some(priority),
        ..Default::default()
    }
}
