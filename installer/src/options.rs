//! The options of another controller's container: its environment, what ConfigMaps and Secrets
//! add to it, and its flags, which win over variables.
//!
//! The value of a Secret decides like any other, but it is neither shown nor recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::Value;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::object::Object;

/// Flags that stand alone, by the variables that say the same: Karpenter's, then those of Node
/// Termination Handler.
const SWITCHES: [&str; 23] = [
    "ENABLE_PROFILING",
    "DISABLE_CONTROLLER_WARMUP",
    "DISABLE_LEADER_ELECTION",
    "DISABLE_CLUSTER_STATE_OBSERVABILITY",
    "IGNORE_DRA_REQUESTS",
    "LEGACY_NODE_REPAIR",
    "ISOLATED_VPC",
    "EKS_CONTROL_PLANE",
    "ENABLE_ZONAL_SHIFT",
    "DISABLE_DRY_RUN",
    "DISABLE_WEBHOOK",
    "DRY_RUN",
    "IGNORE_DAEMON_SETS",
    "DELETE_LOCAL_DATA",
    "ENABLE_SCHEDULED_EVENT_DRAINING",
    "ENABLE_SPOT_INTERRUPTION_DRAINING",
    "ENABLE_ASG_LIFECYCLE_DRAINING",
    "ENABLE_SQS_TERMINATION_DRAINING",
    "ENABLE_REBALANCE_MONITORING",
    "ENABLE_REBALANCE_DRAINING",
    "CHECK_TAG_BEFORE_DRAINING",
    "CHECK_ASG_TAG_BEFORE_DRAINING",
    "CORDON_ONLY",
];

/// What variables are taken from, beside the Deployment itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A literal variable.
    Variable,
    /// An argument of the container.
    Flag,
    /// A ConfigMap of this name.
    ConfigMap(String),
    /// A Secret of this name.
    Secret(String),
    /// A field of the pod, which nobody knows before it runs.
    Pod,
}

/// A value and where it comes from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Given {
    value: String,
    /// Where it comes from.
    pub origin: Origin,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.shown(), self.origin)
    }
}

impl Given {
    /// The value itself, to decide by. What may be a Secret's is told by [`Self::shown`].
    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    /// The value for people; not that of a Secret.
    pub(crate) fn shown(&self) -> String {
        match &self.origin {
            Origin::Secret(name) => format!("a value of Secret {name}"),
            _ => format!("`{}`", self.value),
        }
    }

    /// Whether it may be neither shown nor recorded.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self.origin, Origin::Secret(_))
    }
}

/// The contents of ConfigMaps and Secrets by kind and name. Has no debug form, because it holds
/// secrets.
#[derive(Default)]
pub(crate) struct Sources {
    contents: BTreeMap<(Kind, String), BTreeMap<String, String>>,
}

impl Sources {
    /// What these hold.
    #[cfg(test)]
    pub(crate) fn new(contents: BTreeMap<(Kind, String), BTreeMap<String, String>>) -> Self {
        Self { contents }
    }

    fn of(&self, kind: Kind, name: &str) -> Option<&BTreeMap<String, String>> {
        self.contents.get(&(kind, name.to_owned()))
    }

    /// Reads everything that a container of this namespace names. What does not exist holds
    /// nothing.
    ///
    /// # Errors
    /// What the caller may not read: an option that decides who leads may be in it.
    pub(crate) async fn read(
        kube: &Cluster,
        namespace: &str,
        container: &Value,
    ) -> Result<Self, Failure> {
        let mut sources = Self::default();
        for (kind, name) in references(container) {
            let object = match kind {
                Kind::ConfigMap => Object::new(&place::<ConfigMap>(namespace, &name)),
                Kind::Secret => Object::new(&place::<Secret>(namespace, &name)),
            };
            let Some(live) = kube.get(&object.resource, &object.key()).await? else { continue };
            let data = live["data"].as_object().into_iter().flatten();
            let decoded = data.filter_map(|(key, value)| {
                let text = value.as_str()?;
                let value = match kind {
                    Kind::ConfigMap => text.to_owned(),
                    Kind::Secret => String::from_utf8(STANDARD.decode(text).ok()?).ok()?,
                };
                Some((key.clone(), value))
            });
            sources.contents.insert((kind, name), decoded.collect());
        }
        Ok(sources)
    }
}

fn place<K>(namespace: &str, name: &str) -> K
where
    K: kube::Resource + Default,
{
    let mut object = K::default();
    object.meta_mut().name = Some(name.to_owned());
    object.meta_mut().namespace = Some(namespace.to_owned());
    object
}

/// The ConfigMaps and Secrets that a container takes variables from.
fn references(container: &Value) -> BTreeSet<(Kind, String)> {
    let mut found = BTreeSet::new();
    let mut add = |kind: Kind, name: Option<&str>| {
        if let Some(name) = name {
            found.insert((kind, name.to_owned()));
        }
    };
    for entry in list(container, "env") {
        add(
            Kind::ConfigMap,
            entry.pointer("/valueFrom/configMapKeyRef/name").and_then(Value::as_str),
        );
        add(Kind::Secret, entry.pointer("/valueFrom/secretKeyRef/name").and_then(Value::as_str));
    }
    for entry in list(container, "envFrom") {
        add(Kind::ConfigMap, entry.pointer("/configMapRef/name").and_then(Value::as_str));
        add(Kind::Secret, entry.pointer("/secretRef/name").and_then(Value::as_str));
    }
    found
}

fn list<'a>(container: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    container[key].as_array().into_iter().flatten()
}

/// Everything that a container is told, by the names of variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Options {
    given: BTreeMap<String, Given>,
}

impl Options {
    /// What a container is told in the end: later variables win over earlier ones and over
    /// `envFrom`, flags over all of them.
    pub(crate) fn of(container: &Value, sources: &Sources) -> Self {
        let mut options = Self::default();
        for entry in list(container, "envFrom") {
            options.take_all(entry, sources);
        }
        for entry in list(container, "env") {
            options.take(entry, sources);
        }
        options.take_flags(container);
        options
    }

    /// What a variable says, however it is said; nothing if it is empty.
    pub(crate) fn get(&self, variable: &str) -> Option<&Given> {
        self.given.get(variable).filter(|given| !given.value.is_empty())
    }

    /// Its value alone, to decide by.
    pub(crate) fn value(&self, variable: &str) -> Option<&str> {
        self.get(variable).map(Given::value)
    }

    /// All that is told.
    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Given)> {
        self.given.iter().map(|(name, given)| (name.as_str(), given))
    }

    /// Says another thing, as if it stood in the Deployment.
    #[cfg(test)]
    pub(crate) fn set(&mut self, variable: &str, value: &str) {
        self.put(variable, value.to_owned(), Origin::Variable);
    }

    fn put(&mut self, variable: &str, value: String, origin: Origin) {
        self.given.insert(variable.to_owned(), Given { value, origin });
    }

    fn take_all(&mut self, entry: &Value, sources: &Sources) {
        let prefix = entry["prefix"].as_str().unwrap_or_default();
        for (kind, key) in [(Kind::ConfigMap, "configMapRef"), (Kind::Secret, "secretRef")] {
            let Some(name) = entry[key]["name"].as_str() else { continue };
            for (variable, value) in sources.of(kind, name).into_iter().flatten() {
                self.put(&format!("{prefix}{variable}"), value.clone(), origin(kind, name));
            }
        }
    }

    fn take(&mut self, entry: &Value, sources: &Sources) {
        let Some(variable) = entry["name"].as_str() else { return };
        let from = &entry["valueFrom"];
        for (kind, key) in [(Kind::ConfigMap, "configMapKeyRef"), (Kind::Secret, "secretKeyRef")] {
            let (Some(name), Some(key)) = (from[key]["name"].as_str(), from[key]["key"].as_str())
            else {
                continue;
            };
            // A key that is not there leaves the variable as `envFrom` has it.
            if let Some(value) = sources.of(kind, name).and_then(|data| data.get(key)) {
                self.put(variable, value.clone(), origin(kind, name));
            }
            return;
        }
        if from.is_object() {
            return self.put(variable, String::new(), Origin::Pod);
        }
        let text = entry["value"].as_str().unwrap_or_default();
        let (value, secret) = self.expanded(text);
        self.put(variable, value, secret.unwrap_or(Origin::Variable));
    }

    /// `$(NAME)` replaced as Kubernetes does it, and the Secret whose value got into it. What is
    /// not known stays as it is.
    fn expanded(&self, text: &str) -> (String, Option<Origin>) {
        let mut out = String::new();
        let mut secret = None;
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let name = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'));
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some((name, after)) = name
                && let Some(given) = self.given.get(name)
            {
                out.push_str(&given.value);
                if given.is_secret() {
                    secret = Some(given.origin.clone());
                }
                rest = after;
            } else {
                out.push('$');
            }
        }
        out.push_str(rest);
        (out, secret)
    }

    /// Flags as Go's programs read them: one or two dashes, the value after `=` or in the next
    /// argument, until something else comes.
    fn take_flags(&mut self, container: &Value) {
        let texts = |key: &str| list(container, key).filter_map(Value::as_str);
        let arguments = texts("command").skip(1).chain(texts("args"));
        let arguments = arguments.map(|text| self.expanded(text)).collect::<Vec<_>>();
        let mut arguments = arguments.into_iter();
        while let Some((argument, mut secret)) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))
            else {
                return;
            };
            if flag.is_empty() {
                return;
            }
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let variable = name.to_ascii_uppercase().replace('-', "_");
            let value = match value {
                Some(value) => value,
                None if SWITCHES.contains(&variable.as_str()) => "true".to_owned(),
                None => {
                    let Some((value, of)) = arguments.next() else { return };
                    secret = secret.or(of);
                    value
                }
            };
            self.put(&variable, value, secret.unwrap_or(Origin::Flag));
        }
    }
}

fn origin(kind: Kind, name: &str) -> Origin {
    match kind {
        Kind::ConfigMap => Origin::ConfigMap(name.to_owned()),
        Kind::Secret => Origin::Secret(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sources() -> Sources {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        Sources::new(BTreeMap::from([
            (
                (Kind::ConfigMap, "settings".to_owned()),
                map(&[("BATCH_MAX_DURATION", "30s"), ("LEADER_ELECTION_NAME", "other")]),
            ),
            ((Kind::Secret, "hidden".to_owned()), map(&[("CLUSTER_ENDPOINT", "https://hush")])),
        ]))
    }

    #[test]
    fn later_variables_win_over_earlier_ones_and_flags_over_all() {
        let container = json!({
            "envFrom": [{"configMapRef": {"name": "settings"}}, {"prefix": "P_", "secretRef": {"name": "hidden"}}],
            "env": [
                {"name": "CLUSTER_NAME", "value": "prod"},
                {"name": "BATCH_MAX_DURATION", "value": "20s"},
                {"name": "QUEUE", "value": "$(CLUSTER_NAME)-queue $$(X) $(UNKNOWN) $"},
                {"name": "FROM_MAP", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "LEADER_ELECTION_NAME"}}},
                {"name": "FROM_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LOG_LEVEL", "value": "debug"},
            ],
            "command": ["/karpenter", "--log-level=error"],
            "args": ["-disable-leader-election", "--metrics-port", "9090", "--interruption-queue=$(CLUSTER_NAME)", "stop", "--metrics-port=1"],
        });
        let options = Options::of(&container, &sources());
        let value = |name: &str| options.value(name);
        assert_eq!(value("BATCH_MAX_DURATION"), Some("20s"));
        assert_eq!(value("LEADER_ELECTION_NAME"), Some("other"));
        assert_eq!(value("QUEUE"), Some("prod-queue $(X) $(UNKNOWN) $"));
        assert_eq!(value("FROM_MAP"), Some("other"));
        assert_eq!(value("FROM_POD"), None);
        assert_eq!(value("LOG_LEVEL"), Some("error"));
        assert_eq!(value("DISABLE_LEADER_ELECTION"), Some("true"));
        assert_eq!(value("METRICS_PORT"), Some("9090"));
        assert_eq!(value("INTERRUPTION_QUEUE"), Some("prod"));
        assert_eq!(value("P_CLUSTER_ENDPOINT"), Some("https://hush"));
        let origin = |name: &str| options.get(name).map(|given| given.origin.clone());
        assert_eq!(origin("LEADER_ELECTION_NAME"), Some(Origin::ConfigMap("settings".to_owned())));
        assert_eq!(origin("LOG_LEVEL"), Some(Origin::Flag));
    }

    #[test]
    fn a_secret_s_value_is_never_shown_wherever_it_gets_to() {
        let container = json!({
            "env": [
                {"name": "CLUSTER_ENDPOINT", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "CLUSTER_ENDPOINT"}}},
                {"name": "COPY", "value": "see $(CLUSTER_ENDPOINT)"},
            ],
            "args": ["--leader-election-name=$(COPY)"],
        });
        let options = Options::of(&container, &sources());
        assert_eq!(options.value("LEADER_ELECTION_NAME"), Some("see https://hush"));
        assert!(options.all().all(|(_, given)| given.is_secret()));
        assert!(!format!("{options:?}").contains("hush"), "{options:?}");
    }

    #[tokio::test]
    async fn what_is_named_is_read_and_what_is_missing_holds_nothing() {
        use tenon_installer_core::testing::Double;
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"A": STANDARD.encode("b")}});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"C": "d"}});
        let server = Double::start(&[
            ("/api/v1/namespaces/karpenter/secrets/hidden", secret),
            ("/api/v1/namespaces/karpenter/configmaps/settings", map),
        ])
        .await;
        let container = json!({"envFrom": [
            {"secretRef": {"name": "hidden"}},
            {"configMapRef": {"name": "settings"}},
            {"configMapRef": {"name": "missing", "optional": true}},
        ]});
        let sources = Sources::read(&server.cluster(), "karpenter", &container).await;
        let sources = sources.unwrap_or_else(|error| panic!("{error}"));
        let options = Options::of(&container, &sources);
        assert_eq!((options.value("A"), options.value("C")), (Some("b"), Some("d")));
    }
}
