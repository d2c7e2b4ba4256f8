use super::*;

#[test]
fn a_question_is_a_query_whatever_names_have_in_them() {
    let question = Question { limit: 20, ..Question::default() };
    assert_eq!(question.path(), "/decisions?limit=20");
    let question = Question {
        after: Some(7),
        limit: 20,
        node_pool: Some("a&b=c".to_owned()),
        node: Some("ip-1.ec2".to_owned()),
        pod: Some("shop/web".to_owned()),
        kind: Some("drift"),
        wait: 25,
    };
    assert_eq!(
        question.path(),
        "/decisions?limit=20&after=7&nodepool=a%26b%3Dc&node=ip%2D1%2Eec2&pod=shop%2Fweb&kind=drift&wait=25"
    );
}

#[test]
fn a_token_goes_to_loopback_only() {
    for (url, expected) in [
        ("http://127.0.0.1:8085", Some("127.0.0.1:8085")),
        ("http://127.3.4.5:8085/", Some("127.3.4.5:8085")),
        ("http://localhost:1", Some("localhost:1")),
        ("http://[::1]:8085", Some("[::1]:8085")),
        ("http://10.0.0.1:8085", None),
        ("http://localhost.example.com:8085", None),
        ("http://127.0.0.1", None),
        ("https://127.0.0.1:8085", None),
        ("127.0.0.1:8085", None),
        ("http://127.0.0.1:8085@evil.example:80", None),
    ] {
        assert_eq!(address(url).ok().as_deref(), expected, "{url}");
    }
}

#[test]
fn who_may_not_read_is_told_what_to_bind() {
    let error = LedgerError::Forbidden {
        user: "al'ice".to_owned(),
        name: Some("tenon".to_owned()),
        namespace: Some("nodes".to_owned()),
    };
    assert_eq!(
        error.hints(),
        ["bind the reader's roles: kubectl create clusterrolebinding tenon-decisions-reader \
          --clusterrole=tenon-decisions-reader --user='alice' && kubectl -n nodes create rolebinding \
          tenon-decisions-reader --role=tenon-decisions-reader --user='alice'"]
    );
}
