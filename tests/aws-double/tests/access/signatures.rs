//! Signatures of AWS's own SDK, and what becomes of those that are not right.

use aws_sdk_sts::error::{ProvideErrorMetadata, SdkError};

use super::*;

/// The code and the status with which a call of the SDK was refused.
fn refusal<T: std::fmt::Debug, E: ProvideErrorMetadata + std::fmt::Debug>(
    result: Result<T, SdkError<E>>,
) -> (String, u16) {
    let error = result.expect_err("it is refused");
    let status = error.raw_response().expect("an answer").status().as_u16();
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    (code.unwrap_or_default().to_owned(), status)
}

/// How one service of each protocol refuses whoever this is.
async fn refusals(aws: &Aws) -> Vec<(&'static str, String, u16)> {
    let config = &aws.sdk();
    let ec2 = refusal(aws_sdk_ec2::Client::new(config).describe_subnets().send().await);
    let iam = refusal(aws_sdk_iam::Client::new(config).list_roles().send().await);
    let sts = refusal(aws_sdk_sts::Client::new(config).get_caller_identity().send().await);
    let sqs = refusal(aws_sdk_sqs::Client::new(config).list_queues().send().await);
    let ssm = refusal(aws_sdk_ssm::Client::new(config).get_parameter().name("/x").send().await);
    let eks = refusal(aws_sdk_eks::Client::new(config).list_clusters().send().await);
    [("ec2", ec2), ("iam", iam), ("sts", sts), ("sqs", sqs), ("ssm", ssm), ("eks", eks)]
        .map(|(service, (code, status))| (service, code, status))
        .to_vec()
}

fn expected(codes: &[(&'static str, &str, u16)]) -> Vec<(&'static str, String, u16)> {
    codes.iter().map(|(service, code, status)| (*service, (*code).to_owned(), *status)).collect()
}

/// Every service refuses signatures that don't match in the words of its protocol.
const MISMATCH: [(&str, &str, u16); 6] = [
    ("ec2", "AuthFailure", 401),
    ("iam", "SignatureDoesNotMatch", 403),
    ("sts", "SignatureDoesNotMatch", 403),
    ("sqs", "SignatureDoesNotMatch", 403),
    ("ssm", "InvalidSignatureException", 400),
    ("eks", "InvalidSignatureException", 403),
];

#[test]
fn calls_of_the_sdk_are_accepted_whatever_is_in_their_paths_queries_and_bodies() {
    on_the_gateway(async |bed| {
        let odd = "a b+c/d=ü*~%";
        let role =
            bed.role("/tenon/x/", "signed", &trust(&format!(r#"{{"AWS":"{ACCOUNT}"}}"#))).await;
        let everything = bed.user("signer", r#"{"Effect":"Allow","Action":"*","Resource":"*"}"#);
        for aws in [&everything, &bed.admin] {
            let config = &aws.sdk();
            let ec2 = aws_sdk_ec2::Client::new(config);
            let filter = aws_sdk_ec2::types::Filter::builder().name("tag:Name").values(odd).build();
            ec2.describe_subnets().filters(filter).send().await.expect("EC2");
            let iam = aws_sdk_iam::Client::new(config);
            iam.update_role()
                .role_name("signed")
                .description("a b+c/d=*~%")
                .send()
                .await
                .expect("IAM");
            let sqs = aws_sdk_sqs::Client::new(config);
            sqs.list_queues().queue_name_prefix("signed").send().await.expect("SQS");
            let ssm = aws_sdk_ssm::Client::new(config);
            ssm.get_parameters().names(format!("/{odd}")).send().await.expect("SSM");
            let eks = aws_sdk_eks::Client::new(config);
            eks.list_clusters().max_results(1).include("all").send().await.expect("EKS");
            // The ARN stands in the path, with its colons and slashes encoded.
            let entry = eks.describe_access_entry().cluster_name(CLUSTER).principal_arn(&role);
            assert_eq!(refusal(entry.send().await).0, "ResourceNotFoundException");
        }
        let sts = aws_sdk_sts::Client::new(&everything.sdk());
        let session = sts.assume_role().role_arn(&role).role_session_name("s").send().await;
        let made = session.expect("a session").credentials.expect("credentials");
        let session = Aws::of(&Credentials {
            access_key: made.access_key_id,
            secret_key: made.secret_access_key,
            session_token: Some(made.session_token),
            expires: None,
        });
        let who = aws_sdk_sts::Client::new(&session.sdk()).get_caller_identity().send().await;
        assert!(who.expect("who").arn.expect("an ARN").ends_with("assumed-role/signed/s"));
        // The session's own token does not make up for another's secret.
        let stolen = session.with_secret(&everything.credentials.secret_key);
        assert_eq!(refusals(&stolen).await, expected(&MISMATCH));
    });
}

#[test]
fn a_wrong_secret_is_refused_by_every_service() {
    on_the_gateway(async |bed| {
        assert_eq!(refusals(&bed.admin.with_secret("wrong")).await, expected(&MISMATCH));
    });
}

#[test]
fn an_unknown_key_is_refused_by_every_service() {
    on_the_gateway(async |bed| {
        let mut stranger = bed.admin.clone();
        "AKIASTRANGER".clone_into(&mut stranger.credentials.access_key);
        let unknown = expected(&[
            ("ec2", "AuthFailure", 401),
            ("iam", "InvalidClientTokenId", 403),
            ("sts", "InvalidClientTokenId", 403),
            ("sqs", "InvalidClientTokenId", 403),
            ("ssm", "UnrecognizedClientException", 400),
            ("eks", "UnrecognizedClientException", 403),
        ]);
        assert_eq!(refusals(&stranger).await, unknown);
    });
}

#[test]
fn the_secret_of_a_key_that_iam_made_counts_for_that_key_alone() {
    on_the_gateway(async |bed| {
        let iam = aws_sdk_iam::Client::new(&bed.admin.sdk());
        iam.create_user().user_name("robin").send().await.expect("a user");
        let key = async || {
            let made = iam.create_access_key().user_name("robin").send().await.expect("a key");
            let made = made.access_key.expect("a key");
            Aws::of(&Credentials {
                access_key: made.access_key_id,
                secret_key: made.secret_access_key,
                session_token: None,
                expires: None,
            })
        };
        let (first, second) = (key().await, key().await);
        for one in [&first, &second] {
            let sts = aws_sdk_sts::Client::new(&one.sdk());
            let arn = sts.get_caller_identity().send().await.expect("who").arn;
            assert_eq!(arn.as_deref(), Some("arn:aws:iam::123456789012:user/robin"));
        }
        let mixed = first.with_secret(&second.credentials.secret_key);
        assert_eq!(refusals(&mixed).await, expected(&MISMATCH));
    });
}

#[test]
fn another_region_than_the_beds_is_refused_by_regional_services() {
    on_the_gateway(async |bed| {
        let elsewhere = bed.admin.in_region("eu-west-1");
        let config = &elsewhere.sdk();
        let ec2 = aws_sdk_ec2::Client::new(config).describe_subnets().send().await;
        assert_eq!(refusal(ec2), ("AuthFailure".into(), 401));
        let sqs = aws_sdk_sqs::Client::new(config).list_queues().send().await;
        assert_eq!(refusal(sqs), ("SignatureDoesNotMatch".into(), 403));
        let eks = aws_sdk_eks::Client::new(config).list_clusters().send().await;
        let message = eks.as_ref().map_err(|error| error.message().unwrap_or_default().to_owned());
        assert_eq!(
            message.expect_err("it is refused"),
            "Credential should be scoped to a valid region, not 'eu-west-1'."
        );
        assert_eq!(refusal(eks), ("InvalidSignatureException".into(), 403));
        // Global services have one endpoint; SDKs that are told to use another sign for the region
        // that they are in.
        aws_sdk_iam::Client::new(config).list_roles().send().await.expect("IAM");
        aws_sdk_sts::Client::new(config).get_caller_identity().send().await.expect("STS");
        let abroad = bed.admin.in_region("cn-north-1");
        let iam = aws_sdk_iam::Client::new(&abroad.sdk()).list_roles().send().await;
        assert_eq!(refusal(iam), ("SignatureDoesNotMatch".into(), 403));
    });
}

#[test]
fn a_signature_for_another_service_is_refused() {
    on_the_gateway(async |bed| {
        let error = bed.admin.json("ssm", "AmazonSQS.ListQueues", json!({})).await;
        let error = error.expect_err("it is refused");
        assert_eq!((error.code.as_str(), error.status), ("SignatureDoesNotMatch", 403));
        assert_eq!(error.message, "Credential should be scoped to correct service: 'sqs'.");
        let error = bed.admin.json("sqs", "AmazonSSM.GetParameter", json!({ "Name": "/x" })).await;
        assert_eq!(refused(error), ("InvalidSignatureException".into(), 400));
    });
}

#[test]
fn a_signature_covers_the_whole_call() {
    on_the_gateway(async |bed| {
        let url: Uri = format!("{}/?MaxItems=5", bed.gateway.url()).parse().expect("a URI");
        let content_type = [("content-type", "application/x-www-form-urlencoded")];
        let body = Bytes::from("Action=ListRoles&Version=2010-05-08");
        let scope = ("iam", REGION);
        let now = Clock::system().now();
        let credentials = &bed.admin.credentials;
        let signed = sign(credentials, scope, "POST", &url, &content_type, &body, now);
        let send = async |url: &Uri, body: &Bytes, (changed, to): (&str, Option<&str>)| {
            let mut request = hyper::Request::post(url.clone());
            let headers = signed.iter().map(|(name, value)| (*name, value.as_str()));
            for (name, value) in content_type.into_iter().chain(headers) {
                let value = if name == changed { to } else { Some(value) };
                if let Some(value) = value {
                    request = request.header(name, value);
                }
            }
            let request = request.body(Full::new(body.clone())).expect("request");
            let client = Client::builder(TokioExecutor::new()).build_http();
            let answer = client.request(request).await.expect("an answer");
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.expect("body").to_bytes();
            let text = String::from_utf8(body.to_vec()).expect("text");
            let code = Element::parse(&text).expect("XML");
            (status, code.at(&["Error", "Code"]).map(|code| code.text.clone()))
        };
        let mismatch = (403, Some("SignatureDoesNotMatch".to_owned()));
        assert_eq!(send(&url, &body, ("", None)).await, (200, None));
        let other_query: Uri = format!("{}/?MaxItems=6", bed.gateway.url()).parse().expect("a URI");
        assert_eq!(send(&other_query, &body, ("", None)).await, mismatch);
        let other_path: Uri = format!("{}/x?MaxItems=5", bed.gateway.url()).parse().expect("a URI");
        assert_eq!(send(&other_path, &body, ("", None)).await, mismatch);
        let other_body = Bytes::from("Action=ListUsers&Version=2010-05-08");
        assert_eq!(send(&url, &other_body, ("", None)).await, mismatch);
        let with_charset = "application/x-www-form-urlencoded; charset=utf-8";
        let header = ("content-type", Some(with_charset));
        assert_eq!(send(&url, &body, header).await, mismatch);
        let undated = send(&url, &body, ("x-amz-date", None)).await;
        assert_eq!(undated, (400, Some("IncompleteSignature".to_owned())));
    });
}
