//! What of kube-scheduler's configuration plans have to follow: the topology spread of pods that
//! have no constraints of their own.
//!
//! It is given as Karpenter takes it, `podTopologySpread.defaultConstraints`, or as the
//! KubeSchedulerConfiguration that kube-scheduler itself reads. A cluster's scheduler can't be
//! asked for it. What kube-scheduler would refuse is refused here, too: a plan by other rules than
//! the scheduler's makes machines that pods don't go to.

use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;
use tenon_crds::labels::{self, LabelRules};
use tenon_crds::validation;
use tenon_planner::snapshot::TopologySpread;

/// The group of kube-scheduler's own configuration.
const GROUP: &str = "kubescheduler.config.k8s.io/";
/// The scheduler of pods that name none.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// The plugin that spreads pods.
const PLUGIN: &str = "PodTopologySpread";

/// The part of kube-scheduler's configuration that counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// The constraints of pods that have none of their own, in the order of the configuration; none
    /// when there is no default.
    pub default_constraints: Vec<DefaultConstraint>,
}

/// A topology spread constraint without a selector: that is found for each pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultConstraint {
    /// More than 0.
    pub max_skew: i32,
    /// The label of nodes whose values are the domains.
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// How many domains there have to be.
    pub min_domains: Option<i32>,
    /// `Honor` or `Ignore`; absent is the former.
    pub node_affinity_policy: Option<String>,
    /// `Honor` or `Ignore`; absent is the latter.
    pub node_taints_policy: Option<String>,
    label_selector: Option<Value>,
    match_label_keys: Option<Vec<String>>,
}

/// A document as Karpenter takes it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Document {
    pod_topology_spread: Option<Constraints>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Constraints {
    default_constraints: Vec<DefaultConstraint>,
}

/// kube-scheduler's own document, as far as it counts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KubeSchedulerConfiguration {
    profiles: Vec<Profile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Profile {
    scheduler_name: Option<String>,
    plugin_config: Vec<PluginConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PluginConfig {
    name: String,
    args: Value,
}

/// Arguments of the plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PluginArgs {
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(rename = "kind")]
    _kind: Option<String>,
    default_constraints: Vec<DefaultConstraint>,
    defaulting_type: Option<String>,
}

impl FromStr for SchedulerConfig {
    type Err = String;

    /// Reads either document, in YAML or JSON; an empty text is no configuration. An error names
    /// every field that is wrong, and what is allowed there.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let value: Value = serde_saphyr::from_str(text).map_err(|error| {
            let message = error.to_string();
            format!("this is neither YAML nor JSON: {}", message.lines().next().unwrap_or_default())
        })?;
        let kind = value.get("kind").map(|kind| kind.as_str().unwrap_or_default().to_owned());
        let (path, default_constraints) = match kind {
            Some(kind) => {
                (format!("args of {PLUGIN}.defaultConstraints"), of_kube_scheduler(&kind, value)?)
            }
            None => {
                let document: Document = decode(value)?;
                let spread = document.pod_topology_spread.unwrap_or_default();
                ("podTopologySpread.defaultConstraints".to_owned(), spread.default_constraints)
            }
        };
        let mut problems = Vec::new();
        for (index, constraint) in default_constraints.iter().enumerate() {
            let of_one = constraint.problems();
            problems.extend(of_one.iter().map(|problem| format!("{path}[{index}].{problem}")));
            let same = |other: &DefaultConstraint| {
                (&other.topology_key, &other.when_unsatisfiable)
                    == (&constraint.topology_key, &constraint.when_unsatisfiable)
            };
            if let Some(first) = default_constraints[..index].iter().position(same) {
                problems.push(format!(
                    "{path}[{index}] has topologyKey and whenUnsatisfiable of [{first}]: a pair may occur once"
                ));
            }
        }
        if problems.is_empty() {
            Ok(Self { default_constraints })
        } else {
            Err(problems.join("; "))
        }
    }
}

/// The constraints that a KubeSchedulerConfiguration comes to for pods of the default scheduler.
fn of_kube_scheduler(kind: &str, value: Value) -> Result<Vec<DefaultConstraint>, String> {
    let api_version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if kind != "KubeSchedulerConfiguration" || !api_version.starts_with(GROUP) {
        return Err(format!(
            "this is a {kind} of {api_version:?}; allowed: a KubeSchedulerConfiguration of {GROUP}v1, or a document with podTopologySpread.defaultConstraints"
        ));
    }
    let configuration: KubeSchedulerConfiguration = decode(value)?;
    let named = |profile: &&Profile| {
        profile.scheduler_name.as_deref().is_none_or(|name| name == DEFAULT_SCHEDULER)
    };
    let profiles = &configuration.profiles;
    let profile = profiles.iter().find(named);
    if profile.is_none() && !profiles.is_empty() {
        return Err(format!(
            "no profile has the schedulerName {DEFAULT_SCHEDULER}: give the profile that schedules your pods this name here, or leave the name out"
        ));
    }
    let mut plugins = profile.iter().flat_map(|profile| &profile.plugin_config);
    let plugin = plugins.find(|plugin| plugin.name == PLUGIN);
    let args = match plugin {
        Some(plugin) if !plugin.args.is_null() => decode::<PluginArgs>(plugin.args.clone())
            .map_err(|problem| format!("args of {PLUGIN}: {problem}"))?,
        _ => PluginArgs::default(),
    };
    let listed = args.default_constraints;
    match args.defaulting_type.as_deref() {
        Some("List") => Ok(listed),
        None | Some("System") if listed.is_empty() => Ok(built_in()),
        None => Err(format!(
            "args of {PLUGIN}: defaultConstraints need `defaultingType: List`; kube-scheduler takes System where nothing is said, and refuses both together"
        )),
        Some("System") => Err(format!(
            "args of {PLUGIN}: `defaultingType: System` and defaultConstraints exclude each other; allowed with constraints: List"
        )),
        Some(other) => {
            Err(format!("args of {PLUGIN}: defaultingType is {other:?}; allowed: List, System"))
        }
    }
}

/// kube-scheduler's own defaults.
fn built_in() -> Vec<DefaultConstraint> {
    let spread = |max_skew, topology_key: &str| DefaultConstraint {
        max_skew,
        topology_key: topology_key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..DefaultConstraint::default()
    };
    vec![spread(3, labels::HOSTNAME), spread(5, labels::ZONE)]
}

/// The value as a type; an error names the field.
fn decode<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

impl DefaultConstraint {
    /// What is wrong with it, by field.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.max_skew <= 0 {
            problems.push(format!("maxSkew is {}; allowed: more than 0", self.max_skew));
        }
        if self.topology_key.is_empty() {
            problems.push("topologyKey is missing".to_owned());
        } else if let Err(violation) = validation::qualified_name(&self.topology_key) {
            problems.push(format!("topologyKey: {violation}"));
        }
        let mut choice = |field: &str, value: &str, allowed: [&str; 2]| {
            if !allowed.contains(&value) {
                problems.push(format!("{field} is {value:?}; allowed: {}", allowed.join(", ")));
            }
        };
        choice("whenUnsatisfiable", &self.when_unsatisfiable, ["DoNotSchedule", "ScheduleAnyway"]);
        for (field, policy) in [
            ("nodeAffinityPolicy", &self.node_affinity_policy),
            ("nodeTaintsPolicy", &self.node_taints_policy),
        ] {
            if let Some(policy) = policy {
                choice(field, policy, ["Honor", "Ignore"]);
            }
        }
        if self.label_selector.is_some() {
            problems.push(
                "labelSelector must be left out: it is found for each pod, by its Services and its controller"
                    .to_owned(),
            );
        }
        if self.match_label_keys.as_ref().is_some_and(|keys| !keys.is_empty()) {
            problems
                .push("matchLabelKeys must be left out: kube-scheduler ignores it here".to_owned());
        }
        problems
    }

    /// As the planner takes it, without a selector.
    pub(crate) fn to_planner(&self, rules: &LabelRules) -> TopologySpread {
        TopologySpread {
            topology_key: rules.normalize(&self.topology_key).to_owned(),
            max_skew: self.max_skew,
            min_domains: self.min_domains,
            required: self.when_unsatisfiable == "DoNotSchedule",
            selector: None,
            honor_affinity: self.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: self.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: &str =
        "{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}";
    const HOST: &str =
        "{maxSkew: 3, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}";

    fn read(text: &str) -> Result<Vec<(i32, String, String)>, String> {
        let constraints = text.parse::<SchedulerConfig>()?.default_constraints.into_iter();
        Ok(constraints.map(|it| (it.max_skew, it.topology_key, it.when_unsatisfiable)).collect())
    }

    fn of_karpenter(constraints: &str) -> String {
        format!("podTopologySpread:\n  defaultConstraints: {constraints}\n")
    }

    fn of_scheduler(args: &str) -> String {
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {{leaderElect: true}}\n\
             profiles:\n- schedulerName: other\n- schedulerName: default-scheduler\n  plugins: {{}}\n  pluginConfig:\n  - name: NodeResourcesFit\n    args: {{}}\n\
             \x20 - name: PodTopologySpread\n    args: {args}\n"
        )
    }

    fn constraint(max_skew: i32, key: &str, when: &str) -> (i32, String, String) {
        (max_skew, key.to_owned(), when.to_owned())
    }

    #[test]
    fn karpenters_document_and_the_schedulers_own_say_the_same() {
        let expected = vec![
            constraint(1, "topology.kubernetes.io/zone", "DoNotSchedule"),
            constraint(3, "kubernetes.io/hostname", "ScheduleAnyway"),
        ];
        let list = format!("[{ZONE}, {HOST}]");
        assert_eq!(read(&of_karpenter(&list)), Ok(expected.clone()));
        let args = format!("{{defaultConstraints: {list}, defaultingType: List}}");
        assert_eq!(read(&of_scheduler(&args)), Ok(expected.clone()));
        let json = r#"{"podTopologySpread":{"defaultConstraints":[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule"}]}}"#;
        assert_eq!(read(json), Ok(expected[..1].to_vec()));
    }

    #[test]
    fn nothing_is_spread_by_default_where_nothing_is_configured() {
        for text in ["", "  \n", "podTopologySpread: {}", "{}"] {
            assert_eq!(read(text), Ok(vec![]), "{text:?}");
        }
        assert_eq!(read(&of_scheduler("{defaultingType: List}")), Ok(vec![]));
    }

    #[test]
    fn the_schedulers_built_in_constraints_count_where_its_configuration_leaves_them_on() {
        let built_in = vec![
            constraint(3, "kubernetes.io/hostname", "ScheduleAnyway"),
            constraint(5, "topology.kubernetes.io/zone", "ScheduleAnyway"),
        ];
        for args in ["{defaultingType: System}", "{}", ""] {
            assert_eq!(read(&of_scheduler(args)), Ok(built_in.clone()), "{args:?}");
        }
        let bare = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration";
        assert_eq!(read(bare), Ok(built_in));
    }

    #[test]
    fn what_the_scheduler_would_refuse_is_refused_with_the_field_and_what_is_allowed() {
        let one = |fields: &str| {
            let rest = "topologyKey: zone, whenUnsatisfiable: ScheduleAnyway";
            of_karpenter(&format!("[{{maxSkew: 1, {rest}, {fields}}}]"))
        };
        for (text, expected) in [
            ("podTopologySpread: {".to_owned(), "neither YAML nor JSON"),
            ("notAField: true".to_owned(), "unknown field `notAField`"),
            (one("labelSelector: {}"), "[0].labelSelector must be left out"),
            (one("matchLabelKeys: [a]"), "[0].matchLabelKeys must be left out"),
            (one("typo: 1"), "unknown field `typo`"),
            (
                one("nodeTaintsPolicy: honor"),
                "[0].nodeTaintsPolicy is \"honor\"; allowed: Honor, Ignore",
            ),
            (
                of_karpenter(&format!("[{ZONE}, {ZONE}]")),
                "[1] has topologyKey and whenUnsatisfiable of [0]",
            ),
            (of_karpenter("[{}]"), "[0].maxSkew is 0; allowed: more than 0"),
            (of_karpenter("[{}]"), "[0].topologyKey is missing"),
            (
                of_karpenter("[{}]"),
                "[0].whenUnsatisfiable is \"\"; allowed: DoNotSchedule, ScheduleAnyway",
            ),
            (
                of_karpenter("[{topologyKey: not a label}]"),
                "[0].topologyKey: `not a label` is not a qualified name",
            ),
            (
                of_scheduler(&format!("{{defaultConstraints: [{ZONE}]}}")),
                "need `defaultingType: List`",
            ),
            (
                of_scheduler(&format!("{{defaultConstraints: [{ZONE}], defaultingType: System}}")),
                "exclude each other",
            ),
            (of_scheduler("{defaultingType: list}"), "allowed: List, System"),
            (of_scheduler("{typo: 1}"), "args of PodTopologySpread: unknown field `typo`"),
            (
                of_scheduler("").replace("default-scheduler", "mine"),
                "no profile has the schedulerName default-scheduler",
            ),
            ("apiVersion: v1\nkind: ConfigMap".to_owned(), "this is a ConfigMap of \"v1\""),
        ] {
            let error = read(&text).expect_err(&text);
            assert!(error.contains(expected), "{error:?} instead of {expected:?} for {text}");
        }
        let both =
            of_karpenter(&format!("[{ZONE}, {}]", ZONE.replace("DoNotSchedule", "ScheduleAnyway")));
        assert_eq!(read(&both).map(|constraints| constraints.len()), Ok(2));
    }
}
