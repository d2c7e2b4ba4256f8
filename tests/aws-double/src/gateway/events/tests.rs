use serde_json::json;

use super::pattern::matches;
use super::queue_policy::allows;

#[test]
fn patterns_match_as_eventbridge_does() {
    let event = json!({ "source": "aws.ec2", "detail-type": "X", "detail": { "state": "stopping", "n": 1 }, "resources": ["arn:a", "arn:b"] });
    for (pattern, expected) in [
        (json!({ "source": ["aws.ec2", "aws.health"] }), true),
        (json!({ "source": ["aws.health"] }), false),
        (json!({ "source": ["aws.ec2"], "detail": { "state": ["stopped", "stopping"] } }), true),
        (json!({ "detail": { "state": ["running"] } }), false),
        (json!({ "source": [{ "prefix": "aws." }] }), true),
        (json!({ "resources": ["arn:b"] }), true),
        (json!({ "detail": { "missing": [{ "exists": false }] } }), true),
        (json!({ "detail": { "state": [{ "anything-but": ["running"] }] } }), true),
        (json!({ "detail": { "missing": ["x"] } }), false),
    ] {
        assert_eq!(matches(&pattern, &event), Ok(expected), "{pattern}");
    }
    assert!(matches(&json!({ "detail": { "n": [{ "numeric": [">", 0] }] } }), &event).is_err());
}

#[test]
fn only_a_policy_that_names_eventbridge_lets_events_in() {
    let (queue, rule) = ("arn:aws:sqs:r:1:q", "arn:aws:events:r:1:rule/x");
    let policy = |statement: serde_json::Value| {
        json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string()
    };
    let good = json!({ "Effect": "Allow", "Principal": { "Service": "events.amazonaws.com" }, "Action": "sqs:SendMessage", "Resource": queue,
        "Condition": { "ArnEquals": { "aws:SourceArn": [rule] }, "StringEquals": { "aws:SourceAccount": "1" } } });
    assert_eq!(allows(Some(&policy(good.clone())), queue, rule, "1"), Ok(()));
    assert!(allows(Some(&policy(good.clone())), queue, "arn:aws:events:r:1:rule/y", "1").is_err());
    assert!(allows(Some(&policy(good.clone())), "arn:aws:sqs:r:1:other", rule, "1").is_err());
    assert!(allows(None, queue, rule, "1").unwrap_err().to_string().contains("is missing"));
    let mut other = good.clone();
    other["Principal"] = json!({ "Service": "sns.amazonaws.com" });
    assert!(allows(Some(&policy(other)), queue, rule, "1").is_err());
    let deny_http = json!({ "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": queue, "Condition": { "Bool": { "aws:SecureTransport": "false" } } });
    let both = json!({ "Version": "2012-10-17", "Statement": [good, deny_http] }).to_string();
    assert_eq!(allows(Some(&both), queue, rule, "1"), Ok(()));
    let deny = json!({ "Version": "2012-10-17", "Statement": [good_copy(), { "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*" }] }).to_string();
    assert!(allows(Some(&deny), queue, rule, "1").unwrap_err().to_string().contains("denies"));
}

fn good_copy() -> serde_json::Value {
    json!({ "Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*" })
}
