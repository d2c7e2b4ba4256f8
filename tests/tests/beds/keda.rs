//! A real KEDA beside Tenon: the story that `cargo sandbox neighbours keda` tells, and the guide,
//! command by command. KEDA takes eight minutes to build, so CI runs both only where that was done.

use serde_json::json;
use std::sync::Arc;
use tenon_aws_double::progress::Progress;
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::demo::{Neighbour, prove_neighbour};
use tenon_bed::installation::Installation;
use tenon_bed::keda::Keda;
use tenon_bed::wait::must;

use crate::guide::Guide;

const GUIDE: &str = include_str!("../../../docs/src/guides/keda.md");

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds KEDA, which takes eight minutes"]
async fn messages_bring_workers_and_nodes_and_both_go_when_the_work_is_done() {
    let report = must(prove_neighbour(Neighbour::Keda).await);
    report.must_be_ok();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds KEDA, which takes eight minutes"]
async fn the_guide_leads_to_a_scaled_object_that_is_ready() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let tenon = must(Installation::ensure(&bed, &json!({})).await);
    let keda = must(Keda::start(&bed, &Progress::hidden()).await);
    let moto = must(bed.aws()).gateway().state().moto();
    let queue = moto.json("sqs", "AmazonSQS.CreateQueue", &json!({ "QueueName": "jobs" })).await;
    let queue = must(queue)["QueueUrl"].as_str().expect("a URL").to_owned();

    let mut guide = Guide::new(GUIDE, [("pod NAME", "pod no-such-pod")]);
    for file in ["nodepool.yaml", "worker.yaml"] {
        let named = "https://sqs.eu-central-1.amazonaws.com/111122223333/jobs";
        must(std::fs::write(bed.dir().join(file), guide.file(file).replace(named, &queue)));
    }
    guide.follow(&bed, "1. Create the NodePool").await;
    must(tenon.user().ready("NodePool", "workers").await);
    let said = guide.follow(&bed, "2. Create the Deployment and the ScaledObject").await;
    assert!(said.contains("scaledobject.keda.sh/worker condition met"), "{said}");
    let said = guide.follow(&bed, "3. Look at it").await;
    assert!(said.contains("horizontalpodautoscaler.autoscaling/keda-hpa-worker"), "{said}");
    let said = guide.follow(&bed, "When nothing is launched").await;
    assert!(said.contains("ScaledObject is defined correctly"), "{said}");
    assert!(said.contains("external.metrics.k8s.io/v1beta1"), "{said}");
    guide.has_read_all_but(&[]);

    keda.stop().await;
    drop(tenon);
    must(Arc::into_inner(bed).expect("nobody else has the bed").stop().await);
}
