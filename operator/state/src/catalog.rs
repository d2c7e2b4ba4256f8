//! Instance types of the kwok provider: generated like upstream's 144, or read from a file in
//! upstream's format. And what EC2 says about its types and about capacity reservations, from a
//! file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::Error as _;
use tenon_crds::Quantity;
use tenon_crds::labels;
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot::{CapacityType, InstanceType, Offering, Operator, Requirement};

pub use crate::ec2::define_ec2_labels;
use crate::ec2::describe::Answer;
use crate::ec2::type_info::TypeInfo;

/// The file with instance types can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// It can't be read.
    #[error("can't read the instance types from {}", .path.display())]
    Read {
        /// Path of the file, as configured.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It holds no instance types.
    #[error("{} holds no instance types", .path.display())]
    Parse {
        /// Path of the file, as configured.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// An entry makes no sense.
    #[error("{}: instance type {name}: {problem}", .path.display())]
    Type {
        /// Path of the file, as configured.
        path: PathBuf,
        /// The entry's name.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

#[derive(Debug, Deserialize)]
struct FileType {
    name: String,
    offerings: Vec<FileOffering>,
    architecture: String,
    #[serde(rename = "operatingSystems")]
    operating_systems: Vec<String>,
    resources: BTreeMap<String, Quantity>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FileOffering {
    price: f64,
    requirements: Vec<FileRequirement>,
    #[serde(default)]
    reservation_capacity: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct FileRequirement {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

/// What a file about instance types holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Types with offerings, in the format of the kwok provider's instance-types file.
    Listed(Vec<InstanceType>),
    /// EC2's own words about types, as `aws ec2 describe-instance-types` prints them.
    Described(Vec<TypeInfo>),
    /// How many more instances capacity reservations have room for, by id, as `aws ec2
    /// describe-capacity-reservations` prints it.
    Room(BTreeMap<String, u32>),
}

/// Reads a file in one of these formats.
pub fn read_any(path: &Path) -> Result<Content, CatalogError> {
    let text = text(path)?;
    if !text.trim_start().starts_with('{') {
        return parse(path, &text).map(Content::Listed);
    }
    let mut answer: Answer = serde_json::from_str(&text)
        .map_err(|source| CatalogError::Parse { path: path.to_owned(), source })?;
    let types = answer.types().map(Content::Described);
    types.or_else(|| answer.room().map(Content::Room)).ok_or_else(|| CatalogError::Parse {
        path: path.to_owned(),
        source: serde_json::Error::custom(
            "expected a list of types, or an object with InstanceTypes or CapacityReservations",
        ),
    })
}

/// Instance types of a file. All offerings count as available, as upstream has it.
pub fn read(path: &Path) -> Result<Vec<InstanceType>, CatalogError> {
    parse(path, &text(path)?)
}

fn text(path: &Path) -> Result<String, CatalogError> {
    std::fs::read_to_string(path)
        .map_err(|source| CatalogError::Read { path: path.to_owned(), source })
}

fn parse(path: &Path, text: &str) -> Result<Vec<InstanceType>, CatalogError> {
    let types: Vec<FileType> = serde_json::from_str(text)
        .map_err(|source| CatalogError::Parse { path: path.to_owned(), source })?;
    let types = types.into_iter().map(|entry| {
        let name = entry.name.clone();
        from_file(entry).map_err(|problem| CatalogError::Type {
            path: path.to_owned(),
            name,
            problem,
        })
    });
    let mut types: Vec<InstanceType> = types.collect::<Result<_, _>>()?;
    types.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(types)
}

fn from_file(entry: FileType) -> Result<InstanceType, String> {
    let mut capacity = Resources { pods: 110, ..Resources::default() };
    for (name, quantity) in &entry.resources {
        capacity.set(name, if name == "cpu" { quantity.millis() } else { quantity.units() });
    }
    let offerings = entry.offerings.into_iter().map(offering).collect::<Result<Vec<_>, _>>()?;
    Ok(instance_type(entry.name, &entry.architecture, entry.operating_systems, capacity, offerings))
}

fn offering(entry: FileOffering) -> Result<Offering, String> {
    let mut zone = None;
    let mut capacity_type = None;
    let mut requirements = Vec::new();
    for FileRequirement { key, operator, mut values } in entry.requirements {
        match (key.as_str(), values.as_slice()) {
            (labels::ZONE, [only]) => zone = Some(only.clone()),
            (labels::CAPACITY_TYPE, [only]) => {
                let known = CapacityType::parse(only).ok_or_else(|| {
                    format!("capacity type {only:?} is none of spot, on-demand, reserved")
                })?;
                capacity_type = Some(known);
            }
            _ => {
                values.sort();
                requirements.push(Requirement { key, operator, values, min_values: None });
            }
        }
    }
    requirements.sort();
    Ok(Offering {
        zone: zone
            .ok_or_else(|| format!("an offering has no single value for {}", labels::ZONE))?,
        capacity_type: capacity_type.ok_or_else(|| {
            format!("an offering has no single value for {}", labels::CAPACITY_TYPE)
        })?,
        requirements,
        price: MicroUsd::from_usd(entry.price),
        available: true,
        reservation_capacity: entry.reservation_capacity,
        unpriced: None,
    })
}

/// Upstream's default types: 12 sizes × 3 ratios of memory to CPU × 2 operating systems × 2
/// architectures, in 4 zones, spot and on-demand.
pub fn generate() -> Vec<InstanceType> {
    let mut types = Vec::new();
    for cpu in [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256_i64] {
        for (factor, family) in [(2, "c"), (4, "s"), (8, "m")] {
            for os in ["linux", "windows"] {
                for architecture in [labels::ARCH_AMD64, labels::ARCH_ARM64] {
                    let capacity = Resources {
                        cpu: cpu * 1000,
                        memory: cpu * factor * GIB,
                        ephemeral_storage: 20 * GIB,
                        pods: (cpu * 16).clamp(0, 1024),
                        ..Resources::default()
                    };
                    // 2.5 cents per CPU and a tenth of a cent per 10^9 bytes, in millionths of a
                    // dollar.
                    let price = cpu * 25_000 + capacity.memory / 1_000_000;
                    let name = format!("{family}-{cpu}x-{architecture}-{os}");
                    types.push(instance_type(
                        name,
                        architecture,
                        vec![os.to_owned()],
                        capacity,
                        everywhere(price),
                    ));
                }
            }
        }
    }
    types.sort_by(|a, b| a.name.cmp(&b.name));
    types
}

const GIB: i64 = 1024 * 1024 * 1024;

fn everywhere(price: i64) -> Vec<Offering> {
    let zones = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
    let kinds = [(CapacityType::Spot, price * 7 / 10), (CapacityType::OnDemand, price)];
    zones
        .iter()
        .flat_map(|zone| {
            kinds.map(|(capacity_type, price)| Offering {
                zone: (*zone).to_owned(),
                capacity_type,
                requirements: Vec::new(),
                price: MicroUsd(price),
                available: true,
                reservation_capacity: None,
                unpriced: None,
            })
        })
        .collect()
}

fn instance_type(
    name: String,
    architecture: &str,
    operating_systems: Vec<String>,
    capacity: Resources,
    offerings: Vec<Offering>,
) -> InstanceType {
    let cpu = capacity.cpu / 1000;
    let size = name.split_once('.').map_or_else(|| cpu.to_string(), |(_, size)| size.to_owned());
    let family = name.split(['.', '-']).next().unwrap_or_default().to_owned();
    let zones = distinct(offerings.iter().map(|offering| offering.zone.clone()));
    let kinds =
        distinct(offerings.iter().map(|offering| offering.capacity_type.as_str().to_owned()));
    let mut requirements: Vec<Requirement> = [
        (labels::INSTANCE_TYPE, vec![name.clone()]),
        (labels::ARCH, vec![architecture.to_owned()]),
        (labels::OS, distinct(operating_systems.into_iter())),
        (labels::ZONE, zones),
        (labels::CAPACITY_TYPE, kinds),
        (labels::kwok::INSTANCE_SIZE, vec![size]),
        (labels::kwok::INSTANCE_FAMILY, vec![family]),
        (labels::kwok::INSTANCE_CPU, vec![cpu.to_string()]),
        (labels::kwok::INSTANCE_MEMORY, vec![(capacity.memory / (1024 * 1024)).to_string()]),
    ]
    .into_iter()
    .map(|(key, values)| Requirement {
        key: key.to_owned(),
        operator: Operator::In,
        values,
        min_values: None,
    })
    .collect();
    for key in [labels::REGION, labels::WINDOWS_BUILD] {
        requirements.push(Requirement {
            key: key.to_owned(),
            operator: Operator::DoesNotExist,
            values: Vec::new(),
            min_values: None,
        });
    }
    requirements.sort();
    let overhead = Resources { cpu: 100, memory: 10 * 1024 * 1024, ..Resources::default() };
    InstanceType { name, requirements, capacity, overhead, offerings, ..InstanceType::default() }
}

fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    values.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// Keys of requirements that offerings carry beside zone and capacity type: instance types define
/// them too.
pub fn offering_keys(types: &[InstanceType]) -> Vec<String> {
    let keys =
        types.iter().flat_map(|kind| &kind.offerings).flat_map(|offering| &offering.requirements);
    distinct(keys.map(|requirement| requirement.key.clone()))
}

#[cfg(test)]
mod tests {
    use tenon_crds::labels::{LabelRules, aws};

    use super::*;

    #[test]
    fn generates_upstreams_types() {
        let types = generate();
        assert_eq!(types.len(), 144);
        let kind = types.iter().find(|kind| kind.name == "s-4x-amd64-linux").unwrap();
        assert_eq!(
            (kind.capacity.cpu, kind.capacity.memory, kind.capacity.pods),
            (4000, 16 * GIB, 64)
        );
        assert_eq!(kind.allocatable().cpu, 3900);
        let on_demand = kind
            .offerings
            .iter()
            .find(|offering| offering.capacity_type == CapacityType::OnDemand)
            .unwrap();
        assert_eq!(
            on_demand.price,
            MicroUsd(4 * 25_000 + 17_179),
            "0.025 per CPU and 0.001 per 10^9 bytes"
        );
        assert!(types.windows(2).all(|pair| pair[0].name < pair[1].name), "sorted by name");
    }

    #[test]
    fn types_for_ec2_define_every_well_known_label() {
        let offerings = everywhere(1000);
        let capacity = Resources { cpu: 4000, memory: 8 * GIB, ..Resources::default() };
        let named = |name: &str| {
            let (os, offerings) = (vec!["linux".to_owned()], offerings.clone());
            instance_type(name.to_owned(), labels::ARCH_AMD64, os, capacity.clone(), offerings)
        };
        let mut types = [named("c6a.xlarge"), named("c-4x-amd64-linux")];
        define_ec2_labels(&mut types);
        let of = |kind: &InstanceType, key: &str| {
            let found: Vec<_> = kind.requirements.iter().filter(|it| it.key == key).collect();
            let [only] = found.as_slice() else { panic!("{} of {key}", found.len()) };
            only.values.join(",")
        };
        for (key, value) in [
            (aws::INSTANCE_CATEGORY, "c"),
            (aws::INSTANCE_GENERATION, "6"),
            (aws::INSTANCE_CPU, "4"),
            (aws::INSTANCE_MEMORY, "8192"),
            (aws::INSTANCE_HYPERVISOR, ""),
            (labels::ARCH, "amd64"),
        ] {
            assert_eq!(of(&types[0], key), value, "{key}");
        }
        assert_eq!(of(&types[1], aws::INSTANCE_CATEGORY), "", "the name is none of EC2's");
        for key in LabelRules::aws().well_known().iter().filter(|key| *key != labels::NODEPOOL) {
            of(&types[0], key);
        }
    }

    #[test]
    fn reads_upstreams_format_and_says_what_is_wrong_with_an_entry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("types.json");
        let entry = r#"[{"name":"m5.large","architecture":"amd64","operatingSystems":["linux"],"resources":{"cpu":"2","memory":"8Gi"},
            "offerings":[{"Price":0.1,"Available":false,"Requirements":[
              {"key":"karpenter.sh/capacity-type","operator":"In","values":["spot"]},
              {"key":"topology.kubernetes.io/zone","operator":"In","values":["a"]},
              {"key":"example.com/rack","operator":"In","values":["7"]}]}]}]"#;
        std::fs::write(&path, entry).unwrap();
        let types = read(&path).unwrap();
        assert_eq!((types[0].capacity.cpu, types[0].capacity.pods), (2000, 110));
        assert!(
            types[0].offerings[0].available,
            "upstream takes every offering of the file as available"
        );
        assert_eq!(offering_keys(&types), ["example.com/rack"]);
        std::fs::write(&path, entry.replace("\"spot\"", "\"cheap\"")).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("m5.large") && error.contains("cheap"), "{error}");
        assert!(matches!(read(&dir.path().join("none.json")), Err(CatalogError::Read { .. })));
    }
}
