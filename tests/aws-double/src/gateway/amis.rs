//! The machine images that the double knows: one table, from which moto's image file, the SSM
//! parameters and the machines' bootstrap are made, so that they cannot disagree.
//!
//! For each Kubernetes minor version there are two releases of each family and variant, so that a
//! pinned alias and an image drift can be played. IDs are derived from names: the same image has
//! the same ID on every bed.

use sha2::{Digest, Sha256};

/// The minor versions of Kubernetes 1 that there are images for, oldest first.
pub(crate) const MINORS: std::ops::RangeInclusive<u32> = 30..=36;

/// The newest minor version that Amazon Linux 2 exists for.
const LAST_AL2_MINOR: u32 = 32;

/// The oldest minor version that Windows Server 2025 exists for.
const FIRST_WINDOWS_2025_MINOR: u32 = 35;

/// One image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ami {
    /// `ami-` and 17 hexadecimal digits.
    pub id: String,
    /// The image's name as its publisher gives it.
    pub name: String,
    /// Which bootstrap it has.
    pub family: Family,
    /// Its processor architecture.
    pub arch: Arch,
    /// What hardware it is made for.
    pub variant: Variant,
    /// The Kubernetes version that it is made for: `1.36`; empty if it is for none.
    pub kubernetes: String,
    /// Its release as an alias names it: `v20261112`, `1.49.0` (without `v`), `2026.11.11`.
    pub release: String,
    /// Whether it is the newest release of its kind.
    pub recommended: bool,
    /// When it was published, RFC 3339.
    pub created: String,
    /// The account of its publisher.
    pub owner: &'static str,
    /// The device name of the root volume.
    pub root_device: &'static str,
    /// The SSM parameters whose value is this image's ID.
    pub parameters: Vec<String>,
}

/// Which bootstrap an image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Amazon Linux 2: `bootstrap.sh`.
    Al2,
    /// Amazon Linux 2023: nodeadm.
    Al2023,
    /// Bottlerocket: TOML settings.
    Bottlerocket,
    /// Ubuntu: cloud-init runs the user data.
    Ubuntu,
    /// Windows Server 2019: PowerShell.
    Windows2019,
    /// Windows Server 2022: PowerShell.
    Windows2022,
    /// Windows Server 2025: PowerShell.
    Windows2025,
}

/// The processor architecture, as EC2 names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    /// Intel and AMD.
    X86_64,
    /// Graviton.
    Arm64,
}

/// What hardware an image is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// No accelerators.
    Standard,
    /// NVIDIA GPUs. Amazon Linux 2 has one image for these and for Neuron.
    Nvidia,
    /// Inferentia and Trainium.
    Neuron,
}

impl Arch {
    /// `x86_64` or `arm64`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "arm64",
        }
    }
}

impl Variant {
    /// `standard`, `nvidia` or `neuron`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Nvidia => "nvidia",
            Self::Neuron => "neuron",
        }
    }
}

/// Two releases of everything: date of publication, and the version that Bottlerocket gave it.
/// Oldest first.
const RELEASES: [Release; 2] = [
    Release { date: ["2026", "10", "15"], bottlerocket: "1.48.0" },
    Release { date: ["2026", "11", "12"], bottlerocket: "1.49.0" },
];

struct Release {
    date: [&'static str; 3],
    bottlerocket: &'static str,
}

const EKS: &str = "602401143452";
const BOTTLEROCKET: &str = "092701018921";
const CANONICAL: &str = "099720109477";
const WINDOWS: &str = "801119661308";

/// Every image, by family, Kubernetes version, variant and release.
pub fn amis() -> Vec<Ami> {
    let mut amis = Vec::new();
    for minor in MINORS {
        for (index, release) in RELEASES.iter().enumerate() {
            let of = Of {
                kubernetes: format!("1.{minor}"),
                release,
                recommended: index + 1 == RELEASES.len(),
            };
            of.al2023(&mut amis);
            if minor <= LAST_AL2_MINOR {
                of.al2(&mut amis);
            }
            of.bottlerocket(&mut amis);
            of.windows(&mut amis, minor);
        }
    }
    for (index, release) in RELEASES.iter().enumerate() {
        let recommended = index + 1 == RELEASES.len();
        Of { kubernetes: String::new(), release, recommended }.ubuntu(&mut amis);
    }
    amis
}

/// The image that an SSM parameter names.
pub fn by_parameter<'a>(amis: &'a [Ami], name: &str) -> Option<&'a Ami> {
    amis.iter().find(|ami| ami.parameters.iter().any(|parameter| parameter == name))
}

/// A Kubernetes version and a release, for which images are listed.
struct Of {
    kubernetes: String,
    release: &'static Release,
    recommended: bool,
}

impl Of {
    fn al2023(&self, amis: &mut Vec<Ami>) {
        let k = &self.kubernetes;
        let release = format!("v{}", self.release.date.concat());
        for (arch, variant) in [
            (Arch::X86_64, Variant::Standard),
            (Arch::X86_64, Variant::Nvidia),
            (Arch::X86_64, Variant::Neuron),
            (Arch::Arm64, Variant::Standard),
            (Arch::Arm64, Variant::Nvidia),
        ] {
            let (a, v) = (arch.as_str(), variant.as_str());
            let name = format!("amazon-eks-node-al2023-{a}-{v}-{k}-{release}");
            let path = format!("/aws/service/eks/optimized-ami/{k}/amazon-linux-2023/{a}/{v}");
            let parameters =
                self.versions(&name).map(|version| format!("{path}/{version}/image_id")).collect();
            amis.push(self.ami(
                name,
                Family::Al2023,
                arch,
                variant,
                release.clone(),
                EKS,
                "/dev/xvda",
                parameters,
            ));
        }
    }

    fn al2(&self, amis: &mut Vec<Ami>) {
        let k = &self.kubernetes;
        let release = format!("v{}", self.release.date.concat());
        for (arch, variant, folder, prefix) in [
            (Arch::X86_64, Variant::Standard, "amazon-linux-2", "amazon-eks-node"),
            (Arch::Arm64, Variant::Standard, "amazon-linux-2-arm64", "amazon-eks-arm64-node"),
            (Arch::X86_64, Variant::Nvidia, "amazon-linux-2-gpu", "amazon-eks-gpu-node"),
        ] {
            let name = format!("{prefix}-{k}-{release}");
            let path = format!("/aws/service/eks/optimized-ami/{k}/{folder}");
            let parameters =
                self.versions(&name).map(|version| format!("{path}/{version}/image_id")).collect();
            amis.push(self.ami(
                name,
                Family::Al2,
                arch,
                variant,
                release.clone(),
                EKS,
                "/dev/xvda",
                parameters,
            ));
        }
    }

    fn bottlerocket(&self, amis: &mut Vec<Ami>) {
        let (k, version) = (&self.kubernetes, self.release.bottlerocket);
        for arch in [Arch::X86_64, Arch::Arm64] {
            for (variant, suffix) in [(Variant::Standard, ""), (Variant::Nvidia, "-nvidia")] {
                let a = arch.as_str();
                let commit = &hex::encode(Sha256::digest(version))[..8];
                let name = format!("bottlerocket-aws-k8s-{k}{suffix}-{a}-v{version}-{commit}");
                let path = format!("/aws/service/bottlerocket/aws-k8s-{k}{suffix}/{a}");
                // The publisher has parameters both for the bare version and for the version with
                // its commit.
                let mut parameters = vec![
                    format!("{path}/{version}/image_id"),
                    format!("{path}/{version}-{commit}/image_id"),
                ];
                if self.recommended {
                    parameters.push(format!("{path}/latest/image_id"));
                }
                amis.push(self.ami(
                    name,
                    Family::Bottlerocket,
                    arch,
                    variant,
                    version.to_owned(),
                    BOTTLEROCKET,
                    "/dev/xvda",
                    parameters,
                ));
            }
        }
    }

    fn windows(&self, amis: &mut Vec<Ami>, minor: u32) {
        let k = &self.kubernetes;
        let release = self.release.date.join(".");
        for (family, year) in
            [(Family::Windows2019, 2019), (Family::Windows2022, 2022), (Family::Windows2025, 2025)]
        {
            if family == Family::Windows2025 && minor < FIRST_WINDOWS_2025_MINOR {
                continue;
            }
            let unversioned = format!("Windows_Server-{year}-English-Core-EKS_Optimized-{k}");
            let parameters = if self.recommended {
                vec![format!("/aws/service/ami-windows-latest/{unversioned}/image_id")]
            } else {
                vec![]
            };
            let name = format!("{unversioned}-{release}");
            let (arch, variant) = (Arch::X86_64, Variant::Standard);
            amis.push(self.ami(
                name,
                family,
                arch,
                variant,
                release.clone(),
                WINDOWS,
                "/dev/sda1",
                parameters,
            ));
        }
    }

    fn ubuntu(&self, amis: &mut Vec<Ami>) {
        let release = self.release.date.concat();
        for (arch, word) in [(Arch::X86_64, "amd64"), (Arch::Arm64, "arm64")] {
            let path = "/aws/service/canonical/ubuntu/server/24.04/stable";
            let versions = [Some(release.as_str()), self.recommended.then_some("current")];
            let parameter = |version: &str| format!("{path}/{version}/{word}/hvm/ebs-gp3/ami-id");
            amis.push(self.ami(
                format!("ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{word}-server-{release}"),
                Family::Ubuntu,
                arch,
                Variant::Standard,
                release.clone(),
                CANONICAL,
                "/dev/sda1",
                versions.into_iter().flatten().map(parameter).collect(),
            ));
        }
    }

    /// The last but one path segments of an EKS image's parameters.
    fn versions<'a>(&self, name: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        [Some(name), self.recommended.then_some("recommended")].into_iter().flatten()
    }

    #[expect(clippy::too_many_arguments, reason = "one column of the table each")]
    fn ami(
        &self,
        name: String,
        family: Family,
        arch: Arch,
        variant: Variant,
        release: String,
        owner: &'static str,
        root_device: &'static str,
        parameters: Vec<String>,
    ) -> Ami {
        let id = format!("ami-{}", &hex::encode(Sha256::digest(&name))[..17]);
        Ami {
            id,
            name,
            family,
            arch,
            variant,
            kubernetes: self.kubernetes.clone(),
            release,
            recommended: self.recommended,
            created: format!("{}T00:00:00.000Z", self.release.date.join("-")),
            owner,
            root_device,
            parameters,
        }
    }
}

#[cfg(test)]
mod tests;
