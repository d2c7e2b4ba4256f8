//! Images: how an InstanceGroup names them, and what EC2 knows of them.

/// An image of EC2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `amd64` or `arm64`.
    pub architecture: String,
    /// The device of its root volume, such as `/dev/xvda`.
    pub root_device: String,
}

/// How an InstanceGroup names its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// `ami-…`
    Id(String),
    /// A parameter of Systems Manager that holds an id.
    Parameter(String),
    /// The newest image of this name.
    Name {
        /// An account, or `self`.
        owner: String,
        /// Its name; may contain wildcards.
        name: String,
    },
}

/// Accounts that kOps has names for.
const OWNERS: [(&[&str], &str); 6] = [
    (&["amazon", "amazon.com"], "137112412989"),
    (&["debian", "debian11"], "136693071363"),
    (&["flatcar"], "075585003325"),
    (&["redhat", "redhat.com"], "309956199498"),
    (&["rocky", "rockylinux"], "792107900819"),
    (&["ubuntu"], "099720109477"),
];

impl ImageSource {
    /// Reads `spec.image`: `ami-…`, `ssm:PARAMETER`, `NAME` of an own image, or `OWNER/NAME`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.contains("://") {
            return None;
        }
        if text.starts_with("ami-") {
            return Some(Self::Id(text.to_owned()));
        }
        if let Some(parameter) = text.strip_prefix("ssm:") {
            return Some(parameter.to_owned()).filter(|it| !it.is_empty()).map(Self::Parameter);
        }
        let (owner, name) = text.split_once('/').unwrap_or(("self", text));
        if owner.is_empty() || name.is_empty() {
            return None;
        }
        let known = OWNERS.iter().find(|(names, _)| names.contains(&owner));
        let owner = known.map_or(owner, |(_, account)| account);
        Some(Self::Name { owner: owner.to_owned(), name: name.to_owned() })
    }
}
