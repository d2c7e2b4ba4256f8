//! Which devices match which requests: selectors are evaluated once for what differs between
//! devices, and devices of which they all say the same are of one kind.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{
    CapacityRequirements, Device, DeviceAttribute, DeviceConstraint, DeviceSelector, DeviceTaint,
    DeviceToleration, ExactDeviceRequest, ResourceClaimSpec,
};
use tenon_crds::Quantity;
use tenon_planner::snapshot as plan;
use tenon_planner::snapshot::{AttributeValue, DeviceAsk, DeviceKind};

use super::super::id;
use super::millis;
use crate::cel::{DeviceView, EvalError, Program, Value};
use crate::cluster::DeviceObjects;

/// What decides whether a device matches a request: the selectors of class and request, and which
/// taints are tolerated.
struct Selector {
    programs: Vec<Program>,
    tolerations: Vec<DeviceToleration>,
    /// Why it can't be used: it has turned out to cost too much.
    broken: Option<String>,
}

/// See the module.
pub(super) struct Kinds<'o> {
    objects: &'o DeviceObjects,
    selectors: Vec<Selector>,
    /// By the texts of a selector.
    by_text: BTreeMap<String, usize>,
    /// By specification and request and alternative, the selector.
    specs: Vec<(plan::ClaimSpec, Vec<Vec<usize>>)>,
    /// Attributes that constraints name.
    constrained: BTreeSet<String>,
    /// What selectors read; everything if `None`.
    reads: Option<BTreeSet<String>>,
    kinds: Vec<DeviceKind>,
    /// By kind: which selectors match.
    matches: Vec<Vec<bool>>,
    /// By what planning sees of a device, and what selectors say.
    by_kind: BTreeMap<String, u32>,
    /// By what is read of a device.
    known: BTreeMap<String, u32>,
}

impl<'o> Kinds<'o> {
    pub(super) fn new(objects: &'o DeviceObjects, specs: &[ResourceClaimSpec]) -> Self {
        let mut kinds = Self {
            objects,
            selectors: Vec::new(),
            by_text: BTreeMap::new(),
            specs: Vec::new(),
            constrained: BTreeSet::new(),
            reads: Some(BTreeSet::new()),
            kinds: Vec::new(),
            matches: Vec::new(),
            by_kind: BTreeMap::new(),
            known: BTreeMap::new(),
        };
        for spec in specs {
            let compiled = kinds.spec(spec).unwrap_or_else(|problem| {
                (
                    plan::ClaimSpec { problem: Some(problem), ..plan::ClaimSpec::default() },
                    Vec::new(),
                )
            });
            kinds.specs.push(compiled);
        }
        let programs = kinds.selectors.iter().flat_map(|selector| &selector.programs);
        for reads in programs.map(Program::reads) {
            match &mut kinds.reads {
                Some(names) if !reads.all => names.extend(reads.names.iter().cloned()),
                all => *all = None,
            }
        }
        kinds
    }

    /// A specification, with the selectors of its requests; an error is why it can't be planned
    /// for.
    fn spec(
        &mut self,
        spec: &ResourceClaimSpec,
    ) -> Result<(plan::ClaimSpec, Vec<Vec<usize>>), String> {
        let mut compiled = plan::ClaimSpec::default();
        let mut selectors = Vec::new();
        let Some(devices) = &spec.devices else { return Ok((compiled, selectors)) };
        for request in devices.requests.iter().flatten() {
            let mut alternatives = Vec::new();
            let mut own = Vec::new();
            let mut add = |asked: &ExactDeviceRequest, name: Option<&String>| {
                let (ask, selector) = self.ask(asked, name)?;
                alternatives.push(ask);
                own.push(selector);
                Ok::<_, String>(())
            };
            if let Some(exactly) = &request.exactly {
                add(exactly, None)?;
            }
            for sub in request.first_available.iter().flatten() {
                let asked = ExactDeviceRequest {
                    admin_access: None,
                    allocation_mode: sub.allocation_mode.clone(),
                    capacity: sub.capacity.clone(),
                    count: sub.count,
                    derived_attributes: sub.derived_attributes.clone(),
                    device_class_name: sub.device_class_name.clone(),
                    selectors: sub.selectors.clone(),
                    tolerations: sub.tolerations.clone(),
                };
                add(&asked, Some(&sub.name))?;
            }
            if alternatives.is_empty() {
                return Err(format!(
                    "request {} of a resource claim asks for nothing",
                    request.name
                ));
            }
            compiled
                .requests
                .push(plan::DeviceRequest { name: request.name.clone(), alternatives });
            selectors.push(own);
        }
        for constraint in devices.constraints.iter().flatten() {
            let compiled_constraint = self.constraint(constraint)?;
            compiled.constraints.push(compiled_constraint);
        }
        Ok((compiled, selectors))
    }

    fn ask(
        &mut self,
        asked: &ExactDeviceRequest,
        name: Option<&String>,
    ) -> Result<(DeviceAsk, usize), String> {
        let class = &asked.device_class_name;
        if asked.derived_attributes.iter().flatten().next().is_some() {
            return Err("derived attributes of devices are not planned for".to_owned());
        }
        let count = match asked.allocation_mode.as_deref() {
            None | Some("ExactCount" | "") => {
                Some(asked.count.map_or(Ok(1), u32::try_from).map_err(|_| "a negative count")?)
            }
            Some("All") => None,
            Some(mode) => return Err(format!("allocation mode {mode} is not known")),
        };
        let found = self.objects.classes.get(class);
        let found = found.ok_or_else(|| format!("deviceclass \"{class}\" not found"))?;
        let of_class = found.spec.selectors.iter().flatten();
        let selectors: Vec<&DeviceSelector> =
            of_class.chain(asked.selectors.iter().flatten()).collect();
        let tolerations = asked.tolerations.clone().unwrap_or_default();
        let selector = self.selector(&selectors, tolerations)?;
        let ask = DeviceAsk {
            name: name.cloned(),
            class: class.clone(),
            count,
            admin: asked.admin_access == Some(true),
            kinds: Vec::new(),
            capacity: amounts(asked.capacity.as_ref()),
        };
        Ok((ask, selector))
    }

    fn selector(
        &mut self,
        selectors: &[&DeviceSelector],
        tolerations: Vec<DeviceToleration>,
    ) -> Result<usize, String> {
        let text = serde_json::to_string(&(selectors, &tolerations));
        let text = text.expect("selectors are plain data");
        if let Some(&known) = self.by_text.get(&text) {
            return Ok(known);
        }
        let mut programs = Vec::new();
        for selector in selectors {
            let Some(cel) = &selector.cel else {
                return Err("a device selector that is not CEL is not planned for".to_owned());
            };
            let program = Program::parse(&cel.expression)
                .map_err(|error| format!("device selector {:?}: {error}", cel.expression))?;
            programs.push(program);
        }
        self.selectors.push(Selector { programs, tolerations, broken: None });
        self.by_text.insert(text, self.selectors.len() - 1);
        Ok(self.selectors.len() - 1)
    }

    fn constraint(
        &mut self,
        constraint: &DeviceConstraint,
    ) -> Result<plan::DeviceConstraint, String> {
        let (attribute, distinct) =
            match (&constraint.match_attribute, &constraint.distinct_attribute) {
                (Some(attribute), None) => (attribute.clone(), false),
                (None, Some(attribute)) => (attribute.clone(), true),
                _ => return Err("a device constraint of this kind is not planned for".to_owned()),
            };
        self.constrained.insert(attribute.clone());
        let requests = constraint.requests.clone().unwrap_or_default();
        Ok(plan::DeviceConstraint { requests, attribute, distinct })
    }

    /// The kind of a driver's device.
    pub(super) fn of(&mut self, driver: &str, device: &Device) -> u32 {
        let kind = self.kind(driver, device);
        let read = |name: &str| {
            let own = name.split_once('/').map_or(name, |(_, own)| own);
            self.reads.as_ref().is_none_or(|names| names.contains(own))
        };
        let attributes: BTreeMap<_, _> =
            device.attributes.iter().flatten().filter(|(name, _)| read(name)).collect();
        let capacity: BTreeMap<_, _> =
            device.capacity.iter().flatten().filter(|(name, _)| read(name)).collect();
        let text = serde_json::to_string(&(&kind, attributes, capacity, &device.taints));
        let text = text.expect("devices are plain data");
        if let Some(&known) = self.known.get(&text) {
            return known;
        }
        let matches: Vec<bool> = self.match_all(driver, device);
        let alike = serde_json::to_string(&(&kind, &matches)).expect("kinds are plain data");
        let next = id(self.kinds.len());
        let known = *self.by_kind.entry(alike).or_insert(next);
        if known == next {
            self.kinds.push(kind);
            self.matches.push(matches);
        }
        self.known.insert(text, known);
        known
    }

    /// All that planning sees of a device, apart from what selectors say.
    fn kind(&self, driver: &str, device: &Device) -> DeviceKind {
        let attributes = device.attributes.as_ref();
        let attribute = |name: &String| {
            let attributes = attributes?;
            let of_driver = || attributes.get(name.strip_prefix(driver)?.strip_prefix('/')?);
            let value = value(attributes.get(name).or_else(of_driver)?)?;
            Some((name.clone(), value))
        };
        let shared = device.allow_multiple_allocations == Some(true);
        let capacity = device.capacity.iter().flatten().filter(|_| shared);
        let draws = device.consumes_counters.iter().flatten().flat_map(|consumption| {
            let set = &consumption.counter_set;
            let counters = consumption.counters.iter();
            counters.map(move |(name, it)| (set.clone(), name.clone(), millis(&it.value)))
        });
        let mut consumes: Vec<_> = draws.collect();
        consumes.sort();
        DeviceKind {
            driver: driver.to_owned(),
            attributes: self.constrained.iter().filter_map(attribute).collect(),
            shared,
            capacity: capacity.map(|(name, it)| (name.clone(), shareable(it))).collect(),
            consumes,
        }
    }

    /// By selector, whether it matches.
    fn match_all(&mut self, driver: &str, device: &Device) -> Vec<bool> {
        let attributes = device.attributes.iter().flatten();
        let attributes = attributes.filter_map(|(name, it)| Some((name.clone(), cel_value(it)?)));
        let capacity = device.capacity.iter().flatten();
        let capacity = capacity
            .filter_map(|(name, it)| Some((name.clone(), it.value.0.parse::<Quantity>().ok()?)));
        let shared = device.allow_multiple_allocations == Some(true);
        let view = DeviceView::new(driver, attributes, capacity, shared);
        let taints = device.taints.as_deref().unwrap_or_default();
        let selectors = self.selectors.iter_mut();
        selectors
            .map(|selector| {
                tolerates(&selector.tolerations, taints)
                    && selector.programs.iter().all(|program| match program.matches(&view) {
                        Ok(matches) => matches,
                        Err(EvalError::Value(_)) => false,
                        Err(error @ EvalError::Budget) => {
                            selector.broken = Some(error.to_string());
                            false
                        }
                    })
            })
            .collect()
    }

    /// The kinds, and the specifications with the kinds that match.
    pub(super) fn finish(self) -> (Vec<DeviceKind>, Vec<plan::ClaimSpec>) {
        let Self { selectors, specs, kinds, matches, .. } = self;
        let specs = specs.into_iter().map(|(mut spec, of_requests)| {
            for (request, own) in spec.requests.iter_mut().zip(of_requests) {
                for (ask, selector) in request.alternatives.iter_mut().zip(own) {
                    let kinds = (0..).zip(&matches).filter(|(_, matches)| matches[selector]);
                    ask.kinds = kinds.map(|(kind, _)| kind).collect();
                    let broken = selectors[selector].broken.as_ref();
                    let told = |why| format!("device selector of class {}: {why}", ask.class);
                    spec.problem = spec.problem.take().or_else(|| broken.map(told));
                }
            }
            spec
        });
        let specs = specs.collect();
        (kinds, specs)
    }
}

fn amounts(capacity: Option<&CapacityRequirements>) -> BTreeMap<String, i64> {
    let requests = capacity.and_then(|capacity| capacity.requests.as_ref()).into_iter().flatten();
    requests.map(|(name, amount)| (name.clone(), millis(amount))).collect()
}

fn shareable(capacity: &k8s_openapi::api::resource::v1::DeviceCapacity) -> plan::DeviceCapacity {
    let policy = capacity.request_policy.as_ref();
    let mut values: Vec<i64> =
        policy.iter().flat_map(|policy| policy.valid_values.iter().flatten()).map(millis).collect();
    values.sort_unstable();
    let range = policy.and_then(|policy| policy.valid_range.as_ref());
    plan::DeviceCapacity {
        value: millis(&capacity.value),
        default: policy.and_then(|policy| policy.default.as_ref()).map(millis),
        values,
        range: range.map(|range| plan::CapacityRange {
            min: millis(&range.min),
            max: range.max.as_ref().map(millis),
            step: range.step.as_ref().map(millis),
        }),
    }
}

/// As constraints compare it; lists are not compared.
fn value(attribute: &DeviceAttribute) -> Option<AttributeValue> {
    let DeviceAttribute { bool, int, string, version, .. } = attribute;
    let string = string.clone().map(AttributeValue::String);
    int.map(AttributeValue::Int)
        .or(bool.map(AttributeValue::Bool))
        .or(string)
        .or_else(|| version.clone().map(AttributeValue::Version))
}

/// As selectors see it.
fn cel_value(attribute: &DeviceAttribute) -> Option<Value> {
    let version = |text: &String| crate::cel::version(text);
    if let Some(text) = &attribute.version {
        return version(text);
    }
    let list = |values: Vec<Value>| Some(Value::List(values.into()));
    match attribute {
        DeviceAttribute { ints: Some(ints), .. } => {
            list(ints.iter().map(|&it| Value::Int(it)).collect())
        }
        DeviceAttribute { bools: Some(bools), .. } => {
            list(bools.iter().map(|&it| Value::Bool(it)).collect())
        }
        DeviceAttribute { strings: Some(strings), .. } => {
            list(strings.iter().map(|it| Value::text(it)).collect())
        }
        DeviceAttribute { versions: Some(versions), .. } => {
            list(versions.iter().filter_map(version).collect())
        }
        DeviceAttribute { int: Some(int), .. } => Some(Value::Int(*int)),
        DeviceAttribute { bool: Some(bool), .. } => Some(Value::Bool(*bool)),
        DeviceAttribute { string: Some(string), .. } => Some(Value::text(string)),
        _ => None,
    }
}

/// Whether a request tolerates the taints of a device that keep pods off.
fn tolerates(tolerations: &[DeviceToleration], taints: &[DeviceTaint]) -> bool {
    let keeps_off = |taint: &&DeviceTaint| matches!(&taint.effect[..], "NoSchedule" | "NoExecute");
    taints.iter().filter(keeps_off).all(|taint| {
        tolerations.iter().any(|toleration| {
            let wanted = toleration.value.as_deref().unwrap_or_default();
            let same = |mine: &Option<String>, theirs: &str| {
                mine.as_deref().is_none_or(|mine| mine.is_empty() || mine == theirs)
            };
            let exists = toleration.operator.as_deref() == Some("Exists");
            same(&toleration.effect, &taint.effect)
                && same(&toleration.key, &taint.key)
                && (exists || wanted == taint.value.as_deref().unwrap_or_default())
        })
    })
}
