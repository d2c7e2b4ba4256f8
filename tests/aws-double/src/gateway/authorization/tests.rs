use tenon_iam_policies::Document;

use super::usage::Usage;
use crate::gateway::policy::{NamedDocument, Policies, StatementRef};

fn policies() -> Policies {
    let text = r#"{"Version":"2012-10-17","Statement":[
        {"Sid":"A","Effect":"Allow","Action":"a:*","Resource":"*"},
        {"Effect":"Allow","Action":"b:*","Resource":"*"}]}"#;
    let document = Document::parse(text).unwrap();
    Policies { identity: vec![NamedDocument { name: "p".into(), document }], limits: vec![] }
}

#[test]
fn statements_are_unneeded_until_a_call_needs_them() {
    let usage = Usage::default();
    usage.know("role", &policies());
    assert_eq!(usage.unneeded_statements().len(), 2);
    let statement = StatementRef { policy: "p".into(), sid: "A".into() };
    usage.needed("role", "a:Call", vec![statement.clone(), statement]);
    usage.know("role", &policies());
    let needed = usage.needed_statements();
    assert_eq!((needed.len(), needed[0].checks, needed[0].sid.as_str()), (1, 2, "A"));
    assert!(needed[0].calls.contains("a:Call"));
    let unneeded = usage.unneeded_statements();
    assert_eq!((unneeded.len(), unneeded[0].sid.as_str()), (1, "#1"));
}
