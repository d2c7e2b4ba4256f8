//! Sessions of roles: for pods, for web identities, and for who may assume a role.

use std::sync::Arc;

use axum::http;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use tenon_aws_double::credentials::SessionIssuer;
use tenon_aws_double::credentials::service_account::{
    ReviewTokens, ServiceAccountToken, TokenRefusal,
};
use tenon_aws_double::service::Service;
use tenon_iam_policies::identity::{ServiceAccount, irsa_trust, pod_identity_trust};

use super::*;

/// An API server whose tokens are `<namespace>/<name>/<audience>`, alone or as the signature of a
/// JWT.
struct FakeApiServer;

impl ReviewTokens for FakeApiServer {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audience: &'a str,
    ) -> BoxFuture<'a, Result<ServiceAccountToken, TokenRefusal>> {
        let token = if token.starts_with("e30.") {
            token.splitn(3, '.').nth(2).unwrap_or_default()
        } else {
            token
        };
        let parts: Vec<&str> = token.split('/').collect();
        let answer = match parts.as_slice() {
            [namespace, name, of] if *of == audience => Ok(ServiceAccountToken {
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
                pod: format!("{name}-6d5f7-x2x4z"),
                pod_uid: "0f8e1e5a-0000-0000-0000-000000000000".to_owned(),
            }),
            _ => Err(TokenRefusal::NotAuthenticated("not for you".to_owned())),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn issuer(bed: &Bed) -> SessionIssuer {
    let guard = bed.guard;
    SessionIssuer::new(
        Arc::clone(&guard.identities),
        Arc::clone(&guard.policies),
        Arc::clone(&guard.eks),
        Arc::new(FakeApiServer),
    )
}

async fn associate(bed: &Bed, namespace: &str, role_arn: &str) {
    let body =
        json!({ "namespace": namespace, "serviceAccount": "karpenter", "roleArn": role_arn });
    bed.admin
        .eks("POST", &format!("/clusters/{CLUSTER}/pod-identity-associations"), body)
        .await
        .expect("association");
}

fn account(namespace: &str) -> ServiceAccount {
    ServiceAccount { namespace: namespace.into(), name: "karpenter".into() }
}

#[test]
fn a_pod_gets_the_role_of_its_association() {
    on_the_gateway(async |bed| {
        let scope = controller_scope("arn:aws:iam::1:role/none", "none");
        let role = bed
            .role("/tenon/bed/", "podded", &pod_identity_trust(&scope, &account("pods")).to_json())
            .await;
        associate(&bed, "pods", &role).await;
        let aws_state = bed.gateway.state();
        let (principal, credentials) = issuer(&bed)
            .for_pod("pods/karpenter/pods.eks.amazonaws.com", aws_state)
            .await
            .expect("credentials");
        assert!(
            principal.arn.starts_with(
                "arn:aws:sts::123456789012:assumed-role/podded/eks-bed-karpenter-6d5f7-x2x4-"
            ),
            "{}",
            principal.arn
        );
        assert_eq!(principal.role_arn.as_deref(), Some(role.as_str()));
        for tag in [
            ("kubernetes-namespace", "pods"),
            ("kubernetes-service-account", "karpenter"),
            ("eks-cluster-name", "bed"),
        ] {
            assert!(
                principal.session_tags.contains(&(tag.0.to_owned(), tag.1.to_owned())),
                "{:?}",
                principal.session_tags
            );
        }
        let who = Aws::of(&credentials)
            .query("sts", "GetCallerIdentity", &[])
            .await
            .expect("good credentials");
        assert_eq!(
            who.at(&["GetCallerIdentityResult", "Arn"]).expect("an ARN").text,
            principal.arn
        );
    });
}

#[test]
fn tokens_for_others_give_nothing() {
    on_the_gateway(async |bed| {
        let issuer = issuer(&bed);
        let aws_state = bed.gateway.state();
        let code = async |token: &str| refused(issuer.for_pod(token, aws_state).await).0;
        assert_eq!(code("x/karpenter/sts.amazonaws.com").await, "InvalidTokenException");
        assert_eq!(code("").await, "InvalidTokenException");
        assert_eq!(
            code("unassociated/karpenter/pods.eks.amazonaws.com").await,
            "ResourceNotFoundException"
        );
    });
}

#[test]
fn a_role_that_trusts_another_service_account_is_not_given() {
    on_the_gateway(async |bed| {
        let scope = controller_scope("arn:aws:iam::1:role/none", "none");
        let role = bed
            .role(
                "/tenon/bed/",
                "distrusting",
                &pod_identity_trust(&scope, &account("other")).to_json(),
            )
            .await;
        associate(&bed, "distrusted", &role).await;
        let token = "distrusted/karpenter/pods.eks.amazonaws.com";
        let aws_state = bed.gateway.state();
        assert_eq!(
            refused(issuer(&bed).for_pod(token, aws_state).await),
            ("AccessDeniedException".into(), 403)
        );
        let document = pod_identity_trust(&scope, &account("distrusted")).to_json();
        let update = [("RoleName", "distrusting"), ("PolicyDocument", document.as_str())];
        bed.admin.query("iam", "UpdateAssumeRolePolicy", &update).await.expect("updated");
        issuer(&bed).for_pod(token, aws_state).await.expect("trusted now");
    });
}

#[test]
fn a_role_that_is_gone_is_not_given_and_its_sessions_have_no_rights() {
    on_the_gateway(async |bed| {
        let everything = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;
        let role = bed.role("/", "going", &trust(r#"{"Service":"pods.eks.amazonaws.com"}"#)).await;
        let put = [("RoleName", "going"), ("PolicyName", "p"), ("PolicyDocument", everything)];
        bed.admin.query("iam", "PutRolePolicy", &put).await.expect("policy");
        associate(&bed, "going", &role).await;
        let token = "going/karpenter/pods.eks.amazonaws.com";
        let aws_state = bed.gateway.state();
        let (_, credentials) = issuer(&bed).for_pod(token, aws_state).await.expect("credentials");
        let aws = Aws::of(&credentials);
        aws.query("iam", "ListRoles", &[]).await.expect("allowed");
        bed.admin.query("iam", "DeleteRolePolicy", &put[..2]).await.expect("deleted");
        bed.admin.query("iam", "DeleteRole", &[("RoleName", "going")]).await.expect("deleted");
        assert_eq!(missing(aws.query("iam", "ListRoles", &[]).await), "iam:ListRoles");
        assert_eq!(
            refused(issuer(&bed).for_pod(token, aws_state).await).0,
            "AccessDeniedException"
        );
    });
}

#[test]
fn the_endpoint_for_pods_answers_what_sdks_read() {
    on_the_gateway(async |bed| {
        let headers = [("authorization", "nonsense")];
        let url = format!("{}/v1/credentials", bed.gateway.url());
        let request = headers
            .iter()
            .fold(hyper::Request::get(url), |request, (name, value)| request.header(*name, *value));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client
            .request(request.body(Full::new(Bytes::new())).expect("request"))
            .await
            .expect("an answer");
        // The shared gateway has no API server: the token can't be judged, and so is not.
        assert_eq!(response.status().as_u16(), 503);
        let body = response.into_body().collect().await.expect("body").to_bytes();
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["code"], "ServiceUnavailableException");
    });
}

const ISSUER: &str = "https://oidc.eks.eu-central-1.amazonaws.com/id/IRSA";

fn web_token(issuer: &str, namespace: &str, audience: &str) -> String {
    let claims = json!({ "iss": issuer, "aud": [audience], "sub": format!("system:serviceaccount:{namespace}:karpenter") });
    format!("e30.{}.{namespace}/karpenter/{audience}", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

async fn with_web_identity(bed: &Bed, role_arn: &str, token: &str) -> Result<String, AwsError> {
    let params = Params::of([
        ("Action", "AssumeRoleWithWebIdentity"),
        ("RoleArn", role_arn),
        ("RoleSessionName", "karpenter"),
        ("WebIdentityToken", token),
    ]);
    let mut headers = http::HeaderMap::new();
    headers.insert("content-type", "application/x-www-form-urlencoded".parse().expect("a value"));
    let request = tenon_aws_double::request::AwsRequest::read(
        http::Method::POST,
        &Uri::from_static("/"),
        headers,
        params.to_form().into(),
        REGION,
    );
    let answer = issuer(bed).call(&request, None, bed.gateway.state()).await?;
    let root = Element::parse(std::str::from_utf8(&answer.body).expect("text")).expect("XML");
    Ok(root
        .at(&["AssumeRoleWithWebIdentityResult", "AssumedRoleUser", "Arn"])
        .expect("an ARN")
        .text
        .clone())
}

#[test]
fn a_web_identity_needs_provider_audience_signature_and_trust() {
    on_the_gateway(async |bed| {
        let scope = controller_scope("arn:aws:iam::1:role/none", "none");
        let role = bed
            .role("/tenon/bed/", "webbed", &irsa_trust(&scope, ISSUER, &account("web")).to_json())
            .await;
        let good = web_token(ISSUER, "web", "sts.amazonaws.com");
        let error = with_web_identity(&bed, &role, &good).await.expect_err("no provider yet");
        assert_eq!(error.code, "InvalidIdentityToken");
        assert!(
            error
                .message
                .contains("No OpenIDConnect provider found in your account for https://oidc"),
            "{error}"
        );
        let provider = [
            ("Url", ISSUER),
            ("ClientIDList.member.1", "sts.amazonaws.com"),
            ("ThumbprintList.member.1", "9e99a48a9960b14926bb7f3b02e22da2b0ab7280"),
        ];
        bed.admin.query("iam", "CreateOpenIDConnectProvider", &provider).await.expect("provider");
        assert_eq!(
            with_web_identity(&bed, &role, &good).await.expect("session"),
            "arn:aws:sts::123456789012:assumed-role/webbed/karpenter"
        );
        let audience = with_web_identity(&bed, &role, &web_token(ISSUER, "web", "other"))
            .await
            .expect_err("another audience");
        assert_eq!(
            (audience.code.as_str(), audience.message.as_str()),
            ("InvalidIdentityToken", "Incorrect token audience")
        );
        let forged = good.replace("web/karpenter/sts.amazonaws.com", "forged");
        assert_eq!(
            with_web_identity(&bed, &role, &forged).await.expect_err("forged").code,
            "InvalidIdentityToken"
        );
        let subject =
            with_web_identity(&bed, &role, &web_token(ISSUER, "elsewhere", "sts.amazonaws.com"))
                .await;
        assert_eq!(refused(subject), ("AccessDenied".into(), 403));
        let absent = with_web_identity(&bed, "arn:aws:iam::123456789012:role/absent", &good).await;
        assert_eq!(refused(absent), ("AccessDenied".into(), 403));
        let nonsense = with_web_identity(&bed, &role, "abc").await;
        assert_eq!(refused(nonsense).0, "InvalidIdentityToken");
    });
}

#[test]
fn assuming_a_role_needs_both_permission_and_trust() {
    on_the_gateway(async |bed| {
        let trusting = bed
            .role("/", "trusting", &trust(r#"{"AWS":"arn:aws:iam::123456789012:user/assumer"}"#))
            .await;
        let closed = bed.role("/", "closed", &trust(r#"{"Service":"ec2.amazonaws.com"}"#)).await;
        let aws =
            bed.user("assumer", r#"{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"*"}"#);
        let assume = |role| [("RoleArn", role), ("RoleSessionName", "session")];
        aws.query("sts", "AssumeRole", &assume(trusting.as_str())).await.expect("both");
        assert!(
            missing(aws.query("sts", "AssumeRole", &assume(closed.as_str())).await)
                .ends_with("role/closed")
        );
        assert!(
            missing(
                aws.query("sts", "AssumeRole", &assume("arn:aws:iam::123456789012:role/absent"))
                    .await
            )
            .ends_with("role/absent")
        );
        let other = bed.user(
            "other-assumer",
            r#"{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"*"}"#,
        );
        assert_eq!(
            refused(other.query("sts", "AssumeRole", &assume(trusting.as_str())).await),
            ("AccessDenied".into(), 403)
        );
        let without =
            bed.user("not-assumer", r#"{"Effect":"Allow","Action":"iam:*","Resource":"*"}"#);
        assert_eq!(
            missing(without.query("sts", "AssumeRole", &assume(trusting.as_str())).await),
            format!("sts:AssumeRole on resource: {trusting}")
        );
    });
}

#[test]
fn a_session_policy_limits_the_session() {
    on_the_gateway(async |bed| {
        let role = bed.role("/", "limited", &trust(&format!(r#"{{"AWS":"{ACCOUNT}"}}"#))).await;
        let attach =
            [("RoleName", "limited"), ("PolicyArn", "arn:aws:iam::aws:policy/AdministratorAccess")];
        bed.admin.query("iam", "AttachRolePolicy", &attach).await.expect("attached");
        let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"iam:ListRoles","Resource":"*"}]}"#;
        let params = [
            ("RoleArn", role.as_str()),
            ("RoleSessionName", "session"),
            ("Policy", policy),
            ("DurationSeconds", "900"),
        ];
        let aws =
            Aws::of_answer(&bed.admin.query("sts", "AssumeRole", &params).await.expect("session"));
        aws.query("iam", "ListRoles", &[]).await.expect("in the policy");
        let error =
            aws.query("iam", "ListInstanceProfiles", &[]).await.expect_err("not in the policy");
        assert!(
            error
                .message
                .ends_with("because no session policy allows the iam:ListInstanceProfiles action"),
            "{error}"
        );
        let short =
            [("RoleArn", role.as_str()), ("RoleSessionName", "session"), ("DurationSeconds", "60")];
        assert_eq!(
            refused(bed.admin.query("sts", "AssumeRole", &short).await),
            ("ValidationError".into(), 400)
        );
    });
}
