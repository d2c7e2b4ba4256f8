//! Devices and the claims to them (dynamic resource allocation). See docs/src/design/dra.md.
//!
//! Selectors are not here: whoever builds a snapshot has evaluated them, and says for each request
//! which kinds of devices match.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Requirement;

/// All devices and claims of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Devices {
    /// The distinct kinds of devices.
    pub kinds: Vec<DeviceKind>,
    /// What drivers have published. Sorted by driver, then name.
    pub pools: Vec<DevicePool>,
    /// The distinct specifications of claims.
    pub specs: Vec<ClaimSpec>,
    /// ResourceClaims that exist, or that will be created for existing pods. Sorted by namespace,
    /// then name.
    pub claims: Vec<Claim>,
}

/// What devices of one kind have in common: all that planning can see of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceKind {
    /// Name of the DRA driver that publishes such devices.
    pub driver: String,
    /// The attributes that constraints name, by fully qualified name (`domain/name`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValue>,
    /// `allowMultipleAllocations`: several claims may share a device, as far as its capacity goes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Of a shared device: what there is of it to share, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, DeviceCapacity>,
    /// What a device draws on the counters of its pool, in thousandths: counter set, counter,
    /// amount. Sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consumes: Vec<(String, String, i64)>,
}

/// The value of a device's attribute. Values of different types are never equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AttributeValue {
    /// `int`
    Int(i64),
    /// `bool`
    Bool(bool),
    /// `string`
    String(String),
    /// `version`
    Version(String),
}

/// A capacity of a device that claims share, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceCapacity {
    /// The total amount.
    pub value: i64,
    /// The amount for claims that request none; without a default, `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<i64>,
    /// The amounts that can be granted; a request is rounded up to the next one. Sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<i64>,
    /// The range of amounts that can be granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<CapacityRange>,
}

/// The range of amounts that a [`DeviceCapacity`] grants, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRange {
    /// Smaller requests are raised to it.
    pub min: i64,
    /// A larger request can't be granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<i64>,
    /// Amounts are rounded up to whole steps from `min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
}

impl DeviceCapacity {
    /// The amount that a claim gets for a request, or without one; `None` if it can't be granted.
    pub fn grant(&self, asked: Option<i64>) -> Option<i64> {
        let Some(asked) = asked else { return Some(self.default.unwrap_or(self.value)) };
        if let Some(range) = &self.range {
            let mut amount = asked.max(range.min);
            if let Some(step) = range.step.filter(|&step| step > 0) {
                let steps = (amount.saturating_sub(range.min)).div_euclid(step);
                let whole = range.min.saturating_add(steps.saturating_mul(step));
                amount = if whole < amount { whole.saturating_add(step) } else { amount };
            }
            return (range.max.is_none_or(|max| amount <= max)).then_some(amount);
        }
        if !self.values.is_empty() {
            return self.values.iter().copied().find(|&value| value >= asked);
        }
        // Without a policy the device is not divided.
        (asked <= self.value).then_some(self.value)
    }
}

/// The newest generation of a driver's pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DevicePool {
    /// Name of the DRA driver that publishes such devices.
    pub driver: String,
    /// `spec.pool.name`.
    pub name: String,
    /// Whether its devices can be relied on.
    pub state: PoolState,
    /// What its devices draw on, in thousandths: by counter set and counter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, BTreeMap<String, i64>>,
    /// Its slices; a slice whose devices differ in where they can be reached is several. In the
    /// order in which devices are tried.
    pub slices: Vec<DeviceSlice>,
}

/// Whether the devices of a pool can be relied on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PoolState {
    /// All slices of the newest generation are known.
    #[default]
    Complete,
    /// Slices are still missing: its devices are not used, and requests for all devices can't be
    /// answered.
    Incomplete,
    /// Its slices contradict each other (the reason): the same applies.
    Invalid(String),
}

/// Devices of a pool that can be reached from the same nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSlice {
    /// The nodes that can use the devices.
    pub reach: Reach,
    /// In the order in which they are tried.
    pub devices: Vec<Device>,
}

/// From where a device can be reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reach {
    /// Every node.
    #[default]
    Everywhere,
    /// The node with this name.
    Node(String),
    /// The nodes that meet all of these.
    Nodes(Vec<Requirement>),
}

/// As a ResourceSlice publishes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Unique in the pool.
    pub name: String,
    /// Index into [`Devices::kinds`].
    pub kind: u32,
}

/// What a machine of an instance type will publish as one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTemplate {
    /// Name of the DRA driver that publishes such devices.
    pub driver: String,
    /// A name for the pool: the real one will be another.
    pub pool: String,
    /// As [`DevicePool::counters`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, BTreeMap<String, i64>>,
    /// In the order in which they are tried.
    pub devices: Vec<Device>,
}

/// Devices that an instance type will have, and that will agree in an attribute whose value nobody
/// knows before a machine is there.
///
/// What is bound to one device under an attribute is bound to all that it is bound to, in whatever
/// bindings they are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttributeBinding {
    /// The attribute, fully qualified (`domain/name`).
    pub attribute: String,
    /// A binding of fewer than two devices has no effect; a name that no [`DeviceTemplate`] has
    /// only connects the others.
    pub devices: Vec<TemplateDevice>,
}

/// The name of a device of a [`DeviceTemplate`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateDevice {
    /// [`DeviceTemplate::driver`].
    pub driver: String,
    /// [`DeviceTemplate::pool`].
    pub pool: String,
    /// [`Device::name`].
    pub device: String,
}

/// The specification of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// Why it can't be planned for, if so; its pods wait with this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// All of them have to be satisfied.
    pub requests: Vec<DeviceRequest>,
    /// What the devices have to agree or differ in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<DeviceConstraint>,
}

/// One request of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Unique in the claim; constraints refer to it.
    pub name: String,
    /// In the order of preference: a single one for `exactly`, the subrequests of `firstAvailable`.
    pub alternatives: Vec<DeviceAsk>,
}

/// One alternative of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceAsk {
    /// The subrequest of `firstAvailable`; `None` for `exactly`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The DeviceClass.
    pub class: String,
    /// How many devices; `None` is all that match, and at least one.
    pub count: Option<u32>,
    /// `adminAccess`: takes nothing, and may have devices that are in use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// The kinds whose devices match. Sorted.
    pub kinds: Vec<u32>,
    /// Requested capacity of shared devices, in thousandths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, i64>,
}

/// What the devices of a claim have to agree or differ in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConstraint {
    /// The requests it is about, as `request` or `request/subrequest`; all when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// The attribute, fully qualified. A device without it does not do, unless the constraint is
    /// `matchAttribute` and an [`AttributeBinding`] has the device.
    pub attribute: String,
    /// `distinctAttribute` instead of `matchAttribute`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub distinct: bool,
}

impl DeviceConstraint {
    /// Whether the constraint applies to a request.
    pub fn concerns(&self, request: &str, alternative: Option<&str>) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|name| {
                let rest = name.strip_prefix(request);
                match (rest, alternative) {
                    (Some(""), _) => true,
                    (Some(rest), Some(alternative)) => rest.strip_prefix('/') == Some(alternative),
                    _ => false,
                }
            })
    }
}

/// A ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Claim {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Index into [`Devices::specs`].
    pub spec: u32,
    /// `status.allocation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<ClaimAllocation>,
    /// `status.reservedFor`: uids of pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<String>,
    /// `status.reservedFor` names an object other than a pod.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reserved_for_others: bool,
}

/// The allocation of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimAllocation {
    /// One per device and request.
    pub devices: Vec<AllocatedDevice>,
    /// Where they can be reached: one of these, or anywhere when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeTerm>,
}

/// One alternative of where an allocation can be reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTerm {
    /// Only the node with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only nodes that meet all of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Requirement>,
}

/// A device of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDevice {
    /// Name of the DRA driver that publishes such devices.
    pub driver: String,
    /// Name of the pool that published the device.
    pub pool: String,
    /// [`Device::name`] in that pool.
    pub device: String,
    /// Allocated with `adminAccess`, which consumes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// The consumed capacity of a shared device, in thousandths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed: BTreeMap<String, i64>,
}
