//! The ways in which an installation can be made, each from install to an uninstall that leaves what was there before.

use std::path::Path;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use serde_json::{Value, json};
use tenon_tests::bed::{Bed, BedConfig};
use tenon_tests::clock::Clock;
use tenon_tests::front::eks::AuthenticationMode;

use super::{assert_unchanged, inventory, settings, tenon, write};

const MAP_ROLES: &str = "# those who may join\n- rolearn: arn:aws:iam::123456789012:role/others  # since 2021\n  username: system:node:{{EC2PrivateDNSName}}\n  groups: [system:bootstrappers, system:nodes]\n";

/// Installs, and says how it ended.
async fn install(bed: &Bed, name: &str, extra: &Value) -> String {
    let mut all = settings(bed);
    for (key, value) in extra.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    let file = write(bed, name, &format!("{all:#}\n")).display().to_string();
    let installed = tenon(bed, &["install", "-f", &file, "--yes"], None).await;
    assert_eq!(installed.code, 0, "{}", installed.stderr);
    let again = tenon(bed, &["install", "-f", &file, "--yes"], None).await;
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stdout.contains("Nothing was to be done"), "{}{}", again.stderr, again.stdout);
    file
}

async fn uninstall(bed: &Bed) {
    let removed = tenon(bed, &["uninstall", "--yes"], None).await;
    assert_eq!(removed.code, 0, "{}", removed.stderr);
}

async fn a_second_installer_is_told_who_holds_the_lock(bed: &Bed) {
    let leases: Api<Lease> = Api::namespaced(bed.client(), "kube-system");
    let now = MicroTime(Clock::system().now());
    let lease = Lease {
        metadata: ObjectMeta { name: Some("tenon-installer".to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some("ann@runner-7".to_owned()),
            lease_duration_seconds: Some(600),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&PostParams::default(), &lease).await.expect("a lease");
    let file = write(bed, "tenon.yaml", &format!("{:#}\n", settings(bed))).display().to_string();
    let refused = tenon(bed, &["install", "-f", &file, "--yes"], None).await;
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    for part in ["ann@runner-7", "kubectl -n kube-system delete lease tenon-installer"] {
        assert!(refused.stderr.contains(part), "{part} is not in:\n{}", refused.stderr);
    }
    leases.delete("tenon-installer", &DeleteParams::default()).await.expect("broken");
}

/// The operator on Fargate by IRSA, nodes by an instance profile of the installer's, in a namespace of its own.
async fn irsa_on_fargate_with_a_static_profile(bed: &Bed) {
    let extra = json!({
        "deploy": { "namespace": "tenon-system", "host": "fargate" },
        "nodes": { "instanceProfile": "static" },
    });
    install(bed, "irsa.yaml", &extra).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.client(), "tenon-system");
    let account = accounts.get("karpenter").await.expect("a service account");
    let annotations = account.metadata.annotations.expect("annotations");
    assert!(annotations["eks.amazonaws.com/role-arn"].ends_with("-controller"));
    let made = bed.aws_inventory().await.expect("inventory");
    for kind in ["identity provider", "Fargate profile", "instance profile"] {
        assert!(made.iter().any(|(of, _)| of == kind), "no {kind} in {made:?}");
    }
    assert!(!made.iter().any(|(kind, _)| kind == "Pod Identity association"));
    uninstall(bed).await;
}

/// A cluster that knows no access entries: its map gets one element, and comes back as it was, to the letter.
async fn nodes_by_aws_auth(bed: &Bed) {
    let eks = &bed.aws().expect("AWS").guard().eks;
    let mode = eks.authentication_mode();
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), "kube-system");
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": "aws-auth" },
        "data": { "mapRoles": MAP_ROLES },
    }))
    .expect("a ConfigMap");
    maps.create(&PostParams::default(), &map).await.expect("aws-auth");
    eks.set_authentication_mode(AuthenticationMode::ConfigMap);
    install(bed, "aws-auth.yaml", &json!({})).await;
    let of = async || {
        let map = maps.get("aws-auth").await.expect("aws-auth");
        (map.data.unwrap_or_default()["mapRoles"].clone(), map.metadata.annotations)
    };
    let (text, _) = of().await;
    assert!(text.starts_with(MAP_ROLES), "{text}");
    assert!(text.contains("role/tenon-bed-node"), "{text}");
    uninstall(bed).await;
    assert_eq!(of().await, (MAP_ROLES.to_owned(), None));
    eks.set_authentication_mode(mode);
    maps.delete("aws-auth", &DeleteParams::default()).await.expect("deleted");
}

/// Helm sees what `tenon` installed as a release of its own.
async fn helm_goes_on_with_an_installation(bed: &Bed) {
    let file = install(bed, "helm.yaml", &json!({})).await;
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenon");
    let helm = async |args: &[&str]| {
        let mut command = bed.command(Path::new("helm"));
        let output = command.args(args).args(["-n", "kube-system"]).output().await.expect("helm");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    };
    let list: Value = serde_json::from_str(&helm(&["list", "-o", "json"]).await).expect("JSON");
    assert_eq!(list[0]["name"], "tenon", "{list}");
    assert_eq!(list[0]["status"], "deployed", "{list}");
    let values = helm(&["get", "values", "tenon"]).await;
    assert!(values.contains("clusterName: bed"), "{values}");
    helm(&["upgrade", "tenon", chart, "--reuse-values", "--set", "logLevel=debug"]).await;
    let status = tenon(bed, &["diff", "-f", &file], None).await;
    assert_eq!(status.code, 5, "{}", status.stdout);
    assert!(status.stdout.contains("Deployment"), "{}", status.stdout);
    let repaired = tenon(bed, &["install", "-f", &file, "--yes"], None).await;
    assert_eq!(repaired.code, 0, "{}", repaired.stderr);
    let status = tenon(bed, &["diff", "-f", &file], None).await;
    assert_eq!(status.code, 0, "{}", status.stdout);
    let list: Value = serde_json::from_str(&helm(&["list", "-o", "json"]).await).expect("JSON");
    assert_eq!((&list[0]["revision"], &list[1]), (&json!("3"), &Value::Null), "{list}");
    helm(&["uninstall", "tenon", "--wait"]).await;
    uninstall(bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_install_works_and_leaves_what_was_there_before() {
    let bed = Bed::start(BedConfig::default()).await.expect("the bed starts");
    let before = inventory(&bed).await;
    a_second_installer_is_told_who_holds_the_lock(&bed).await;
    assert_unchanged(&before, &inventory(&bed).await);
    irsa_on_fargate_with_a_static_profile(&bed).await;
    assert_unchanged(&before, &inventory(&bed).await);
    nodes_by_aws_auth(&bed).await;
    assert_unchanged(&before, &inventory(&bed).await);
    helm_goes_on_with_an_installation(&bed).await;
    assert_unchanged(&before, &inventory(&bed).await);
    bed.stop().await.expect("the bed stops");
}
