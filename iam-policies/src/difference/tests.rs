use super::*;

fn documents(statements: &[(&str, &[&str], &str)]) -> Documents {
    let statements = statements
        .iter()
        .map(|(sid, actions, on)| Statement::allow(sid, actions.iter().copied()).on([*on]));
    BTreeMap::from([("P".to_owned(), Document::new(statements))])
}

fn lines(old: &Documents, new: &Documents) -> Vec<String> {
    let all = differences(old, new).into_iter();
    all.map(|one| format!("{:?} {}/{}: {}", one.change, one.policy, one.statement, one.detail))
        .collect()
}

#[test]
fn statements_are_told_apart_by_id_and_named_with_what_changes() {
    let old = documents(&[
        ("Read", &["ec2:DescribeInstances", "ec2:DescribeImages"], "*"),
        ("Gone", &["ec2:DescribeVpcs"], "*"),
        ("Same", &["sqs:DeleteMessage", "sqs:ReceiveMessage"], "*"),
    ]);
    let new = documents(&[
        ("Read", &["ec2:DescribeInstances", "ec2:DescribeInstanceStatus"], "*"),
        ("New", &["iam:ListInstanceProfiles"], "*"),
        ("Same", &["sqs:receivemessage", "sqs:DeleteMessage"], "*"),
    ]);
    assert_eq!(
        lines(&old, &new),
        [
            "Added P/New: allows iam:ListInstanceProfiles",
            "Changed P/Read: +ec2:DescribeInstanceStatus, -ec2:DescribeImages",
            "Removed P/Gone: allows ec2:DescribeVpcs",
        ]
    );
    assert_eq!(lines(&old, &old), [""; 0]);
    let narrower = documents(&[("Read", &["a:B"], "arn:x")]);
    assert_eq!(
        lines(&documents(&[("Read", &["a:B"], "*")]), &narrower),
        ["Changed P/Read: other resources"]
    );
}

#[test]
fn the_union_allows_what_either_allows_and_is_its_own_union() {
    let old = documents(&[
        ("Read", &["ec2:DescribeInstances", "ec2:DescribeImages"], "*"),
        ("Covered", &["ec2:DescribeSubnets"], "*"),
        ("Gone", &["ec2:DescribeVpcs"], "*"),
    ]);
    let new = documents(&[("Read", &["ec2:DescribeInstances", "ec2:DescribeSubnets"], "*")]);
    let both = union(&old, &new).expect("small");
    for documents in [&old, &new] {
        for document in documents.values() {
            assert_eq!(gaps(both.values(), document), []);
        }
    }
    let ids = both["P"].statements.iter().map(|one| one.sid.as_deref().unwrap_or_default());
    assert_eq!(ids.collect::<Vec<_>>(), ["Read", "ReadBefore", "Gone"]);
    assert_eq!(union(&both, &new), Ok(both.clone()));
    // And from the union both ways lead on.
    let back = union(&both, &old).expect("small");
    assert_eq!(gaps(back.values(), &new["P"]), []);
}

#[test]
fn a_denial_of_the_version_before_does_not_stay() {
    let mut old = documents(&[]);
    old.insert("Q".to_owned(), Document::new([Statement::deny("No", ["ec2:RunInstances"])]));
    let new = documents(&[("Run", &["ec2:RunInstances"], "*")]);
    assert_eq!(union(&old, &new), Ok(new));
}

#[test]
fn what_iam_would_not_store_is_an_error() {
    let wide = |prefix: &str| {
        let actions = (0..400).map(|n| format!("{prefix}:Action{n}")).collect::<Vec<_>>();
        documents(&[(prefix, &actions.iter().map(String::as_str).collect::<Vec<_>>(), "*")])
    };
    assert!(union(&wide("a"), &wide("a")).is_ok());
    assert!(matches!(union(&wide("a"), &wide("b")), Err(SizeError::Inline { .. })));
}
