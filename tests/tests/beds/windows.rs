//! Windows nodes: pods that select Windows get nodes of an EC2NodeClass with a Windows image, whose
//! user data the image's own bootstrap understands, and no others do.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::{instance_of, one_of};
use tenon_bed::wait::must;

const ADDRESSES: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// What an m6i.large costs per hour with Windows, as published; with Linux it is 0.096.
const PRICE: f64 = 0.188;

/// An EC2NodeClass like the default one with an image of Windows Server, and a NodePool of it.
async fn windows(tenon: &Installation, name: &str, alias: &str) {
    let user = tenon.user();
    let mut spec: Value = must(user.objects("EC2NodeClass").get("default").await).data;
    spec = spec["spec"].take();
    spec["amiSelectorTerms"] = json!([{ "alias": alias }]);
    spec["userData"] = json!("New-Item -Path C:\\data -ItemType Directory\n");
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": { "name": name }, "spec": spec,
    });
    must(user.apply(&class).await);
    must(user.ready("EC2NodeClass", name).await);
    let requirements = json!([
        one_of("kubernetes.io/os", &["windows"]),
        one_of("node.kubernetes.io/instance-type", &["m6i.large", "m6g.large"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
    ]);
    let of_class = json!({ "template": { "spec": { "nodeClassRef": { "name": name } } } });
    must(user.pool(name, &requirements, &of_class).await);
}

/// What `tenon` answers.
async fn answer(bed: &Bed, args: &[&str]) -> Value {
    let finished = must(bed.run_tenon(&[args, &["-o", "json"]].concat()).await);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).expect("an answer in JSON")
}

/// The operator and the commands know what the node of a NodePool costs.
async fn is_priced(bed: &Bed, pool: &str) {
    let is_price = |price: &Value| price.as_f64().is_some_and(|it| (it - PRICE).abs() < 1e-6);
    let decided = answer(bed, &["decisions", "--nodepool", pool]).await;
    let mut launches = decided["decisions"].as_array().expect("a list").iter();
    let launch = launches.find(|it| it["kind"] == "launch").expect("a launch");
    assert!(is_price(&launch["price"]["after"]), "{launch:#}");
    let cost = answer(bed, &["cost", "--by", "nodepool"]).await;
    let mut rows = cost["rows"].as_array().expect("a list").iter();
    let row = rows.find(|row| row["name"] == pool).expect("the NodePool");
    assert!(is_price(&row["pricePerHour"]), "{row:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_for_windows_run_on_nodes_that_join_as_windows_does() {
    let bed = Arc::new(Bed::start(BedConfig::default()).await.expect("the bed starts"));
    let settings = json!({ "nodes": { "windows": true } });
    let tenon = must(Installation::ensure(&bed, &settings).await);
    let user = tenon.user();
    for (name, alias, build) in [
        ("iis-2022", "windows2022@latest", "10.0.20348"),
        ("iis-2025", "windows2025@latest", "10.0.26100"),
    ] {
        windows(&tenon, name, alias).await;
        // As the webhook of the VPC resource controller leaves a pod: it requests its address.
        let amounts = json!({ "cpu": "500m", "memory": "512Mi", ADDRESSES: "1" });
        let pod = json!({ "spec": {
            "nodeSelector": { "kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build },
            "containers": [{
                "name": "main", "image": "registry.example/iis:1",
                "resources": { "requests": amounts, "limits": { ADDRESSES: "1" } },
            }],
        } });
        must(user.deploy(name, 2, &pod).await);
        must(user.runs(name, 2).await);
        let nodes = must(user.nodes(name).await);
        let [node] = &nodes[..] else { panic!("one node is enough: {nodes:?}") };
        let label = |key: &str| node.labels().get(key).map(String::as_str);
        assert_eq!(label("kubernetes.io/os"), Some("windows"));
        assert_eq!(label("node.kubernetes.io/windows-build"), Some(build));
        assert_eq!(label("kubernetes.io/arch"), Some("amd64"), "there is no Windows for arm64");
        let claims = must(user.claims(name).await);
        let claim = &claims[0].data["status"];
        let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
        let capacity = capacity.expect("a capacity");
        for resource in ["pods", ADDRESSES] {
            let planned = claim["capacity"][resource].as_str();
            assert_eq!(planned, Some(capacity[resource].0.as_str()), "{resource}");
        }
        let alive = must(tenon.instances());
        let disks = &alive[&instance_of(&claims[0])].volumes;
        assert_eq!(disks.iter().map(|disk| disk.size_gib).collect::<Vec<_>>(), [50]);
        is_priced(&bed, name).await;
    }
    drop(tenon);
    let bed = Arc::into_inner(bed).expect("nobody else has the bed");
    bed.stop().await.expect("the bed stops");
}
