//! The README's ways to try Tenon, command by command. That on an EKS cluster follows the
//! quickstart on its bed (`release/quickstart.rs`).

use std::path::Path;

use tenon_aws_double::progress::Progress;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::programs::TenonPrograms;
use tenon_bed::wait::must;

use crate::guide::{Guide, run};

const README: &str = include_str!("../../../README.md");

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_leads_to_nodes_on_any_cluster() {
    let programs = must(TenonPrograms::provide(&Progress::hidden()).await);
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    let bed = must(Bed::start(config).await);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifests = |dir: &str| (format!("-f {dir}/"), format!("-f {}/{dir}/", root.display()));
    let [crds, docs] = ["crds", "docs"].map(manifests);
    let operator = format!("exec {} ", programs.operator.display());
    let guide = Guide::new(
        README,
        [
            (crds.0.as_str(), crds.1.as_str()),
            (docs.0.as_str(), docs.1.as_str()),
            ("KUBECONFIG=~/.kube/config cargo run --release --bin tenon-operator -- ", &operator),
        ],
    );
    let mut commands = guide.commands("Try it", "docs/examples/kwok.yaml");
    // It runs until it is stopped; it listens on ports that are free.
    let operator = commands.pop().expect("the command that runs the operator");
    for command in commands {
        run(&bed, &command).await;
    }
    let log = must(std::fs::File::create(bed.dir().join("logs/readme-operator.log")));
    let running = bed
        .command(Path::new("sh"))
        .args(["-c", &operator])
        .env("BIND_ADDRESS", "127.0.0.1")
        .env("METRICS_PORT", "0")
        .env("HEALTH_PROBE_PORT", "0")
        .env("DECISIONS_PORT", "0")
        .stdout(must(log.try_clone()))
        .stderr(log)
        .spawn();
    let mut running = must(running);
    // What the first way types on its own bed.
    let workload = guide.commands("Try it", "kubectl create deployment web");
    let create = workload.iter().find(|command| command.starts_with("kubectl create deployment"));
    run(&bed, create.expect("a command that creates pods")).await;
    run(&bed, "kubectl rollout status deployment web --timeout=3m").await;
    let launched = run(&bed, "kubectl get nodeclaims -o name").await;
    assert!(launched.contains("nodeclaim.karpenter.sh/default-"), "{launched}");
    must(running.kill().await);
    must(bed.stop().await);
}
