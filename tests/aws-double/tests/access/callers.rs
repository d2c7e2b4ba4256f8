//! Callers with few rights, and how each service refuses them.

use super::*;

const NOBODY: &str = r#"{"Effect":"Allow","Action":"none:None","Resource":"*"}"#;

#[test]
fn each_service_refuses_in_its_own_words() {
    on_the_gateway(async |bed| {
        let nobody = bed.user("nobody", NOBODY);
        assert_eq!(
            refused(nobody.query("ec2", "DescribeSubnets", &[]).await),
            ("UnauthorizedOperation".into(), 403)
        );
        assert_eq!(
            refused(nobody.query("iam", "ListRoles", &[]).await),
            ("AccessDenied".into(), 403)
        );
        let sqs = nobody.json("sqs", "AmazonSQS.ListQueues", json!({})).await;
        assert_eq!(refused(sqs), ("AccessDenied".into(), 403));
        let events = nobody.json("events", "AWSEvents.ListRules", json!({})).await;
        assert_eq!(refused(events), ("AccessDeniedException".into(), 400));
        let ssm = nobody.json("ssm", "AmazonSSM.GetParameter", json!({ "Name": "/x" })).await;
        assert_eq!(refused(ssm), ("AccessDeniedException".into(), 400));
        assert_eq!(
            refused(nobody.eks("GET", "/clusters", Value::Null).await),
            ("AccessDeniedException".into(), 403)
        );
    });
}

#[test]
fn the_refusal_names_who_what_and_on_which_resource() {
    on_the_gateway(async |bed| {
        let nobody = bed.user("named", NOBODY);
        let params =
            [("RoleName", "some"), ("Path", "/tenon/x/"), ("AssumeRolePolicyDocument", "{}")];
        let error = nobody.query("iam", "CreateRole", &params).await.expect_err("refused");
        assert_eq!(
            error.message,
            "User: arn:aws:iam::123456789012:user/named is not authorized to perform: iam:CreateRole on resource: \
             arn:aws:iam::123456789012:role/tenon/x/some because no identity-based policy allows the iam:CreateRole action"
        );
    });
}

#[test]
fn an_explicit_deny_says_so() {
    on_the_gateway(async |bed| {
        let denied = bed.user("denied", r#"{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"iam:ListRoles","Resource":"*"}"#);
        let error = denied.query("iam", "ListRoles", &[]).await.expect_err("refused");
        assert!(
            error.message.ends_with("with an explicit deny in an identity-based policy"),
            "{error}"
        );
        denied.query("iam", "ListInstanceProfiles", &[]).await.expect("only ListRoles is denied");
    });
}

#[test]
fn unknown_keys_are_refused_in_the_services_own_words() {
    on_the_gateway(async |_| {
        let stranger = Aws::of(&Credentials {
            access_key: "AKIASTRANGER".into(),
            secret_key: "x".into(),
            session_token: None,
            expires: None,
        });
        assert_eq!(
            refused(stranger.query("ec2", "DescribeSubnets", &[]).await),
            ("AuthFailure".into(), 401)
        );
        assert_eq!(
            refused(stranger.query("sts", "GetCallerIdentity", &[]).await),
            ("InvalidClientTokenId".into(), 403)
        );
        assert_eq!(
            refused(stranger.eks("GET", "/clusters", Value::Null).await),
            ("UnrecognizedClientException".into(), 403)
        );
    });
}

#[test]
fn everybody_may_ask_who_they_are() {
    on_the_gateway(async |bed| {
        let nobody = bed.user("curious", NOBODY);
        let answer = nobody.query("sts", "GetCallerIdentity", &[]).await.expect("free");
        let arn = answer.at(&["GetCallerIdentityResult", "Arn"]).expect("an ARN").text.clone();
        assert_eq!(arn, "arn:aws:iam::123456789012:user/curious");
    });
}

#[test]
fn rights_can_be_given_while_the_bed_runs() {
    on_the_gateway(async |bed| {
        let aws = bed.user("promoted", NOBODY);
        assert_eq!(missing(aws.query("iam", "ListRoles", &[]).await), "iam:ListRoles");
        bed.guard.identities.set_grants(
            &aws.credentials.access_key,
            granted(r#"{"Effect":"Allow","Action":"iam:List*","Resource":"*"}"#),
        );
        aws.query("iam", "ListRoles", &[]).await.expect("now allowed");
    });
}

/// The installer's caller: roles under one path, and nothing more.
#[test]
fn a_caller_can_be_held_to_roles_of_one_path() {
    on_the_gateway(async |bed| {
        let aws = bed.user("pathbound", r#"{"Effect":"Allow","Action":"iam:*","Resource":"arn:aws:iam::123456789012:role/tenon/*"}"#);
        let document = trust(r#"{"Service":"ec2.amazonaws.com"}"#);
        let role = |path| {
            [
                ("RoleName", "pathbound"),
                ("Path", path),
                ("AssumeRolePolicyDocument", document.as_str()),
            ]
        };
        assert!(
            missing(aws.query("iam", "CreateRole", &role("/")).await).ends_with("role/pathbound")
        );
        // IAM does not know the path of what does not exist.
        assert!(
            missing(aws.query("iam", "GetRole", &[("RoleName", "pathbound")]).await)
                .ends_with("role/pathbound")
        );
        aws.query("iam", "CreateRole", &role("/tenon/x/")).await.expect("under its path");
        aws.query("iam", "GetRole", &[("RoleName", "pathbound")])
            .await
            .expect("its path is known now");
        aws.query("iam", "DeleteRole", &[("RoleName", "pathbound")]).await.expect("under its path");
    });
}

#[test]
fn attaching_policies_can_be_limited_to_some() {
    on_the_gateway(async |bed| {
        bed.role("/tenon/x/", "attached", &trust(r#"{"Service":"ec2.amazonaws.com"}"#)).await;
        let aws = bed.user(
            "attacher",
            r#"{"Effect":"Allow","Action":"iam:AttachRolePolicy","Resource":"*","Condition":{"ArnEquals":{"iam:PolicyARN":"arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"}}}"#,
        );
        let attach = |policy| [("RoleName", "attached"), ("PolicyArn", policy)];
        aws.query(
            "iam",
            "AttachRolePolicy",
            &attach("arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"),
        )
        .await
        .expect("listed");
        let refusal = aws
            .query(
                "iam",
                "AttachRolePolicy",
                &attach("arn:aws:iam::aws:policy/AdministratorAccess"),
            )
            .await;
        assert!(missing(refusal).starts_with("iam:AttachRolePolicy"));
    });
}

#[test]
fn making_roles_can_demand_a_boundary() {
    on_the_gateway(async |bed| {
        let aws = bed.user(
            "bounded",
            r#"{"Effect":"Allow","Action":"iam:CreateRole","Resource":"*","Condition":{"StringEquals":{"iam:PermissionsBoundary":"arn:aws:iam::aws:policy/PowerUserAccess"}}}"#,
        );
        let document = trust(r#"{"Service":"ec2.amazonaws.com"}"#);
        let mut params =
            vec![("RoleName", "bounded"), ("AssumeRolePolicyDocument", document.as_str())];
        assert!(
            missing(aws.query("iam", "CreateRole", &params).await).starts_with("iam:CreateRole")
        );
        params.push(("PermissionsBoundary", "arn:aws:iam::aws:policy/PowerUserAccess"));
        aws.query("iam", "CreateRole", &params).await.expect("with the boundary");
    });
}

#[test]
fn discovery_tags_can_be_all_that_may_be_set() {
    on_the_gateway(async |bed| {
        let aws = bed.user(
            "tagger",
            r#"{"Effect":"Allow","Action":["ec2:CreateTags","ec2:DeleteTags"],"Resource":["arn:aws:ec2:*:*:subnet/*","arn:aws:ec2:*:*:security-group/*"],
                "Condition":{"ForAllValues:StringLike":{"aws:TagKeys":["karpenter.sh/discovery","tenon.sh/*"]}}}"#,
        );
        let subnet = bed.seed.subnet_ids[0].as_str();
        let tag =
            |resource, key| [("ResourceId.1", resource), ("Tag.1.Key", key), ("Tag.1.Value", "v")];
        aws.query("ec2", "CreateTags", &tag(subnet, "karpenter.sh/discovery"))
            .await
            .expect("its key");
        aws.query("ec2", "DeleteTags", &tag(subnet, "karpenter.sh/discovery"))
            .await
            .expect("its key");
        assert!(
            missing(aws.query("ec2", "CreateTags", &tag(subnet, "Name")).await).ends_with(subnet)
        );
        let vpc = bed.seed.vpc_id.as_str();
        assert!(
            missing(aws.query("ec2", "CreateTags", &tag(vpc, "karpenter.sh/discovery")).await)
                .ends_with(vpc)
        );
    });
}

#[test]
fn passing_roles_can_be_limited_to_a_service() {
    on_the_gateway(async |bed| {
        let role = bed
            .role(
                "/tenon/x/",
                "passed",
                &trust(r#"{"Service":["pods.eks.amazonaws.com","ec2.amazonaws.com"]}"#),
            )
            .await;
        let pass = |service: &str| {
            format!(
                r#"{{"Effect":"Allow","Action":["eks:*","iam:GetRole","iam:AddRoleToInstanceProfile","iam:CreateInstanceProfile"],"Resource":"*"}},
                {{"Effect":"Allow","Action":"iam:PassRole","Resource":"{role}","Condition":{{"StringEquals":{{"iam:PassedToService":"{service}"}}}}}}"#
            )
        };
        let aws = bed.user("passer", &pass("ec2.amazonaws.com"));
        let association = json!({ "namespace": "passing", "serviceAccount": "a", "roleArn": role });
        let path = format!("/clusters/{CLUSTER}/pod-identity-associations");
        let refusal = aws.eks("POST", &path, association.clone()).await;
        assert_eq!(missing(refusal), format!("iam:PassRole on resource: {role}"));
        aws.query("iam", "CreateInstanceProfile", &[("InstanceProfileName", "passing")])
            .await
            .expect("profile");
        let add = [("InstanceProfileName", "passing"), ("RoleName", "passed")];
        aws.query("iam", "AddRoleToInstanceProfile", &add).await.expect("to EC2");
        bed.guard
            .identities
            .set_grants(&aws.credentials.access_key, granted(&pass("pods.eks.amazonaws.com")));
        aws.eks("POST", &path, association).await.expect("to Pod Identity");
    });
}

#[test]
fn targets_of_rules_and_rules_by_name_can_be_limited() {
    on_the_gateway(async |bed| {
        let aws = bed.user(
            "ruler",
            r#"{"Effect":"Allow","Action":"events:*","Resource":"arn:aws:events:eu-central-1:123456789012:rule/tenon-*"},
               {"Effect":"Deny","Action":"events:PutTargets","Resource":"*","Condition":{"ForAnyValue:ArnNotEquals":{"events:TargetArn":"arn:aws:sqs:eu-central-1:123456789012:tenon-q"}}}"#,
        );
        let rule = |name| json!({ "Name": name, "EventPattern": r#"{"source":["aws.ec2"]}"# });
        aws.json("events", "AWSEvents.PutRule", rule("tenon-spot")).await.expect("its prefix");
        assert!(
            missing(aws.json("events", "AWSEvents.PutRule", rule("other")).await)
                .ends_with("rule/other")
        );
        let targets = |arn| json!({ "Rule": "tenon-spot", "Targets": [{ "Id": "t", "Arn": arn }] });
        aws.json(
            "events",
            "AWSEvents.PutTargets",
            targets("arn:aws:sqs:eu-central-1:123456789012:tenon-q"),
        )
        .await
        .expect("the queue");
        let refusal = aws
            .json(
                "events",
                "AWSEvents.PutTargets",
                targets("arn:aws:sqs:eu-central-1:123456789012:other"),
            )
            .await;
        assert!(missing(refusal).starts_with("events:PutTargets"));
    });
}

#[test]
fn access_entries_can_be_limited_to_nodes() {
    on_the_gateway(async |bed| {
        let role =
            bed.role("/tenon/x/", "joining", &trust(r#"{"Service":"ec2.amazonaws.com"}"#)).await;
        let aws = bed.user(
            "admitter",
            &format!(
                r#"{{"Effect":"Allow","Action":"eks:CreateAccessEntry","Resource":"arn:aws:eks:*:*:cluster/{CLUSTER}",
                   "Condition":{{"StringEquals":{{"eks:accessEntryType":"EC2_LINUX"}},"ArnEquals":{{"eks:principalArn":"{role}"}}}}}}"#
            ),
        );
        let path = format!("/clusters/{CLUSTER}/access-entries");
        let refusal = aws.eks("POST", &path, json!({ "principalArn": role })).await;
        assert!(missing(refusal).starts_with("eks:CreateAccessEntry"));
        aws.eks("POST", &path, json!({ "principalArn": role, "type": "EC2_LINUX" }))
            .await
            .expect("as a node");
    });
}
