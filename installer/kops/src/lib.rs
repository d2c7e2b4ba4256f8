//! kOps: what its state store says of a cluster, and what an InstanceGroup with `manager:
//! Karpenter` is as a NodePool and an EC2NodeClass.
//!
//! Files come in as text ([`Cluster::parse`], [`Group::parse`], [`Boot::parse`]), what only AWS
//! knows as [`Facts`], and [`generate()`] answers with objects and with notes on every field that
//! has no equivalent. Field names are kOps' own, `v1alpha2` and `v1alpha3`.
//!
//! Nothing is called here: [`read`] knows which files and images are asked for, and asks for them
//! through [`read::Cloud`], which the installer and the operator implement with their own clients.

mod boot;
mod cluster;
mod document;
mod fields;
mod generate;
mod group;
mod image;
mod input;
mod location;
mod names;
mod node_class;
mod node_pool;
mod patch;
mod problem;
pub mod read;
mod region;
mod taint;
mod truncate;

pub use self::boot::{Boot, USER_DATA_LIMIT, config_hash};
pub use self::cluster::{AdditionalPolicy, Cluster, Subnet, SubnetType};
pub use self::generate::{Facts, GROUP_LABEL, Generated, generate};
pub use self::group::{Group, Manager};
pub use self::image::{Image, ImageSource};
pub use self::input::Note;
pub use self::location::{
    CLUSTER_FILE, GROUPS_FOLDER, Location, LocationError, node_config_file, script_file,
};
pub use self::names::{
    additional_policy_name, control_plane_profile_name, profile_name, queue_name, role_name,
    rule_name,
};
pub use self::patch::{PATCH_ANNOTATION, Patches, apply_recorded, parse_patches};
pub use self::problem::Problem;

#[cfg(test)]
mod tests;
