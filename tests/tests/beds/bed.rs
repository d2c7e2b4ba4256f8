//! A whole bed, without Tenon: Kubernetes and AWS know each other.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kubelet::Image;
use tenon_bed::wait::eventually;

const LIMIT: Duration = Duration::from_mins(1);

/// A program that stands for the operator: asks for its AWS credentials as an SDK does, and prints
/// what it was answered.
fn stand_in(dir: &std::path::Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("stand-in");
    let script = r#"
import json, os, time, urllib.request
token = open(os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read()
request = urllib.request.Request(os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"], headers={"Authorization": token})
for _ in range(100):
    try:
        answer = json.load(urllib.request.urlopen(request))
        print("got", answer["AccessKeyId"][:4], os.environ["AWS_REGION"], os.environ["AWS_ENDPOINT_URL"], flush=True)
        break
    except Exception as error:
        print("not yet", error, flush=True)
        time.sleep(0.2)
time.sleep(3600)
"#;
    let python = std::process::Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output();
    let python = String::from_utf8(python.expect("the bed needs Python").stdout).expect("a path");
    std::fs::write(&path, format!("#!{}\n{script}", python.trim())).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
    path
}

async fn kubectl(bed: &Bed, args: &[&str]) -> String {
    let output = bed.command("kubectl".as_ref()).args(args).output().await.expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_and_aws_of_a_bed_know_each_other() {
    let dir = tempfile::tempdir().expect("temp dir");
    let images = vec![Image { name: "tenon-operator".to_owned(), program: stand_in(dir.path()) }];
    let parts = Parts { tenon: false, ..Parts::all() };
    let bed = Bed::start(BedConfig { images, parts, ..BedConfig::default() })
        .await
        .expect("the bed starts");
    let client = bed.client();

    // The system nodes are Ready, in two zones, and an EKS cluster has its DNS service.
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.expect("listed").items;
    let zones: Vec<&String> =
        nodes.iter().filter_map(|node| node.labels().get("topology.kubernetes.io/zone")).collect();
    assert_eq!(zones, ["eu-central-1a", "eu-central-1b"]);
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    services.get("kube-dns").await.expect("the cluster's DNS");

    // The exports are enough for a program that knows nothing of the bed.
    let version: Value =
        serde_json::from_str(&kubectl(&bed, &["version", "-o", "json"]).await).expect("JSON");
    assert_eq!(version["serverVersion"]["minor"], "36");

    // A pod whose service account has an association gets the role's credentials.
    let aws_state = bed.aws().expect("AWS").gateway().state();
    let trust = json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": { "Service": "pods.eks.amazonaws.com" },
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }],
    })
    .to_string();
    let role = [("RoleName", "operator"), ("AssumeRolePolicyDocument", trust.as_str())];
    aws_state.moto().query("iam", "CreateRole", role).await.expect("a role");
    let before = bed.aws_inventory().await.expect("listed");
    assert!(before.contains(&("role".to_owned(), "operator".to_owned())), "{before:?}");
    associate(&bed).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = json!({
        "metadata": { "name": "operator" },
        "spec": {
            "tolerations": [{ "key": "CriticalAddonsOnly", "operator": "Exists" }],
            "containers": [{ "name": "main", "image": "registry.example/tenon-operator:1" }],
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod"))
        .await
        .expect("created");
    let log = bed.dir().join("logs/default_operator_main.log");
    let expected = format!("got ASIA eu-central-1 {}", bed.aws().expect("AWS").gateway().url());
    eventually("the pod has credentials", LIMIT, async || {
        let text = std::fs::read_to_string(&log)?;
        if text.contains(&expected) { Ok(true) } else { Err(text.into()) }
    })
    .await
    .expect("credentials");

    // The control API answers, for the machines, too.
    let control = bed.control().expect("a control API");
    assert_eq!(control.get("instances").await.expect("an answer"), json!([]));
    control.post("machines", &json!({ "bootSeconds": 0.1 })).await.expect("changed");
    control.post("machines", &json!({ "bootSecond": 0.1 })).await.expect_err("no such field");

    let after = bed.aws_inventory().await.expect("listed");
    let made: Vec<_> = after.iter().filter(|item| !before.contains(item)).collect();
    assert_eq!(made.len(), 1, "one association was made: {made:?}");
    bed.stop().await.expect("the bed stops");
}

/// Makes a Pod Identity association by EKS' own API, as the administrator.
async fn associate(bed: &Bed) {
    let path = format!("/clusters/{}/pod-identity-associations", bed.cluster());
    let body = json!({
        "namespace": "default",
        "serviceAccount": "default",
        "roleArn": "arn:aws:iam::123456789012:role/operator",
    });
    let caller = bed.aws().expect("AWS").caller();
    caller.rest("eks", http::Method::POST, &path, &body).await.expect("an association");
}
