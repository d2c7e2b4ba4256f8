//! What can be launched with each NodeClass, as the operator's provider would tell the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tenon_crds::ec2nodeclass::{AmiFamily, EC2NodeClassSpec, Subnet};
use tenon_crds::labels::{self, LabelRules};
use tenon_crds::{EC2NodeClass, NodePool, Operator};
use tenon_planner::snapshot::{Catalog, InstanceType, NodeClassRef};
use tenon_state::catalog::{self, Content};
use tenon_state::ec2::offered::{self, ClassScope};
use tenon_state::ec2::type_info::TypeInfo;
use tenon_state::node_class::{EC2, KWOK, NodeClassKind};
use tenon_state::snapshot::class_of;

use super::error::SimulateError;
use super::input::Input;
use super::options::CatalogOptions;
use super::words::{counted, some};

/// Zones of list prices when neither a NodeClass nor a Node nor a NodePool names any.
const NAMELESS_ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// What built-in prices say of spot instances: EC2 has no list of what they cost.
pub(super) const SPOT_ASSUMED: &str = "spot as expensive as on-demand";

/// The instance types that were given.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Types with offerings; `None` when no file had any.
    listed: Option<Vec<InstanceType>>,
    /// What EC2 says about types.
    described: BTreeMap<String, TypeInfo>,
    /// How many more instances capacity reservations have room for, by id.
    room: BTreeMap<String, u32>,
}

impl Given {
    /// Reads the files that `--catalog` names. Of types with one name, and of reservations with one
    /// id, the last counts.
    pub(super) fn read(args: &CatalogOptions) -> Result<Self, SimulateError> {
        let mut given = Self::default();
        let mut listed: BTreeMap<String, InstanceType> = BTreeMap::new();
        let mut any_list = false;
        for path in &args.files {
            match catalog::read_any(path).map_err(|error| failed(path, error))? {
                Content::Listed(types) => {
                    any_list = true;
                    listed.extend(types.into_iter().map(|kind| (kind.name.clone(), kind)));
                }
                Content::Described(types) => {
                    let types = types.into_iter().map(|info| (info.name.clone(), info));
                    given.described.extend(types);
                }
                Content::Room(room) => given.room.extend(room),
            }
        }
        given.listed = any_list.then(|| listed.into_values().collect());
        Ok(given)
    }

    /// What labels mean with these NodePools.
    pub(super) fn rules(&self, pools: &[NodePool]) -> LabelRules {
        if pools.iter().any(|pool| refers_to(pool, EC2)) {
            return LabelRules::aws();
        }
        match &self.listed {
            Some(types) => LabelRules::kwok(catalog::offering_keys(types)),
            None => LabelRules::kwok(Vec::new()),
        }
    }
}

fn failed(path: &Path, error: catalog::CatalogError) -> SimulateError {
    match error {
        catalog::CatalogError::Read { source, .. } => {
            SimulateError::Read { path: path.to_owned(), source }
        }
        error => SimulateError::Catalog(error),
    }
}

pub(super) fn refers_to(pool: &NodePool, kind: NodeClassKind) -> bool {
    let reference = &pool.spec.template.spec.node_class_ref;
    reference.group == kind.group && reference.kind == kind.kind
}

/// What the files say nothing about.
#[derive(Debug, Default)]
struct Unknown {
    /// Instance types by name.
    types: BTreeSet<String>,
    /// Capacity reservations by id.
    reservations: BTreeSet<String>,
}

/// The catalog of each NodeClass that a NodePool refers to.
#[derive(Debug, Default)]
pub(super) struct Catalogs {
    by_class: BTreeMap<NodeClassRef, Arc<Catalog>>,
    /// What was taken for want of something better.
    pub(super) notes: Vec<String>,
    /// What makes the answer differ from the operator's.
    pub(super) warnings: Vec<String>,
}

impl Catalogs {
    /// For the NodePools of the input.
    pub(super) fn new(input: &Input, given: &Given, args: &CatalogOptions) -> Self {
        let mut catalogs = Self::default();
        let on_ec2 = input.pools.iter().any(|pool| refers_to(pool, EC2));
        let classes: BTreeSet<NodeClassRef> = input
            .pools
            .iter()
            .filter(|pool| refers_to(pool, EC2) || refers_to(pool, KWOK))
            .map(|pool| class_of(&pool.spec.template.spec.node_class_ref))
            .collect();
        let mut unknown = Unknown::default();
        for class in classes {
            let instance_types = if class.group == EC2.group {
                catalogs.of_ec2(&class.name, input, given, args, &mut unknown)
            } else {
                catalogs.of_kwok(given, on_ec2)
            };
            let catalog = Catalog { node_class: class.clone(), instance_types };
            catalogs.by_class.insert(class, Arc::new(catalog));
        }
        if !unknown.types.is_empty() {
            catalogs.warnings.push(format!(
                "only name, CPUs and memory are known of {} of the catalog, so other \
                 karpenter.k8s.aws labels match none of them: {}; pass the output of `aws ec2 \
                 describe-instance-types` as a second --catalog",
                counted(unknown.types.len(), "instance type"),
                some(unknown.types.iter().cloned(), 3)
            ));
        }
        if !unknown.reservations.is_empty() {
            catalogs.warnings.push(format!(
                "the remaining room in {} is unknown, assuming full: {}; pass the output of `aws \
                 ec2 describe-capacity-reservations` as another --catalog",
                counted(unknown.reservations.len(), "capacity reservation"),
                some(unknown.reservations.iter().cloned(), 3)
            ));
        }
        catalogs
    }

    /// The catalog of a NodeClass.
    pub(super) fn of(&self, class: &NodeClassRef) -> Option<Arc<Catalog>> {
        self.by_class.get(class).map(Arc::clone)
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn of_kwok(&mut self, given: &Given, on_ec2: bool) -> Vec<InstanceType> {
        let mut types = given.listed.clone().unwrap_or_else(|| {
            self.note("no --catalog: planning with the 144 generic instance types of the kwok provider, in zones test-zone-a to test-zone-d".to_owned());
            catalog::generate()
        });
        if on_ec2 {
            // Labels of both providers are well-known then, and what a type does not define would
            // pass for anything.
            catalog::define_ec2_labels(&mut types);
        }
        types
    }

    fn of_ec2(
        &mut self,
        name: &str,
        input: &Input,
        given: &Given,
        args: &CatalogOptions,
        unknown: &mut Unknown,
    ) -> Vec<InstanceType> {
        let class = input.ec2_classes.iter().find(|it| it.metadata.name.as_deref() == Some(name));
        if class.is_none() {
            self.warnings.push(format!(
                "EC2NodeClass {name} is not in the input: nodes are assumed to be AL2023 with \
                 default disks and kubelet settings, in every zone"
            ));
        }
        let default =
            EC2NodeClassSpec { ami_family: Some(AmiFamily::Al2023), ..EC2NodeClassSpec::default() };
        let status = class.and_then(|class| class.status.as_ref());
        let subnets = status.map(|status| status.subnets.as_slice()).unwrap_or_default();
        let reservations =
            status.map(|status| status.capacity_reservations.as_slice()).unwrap_or_default();
        let priced;
        let listed = match &given.listed {
            Some(types) => types,
            None => {
                let zones = zones(input, subnets);
                self.note(format!(
                    "no --catalog with offerings: planning with EC2's instance types at this \
                     version's built-in list prices, {SPOT_ASSUMED}, in {}",
                    some(zones.iter().cloned(), 6)
                ));
                priced = offered::list_priced(zones.iter().map(String::as_str));
                &priced
            }
        };
        let mut zones = subnets
            .iter()
            .map(|subnet| subnet.zone.as_str())
            .chain(listed.iter().flat_map(|kind| kind.offerings.iter().map(|it| it.zone.as_str())));
        let seen_memory = class.map(|class| seen_memory(input, class)).unwrap_or_default();
        let found = offered::instance_types(
            listed,
            &ClassScope {
                class: class.map_or(&default, |class| &class.spec),
                subnets,
                region: zones.find_map(offered::region_of_zone),
                described: &given.described,
                vm_memory_overhead: args.vm_memory_overhead_percent,
                reserved_enis: args.reserved_enis,
                seen_memory: &seen_memory,
                reservations,
                room: &given.room,
            },
        );
        unknown.types.extend(found.unknown);
        let ids = reservations.iter().map(|reservation| &reservation.id);
        unknown.reservations.extend(ids.filter(|id| !given.room.contains_key(*id)).cloned());
        found.instance_types
    }
}

/// The zones of list prices: those of the NodeClass' subnets, else those of Nodes and NodePools.
fn zones(input: &Input, subnets: &[Subnet]) -> BTreeSet<String> {
    let mut zones: BTreeSet<String> = subnets.iter().map(|subnet| subnet.zone.clone()).collect();
    if zones.is_empty() {
        zones.extend(
            input.nodes.iter().filter_map(|node| node.label(labels::ZONE)).map(str::to_owned),
        );
        for pool in &input.pools {
            let requirements = &pool.spec.template.spec.requirements;
            let named = requirements
                .iter()
                .filter(|it| it.key == labels::ZONE && it.operator == Operator::In);
            zones.extend(named.flat_map(|requirement| requirement.values.clone()));
        }
    }
    if zones.is_empty() {
        zones.extend(NAMELESS_ZONES.map(str::to_owned));
    }
    zones
}

/// The least memory that nodes of each type have shown, with an image that the NodeClass has today.
fn seen_memory(input: &Input, class: &EC2NodeClass) -> BTreeMap<String, i64> {
    let Some(status) = &class.status else { return BTreeMap::new() };
    let images: BTreeSet<&str> = status.amis.iter().map(|ami| ami.id.as_str()).collect();
    let image_of: BTreeMap<&str, &str> = input
        .claims
        .iter()
        .filter_map(|claim| {
            Some((claim.provider_id()?, claim.status.as_ref()?.image_id.as_deref()?))
        })
        .collect();
    let mut seen: BTreeMap<String, i64> = BTreeMap::new();
    for node in &input.nodes {
        let of_class = node.label(labels::aws::EC2NODECLASS) == class.metadata.name.as_deref();
        let joined = node.label(labels::REGISTERED) == Some("true");
        let image = node.provider_id().and_then(|id| image_of.get(id));
        let memory = node.status.capacity.get("memory").map_or(0, |quantity| quantity.units());
        if let Some(kind) = node.label(labels::INSTANCE_TYPE)
            && of_class
            && joined
            && memory > 0
            && image.is_some_and(|image| images.contains(image))
        {
            let least = seen.entry(kind.to_owned()).or_insert(memory);
            *least = memory.min(*least);
        }
    }
    seen
}
