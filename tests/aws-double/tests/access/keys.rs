//! Access keys that IAM makes for its users.

use super::*;

const READS_SUBNETS: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:DescribeSubnets","Resource":"*"}]}"#;
const LISTS_ROLES: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"iam:ListRoles","Resource":"*"}]}"#;

#[test]
fn a_key_that_iam_makes_stands_for_its_user_until_it_is_gone() {
    on_the_gateway(async |bed| {
        let iam = async |action: &str, params: &[(&str, &str)]| {
            bed.admin
                .query("iam", action, params)
                .await
                .unwrap_or_else(|it| panic!("{action}: {it:?}"))
        };
        let user = ("UserName", "kim");
        iam("CreateUser", &[user, ("Path", "/people/")]).await;
        let policy = [user, ("PolicyName", "subnets"), ("PolicyDocument", READS_SUBNETS)];
        iam("PutUserPolicy", &policy).await;
        let made = iam("CreateAccessKey", &[user]).await;
        let text = |name: &str| {
            made.children[0].at(&["AccessKey", name]).expect("it is there").text.clone()
        };
        let id = text("AccessKeyId");
        let kim = Aws::of(&Credentials {
            access_key: id.clone(),
            secret_key: text("SecretAccessKey"),
            session_token: None,
            expires: None,
        });

        let who = kim.query("sts", "GetCallerIdentity", &[]).await.expect("who they are");
        let arn = who.at(&["GetCallerIdentityResult", "Arn"]).map(|arn| arn.text.as_str());
        assert_eq!(arn, Some("arn:aws:iam::123456789012:user/people/kim"));
        kim.query("ec2", "DescribeSubnets", &[]).await.expect("their own policy allows it");
        let denied = kim.query("iam", "ListRoles", &[]).await;
        assert_eq!(refused(denied), ("AccessDenied".into(), 403));

        let group = ("GroupName", "listers");
        iam("CreateGroup", &[group]).await;
        let policy = [group, ("PolicyName", "roles"), ("PolicyDocument", LISTS_ROLES)];
        iam("PutGroupPolicy", &policy).await;
        iam("AddUserToGroup", &[group, user]).await;
        kim.query("iam", "ListRoles", &[]).await.expect("their group's policy allows it");

        let key = ("AccessKeyId", id.as_str());
        iam("UpdateAccessKey", &[user, key, ("Status", "Inactive")]).await;
        let inactive = kim.query("iam", "ListRoles", &[]).await;
        assert_eq!(refused(inactive), ("InvalidClientTokenId".into(), 403));
        iam("UpdateAccessKey", &[user, key, ("Status", "Active")]).await;
        kim.query("iam", "ListRoles", &[]).await.expect("it is active again");
        iam("DeleteAccessKey", &[user, key]).await;
        let gone = kim.query("ec2", "DescribeSubnets", &[]).await;
        assert_eq!(refused(gone).0, "AuthFailure");
    });
}
