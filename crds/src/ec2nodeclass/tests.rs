use serde_json::json;

use super::*;

fn spec(changes: &serde_json::Value) -> EC2NodeClassSpec {
    let mut json = json!({ "amiSelectorTerms": [], "subnetSelectorTerms": [], "securityGroupSelectorTerms": [] });
    json.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    serde_json::from_value(json).unwrap()
}

#[test]
fn the_family_comes_from_the_field_or_the_alias_or_is_custom() {
    assert_eq!(spec(&json!({})).resolved_ami_family(), AmiFamily::Custom);
    let bottlerocket = json!([{ "alias": "bottlerocket@v1.20.4" }]);
    let class = spec(&json!({ "amiSelectorTerms": bottlerocket }));
    assert_eq!(class.resolved_ami_family(), AmiFamily::Bottlerocket);
    assert_eq!(
        class.alias(),
        Some(Alias { family: AmiFamily::Bottlerocket, version: "v1.20.4".to_owned() })
    );
    let class = spec(&json!({ "amiSelectorTerms": bottlerocket, "amiFamily": "Custom" }));
    assert_eq!(class.resolved_ami_family(), AmiFamily::Custom);
}

#[test]
fn metadata_options_are_safe_unless_told_otherwise() {
    assert_eq!(spec(&json!({})).metadata_options, Some(MetadataOptions::default()));
    let partly =
        spec(&json!({ "metadataOptions": { "httpTokens": "optional" } })).metadata_options.unwrap();
    assert_eq!(
        partly,
        MetadataOptions { http_tokens: Some(HttpTokens::Optional), ..MetadataOptions::default() }
    );
}

#[test]
fn an_empty_selector_is_an_absent_one() {
    let class = spec(&json!({ "amiSelectorTerms": [{ "id": "", "name": "x" }] }));
    assert_eq!(class.ami_selector_terms[0].id, None);
}
