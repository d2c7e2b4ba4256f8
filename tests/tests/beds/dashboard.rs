//! `tenon dashboard` in a real browser, on a cluster that changes while it is looked at, and the
//! dashboard that the operator serves. What the page does with thousands of nodes and with names
//! that are markup is tested on files (`installer/tests/browser.rs`).

use std::process::Stdio;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::{LIMIT, one_of};
use tenon_bed::wait::{eventually, must};
use tenon_browser::{Browser, Scheme};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

const APP: &str = "shown";

const GUIDE: &str = include_str!("../../../docs/src/guides/operate.md");

/// The line of the guide that begins so.
fn line(start: &str) -> &'static str {
    GUIDE.lines().find(|line| line.starts_with(start)).expect("a line of the guide")
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An installation whose operator serves the dashboard.
async fn installed() -> (Arc<Bed>, Installation) {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let values = json!({ "controller": { "dashboard": { "enabled": true } } });
    let settings = json!({ "deploy": { "values": values } });
    let tenon = must(Installation::ensure(&bed, &settings).await);
    (bed, tenon)
}

/// What a command prints.
async fn typed(bed: &Bed, command: &str) -> String {
    let ended = must(bed.command("sh".as_ref()).args(["-c", command]).output().await);
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8_lossy(&ended.stdout).trim().to_owned()
}

/// A port of this machine from which connections go to a pod's dashboard. The kubelet of the bed
/// does not speak SPDY, as `kubectl port-forward` does.
#[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
async fn forwarded(pod: &Pod) -> Result<u16, Failure> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let address = address.ok_or("the pod has no address")?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            let address = address.clone();
            tokio::spawn(async move {
                if let Ok(mut there) = TcpStream::connect((address.as_str(), 8086)).await {
                    tokio::io::copy_bidirectional(&mut here, &mut there).await.ok();
                }
            });
        }
    });
    Ok(port)
}

/// Asks the dashboard at this port for data. That fails while nobody answers there.
async fn ask(port: u16, path: &str, token: Option<&str>) -> Result<(u16, Value), Failure> {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{}\r\n",
        token.unwrap_or_default()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer was cut off")?;
    let status = head.split(' ').nth(1).ok_or("there is no status")?.parse()?;
    Ok((status, serde_json::from_str(body).unwrap_or_default()))
}

/// A forwarded port of the leader; the other replica names it, and has nothing to show.
async fn leaders(bed: &Bed, token: &str) -> Result<u16, Failure> {
    let pods: Api<Pod> = Api::namespaced(bed.client(), "kube-system");
    let ours = ListParams::default().labels("app.kubernetes.io/name=karpenter");
    let (mut leader, mut hints) = (None, Vec::new());
    for pod in pods.list(&ours).await? {
        let port = forwarded(&pod).await?;
        let (status, body) = ask(port, "/api/decisions", Some(token)).await?;
        if status == 200 {
            leader = Some((pod.name_any(), port));
        } else {
            assert_eq!(status, 503, "{body}");
            hints.push(body["error"]["hints"][0].as_str().unwrap_or_default().to_owned());
        }
    }
    let (name, port) = leader.ok_or("there is no leader")?;
    let hint = line("kubectl -n kube-system port-forward");
    let hint = hint.replace("deployment/karpenter", &format!("pod/{name}"));
    if hints != [hint] {
        return Err(format!("{hints:?} instead of the way to {name}").into());
    }
    Ok(port)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_serves_the_dashboard_to_those_who_may_see_it() {
    let (bed, tenon) = installed().await;
    let token = typed(&bed, line("kubectl -n kube-system create token")).await;
    let port = must(leaders(&bed, &token).await);

    // Nobody else sees anything.
    let (status, refused) = must(ask(port, "/api/state", None).await);
    assert_eq!(status, 401, "{refused}");
    let hint = refused["error"]["hints"][0].as_str().expect("a hint");
    assert_eq!(hint, format!("enter a token: {}", line("kubectl -n kube-system create token")));
    let other = typed(&bed, "kubectl -n default create token default").await;
    let (status, refused) = must(ask(port, "/api/state", Some(&other)).await);
    assert_eq!(status, 403, "{refused}");
    assert!(!refused.to_string().contains("pricePerHour"), "{refused}");

    // A node and the decision that it comes from are shown, with prices.
    let requirements = json!([one_of("node.kubernetes.io/instance-type", &["m5.large"])]);
    must(tenon.user().pool(APP, &requirements, &json!({})).await);
    must(tenon.user().scale(APP, 2, &json!({ "scenario": APP })).await);
    must(tenon.user().runs(APP, 2).await);
    let shown = async || {
        let (_, state) = must(ask(port, "/api/state", Some(&token)).await);
        let nodes = state["nodes"].as_array().cloned().unwrap_or_default();
        let of_pool = nodes.iter().find(|node| node["nodePool"] == APP);
        let is_priced = of_pool.is_some_and(|node| node["pricePerHour"].as_f64() > Some(0.0));
        if is_priced { Ok(true) } else { Err(state.to_string().into()) }
    };
    must(eventually("the node is shown", LIMIT, shown).await);
    let (status, decisions) = must(ask(port, "/api/decisions", Some(&token)).await);
    assert_eq!(status, 200, "{decisions}");
    let all = decisions["decisions"].to_string();
    assert!(all.contains("launch a node in NodePool shown for 2 pods"), "{all}");
    let (status, answer) =
        must(ask(port, "/api/explain?kind=nodepool&name=shown", Some(&token)).await);
    assert_eq!((status, &answer["answer"]["kind"]), (200, &json!("NodePool")), "{answer}");

    // Another leader answers when this one has gone.
    must(tenon.kill_leader().await);
    let next = async || {
        let port = leaders(&bed, &token).await?;
        let (status, body) = ask(port, "/api/state", Some(&token)).await?;
        if status == 200 { Ok(true) } else { Err(body.to_string().into()) }
    };
    must(eventually("the new leader answers", LIMIT, next).await);
    drop(tenon);
    must(Arc::into_inner(bed).expect("no other").stop().await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs chromium and chromedriver"]
async fn the_dashboard_in_the_cluster_asks_for_a_token_in_the_browser() {
    let (bed, tenon) = installed().await;
    let token = typed(&bed, line("kubectl -n kube-system create token")).await;
    let port = must(leaders(&bed, &token).await);
    let browser = Browser::start(Scheme::Light, &bed.dir().join("pictures")).await;
    browser.open(&format!("http://127.0.0.1:{port}/")).await;
    browser.until("document.querySelector('#trouble form')").await;
    assert!(browser.text("#trouble").await.contains("create token karpenter-dashboard-reader"));
    browser.screenshot("token").await;
    let enter = |token: &str| {
        format!(
            "document.querySelector('#trouble input').value = {}; \
             document.querySelector('#trouble button').click()",
            json!(token)
        )
    };
    // After one that may not, another one can be entered.
    let other = typed(&bed, "kubectl -n default create token default").await;
    browser.run(&enter(&other)).await;
    browser.until("document.querySelector('#trouble').textContent.includes('may not get')").await;
    browser.run(&enter(&token)).await;
    browser.until("document.documentElement.dataset.ready === 'true'").await;
    browser.until("!document.querySelector('#trouble').hasChildNodes()").await;
    // It is kept for this tab.
    browser.run("location.reload()").await;
    browser.until("document.documentElement.dataset.ready === 'true'").await;
    assert!(browser.text("#freshness").await.starts_with("operator, read at "));
    drop(browser);
    drop(tenon);
    must(Arc::into_inner(bed).expect("no other").stop().await);
}

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
