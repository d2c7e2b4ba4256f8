//! The machine images of the double: for each Kubernetes minor, family, variant and architecture two releases, so that drift by a newer image can be shown.
//!
//! Names and SSM parameter paths are those of the real images (facts); IDs are made up and the same in every run.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

/// Kubernetes minors for which there are images.
pub const MINORS: std::ops::RangeInclusive<u32> = 29..=36;

/// Amazon Linux 2 images end with this minor.
const LAST_AL2_MINOR: u32 = 32;

/// Windows 2025 images begin with this minor.
const FIRST_WINDOWS_2025_MINOR: u32 = 35;

/// AWS's account that owns the EKS images, in commercial regions.
pub const EKS_OWNER: &str = "602401143452";

/// The two releases of the Amazon Linux images, old first.
const AL_RELEASES: [Release; 2] = [
    Release {
        version: "v20260714",
        created: "2026-07-14T02:11:09.000Z",
        deprecated: "2028-07-14T02:11:09.000Z",
    },
    Release {
        version: "v20261105",
        created: "2026-11-05T03:40:51.000Z",
        deprecated: "2028-11-05T03:40:51.000Z",
    },
];

/// The two releases of Bottlerocket, old first.
const BOTTLEROCKET_RELEASES: [Release; 2] = [
    Release {
        version: "1.54.0",
        created: "2026-07-21T18:02:33.000Z",
        deprecated: "2028-07-21T18:02:33.000Z",
    },
    Release {
        version: "1.59.1",
        created: "2026-11-10T17:25:12.000Z",
        deprecated: "2028-11-10T17:25:12.000Z",
    },
];

const WINDOWS_RELEASES: [Release; 2] = [
    Release {
        version: "2026.07.15",
        created: "2026-07-15T07:00:00.000Z",
        deprecated: "2028-07-15T07:00:00.000Z",
    },
    Release {
        version: "2026.11.11",
        created: "2026-11-11T07:00:00.000Z",
        deprecated: "2028-11-11T07:00:00.000Z",
    },
];

#[derive(Clone, Copy)]
struct Release {
    version: &'static str,
    created: &'static str,
    deprecated: &'static str,
}

/// The operating system family of an image, which decides how its bootstrap reads user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Family {
    /// Amazon Linux 2023 (nodeadm).
    Al2023,
    /// Amazon Linux 2 (`bootstrap.sh`).
    Al2,
    /// Bottlerocket (TOML).
    Bottlerocket,
    /// Windows Server.
    Windows,
}

/// One machine image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ami {
    /// `ami-…`.
    pub id: String,
    /// The image's name.
    pub name: String,
    /// Family.
    pub family: Family,
    /// Kubernetes minor version: `36`.
    pub minor: u32,
    /// `x86_64` or `arm64`.
    pub architecture: &'static str,
    /// Release of the image: `v20261105`, `1.59.1`.
    pub release: &'static str,
    /// When it was made (RFC 3339 with milliseconds).
    pub created: &'static str,
    /// When it is deprecated.
    pub deprecated: &'static str,
    /// Account that owns it.
    pub owner: &'static str,
    /// The root device.
    pub root_device: &'static str,
    /// Block devices in the image: name and size in GiB.
    pub devices: &'static [(&'static str, u32)],
    /// SSM parameters with this image's ID as value: the release's own, and for the newest release the moving one.
    pub parameters: Vec<String>,
}

/// Every image.
pub fn all() -> &'static [Ami] {
    static ALL: LazyLock<Vec<Ami>> = LazyLock::new(|| MINORS.flat_map(of_minor).collect());
    &ALL
}

/// The image with this ID.
pub fn by_id(id: &str) -> Option<&'static Ami> {
    all().iter().find(|ami| ami.id == id)
}

/// The image ID that an SSM parameter names.
pub fn by_parameter(name: &str) -> Option<&'static Ami> {
    all().iter().find(|ami| ami.parameters.iter().any(|parameter| parameter == name))
}

fn of_minor(minor: u32) -> Vec<Ami> {
    let mut images = Vec::new();
    let k = format!("1.{minor}");
    let linux: &[(&str, u32)] = &[("/dev/xvda", 20)];
    for (release, newest) in AL_RELEASES.iter().zip([false, true]) {
        let version = release.version;
        for (arch, variants) in
            [("x86_64", &["standard", "nvidia", "neuron"][..]), ("arm64", &["standard", "nvidia"])]
        {
            for variant in variants {
                let prefix = format!(
                    "/aws/service/eks/optimized-ami/{k}/amazon-linux-2023/{arch}/{variant}"
                );
                let name = format!("amazon-eks-node-al2023-{arch}-{variant}-{k}-{version}");
                let parameters = parameters(&prefix, &name, "recommended", newest);
                images.push(image(Family::Al2023, minor, arch, *release, name, linux, parameters));
            }
        }
        if minor <= LAST_AL2_MINOR {
            for (arch, infix, path) in
                [("x86_64", "", ""), ("arm64", "arm64-", "-arm64"), ("x86_64", "gpu-", "-gpu")]
            {
                let prefix = format!("/aws/service/eks/optimized-ami/{k}/amazon-linux-2{path}");
                let name = format!("amazon-eks-{infix}node-{k}-{version}");
                let parameters = parameters(&prefix, &name, "recommended", newest);
                images.push(image(Family::Al2, minor, arch, *release, name, linux, parameters));
            }
        }
    }
    for (release, newest) in BOTTLEROCKET_RELEASES.iter().zip([false, true]) {
        for flavour in ["", "-nvidia"] {
            for arch in ["x86_64", "arm64"] {
                let prefix = format!("/aws/service/bottlerocket/aws-k8s-{k}{flavour}/{arch}");
                let name = format!(
                    "bottlerocket-aws-k8s-{k}{flavour}-{arch}-v{}-{}",
                    release.version,
                    digest(release.version, 8)
                );
                let parameters = parameters(&prefix, release.version, "latest", newest);
                let devices = &[("/dev/xvda", 2), ("/dev/xvdb", 20)];
                images.push(image(
                    Family::Bottlerocket,
                    minor,
                    arch,
                    *release,
                    name,
                    devices,
                    parameters,
                ));
            }
        }
    }
    for year in [2019, 2022, 2025] {
        if year == 2025 && minor < FIRST_WINDOWS_2025_MINOR {
            continue;
        }
        for (release, newest) in WINDOWS_RELEASES.iter().zip([false, true]) {
            let base = format!("Windows_Server-{year}-English-Core-EKS_Optimized-{k}");
            let name = format!("{base}-{}", release.version);
            let parameter = format!("/aws/service/ami-windows-latest/{base}/image_id");
            let parameters = if newest { vec![parameter] } else { vec![] };
            images.push(image(
                Family::Windows,
                minor,
                "x86_64",
                *release,
                name,
                &[("/dev/sda1", 50)],
                parameters,
            ));
        }
    }
    images
}

fn parameters(prefix: &str, own: &str, moving: &str, newest: bool) -> Vec<String> {
    let mut parameters = vec![format!("{prefix}/{own}/image_id")];
    if newest {
        parameters.push(format!("{prefix}/{moving}/image_id"));
    }
    parameters
}

fn image(
    family: Family,
    minor: u32,
    architecture: &'static str,
    release: Release,
    name: String,
    devices: &'static [(&'static str, u32)],
    parameters: Vec<String>,
) -> Ami {
    Ami {
        id: format!("ami-{}", digest(&name, 17)),
        name,
        family,
        minor,
        architecture,
        release: release.version,
        created: release.created,
        deprecated: release.deprecated,
        owner: if family == Family::Windows { "801119661308" } else { EKS_OWNER },
        root_device: devices[0].0,
        devices,
        parameters,
    }
}

fn digest(text: &str, digits: usize) -> String {
    hex::encode(Sha256::digest(text)).chars().take(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_and_an_id_name_one_image() {
        let mut ids: Vec<&str> = all().iter().map(|ami| ami.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all().len());
        let mut parameters: Vec<&String> = all().iter().flat_map(|ami| &ami.parameters).collect();
        let n_parameters = parameters.len();
        parameters.sort_unstable();
        parameters.dedup();
        assert_eq!(parameters.len(), n_parameters);
    }

    #[test]
    fn aliases_resolve_as_the_real_parameters_do() {
        let latest = by_parameter("/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id").unwrap();
        assert_eq!(latest.name, "amazon-eks-node-al2023-arm64-standard-1.36-v20261105");
        let old = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.36-v20260714/image_id";
        assert_eq!(by_parameter(old).unwrap().release, "v20260714");
        assert!(
            by_parameter("/aws/service/bottlerocket/aws-k8s-1.36/x86_64/latest/image_id").is_some()
        );
        assert!(
            by_parameter("/aws/service/eks/optimized-ami/1.33/amazon-linux-2/recommended/image_id")
                .is_none()
        );
    }
}
