//! What was measured, beside what Karpenter takes for the same on such a machine.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use tenon_aws_double::progress::Progress;

use super::{Case, Failure, MeasureArgs};
use crate::programs::TenonPrograms;

/// The table: a row for each kind of work, in order.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    rows: Vec<Row>,
}

/// A kind of work.
#[derive(Debug, Serialize)]
struct Row {
    work: String,
    /// What Karpenter 1.14.1 took, release build, the same control plane and as many pods as when
    /// nothing is said of them, on 2 cores with nothing else to do.
    karpenter: &'static str,
    /// What we want.
    target: &'static str,
    measured: String,
    /// All that was measured.
    figures: Value,
}

/// Measures all of it, one after the other.
pub(super) async fn measure(
    programs: &TenonPrograms,
    args: &MeasureArgs,
    progress: &Progress,
) -> Result<Table, Failure> {
    let each = args.pods.unwrap_or(1000) / 2;
    let mix = super::of(Case::Mix, programs, args, progress).await?;
    let alike = MeasureArgs {
        pods: Some(args.pods.unwrap_or(5000)),
        per_node: Some(args.per_node.unwrap_or(62)),
        cpu: 250,
        ..args.clone()
    };
    let floor = super::of(Case::Floor, programs, &alike, progress).await?;
    let alike = super::of(Case::Alike, programs, &alike, progress).await?;
    let large = super::of(Case::Large, programs, args, progress).await?;
    let rows = vec![
        Row {
            work: format!("{each} small and {each} large pods, until all run"),
            karpenter: "28.4 s, 158 nodes (plan: 140), 83.6 $/h, 235 MiB, 9.5 CPU s",
            target: "15 s, nodes as planned, 73.5 $/h, 70 MiB, 1.5 CPU s",
            measured: format!(
                "{:.1} s, {} nodes (plan: {}), {:.1} $/h, {:.0} MiB, {:.1} CPU s; {:.1} % of the pods as planned, {} evictions in the minute after",
                number(&mix, "/all_running_seconds"),
                mix["nodes"],
                mix["nodes_of_first_plan"],
                number(&mix, "/price"),
                number(&mix, "/rss_mib"),
                number(&mix, "/cpu_seconds/tenon-operator"),
                number(&mix, "/bound_as_planned_percent"),
                number(&mix, "/evictions_afterwards"),
            ),
            figures: mix.clone(),
        },
        Row {
            work: format!("then {0} and {0}, until at rest", each * 7 / 10),
            karpenter: "not at rest after 548 s, 124 nodes, 54.7 $/h, 234 evictions",
            target: "90 s, 52 $/h, 100 evictions",
            measured: format!(
                "{}, {} nodes, {:.1} $/h, {} evictions",
                match mix["rest_seconds"].as_f64() {
                    Some(seconds) => format!("{seconds:.0} s"),
                    None => format!("not at rest after {} s", args.limit),
                },
                mix["rest"][0],
                number(&mix, "/rest/1"),
                number(&mix, "/rest_evictions"),
            ),
            figures: Value::Null,
        },
        Row {
            work: format!(
                "{} pods of a quarter of a CPU, until all run",
                args.pods.unwrap_or(5000)
            ),
            karpenter: "60 s, 81 nodes, 34.5 $/h, 393 MiB, 17.6 CPU s",
            target: "30 s, 70 MiB, 2 CPU s",
            measured: format!(
                "{:.0} s ({:.0} s where the nodes are there before and no autoscaler runs), {} nodes, {:.1} $/h, {:.0} MiB, {:.1} CPU s",
                number(&alike, "/all_running_seconds"),
                number(&floor, "/all_running_seconds"),
                alike["nodes"],
                number(&alike, "/price"),
                number(&alike, "/rss_loaded_mib"),
                number(&alike, "/cpu_seconds/tenon-operator"),
            ),
            figures: alike.clone(),
        },
        Row {
            work: "nothing to do".to_owned(),
            karpenter: "76 MiB",
            target: "20 MiB",
            measured: format!("{:.0} MiB", number(&alike, "/rss_idle_mib")),
            figures: Value::Null,
        },
        Row {
            work: format!(
                "{} nodes and {} pods that are there at the start",
                large["nodes"], large["pods"]
            ),
            karpenter: "not measured",
            target: "ready after 20 s, 300 MB",
            measured: format!(
                "ready after {:.0} s, leading after {:.0} s, {:.0} MiB ({:.0} at its peak), {:.0} CPU s; 100 more pods: first NodeClaim after {:.1} s",
                number(&large, "/ready_seconds"),
                number(&large, "/leads_seconds"),
                number(&large, "/rss_mib"),
                number(&large, "/peak_mib"),
                number(&large, "/cpu_seconds"),
                number(&large, "/first_claim_seconds"),
            ),
            figures: large,
        },
    ];
    Ok(Table { rows })
}

fn number(figures: &Value, pointer: &str) -> f64 {
    figures.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// As Markdown.
impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "| work | Karpenter | target | Tenon |\n|---|---|---|---|")?;
        for Row { work, karpenter, target, measured, .. } in &self.rows {
            writeln!(formatter, "| {work} | {karpenter} | {target} | {measured} |")?;
        }
        Ok(())
    }
}
