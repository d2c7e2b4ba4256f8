use super::*;
use crate::controller::controller_policies;
use crate::{Features, Partition, Scope};

fn scope(features: Features) -> Scope {
    Scope {
        partition: Partition::Aws,
        region: "eu-central-1".into(),
        account: "123456789012".into(),
        cluster: "c".into(),
        queue: Some("tenon-c".into()),
        node_roles: vec!["arn:aws:iam::123456789012:role/tenon/c/tenon-c-node".into()],
        features,
    }
}

fn documents(features: Features) -> Vec<Document> {
    controller_policies(&scope(features)).into_iter().map(|policy| policy.document).collect()
}

fn all_gaps(granted: &[Document], needed: &[Document]) -> Vec<Gap> {
    needed.iter().flat_map(|needed| gaps(granted, needed)).collect()
}

fn allow(action: &str, resource: &str) -> Statement {
    Statement::allow("S", [action]).on([resource])
}

#[test]
fn what_is_granted_covers_itself_and_all_that_is_narrower() {
    let ours = documents(Features::default());
    assert_eq!(all_gaps(&ours, &ours), []);
    // Upstream's permissions reach instance profiles anywhere, and so also ours.
    assert_eq!(all_gaps(&documents(Features::upstream()), &ours), []);
    let wider = all_gaps(&ours, &documents(Features::upstream()));
    assert!(!wider.is_empty());
    assert!(wider.iter().all(|gap| gap.action.contains("InstanceProfile")), "{wider:?}");
}

#[test]
fn one_statement_less_leaves_exactly_its_gap() {
    let needed = documents(Features::default());
    for (i, document) in needed.iter().enumerate() {
        for (j, statement) in document.statements.iter().enumerate() {
            let mut granted = needed.clone();
            granted[i].statements.remove(j);
            let gaps = all_gaps(&granted, &needed);
            assert!(!gaps.is_empty(), "{:?} is covered by other statements", statement.sid);
            assert!(gaps.iter().all(|gap| gap.sid == statement.sid), "{gaps:?}");
        }
    }
}

#[test]
fn a_grant_with_another_condition_is_none_and_says_which() {
    let granted = Document::new([allow("ec2:RunInstances", "*").when(
        "StringEquals",
        "aws:RequestTag/team",
        ["x"],
    )]);
    let found = gaps([&granted], &Document::new([allow("ec2:RunInstances", "*")]));
    let cause =
        Cause::Condition { operator: "StringEquals".into(), key: "aws:RequestTag/team".into() };
    assert_eq!(found[0].cause, cause);
    let exact = allow("ec2:RunInstances", "*").when("StringEquals", "aws:RequestTag/Team", ["x"]);
    assert_eq!(gaps([&granted], &Document::new([exact])), []);
}

#[test]
fn a_condition_that_asks_for_less_follows_from_one_that_asks_for_more() {
    let case = |granted: (&str, &[&str]), needed: (&str, &[&str])| {
        let statement = |(operator, values): (&str, &[&str])| {
            allow("a:B", "*").when(operator, "k", values.iter().copied())
        };
        gaps([&Document::new([statement(granted)])], &Document::new([statement(needed)])).is_empty()
    };
    assert!(case(("StringEquals", &["x", "y"]), ("StringEquals", &["x"])));
    assert!(!case(("StringEquals", &["x"]), ("StringEquals", &["x", "y"])));
    assert!(case(("StringLike", &["x*"]), ("StringEquals", &["xy"])));
    assert!(!case(("StringEquals", &["xy"]), ("StringLike", &["x*"])));
    assert!(case(("StringEqualsIfExists", &["x"]), ("StringEquals", &["x"])));
    assert!(!case(("StringEquals", &["x"]), ("StringEqualsIfExists", &["x"])));
    assert!(case(("StringNotEquals", &["x"]), ("StringNotEquals", &["x", "y"])));
    assert!(!case(("StringNotEquals", &["x", "y"]), ("StringNotEquals", &["x"])));
}

#[test]
fn a_deny_wins_over_every_grant() {
    let granted =
        Document::new([allow("iam:*", "*"), Statement::deny("NoProfiles", ["iam:Create*"])]);
    let needed = Document::new([allow("iam:CreateInstanceProfile", "*")]);
    assert_eq!(
        gaps([&granted], &needed)[0].cause,
        Cause::Denied { sid: Some("NoProfiles".into()) }
    );
    // One that applies to other calls only is no obstacle.
    let elsewhere = Document::new([
        allow("iam:*", "*"),
        Statement::deny("OtherRegions", ["*"]).when(
            "StringNotEquals",
            "aws:RequestedRegion",
            ["x"],
        ),
    ]);
    assert_eq!(gaps([&elsewhere], &needed), []);
}

#[test]
fn not_action_and_not_resource_grant_the_rest() {
    let mut statement = allow("x", "*");
    statement.actions = Actions::AllBut(vec!["iam:*".into()]);
    statement.resources = Some(Resources::AllBut(vec!["arn:aws:sqs:*".into()]));
    let granted = Document::new([statement]);
    let needed = |action, resource| Document::new([allow(action, resource)]);
    assert_eq!(gaps([&granted], &needed("ec2:RunInstances", "arn:aws:ec2:*")), []);
    assert_eq!(gaps([&granted], &needed("iam:GetRole", "arn:aws:iam::1:role/x")).len(), 1);
    assert_eq!(gaps([&granted], &needed("sqs:SendMessage", "*")).len(), 1);
}
