//! A zonal shift of ARC, with the option that makes the operator follow it: while it lasts nothing
//! is launched in the zone, and what runs there stays.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenon_aws_double::prices::{CapacityType, MicroUsd};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::one_of;
use tenon_bed::wait::{eventually, must};

use super::verdicts::{Verdicts, passes};

/// The operator asks ARC every 30 seconds.
const HEARD: Duration = Duration::from_secs(60);

/// The type that pods get here.
const TYPE: &str = "m6i.large";

/// A pool of spot machines in two zones, and a pod for it; returns the zone that it got.
async fn zone_of_a_pod(tenon: &Installation, scenario: &str) -> String {
    let region = tenon.bed().region();
    let zones = [format!("{region}a"), format!("{region}b")];
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", &[TYPE]),
        one_of("karpenter.sh/capacity-type", &["spot"]),
        one_of("topology.kubernetes.io/zone", &zones.each_ref().map(String::as_str)),
    ]);
    let user = tenon.user();
    must(user.pool(scenario, &requirements, &json!({})).await);
    must(user.scale(scenario, 1, &json!({ "scenario": scenario })).await);
    must(user.runs(scenario, 1).await);
    let nodes = must(user.nodes(scenario).await);
    nodes[0].metadata.labels.as_ref().expect("labels")["topology.kubernetes.io/zone"].clone()
}

/// Waits until the operator says so of a NodePool.
async fn told(tenon: &Installation, reason: &str, pool: &str, zone: &str) {
    let look = async || {
        let events = tenon.user().events(reason).await?;
        Ok(events.iter().any(|event| {
            event.involved_object.name.as_deref() == Some(pool)
                && event.message.as_deref().unwrap_or_default().contains(zone)
        }))
    };
    must(eventually(&format!("{reason} of {pool} and {zone}"), HEARD, look).await);
}

/// The probe in the cluster asks the endpoint that the operator is to ask, by the cluster's ARN.
async fn the_probe_asks_arc(bed: &Bed) {
    let control = must(bed.aws()).gateway().control();
    let verdicts = &mut Verdicts::on(bed);
    let ask = ["--in-cluster", "--set", "settings.enableZonalShift=true"];
    let (_, report) = verdicts.preflight(&ask, &[]).await;
    passes(&report, ["IC-01", "IC-02", "IC-03", "IC-04"]);
    let denied =
        control.fail("arc-zonal-shift:GetManagedResource", None, 403, "AccessDeniedException");
    let (_, report) = verdicts.preflight(&ask, &[]).await;
    verdicts.fails(&report, &[("IC-04", "arc-zonal-shift")]);
    must(control.heal(&denied));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_launched_in_a_zone_that_the_cluster_is_moved_away_from() {
    let bed = Arc::new(Bed::start(BedConfig::default()).await.expect("the bed starts"));
    let aws = must(bed.aws());
    let control = aws.gateway().control();
    aws.guard().eks.set_zonal_shift(true);
    let zone = format!("{}a", bed.region());
    let other = format!("{}b", bed.region());
    // Nobody who is free to choose goes elsewhere.
    control.price(TYPE, &zone, CapacityType::Spot, MicroUsd::dollars(0.001));
    let settings = json!({ "deploy": { "values": { "settings": { "enableZonalShift": true } } } });
    let tenon = must(Installation::ensure(&bed, &settings).await);
    assert_eq!(zone_of_a_pod(&tenon, "before").await, zone);

    let shift = must(control.shift_away(&zone, Some(Duration::from_hours(1))).await);
    told(&tenon, "ZonalShiftActive", "before", &zone).await;
    assert_eq!(zone_of_a_pod(&tenon, "during").await, other);
    let still = must(tenon.user().nodes("before").await);
    assert_eq!(still.len(), 1, "nodes in the zone stay");

    must(control.cancel_shift(&shift));
    told(&tenon, "ZonalShiftCleared", "before", &zone).await;
    assert_eq!(zone_of_a_pod(&tenon, "after").await, zone);

    the_probe_asks_arc(&bed).await;
    drop(tenon);
    let bed = Arc::into_inner(bed).expect("nobody else has the bed");
    bed.stop().await.expect("the bed stops");
}
