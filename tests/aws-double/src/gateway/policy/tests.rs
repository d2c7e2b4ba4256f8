//! The rules of IAM's policy evaluation as a table: statements, call, verdict.

use tenon_iam_policies::document::Document;

use super::*;

const SUBNET: &str = "arn:aws:ec2:eu-central-1:123456789012:subnet/subnet-1";
const INSTANCE: &str = "arn:aws:ec2:eu-central-1:123456789012:instance/i-1";
const ROLE: &str = "arn:aws:iam::123456789012:role/tenon/c/node";

fn document(statements: &str) -> Document {
    let text = format!(r#"{{"Version":"2012-10-17","Statement":[{statements}]}}"#);
    Document::parse(&text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn named(name: &str, statements: &str) -> NamedDocument {
    NamedDocument { name: name.to_owned(), document: document(statements) }
}

fn context(facts: &[(&str, &str)]) -> Context {
    facts.iter().fold(Context::new(), |context, (key, value)| context.with(key, *value))
}

fn allows(statements: &str, action: &str, resource: &str, facts: &[(&str, &str)]) -> bool {
    let policies = Policies { identity: vec![named("p", statements)], limits: vec![] };
    policies.evaluate(Call { action, resource, context: &context(facts) }).is_allowed()
}

/// Actions and resources: (statements, action, resource, allowed).
const ACTIONS_AND_RESOURCES: &[(&str, &str, &str, bool)] = &[
    (
        r#"{"Effect":"Allow","Action":"ec2:RunInstances","Resource":"*"}"#,
        "ec2:RunInstances",
        SUBNET,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"EC2:runinstances","Resource":"*"}"#,
        "ec2:RunInstances",
        SUBNET,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:RunInstances","Resource":"*"}"#,
        "ec2:RunScheduledInstances",
        SUBNET,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:Run*","Resource":"*"}"#,
        "ec2:RunScheduledInstances",
        SUBNET,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*Instances","Resource":"*"}"#,
        "ec2:TerminateInstances",
        INSTANCE,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:D?scribeImages","Resource":"*"}"#,
        "ec2:DescribeImages",
        "*",
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:D?scribeImages","Resource":"*"}"#,
        "ec2:DscribeImages",
        "*",
        false,
    ),
    (r#"{"Effect":"Allow","Action":"*","Resource":"*"}"#, "iam:CreateRole", ROLE, true),
    (r#"{"Effect":"Allow","Action":"iam:*","Resource":"*"}"#, "ec2:RunInstances", SUBNET, false),
    (
        r#"{"Effect":"Allow","Action":["iam:GetRole","ec2:RunInstances"],"Resource":"*"}"#,
        "ec2:RunInstances",
        SUBNET,
        true,
    ),
    (r#"{"Effect":"Allow","NotAction":"iam:*","Resource":"*"}"#, "ec2:RunInstances", SUBNET, true),
    (r#"{"Effect":"Allow","NotAction":"iam:*","Resource":"*"}"#, "iam:CreateRole", ROLE, false),
    (
        r#"{"Effect":"Allow","NotAction":["iam:*","ec2:Run*"],"Resource":"*"}"#,
        "ec2:RunInstances",
        SUBNET,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:subnet/*"}"#,
        "ec2:RunInstances",
        SUBNET,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:subnet/*"}"#,
        "ec2:RunInstances",
        INSTANCE,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:*"}"#,
        "ec2:RunInstances",
        SUBNET,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:us-east-1:*:subnet/*"}"#,
        "ec2:RunInstances",
        SUBNET,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:eu-*-1:*:subnet/*"}"#,
        "ec2:RunInstances",
        SUBNET,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:eu-central-1::subnet/*"}"#,
        "ec2:RunInstances",
        SUBNET,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:eu-central-1::image/*"}"#,
        "ec2:RunInstances",
        "arn:aws:ec2:eu-central-1::image/ami-1",
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:subnet/subnet-?"}"#,
        "ec2:RunInstances",
        SUBNET,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*"}"#,
        "ec2:RunInstances",
        SUBNET,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:*:subnet/*"}"#,
        "ec2:RunInstances",
        SUBNET,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"iam:GetRole","Resource":"arn:aws:iam::123456789012:role/*"}"#,
        "iam:GetRole",
        ROLE,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"iam:GetRole","Resource":"arn:aws:iam::123456789012:role/tenon/*"}"#,
        "iam:GetRole",
        ROLE,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"iam:GetRole","Resource":"arn:aws:iam::123456789012:role/node"}"#,
        "iam:GetRole",
        ROLE,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"iam:GetRole","Resource":"arn:aws:iam::123456789012:Role/tenon/c/node"}"#,
        "iam:GetRole",
        ROLE,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:subnet/*"}"#,
        "ec2:DescribeSubnets",
        "*",
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","NotResource":"arn:aws:ec2:*:*:subnet/*"}"#,
        "ec2:RunInstances",
        INSTANCE,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","NotResource":"arn:aws:ec2:*:*:subnet/*"}"#,
        "ec2:RunInstances",
        SUBNET,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"*"},{"Effect":"Deny","Action":"ec2:RunInstances","Resource":"*"}"#,
        "ec2:RunInstances",
        SUBNET,
        false,
    ),
    (
        r#"{"Effect":"Deny","Action":"ec2:RunInstances","Resource":"*"},{"Effect":"Allow","Action":"ec2:*","Resource":"*"}"#,
        "ec2:RunInstances",
        SUBNET,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"*"},{"Effect":"Deny","Action":"ec2:RunInstances","Resource":"*"}"#,
        "ec2:CreateTags",
        INSTANCE,
        true,
    ),
    (
        r#"{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","NotAction":"ec2:*","Resource":"*"}"#,
        "iam:GetRole",
        ROLE,
        false,
    ),
    (
        r#"{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"*","NotResource":"arn:aws:ec2:*:*:subnet/*"}"#,
        "ec2:RunInstances",
        SUBNET,
        true,
    ),
    (
        r#"{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}"#,
        "ec2:RunInstances",
        SUBNET,
        false,
    ),
    ("", "ec2:RunInstances", SUBNET, false),
];

#[test]
fn actions_and_resources_are_matched_as_iam_does() {
    for (statements, action, resource, allowed) in ACTIONS_AND_RESOURCES {
        assert_eq!(
            allows(statements, action, resource, &[]),
            *allowed,
            "{action} on {resource} by {statements}"
        );
    }
}

type Facts = [(&'static str, &'static str)];

/// Conditions of one Allow statement: (condition, facts, holds).
const CONDITIONS: &[(&str, &Facts, bool)] = &[
    // Strings.
    (r#"{"StringEquals":{"aws:RequestTag/k":"v"}}"#, &[("aws:RequestTag/k", "v")], true),
    (r#"{"StringEquals":{"aws:RequestTag/k":"v"}}"#, &[("aws:RequestTag/k", "V")], false),
    (r#"{"StringEquals":{"aws:requesttag/K":"v"}}"#, &[("aws:RequestTag/k", "v")], true),
    (r#"{"StringEquals":{"aws:RequestTag/k":"v"}}"#, &[], false),
    (r#"{"StringEquals":{"aws:RequestTag/k":"v*"}}"#, &[("aws:RequestTag/k", "vw")], false),
    (r#"{"StringEquals":{"k":["a","b"]}}"#, &[("k", "b")], true),
    (r#"{"StringEquals":{"k":"a","l":"b"}}"#, &[("k", "a")], false),
    (r#"{"StringEquals":{"k":"a"},"StringLike":{"l":"*"}}"#, &[("k", "a"), ("l", "x")], true),
    (r#"{"StringNotEquals":{"k":"a"}}"#, &[("k", "b")], true),
    (r#"{"StringNotEquals":{"k":"a"}}"#, &[("k", "a")], false),
    (r#"{"StringNotEquals":{"k":"a"}}"#, &[], true),
    (r#"{"StringNotEquals":{"k":["a","b"]}}"#, &[("k", "b")], false),
    (r#"{"StringEqualsIgnoreCase":{"k":"a"}}"#, &[("k", "A")], true),
    (r#"{"StringNotEqualsIgnoreCase":{"k":"a"}}"#, &[("k", "A")], false),
    (r#"{"StringLike":{"k":"*"}}"#, &[("k", "anything")], true),
    (r#"{"StringLike":{"k":"*"}}"#, &[("k", "")], true),
    (r#"{"StringLike":{"k":"*"}}"#, &[], false),
    (r#"{"StringLike":{"k":"a*c?"}}"#, &[("k", "abbbcd")], true),
    (r#"{"StringLike":{"k":"a*c?"}}"#, &[("k", "abbbc")], false),
    (r#"{"StringLike":{"k":"a*b*c"}}"#, &[("k", "aXbYbZc")], true),
    (r#"{"StringNotLike":{"k":"a*"}}"#, &[("k", "abc")], false),
    (r#"{"StringNotLike":{"k":"a*"}}"#, &[("k", "b")], true),
    // IfExists.
    (r#"{"StringEqualsIfExists":{"k":"a"}}"#, &[], true),
    (r#"{"StringEqualsIfExists":{"k":"a"}}"#, &[("k", "b")], false),
    (r#"{"StringEqualsIfExists":{"k":"a"}}"#, &[("k", "a")], true),
    (r#"{"StringLikeIfExists":{"k":"a*"}}"#, &[("k", "b")], false),
    // Several values.
    (
        r#"{"ForAllValues:StringEquals":{"aws:TagKeys":["a","b"]}}"#,
        &[("aws:TagKeys", "a"), ("aws:TagKeys", "b")],
        true,
    ),
    (
        r#"{"ForAllValues:StringEquals":{"aws:TagKeys":["a","b"]}}"#,
        &[("aws:TagKeys", "a"), ("aws:TagKeys", "c")],
        false,
    ),
    (r#"{"ForAllValues:StringEquals":{"aws:TagKeys":["a","b"]}}"#, &[], true),
    (
        r#"{"ForAllValues:StringLike":{"aws:TagKeys":["karpenter.sh/*"]}}"#,
        &[("aws:TagKeys", "karpenter.sh/nodepool")],
        true,
    ),
    (
        r#"{"ForAnyValue:StringEquals":{"aws:TagKeys":["a"]}}"#,
        &[("aws:TagKeys", "a"), ("aws:TagKeys", "c")],
        true,
    ),
    (r#"{"ForAnyValue:StringEquals":{"aws:TagKeys":["a"]}}"#, &[("aws:TagKeys", "c")], false),
    (r#"{"ForAnyValue:StringEquals":{"aws:TagKeys":["a"]}}"#, &[], false),
    (
        r#"{"ForAllValues:StringNotEquals":{"aws:TagKeys":["a"]}}"#,
        &[("aws:TagKeys", "b"), ("aws:TagKeys", "a")],
        false,
    ),
    (
        r#"{"ForAnyValue:StringNotEquals":{"aws:TagKeys":["a"]}}"#,
        &[("aws:TagKeys", "b"), ("aws:TagKeys", "a")],
        true,
    ),
    // Null, Bool.
    (r#"{"Null":{"k":"true"}}"#, &[], true),
    (r#"{"Null":{"k":"true"}}"#, &[("k", "v")], false),
    (r#"{"Null":{"k":"false"}}"#, &[("k", "v")], true),
    (r#"{"Null":{"k":false}}"#, &[], false),
    (r#"{"Bool":{"aws:SecureTransport":"true"}}"#, &[("aws:SecureTransport", "true")], true),
    (r#"{"Bool":{"aws:SecureTransport":true}}"#, &[("aws:SecureTransport", "TRUE")], true),
    (r#"{"Bool":{"aws:SecureTransport":"false"}}"#, &[("aws:SecureTransport", "true")], false),
    (r#"{"Bool":{"aws:SecureTransport":"false"}}"#, &[], false),
    (r#"{"BoolIfExists":{"aws:MultiFactorAuthPresent":"true"}}"#, &[], true),
    // ARNs.
    (
        r#"{"ArnEquals":{"aws:SourceArn":"arn:aws:events:*:1:rule/x-*"}}"#,
        &[("aws:SourceArn", "arn:aws:events:eu-central-1:1:rule/x-spot")],
        true,
    ),
    (
        r#"{"ArnLike":{"aws:SourceArn":"arn:aws:events:*:1:rule/x"}}"#,
        &[("aws:SourceArn", "arn:aws:events:eu-central-1:2:rule/x")],
        false,
    ),
    (
        r#"{"ArnLike":{"aws:SourceArn":"arn:aws:*:rule/x"}}"#,
        &[("aws:SourceArn", "arn:aws:events:eu-central-1:1:rule/x")],
        false,
    ),
    (
        r#"{"ArnNotEquals":{"iam:PolicyARN":"arn:aws:iam::aws:policy/A"}}"#,
        &[("iam:PolicyARN", "arn:aws:iam::aws:policy/B")],
        true,
    ),
    (
        r#"{"ArnNotLike":{"iam:PolicyARN":"arn:aws:iam::aws:policy/*"}}"#,
        &[("iam:PolicyARN", "arn:aws:iam::aws:policy/B")],
        false,
    ),
    // Numbers, dates, addresses.
    (r#"{"NumericLessThanEquals":{"k":10}}"#, &[("k", "10")], true),
    (r#"{"NumericLessThan":{"k":10}}"#, &[("k", "9.5")], true),
    (r#"{"NumericLessThan":{"k":10}}"#, &[("k", "10")], false),
    (r#"{"NumericGreaterThan":{"k":"9"}}"#, &[("k", "10")], true),
    (r#"{"NumericEquals":{"k":"10"}}"#, &[("k", "ten")], false),
    (
        r#"{"DateGreaterThan":{"aws:CurrentTime":"2026-01-01T00:00:00Z"}}"#,
        &[("aws:CurrentTime", "2026-11-20T10:00:00Z")],
        true,
    ),
    (
        r#"{"DateLessThan":{"aws:CurrentTime":"2026-01-01"}}"#,
        &[("aws:CurrentTime", "2026-11-20T10:00:00Z")],
        false,
    ),
    (
        r#"{"DateLessThan":{"aws:EpochTime":"2000000000"}}"#,
        &[("aws:EpochTime", "1795000000")],
        true,
    ),
    (r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, &[("aws:SourceIp", "10.200.3.4")], true),
    (r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/16"}}"#, &[("aws:SourceIp", "10.200.3.4")], false),
    (r#"{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, &[("aws:SourceIp", "192.168.0.1")], true),
    (r#"{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}"#, &[("aws:SourceIp", "127.0.0.1")], true),
    (
        r#"{"IpAddress":{"aws:SourceIp":"2001:db8::/32"}}"#,
        &[("aws:SourceIp", "2001:db8:1::1")],
        true,
    ),
    // Variables.
    (
        r#"{"StringEquals":{"aws:ResourceTag/team":"${aws:PrincipalTag/team}"}}"#,
        &[("aws:ResourceTag/team", "a"), ("aws:PrincipalTag/team", "a")],
        true,
    ),
    (
        r#"{"StringEquals":{"aws:ResourceTag/team":"${aws:PrincipalTag/team}"}}"#,
        &[("aws:ResourceTag/team", "a"), ("aws:PrincipalTag/team", "b")],
        false,
    ),
    (
        r#"{"StringEquals":{"aws:ResourceTag/team":"${aws:PrincipalTag/team}"}}"#,
        &[("aws:ResourceTag/team", "a")],
        false,
    ),
    (r#"{"StringEquals":{"k":"${aws:PrincipalTag/team, 'none'}"}}"#, &[("k", "none")], true),
    (
        r#"{"StringLike":{"k":"${aws:PrincipalTag/team}"}}"#,
        &[("k", "anything"), ("aws:PrincipalTag/team", "*")],
        false,
    ),
    (
        r#"{"StringLike":{"k":"${aws:PrincipalTag/team}-*"}}"#,
        &[("k", "*-1"), ("aws:PrincipalTag/team", "*")],
        true,
    ),
    (r#"{"StringEquals":{"k":"${*}"}}"#, &[("k", "*")], true),
    (r#"{"StringLike":{"k":"a${*}"}}"#, &[("k", "ab")], false),
    // What IAM does not know grants nothing.
    (r#"{"StringMatches":{"k":"*"}}"#, &[("k", "v")], false),
    (r#"{"ForSomeValues:StringEquals":{"k":"v"}}"#, &[("k", "v")], false),
];

#[test]
fn conditions_hold_as_iams_do() {
    for (condition, facts, holds) in CONDITIONS {
        let statement =
            format!(r#"{{"Effect":"Allow","Action":"*","Resource":"*","Condition":{condition}}}"#);
        assert_eq!(allows(&statement, "a:B", "*", facts), *holds, "{condition} with {facts:?}");
    }
}

#[test]
fn a_deny_whose_condition_does_not_hold_denies_nothing() {
    let statements = r#"{"Effect":"Allow","Action":"*","Resource":"*"},
        {"Effect":"Deny","Action":"*","Resource":"*","Condition":{"StringNotEquals":{"aws:RequestedRegion":"eu-central-1"}}}"#;
    assert!(allows(
        statements,
        "ec2:RunInstances",
        SUBNET,
        &[("aws:RequestedRegion", "eu-central-1")]
    ));
    assert!(!allows(
        statements,
        "ec2:RunInstances",
        SUBNET,
        &[("aws:RequestedRegion", "us-east-1")]
    ));
    assert!(!allows(statements, "ec2:RunInstances", SUBNET, &[]));
}

#[test]
fn variables_stand_for_parts_of_resources() {
    let statement = r#"{"Effect":"Allow","Action":"iam:*","Resource":"arn:aws:iam::123456789012:user/${aws:username}"}"#;
    let user = "arn:aws:iam::123456789012:user/ann";
    assert!(allows(statement, "iam:GetUser", user, &[("aws:username", "ann")]));
    assert!(!allows(statement, "iam:GetUser", user, &[("aws:username", "bob")]));
    assert!(!allows(statement, "iam:GetUser", user, &[]));
    assert!(!allows(statement, "iam:GetUser", user, &[("aws:username", "*")]));
}

#[test]
fn documents_of_the_old_version_have_no_variables() {
    let text = r#"{"Version":"2008-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"k":"${aws:username}"}}}]}"#;
    let policies = Policies {
        identity: vec![NamedDocument {
            name: "p".into(),
            document: Document::parse(text).unwrap(),
        }],
        limits: vec![],
    };
    let allowed = |facts: &[(&str, &str)]| {
        policies
            .evaluate(Call { action: "a:B", resource: "*", context: &context(facts) })
            .is_allowed()
    };
    assert!(!allowed(&[("k", "ann"), ("aws:username", "ann")]));
    assert!(allowed(&[("k", "${aws:username}")]));
}

#[test]
fn a_boundary_must_allow_too_and_may_deny() {
    let everything = named("all", r#"{"Effect":"Allow","Action":"*","Resource":"*"}"#);
    let boundary = named(
        "boundary",
        r#"{"Effect":"Allow","Action":"ec2:*","Resource":"*"},{"Effect":"Deny","Action":"ec2:TerminateInstances","Resource":"*"}"#,
    );
    let policies = Policies { identity: vec![everything], limits: vec![boundary] };
    let verdict =
        |action| policies.evaluate(Call { action, resource: "*", context: &Context::new() });
    assert!(verdict("ec2:DescribeImages").is_allowed());
    assert_eq!(verdict("iam:ListRoles"), Verdict::Limited("boundary".into()));
    assert!(
        matches!(verdict("ec2:TerminateInstances"), Verdict::Denied(by) if by.policy == "boundary")
    );
}

#[test]
fn a_boundary_alone_grants_nothing() {
    let boundary = named("boundary", r#"{"Effect":"Allow","Action":"*","Resource":"*"}"#);
    let policies = Policies { identity: vec![], limits: vec![boundary] };
    assert_eq!(
        policies.evaluate(Call { action: "a:B", resource: "*", context: &Context::new() }),
        Verdict::NotAllowed
    );
}

#[test]
fn the_verdict_names_the_statement_that_decided() {
    let policies = Policies {
        identity: vec![
            named("first", r#"{"Sid":"Other","Effect":"Allow","Action":"x:Y","Resource":"*"}"#),
            named(
                "second",
                r#"{"Effect":"Allow","Action":"a:A","Resource":"*"},{"Sid":"Mine","Effect":"Allow","Action":"a:B","Resource":"*"}"#,
            ),
        ],
        limits: vec![],
    };
    let by = |action| policies.evaluate(Call { action, resource: "*", context: &Context::new() });
    assert_eq!(
        by("a:B"),
        Verdict::Allowed(StatementRef { policy: "second".into(), sid: "Mine".into() })
    );
    assert_eq!(
        by("a:A"),
        Verdict::Allowed(StatementRef { policy: "second".into(), sid: "#0".into() })
    );
}

/// Principals of resource policies: (principal element, caller, named).
const PRINCIPALS: &[(&str, Caller<'static>, bool)] = &[
    (r#""Principal":"*""#, Caller::Service("ec2.amazonaws.com"), true),
    (r#""Principal":{"AWS":"*"}"#, SESSION, true),
    (r#""Principal":{"AWS":"*"}"#, Caller::Service("ec2.amazonaws.com"), false),
    (r#""Principal":{"Service":"ec2.amazonaws.com"}"#, Caller::Service("ec2.amazonaws.com"), true),
    (
        r#""Principal":{"Service":["a.amazonaws.com","pods.eks.amazonaws.com"]}"#,
        Caller::Service("pods.eks.amazonaws.com"),
        true,
    ),
    (
        r#""Principal":{"Service":"ec2.amazonaws.com"}"#,
        Caller::Service("pods.eks.amazonaws.com"),
        false,
    ),
    (r#""Principal":{"Service":"ec2.amazonaws.com"}"#, SESSION, false),
    (r#""Principal":{"AWS":"123456789012"}"#, SESSION, true),
    (r#""Principal":{"AWS":"arn:aws:iam::123456789012:root"}"#, SESSION, true),
    (r#""Principal":{"AWS":"arn:aws:iam::210987654321:root"}"#, SESSION, false),
    (r#""Principal":{"AWS":"arn:aws:iam::123456789012:role/tenon/c/node"}"#, SESSION, true),
    (r#""Principal":{"AWS":"arn:aws:sts::123456789012:assumed-role/node/s"}"#, SESSION, true),
    (r#""Principal":{"AWS":"arn:aws:iam::123456789012:role/other"}"#, SESSION, false),
    (
        r#""Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/o"}"#,
        Caller::Federated("arn:aws:iam::123456789012:oidc-provider/o"),
        true,
    ),
    (
        r#""Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/o"}"#,
        Caller::Federated("arn:aws:iam::123456789012:oidc-provider/p"),
        false,
    ),
    (
        r#""NotPrincipal":{"Service":"ec2.amazonaws.com"}"#,
        Caller::Service("pods.eks.amazonaws.com"),
        true,
    ),
    (
        r#""NotPrincipal":{"Service":"ec2.amazonaws.com"}"#,
        Caller::Service("ec2.amazonaws.com"),
        false,
    ),
    (r#""Sid":"NamesNobody""#, Caller::Service("ec2.amazonaws.com"), false),
];

const SESSION: Caller<'static> = Caller::Aws {
    arn: "arn:aws:sts::123456789012:assumed-role/node/s",
    role: Some(ROLE),
    account: "123456789012",
};

#[test]
fn resource_policies_name_callers_as_iams_do() {
    for (principal, caller, is_named) in PRINCIPALS {
        let policy = named(
            "trust",
            &format!(r#"{{"Effect":"Allow",{principal},"Action":"sts:AssumeRole"}}"#),
        );
        let call = Call { action: "sts:AssumeRole", resource: ROLE, context: &Context::new() };
        assert_eq!(
            evaluate_resource_policy(&policy, *caller, call).is_allowed(),
            *is_named,
            "{principal} and {caller:?}"
        );
    }
}

#[test]
fn a_queue_lets_in_our_rules_only_and_nobody_without_tls() {
    let scope = tenon_iam_policies::Scope {
        partition: tenon_iam_policies::Partition::Aws,
        region: "eu-central-1".into(),
        account: "123456789012".into(),
        cluster: "c".into(),
        queue: Some("tenon-c".into()),
        node_roles: vec![],
        features: tenon_iam_policies::Features::default(),
    };
    let document =
        tenon_iam_policies::interruption::queue_policy(&scope, &["tenon-c-spot".to_owned()])
            .unwrap();
    let policy = NamedDocument { name: "queue".into(), document };
    let queue = scope.queue_arn().unwrap();
    let send = |rule: &str, account: &str, tls: &str| {
        let context = context(&[
            ("aws:SourceArn", &format!("arn:aws:events:eu-central-1:{account}:rule/{rule}")),
            ("aws:SourceAccount", account),
            ("aws:SecureTransport", tls),
        ]);
        let call = Call { action: "sqs:SendMessage", resource: &queue, context: &context };
        evaluate_resource_policy(&policy, Caller::Service("events.amazonaws.com"), call)
            .is_allowed()
    };
    assert!(send("tenon-c-spot", "123456789012", "true"));
    assert!(!send("other", "123456789012", "true"));
    assert!(!send("tenon-c-spot", "210987654321", "true"));
    assert!(!send("tenon-c-spot", "123456789012", "false"));
}

#[test]
fn wildcards_do_not_take_exponential_time() {
    let pattern = "*a".repeat(40);
    let text = "a".repeat(5_000) + "b";
    assert!(!glob(&pattern, &text));
}
