//! What goes wrong with an operator at work, and what stands in the way of its nodes: the doctor
//! finds it where the operator tells of it.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::control::Control;
use tenon_aws_double::faults::Shortage;
use tenon_aws_double::instance::State;
use tenon_aws_double::process::Signal;
use tenon_aws_double::rewrite::Rewrite;
use tenon_bed::bed::Bed;
use tenon_bed::installation::Installation;
use tenon_bed::kubelet::Running;
use tenon_bed::user::{LIMIT, condition, one_of};
use tenon_bed::wait::{eventually, must};

use super::super::requests::{apply, ec2, run_instance};

/// What the doctor still tells of when all is well again: instances and events of the last hour.
pub(super) const PAST: [&str; 2] = ["NO-01", "OP-05"];

/// As often as the doctor tolerates.
const MANY_RESTARTS: i32 = 3;

/// By which words the doctor names what [`breaks`] does.
pub(super) const FAULTS: [(&str, &str); 9] = [
    ("AM-03", "is encrypted with arn:aws:kms:eu-central-1:123456789012:key/golden"),
    ("EX-12", "was created after its access entry"),
    ("IM-01", "403 Forbidden"),
    ("NC-01", "SubnetsReady is not true since"),
    ("NO-01", "the volume's KMS key can't be used"),
    ("NP-02", "lost is not ready"),
    ("OP-02", "was started"),
    ("OP-04", "a call to AWS is denied"),
    ("OP-05", "AWS currently has no capacity for the requested instances"),
];

fn control(bed: &Bed) -> &Control {
    must(bed.aws()).gateway().control()
}

fn deployments(bed: &Bed) -> Api<Deployment> {
    Api::namespaced(bed.client(), "kube-system")
}

fn pods(bed: &Bed) -> Api<Pod> {
    Api::namespaced(bed.client(), "kube-system")
}

/// Breaks the operator and what it looks after, and waits until it has told of all of it.
pub(super) async fn breaks(tenon: &Installation) {
    let bed = tenon.bed();
    // The first call that is refused comes when the one that waits for messages has ended.
    let mark = must(tenon.logs().mark());
    control(bed).fail("sqs:ReceiveMessage", None, 403, "AccessDenied");
    image_that_can_not_be_pulled(bed).await;
    keys_and_entries(bed).await;
    launch_that_ends(bed).await;
    tokio::join!(class_without_subnets(tenon), types_without_capacity(tenon), crashes(tenon));
    must(tenon.logs().says(&mark, &["AccessDenied"]).await);
}

/// The bed's kubelet has every image: this is the pod of one that has not.
async fn image_that_can_not_be_pulled(bed: &Bed) {
    let deployment = must(deployments(bed).get("karpenter").await);
    let labels = deployment.spec.selector.match_labels;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "karpenter-mirror", "namespace": "kube-system", "labels": labels },
        "spec": {
            "nodeSelector": { "example.com/nowhere": "true" },
            "containers": [{ "name": "controller", "image": "mirror.example/tenon-operator:1" }],
        },
    });
    apply(bed, "pods", &pod).await;
    let status = json!({ "status": { "containerStatuses": [{
        "name": "controller", "image": "mirror.example/tenon-operator:1", "imageID": "",
        "ready": false, "restartCount": 0,
        "state": { "waiting": {
            "reason": "ErrImagePull",
            "message": "pulling from host mirror.example failed with status code: 403 Forbidden",
        }},
    }]}});
    let patch = Patch::Strategic(status);
    must(pods(bed).patch_status("karpenter-mirror", &PatchParams::default(), &patch).await);
}

/// An access entry that is older than its role, and images whose snapshots are encrypted with a key
/// of the company's.
async fn keys_and_entries(bed: &Bed) {
    let zone = format!("{}a", bed.region());
    let volume = [("Size", "1"), ("AvailabilityZone", &*zone)];
    let volume = ec2(bed, "CreateVolume", &volume, &["volumeId"]).await;
    let snapshot = ec2(bed, "CreateSnapshot", &[("VolumeId", &volume)], &["snapshotId"]).await;
    let control = control(bed);
    let older = Rewrite::json(json!({ "accessEntry": { "createdAt": 1 } }));
    control.rewrite("eks:DescribeAccessEntry", older);
    let disk = "imagesSet/item/blockDeviceMapping/item/ebs";
    let (encrypted, of) = (format!("{disk}/encrypted"), format!("{disk}/snapshotId"));
    let image = [(&*encrypted, "true"), (&*of, &*snapshot)];
    control.rewrite("ec2:DescribeImages", Rewrite::texts(&image));
    let key = "arn:aws:kms:eu-central-1:123456789012:key/golden";
    control.rewrite("ec2:DescribeSnapshots", Rewrite::texts(&[("snapshotSet/item/kmsKeyId", key)]));
}

/// An instance that ends right after launch, as where its volume's key can't be used.
async fn launch_that_ends(bed: &Bed) {
    let id = run_instance(bed).await;
    let reason = ("Client.InternalError", "Client.InternalError: Client error on launch");
    must(bed.aws()).gateway().state().instances().begin(&id, State::ShuttingDown, Some(reason));
}

fn class(bed: &Bed) -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": { "name": "lost" },
        "spec": {
            "role": format!("tenon-{}-node", bed.cluster()),
            "amiSelectorTerms": [{ "alias": "al2023@latest" }],
            "subnetSelectorTerms": [{ "id": "subnet-0123456789abcdef0" }],
            "securityGroupSelectorTerms": [
                { "tags": { "karpenter.sh/discovery": bed.cluster() } },
            ],
        },
    })
}

async fn class_without_subnets(tenon: &Installation) {
    let user = tenon.user();
    must(user.apply(&class(tenon.bed())).await);
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": { "name": "lost" },
        "spec": { "limits": { "cpu": "10" }, "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "lost" },
            "requirements": [],
        }}},
    });
    must(user.apply(&pool).await);
    for kind in ["EC2NodeClass", "NodePool"] {
        let what = format!("the {kind} lost is not Ready");
        let look = async || {
            let object = user.objects(kind).get("lost").await?;
            Ok(condition(&object, "Ready").0 == "False")
        };
        must(eventually(&what, LIMIT, look).await);
    }
}

async fn types_without_capacity(tenon: &Installation) {
    let none: Shortage = must(serde_json::from_value(json!({ "instanceType": "c5.large" })));
    control(tenon.bed()).ice(none);
    let types = json!([one_of("node.kubernetes.io/instance-type", &["c5.large"])]);
    must(tenon.user().pool("scarce", &types, &json!({ "limits": { "cpu": "10" } })).await);
    must(tenon.user().scale("scarce", 1, &json!({ "scenario": "scarce" })).await);
    let what = "the operator tells that there is no capacity";
    let look = async || Ok(!tenon.user().events("InsufficientCapacityError").await?.is_empty());
    must(eventually(what, LIMIT, look).await);
    must(tenon.user().remove("scarce").await);
}

/// The operator's pod that does not lead is killed whenever it runs, until it has been started
/// often.
async fn crashes(tenon: &Installation) {
    let leases: Api<Lease> = Api::namespaced(tenon.bed().client(), "kube-system");
    let lease = must(leases.get("karpenter-leader-election").await);
    let leader = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    let follows = |operator: &Running| !leader.starts_with(&operator.pod);
    let what = "a pod of the operator is started again and again";
    let look = async || {
        let mut followers = tenon.operators().into_iter().filter(follows);
        let restarts = followers.next().map(|operator| {
            if operator.restarts <= MANY_RESTARTS {
                operator.signal(Signal::Kill);
            }
            operator.restarts
        });
        let all = pods(tenon.bed()).list(&ListParams::default()).await?;
        let statuses =
            all.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        let told = statuses.flatten().any(|status| status.restart_count > MANY_RESTARTS);
        if told { Ok(true) } else { Err(format!("it was started again {restarts:?} times").into()) }
    };
    must(eventually(what, LIMIT, look).await);
}

/// Nobody works any more, and who works next is told of a queue by its ARN.
pub(super) async fn stops(bed: &Bed) {
    let queue = "arn:aws:sqs:eu-central-1:123456789012:tenon-bed";
    let env = json!([{ "name": "INTERRUPTION_QUEUE", "value": queue }]);
    let template = json!({ "spec": { "containers": [{ "name": "controller", "env": env }] } });
    let none = Patch::Strategic(json!({ "spec": { "replicas": 0, "template": template } }));
    must(deployments(bed).patch("karpenter", &PatchParams::default(), &none).await);
    must(pods(bed).delete("karpenter-mirror", &DeleteParams::default().grace_period(0)).await);
    let what = "no pod of the operator is left";
    let look = async || {
        let all = pods(bed).list(&ListParams::default()).await?;
        Ok(!all.iter().any(|pod| pod.name_any().starts_with("karpenter-")))
    };
    must(eventually(what, LIMIT, look).await);
}

/// What `tenon install` does not repair.
pub(super) async fn mend(tenon: &Installation) {
    control(tenon.bed()).heal_all();
    let all = DeleteParams::default();
    for (kind, name) in [("NodePool", "lost"), ("NodePool", "scarce"), ("EC2NodeClass", "lost")] {
        must(tenon.user().objects(kind).delete(name, &all).await);
    }
}
