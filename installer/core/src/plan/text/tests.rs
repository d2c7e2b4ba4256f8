use serde_json::json;

use super::*;
use crate::plan::Action;
use crate::plan::change::{Origin, changes};

/// A plan with a change of every kind.
fn plan() -> Plan {
    let statement = |sid: &str, actions: &[&str]| json!({"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": ["*"]});
    let step = |kind: &str, resource: &str, op: Op| {
        Step::new(resource, kind, resource, op, Action::CreateSpotRole)
    };
    let before = json!({
        "inline": {"Compute": {"Statement": [statement("AllowFleet", &["ec2:RunInstances"])]}},
        "tags": {"team": "a"},
    });
    let after = json!({
        "inline": {"Compute": {"Statement": [
            statement("AllowFleet", &["ec2:CreateFleet", "ec2:RunInstances"]),
            statement("AllowTags", &["ec2:CreateTags", "ec2:DeleteTags"]),
        ]}},
    });
    let role = "arn:aws:iam::111122223333:role/tenon/prod/tenon-prod-controller";
    let retention = |seconds: &str| json!({"attributes": {"MessageRetentionPeriod": seconds}});
    let mut queue = changes(&retention("60"), &retention("300"));
    queue[0].origin = Origin::Outside { by: Vec::new() };
    let operator = |replicas: i64, image: &str, token: &str, verbs: &[&str]| {
        json!({"spec": {"replicas": replicas, "containers": [{
            "name": "controller",
            "image": image,
            "env": [{"name": "API_TOKEN", "value": token}],
        }]}, "rules": verbs.iter().map(|verb| json!({"apiGroups": ["karpenter.sh"], "verbs": [verb]})).collect::<Vec<_>>()})
    };
    let image = "registry.example.com/some/where/tenon/operator:0.2.0";
    let mut deployment = changes(
        &operator(5, "tenon:0.1.0", "hunter1", &["get", "list"]),
        &operator(2, image, "hunter2", &["get", "watch", "patch"]),
    );
    for change in &mut deployment {
        if change.path.to_string() == "spec.replicas" {
            change.origin = Origin::Outside { by: vec!["kubectl".to_owned()] };
        }
    }
    let pool = |cpu: &str, arch: &[&str], data: &str| json!({"spec": {"limits": {"cpu": cpu}, "arch": arch, "note": data, "userData": data}});
    let mut plan = Plan {
        steps: vec![
            step("IAM role", role, Op::Update).changing(changes(&before, &after)),
            step("SQS queue", "tenon-prod", Op::Update).changing(queue),
            step("EventBridge rule", "tenon-prod-spot", Op::Create),
            step("Deployment", "kube-system/tenon", Op::Update)
                .because(["the pods' identity changes"])
                .changing(deployment),
            step("NodePool", "default", Op::Update).changing(changes(
                &pool("50", &["amd64"], "short"),
                &pool("1000", &["amd64", "arm64"], &"long ".repeat(100)),
            )),
            step("ClusterRole", "old", Op::Delete).because(["no longer in the settings"]),
        ],
        warnings: Vec::new(),
    };
    plan.warnings.extend(plan.outside());
    plan
}

fn screen(width: usize) -> String {
    plain(&plan_lines(&plan(), &Impact::default()), Some(width))
}

#[test]
fn a_plan_at_60_columns() {
    insta::assert_snapshot!(screen(60));
}

#[test]
fn a_plan_at_80_columns() {
    insta::assert_snapshot!(screen(80));
}

#[test]
fn a_plan_at_120_columns() {
    insta::assert_snapshot!(screen(120));
}

#[test]
fn no_line_is_wider_than_the_terminal_and_no_letter_is_lost() {
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let whole = plain(&plan_lines(&plan(), &Impact::default()), None);
    for width in 40..140 {
        let screen = screen(width);
        let widest = screen.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{width}: {screen}");
        assert_eq!(letters(&screen), letters(&whole), "{width}");
    }
}

#[test]
fn secrets_and_long_texts_are_not_printed() {
    let screen = screen(120);
    assert!(!screen.contains("hunter"), "{screen}");
    assert!(!screen.contains("long long"), "{screen}");
    assert!(screen.contains("(sensitive) → (sensitive)"), "{screen}");
}
