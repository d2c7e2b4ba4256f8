//! `tenon top` on a terminal, on a cluster that changes while it is looked at. How it draws, keys
//! and endings are tested on files and on a list of answers (`installer/src/top/tests.rs`,
//! `installer/tests/top.rs`).

use std::path::Path;
use std::sync::Arc;

use kube::ResourceExt as _;
use serde_json::json;
use tenon_aws_double::control::Selection;
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::{LIMIT, instance_of, one_of};
use tenon_bed::wait::{eventually, must};
use tenon_terminal::{Screen, Terminal};

const APP: &str = "looked-at";

fn start(bed: &Bed) -> Screen {
    let tenon = bed.tenon().expect("programs").display().to_string();
    let command = bed.command(Path::new(Terminal::PROGRAM)).into_std();
    let terminal = Terminal { columns: 140, rows: 60, ..Terminal::default() };
    terminal.draw(command, &format!("{tenon} top --interval 1s; echo exit code $?"))
}

/// Waits until the screen has a text. Needs a runtime of several threads: this one waits.
fn until(screen: &mut Screen, text: &str) {
    tokio::task::block_in_place(|| screen.until(text));
}

/// Presses keys that open a popup, waits for a text in it, and closes it.
fn popup(screen: &mut Screen, keys: &str, text: &str) {
    screen.press(keys);
    until(screen, text);
    screen.press("\u{1b}");
    let closed = |text: &str| !text.contains("Esc closes");
    tokio::task::block_in_place(|| screen.wait("the popup is closed", closed));
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_nodes_pods_and_decisions_as_they_come_and_go() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let tenon = must(Installation::ensure(&bed, &json!({})).await);
    let user = tenon.user();
    let mut screen = start(&bed);
    until(&mut screen, "DECISIONS 0");
    assert!(screen.is_drawn_on());

    // Nodes that are launched, and the decision that they come from.
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", &["m5.large"]),
        one_of("karpenter.sh/capacity-type", &["spot"]),
    ]);
    must(user.pool(APP, &requirements, &json!({})).await);
    must(user.scale(APP, 2, &json!({ "scenario": APP })).await);
    until(&mut screen, &format!("launch a node in NodePool {APP} for 2 pods, +$"));
    must(user.runs(APP, 2).await);
    let claim = must(user.claims(APP).await).remove(0);
    until(&mut screen, "; done after ");
    until(&mut screen, &format!("   {}", claim.name_any()));

    // Pods that no node will ever take, and why.
    let resources = json!({ "requests": { "cpu": "900" } });
    let image = "registry.example/app:1";
    let huge = json!({ "name": "main", "image": image, "resources": resources });
    let huge = json!({ "spec": { "containers": [huge] } });
    must(user.deploy("huge", 1, &huge).await);
    until(&mut screen, "1 pod pending");
    until(&mut screen, " ! default/huge-");

    // What is selected is explained: the only node of the filter.
    screen.press(&format!("2/{APP}\n"));
    until(&mut screen, "NODES 1 of ");
    popup(&mut screen, "\n", "What to do:");

    // Its NodePool is paused, after a question, and resumed.
    screen.press("f");
    until(&mut screen, &format!("Pause NodePool {APP}?"));
    screen.press("y");
    until(&mut screen, &format!(" = {APP} (paused)"));
    let pools = user.objects("NodePool");
    let limit = async || must(pools.get(APP).await).data["spec"]["limits"]["cpu"].clone();
    assert_eq!(limit().await, "0");
    screen.press("f");
    until(&mut screen, &format!("Resume NodePool {APP}?"));
    screen.press("y");
    let paused = format!("{APP} (paused)");
    tokio::task::block_in_place(|| screen.wait("it is resumed", |text| !text.contains(&paused)));
    assert_eq!(limit().await, json!(null));
    screen.press("\u{1b}");
    until(&mut screen, "NODES 3 ");

    // A spot interruption: announced, replaced, gone.
    let chosen = Selection::Instances(vec![instance_of(&claim)]);
    must(must(bed.aws()).gateway().control().interrupt(chosen, None).await);
    until(&mut screen, &format!(" of NodePool {APP}\n              Spot interruption"));
    let name = claim.name_any();
    let replaced = async || {
        let claims = user.claims(APP).await?;
        Ok(claims.iter().all(|it| it.name_any() != name))
    };
    must(eventually("the node is replaced", LIMIT, replaced).await);
    must(user.runs(APP, 2).await);

    // Another leader, with decisions of its own.
    must(tenon.kill_leader().await);
    tokio::task::block_in_place(|| {
        screen.wait("the other leader's decisions", |text| {
            text.contains(" leads since ") && !text.contains("Spot interruption")
        });
    });
    until(&mut screen, "1 pod pending");
    screen.press("q");
    until(&mut screen, "exit code 0");
    assert!(screen.is_left());
    drop(screen);
    drop(tenon);
    must(Arc::into_inner(bed).expect("no other").stop().await);
}
