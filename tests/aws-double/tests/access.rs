//! Who may do what on the AWS double, over HTTP as an SDK would: the gate, sessions, EKS, the
//! credentials of pods and the tokens of EKS.
//!
//! All tests share one gateway with a guard; each uses names of its own.

use std::path::PathBuf;
use std::sync::LazyLock;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials as SdkCredentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use axum::body::Bytes;
use axum::http::Uri;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tenon_aws_double::aws_state::Cluster;
use tenon_aws_double::clock::Clock;
use tenon_aws_double::guard::Guard;
use tenon_aws_double::identity::{Credentials, Grants};
use tenon_aws_double::moto_client::version;
use tenon_aws_double::policy::NamedDocument;
use tenon_aws_double::request::Params;
use tenon_aws_double::response::AwsError;
use tenon_aws_double::seed::{self, Seed};
use tenon_aws_double::signature::sign;
use tenon_aws_double::xml::Element;
use tenon_aws_double::{Gateway, GatewayConfig};
use tenon_iam_policies::controller::controller_policies;
use tenon_iam_policies::{Document, Features, Partition, Scope};
use tokio::runtime::Runtime;

#[path = "access/callers.rs"]
mod callers;
#[path = "access/controller.rs"]
mod controller;
#[path = "access/eks.rs"]
mod eks;
#[path = "access/keys.rs"]
mod keys;
#[path = "access/placement_groups.rs"]
mod placement_groups;
#[path = "access/prices.rs"]
mod prices;
#[path = "access/sessions.rs"]
mod sessions;
#[path = "access/signatures.rs"]
mod signatures;
#[path = "access/tokens.rs"]
mod tokens;
#[path = "access/zonal_shifts.rs"]
mod zonal_shifts;

const REGION: &str = "eu-central-1";
const ACCOUNT: &str = "123456789012";
const CLUSTER: &str = "bed";

/// The gateway that all tests use, on a runtime that outlives each test's.
struct Shared {
    runtime: Runtime,
    gateway: Gateway,
    guard: Guard,
    seed: Seed,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("runtime");
    let (gateway, guard, seed) = runtime.block_on(async {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("access-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("directory");
        let mut config = GatewayConfig::new(dir);
        let guard = Guard::new(&config);
        guard.install(&mut config);
        let gateway = Gateway::start(config).await.expect("the gateway starts");
        let seed = seed::network(gateway.state(), CLUSTER).await.expect("seed");
        gateway.state().set_cluster(Cluster {
            name: CLUSTER.into(),
            endpoint: "https://127.0.0.1:6443".into(),
            ca_pem: "-----BEGIN CERTIFICATE-----\n".into(),
            version: "1.36".into(),
            issuer: format!("https://oidc.eks.{REGION}.amazonaws.com/id/0123"),
            vpc_id: seed.vpc_id.clone(),
            subnet_ids: seed.subnet_ids.clone(),
            cluster_security_group_id: seed.cluster_security_group_id.clone(),
            service_cidr: "172.20.0.0/16".into(),
        });
        guard.admit_administrator(gateway.state());
        (gateway, guard, seed)
    });
    Shared { runtime, gateway, guard, seed }
});

/// What a test works with: the gateway, and somebody who calls it.
struct Bed {
    gateway: &'static Gateway,
    guard: &'static Guard,
    seed: &'static Seed,
    /// May do everything.
    admin: Aws,
}

/// Runs a test on the shared gateway.
fn on_the_gateway(test: impl AsyncFnOnce(Bed)) {
    let shared = &*SHARED;
    shared.runtime.block_on(async {
        let admin = Aws::of(shared.guard.administrator());
        test(Bed { gateway: &shared.gateway, guard: &shared.guard, seed: &shared.seed, admin })
            .await;
    });
}

impl Bed {
    /// Somebody who may do what these statements say.
    fn user(&self, name: &str, statements: &str) -> Aws {
        Aws::of(&self.guard.identities.add_user(name, granted(statements)))
    }

    /// Makes a role; returns its ARN.
    async fn role(&self, path: &str, name: &str, trust: &str) -> String {
        let params = [("RoleName", name), ("Path", path), ("AssumeRolePolicyDocument", trust)];
        self.admin.query("iam", "CreateRole", &params).await.expect("role");
        format!("arn:aws:iam::{ACCOUNT}:role{path}{name}")
    }

    /// A session of a role that trusts the account.
    async fn session(&self, role_arn: &str) -> Aws {
        let params = [("RoleArn", role_arn), ("RoleSessionName", "session")];
        let answer = self.admin.query("sts", "AssumeRole", &params).await.expect("session");
        Aws::of_answer(&answer)
    }
}

fn granted(statements: &str) -> Grants {
    let text = format!(r#"{{"Version":"2012-10-17","Statement":[{statements}]}}"#);
    let document = Document::parse(&text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    Grants::Documents(vec![NamedDocument { name: "granted".into(), document }])
}

fn trust(principal: &str) -> String {
    format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":{principal},"Action":["sts:AssumeRole","sts:TagSession"]}}]}}"#
    )
}

/// Somebody who calls the gateway.
#[derive(Clone)]
struct Aws {
    credentials: Credentials,
    region: String,
}

/// An answer as it came.
struct Answer {
    status: u16,
    error_type: Option<String>,
    body: String,
}

impl Aws {
    fn of(credentials: &Credentials) -> Self {
        Self { credentials: credentials.clone(), region: REGION.to_owned() }
    }

    fn of_answer(answer: &Element) -> Self {
        let text = |name: &str| {
            answer.children[0].at(&["Credentials", name]).expect("it is there").text.clone()
        };
        Self::of(&Credentials {
            access_key: text("AccessKeyId"),
            secret_key: text("SecretAccessKey"),
            session_token: Some(text("SessionToken")),
            expires: None,
        })
    }

    /// The same caller with a wrong secret.
    fn with_secret(&self, secret_key: &str) -> Self {
        let mut other = self.clone();
        secret_key.clone_into(&mut other.credentials.secret_key);
        other
    }

    /// The same caller in another region.
    fn in_region(&self, region: &str) -> Self {
        Self { region: region.to_owned(), ..self.clone() }
    }

    /// What AWS's own SDK needs to make calls as this caller.
    fn sdk(&self) -> SdkConfig {
        let Credentials { access_key, secret_key, session_token, .. } = self.credentials.clone();
        let credentials =
            SdkCredentials::new(access_key, secret_key, session_token, None, "a test");
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(self.region.clone()))
            .endpoint_url(SHARED.gateway.url())
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .build()
    }

    async fn send(
        &self,
        service: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Answer {
        let uri: Uri = format!("{}{path}", SHARED.gateway.url()).parse().expect("a URI");
        let body = Bytes::from(body);
        let now = Clock::system().now();
        let scope = (service, self.region.as_str());
        let signed = sign(&self.credentials, scope, method, &uri, headers, &body, now);
        let mut request = hyper::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        for (name, value) in signed {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).expect("request");
        let response = Client::builder(TokioExecutor::new())
            .build_http()
            .request(request)
            .await
            .expect("an answer");
        let status = response.status().as_u16();
        let error_type = response
            .headers()
            .get("x-amzn-errortype")
            .map(|value| value.to_str().expect("ASCII").to_owned());
        let body = response.into_body().collect().await.expect("body").to_bytes();
        Answer { status, error_type, body: String::from_utf8(body.to_vec()).expect("text") }
    }

    /// An EC2, IAM or STS call.
    async fn query(
        &self,
        service: &str,
        action: &str,
        params: &[(&str, &str)],
    ) -> Result<Element, AwsError> {
        self.form(service, action, Params::of(params.iter().copied())).await
    }

    async fn form(
        &self,
        service: &str,
        action: &str,
        mut params: Params,
    ) -> Result<Element, AwsError> {
        params.set("Action", action);
        params.set("Version", version(service));
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let answer = self.send(service, "POST", "/", &form, params.to_form()).await;
        let root =
            Element::parse(&answer.body).unwrap_or_else(|error| panic!("{}: {error}", answer.body));
        if answer.status == 200 {
            return Ok(root);
        }
        let error =
            root.at(&["Errors", "Error"]).or_else(|| root.child("Error")).expect("an error");
        let text = |name: &str| error.get(name).unwrap_or_default().to_owned();
        Err(AwsError::new(text("Code"), text("Message")).with_status(answer.status))
    }

    /// A call of SQS, EventBridge, SSM or Pricing.
    async fn json(&self, service: &str, target: &str, body: Value) -> Result<Value, AwsError> {
        let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", target)];
        Self::read_json(self.send(service, "POST", "/", &headers, body.to_string()).await)
    }

    /// A call of EKS.
    async fn eks(&self, method: &str, path: &str, body: Value) -> Result<Value, AwsError> {
        let headers = [("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Self::read_json(self.send("eks", method, path, &headers, body).await)
    }

    fn read_json(answer: Answer) -> Result<Value, AwsError> {
        let Answer { status, error_type, body } = answer;
        let json: Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{body}: {error}"));
        if status == 200 {
            return Ok(json);
        }
        let code = error_type
            .or_else(|| json["__type"].as_str().map(str::to_owned))
            .expect("an error type");
        Err(AwsError::new(code, json["message"].as_str().unwrap_or_default()).with_status(status))
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// The code and the status of a refusal.
fn refused<T: std::fmt::Debug>(result: Result<T, AwsError>) -> (String, u16) {
    let error = result.expect_err("it is refused");
    (error.code, error.status)
}

/// What a refusal says was missing: the action, and the resource if it names one.
fn missing<T: std::fmt::Debug>(result: Result<T, AwsError>) -> String {
    let message = result.expect_err("it is refused").message;
    let (_, rest) =
        message.split_once("is not authorized to perform: ").unwrap_or_else(|| panic!("{message}"));
    let end =
        rest.find(" because").or_else(|| rest.find(" with an explicit")).unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// The permissions of the controller, as the installer would write them into its role.
fn controller_scope(node_role: &str, queue: &str) -> Scope {
    Scope {
        partition: Partition::Aws,
        region: REGION.into(),
        account: ACCOUNT.into(),
        cluster: CLUSTER.into(),
        queue: Some(queue.into()),
        node_roles: vec![node_role.into()],
        features: Features::default(),
    }
}

/// A role with the controller's policies, which trusts the account so that tests can take it.
async fn controller_role(bed: &Bed, name: &str, scope: &Scope) -> String {
    let arn = bed.role("/tenon/bed/", name, &trust(&format!(r#"{{"AWS":"{ACCOUNT}"}}"#))).await;
    for policy in controller_policies(scope) {
        let document = policy.document.to_json();
        let params =
            [("RoleName", name), ("PolicyName", policy.part.name()), ("PolicyDocument", &document)];
        bed.admin.query("iam", "PutRolePolicy", &params).await.expect("policy");
    }
    arn
}
