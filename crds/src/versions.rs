//! Versions of Kubernetes.

use std::ops::RangeInclusive;

/// Minor versions of Kubernetes 1 that Tenon supports: those of Karpenter's AWS provider v1.14.1.
pub const SUPPORTED_MINORS: RangeInclusive<u32> = 26..=36;

/// The minor version in `1.36`, `v1.36.3` or `1.36+`, if it is one of Kubernetes 1.
///
/// ```
/// # use tenon_crds::versions::minor;
/// assert_eq!(minor("v1.36.3-eks-1a2b3c4"), Some(36));
/// assert_eq!(minor("1.36+"), Some(36));
/// assert_eq!(minor("2.0"), None);
/// ```
pub fn minor(version: &str) -> Option<u32> {
    let rest = version.strip_prefix('v').unwrap_or(version).strip_prefix("1.")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::SUPPORTED_MINORS;

    #[test]
    fn the_manual_says_which_versions_are_supported() {
        let manual = include_str!("../../docs/src/reference/compatibility.md");
        let (oldest, newest) = (SUPPORTED_MINORS.start(), SUPPORTED_MINORS.end());
        let row = format!("| {} | 1.{oldest} to 1.{newest} |", env!("CARGO_PKG_VERSION"));
        assert!(manual.contains(&row), "{row}");
        let advice = include_str!("../../docs/src/reference/troubleshooting.md");
        let newest = format!("--kubernetes-version 1.{newest}\n");
        assert!(advice.contains(&newest), "CL-02 advises another version than {newest}");
    }
}
