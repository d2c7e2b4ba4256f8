//! Names that an installation keeps for its life: what was made under an old one would be found by
//! nobody.

use super::Settings;
use super::config::{Config, Switch};
use crate::names;

/// What of the settings names things differently than the installation that is there, in words.
pub fn renamed(before: &Config, now: &Settings) -> Vec<String> {
    let prefix = before.identity.name_prefix.as_deref().unwrap_or("tenon");
    let mut reasons = Vec::new();
    let mut differs = |field: &str, before: &str, now: &str| {
        if before != now {
            reasons.push(format!("{field} was {before} when it was installed, and is now {now}"));
        }
    };
    differs("identity.namePrefix", prefix, &now.name_prefix);
    let interruption = &before.interruption;
    let had_queue = interruption.enabled.unwrap_or(true)
        && interruption.manage.unwrap_or_default() == Switch::Manage
        && now.manage_queue;
    if let Some(name) = now.queue_name.as_ref().filter(|_| had_queue && prefix == now.name_prefix) {
        let by_default = names::queue_name(&[prefix, &now.cluster]);
        differs(
            "interruption.queueName",
            interruption.queue_name.as_ref().unwrap_or(&by_default),
            name,
        );
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::settings;

    #[test]
    fn names_that_change_are_told_and_nothing_else_is() {
        let before = |extra: &str| settings(extra).config;
        let now = settings("");
        assert_eq!(renamed(&before(""), &now), [""; 0]);
        for same in ["identity:\n  mode: irsa\n", "interruption:\n  enabled: false\n"] {
            assert_eq!(renamed(&before(same), &now), [""; 0], "{same}");
            assert_eq!(renamed(&now.config, &settings(same)), [""; 0], "{same}");
        }
        let prefix = renamed(&before("identity:\n  namePrefix: old\n"), &now);
        assert_eq!(prefix, ["identity.namePrefix was old when it was installed, and is now tenon"]);
        let queue = renamed(&before("interruption:\n  queueName: old\n"), &now);
        assert_eq!(queue.len(), 1, "{queue:?}");
    }
}
