//! The real installer against a real API server and the AWS double: bad settings, missing
//! permissions, kills after every step, and an uninstall that leaves what was there before.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tenon_aws_double::consistency::Delays;
use tenon_aws_double::faults::{Effect, Fault};
use tenon_aws_double::identity::Grants;
use tenon_aws_double::policy::NamedDocument;
use tenon_bed::bed::{Bed, BedConfig};
use tenon_iam_policies::Document;

use super::calls::{Budget, within};
use super::command::tenon;
use crate::terminal::interrupted;

/// More than any run has steps.
pub(super) const MANY: usize = 100;

pub(super) fn settings(bed: &Bed) -> Value {
    json!({
        "apiVersion": "tenon.sh/v1alpha1",
        "kind": "Installation",
        "cluster": { "name": bed.cluster(), "region": bed.region() },
    })
}

pub(super) fn write(bed: &Bed, name: &str, text: &str) -> PathBuf {
    let path = bed.dir().join(name);
    std::fs::write(&path, text).expect("the bed's directory can be written");
    path
}

/// Everything that an installation could leave behind, by kind and name.
pub(super) async fn inventory(bed: &Bed) -> BTreeSet<(String, String)> {
    let mut all: BTreeSet<(String, String)> =
        bed.aws_inventory().await.expect("inventory").into_iter().collect();
    let crds: Api<CustomResourceDefinition> = Api::all(bed.client());
    all.extend(
        crds.list(&ListParams::default())
            .await
            .expect("CRDs")
            .items
            .iter()
            .map(|crd| ("crd".to_owned(), crd.name_any())),
    );
    for (group, version, kind, plural) in [
        ("apps", "v1", "Deployment", "deployments"),
        ("", "v1", "ServiceAccount", "serviceaccounts"),
        ("", "v1", "Service", "services"),
        ("", "v1", "ConfigMap", "configmaps"),
        ("", "v1", "Namespace", "namespaces"),
        ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        ("coordination.k8s.io", "v1", "Lease", "leases"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
        ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    ] {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let api: Api<DynamicObject> =
            Api::all_with(bed.client(), &ApiResource::from_gvk_with_plural(&gvk, plural));
        let objects = api.list(&ListParams::default()).await.expect("objects").items;
        all.extend(objects.iter().map(|object| {
            (
                kind.to_owned(),
                format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()),
            )
        }));
    }
    // Leases of the system's nodes come and go with their heartbeats.
    all.retain(|(kind, name)| !(kind == "Lease" && name.starts_with("kube-node-lease/")));
    all
}

/// What a second installation makes again under the same name: without what AWS or the operator
/// name anew each time.
fn named(all: &BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    let anew = ["Pod Identity association", "instance profile", "launch template"];
    all.iter().filter(|(kind, _)| !anew.contains(&kind.as_str())).cloned().collect()
}

pub(super) fn difference(a: &BTreeSet<(String, String)>, b: &BTreeSet<(String, String)>) -> String {
    let gone: Vec<_> = a.difference(b).collect();
    let new: Vec<_> = b.difference(a).collect();
    format!("missing: {gone:?}; new: {new:?}")
}

pub(super) fn assert_unchanged(
    before: &BTreeSet<(String, String)>,
    after: &BTreeSet<(String, String)>,
) {
    assert!(before == after, "{}", difference(before, after));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_settings_ctrl_c_and_missing_permissions_are_named_and_a_last_run_completes() {
    let bed = Bed::start(BedConfig::default()).await.expect("the bed starts");
    let before = inventory(&bed).await;
    let control = bed.aws().expect("AWS").gateway().control();

    // All problems at once, with file, path and what is allowed; nothing was called.
    let mut bad = settings(&bed);
    bad["cluster"]["regoin"] = json!("eu-north-1");
    bad["cluster"]["provider"] = json!("gke");
    bad["interruption"] = json!({ "enabled": "maybe" });
    let file = write(&bed, "bad.yaml", &format!("{bad:#}\n"));
    control.calls().clear();
    let refused = tenon(&bed, &["install", "-f", &file.display().to_string(), "--yes"], None).await;
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    for part in ["bad.yaml", "cluster.regoin", "cluster.provider", "interruption.enabled", "eks"] {
        assert!(refused.stderr.contains(part), "{part} is not named in:\n{}", refused.stderr);
    }
    assert!(control.calls().all().is_empty(), "AWS was called: {:?}", control.calls().counts());

    // Whoever presses Ctrl-C at a question has changed nothing.
    let answer = |question| if question == ACCEPT { "no\n" } else { "\n" };
    let mut turns: Vec<_> = QUESTIONS.map(|question| (question, answer(question))).into();
    turns.push(("Apply this plan?", "y"));
    for at in 0..turns.len() {
        interrupted(&bed, "install", &turns[..at], turns[at].0);
    }
    assert_unchanged(&before, &inventory(&bed).await);

    // The caller may do everything but make queues.
    let guard = bed.aws().expect("AWS").guard();
    let administrator = guard.administrator().access_key.clone();
    let document: Document = serde_json::from_value(json!({
        "Version": "2012-10-17",
        "Statement": [
            { "Effect": "Allow", "Action": "*", "Resource": "*" },
            { "Effect": "Deny", "Action": "sqs:CreateQueue", "Resource": "*" },
        ],
    }))
    .expect("a policy document");
    let limited = Grants::Documents(vec![NamedDocument { name: "limited".to_owned(), document }]);
    assert!(guard.identities.set_grants(&administrator, limited));
    let mut chosen = settings(&bed);
    chosen["defaults"] = json!({ "arch": ["amd64", "arm64"], "cpuLimit": 50 });
    let file = write(&bed, "tenon.yaml", &format!("{chosen:#}\n"));
    let file = file.display().to_string();
    let denied = tenon(&bed, &["install", "-f", &file, "--yes"], None).await;
    assert_eq!(denied.code, 4, "some steps were done, then one failed:\n{}", denied.stderr);
    for part in ["sqs:CreateQueue", "arn:aws:sqs:"] {
        assert!(denied.stderr.contains(part), "{part} is not named in:\n{}", denied.stderr);
    }

    // With the permission it goes on, also when it is interrupted once more, and then there is
    // nothing left to do.
    assert!(guard.identities.set_grants(&administrator, Grants::Everything));
    interrupted(&bed, "install", &turns, "created");
    let installed = tenon(&bed, &["install", "-f", &file, "--yes"], None).await;
    assert_eq!(installed.code, 0, "{}", installed.stderr);
    assert!(installed.stderr.contains("the last `tenon install` ended"), "{}", installed.stderr);
    let made = inventory(&bed).await;
    let again = tenon(&bed, &["install", "-f", &file, "--yes"], None).await;
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_unchanged(&named(&made), &named(&inventory(&bed).await));

    // The wizard starts from what is installed.
    let at = |question| QUESTIONS.iter().position(|one| *one == question).expect("a question");
    interrupted(&bed, "install", &turns[..at("Architectures")], "[1,2]");
    interrupted(&bed, "install", &turns[..at("CPU limit of the NodePool")], "[50]");

    // One answer accepts it all.
    let plain = &[(QUESTIONS[0], "\n"), (QUESTIONS[1], "\n"), (ACCEPT, "\n"), (DELIVERY, "\n")];
    interrupted(&bed, "install", plain, "Your answers as a settings file");

    interrupted(&bed, "uninstall", &[], "Type the cluster's name (bed) to continue");
    assert_unchanged(&named(&made), &named(&inventory(&bed).await));
    let removed = tenon(&bed, &["uninstall", "--yes"], None).await;
    assert_eq!(removed.code, 0, "{}", removed.stderr);
    assert_unchanged(&before, &inventory(&bed).await);
    bed.stop().await.expect("the bed stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_every_step_it_ends_the_same_and_uninstall_leaves_what_was_there_before() {
    let bed = Bed::start(BedConfig::default()).await.expect("the bed starts");
    let before = inventory(&bed).await;
    let file = write(&bed, "tenon.yaml", &format!("{:#}\n", settings(&bed))).display().to_string();
    let install = ["install", "-f", file.as_str(), "--yes"];

    // An installation in one go, to compare with. What its commands call is bounded: an account's
    // limits are everybody's.
    let reads = |calls| Budget { calls, writes: 0 };
    within(&bed, &["plan", "-f", &file], reads(25)).await;
    within(&bed, &install, Budget { calls: 95, writes: 30 }).await;
    let made = inventory(&bed).await;
    within(&bed, &install, reads(45)).await;
    within(&bed, &["plan"], reads(45)).await;
    within(&bed, &["diff"], reads(50)).await;
    within(&bed, &["status"], reads(50)).await;
    assert_unchanged(&made, &inventory(&bed).await);
    within(&bed, &["uninstall", "--yes"], Budget { calls: 145, writes: 30 }).await;
    assert_unchanged(&before, &inventory(&bed).await);

    // Again, in an AWS that is eventually consistent, and that answers some call of each run with
    // an error that goes by.
    let control = bed.aws().expect("AWS").gateway().control();
    let aws = Duration::from_millis(1_500);
    control.consistency(Delays { deleted_queue: 0.0, ..Delays::all(aws) });
    let kills = until_done(&bed, &install).await;
    assert!(kills > 10, "only {kills} steps were interrupted");
    assert_unchanged(&named(&made), &named(&inventory(&bed).await));

    let kills = until_done(&bed, &["uninstall", "--yes"]).await;
    assert!(kills > 10, "only {kills} steps were interrupted");
    assert_unchanged(&before, &inventory(&bed).await);
    bed.stop().await.expect("the bed stops");
}

/// The wizard's questions in a cluster that has the agent, and whose context the kubeconfig has.
const QUESTIONS: [&str; 13] = [
    "Which cluster?",
    "is that right?",
    ACCEPT,
    "Where should the operator run?",
    "How should the operator get its permissions?",
    "How should subnets and security groups be selected?",
    "Which subnets may nodes use?",
    "when AWS announces an interruption?",
    "Create a NodePool and an EC2NodeClass",
    "Capacity",
    "Architectures",
    "CPU limit of the NodePool",
    DELIVERY,
];

/// The question that is answered with no, to be asked for each setting.
const ACCEPT: &str = "Use these settings?";

/// The last question.
const DELIVERY: &str = "What should happen with these settings?";

/// What AWS answers when it has no time, and when it is broken, by service.
const DISTURBANCES: [(&str, u16, &str); 10] = [
    ("iam:*", 400, "Throttling"),
    ("iam:*", 500, "ServiceFailure"),
    ("eks:*", 429, "ThrottlingException"),
    ("eks:*", 503, "ServiceUnavailableException"),
    ("sqs:*", 403, "RequestThrottled"),
    ("sqs:*", 503, "ServiceUnavailable"),
    ("events:*", 400, "ThrottlingException"),
    ("events:*", 500, "InternalException"),
    ("ec2:*", 503, "RequestLimitExceeded"),
    ("ec2:*", 500, "InternalError"),
];

/// Calls that are carried out once without an answer, so that the caller has to find out what
/// became of them.
const LOST: [&str; 12] = [
    "iam:CreateRole",
    "iam:PutRolePolicy",
    "iam:DeleteRole",
    "eks:CreateAccessEntry",
    "eks:CreatePodIdentityAssociation",
    "eks:DeletePodIdentityAssociation",
    "sqs:CreateQueue",
    "sqs:DeleteQueue",
    "events:PutRule",
    "events:PutTargets",
    "events:DeleteRule",
    "ec2:CreateTags",
];

/// A fault that hits one call of the installer.
fn once(action: &str, effect: Effect) -> Fault {
    let caller = Some("*:user/administrator".to_owned());
    Fault { caller, times: Some(1), ..Fault::new(action, effect) }
}

/// Runs the command again and again, aborted each time right after the first step that it does,
/// until it has nothing left to be aborted in. Returns how often it was aborted.
pub(super) async fn until_done(bed: &Bed, args: &[&str]) -> usize {
    let control = bed.aws().expect("AWS").gateway().control();
    for action in LOST {
        control.fault(once(action, Effect::DropAnswer));
    }
    for kills in 0..MANY {
        let (action, status, code) = DISTURBANCES[kills % DISTURBANCES.len()];
        let (code, message) = (code.to_owned(), "try again".to_owned());
        control.fault(once(action, Effect::Error { status, code, message }));
        let run = tenon(bed, args, Some(1)).await;
        if run.code == 0 {
            return kills;
        }
        assert!(
            run.code != 1 && run.code != 2 && run.code != 6,
            "a run after {kills} kills failed instead of going on (exit code {}):\n{}",
            run.code,
            run.stderr
        );
    }
    panic!("`tenon {}` never ends", args.join(" "));
}
