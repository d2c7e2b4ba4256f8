use super::*;

const TRUST: (&str, &str) =
    ("AssumeRolePolicyDocument", "{\"Version\":\"2012-10-17\",\"Statement\":[]}");

#[test]
fn instance_profiles_are_listed_by_path_and_in_pages() {
    on_the_gateway(async |bed| {
        for (name, path) in [
            ("list-a", "/karpenter/r/c1/u/"),
            ("list-b", "/karpenter/r/c1/v/"),
            ("list-c", "/karpenter/r/c10/u/"),
        ] {
            bed.iam("CreateInstanceProfile", &[("InstanceProfileName", name), ("Path", path)])
                .await
                .unwrap();
        }
        let of_c1 = ("PathPrefix", "/karpenter/r/c1/");
        let names = |answer: &Element| -> Vec<String> {
            let result = answer.child("ListInstanceProfilesResult").unwrap();
            result
                .items("InstanceProfiles")
                .iter()
                .filter_map(|profile| profile.get("InstanceProfileName").map(str::to_owned))
                .collect()
        };
        assert_eq!(
            names(&bed.iam("ListInstanceProfiles", &[of_c1]).await.unwrap()),
            ["list-a", "list-b"]
        );
        let first = bed.iam("ListInstanceProfiles", &[of_c1, ("MaxItems", "1")]).await.unwrap();
        let result = first.child("ListInstanceProfilesResult").unwrap();
        assert_eq!((names(&first).len(), result.get("IsTruncated")), (1, Some("true")));
        let marker = result.get("Marker").unwrap();
        let second = bed
            .iam("ListInstanceProfiles", &[of_c1, ("MaxItems", "1"), ("Marker", marker)])
            .await
            .unwrap();
        assert_eq!(names(&second), ["list-b"]);
        assert_eq!(
            second.child("ListInstanceProfilesResult").unwrap().get("IsTruncated"),
            Some("false")
        );
    });
}

#[test]
fn tags_of_an_instance_profile_can_be_listed() {
    on_the_gateway(async |bed| {
        let params = [
            ("InstanceProfileName", "with-tags"),
            ("Tags.member.1.Key", "k"),
            ("Tags.member.1.Value", "v"),
        ];
        bed.iam("CreateInstanceProfile", &params).await.unwrap();
        let answer = bed.iam("ListInstanceProfileTags", &params[..1]).await.unwrap();
        let tags = answer.at(&["ListInstanceProfileTagsResult", "Tags", "member"]).unwrap();
        assert_eq!((tags.get("Key"), tags.get("Value")), (Some("k"), Some("v")));
        assert_eq!(
            code(bed.iam("ListInstanceProfileTags", &[("InstanceProfileName", "nobody")]).await),
            "NoSuchEntity"
        );
    });
}

#[test]
fn the_spot_role_has_awss_name_and_exists_once() {
    on_the_gateway(async |bed| {
        let again = bed
            .iam("CreateServiceLinkedRole", &[("AWSServiceName", "spot.amazonaws.com")])
            .await
            .unwrap_err();
        assert!(
            again.code == "InvalidInput" && again.message.contains("has been taken"),
            "{again}"
        );
        assert!(bed.iam("GetRole", &[("RoleName", "AWSServiceRoleForEC2Spot")]).await.is_ok());
    });
}

#[test]
fn a_role_that_left_an_instance_profile_is_not_found_there() {
    on_the_gateway(async |bed| {
        let (profile, role) = (("InstanceProfileName", "left"), ("RoleName", "leaving"));
        bed.iam("CreateRole", &[role, TRUST]).await.unwrap();
        bed.iam("CreateInstanceProfile", &[profile]).await.unwrap();
        bed.iam("AddRoleToInstanceProfile", &[profile, role]).await.unwrap();
        bed.iam("RemoveRoleFromInstanceProfile", &[profile, role]).await.unwrap();
        let again = bed.iam("RemoveRoleFromInstanceProfile", &[profile, role]).await;
        assert_eq!(code(again), "NoSuchEntity");
    });
}

#[test]
fn a_policy_in_use_cannot_be_deleted() {
    on_the_gateway(async |bed| {
        let document = (
            "PolicyDocument",
            "{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Action\":\"sqs:*\",\"Resource\":\"*\"}]}",
        );
        let made = bed.iam("CreatePolicy", &[("PolicyName", "used"), document]).await.unwrap();
        let arn = made.at(&["CreatePolicyResult", "Policy", "Arn"]).unwrap().text.clone();
        let arn = ("PolicyArn", arn.as_str());
        bed.iam("CreateRole", &[("RoleName", "user-of-policy"), TRUST]).await.unwrap();
        bed.iam("AttachRolePolicy", &[("RoleName", "user-of-policy"), arn]).await.unwrap();
        assert_eq!(code(bed.iam("DeletePolicy", &[arn]).await), "DeleteConflict");
        bed.iam("DetachRolePolicy", &[("RoleName", "user-of-policy"), arn]).await.unwrap();
        bed.iam("CreatePolicyVersion", &[arn, document]).await.unwrap();
        assert_eq!(code(bed.iam("DeletePolicy", &[arn]).await), "DeleteConflict");
        bed.iam("DeletePolicyVersion", &[arn, ("VersionId", "v2")]).await.unwrap();
        bed.iam("DeletePolicy", &[arn]).await.unwrap();
    });
}

#[test]
fn names_and_trust_policies_are_checked() {
    on_the_gateway(async |bed| {
        let long = "x".repeat(65);
        assert_eq!(
            code(bed.iam("CreateRole", &[("RoleName", &long), TRUST]).await),
            "ValidationError"
        );
        let bad = ("AssumeRolePolicyDocument", "{bad");
        assert_eq!(
            code(bed.iam("CreateRole", &[("RoleName", "bad-trust"), bad]).await),
            "MalformedPolicyDocument"
        );
        let long = "x".repeat(129);
        assert_eq!(
            code(bed.iam("CreateInstanceProfile", &[("InstanceProfileName", &long)]).await),
            "ValidationError"
        );
    });
}
