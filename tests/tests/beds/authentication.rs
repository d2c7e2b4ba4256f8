//! Kubernetes asks AWS who somebody is, and AWS asks Kubernetes: with a real API server on both
//! sides.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, TokenRequest, TokenRequestSpec, UserInfo,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Config};
use serde_json::json;
use tenon_aws_double::identity::{Credentials, Grants};
use tenon_aws_double::token_review::token;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::wait::eventually;
use tenon_iam_policies::identity::{self as trust, ServiceAccount as Account};
use tenon_iam_policies::{Features, Partition, Scope};

const LIMIT: Duration = Duration::from_mins(1);

async fn start() -> Bed {
    let parts = Parts { tenon: false, kubelet: false, ..Parts::all() };
    Bed::start(BedConfig { parts, ..BedConfig::default() }).await.expect("the bed starts")
}

/// A client that shows a token of EKS, and nothing else.
fn client(bed: &Bed, credentials: &Credentials, cluster: &str) -> Client {
    let plane = bed.control_plane();
    let mut config = Config::new(plane.url().parse().expect("a URL"));
    config.accept_invalid_certs = true;
    let region = bed.aws().expect("AWS").gateway().state().region().to_owned();
    config.auth_info.token = Some(token(credentials, &region, cluster, bed.clock().now()).into());
    Client::try_from(config).expect("a client")
}

async fn who(client: Client) -> Result<UserInfo, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.and_then(|status| status.user_info).expect("a user"))
}

fn is_unauthorized<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 401)
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_aws_get_into_kubernetes_by_their_entries_and_pods_into_aws_by_their_tokens() {
    let bed = start().await;
    people(&bed).await;
    aws_auth(&bed).await;
    web_identities(&bed).await;
    bed.stop().await.expect("the bed stops");
}

async fn people(bed: &Bed) {
    let aws = bed.aws().expect("AWS");
    let guard = aws.guard();
    let administrator = guard.administrator();
    let user = who(client(bed, administrator, bed.cluster())).await.expect("let in");
    assert!(user.groups.expect("groups").contains(&"system:masters".to_owned()));
    assert_eq!(user.username.as_deref(), Some("arn:aws:iam::123456789012:user/administrator"));
    assert!(
        is_unauthorized(who(client(bed, administrator, "another-cluster")).await),
        "the token is for another cluster"
    );

    let ann = guard.identities.add_user("ann", Grants::Documents(vec![]));
    assert!(is_unauthorized(who(client(bed, &ann, bed.cluster())).await), "no entry yet");
    let caller = aws.caller();
    let entries = format!("/clusters/{}/access-entries", bed.cluster());
    let arn = "arn:aws:iam::123456789012:user/ann";
    caller
        .rest("eks", Method::POST, &entries, &json!({ "principalArn": arn }))
        .await
        .expect("entry");
    let policies =
        format!("{entries}/{}/access-policies", arn.replace(':', "%3A").replace('/', "%2F"));
    let view = json!({
        "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy",
        "accessScope": { "type": "cluster" },
    });
    caller.rest("eks", Method::POST, &policies, &view).await.expect("policy");
    // The API server remembers refusals for a moment.
    eventually("ann may look", LIMIT, async || {
        let pods: Api<Pod> = Api::namespaced(client(bed, &ann, bed.cluster()), "default");
        pods.list(&ListParams::default()).await?;
        Ok(true)
    })
    .await
    .expect("let in");
    let maps: Api<ConfigMap> = Api::namespaced(client(bed, &ann, bed.cluster()), "default");
    let made = maps
        .create(
            &PostParams::default(),
            &serde_json::from_value(json!({ "metadata": { "name": "x" } })).expect("a map"),
        )
        .await;
    assert!(
        matches!(made, Err(kube::Error::Api(status)) if status.code == 403),
        "ann may look only"
    );
}

async fn aws_auth(bed: &Bed) {
    let guard = bed.aws().expect("AWS").guard();
    let caller = bed.aws().expect("AWS").caller();
    let document = json!({ "Version": "2012-10-17", "Statement": [{ "Effect": "Allow", "Principal": { "AWS": "123456789012" }, "Action": "sts:AssumeRole" }] }).to_string();
    let role = [
        ("RoleName", "mapped"),
        ("Path", "/some/path/"),
        ("AssumeRolePolicyDocument", document.as_str()),
    ];
    caller.query("iam", "CreateRole", &role).await.expect("role");
    let arn = "arn:aws:iam::123456789012:role/some/path/mapped";
    guard.authenticator.admits_nodes_of(arn).expect_err("not mapped yet");
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), "kube-system");
    let map = json!({
        "metadata": { "name": "aws-auth" },
        "data": { "mapRoles": "- rolearn: arn:aws:iam::123456789012:role/mapped\n  username: system:node:{{SessionName}}\n  groups:\n  - system:nodes\n" },
    });
    maps.create(&PostParams::default(), &serde_json::from_value(map).expect("a map"))
        .await
        .expect("created");
    eventually("aws-auth is followed", LIMIT, async || {
        Ok(guard.authenticator.admits_nodes_of(arn).is_ok())
    })
    .await
    .expect("mapped");
    let assume = [("RoleArn", arn), ("RoleSessionName", "i-0123456789")];
    let answer = caller.query("sts", "AssumeRole", &assume).await.expect("session");
    let of = |name: &str| {
        answer.children[0].at(&["Credentials", name]).expect("it is there").text.clone()
    };
    let session = Credentials {
        access_key: of("AccessKeyId"),
        secret_key: of("SecretAccessKey"),
        session_token: Some(of("SessionToken")),
        expires: None,
    };
    let user = who(client(bed, &session, bed.cluster())).await.expect("let in");
    assert_eq!(user.username.as_deref(), Some("system:node:i-0123456789"));
    maps.delete("aws-auth", &kube::api::DeleteParams::default()).await.expect("deleted");
    eventually("aws-auth is followed", LIMIT, async || {
        Ok(guard.authenticator.admits_nodes_of(arn).is_err())
    })
    .await
    .expect("forgotten");
}

async fn web_identities(bed: &Bed) {
    let aws = bed.aws().expect("AWS");
    let caller = aws.caller();
    let issuer = aws.gateway().state().cluster().expect("a cluster").issuer;
    let scope = Scope {
        partition: Partition::Aws,
        region: aws.gateway().state().region().to_owned(),
        account: "123456789012".to_owned(),
        cluster: bed.cluster().to_owned(),
        queue: None,
        node_roles: vec![],
        features: Features::default(),
    };
    let account = Account { namespace: "default".to_owned(), name: "default".to_owned() };
    let document = trust::irsa_trust(&scope, &issuer, &account).to_json();
    let role = [("RoleName", "web"), ("AssumeRolePolicyDocument", document.as_str())];
    caller.query("iam", "CreateRole", &role).await.expect("role");
    let provider = [("Url", issuer.as_str()), ("ClientIDList.member.1", "sts.amazonaws.com")];
    caller.query("iam", "CreateOpenIDConnectProvider", &provider).await.expect("provider");

    let token = async |audience: &str, namespace: &str| {
        let accounts: Api<ServiceAccount> = Api::namespaced(bed.client(), namespace);
        let spec = TokenRequestSpec {
            audiences: Some(vec![audience.to_owned()]),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts
            .create_token_request("default", &PostParams::default(), &request)
            .await
            .expect("a token");
        answer.status.and_then(|status| status.token).expect("a token")
    };
    let assume = async |token: &str| {
        let params = [
            ("RoleArn", "arn:aws:iam::123456789012:role/web"),
            ("RoleSessionName", "pod"),
            ("WebIdentityToken", token),
        ];
        caller.query("sts", "AssumeRoleWithWebIdentity", &params).await
    };
    let good = token("sts.amazonaws.com", "default").await;
    let answer = assume(&good).await.expect("a session");
    let arn = answer.children[0].at(&["AssumedRoleUser", "Arn"]).expect("an ARN");
    assert_eq!(arn.text, "arn:aws:sts::123456789012:assumed-role/web/pod");
    let code = async |token: &str| {
        let refusal = assume(token).await.expect_err("refused").to_string();
        let (_, rest) = refusal.split_once("<Code>").expect("a code");
        rest.split_once("</Code>").expect("a code").0.to_owned()
    };
    assert_eq!(
        code(&token("pods.eks.amazonaws.com", "default").await).await,
        "InvalidIdentityToken"
    );
    assert_eq!(code(&token("sts.amazonaws.com", "kube-system").await).await, "AccessDenied");
    let (signed, signature) = good.rsplit_once('.').expect("a JWT");
    let forged: String = signature.chars().rev().collect();
    assert_eq!(code(&format!("{signed}.{forged}")).await, "InvalidIdentityToken");
}
