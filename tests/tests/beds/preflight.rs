//! The checks against a real API server and the AWS double: nothing is wrong on a healthy bed, and
//! each fault that is made is found and named.

use std::sync::Arc;

use http::Method;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::conditions;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tenon_aws_double::faults::{Effect, Fault};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::{NodeClass, User};
use tenon_bed::wait::must;

use super::requests::apply;
use super::verdicts::{Verdicts, fatal, passes, tenon_with};

mod at_work;

/// The checks that fail here, each after it has passed.
pub(super) const BROKEN: &[&str] = &[
    "AM-01", "AM-03", "CL-09", "CL-14", "EX-01", "EX-03", "EX-04", "EX-05", "EX-10", "EX-12",
    "EX-14", "IA-02", "IA-03", "IA-07", "IA-08", "IA-10", "IA-11", "IA-12", "IM-01", "NC-01",
    "NC-02", "NO-01", "NP-01", "NP-02", "OP-01", "OP-02", "OP-03", "OP-04", "OP-05", "QS-02",
    "QS-03", "SG-02", "SN-06", "SN-07", "ZS-01",
];

const SCALED_OBJECTS: &str = "scaledobjects.keda.sh";
const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";
/// The role of the system nodes, which only EC2 may take.
const SYSTEM_ROLE: &str = "arn:aws:iam::123456789012:role/bed-system-nodes";
const AGENT: &str = "eks-pod-identity-agent";

/// A Deployment whose pods find no node: nobody's NodePool has this label.
fn program(name: &str, image: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"example.com/nowhere": "true"},
                    "containers": [{"name": "main", "image": image}],
                },
            },
        },
    })
}

/// A NodePool that may launch as much as it likes, though of nothing.
fn pool_without_limits() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "boundless"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["none"]},
            ],
        }}},
    })
}

/// An EC2NodeClass whose nodes need more than Linux nodes do, with a tag that the bill can't be
/// split by.
fn windows(bed: &Bed) -> Value {
    let here = json!([{"tags": {"karpenter.sh/discovery": bed.cluster()}}]);
    json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "windows"},
        "spec": {
            "amiSelectorTerms": [{"alias": "windows2022@latest"}],
            "tags": {"team": "shop", "stage": "prod"},
            "role": format!("tenon-{}-node", bed.cluster()),
            "subnetSelectorTerms": here,
            "securityGroupSelectorTerms": here,
        },
    })
}

/// A webhook that nobody answers. It selects no namespace, so that it is in nobody's way here.
fn webhook() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gone"},
        "webhooks": [{
            "name": "gone.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"no-namespace": "has-this"}},
            "clientConfig": {"service": {"namespace": "default", "name": "gone"}},
            "rules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }],
        }],
    })
}

/// What somebody does to a cluster, its account and its network, and by which words the checks name
/// it. Each passes without it.
const FAULTS: [(&str, &str); 20] = [
    ("CL-14", "gone.example.com"),
    ("EX-01", "default/karpenter-old"),
    ("EX-03", "default/cluster-autoscaler runs"),
    ("EX-04", "default/aws-node-termination-handler"),
    ("EX-05", "default/descheduler"),
    ("EX-14", "ScaledObject default/worker: error parsing azure queue metadata"),
    ("SN-06", "enableDnsHostnames is off"),
    ("SN-07", "is tagged for cluster other"),
    ("IA-02", "missing"),
    ("IA-03", "role/somebody"),
    ("IA-07", "missing"),
    ("IA-08", "no access entry"),
    ("IA-11", "ec2:CreateFleet"),
    ("IA-12", "EC2NodeClass windows launches Windows nodes"),
    ("QS-03", "is off"),
    ("NC-02", "windows: stage is not active in billing"),
    ("NP-01", "boundless has no limits"),
    ("OP-01", "has no pods"),
    ("OP-03", "no replica has ever led"),
    ("QS-02", "tenon-bed in kube-system/karpenter is not a name"),
];

fn no_fault_is_left(report: &Value, but: &[&str]) {
    let all = FAULTS.into_iter().chain(at_work::FAULTS).map(|(id, _)| id);
    passes(report, all.filter(|id| !but.contains(id)));
}

async fn break_kubernetes(bed: &Bed) {
    for (name, image) in [
        ("cluster-autoscaler", "autoscaling/cluster-autoscaler:v1.34.0"),
        ("karpenter-old", "public.ecr.aws/karpenter/controller:1.6.0"),
        (
            "aws-node-termination-handler",
            "public.ecr.aws/aws-ec2/aws-node-termination-handler:v1.25.0",
        ),
        ("descheduler", "registry.k8s.io/descheduler/descheduler:v0.34.0"),
    ] {
        apply(bed, "deployments", &program(name, image)).await;
    }
    apply(bed, "validatingwebhookconfigurations", &webhook()).await;
    break_keda(bed).await;
    apply(bed, "nodepools", &pool_without_limits()).await;
    apply(bed, "ec2nodeclasses", &windows(bed)).await;
    let annotated = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": "karpenter",
            "namespace": "kube-system",
            "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/somebody"},
        },
    });
    apply(bed, "serviceaccounts", &annotated).await;
}

/// A ScaledObject as KEDA leaves it that can't read its trigger. KEDA itself has a bed of its own.
async fn break_keda(bed: &Bed) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1alpha1",
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": schema},
    });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": SCALED_OBJECTS},
        "spec": {
            "group": "keda.sh",
            "scope": "Namespaced",
            "names": {"kind": "ScaledObject", "plural": "scaledobjects"},
            "versions": [version],
        },
    });
    apply(bed, "customresourcedefinitions", &crd).await;
    let crds: Api<CustomResourceDefinition> = Api::all(bed.client());
    must(await_condition(crds, SCALED_OBJECTS, conditions::is_crd_established()).await);
    let broken = json!({
        "type": "Ready",
        "status": "False",
        "reason": "ScaledObjectCheckFailed",
        "message": "error parsing azure queue metadata",
    });
    let scaled = json!({
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "worker", "namespace": "default"},
        "status": {"conditions": [broken]},
    });
    apply(bed, "scaledobjects", &scaled).await;
}

async fn break_aws(bed: &Bed) {
    let aws = must(bed.aws());
    let (caller, seed) = (aws.caller(), aws.seed());
    let role = format!("tenon-{}-controller", bed.cluster());
    let named = [("RoleName", role.as_str())];
    let policy = "KarpenterControllerNodeLifecyclePolicy";
    let policy = [named[0], ("PolicyName", policy)];
    must(caller.query("iam", "DeleteRolePolicy", &policy).await);
    must(caller.query("iam", "DeleteRole", &[("RoleName", SPOT_ROLE)]).await);
    aws.guard().eks.remove_addon(AGENT);
    let entries = format!("/clusters/{}/access-entries", bed.cluster());
    let found = must(caller.rest("eks", Method::GET, &entries, &Value::Null).await);
    let found = found["accessEntries"].as_array().cloned().unwrap_or_default();
    let node_role = found.iter().filter_map(Value::as_str).find(|arn| arn.ends_with("-node"));
    let arn = node_role.expect("the node role's entry").replace(':', "%3A").replace('/', "%2F");
    let entry = format!("{entries}/{arn}");
    must(caller.rest("eks", Method::DELETE, &entry, &Value::Null).await);
    let moto = aws.gateway().state().moto();
    let rule = json!({"Name": format!("tenon-{}-spot", bed.cluster())});
    must(moto.json("events", "AWSEvents.DisableRule", &rule).await);
    hostnames(bed, "false").await;
    tag(bed, "CreateTags", &seed.subnet_ids[0], "karpenter.sh/discovery", "other").await;
}

/// What `tenon install` does not repair, because it is not ours.
async fn mend(bed: &Bed) {
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "default");
    let all = DeleteParams::default();
    for name in
        ["cluster-autoscaler", "karpenter-old", "aws-node-termination-handler", "descheduler"]
    {
        must(deployments.delete(name, &all).await);
    }
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(bed.client());
    must(webhooks.delete("gone", &all).await);
    let crds: Api<CustomResourceDefinition> = Api::all(bed.client());
    must(crds.delete(SCALED_OBJECTS, &all).await);
    let user = User::new(bed.client(), NodeClass::Ec2);
    must(user.objects("NodePool").delete("boundless", &all).await);
    must(user.objects("EC2NodeClass").delete("windows", &all).await);
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.client(), "kube-system");
    let plain = json!({"metadata": {"annotations": {"eks.amazonaws.com/role-arn": null}}});
    must(accounts.patch("karpenter", &PatchParams::default(), &Patch::Merge(plain)).await);
    let aws = must(bed.aws());
    let addons = format!("/clusters/{}/addons", bed.cluster());
    let agent = json!({"addonName": AGENT});
    must(aws.caller().rest("eks", Method::POST, &addons, &agent).await);
    hostnames(bed, "true").await;
    let seed = aws.seed();
    let discovery = "karpenter.sh/discovery";
    tag(bed, "CreateTags", &seed.subnet_ids[0], discovery, bed.cluster()).await;
}

async fn hostnames(bed: &Bed, enabled: &str) {
    let aws = must(bed.aws());
    let names = [("VpcId", aws.seed().vpc_id.as_str()), ("EnableDnsHostnames.Value", enabled)];
    must(aws.caller().query("ec2", "ModifyVpcAttribute", &names).await);
}

async fn tag(bed: &Bed, action: &str, id: &str, key: &str, value: &str) {
    let tag = [("ResourceId.1", id), ("Tag.1.Key", key), ("Tag.1.Value", value)];
    must(must(bed.aws()).caller().query("ec2", action, &tag).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_bed_passes_and_every_fault_is_named_with_its_cause() {
    let bed = Arc::new(Bed::start(BedConfig::default()).await.expect("the bed starts"));
    let verdicts = &mut Verdicts::on(&bed);

    let (finished, report) = verdicts.preflight(&[], &[]).await;
    assert_eq!(finished.code, 0, "{:?}\n{}", fatal(&report), finished.stderr);
    assert!(report["counts"]["passed"].as_u64() > Some(40), "{}", report["counts"]);

    refused_by_the_organisation(&bed).await;
    let installed = Installation::ensure(&bed, &json!({})).await.expect("installed");
    let (finished, report) = verdicts.doctor().await;
    assert_eq!(finished.code, 0, "{:?}\n{}", fatal(&report), finished.stderr);
    no_fault_is_left(&report, &[]);
    let (finished, verdict) = tenon_with(&bed, &["iam", "verify"], &[]).await;
    assert_eq!(finished.code, 0, "{verdict:#}\n{}", finished.stderr);
    assert!(verdict["verdict"]["simulated"].as_u64() > Some(40), "{verdict:#}");

    // Things that happen to operators.
    at_work::breaks(&installed).await;
    let (finished, report) = verdicts.doctor().await;
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    verdicts.fails(&report, &at_work::FAULTS);

    // Things that happen to clusters.
    at_work::stops(&bed).await;
    break_kubernetes(&bed).await;
    break_aws(&bed).await;
    let (finished, report) = verdicts.doctor().await;
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    verdicts.fails(&report, &FAULTS);
    let args = ["iam", "verify", "--no-simulation"];
    let (finished, verdict) = tenon_with(&bed, &args, &[]).await;
    assert_eq!(finished.code, 5, "{}", finished.stderr);
    let missing = verdict["verdict"]["missing"].as_array().expect("a list");
    assert!(missing.iter().any(|one| one.as_str().is_some_and(|one| {
        one.contains("AllowScopedDeletion") && one.contains("ec2:TerminateInstances")
    })));

    // What can be left out can be left out, and the rest still counts.
    let all = fatal(&report);
    let ids: Vec<_> = all.iter().filter_map(|line| line.split(' ').next()).collect();
    let (finished, _) = tenon_with(&bed, &["doctor", "--skip", &ids.join(",")], &[]).await;
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let (finished, _) = tenon_with(&bed, &["doctor", "--skip", &ids[1..].join(",")], &[]).await;
    assert_eq!(finished.code, 3, "{}", finished.stderr);

    // The command that the checks name repairs what is ours, once its user has put the rest right.
    mend(&bed).await;
    at_work::mend(&installed).await;
    let (finished, _) = tenon_with(&bed, &["install", "--yes"], &[]).await;
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let (finished, report) = verdicts.doctor().await;
    assert_eq!(finished.code, 0, "{:?}\n{}", fatal(&report), finished.stderr);
    no_fault_is_left(&report, &at_work::PAST);

    settings_that_do_not_fit(&bed, verdicts).await;

    // SQS keeps the name of a deleted queue for a minute.
    let (finished, _) = tenon_with(&bed, &["uninstall", "--yes"], &[]).await;
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let (_, report) = verdicts.preflight(&[], &[]).await;
    verdicts.fails(&report, &[("EX-10", "a queue of that name was deleted")]);
    verdicts.are_complete(BROKEN);

    drop(installed);
    let bed = Arc::into_inner(bed).expect("nobody else uses the bed");
    bed.stop().await.expect("the bed stops");
}

/// What no simulation of the caller's own policies foretells is said when it happens.
async fn refused_by_the_organisation(bed: &Bed) {
    let control = must(bed.aws()).gateway().control();
    let effect = Effect::Error {
        status: 403,
        code: "AccessDenied".to_owned(),
        message: "User: arn:aws:iam::123456789012:user/administrator is not authorized to perform: iam:CreateRole on resource: role with an explicit deny in a \
                  service control policy"
            .to_owned(),
    };
    control.fault(Fault::new("iam:CreateRole", effect));
    let (finished, _) = tenon_with(bed, &["install", "--yes"], &[]).await;
    assert_eq!(finished.code, 4, "{}", finished.stderr);
    for part in ["a policy of the organization denies iam:CreateRole", "--permissions-boundary"] {
        assert!(finished.stderr.contains(part), "{part} is not in:\n{}", finished.stderr);
    }
    control.heal_all();
}

/// Settings that don't fit this cluster, one after the other.
async fn settings_that_do_not_fit(bed: &Bed, verdicts: &mut Verdicts<'_>) {
    let seed = must(bed.aws()).seed().clone();
    let owned = format!("kubernetes.io/cluster/{}", bed.cluster());
    tag(bed, "CreateTags", &seed.node_security_group_id, &owned, "owned").await;
    let both = [seed.cluster_security_group_id, seed.node_security_group_id].join(",");
    let zonal_shift = ["--set", "settings.enableZonalShift=true"];
    for (id, flags, part) in [
        ("AM-01", &["--ami-alias", "al2023@v20200101"][..], "resolves to no image"),
        ("ZS-01", &zonal_shift, "it is not"),
        ("IA-10", &["--controller-role-arn", SYSTEM_ROLE], "bed-system-nodes doesn't allow"),
        ("SG-02", &["--security-groups", &both], "2 do"),
        ("CL-09", &["--replicas", "5"], "configured: 5 replicas"),
    ] {
        let (_, report) = verdicts.preflight(flags, &[]).await;
        verdicts.fails(&report, &[(id, part)]);
    }
    let eks = &must(bed.aws()).guard().eks;
    eks.tell(json!({ "zonalShiftConfig": { "enabled": true } }));
    let (_, report) = verdicts.preflight(&zonal_shift, &[]).await;
    passes(&report, ["ZS-01"]);
    eks.tell(Value::Null);
}
