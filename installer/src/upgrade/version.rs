//! Versions of the operator, and which of them this program can bring.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use tenon_installer_core::kubernetes::object::label;

/// A version such as `1.2.3` or `1.2.3-rc.1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    numbers: [u64; 3],
    /// What follows a `-`; a version without it is newer than one with it.
    pre: Option<String>,
}

/// A text that is no version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version such as 1.2.3")]
pub(crate) struct NotAVersion(String);

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotAVersion(text.to_owned());
        let plain = text.strip_prefix('v').unwrap_or(text);
        // What was built doesn't make a version newer.
        let plain = plain.split_once('+').map_or(plain, |(version, _)| version);
        let (numbers, pre) = match plain.split_once('-') {
            Some((_, "")) => return Err(wrong()),
            Some((numbers, pre)) => (numbers, Some(pre.to_owned())),
            None => (plain, None),
        };
        let numbers = numbers.split('.').map(str::parse).collect::<Result<Vec<u64>, _>>();
        let numbers = numbers.ok().and_then(|numbers| numbers.try_into().ok()).ok_or_else(wrong)?;
        Ok(Self { numbers, pre })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        self.pre.iter().try_for_each(|pre| write!(f, "-{pre}"))
    }
}

impl Version {
    /// This program's own.
    pub(crate) fn own() -> Self {
        env!("CARGO_PKG_VERSION").parse().expect("cargo accepts nothing else")
    }

    /// Whether it comes after another one. Of pre-releases of one version, identifiers are compared
    /// as semantic versioning says.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        let order = self.numbers.cmp(&other.numbers).then_with(|| match (&self.pre, &other.pre) {
            (None, None) => std::cmp::Ordering::Equal,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(_), None) => std::cmp::Ordering::Less,
            (Some(one), Some(other)) => identifiers(one).cmp(&identifiers(other)),
        });
        order.is_gt()
    }

    /// Whether both belong to the same minor release: then documents, CRDs and chart are the same.
    pub(crate) fn is_of_release(&self, other: &Self) -> bool {
        self.numbers[..2] == other.numbers[..2]
    }
}

/// Numbers come before words.
fn identifiers(pre: &str) -> Vec<(bool, u64, String)> {
    let one = |text: &str| match text.parse::<u64>() {
        Ok(number) => (false, number, String::new()),
        Err(_) => (true, 0, text.to_owned()),
    };
    pre.split('.').map(one).collect()
}

/// What a Deployment runs: the tag of its image, or its label where the tag is no version.
pub(crate) fn running(deployment: &Value) -> Option<Version> {
    let image = deployment.pointer("/spec/template/spec/containers/0/image")?.as_str()?;
    let image = image.split('@').next().unwrap_or(image);
    let name = image.rsplit('/').next().unwrap_or(image);
    let tag = name.split_once(':').and_then(|(_, tag)| tag.parse().ok());
    tag.or_else(|| label(deployment, "app.kubernetes.io/version")?.parse().ok())
}

/// Why a move from one version to another is refused; with what to do instead.
pub(crate) fn refusals(from: Option<&Version>, to: &Version, own: &Version) -> Vec<String> {
    let mut reasons = Vec::new();
    if from.is_some_and(|from| from.is_newer_than(to)) {
        let from = from.map(ToString::to_string).unwrap_or_default();
        reasons.push(format!(
            "{to} is older than the running version {from}: use `tenon rollback` to return to the \
             previous revision"
        ));
    }
    if !to.is_of_release(own) {
        reasons.push(format!(
            "this is tenon {own}, which contains roles, CRDs and chart of its own minor release \
             only: use tenon {to} for that version"
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn version(text: &str) -> Version {
        text.parse().expect("a version")
    }

    #[test]
    fn versions_have_the_order_of_semantic_versioning() {
        let ordered =
            ["0.9.9", "1.0.0-2", "1.0.0-10", "1.0.0-rc.1", "1.0.0", "v1.0.1", "1.1.0+abc"];
        for pair in ordered.windows(2) {
            assert!(version(pair[1]).is_newer_than(&version(pair[0])), "{pair:?}");
            assert!(!version(pair[0]).is_newer_than(&version(pair[1])), "{pair:?}");
        }
        assert!(!version("1.0.0").is_newer_than(&version("1.0.0+x")));
        for text in ["latest", "1.2", "1.2.3.4", "1.2.x", "1.2.3-", ""] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
        assert_eq!(version("v1.2.3-rc.1").to_string(), "1.2.3-rc.1");
    }

    #[test]
    fn what_runs_is_told_by_the_image_and_else_by_the_label() {
        let deployment = |image: &str| {
            json!({
                "metadata": {"labels": {"app.kubernetes.io/version": "0.1.0"}},
                "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
            })
        };
        let of = |image: &str| running(&deployment(image)).map(|version| version.to_string());
        assert_eq!(of("registry:5000/a/tenon-operator:0.2.1").as_deref(), Some("0.2.1"));
        assert_eq!(of("tenon-operator:0.2.1@sha256:00").as_deref(), Some("0.2.1"));
        assert_eq!(of("registry:5000/tenon-operator").as_deref(), Some("0.1.0"));
        assert_eq!(of("tenon-operator:nightly").as_deref(), Some("0.1.0"));
    }

    #[test]
    fn what_is_older_or_unknown_to_this_program_is_refused() {
        let refused = |from: &str, to: &str| {
            refusals(Some(&version(from)), &version(to), &version("0.3.1")).join("; ")
        };
        assert_eq!(refused("0.3.0", "0.3.2"), "");
        assert_eq!(refused("0.2.7", "0.3.1"), "");
        assert_eq!(refused("0.3.1", "0.3.1"), "");
        assert!(refused("0.3.2", "0.3.1").contains("tenon rollback"));
        assert!(refused("0.3.0", "0.4.0").contains("use tenon 0.4.0"));
    }
}
