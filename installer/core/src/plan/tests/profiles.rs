use tenon_iam_policies::Document;

use super::*;

#[test]
fn with_a_static_profile_the_operator_neither_makes_nor_lists_profiles_and_may_not() {
    let told = |extra: &str| {
        let desired = desired(extra);
        let role = desired.controller_role.spec.as_ref().expect("a role of ours");
        let policies: String = role.inline.values().map(Document::to_json).collect();
        let allowed = ["iam:CreateInstanceProfile", "iam:ListInstanceProfiles"]
            .map(|action| policies.contains(action));
        let deployment = desired.deployment().expect("a Deployment").body.to_string();
        (allowed, deployment.contains("STATIC_INSTANCE_PROFILES"))
    };
    assert_eq!(told("nodes:\n  instanceProfile: static\n"), ([false, false], true));
    assert_eq!(told(""), ([true, true], false));
}
