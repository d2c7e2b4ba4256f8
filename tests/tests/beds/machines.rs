//! The machines of a bed: an instance becomes a Node by its user data, its pods run, and it falls
//! silent when it ends.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenon_bed::bed::caller::Caller;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kwok;
use tenon_bed::wait::{eventually, must};

const LIMIT: Duration = Duration::from_mins(1);
const TRUST: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}"#;

/// What nodeadm reads on an Amazon Linux 2023 machine.
fn user_data(bed: &Bed) -> String {
    let plane = bed.control_plane();
    let config = json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": bed.cluster(), "apiServerEndpoint": plane.url(), "certificateAuthority": STANDARD.encode(plane.ca()),
                "cidr": "10.100.0.0/16",
            },
            "kubelet": {
                "config": { "maxPods": 29, "clusterDNS": ["10.100.0.10"] },
                "flags": ["--node-labels=team=red"],
            },
        },
    });
    let head = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: application/node.eks.aws\n";
    STANDARD.encode(format!("{head}\n{config}\n--//--"))
}

async fn launch(bed: &Bed, caller: &Caller) -> String {
    launch_so_many(bed, caller, "1").await.remove(0)
}

async fn launch_so_many(bed: &Bed, caller: &Caller, count: &str) -> Vec<String> {
    let aws = bed.aws().expect("AWS");
    let aws_state = aws.gateway().state();
    let ami = aws_state.amis().iter().find(|ami| {
        ami.recommended
            && ami.name.contains("al2023")
            && ami.name.contains("x86_64-standard")
            && ami.kubernetes == "1.36"
    });
    let user_data = user_data(bed);
    let parameters = [
        ("ImageId", ami.expect("an image of Amazon Linux 2023").id.as_str()),
        ("InstanceType", "m6i.large"),
        ("MinCount", count),
        ("MaxCount", count),
        ("SubnetId", aws.seed().subnet_ids[0].as_str()),
        ("SecurityGroupId.1", aws.seed().node_security_group_id.as_str()),
        ("IamInstanceProfile.Name", "machines"),
        ("UserData", user_data.as_str()),
    ];
    let answer = caller.query("ec2", "RunInstances", &parameters).await.expect("launched");
    let launched = answer.items("instancesSet").iter();
    launched.map(|it| it.get("instanceId").expect("an id").to_owned()).collect()
}

async fn node_of(bed: &Bed, instance: &str) -> Option<Node> {
    let nodes: Api<Node> = Api::all(bed.client());
    let all = nodes.list(&kube::api::ListParams::default()).await.expect("listed").items;
    let of = |node: &Node| {
        node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default()
    };
    all.into_iter().find(|node| of(node).ends_with(instance))
}

fn ready(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|it| it.type_ == "Ready"));
    ready.map(|it| it.status.clone()).unwrap_or_default()
}

/// What a stall of the host does: the lease expires, the node controller gives the Node up, and
/// then heartbeats go on.
async fn a_machine_that_the_cluster_took_for_dead_posts_again(bed: &Bed, instance: &str) {
    let name = node_of(bed, instance).await.expect("it is there").name_any();
    must(kwok::silence(bed.client(), &name, bed.clock()).await);
    let is = async |status: &str| {
        Ok(node_of(bed, instance).await.is_some_and(|node| ready(&node) == status))
    };
    must(eventually("nothing is heard of it", LIMIT, async || is("Unknown").await).await);
    must(kwok::wake(bed.client(), &name).await);
    must(eventually("it is Ready again", LIMIT, async || is("True").await).await);
}

async fn a_machine_whose_name_is_taken_says_so_and_joins_when_it_is_free(
    bed: &Bed,
    caller: &Caller,
) {
    let aws = bed.aws().expect("AWS");
    aws.machines().configure(|config| config.boot = Duration::from_secs(2));
    let instance = launch(bed, caller).await;
    let private = aws.gateway().state().instances().get(&instance).expect("it is there");
    let name = private.private_dns_name.clone();
    let nodes: Api<Node> = Api::all(bed.client());
    let mut other = kwok::node(&name, "1", "1Gi", "1");
    let id = "aws:///eu-central-1a/i-another";
    other.spec.get_or_insert_default().provider_id = Some(id.to_owned());
    must(nodes.create(&PostParams::default(), &other).await);
    let problem = || aws.machines().problems().get(&instance).cloned();
    must(
        eventually("the bed says whose name it has", LIMIT, async || {
            Ok(problem().is_some_and(|it| it.contains(&name) && it.contains(id)))
        })
        .await,
    );
    must(nodes.delete(&name, &DeleteParams::default()).await);
    must(
        eventually("it joins", LIMIT, async || {
            Ok(node_of(bed, &instance).await.is_some_and(|node| ready(&node) == "True"))
        })
        .await,
    );
    assert_eq!(problem(), None);
}

async fn no_instance_gets_the_address_of_a_system_node(bed: &Bed, caller: &Caller) {
    let aws = bed.aws().expect("AWS");
    // So many never have to join.
    aws.machines().configure(|config| config.boot = Duration::from_hours(1));
    let launched = launch_so_many(bed, caller, "300").await;
    assert_eq!(launched.len(), 300);
    let all = aws.gateway().state().instances().all();
    let addresses: Vec<String> =
        launched.iter().map(|id| all[id].interfaces[0].private_ip.to_string()).collect();
    assert!(addresses.iter().any(|it| it == "10.0.1.11"), "they have come past the system node");
    assert!(!addresses.iter().any(|it| it == "10.0.1.10"), "that is the system node's");
    for ids in launched.chunks(100) {
        let ids: Vec<(String, &str)> = ids
            .iter()
            .enumerate()
            .map(|(index, id)| (format!("InstanceId.{}", index + 1), id.as_str()))
            .collect();
        let ids: Vec<(&str, &str)> = ids.iter().map(|(key, id)| (key.as_str(), *id)).collect();
        must(caller.query("ec2", "TerminateInstances", &ids).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_becomes_a_node_when_it_may_and_falls_silent_when_it_ends() {
    let parts = Parts { tenon: false, kubelet: false, ..Parts::all() };
    let config = BedConfig { parts, node_monitor_grace_seconds: 12, ..BedConfig::default() };
    let bed = Bed::start(config).await.expect("the bed starts");
    let aws = bed.aws().expect("AWS");
    let caller = aws.caller();
    let role = [("RoleName", "machines"), ("AssumeRolePolicyDocument", TRUST)];
    caller.query("iam", "CreateRole", &role).await.expect("a role");
    let name = [("InstanceProfileName", "machines")];
    caller.query("iam", "CreateInstanceProfile", &name).await.expect("a profile");
    let both = [("InstanceProfileName", "machines"), ("RoleName", "machines")];
    caller.query("iam", "AddRoleToInstanceProfile", &both).await.expect("added");

    // Without an access entry its role may not join, and the bed says so.
    let stranger = launch(&bed, &caller).await;
    eventually("the bed says why the machine can't join", LIMIT, async || {
        Ok(aws
            .machines()
            .problems()
            .get(&stranger)
            .is_some_and(|problem| problem.contains("access entry")))
    })
    .await
    .expect("said");
    assert!(node_of(&bed, &stranger).await.is_none());

    // With one it joins with what its user data says, gets Ready, and runs pods.
    let path = format!("/clusters/{}/access-entries", bed.cluster());
    let entry =
        json!({ "principalArn": "arn:aws:iam::123456789012:role/machines", "type": "EC2_LINUX" });
    caller.rest("eks", http::Method::POST, &path, &entry).await.expect("an access entry");
    let instance = launch(&bed, &caller).await;
    eventually("the machine is a Ready node", LIMIT, async || {
        Ok(node_of(&bed, &instance).await.is_some_and(|node| ready(&node) == "True"))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}; {:?}", aws.machines().problems()));
    let node = node_of(&bed, &instance).await.expect("it is there");
    assert_eq!(node.labels()["team"], "red");
    assert_eq!(node.labels()["node.kubernetes.io/instance-type"], "m6i.large");
    let pods: Api<Pod> = Api::namespaced(bed.client(), "default");
    let pod = json!({
        "metadata": { "name": "pod" },
        "spec": { "nodeSelector": { "team": "red" }, "containers": [{ "name": "main", "image": "registry.example/x:1" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod"))
        .await
        .expect("created");
    eventually("its pod runs", LIMIT, async || {
        let status = pods.get("pod").await?.status.unwrap_or_default();
        Ok(status.phase.as_deref() == Some("Running"))
    })
    .await
    .expect("kwok plays it");

    a_machine_that_the_cluster_took_for_dead_posts_again(&bed, &instance).await;
    a_machine_whose_name_is_taken_says_so_and_joins_when_it_is_free(&bed, &caller).await;
    no_instance_gets_the_address_of_a_system_node(&bed, &caller).await;

    // Terminated: heartbeats stop, and Kubernetes notices by itself.
    caller
        .query("ec2", "TerminateInstances", &[("InstanceId.1", instance.as_str())])
        .await
        .expect("terminated");
    let leases: Api<Lease> = Api::namespaced(bed.client(), "kube-node-lease");
    eventually("the lease is not kwok's any more", LIMIT, async || {
        let lease = leases.get(&node.name_any()).await?;
        Ok(lease.spec.and_then(|spec| spec.holder_identity).as_deref() == Some("silent"))
    })
    .await
    .expect("it falls silent");
    eventually("the node is not Ready any more", LIMIT, async || {
        Ok(node_of(&bed, &instance).await.is_none_or(|node| ready(&node) == "Unknown"))
    })
    .await
    .expect("the node controller notices");
    bed.stop().await.expect("the bed stops");
}
