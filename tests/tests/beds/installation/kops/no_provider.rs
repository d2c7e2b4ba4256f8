//! A cluster without an OIDC provider: the operator has the role of the control plane.

use std::sync::Arc;

use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::kops::{CLUSTER, CONTROL_PLANE, cluster_without_oidc_provider, instance_group};
use tenon_bed::user::{LIMIT, NodeClass, User};
use tenon_bed::wait::{eventually, must};

use super::{Kops, denied, install, refusal, uninstall, unrestrict};

/// What the Cluster's owner adds to the role for a purpose of their own.
const OWN: &str =
    r#"[{"Sid":"Own","Effect":"Allow","Action":"s3:ListAllMyBuckets","Resource":"*"}]"#;

/// The characters of kOps' own policy for such roles, in most of its integration tests at most.
const POLICY: usize = 6_214;

impl Kops {
    /// What `tenon kops export cluster` prints, and the statements for the control plane in it.
    async fn exported(&self) -> (Value, String) {
        let printed = self.tenon(&["export", "cluster", "-o", "json"]).await;
        assert_eq!(printed.code, 0, "{}", printed.stderr);
        let said = printed.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("all that runs on the network of its nodes has them"), "{said}");
        let spec: Value = must(serde_json::from_str(&printed.stdout));
        let statements = spec["spec"]["additionalPolicies"]["master"].as_str().map(str::to_owned);
        (spec, statements.expect("statements"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_oidc_provider_the_operator_has_the_role_of_the_control_plane() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let kops = Kops { bed: Arc::clone(&bed) };
    let user = User::new(bed.client(), NodeClass::Ec2);
    kops.put("config", &cluster_without_oidc_provider(OWN)).await;
    let web = json!({ "nodeLabels": { "tier": "web" } });
    kops.put("instancegroup/web", &instance_group("web", &web)).await;
    kops.update(&["web"], 58).await;
    kops.create_nodes().await;
    kops.controller(CLUSTER).await;
    let export = ["export", "cluster"];
    kops.refused(&export, "holds no InstanceGroup of the control plane").await;
    let masters = json!({ "manager": "CloudGroup", "role": "ControlPlane", "minSize": 2 });
    let masters = instance_group("control-plane", &masters);
    kops.put("instancegroup/control-plane", &masters).await;
    kops.refused(&export, &format!("the instance profile {CONTROL_PLANE} does not exist")).await;

    // kOps' add-ons have taken the room; and there is some.
    must(kops.world().control_plane_with_role(8_561).await);
    kops.refused(&export, "a role may have 10240 together: let kOps create an OIDC").await;
    must(kops.world().put_own_policy(POLICY).await);
    let lacks = refusal(&install(&kops, &["--yes"], None).await);
    assert!(lacks.contains(&format!("role {CONTROL_PLANE} lacks permissions")), "{lacks}");
    let (spec, statements) = kops.exported().await;
    assert!(statements.contains("s3:ListAllMyBuckets"), "{statements}");
    must(kops.world().add_policy(&statements).await);
    kops.put("config", &cluster_without_oidc_provider(&statements)).await;
    assert_eq!(kops.exported().await.0, spec, "another version would add them once more");

    // It installs, launches nodes and goes, as with a role of its own.
    kops.restrict("caller").await;
    let done = install(&kops, &["--yes"], None).await;
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let again = install(&kops, &["--yes", "-o", "json"], None).await;
    let again: Value = must(serde_json::from_str(&again.stdout));
    assert_eq!((&again["changed"], &again["ready"]), (&json!(0), &json!(true)), "{again}");
    // Every node of the control plane has a pod with the ports, and other pods come all the same.
    let changed = install(&kops, &["--yes", "--set", "logLevel=debug", "-o", "json"], None).await;
    assert_eq!(changed.code, 0, "{}{}", changed.stdout, changed.stderr);
    let changed: Value = must(serde_json::from_str(&changed.stdout));
    assert_eq!(changed["actions"][0]["id"], "canary", "{changed}");
    must(user.scale("shop", 2, &json!({ "tier": "web" })).await);
    must(user.runs("shop", 2).await);
    must(user.remove("shop").await);
    let gone = async || Ok(user.claims("web").await?.is_empty());
    must(eventually("the empty node is gone", LIMIT, gone).await);
    let removed = uninstall(&kops, &["--yes", "--force-capacity"], None).await;
    assert_eq!(removed.code, 0, "{}{}", removed.stdout, removed.stderr);
    assert_eq!(denied(&bed), Vec::<String>::new());
    unrestrict(&bed);

    // By that role alone.
    let calls = must(bed.aws()).gateway().control().calls().all();
    let launch = calls.iter().find(|call| call.action == "ec2:CreateFleet").expect("a launch");
    let role = format!("assumed-role/{CONTROL_PLANE}/i-");
    assert!(launch.caller.contains(&role), "{}", launch.caller);
    let by_token = calls.iter().filter(|call| call.action.ends_with("WithWebIdentity"));
    assert_eq!(by_token.count(), 0);
}
