//! What to do about a cause: a sentence, with a command or YAML to copy.

use serde::Serialize;

/// Why an object is as it is, for programs. Names are part of the format: they are added, never
/// changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// A pod has scheduling gates.
    SchedulingGates,
    /// kube-scheduler has not refused a pod.
    NotTried,
    /// There is no NodePool that could launch a node.
    NoNodePool,
    /// A node selector that nothing has.
    NodeSelector,
    /// A zone that does not exist here.
    UnknownZone,
    /// Required node affinity that nothing meets.
    NodeAffinity,
    /// The NodePool's own requirements leave no instance type.
    NodePoolRequirements,
    /// A taint that is not tolerated.
    Taint,
    /// Larger than every instance type.
    TooLarge,
    /// The NodePool's limits are reached.
    Limit,
    /// The NodePool is paused.
    Frozen,
    /// The NodePool is not ready.
    NodePoolNotReady,
    /// Its NodeClass is not ready.
    NodeClassNotReady,
    /// No offering is available.
    NoCapacity,
    /// A launch failed for another reason.
    LaunchFailed,
    /// An instance runs, its node has not joined.
    NotRegistered,
    /// Capacity reservations are taken by other launches.
    Reserved,
    /// `minValues` can't be met.
    MinValues,
    /// Resource claims are not planned for.
    ResourceClaims,
    /// Devices that no node has.
    Devices,
    /// Topology spread leaves no domain.
    TopologySpread,
    /// Pod affinity leaves no domain.
    PodAffinity,
    /// Pod anti-affinity leaves no domain.
    PodAntiAffinity,
    /// A volume is bound to a zone that the NodePool does not offer.
    VolumeZone,
    /// A volume can't be used.
    Volume,
    /// Host ports that daemons use.
    HostPorts,
    /// Something else in the pod's specification.
    PodSpec,
    /// A node would be launched.
    WouldLaunch,
    /// A node is being launched.
    Launching,
    /// An existing node has room.
    Fits,
    /// It runs.
    Running,
    /// It is being deleted.
    Deleting,
    /// A node or NodePool would lose something to disruption.
    Disruption,
    /// A node stays.
    Stays,
    /// A NodePool works.
    Working,
    /// None of these.
    Other,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What it is about.
    pub cause: Cause,
    /// A sentence.
    pub text: String,
    /// A command line for a shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A part of a manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yaml: Option<String>,
}

impl Advice {
    pub(super) fn run(cause: Cause, text: impl Into<String>, command: impl Into<String>) -> Self {
        Self { cause, text: text.into(), command: Some(command.into()), yaml: None }
    }

    pub(super) fn write(cause: Cause, text: impl Into<String>, yaml: impl Into<String>) -> Self {
        Self { cause, text: text.into(), command: None, yaml: Some(yaml.into()) }
    }
}

/// A word of a command line, quoted if a shell would read something into it.
pub(super) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A scalar of YAML, quoted if it could be read as something else than a text.
pub(super) fn scalar(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let means_something = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    let is_plain = begins
        && text.chars().all(is_word)
        && !means_something.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// A key of a mapping.
pub(super) fn key(text: &str) -> String {
    scalar(text)
}

/// `[a, b]`
pub(super) fn list<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let values: Vec<String> = values.into_iter().map(scalar).collect();
    format!("[{}]", values.join(", "))
}

/// A requirement, as NodePools and node affinity list them.
pub(super) fn requirement(name: &str, operator: &str, values: &[&str]) -> String {
    let values = if values.is_empty() {
        String::new()
    } else {
        format!("\n  values: {}", list(values.iter().copied()))
    };
    format!("- key: {}\n  operator: {operator}{values}", key(name))
}

/// Each line below this indentation.
pub(super) fn indented(text: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    text.lines().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_copied_is_quoted_where_it_has_to_be() {
        assert_eq!(word("web-0"), "web-0");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word(r#"{"a":1}"#), r#"'{"a":1}'"#);
        let scalars = ["ml", "64", "true", "a b", "example.com/gpu", "", "0x1f", "1e3"];
        assert_eq!(
            scalars.map(scalar),
            [
                "ml",
                "\"64\"",
                "\"true\"",
                "\"a b\"",
                "example.com/gpu",
                "\"\"",
                "\"0x1f\"",
                "\"1e3\""
            ]
        );
        for text in scalars {
            let read: String = serde_saphyr::from_str(&scalar(text)).expect("YAML");
            assert_eq!(read, text);
        }
    }
}
