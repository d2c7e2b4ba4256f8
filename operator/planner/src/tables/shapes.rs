//! Pod shapes: what scheduling can see of pods, with the alternatives in the order in which they
//! are tried.

use indexmap::IndexMap;
use indexmap::map::Entry;
use k8s_openapi::api::core::v1::Toleration;
use rustc_hash::{FxBuildHasher, FxHashSet};

use super::columns::Columns;
use super::variants::Variants;
use crate::intern::Symbols;
use crate::label;
use crate::plan::Exclusion;
use crate::policy::Policy;
use crate::requirements::Requirements;
use crate::snapshot::{ClaimSpec, Operator, PodShape, Snapshot};

/// A port of the host: protocol, address, number.
pub(crate) type HostPort = (String, String, u16);

/// Index into [`super::Tables::classes`].
pub(crate) type ClassId = usize;

/// A shape, compiled.
#[derive(Debug)]
pub(crate) struct Shape {
    /// By column.
    pub(crate) requests: Vec<i64>,
    pub(crate) ports: Vec<HostPort>,
    /// Its constraints; shapes that differ only in amounts and labels share the class.
    pub(crate) class: ClassId,
    /// Why it can't be planned for, if so.
    pub(crate) problem: Option<Exclusion>,
    /// Whether its pods have resource claims, and are therefore placed one at a time.
    pub(crate) has_claims: bool,
    /// The minimum number of devices for these claims; a request for all that match counts as the
    /// maximum.
    pub(crate) devices: u32,
    /// Whether it requires a node without a NodePool.
    pub(crate) opted_out: bool,
}

/// The constraints that shapes share.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) tolerations: Vec<Toleration>,
    /// Selector and one required term each, one of which has to be met: what spread constraints
    /// honour.
    pub(crate) required: Vec<Requirements>,
    /// In the order in which they are tried.
    pub(crate) variants: Variants,
}

/// Compiles the shapes of a snapshot.
pub(super) fn compile(
    snapshot: &Snapshot,
    policy: &Policy,
    columns: &Columns,
    symbols: &mut Symbols,
) -> (Vec<Shape>, Vec<Class>) {
    let soft_taints = snapshot
        .node_pools
        .iter()
        .flat_map(|pool| &pool.template.taints)
        .chain(snapshot.nodes.iter().flat_map(|node| &node.taints))
        .any(|taint| taint.effect == "PreferNoSchedule");
    let defined = defined_keys(snapshot);
    let mut classes: IndexMap<(Variants, String), Class, FxBuildHasher> = IndexMap::default();
    let shapes: Vec<_> = snapshot
        .shapes
        .iter()
        .map(|shape| {
            let variants = Variants::new(shape, policy, soft_taints, symbols);
            let tolerations = serde_json::to_string(&shape.tolerations)
                .expect("tolerations are strings and numbers");
            let entry = classes.entry((variants, tolerations));
            let class = entry.index();
            if let Entry::Vacant(entry) = entry {
                let variants = entry.key().0.clone();
                entry.insert(Class {
                    tolerations: shape.tolerations.clone(),
                    required: terms(shape, symbols),
                    variants,
                });
            }
            Shape {
                requests: columns.row_of(shape),
                ports: host_ports(shape),
                class,
                problem: problem_of(shape, snapshot, &defined),
                has_claims: !shape.device_claims.is_empty(),
                devices: devices_of(shape, snapshot),
                opted_out: opted_out(shape),
            }
        })
        .collect();
    let mut classes: Vec<Class> = classes.into_values().collect();
    let (pools, machines) = (snapshot.node_pools.len(), snapshot.nodes.len());
    Variants::share(classes.iter_mut().map(|class| &mut class.variants), pools, machines);
    (shapes, classes)
}

/// Node selector and required affinity: alternatives, one of which has to be met.
pub(super) fn terms(shape: &PodShape, symbols: &mut Symbols) -> Vec<Requirements> {
    let selector = Requirements::from_labels(&shape.node_selector, symbols);
    if shape.required_affinity.is_empty() {
        return vec![selector];
    }
    shape
        .required_affinity
        .iter()
        .map(|term| {
            let mut requirements = Requirements::new(term, symbols);
            requirements.extend(&selector, symbols);
            requirements
        })
        .collect()
}

/// Host ports with the address that Kubernetes assumes.
pub(super) fn host_ports(shape: &PodShape) -> Vec<HostPort> {
    shape
        .host_ports
        .iter()
        .map(|(protocol, ip, port)| {
            let ip = if ip.is_empty() { "0.0.0.0".to_owned() } else { ip.clone() };
            (protocol.clone(), ip, *port)
        })
        .collect()
}

/// Whether two sets of ports conflict on one host.
pub(crate) fn ports_conflict(a: &[HostPort], b: &[HostPort]) -> bool {
    let any = |ip: &str| ip == "0.0.0.0" || ip == "::";
    a.iter().any(|(protocol, ip, port)| {
        b.iter().any(|(other_protocol, other_ip, other_port)| {
            protocol == other_protocol
                && port == other_port
                && (ip == other_ip || any(ip) || any(other_ip))
        })
    })
}

fn opted_out(shape: &PodShape) -> bool {
    shape
        .required_affinity
        .first()
        .into_iter()
        .flatten()
        .any(|term| term.key == label::NODE_POOL && term.operator == Operator::DoesNotExist)
}

/// The claims of a shape.
fn specs_of<'s>(
    shape: &'s PodShape,
    snapshot: &'s Snapshot,
) -> impl Iterator<Item = &'s ClaimSpec> {
    let specs = snapshot.devices.as_deref().map(|devices| &devices.specs[..]).unwrap_or_default();
    shape.device_claims.iter().filter_map(|&spec| specs.get(spec as usize))
}

fn devices_of(shape: &PodShape, snapshot: &Snapshot) -> u32 {
    let requests = specs_of(shape, snapshot).flat_map(|spec| &spec.requests);
    let least = requests.map(|request| {
        let counts = request.alternatives.iter().map(|ask| ask.count.unwrap_or(u32::MAX));
        counts.min().unwrap_or(0)
    });
    least.fold(0, u32::saturating_add)
}

/// The label keys that instance types, offerings and NodePools define.
fn defined_keys(snapshot: &Snapshot) -> FxHashSet<&str> {
    let kinds = snapshot.catalogs.iter().flat_map(|catalog| &catalog.instance_types);
    let of_types = kinds.flat_map(|kind| {
        kind.requirements.iter().chain(kind.offerings.iter().flat_map(|offer| &offer.requirements))
    });
    let of_pools = snapshot.node_pools.iter().flat_map(|pool| pool.template.labels.keys());
    of_types.map(|requirement| &requirement.key).chain(of_pools).map(String::as_str).collect()
}

/// Why a shape can't be planned for, if so.
fn problem_of(
    shape: &PodShape,
    snapshot: &Snapshot,
    defined: &FxHashSet<&str>,
) -> Option<Exclusion> {
    if !shape.resource_claims.is_empty() {
        return Some(Exclusion::Pod(
            "pod has Dynamic Resource Allocation requirements that are not yet supported"
                .to_owned(),
        ));
    }
    if let Some(problem) = specs_of(shape, snapshot).find_map(|spec| spec.problem.clone()) {
        return Some(Exclusion::Pod(problem));
    }
    let core = [label::NODE_POOL, label::CAPACITY_TYPE, label::REGISTERED, label::INITIALIZED];
    let is_defined = |key: &str| core.contains(&key) || defined.contains(key);
    shape
        .node_selector
        .keys()
        .chain(shape.required_affinity.iter().flatten().map(|term| &term.key))
        .find(|key| is_restricted(key, snapshot) && (*key == label::HOSTNAME || !is_defined(key)))
        .map(|key| {
            let advice = "specify a well known label or a custom label";
            Exclusion::Pod(format!("label {key} is restricted; {advice}"))
        })
}

/// Whether a key lies in Karpenter's own domain or in that of a provider's NodeClass, or is the
/// host name.
pub(super) fn is_restricted(key: &str, snapshot: &Snapshot) -> bool {
    if key == label::HOSTNAME {
        return true;
    }
    let Some((domain, _)) = key.split_once('/') else { return false };
    let within = |restricted: &str| {
        domain.strip_suffix(restricted).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    within("karpenter.sh")
        || snapshot.node_pools.iter().any(|pool| within(&pool.template.node_class.group))
}
