//! Tokens of EKS, over the webhook.

use tenon_aws_double::guard::token_review_url;
use tenon_aws_double::token_review::Refusal;

use super::*;

async fn review(bed: &Bed, body: &str) -> (u16, Value) {
    let request = hyper::Request::post(token_review_url(bed.gateway.url()))
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("request");
    let response = Client::builder(TokioExecutor::new())
        .build_http()
        .request(request)
        .await
        .expect("an answer");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("body").to_bytes();
    (status, serde_json::from_slice(&body).expect("JSON"))
}

#[test]
fn the_webhook_speaks_token_reviews_and_does_not_repeat_the_token() {
    on_the_gateway(async |bed| {
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": "secret" } });
        let (status, answer) = review(&bed, &body.to_string()).await;
        assert_eq!(status, 200);
        assert_eq!(
            (&answer["kind"], &answer["apiVersion"]),
            (&json!("TokenReview"), &json!("authentication.k8s.io/v1"))
        );
        assert_eq!(answer["status"]["authenticated"], false);
        assert_eq!(answer["status"]["error"], "not a token of EKS");
        assert!(!answer.to_string().contains("secret"));
        assert_eq!(review(&bed, "nonsense").await.0, 400);
    });
}

#[test]
fn nodes_get_the_names_of_their_instances() {
    on_the_gateway(async |bed| {
        let role = bed.role("/", "named-node", &trust(&format!(r#"{{"AWS":"{ACCOUNT}"}}"#))).await;
        let path = format!("/clusters/{CLUSTER}/access-entries");
        bed.admin
            .eks("POST", &path, json!({ "principalArn": role, "type": "EC2_LINUX" }))
            .await
            .expect("entry");
        let image = bed
            .gateway
            .state()
            .amis()
            .iter()
            .find(|ami| ami.recommended)
            .expect("images")
            .id
            .clone();
        let run = [
            ("ImageId", image.as_str()),
            ("InstanceType", "m5.large"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("SubnetId", &bed.seed.subnet_ids[0]),
        ];
        let answer = bed.admin.query("ec2", "RunInstances", &run).await.expect("launched");
        let instance = &answer.items("instancesSet")[0];
        let principal = tenon_aws_double::service::Principal {
            arn: format!(
                "arn:aws:sts::{ACCOUNT}:assumed-role/named-node/{}",
                instance.get("instanceId").expect("an id")
            ),
            account: ACCOUNT.into(),
            user_id: "AROA:x".into(),
            role_arn: Some(role),
            session_tags: vec![],
        };
        let user =
            bed.guard.authenticator.user(&principal, "ASIA", bed.gateway.state()).expect("a node");
        assert_eq!(
            user.username,
            Some(format!("system:node:{}", instance.get("privateDnsName").expect("a name")))
        );
        assert_eq!(user.groups, Some(vec!["system:bootstrappers".into(), "system:nodes".into()]));
    });
}

#[test]
fn who_has_no_entry_is_named_in_the_refusal() {
    on_the_gateway(async |bed| {
        let principal = tenon_aws_double::service::Principal {
            arn: format!("arn:aws:sts::{ACCOUNT}:assumed-role/stranger/s"),
            account: ACCOUNT.into(),
            user_id: "AROA:s".into(),
            role_arn: Some(format!("arn:aws:iam::{ACCOUNT}:role/p/stranger")),
            session_tags: vec![],
        };
        let refusal = bed.guard.authenticator.user(&principal, "ASIA", bed.gateway.state());
        assert_eq!(
            refusal,
            Err(Refusal::NoAccess("arn:aws:iam::123456789012:role/p/stranger".into()))
        );
    });
}
