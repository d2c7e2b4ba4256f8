use super::*;

fn parse(text: &str) -> Document {
    Document::parse(text).unwrap()
}

fn refusal(text: &str) -> String {
    match Document::parse(text).unwrap_err() {
        ParseError::Json(error) => error.to_string(),
        ParseError::Encoding(error) => error.to_string(),
    }
}

#[test]
fn reads_single_values_as_lists_of_one() {
    let one = parse(
        r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"a:B","Resource":"*","Condition":{"Bool":{"k":true}}}}"#,
    );
    let many = parse(
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["a:B"],"Resource":["*"],"Condition":{"Bool":{"k":["true"]}}}]}"#,
    );
    assert_eq!(one, many);
    assert_eq!(one.statements[0].conditions["Bool"]["k"], ["true"]);
}

#[test]
fn reads_numbers_in_conditions_as_text() {
    let document = parse(
        r#"{"Statement":[{"Effect":"Allow","Action":"a:B","Resource":"*","Condition":{"NumericLessThan":{"k":[10, 1.5]}}}]}"#,
    );
    assert_eq!(document.statements[0].conditions["NumericLessThan"]["k"], ["10", "1.5"]);
}

#[test]
fn a_document_without_version_has_the_old_one() {
    assert_eq!(parse(r#"{"Statement":[]}"#).version, Version::V2008);
}

#[test]
fn reads_percent_encoded_documents_as_iam_returns_them() {
    let plain = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/*"}]}"#;
    let encoded = percent_encoding::utf8_percent_encode(plain, percent_encoding::NON_ALPHANUMERIC)
        .to_string();
    assert_eq!(parse(&encoded), parse(plain));
}

#[test]
fn refuses_elements_that_iam_does_not_know() {
    let text =
        r#"{"Statement":[{"Effect":"Allow","Action":"a:B","Resource":"*","Conditions":{}}]}"#;
    assert!(refusal(text).contains("unknown field `Conditions`"), "{}", refusal(text));
    assert!(refusal(r#"{"Statement":[],"Statements":[]}"#).contains("unknown field `Statements`"));
}

#[test]
fn refuses_both_and_neither_of_action_and_not_action() {
    let neither = r#"{"Statement":[{"Sid":"S","Effect":"Allow","Resource":"*"}]}"#;
    let both = r#"{"Statement":[{"Sid":"S","Effect":"Allow","Action":"a:B","NotAction":"a:C","Resource":"*"}]}"#;
    for text in [neither, both] {
        assert!(
            refusal(text).contains("statement S needs exactly one of Action and NotAction"),
            "{}",
            refusal(text)
        );
    }
}

#[test]
fn refuses_both_resource_and_not_resource() {
    let text =
        r#"{"Statement":[{"Effect":"Allow","Action":"a:B","Resource":"*","NotResource":"*"}]}"#;
    assert!(refusal(text).contains("both Resource and NotResource"));
}

#[test]
fn refuses_effects_and_versions_that_do_not_exist() {
    assert!(
        refusal(r#"{"Statement":[{"Effect":"allow","Action":"a:B","Resource":"*"}]}"#)
            .contains("unknown variant `allow`")
    );
    assert!(
        refusal(r#"{"Version":"2020-01-01","Statement":[]}"#)
            .contains("unknown variant `2020-01-01`")
    );
}

#[test]
fn refuses_principals_that_are_bare_names() {
    let text = r#"{"Statement":[{"Effect":"Allow","Principal":"ec2.amazonaws.com","Action":"sts:AssumeRole"}]}"#;
    assert!(refusal(text).contains("neither \"*\" nor an object"));
}

#[test]
fn survives_writing_and_reading() {
    let document = Document::new([
        Statement::allow("A", ["s3:Get*", "s3:List*"]).on(["arn:aws:s3:::b/*"]).when(
            "StringLike",
            "aws:RequestTag/k",
            ["*"],
        ),
        Statement::deny("B", ["*"]).by(Principal::Anyone).when(
            "Bool",
            "aws:SecureTransport",
            ["false"],
        ),
        Statement::allow("C", ["sts:AssumeRole"])
            .by(Principal::service(["ec2.amazonaws.com"]))
            .without_resources(),
        Statement { actions: Actions::AllBut(vec!["iam:*".into()]), ..Statement::allow("D", []) },
        Statement {
            resources: Some(Resources::AllBut(vec!["arn:x".into()])),
            ..Statement::deny("E", ["x:Y"])
        },
        Statement {
            principal: Some(Principals::AllBut(Principal::aws("arn:aws:iam::1:root"))),
            ..Statement::deny("F", ["x:Y"])
        },
    ])
    .with_id("I");
    assert_eq!(parse(&document.to_json()), document);
    assert_eq!(parse(&document.to_json_pretty()), document);
}

#[test]
fn order_and_case_of_actions_do_not_change_what_is_said() {
    let a = Document::new([
        Statement::allow("S", ["ec2:RunInstances", "ec2:CreateFleet"]),
        Statement::allow("T", ["x:Y"]).on(["b", "a"]),
    ]);
    let b = Document::new([
        Statement::allow("T", ["x:Y"]).on(["a", "b", "a"]),
        Statement::allow("S", ["EC2:createfleet", "ec2:runinstances"]),
    ]);
    assert!(a.says_the_same_as(&b));
    assert_ne!(a, b);
}

#[test]
fn another_value_effect_or_resource_is_another_saying() {
    let base =
        Document::new([Statement::allow("S", ["x:Y"]).on(["a"]).when("StringEquals", "k", ["v"])]);
    for other in [
        Statement::deny("S", ["x:Y"]).on(["a"]).when("StringEquals", "k", ["v"]),
        Statement::allow("S", ["x:Y"]).on(["A"]).when("StringEquals", "k", ["v"]),
        Statement::allow("S", ["x:Y"]).on(["a"]).when("StringEquals", "k", ["V"]),
        Statement::allow("S", ["x:Y"]).on(["a"]),
        Statement::allow("S", ["x:Y", "x:Z"]).on(["a"]).when("StringEquals", "k", ["v"]),
    ] {
        assert!(!base.says_the_same_as(&Document::new([other])));
    }
}

#[test]
fn white_space_does_not_count_against_the_limits() {
    let document =
        Document::new([Statement::allow("S", ["x:Y"]).when("StringEquals", "k", ["a b"])]);
    assert_eq!(document.size() + 1, document.to_json().len());
}
