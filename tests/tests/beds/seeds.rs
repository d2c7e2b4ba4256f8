//! Every manifest that users wrote is applied as they would apply it: it leads to Ready, to the
//! condition that names what is missing, or to the API server's refusal.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::{LIMIT, User, condition};
use tenon_bed::wait::eventually;

const ROLE: &str = "karpenter-node-role";
const PROFILE: &str = "karpenter-node-profile";
const RESERVATION: &str = "cr-0abc1234def567890";
const TRUST: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}"#;

/// All manifests, by file name.
fn seeds() -> BTreeMap<String, Value> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/seeds");
    let files = std::fs::read_dir(dir).expect("the fixtures are there");
    let paths = files.map(|file| file.expect("a file").path());
    let yaml = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    yaml.map(|path| {
        let text = std::fs::read_to_string(&path).expect("readable");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, serde_saphyr::from_str(&text).expect("YAML"))
    })
    .collect()
}

/// What the users had: a role and an instance profile for their nodes, made by somebody else.
async fn make_profile(bed: &Bed) {
    let caller = bed.aws().expect("AWS").caller();
    let role = [("RoleName", ROLE), ("AssumeRolePolicyDocument", TRUST)];
    caller.query("iam", "CreateRole", &role).await.expect("a role");
    let profile = [("InstanceProfileName", PROFILE)];
    caller.query("iam", "CreateInstanceProfile", &profile).await.expect("a profile");
    let both = [("InstanceProfileName", PROFILE), ("RoleName", ROLE)];
    caller.query("iam", "AddRoleToInstanceProfile", &both).await.expect("added");
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_of_users_lead_to_ready_or_say_what_is_missing() {
    let config = BedConfig {
        cluster: "my-cluster".to_owned(),
        region: "eu-north-1".to_owned(),
        ..BedConfig::default()
    };
    let bed = Arc::new(Bed::start(config).await.expect("the bed starts"));
    make_profile(&bed).await;
    let settings = json!({ "nodes": { "roleName": ROLE }, "defaults": { "enabled": false } });
    let tenon = Installation::ensure(&bed, &settings).await.expect("Tenon is installed");
    let mut seeds = seeds();

    excerpts_are_refused(tenon.user(), &mut seeds).await;
    the_default_pair_runs_pods(&tenon, &mut seeds).await;
    the_reserved_pair_says_what_is_missing(tenon.user(), &mut seeds).await;

    assert!(seeds.is_empty(), "nobody asserts what becomes of {:?}", seeds.keys());
    drop(tenon);
    let bed = Arc::into_inner(bed).expect("nobody else has the bed");
    bed.stop().await.expect("the bed stops");
}

fn take(seeds: &mut BTreeMap<String, Value>, name: &str) -> Value {
    seeds.remove(name).unwrap_or_else(|| panic!("the fixture {name} is missing"))
}

/// The excerpts show a detail only; the API server names what a whole NodePool has beside it.
async fn excerpts_are_refused(user: &User, seeds: &mut BTreeMap<String, Value>) {
    let spec = "spec.template.spec";
    for (name, missing) in [
        ("faq-ipv6-nodepool", &["nodeClassRef"][..]),
        ("faq-startup-taints-nodepool", &["nodeClassRef", "requirements"]),
    ] {
        let refusal = user.apply(&take(seeds, name)).await.expect_err("it is not whole");
        let kube::Error::Api(status) = refusal else { panic!("{name}: {refusal}") };
        assert_eq!(status.code, 422, "{name}: {}", status.message);
        for field in missing {
            let text = format!("{spec}.{field}: Required value");
            assert!(status.message.contains(&text), "{name} lacks {text:?}: {}", status.message);
        }
        let n_required = status.message.matches("Required value").count();
        assert_eq!(n_required, missing.len(), "{name}: {}", status.message);
    }
}

async fn the_default_pair_runs_pods(tenon: &Installation, seeds: &mut BTreeMap<String, Value>) {
    let user = tenon.user();
    for (name, kind) in [("default-ec2nodeclass", "EC2NodeClass"), ("default-nodepool", "NodePool")]
    {
        user.apply(&take(seeds, name)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        user.ready(kind, "default").await.unwrap_or_else(|error| panic!("{error}"));
    }
    let class = user.objects("EC2NodeClass").get("default").await.expect("it is there");
    assert_eq!(class.data["status"]["instanceProfile"], PROFILE);
    let zones: Vec<&str> = class.data["status"]["subnets"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|subnet| subnet["zone"].as_str())
        .collect();
    for zone in ["eu-north-1a", "eu-north-1b", "eu-north-1c"] {
        assert!(zones.contains(&zone), "{zones:?}");
    }

    // A pod that asks for the label of the pool's nodes gets one of them, launched as the class
    // says.
    user.scale("web", 1, &json!({ "nodepool": "default" })).await.expect("scaled");
    user.runs("web", 1).await.unwrap_or_else(|error| panic!("{error}"));
    let instances = tenon.instances().expect("AWS");
    let instance = instances.values().next().expect("one was launched");
    assert_eq!(instance.profile.as_ref().expect("a profile").name, PROFILE);
    assert_eq!(instance.tags["Environment"], "production");
    assert_eq!(instance.metadata_options.http_put_response_hop_limit, 1);
    assert_eq!((instance.volumes[0].size_gib, instance.volumes[0].encrypted), (50, true));
    let family = instance.instance_type.split('.').next().unwrap_or_default();
    assert!(
        ["m6i", "m6a", "m7i", "m7a", "c6i", "c6a", "r6i"].contains(&family),
        "{} is not what the pool allows",
        instance.instance_type
    );
    let node = user.nodes("default").await.expect("nodes").remove(0);
    assert_eq!(node.labels()["nodepool"], "default");
}

/// The reservation is somebody's in another account: the pair may be Ready without it, as on-demand
/// capacity serves, or says that it is missing.
async fn the_reserved_pair_says_what_is_missing(user: &User, seeds: &mut BTreeMap<String, Value>) {
    for name in ["reserved-capacity-ec2nodeclass", "reserved-gpu-nodepool"] {
        user.apply(&take(seeds, name)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for (kind, name) in [("EC2NodeClass", "reserved-capacity"), ("NodePool", "reserved-gpu")] {
        eventually(&format!("{kind} {name} is Ready or says why not"), LIMIT, async || {
            let object = user.objects(kind).get(name).await?;
            let (ready, reason, message) = condition(&object, "Ready");
            let (reserved, _, why) = condition(&object, "CapacityReservationsReady");
            match (ready.as_str(), reserved.as_str()) {
                ("True", _) => Ok(true),
                ("False", "False") => Ok(why.contains(RESERVATION)),
                ("False", _) if kind == "NodePool" => Ok(message.contains("reserved-capacity")),
                _ => Err(format!("Ready={ready} ({reason}: {message})").into()),
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    }
}
