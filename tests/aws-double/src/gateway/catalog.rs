//! Instance types and where they are offered: moto's data, read once per version of moto, kept in
//! the cache as one line per type, and answered from memory.
//!
//! moto takes 1.4 s and 6 MB for every DescribeInstanceTypes, ignores pages, and answers with types
//! that the region doesn't offer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::moto_client::MotoClient;
use super::response::AwsError;
use super::xml::Element;

/// One instance type: what the gateway and the machine simulator decide by, and the XML that tells
/// all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceType {
    /// `m5.large`.
    pub name: String,
    /// Default number of vCPUs.
    pub vcpus: u32,
    /// Memory in MiB, as listed.
    pub memory_mib: u64,
    /// `x86_64`, `arm64`, `i386`.
    pub architectures: Vec<String>,
    /// `hvm`, `paravirtual`.
    pub virtualization: Vec<String>,
    /// `on-demand`, `spot`, ….
    pub usage_classes: Vec<String>,
    /// `nitro`, `xen`; empty on bare metal.
    pub hypervisor: String,
    /// Whether it is bare metal.
    pub bare_metal: bool,
    /// Whether AWS calls it current.
    pub current_generation: bool,
    /// Network interfaces.
    pub max_interfaces: u32,
    /// IPv4 addresses per network interface.
    pub ipv4_per_interface: u32,
    /// GPUs and Neuron devices.
    pub accelerators: u32,
    /// Local disks in GB.
    pub instance_storage_gb: u64,
    /// The `<item>` of DescribeInstanceTypes.
    pub xml: String,
}

/// The types of one region.
#[derive(Debug, Default)]
pub struct Catalog {
    types: BTreeMap<String, InstanceType>,
    /// Zones by type.
    offered: BTreeMap<String, BTreeSet<String>>,
}

const FIELDS: usize = 14;

/// moto has no offers of regions outside the partition `aws`: there they are those of this one,
/// zone for zone.
const MODEL: &str = "eu-central-1";

impl Catalog {
    /// Reads the catalog from `cache` (a directory), or from moto when it isn't there yet.
    pub async fn load(
        cache: &Path,
        moto: &MotoClient,
        region: &str,
        version: &str,
    ) -> Result<Self, AwsError> {
        let types_file = cache.join(format!("instance-types-{version}.tsv"));
        let offers_file = cache.join(format!("offerings-{version}-{region}.tsv"));
        let kept = (std::fs::read_to_string(&types_file), std::fs::read_to_string(&offers_file));
        let (types, offers) = if let (Ok(types), Ok(offers)) = kept {
            (types, offers)
        } else {
            let types = moto.query("ec2", "DescribeInstanceTypes", []).await?;
            let types: String = types.items("instanceTypeSet").iter().map(line_of).collect();
            let mut offers = offers_of(moto, region).await?;
            if offers.is_empty() {
                let model = offers_of(&moto.in_region(MODEL), MODEL).await?;
                offers = model.replace(MODEL, region);
            }
            keep(&types_file, &types);
            keep(&offers_file, &offers);
            (types, offers)
        };
        Ok(Self::read(&types, &offers))
    }

    fn read(types: &str, offers: &str) -> Self {
        let mut offered: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, zone) in offers.lines().filter_map(|line| line.split_once('\t')) {
            offered.entry(name.to_owned()).or_default().insert(zone.to_owned());
        }
        let types = types
            .lines()
            .filter_map(read_line)
            .filter(|found| offered.contains_key(&found.name))
            .map(|found| (found.name.clone(), found))
            .collect();
        Self { types, offered }
    }

    /// A type that the region offers.
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        self.types.get(name)
    }

    /// Every type that the region offers, by name.
    pub fn iter(&self) -> impl Iterator<Item = &InstanceType> {
        self.types.values()
    }

    /// The zones that offer a type.
    pub fn zones(&self, name: &str) -> impl Iterator<Item = &str> {
        self.offered.get(name).into_iter().flatten().map(String::as_str)
    }

    /// Whether a zone offers a type.
    pub(crate) fn is_offered(&self, name: &str, zone: &str) -> bool {
        self.offered.get(name).is_some_and(|zones| zones.contains(zone))
    }
}

/// What a region offers, one line per type and zone.
async fn offers_of(moto: &MotoClient, region: &str) -> Result<String, AwsError> {
    let by_zone = [("LocationType", "availability-zone")];
    let offers = moto.query("ec2", "DescribeInstanceTypeOfferings", by_zone).await?;
    let line = |offer: &Element| {
        let zone = offer.get("location").filter(|zone| zone.starts_with(region))?;
        Some([offer.get("instanceType")?, "\t", zone, "\n"].concat())
    };
    Ok(offers.items("instanceTypeOfferingSet").iter().filter_map(line).collect())
}

/// The cache only saves time: a file that can't be written is asked for again next time.
fn keep(file: &Path, text: &str) {
    let partial = file.with_extension(format!("{}.partial", std::process::id()));
    if std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, file)).is_err() {
        tracing::debug!(file = %file.display(), "the instance type cache can't be written");
    }
}

fn texts<'a>(element: &'a Element, path: &[&str]) -> Vec<&'a str> {
    element
        .at(path)
        .map(|list| list.children.iter().map(|item| item.text.as_str()).collect())
        .unwrap_or_default()
}

fn text<'a>(element: &'a Element, path: &[&str]) -> &'a str {
    element.at(path).map_or("", |found| found.text.as_str())
}

fn line_of(item: &Element) -> String {
    let counted = |path: &[&str]| -> u32 {
        let list = item.at(path).map_or(&[][..], |list| list.children.as_slice());
        list.iter().filter_map(|device| device.get("count")?.parse::<u32>().ok()).sum()
    };
    let accelerators = counted(&["gpuInfo", "gpus"]) + counted(&["neuronInfo", "neuronDevices"]);
    let fields: [String; FIELDS] = [
        text(item, &["instanceType"]).to_owned(),
        text(item, &["vCpuInfo", "defaultVCpus"]).to_owned(),
        text(item, &["memoryInfo", "sizeInMiB"]).to_owned(),
        texts(item, &["processorInfo", "supportedArchitectures"]).join(","),
        texts(item, &["supportedVirtualizationTypes"]).join(","),
        texts(item, &["supportedUsageClasses"]).join(","),
        text(item, &["hypervisor"]).to_owned(),
        text(item, &["bareMetal"]).to_owned(),
        text(item, &["currentGeneration"]).to_owned(),
        text(item, &["networkInfo", "maximumNetworkInterfaces"]).to_owned(),
        text(item, &["networkInfo", "ipv4AddressesPerInterface"]).to_owned(),
        accelerators.to_string(),
        text(item, &["instanceStorageInfo", "totalSizeInGB"]).to_owned(),
        item.to_string().replace(['\t', '\n'], " "),
    ];
    fields.join("\t") + "\n"
}

fn read_line(line: &str) -> Option<InstanceType> {
    let fields: Vec<&str> = line.splitn(FIELDS, '\t').collect();
    let [
        name,
        vcpus,
        memory,
        architectures,
        virtualization,
        usage,
        hypervisor,
        metal,
        current,
        interfaces,
        ipv4,
        accelerators,
        storage,
        xml,
    ] = fields.try_into().ok()?;
    let list = |text: &str| text.split(',').map(str::to_owned).collect();
    let is = |text: &str| text.eq_ignore_ascii_case("true");
    Some(InstanceType {
        name: name.to_owned(),
        vcpus: vcpus.parse().ok()?,
        memory_mib: memory.parse().ok()?,
        architectures: list(architectures),
        virtualization: list(virtualization),
        usage_classes: list(usage),
        hypervisor: hypervisor.to_owned(),
        bare_metal: is(metal),
        current_generation: is(current),
        max_interfaces: interfaces.parse().unwrap_or(1),
        ipv4_per_interface: ipv4.parse().unwrap_or(1),
        accelerators: accelerators.parse().unwrap_or(0),
        instance_storage_gb: storage.parse().unwrap_or(0),
        xml: xml.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: &str = "<item><instanceType>g5.xlarge</instanceType><vCpuInfo><defaultVCpus>4</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>16384</sizeInMiB></memoryInfo>\
        <processorInfo><supportedArchitectures><item>x86_64</item><item>i386</item></supportedArchitectures></processorInfo><bareMetal>false</bareMetal>\
        <gpuInfo><gpus><item><count>1</count></item></gpus></gpuInfo><networkInfo><maximumNetworkInterfaces>4</maximumNetworkInterfaces></networkInfo></item>";

    #[test]
    fn a_type_survives_its_line() {
        let line = line_of(&Element::parse(ITEM).unwrap());
        let read = read_line(line.trim_end()).unwrap();
        assert_eq!(
            (read.vcpus, read.memory_mib, read.accelerators, read.max_interfaces),
            (4, 16384, 1, 4)
        );
        assert_eq!(read.architectures, ["x86_64", "i386"]);
        assert_eq!(Element::parse(&read.xml).unwrap(), Element::parse(ITEM).unwrap());
    }

    #[test]
    fn only_offered_types_are_listed() {
        let lines = line_of(&Element::parse(ITEM).unwrap())
            + &line_of(&Element::parse(&ITEM.replace("g5.", "g6.")).unwrap());
        let catalog = Catalog::read(&lines, "g5.xlarge\ta\ng5.xlarge\tb\n");
        assert!(catalog.get("g5.xlarge").is_some() && catalog.get("g6.xlarge").is_none());
        assert_eq!(catalog.zones("g5.xlarge").collect::<Vec<_>>(), ["a", "b"]);
        assert!(!catalog.is_offered("g5.xlarge", "c"));
    }
}
