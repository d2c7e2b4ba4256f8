//! Answers of AWS that no account of the double can be brought to give by itself, and settings that
//! do not fit.

use std::path::Path as FilePath;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tenon_aws_double::control::Control;
use tenon_aws_double::eks::AuthenticationMode;
use tenon_aws_double::rewrite::Rewrite;
use tenon_bed::bed::Bed;
use tenon_bed::registry::{Registry, Tls};
use tenon_bed::wait::must;
use tenon_release::image::{Source, build};
use tenon_release::proxy::Proxies;
use tenon_release::registry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::verdicts::{Verdicts, outcome, passes};

fn control(bed: &Bed) -> &Control {
    must(bed.aws()).gateway().control()
}

/// As many launch templates as a region may have, all but a few.
fn launch_templates() -> String {
    let template = "<item><launchTemplateId>lt-1</launchTemplateId></item>".repeat(4_900);
    format!(
        "<DescribeLaunchTemplatesResponse><launchTemplates>{template}</launchTemplates></DescribeLaunchTemplatesResponse>"
    )
}

/// An account that is nearly full, in an organisation that forbids everything, with images of long
/// ago, in a region with other zones.
pub(super) async fn of_aws(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    let control = control(bed);
    let zone = format!("{}a", bed.region());
    let image = "amazon-eks-node-al2023-x86_64-standard-1.29-v20240110";
    let results = "SimulatePrincipalPolicyResult/EvaluationResults/member";
    let decision = format!("{results}/EvalDecision");
    let allowed = format!("{results}/OrganizationsDecisionDetail/AllowedByOrganizations");
    let entries = "GetAccountSummaryResult/SummaryMap/entry/value";
    let key = "arn:aws:kms:eu-central-1:123456789012:key/volumes";
    for (action, path, text) in [
        ("iam:SimulatePrincipalPolicy", &*decision, "explicitDeny"),
        ("iam:SimulatePrincipalPolicy", &*allowed, "false"),
        ("iam:GetAccountSummary", entries, "5000"),
        ("ec2:DescribeImages", "imagesSet/item/name", image),
        ("ec2:DescribeAvailabilityZones", "availabilityZoneInfo/item/zoneType", "local-zone"),
        ("ec2:DescribeInstanceTypeOfferings", "instanceTypeOfferingSet/item/location", &*zone),
        ("ec2:GetEbsEncryptionByDefault", "ebsEncryptionByDefault", "true"),
        ("ec2:GetEbsDefaultKmsKeyId", "kmsKeyId", key),
    ] {
        control.rewrite(action, Rewrite::texts(&[(path, text)]));
    }
    control.rewrite("ec2:DescribeLaunchTemplates", Rewrite::body(launch_templates()));
    let then = Rewrite::header("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    control.rewrite("ssm:GetParameter", then);
    let (finished, report) = verdicts.preflight(&[], &[]).await;
    verdicts.fails(
        &report,
        &[
            ("AC-06", "iam:CreateRole"),
            ("AC-08", "ahead"),
            ("IA-06", "5000 of 5000 Roles are in use"),
            ("QU-03", "4900 of 5000"),
            ("AM-02", "amd64 is for 1.29"),
            ("AM-03", &format!("every new volume of the account is encrypted with {key}")),
            ("SN-08", "is in a local-zone"),
            ("SN-10", &format!("{}b offers 0 of them", bed.region())),
        ],
    );
    assert_eq!(finished.code, 0, "none of these keeps anybody from installing");
    passes(&report, ["AC-05"]);
    control.heal_all();

    // The key that AWS keeps for everybody needs no grant.
    control.rewrite(
        "ec2:GetEbsEncryptionByDefault",
        Rewrite::texts(&[("ebsEncryptionByDefault", "true")]),
    );
    let outpost = "arn:aws:outposts:eu-central-1:123456789012:outpost/op-1";
    control
        .rewrite("ec2:DescribeSubnets", Rewrite::texts(&[("subnetSet/item/outpostArn", outpost)]));
    let (_, report) = verdicts.preflight(&[], &[]).await;
    verdicts.fails(&report, &[("SN-08", "is on an Outpost")]);
    passes(&report, ["AM-03"]);
    control.heal_all();
}

/// A cluster without subnets, and one without an issuer, whose operator is to get its role by it;
/// and a partition that nobody has documents for.
pub(super) async fn of_eks(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    let eks = &must(bed.aws()).guard().eks;
    let arn = Rewrite::texts(&[("GetCallerIdentityResult/Arn", "arn:aws-iso:iam::1:root")]);
    control(bed).rewrite("sts:GetCallerIdentity", arn);
    eks.tell(json!({
        "resourcesVpcConfig": { "subnetIds": [] },
        "identity": { "oidc": { "issuer": "" } },
    }));
    let (finished, report) = verdicts.preflight(&["--identity", "irsa"], &[]).await;
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    verdicts.fails(
        &report,
        &[
            ("AC-04", "\"aws-iso\""),
            ("SN-01", "there is none"),
            ("IA-01", "IAM has none for the cluster's issuer"),
            ("CL-16", "EKS reports no subnets for the cluster: set network.subnetIds"),
        ],
    );
    control(bed).heal_all();
    eks.tell(Value::Null);
    eks.set_authentication_mode(AuthenticationMode::ConfigMap);
    let flags = ["--node-authorization", "access-entry"];
    let (finished, report) = verdicts.preflight(&flags, &[]).await;
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    verdicts.fails(
        &report,
        &[("CL-06", "only aws-auth"), ("CL-16", "the cluster does not support access entries")],
    );
    eks.set_authentication_mode(AuthenticationMode::ApiAndConfigMap);
}

/// A registry that tells nothing without a token. It refuses one image, has one for another
/// architecture and one for all, and knows no others. Answers its host.
async fn scripted_registry(tasks: &mut JoinSet<()>) -> String {
    let listener = must(TcpListener::bind("127.0.0.1:0").await);
    let host = must(listener.local_addr()).to_string();
    let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"bed\",scope=\"pull\"");
    let manifest = async move |Path((image, _version)): Path<(String, String)>,
                               headers: HeaderMap| {
        let is_open = headers.get("authorization").is_some_and(|token| token == "Bearer open");
        let index = |architecture: &str| {
            json!({ "manifests": [{ "platform": { "architecture": architecture } }] }).to_string()
        };
        let (status, body) = match &*image {
            _ if !is_open => (StatusCode::UNAUTHORIZED, String::new()),
            "refused" => (StatusCode::FORBIDDEN, String::new()),
            "arm" => (StatusCode::OK, index("arm64")),
            "operator" => (StatusCode::OK, index("amd64")),
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        (status, [("www-authenticate", challenge)], body)
    };
    let token = async || json!({ "token": "open" }).to_string();
    let routes = Router::new()
        .route("/token", get(token))
        .route("/v2/tenon/{image}/manifests/{version}", get(manifest));
    tasks.spawn(async move { must(axum::serve(listener, routes).await) });
    host
}

/// Names and documents that IAM would not take, a key that EventBridge may not use, and images that
/// nodes can't have.
pub(super) async fn of_settings(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    let mut tasks = JoinSet::new();
    let host = scripted_registry(&mut tasks).await;
    let image = |name: &str| format!("{host}/tenon/{name}");
    let moto = must(bed.aws()).gateway().state().moto();
    let key = must(moto.json("kms", "TrentService.CreateKey", &json!({})).await);
    let key = key["KeyMetadata"]["Arn"].as_str().expect("an ARN").to_owned();
    let long = format!("arn:aws:iam::123456789012:role/{}", "x".repeat(65));
    let refused = image("refused");
    let flags = ["--queue-kms-key", &key, "--controller-role-arn", &long, "--image", &refused];
    let (_, report) = verdicts.preflight(&flags, &[]).await;
    verdicts.fails(
        &report,
        &[
            ("QS-01", "events.amazonaws.com"),
            ("IA-04", "has more than 64 characters"),
            ("IM-01", "the registry refuses"),
        ],
    );
    let event_bridge = json!({ "Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Resource": "*", "Action": ["kms:GenerateDataKey", "kms:Decrypt"],
        "Principal": { "Service": "events.amazonaws.com" },
    }]});
    let put = json!({ "KeyId": key, "PolicyName": "default", "Policy": event_bridge.to_string() });
    must(moto.json("kms", "TrentService.PutKeyPolicy", &put).await);
    let operator = image("operator");
    let flags = ["--queue-kms-key", &key, "--identity", "irsa", "--image", &operator];
    let (finished, report) = verdicts.preflight(&flags, &[]).await;
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    passes(&report, ["QS-01", "IA-01", "IM-01", "CL-16"]);

    let endless = format!("arn:aws:kms:eu-central-1:123456789012:key/{}", "0".repeat(9_000));
    let flags = ["--queue-kms-key", &endless, "--image", &image("arm")];
    let (_, report) = verdicts.preflight(&flags, &[]).await;
    verdicts.fails(
        &report,
        &[("IA-05", "and IAM takes 10240 for one role"), ("IM-01", "does not exist for amd64")],
    );
    let (_, report) = verdicts.preflight(&["--image", &image("other")], &[]).await;
    verdicts.fails(&report, &[("IM-01", "doesn't have")]);
}

/// A real registry has the image, and is asked as AWS is: through the proxy, with the certificates
/// that this machine trusts.
pub(super) async fn of_a_registry(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    const NAME: &str = "tenon/tenon-operator";
    let registry = must(Registry::start(bed, None).await);
    let program = bed.dir().join("tenon-operator");
    must(std::fs::copy("/bin/true", &program));
    let source = Source {
        program: &program,
        beside: &[],
        root: FilePath::new("/"),
        library_path: &[],
        ca_bundle: &program,
        compressed: true,
        epoch: 0,
        version: env!("CARGO_PKG_VERSION"),
        commit: "of this test",
        source: None,
    };
    let layout = must(build(&source, &bed.dir().join("image")));
    let tagged = format!("{}/{NAME}:{}", registry.host(), env!("CARGO_PKG_VERSION"));
    let push = registry::Registry::of(must(tagged.parse()), None, Proxies::default());
    must(push.push(&layout).await);
    let image = format!("{}/{NAME}", registry.host());
    let (_, report) = verdicts.preflight(&["--image", &image], &[]).await;
    passes(&report, ["IM-01"]);
    let other = format!("{}/tenon/other", registry.host());
    let (_, report) = verdicts.preflight(&["--image", &other], &[]).await;
    verdicts.fails(&report, &[("IM-01", "doesn't have")]);
    registry.stop().await;

    let certificates = bed.control_plane().certificates();
    let (certificate, key) =
        (certificates.join("apiserver.crt"), certificates.join("apiserver.key"));
    let tls = Tls { certificate: &certificate, key: &key };
    let registry = must(Registry::start(bed, Some(tls)).await);
    let mut tasks = JoinSet::new();
    let proxy = super::proxy(&mut tasks, registry.port()).await;
    let trusted = certificate.display().to_string();
    let host = super::INSIDE.trim_end_matches(":443");
    let image = format!("{host}/{NAME}");
    let through = [("HTTPS_PROXY", proxy.as_str()), ("SSL_CERT_FILE", trusted.as_str())];
    let (_, report) = verdicts.preflight(&["--image", &image], &through).await;
    passes(&report, ["IM-01"]);
    let other = format!("{host}/tenon/other");
    let (_, report) = verdicts.preflight(&["--image", &other], &through).await;
    verdicts.fails(&report, &[("IM-01", "doesn't have")]);
    // Past the proxy there is no such host.
    let past = [through[0], through[1], ("NO_PROXY", host)];
    let (_, report) = verdicts.preflight(&["--image", &image], &past).await;
    assert_eq!(outcome(&report, "IM-01").0, "unknown");
    registry.stop().await;
}

/// What is wrong before anything can be looked at is said at once, and names what to set.
pub(super) async fn of_nobody(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    let run = async |args: &[&str]| {
        let mut command = bed.command(must(bed.tenon()));
        for name in ["AWS_REGION", "AWS_DEFAULT_REGION", "KUBECONFIG"] {
            command.env_remove(name);
        }
        command.args(["preflight", "--cluster", bed.cluster(), "-o", "json"]).args(args);
        must(command.output().await)
    };
    let refused = |finished: &std::process::Output, parts: [&str; 2]| {
        let said = String::from_utf8_lossy(&finished.stderr);
        assert_eq!(finished.status.code(), Some(2), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part} is not in:\n{said}");
        }
    };
    control(bed).calls().clear();
    refused(&run(&[]).await, ["cluster.region", "use --region or AWS_REGION"]);
    let allowed = "a region such as eu-central-1";
    refused(&run(&["--region", "frankfurt"]).await, ["cluster.region", allowed]);
    let file = bed.dir().join("queue.yaml");
    let settings = json!({
        "apiVersion": "tenon.sh/v1alpha1", "kind": "Installation",
        "cluster": { "region": bed.region() },
        "interruption": { "queueName": "arn:aws:sqs:eu-central-1:123456789012:queue" },
    });
    must(std::fs::write(&file, settings.to_string()));
    let file = file.display().to_string();
    refused(&run(&["-f", &file]).await, ["interruption.queueName", "not its ARN or URL"]);
    assert!(control(bed).calls().all().is_empty(), "nothing was called");

    let finished = run(&["--region", "eu-central-x", "--allow-unknown-region"]).await;
    let report = serde_json::from_slice(&finished.stdout).expect("a report");
    verdicts.fails(&report, &[("AC-02", "\"eu-central-x\" is not a region")]);
}

/// A kubeconfig that leads to an API server of another cluster, and of another age.
pub(super) async fn of_another_api_server(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    let version = json!({
        "major": "1", "minor": "21+", "gitVersion": "v1.21.14", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    let routes = Router::new().route("/version", get(async move || version.to_string()));
    let listener = must(TcpListener::bind("127.0.0.1:0").await);
    let url = format!("http://{}", must(listener.local_addr()));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, routes).await });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "other",
        "clusters": [{ "name": "other", "cluster": { "server": url } }],
        "contexts": [{ "name": "other", "context": { "cluster": "other", "user": "other" } }],
        "users": [{ "name": "other", "user": {} }],
    });
    let file = bed.dir().join("other.kubeconfig");
    must(std::fs::write(&file, kubeconfig.to_string()));
    let file = file.display().to_string();
    let (finished, report) = verdicts.preflight(&[], &[("KUBECONFIG", &file)]).await;
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    verdicts.fails(
        &report,
        &[("AC-03", &format!("it points to {url}")), ("CL-02", "it is 1.21+, and 1.26 to")],
    );
}
