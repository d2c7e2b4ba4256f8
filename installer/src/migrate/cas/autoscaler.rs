//! Cluster Autoscaler's Deployment, and which groups it scales by its flags.

use std::collections::BTreeMap;

use serde_json::Value;
use tenon_installer_core::kubernetes::object::{Object, annotation};
use tenon_installer_core::observe::auto_scaling::GroupState;
use tenon_installer_core::ownership::SIZES;

use super::size::{Size, Sizes};

/// What a group has to be to be scaled.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Selector {
    /// Its name, of `--nodes=MIN:MAX:NAME`.
    Name(String),
    /// These tags, of `--node-group-auto-discovery=asg:tag=KEY[=VALUE],…`.
    Tags(Vec<(String, Option<String>)>),
}

/// Cluster Autoscaler as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Autoscaler {
    /// Its Deployment.
    pub live: Object,
    flags: Vec<(String, String)>,
}

impl Autoscaler {
    /// None for a Deployment of something else.
    pub(crate) fn of(live: Object) -> Option<Self> {
        let containers = live.body.pointer("/spec/template/spec/containers")?.as_array()?;
        let container = containers.iter().find(|container| {
            let image = container["image"].as_str().unwrap_or_default();
            let path = image.split('@').next().unwrap_or_default();
            path.rsplit('/').next().unwrap_or_default().starts_with("cluster-autoscaler")
        })?;
        Some(Self { flags: flags(container), live })
    }

    fn values(&self, flag: &str) -> Vec<&str> {
        let given = self.flags.iter().filter(|(name, _)| name == flag);
        given.map(|(_, value)| value.as_str()).collect()
    }

    /// The last value of a flag.
    pub(crate) fn flag(&self, name: &str) -> Option<&str> {
        self.values(name).pop()
    }

    fn selectors(&self) -> Vec<Selector> {
        let named = self.values("nodes").into_iter().filter_map(|text| text.splitn(3, ':').nth(2));
        let named = named.map(|name| Selector::Name(name.to_owned()));
        let tagged = self.values("node-group-auto-discovery").into_iter().filter_map(|text| {
            let tags = text.strip_prefix("asg:tag=")?.split(',').filter(|tag| !tag.is_empty());
            let tags = tags.map(|tag| match tag.split_once('=') {
                Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                None => (tag.to_owned(), None),
            });
            Some(Selector::Tags(tags.collect()))
        });
        named.chain(tagged).collect()
    }

    /// Whether it is told to scale any group.
    pub(crate) fn selects_any(&self) -> bool {
        !self.selectors().is_empty()
    }

    /// Whether it scales a group.
    pub(crate) fn scales(&self, group: &GroupState) -> bool {
        self.selectors().iter().any(|selector| match selector {
            Selector::Name(name) => *name == group.name,
            Selector::Tags(tags) => tags.iter().all(|(key, value)| {
                let found = group.tags.get(key);
                found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
            }),
        })
    }

    /// The sizes that its groups had, as far as they were recorded.
    pub(crate) fn sizes(&self) -> Sizes {
        let text = annotation(&self.live.body, SIZES);
        let sizes = text.and_then(|text| serde_json::from_str::<BTreeMap<String, Size>>(text).ok());
        sizes.unwrap_or_default()
    }
}

/// Flags as Go's programs read them, of command and arguments: a flag without a value is `true`.
fn flags(container: &Value) -> Vec<(String, String)> {
    let list = |key: &str| container[key].as_array().cloned().unwrap_or_default();
    // A shell gets the whole command as one text.
    let texts = list("command").into_iter().chain(list("args"));
    let texts = texts.filter_map(|text| text.as_str().map(str::to_owned)).collect::<Vec<_>>();
    let words = texts.iter().flat_map(|text| text.split_whitespace()).collect::<Vec<_>>();
    let mut flags = Vec::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value.trim_matches(['"', '\'']).to_owned()),
            None => match words.next_if(|next| !next.starts_with('-')) {
                Some(value) => (flag, value.trim_matches(['"', '\'']).to_owned()),
                None => (flag, "true".to_owned()),
            },
        };
        flags.push((name.to_owned(), value));
    }
    flags
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenon_installer_core::ownership::Tags;

    use super::*;

    fn autoscaler(image: &str, command: &[&str]) -> Option<Autoscaler> {
        let containers = json!([{"name": "proxy", "image": "proxy:1"},
                                {"name": "ca", "image": image, "command": command}]);
        let body = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "ca", "namespace": "kube-system"},
            "spec": {"template": {"spec": {"containers": containers}}},
        });
        Autoscaler::of(Object::from_json(body, "deployments"))
    }

    fn group(name: &str, tags: &[(&str, &str)]) -> GroupState {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        GroupState { name: name.to_owned(), tags: tags.collect::<Tags>(), ..Default::default() }
    }

    #[test]
    fn it_is_known_by_its_image() {
        for image in [
            "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com/cluster-autoscaler@sha256:abc",
            "cluster-autoscaler-amd64:v1.2",
        ] {
            assert!(autoscaler(image, &[]).is_some(), "{image}");
        }
        for image in ["registry.k8s.io/cpa/cluster-proportional-autoscaler:v1.8.4", "other"] {
            assert!(autoscaler(image, &[]).is_none(), "{image}");
        }
    }

    #[test]
    fn its_flags_say_which_groups_it_scales() {
        let image = "cluster-autoscaler:v1.34.0";
        let enabled = ("k8s.io/cluster-autoscaler/enabled", "true");
        let ours = ("k8s.io/cluster-autoscaler/prod", "owned");
        let discovery = "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled,\
                         k8s.io/cluster-autoscaler/prod=owned";
        let all = [
            autoscaler(image, &["./cluster-autoscaler", "--v=4", discovery, "--nodes=1:5:named"]),
            autoscaler(image, &["./cluster-autoscaler", "--nodes", "1:5:named", discovery]),
            autoscaler(image, &["sh", "-c", &format!("./ca {discovery} --nodes='1:5:named'")]),
        ];
        for found in all {
            let found = found.expect("it is one");
            assert!(found.scales(&group("named", &[])), "{found:?}");
            assert!(found.scales(&group("tagged", &[enabled, ours])), "{found:?}");
            assert!(!found.scales(&group("half", &[enabled])), "{found:?}");
            let other = ("k8s.io/cluster-autoscaler/prod", "shared");
            assert!(!found.scales(&group("other", &[enabled, other])), "{found:?}");
        }
        let flags = ["--scale-down-enabled", "--expander=least-waste", "--cloud-provider", "aws"];
        let found = autoscaler(image, &flags).expect("it is one");
        assert_eq!(found.flag("scale-down-enabled"), Some("true"));
        assert_eq!(found.flag("cloud-provider"), Some("aws"));
        assert_eq!(found.flag("nodes"), None);
        assert!(!found.selects_any());
    }
}
