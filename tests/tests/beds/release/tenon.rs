//! `tenon install` with the image of a registry, and Helm with the chart of the same registry over
//! what `tenon` installed.

use std::sync::Arc;

use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::registry::Registry;
use tenon_bed::user::one_of;
use tenon_bed::wait::must;
use tenon_release::proxy::Proxies;
use tenon_release::registry;

use super::{VERSION, helm, image, push_charts, run_in_the_image};
use crate::verdicts::passes;

#[tokio::test(flavor = "multi_thread")]
async fn tenon_installs_the_image_of_a_registry_and_helm_continues_with_its_chart() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let registry = must(Registry::start(&bed, None).await);
    let repository = format!("{}/tenon/tenon-operator", registry.host());
    let layout = image(&bed).await;
    let reference = must(format!("{repository}:{VERSION}").parse::<registry::Reference>());
    must(registry::Registry::of(reference, None, Proxies::default()).push(&layout).await);
    let charts = push_charts(&bed, &registry.host(), &repository).await;
    let named = json!({ "deploy": { "image": repository, "version": VERSION } });
    let installed = must(Installation::ensure(&bed, &named).await);
    run_in_the_image(&bed);
    let doctor = must(bed.run_tenon(&["doctor", "-o", "json"]).await);
    let report: Value = must(serde_json::from_str(&doctor.stdout));
    passes(&report, ["IM-01"]);

    // The release that `tenon` has recorded is Helm's to upgrade, from the same registry.
    let chart = format!("{charts}/tenon");
    let upgrade = ["upgrade", "tenon", &chart, "--version", VERSION, "--plain-http"];
    let wait = ["-n", "kube-system", "--reuse-values", "--wait", "--timeout", "2m"];
    helm(&bed, &[upgrade.as_slice(), &wait].concat()).await;
    let history = helm(&bed, &["history", "tenon", "-n", "kube-system", "-o", "json"]).await;
    let history: Value = must(serde_json::from_str(&history));
    let states = history.as_array().expect("a list").iter().map(|it| it["status"].as_str());
    assert_eq!(states.collect::<Vec<_>>(), [Some("superseded"), Some("deployed")], "{history}");
    run_in_the_image(&bed);

    let machines = json!([one_of("node.kubernetes.io/instance-type", &["m6i.large"])]);
    must(installed.user().pool("released", &machines, &json!({})).await);
    must(installed.user().scale("released", 1, &json!({ "scenario": "released" })).await);
    must(installed.user().runs("released", 1).await);

    registry.stop().await;
    drop(installed);
    must(must(Arc::try_unwrap(bed).map_err(|_| "somebody else has the bed")).stop().await);
}
