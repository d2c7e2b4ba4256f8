//! What a pod tells of the way to AWS, asked by the real Job that a real kube-controller-manager
//! makes a pod of.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tenon_aws_double::faults::{Effect, Fault};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::wait::{eventually, must};

use super::verdicts::{Verdicts, outcome, passes};

/// The checks that fail here, each after it has passed.
pub(super) const BROKEN: &[&str] = &["IC-01", "IC-02", "IC-03", "IC-04"];

const ASK: &[&str] = &["--in-cluster"];
const MINUTE: std::time::Duration = std::time::Duration::from_mins(1);

/// Nothing of it stays behind.
async fn no_job_is_left(bed: &Bed) {
    let jobs: Api<Job> = Api::all(bed.client());
    let gone = async || Ok(jobs.list(&ListParams::default()).await?.items.is_empty());
    eventually("no Job is left", MINUTE, gone).await.expect("it goes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_tells_which_endpoints_it_resolves_reaches_and_may_call() {
    let bed = Arc::new(Bed::start(BedConfig::default()).await.expect("the bed starts"));
    let control = must(bed.aws()).gateway().control();
    let verdicts = &mut Verdicts::on(&bed);

    // Before an installation it is nobody, and still sees the way.
    let (finished, report) = verdicts.preflight(ASK, &[]).await;
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    passes(&report, ["IC-01", "IC-02"]);
    for id in ["IC-03", "IC-04"] {
        assert_eq!(outcome(&report, id).0, "skip", "{id}: {report:#}");
    }

    let installed = must(Installation::ensure(&bed, &json!({})).await);
    let (finished, report) = verdicts.preflight(ASK, &[]).await;
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    passes(&report, BROKEN.iter().copied());

    // A name without an address, an address without a service.
    let elsewhere = json!({ "controller": { "env": [
        { "name": "AWS_ENDPOINT_URL_SSM", "value": "http://ssm.invalid" },
        { "name": "AWS_ENDPOINT_URL_SQS", "value": "http://127.0.0.1:9" },
    ] } });
    let values = bed.dir().join("elsewhere.yaml");
    must(std::fs::write(&values, elsewhere.to_string()));
    let values = ["--values", values.to_str().expect("a path of letters")];
    let (finished, report) = verdicts.preflight(&[ASK, &values].concat(), &[]).await;
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    verdicts.fails(
        &report,
        &[("IC-01", "ssm: no address for ssm.invalid"), ("IC-02", "sqs: 127.0.0.1")],
    );

    // A policy on the way takes away what the role has; then AWS does not know the role.
    let denied = control.fail("sqs:GetQueueUrl", None, 403, "AccessDenied");
    let (_, report) = verdicts.preflight(ASK, &[]).await;
    verdicts.fails(&report, &[("IC-04", "AccessDenied")]);
    control.heal(&denied).expect("it was there");
    let unknown = Effect::Error {
        status: 403,
        code: "InvalidClientTokenId".to_owned(),
        message: "The security token included in the request is invalid.".to_owned(),
    };
    let unknown = control.fault(Fault {
        action: "sts:GetCallerIdentity".to_owned(),
        caller: Some("*controller*".to_owned()),
        parameters: BTreeMap::new(),
        times: None,
        probability: 1.0,
        effect: unknown,
    });
    let (_, report) = verdicts.preflight(ASK, &[]).await;
    verdicts.fails(&report, &[("IC-03", "InvalidClientTokenId")]);
    control.heal(&unknown).expect("it was there");
    verdicts.are_complete(BROKEN);
    no_job_is_left(&bed).await;

    drop(installed);
    let bed = Arc::into_inner(bed).expect("nobody else uses the bed");
    bed.stop().await.expect("the bed stops");
}
