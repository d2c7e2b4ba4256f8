//! Why pods stay pending, in the words of all who had a say: kube-scheduler, the operator's events,
//! and the planner asked once more about the cluster as it is. The snapshot is kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use tenon_bed::wait::must;
use tenon_planner::{Policy, Snapshot, provision};

use super::{Court, bound, refusal};

/// Writes a snapshot to a file that `tenon simulate -f` reads.
pub(super) async fn keep(snapshot: &Snapshot, seed: u64) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tenon-oracle-{seed}.json"));
    let json = serde_json::to_vec_pretty(snapshot).expect("snapshots are plain data");
    must(tokio::fs::write(&path, json).await);
    path
}

/// The end of the operator's log; all of it is kept.
pub(super) async fn of_operator(log: &Path, seed: u64) -> String {
    const LINES: usize = 60;
    let kept = std::env::temp_dir().join(format!("tenon-oracle-{seed}.log"));
    let text = must(tokio::fs::read_to_string(log).await);
    must(tokio::fs::write(&kept, &text).await);
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(LINES)..].join("\n");
    format!("the operator's log ends with (all of it: {}):\n{end}", kept.display())
}

/// Tells of each pod that is not bound why.
pub(super) async fn of_waiting(court: &Court, seed: u64, now: Timestamp) -> String {
    let pods = court.pods().await;
    let waiting = pods.values().filter(|pod| bound(pod).is_none());
    let mut said: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in court.list::<Event>().await {
        let by = event.source.and_then(|source| source.component).unwrap_or_default();
        let text = format!(
            "{by}: {} {}",
            event.reason.unwrap_or_default(),
            event.message.unwrap_or_default()
        );
        said.entry(event.involved_object.uid.unwrap_or_default()).or_default().push(text);
    }
    let snapshot = court.snapshot(now).await;
    let plan = provision(&snapshot, &Policy::default(), now, seed, &());
    let mut text = String::new();
    for pod in waiting {
        let uid = pod.uid().unwrap_or_default();
        writeln!(text, "{}: {}", pod.name_any(), refusal(pod).unwrap_or_default()).expect("text");
        if let Some(node) = nominated(pod) {
            writeln!(text, "  nominated to {node}").expect("text");
        }
        for line in said.get(&uid).into_iter().flatten() {
            writeln!(text, "  {line}").expect("text");
        }
        let here = plan.nominations.iter().find(|it| *it.pod.uid == *uid);
        let launch = plan.launches.iter().find(|it| it.pods.iter().any(|pod| *pod.uid == *uid));
        let reasons = plan.report.pods.iter().find(|it| *it.pod.uid == *uid);
        match (here, launch, reasons) {
            (Some(nomination), ..) => {
                let key = &nomination.node;
                let node = snapshot.nodes.iter().find(|node| node.key == *key);
                let name = node.and_then(|node| node.name.as_deref()).unwrap_or("nothing");
                writeln!(text, "  the planner now puts it on {name}")
            }
            (_, Some(launch), _) => writeln!(
                text,
                "  the planner now launches a machine of {} for it: {:?}",
                launch.node_pool, launch.requirements
            ),
            (.., Some(waiting)) => {
                writeln!(text, "  the planner now has no place for it: {:?}", waiting.reasons)
            }
            _ => writeln!(text, "  the planner now does not look at it"),
        }
        .expect("text");
    }
    let path = keep(&snapshot, seed).await;
    writeln!(text, "the cluster as the planner sees it: {}", path.display()).expect("text");
    text
}

/// Where the operator, or kube-scheduler itself, means a pod to go.
fn nominated(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref()
}
