//! Scenarios: snapshots as files, and what is planned for them. To add one, add a file to
//! `scenarios/` and its name to the list.

use std::fmt::Write as _;

use super::fixtures::now;
use crate::{Plan, Policy, Snapshot, check, disrupt, provision};

/// The parts of a plan that a reader wants to see, one per line.
fn summary(plan: &Plan) -> String {
    let mut text = String::new();
    let mut line = |parts: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{parts}");
    };
    for launch in &plan.launches {
        let pods: Vec<_> = launch.pods.iter().map(|pod| &*pod.name).collect();
        line(format_args!(
            "launch {} as {} of {} types, ${:.4}: {}",
            launch.node_pool,
            launch.instance_types[0],
            launch.instance_types.len(),
            launch.price.as_usd(),
            pods.join(" ")
        ));
    }
    for nomination in &plan.nominations {
        line(format_args!("{} goes on {}", nomination.pod.name, nomination.node));
    }
    for command in &plan.commands {
        let nodes: Vec<_> = command.candidates.iter().map(|node| node.node.as_str()).collect();
        line(format_args!(
            "{:?} removes {}, saves ${:.4}",
            command.method,
            nodes.join(" "),
            command.savings.as_usd()
        ));
        for launch in &command.replacements {
            line(format_args!("  launch {} as {}", launch.node_pool, launch.instance_types[0]));
        }
        for nomination in &command.nominations {
            line(format_args!("  {} goes on {}", nomination.pod.name, nomination.node));
        }
    }
    for pod in &plan.report.pods {
        line(format_args!("{} waits: {:?}", pod.pod.name, pod.reasons));
    }
    for node in &plan.report.nodes {
        line(format_args!("{} stays: {:?}", node.node, node.reason));
    }
    text
}

fn run(name: &str, yaml: &str) {
    let snapshot: Snapshot = serde_saphyr::from_str(yaml).expect("the scenario parses");
    snapshot.validate().expect("the scenario is a valid snapshot");
    let policy = Policy::default();
    let plans = [
        ("provision", provision(&snapshot, &policy, now(), 1, &())),
        ("disrupt", disrupt(&snapshot, &policy, now(), 1, &())),
    ];
    let mut text = String::new();
    for (verb, plan) in plans {
        assert_eq!(check(&snapshot, &plan), [], "{name}");
        let _ = write!(text, "# {verb}\n{}", summary(&plan));
    }
    insta::assert_snapshot!(name, text);
}

#[test]
fn scenarios_are_planned_as_recorded() {
    insta::with_settings!({ snapshot_path => "../../scenarios", prepend_module_to_snapshot => false }, {
        run("growth", include_str!("../../scenarios/growth.yaml"));
        run("shrink", include_str!("../../scenarios/shrink.yaml"));
    });
}
