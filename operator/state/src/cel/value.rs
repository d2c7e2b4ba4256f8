//! Values, and a device as a value.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_crds::Quantity;

/// What an expression evaluates to.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `bool`
    Bool(bool),
    /// `int`
    Int(i64),
    /// `double`
    Double(f64),
    /// `string`
    Text(Arc<str>),
    /// `list`
    List(Arc<[Self]>),
    /// `map` with keys that are strings.
    Map(Arc<BTreeMap<String, Self>>),
    /// Attributes or capacities by domain. A domain that is not there is one without any.
    Domains(Arc<BTreeMap<String, Self>>),
    /// Kubernetes' quantity.
    Quantity(Quantity),
    /// Kubernetes' semantic version.
    Version(Version),
}

/// A semantic version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub(super) numbers: [u64; 3],
    /// Identifiers after the hyphen.
    pre: Vec<String>,
}

impl Version {
    /// From `MAJOR.MINOR.PATCH[-PRE][+BUILD]`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.split('+').next()?;
        let (core, pre) =
            text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
        let mut numbers = core.split('.').map(|number| {
            let digits = number.bytes().all(|digit| digit.is_ascii_digit());
            let plain = number == "0" || !number.starts_with('0');
            if digits && plain { number.parse().ok() } else { None }
        });
        let list = [numbers.next()??, numbers.next()??, numbers.next()??];
        let pre: Vec<String> =
            pre.iter().flat_map(|pre| pre.split('.')).map(str::to_owned).collect();
        let whole = pre.iter().all(|it| !it.is_empty()) && numbers.next().is_none();
        whole.then_some(Self { numbers: list, pre })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    /// By number; of equal numbers a version that is still to come is the lesser one.
    fn cmp(&self, other: &Self) -> Ordering {
        let identifier = |a: &String, b: &String| match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        };
        let pre = || {
            let pairs = self.pre.iter().zip(&other.pre);
            let first = pairs.map(|(a, b)| identifier(a, b)).find(|it| it.is_ne());
            first.unwrap_or_else(|| self.pre.len().cmp(&other.pre.len()))
        };
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => pre(),
            }
        })
    }
}

impl Value {
    /// A string.
    pub fn text(value: &str) -> Self {
        Self::Text(value.into())
    }

    /// What it is, for errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "an int",
            Self::Double(_) => "a double",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) | Self::Domains(_) => "a map",
            Self::Quantity(_) => "a quantity",
            Self::Version(_) => "a version",
        }
    }

    /// How many values it holds, itself included: what comparing it costs.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Text(text) => 1 + text.len() / 64,
            Self::List(list) => 1 + list.iter().map(Self::weight).sum::<usize>(),
            Self::Map(map) | Self::Domains(map) => {
                1 + map.values().map(Self::weight).sum::<usize>()
            }
            _ => 1,
        }
    }
}

/// A device as selectors see it: the variable `device`.
#[derive(Clone, Debug)]
pub struct DeviceView {
    pub(super) value: Value,
}

impl DeviceView {
    /// Of a driver's device. Names without a domain are in the driver's.
    pub fn new(
        driver: &str,
        attributes: impl Iterator<Item = (String, Value)>,
        capacity: impl Iterator<Item = (String, Quantity)>,
        shared: bool,
    ) -> Self {
        let capacity = capacity.map(|(name, quantity)| (name, Value::Quantity(quantity)));
        let fields = [
            ("driver", Value::text(driver)),
            ("attributes", domains(driver, attributes)),
            ("capacity", domains(driver, capacity)),
            ("allowMultipleAllocations", Value::Bool(shared)),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
        Self { value: Value::Map(Arc::new(fields.collect())) }
    }
}

fn domains(driver: &str, values: impl Iterator<Item = (String, Value)>) -> Value {
    let mut domains: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for (name, value) in values {
        let (domain, name) = name.split_once('/').unwrap_or((driver, &name));
        domains.entry(domain.to_owned()).or_default().insert(name.to_owned(), value);
    }
    let domains = domains.into_iter().map(|(name, values)| (name, Value::Map(Arc::new(values))));
    Value::Domains(Arc::new(domains.collect()))
}
