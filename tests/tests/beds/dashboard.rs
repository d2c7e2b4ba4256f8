//! `tenon dashboard` in a real browser, on a cluster that changes while it is looked at. What the
//! page does with thousands of nodes and with names that are markup is tested on files
//! (`installer/tests/browser.rs`).

use std::process::Stdio;
use std::sync::Arc;

use serde_json::json;
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::one_of;
use tenon_bed::wait::must;
use tenon_browser::{Browser, Scheme};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const APP: &str = "shown";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs chromium and chromedriver"]
async fn the_dashboard_shows_nodes_and_decisions_as_they_come_and_go() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let tenon = must(Installation::ensure(&bed, &json!({})).await);
    let mut serving =
        must(bed.command(must(bed.tenon())).arg("dashboard").stdout(Stdio::piped()).spawn());
    let mut lines = BufReader::new(serving.stdout.take().expect("a pipe")).lines();
    let url = must(lines.next_line().await).expect("a URL");
    let browser = Browser::start(Scheme::Light, &bed.dir().join("pictures")).await;
    browser.open(&url).await;
    browser.until("document.documentElement.dataset.ready === 'true'").await;
    browser.run("document.querySelector('[name=view][value=table]').click()").await;
    browser.run("document.getElementById('tab-decisions').click()").await;

    // A node that is launched appears by itself, with the decision that it came from.
    let requirements = json!([one_of("node.kubernetes.io/instance-type", &["m5.large"])]);
    let empty =
        json!({ "disruption": { "consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty" } });
    must(tenon.user().pool(APP, &requirements, &empty).await);
    must(tenon.user().scale(APP, 2, &json!({ "scenario": APP })).await);
    let of_pool = format!("document.getElementById('rows').textContent.includes('{APP}')");
    browser.until(&of_pool).await;
    must(tenon.user().runs(APP, 2).await);
    let said = |text: &str| {
        format!("document.getElementById('decisions').innerText.includes({})", json!(text))
    };
    browser.until(&said("launch a node in NodePool shown for 2 pods")).await;

    // It can be explained.
    let open = format!(
        "[...document.querySelectorAll('#rows tr')]\
         .find((row) => row.textContent.includes('{APP}')).querySelector('button').click()"
    );
    browser.run(&open).await;
    browser.until("document.querySelector('#details pre')").await;
    let details = browser.text("#details").await;
    assert!(details.contains("m5.large"), "{details}");
    browser.screenshot("node").await;

    // It goes by itself, too.
    must(tenon.user().scale(APP, 0, &json!({ "scenario": APP })).await);
    browser.until(&format!("!{of_pool}")).await;
    browser.run("document.getElementById('tab-decisions').click()").await;
    browser.until(&said("consolidation: delete node ")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    must(serving.kill().await);
    drop(tenon);
    must(Arc::into_inner(bed).expect("no other").stop().await);
}
