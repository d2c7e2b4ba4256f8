use super::*;
use crate::scope::{Features, Partition};

#[test]
fn the_narrow_patterns_still_pass_all_that_the_controller_acts_on() {
    let state = InterruptionRule::InstanceStateChange.pattern();
    assert_eq!(state.detail["state"], ["stopping", "stopped", "shutting-down", "terminated"]);
    assert_eq!(
        InterruptionRule::SpotInterruption.pattern(),
        InterruptionRule::SpotInterruption.upstream_pattern()
    );
}

#[test]
fn patterns_are_written_as_event_bridge_reads_them() {
    assert_eq!(
        InterruptionRule::ScheduledChange.pattern().to_json(),
        r#"{"source":["aws.health"],"detail-type":["AWS Health Event"],"detail":{"eventTypeCategory":["scheduledChange"],"service":["EC2"]}}"#
    );
}

#[test]
fn without_queue_there_is_no_queue_policy() {
    let scope = Scope {
        partition: Partition::Aws,
        region: "eu-central-1".into(),
        account: "123456789012".into(),
        cluster: "c".into(),
        queue: None,
        node_roles: Vec::new(),
        features: Features::default(),
    };
    assert!(queue_policy(&scope, &["r".to_owned()]).is_none());
    assert!(queue_policy_upstream(&scope).is_none());
}
