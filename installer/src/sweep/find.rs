//! What is an orphan: a pure function of what was seen.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tenon_installer_core::ownership::{CLUSTER, INSTALL_ID, Tags};

/// Younger things may belong to something that can't be seen yet: a launch under way, an interface
/// between two pods.
const SETTLED: SignedDuration = SignedDuration::from_mins(10);

/// Everything with the cluster's tags.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Instances that are not terminated and that a NodePool launched.
    pub instances: Vec<Instance>,
    /// Launch templates of an operator.
    pub launch_templates: Vec<String>,
    /// Instance profiles under the operator's path.
    pub instance_profiles: Vec<String>,
    /// Volumes of nodes that are attached to nothing.
    pub volumes: Vec<String>,
    /// Network interfaces of the VPC CNI that are attached to nothing.
    pub interfaces: Vec<Interface>,
    /// Open spot requests.
    pub spot_requests: Vec<SpotRequest>,
    /// The queue under the installer's name.
    pub queue: Option<(String, String, Tags)>,
    /// Rules under the installer's names, with the ids of their targets.
    pub rules: Vec<(String, Vec<String>, Tags)>,
    /// Roles under the installer's path.
    pub roles: Vec<(String, Tags)>,
}

/// As EC2 lists it.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub id: String,
    /// The NodeClaim that its tag names.
    pub claim: String,
    /// When it was launched.
    pub launched_at: Option<Timestamp>,
}

/// A network interface.
#[derive(Debug, Clone)]
pub(crate) struct Interface {
    pub id: String,
    /// When the CNI made it, as its tag says.
    pub created_at: Option<Timestamp>,
}

/// As EC2 lists it.
#[derive(Debug, Clone)]
pub(crate) struct SpotRequest {
    pub id: String,
    /// The instance that it led to.
    pub instance: Option<String>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
}

/// The cluster, as far as it matters here.
#[derive(Debug, Clone)]
pub(crate) enum ClusterSeen {
    /// EKS knows no cluster of that name.
    Gone,
    /// It is there.
    There {
        /// Id of the installation that it has or would have.
        install_id: String,
        /// Names of its NodeClaims.
        claims: BTreeSet<String>,
        /// Ids of their instances.
        instances: BTreeSet<String>,
        /// There are EC2NodeClasses.
        has_classes: bool,
    },
}

/// Something that nobody looks after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Orphan {
    /// What it is.
    pub kind: Kind,
    /// Its id or name.
    pub id: String,
    /// Why it is one.
    pub why: String,
    /// It is removed, not only reported.
    pub removable: bool,
    /// What its removal needs beyond the id.
    #[serde(skip)]
    pub handle: Handle,
}

/// What an orphan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// An EC2 instance.
    Instance,
    SpotRequest,
    NetworkInterface,
    Volume,
    LaunchTemplate,
    InstanceProfile,
    /// An `EventBridge` rule.
    Rule,
    /// An SQS queue.
    Queue,
    /// An IAM role.
    Role,
}

impl Kind {
    /// In words.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Instance => "EC2 instance",
            Self::SpotRequest => "spot request",
            Self::NetworkInterface => "network interface",
            Self::Volume => "volume",
            Self::LaunchTemplate => "launch template",
            Self::InstanceProfile => "instance profile",
            Self::Rule => "EventBridge rule",
            Self::Queue => "SQS queue",
            Self::Role => "IAM role",
        }
    }
}

/// What a removal needs beyond the id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Handle {
    /// Nothing.
    #[default]
    Id,
    /// A queue's URL.
    Url(String),
    /// The ids of a rule's targets.
    Targets(Vec<String>),
    /// The installation whose tag a role carries.
    Installation(String),
}

const GONE: &str = "the cluster is gone";

/// Everything that nobody looks after, in the order in which it can be removed.
pub(crate) fn orphans(
    seen: &Seen,
    cluster: &ClusterSeen,
    name: &str,
    now: Timestamp,
) -> Vec<Orphan> {
    let settled = |at: Option<Timestamp>| at.is_none_or(|at| now.duration_since(at) >= SETTLED);
    let mut found = Vec::new();
    let mut add = |kind, id: &str, why: Option<String>| {
        if let Some(why) = why {
            let removable = kind != Kind::Volume;
            found.push(Orphan { kind, id: id.to_owned(), why, removable, handle: Handle::Id });
        }
    };
    for instance in &seen.instances {
        let why = match cluster {
            ClusterSeen::Gone => Some(GONE.to_owned()),
            ClusterSeen::There { claims, instances, .. } => {
                let claimed = claims.contains(&instance.claim) || instances.contains(&instance.id);
                (!claimed && settled(instance.launched_at))
                    .then(|| format!("there is no NodeClaim {}", instance.claim))
            }
        };
        add(Kind::Instance, &instance.id, why);
    }
    let live = seen.instances.iter().map(|instance| instance.id.as_str()).collect::<BTreeSet<_>>();
    for request in &seen.spot_requests {
        let has_instance = request.instance.as_deref().is_some_and(|id| live.contains(id));
        let why = (!has_instance && settled(request.created_at))
            .then(|| "it is open and has no instance".to_owned());
        add(Kind::SpotRequest, &request.id, why);
    }
    for interface in &seen.interfaces {
        let old = settled(interface.created_at) || matches!(cluster, ClusterSeen::Gone);
        let why = old
            .then(|| "it is unattached and blocks the deletion of its security groups".to_owned());
        add(Kind::NetworkInterface, &interface.id, why);
    }
    for volume in &seen.volumes {
        let why = "it is unattached; it may contain data, so it is only reported";
        add(Kind::Volume, volume, Some(why.to_owned()));
    }
    let unused = match cluster {
        ClusterSeen::Gone => Some(GONE.to_owned()),
        ClusterSeen::There { has_classes: false, .. } => {
            Some("there is no EC2NodeClass".to_owned())
        }
        ClusterSeen::There { .. } => None,
    };
    for id in &seen.launch_templates {
        add(Kind::LaunchTemplate, id, unused.clone());
    }
    for id in &seen.instance_profiles {
        add(Kind::InstanceProfile, id, unused.clone());
    }
    found.extend(of_installations(seen, cluster, name));
    found
}

/// What an installer made for a cluster of this name that is no more.
fn of_installations(seen: &Seen, cluster: &ClusterSeen, name: &str) -> Vec<Orphan> {
    let why = |tags: &Tags| {
        let of = tags.get(INSTALL_ID).filter(|_| tags.get(CLUSTER).is_some_and(|of| of == name))?;
        match cluster {
            ClusterSeen::Gone => Some(GONE.to_owned()),
            ClusterSeen::There { install_id, .. } => (of != install_id)
                .then(|| format!("installation {of} belongs to an earlier cluster of this name")),
        }
    };
    let orphan = |kind, id: &str, tags: &Tags, handle| {
        Some(Orphan { kind, id: id.to_owned(), why: why(tags)?, removable: true, handle })
    };
    let rules = seen.rules.iter().filter_map(|(name, targets, tags)| {
        orphan(Kind::Rule, name, tags, Handle::Targets(targets.clone()))
    });
    let queue = seen
        .queue
        .iter()
        .filter_map(|(name, url, tags)| orphan(Kind::Queue, name, tags, Handle::Url(url.clone())));
    let roles = seen.roles.iter().filter_map(|(name, tags)| {
        let of = tags.get(INSTALL_ID).cloned().unwrap_or_default();
        orphan(Kind::Role, name, tags, Handle::Installation(of))
    });
    rules.chain(queue).chain(roles).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn now() -> Timestamp {
        at("2026-01-01T12:00:00Z")
    }

    fn tags(cluster: &str, install: &str) -> Tags {
        [(CLUSTER, cluster), (INSTALL_ID, install)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    fn seen() -> Seen {
        let instance = |id: &str, claim: &str, launched: &str| Instance {
            id: id.to_owned(),
            claim: claim.to_owned(),
            launched_at: Some(at(launched)),
        };
        let old = "2026-01-01T11:00:00Z";
        Seen {
            instances: vec![
                instance("i-claimed", "default-a", old),
                instance("i-lost", "default-b", old),
                instance("i-new", "default-c", "2026-01-01T11:59:00Z"),
            ],
            launch_templates: vec!["lt-1".to_owned()],
            instance_profiles: vec!["prod_1".to_owned()],
            volumes: vec!["vol-1".to_owned()],
            interfaces: vec![
                Interface { id: "eni-old".to_owned(), created_at: Some(at(old)) },
                Interface { id: "eni-new".to_owned(), created_at: Some(now()) },
            ],
            spot_requests: vec![
                SpotRequest {
                    id: "sir-used".to_owned(),
                    instance: Some("i-claimed".to_owned()),
                    created_at: Some(at(old)),
                },
                SpotRequest {
                    id: "sir-lost".to_owned(),
                    instance: Some("i-terminated".to_owned()),
                    created_at: Some(at(old)),
                },
            ],
            queue: Some(("tenon-prod".to_owned(), "https://q".to_owned(), tags("prod", "now"))),
            rules: vec![("tenon-prod-spot".to_owned(), Vec::new(), tags("prod", "before"))],
            roles: vec![
                ("tenon-prod-node".to_owned(), tags("prod", "before")),
                ("tenon-other-node".to_owned(), tags("other", "before")),
                ("somebody-s".to_owned(), Tags::new()),
            ],
        }
    }

    fn found(cluster: &ClusterSeen) -> Vec<String> {
        let found = orphans(&seen(), cluster, "prod", now());
        found.into_iter().map(|orphan| orphan.id).collect()
    }

    #[test]
    fn in_a_cluster_that_is_there_only_what_nothing_refers_to_is_an_orphan() {
        let there = |has_classes| ClusterSeen::There {
            install_id: "now".to_owned(),
            claims: BTreeSet::from(["default-a".to_owned()]),
            instances: BTreeSet::new(),
            has_classes,
        };
        let always = ["i-lost", "sir-lost", "eni-old", "vol-1"];
        let earlier = ["tenon-prod-spot", "tenon-prod-node"];
        assert_eq!(found(&there(true)), [&always[..], &earlier].concat());
        let unused = ["lt-1", "prod_1"];
        assert_eq!(found(&there(false)), [&always[..], &unused, &earlier].concat());
    }

    #[test]
    fn a_cluster_that_is_gone_looks_after_nothing_and_other_clusters_keep_theirs() {
        let all = [
            "i-claimed",
            "i-lost",
            "i-new",
            "sir-lost",
            "eni-old",
            "eni-new",
            "vol-1",
            "lt-1",
            "prod_1",
            "tenon-prod-spot",
            "tenon-prod",
            "tenon-prod-node",
        ];
        assert_eq!(found(&ClusterSeen::Gone), all);
    }

    #[test]
    fn volumes_are_only_reported() {
        let found = orphans(&seen(), &ClusterSeen::Gone, "prod", now());
        let kept = found.iter().filter(|orphan| !orphan.removable).map(|orphan| orphan.kind);
        assert_eq!(kept.collect::<Vec<_>>(), [Kind::Volume]);
    }
}
