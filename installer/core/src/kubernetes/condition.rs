//! What an object says of itself that is not as it should be, and since when.

use jiff::Timestamp;
use serde_json::Value;

/// A condition that is not true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrue {
    /// Its type, such as `SubnetsReady`.
    pub kind: String,
    /// Reason and message, as the operator wrote them.
    pub said: String,
    /// Since when it is not.
    pub since: Option<Timestamp>,
}

impl Untrue {
    /// For people who look now.
    pub fn in_words(&self, now: Timestamp) -> String {
        let said = self.said.trim();
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        format!("{} is not true{}{said}", self.kind, since(self.since, now))
    }
}

/// Whether an object says that it is ready.
pub fn is_ready(object: &Value) -> bool {
    all(object).any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Type of the condition by which a NodePool says whether plans are made with it.
const PLANNING: &str = "PlanningActive";

/// Why the operator makes no plans with a NodePool that is ready, and since when; `None` where it
/// does.
pub fn planning_paused(pool: &Value) -> Option<Untrue> {
    let untrue = untrue(pool).into_iter().find(|condition| condition.kind == PLANNING);
    let is_paused = all(pool).any(|it| it["type"] == PLANNING && it["status"] == "False");
    untrue.filter(|_| is_paused && is_ready(pool))
}

/// The conditions that keep an object from being ready; `Ready` itself says nothing that they
/// don't, and is told only where it is alone.
pub fn untrue(object: &Value) -> Vec<Untrue> {
    let mut found = all(object)
        .filter(|condition| condition["status"] != "True")
        .map(|condition| {
            let text = |key: &str| condition[key].as_str().unwrap_or_default();
            Untrue {
                kind: text("type").to_owned(),
                said: format!("{} {}", text("reason"), text("message")).trim().to_owned(),
                since: text("lastTransitionTime").parse().ok(),
            }
        })
        .collect::<Vec<_>>();
    // That nothing is planned with a NodePool that is not ready is no news beside why it is not.
    found.retain(|it| it.kind != PLANNING || !it.said.starts_with("NodePoolNotReady"));
    if found.iter().any(|condition| condition.kind != "Ready") {
        found.retain(|condition| condition.kind != "Ready");
    }
    found
}

fn all(object: &Value) -> impl Iterator<Item = &Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten()
}

/// ` since 2026-01-01T00:00:00Z (12 min ago)`; nothing where the time is not known.
pub fn since(since: Option<Timestamp>, now: Timestamp) -> String {
    let Some(since) = since else { return String::new() };
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    let age = match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    };
    format!(" since {since} ({age} ago)")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pause_of_planning_is_told_of_what_is_ready_and_no_cause_where_it_is_not() {
        let pool = |ready: &str, reason: &str| {
            json!({"status": {"conditions": [
                {"type": "NodeClassReady", "status": ready, "reason": "NoSubnets"},
                {"type": "PlanningActive", "status": "False", "reason": reason},
                {"type": "Ready", "status": ready},
            ]}})
        };
        let paused = planning_paused(&pool("True", "InstanceTypesUnknown"));
        assert_eq!(paused.map(|it| it.said), Some("InstanceTypesUnknown".to_owned()));
        assert_eq!(planning_paused(&pool("False", "NodePoolNotReady")), None);
        let kinds: Vec<_> =
            untrue(&pool("False", "NodePoolNotReady")).into_iter().map(|it| it.kind).collect();
        assert_eq!(kinds, ["NodeClassReady"]);
    }

    #[test]
    fn it_is_told_what_is_not_true_since_when_and_for_how_long() {
        let class = json!({"status": {"conditions": [
            {"type": "SubnetsReady", "status": "False", "reason": "SubnetsNotFound", "message": "no subnets", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "AMIsReady", "status": "True"},
            {"type": "Ready", "status": "False", "reason": "SubnetsReady"},
        ]}});
        let now = "2026-01-01T00:12:30Z".parse().expect("a time");
        let told = untrue(&class).iter().map(|it| it.in_words(now)).collect::<Vec<_>>();
        assert_eq!(
            told,
            [
                "SubnetsReady is not true since 2026-01-01T00:00:00Z (12 min ago): SubnetsNotFound no subnets"
            ]
        );
        assert!(!is_ready(&class));
        // Where nothing else is said, Ready itself is told.
        let class = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        let told = untrue(&class).iter().map(|it| it.in_words(now)).collect::<Vec<_>>();
        assert_eq!(told, ["Ready is not true"]);
        assert_eq!(untrue(&json!({})), []);
    }

    #[test]
    fn ages_read_well() {
        let now = "2026-01-03T00:00:00Z".parse().expect("a time");
        let ago = |text: &str| since(text.parse().ok(), now);
        assert!(ago("2026-01-02T23:59:30Z").ends_with("(30 s ago)"));
        assert!(ago("2026-01-02T20:00:00Z").ends_with("(4 h ago)"));
        assert!(ago("2025-12-31T00:00:00Z").ends_with("(3 days ago)"));
        // A clock that is behind the cluster's.
        assert!(ago("2026-01-03T00:00:10Z").ends_with("(0 s ago)"));
        assert_eq!(ago(""), "");
    }
}
