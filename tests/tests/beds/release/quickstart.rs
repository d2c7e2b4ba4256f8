//! The guide "Quickstart", command by command: from a cluster without Tenon to a node that it
//! launched, and back to nothing.

use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::registry::Registry;
use tenon_bed::wait::must;
use tenon_release::proxy::Proxies;
use tenon_release::registry;
use tenon_terminal::Terminal;
use tokio::time::Instant;

use super::{VERSION, image};
use crate::guide::{Guide, run};
use crate::terminal::converse;

/// Commands that people run every day, as long as they print no commands to copy, which are not
/// wrapped.
const SCREENS: [&str; 4] = ["status", "explain nodepool default", "doctor", "diff"];

/// What these print fits on every terminal, moves no cursor, and is coloured only where colours are
/// wanted and shown.
async fn screens_fit_every_terminal(bed: &Bed) {
    let terminal = |columns, kind| Terminal { columns, kind, ..Terminal::default() };
    for command in SCREENS {
        let mut words = Vec::new();
        for columns in [60, 80, 120] {
            let screen = converse(terminal(columns, "xterm-256color"), bed, command, &[]);
            let plain = converse(terminal(columns, "dumb"), bed, command, &[]);
            for text in [&screen, &plain] {
                assert!(!text.contains('\u{1b}'), "{command} at {columns}: {text:?}");
                assert!(text.contains("exit code 0"), "{command} at {columns}: {text}");
            }
            // Commands to copy are not broken.
            let is_command = |line: &str| line.contains(['`', '→']) || line.starts_with("    ");
            let wide = plain.lines().map(str::trim_end).filter(|line| {
                line.chars().count() > usize::from(columns)
                    && line.trim().contains(' ')
                    && !is_command(line)
            });
            assert_eq!(wide.collect::<Vec<_>>(), Vec::<&str>::new(), "{command} at {columns}");
            words.push(plain.split_whitespace().count());
        }
        assert!(words.iter().all(|count| *count > 5), "{command}: {words:?}");
    }
    let coloured = Terminal { has_colors: true, ..Terminal::default() };
    let screen = converse(coloured, bed, "status", &[]);
    assert!(screen.contains("\u{1b}["), "{screen}");
    let piped = must(bed.run_tenon(&["status"]).await).stdout;
    assert!(!piped.contains('\u{1b}'), "{piped}");

    // It is redrawn in place where that is possible, and ends at Ctrl-C.
    let shown = [("NODEPOOL", "\u{3}")];
    let moving = converse(Terminal::default(), bed, "status --watch", &shown);
    assert!(moving.contains("exit code 130") && moving.contains("\u{1b}["), "{moving:?}");
    assert!(!moving.contains("completed steps"), "{moving:?}");
    let still = converse(terminal(80, "dumb"), bed, "status --watch", &shown);
    assert!(still.contains("exit code 130") && !still.contains("\u{1b}["), "{still:?}");
}

/// Something that differs from the settings is an exit code of its own.
async fn a_difference_has_an_exit_code(bed: &Bed) {
    let code = async |args: &[&str]| must(bed.run_tenon(args).await).code;
    assert_eq!(code(&["status", "--exit-code"]).await, 0);
    let kubectl = async |args: &[&str]| {
        let output = must(bed.command("kubectl".as_ref()).args(args).output().await);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let limit = async |cpu: &str| {
        let patch = format!(r#"{{"spec":{{"limits":{{"cpu":"{cpu}"}}}}}}"#);
        kubectl(&["patch", "nodepool", "default", "--type=merge", "-p", &patch]).await;
    };
    let installed =
        kubectl(&["get", "nodepool", "default", "-o", "jsonpath={.spec.limits.cpu}"]).await;
    let before = must(bed.run_tenon(&["diff"]).await);
    assert_eq!(before.code, 0, "{}", before.stdout);
    limit("51").await;
    assert_eq!(code(&["diff"]).await, 5);
    assert_eq!(code(&["status", "--exit-code"]).await, 5);
    assert_eq!(code(&["status"]).await, 0);
    limit(&installed).await;
    assert_eq!(code(&["diff"]).await, 0);
}

/// The README's way to try it on an EKS cluster; what it leaves to prompts is answered by options.
async fn the_readme_is_as_short(bed: &Bed, tenon: &str, cluster: &str, repository: &str) {
    let image = format!("--image {repository} --install-agent --yes");
    let guide = Guide::new(
        include_str!("../../../../README.md"),
        [
            ("cargo install --locked --path installer", "true"),
            ("tenon uninstall", "tenon uninstall --yes"),
            ("tenon ", tenon),
            ("--cluster prod --region eu-central-1", cluster),
            ("--image REGISTRY/tenon-operator", &image),
        ],
    );
    let mut printed = String::new();
    for command in guide.commands("Try it", "tenon preflight") {
        printed = run(bed, &command).await;
    }
    assert!(printed.contains("nothing is left"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_leads_to_a_node_and_back() {
    let bed = must(Bed::start(BedConfig::default()).await);
    let registry = must(Registry::start(&bed, None).await);
    let repository = format!("{}/tenon/tenon-operator", registry.host());
    let reference = must(format!("{repository}:{VERSION}").parse::<registry::Reference>());
    let push = registry::Registry::of(reference, None, Proxies::default());
    must(push.push(&image(&bed).await).await);

    let cluster = format!("--cluster {} --region {}", bed.cluster(), bed.region());
    let tenon = format!("{} ", must(bed.tenon()).display());
    let mut guide = Guide::new(
        include_str!("../../../../docs/src/guides/quickstart.md"),
        [
            ("tenon ", tenon.as_str()),
            ("--cluster prod --region eu-central-1", &cluster),
            ("registry.example/tenon/tenon-operator", &repository),
        ],
    );
    must(std::fs::write(bed.dir().join("web.yaml"), guide.file("web.yaml")));
    let started = Instant::now();
    guide.follow(&bed, "Check the cluster").await;
    guide.follow(&bed, "Install Tenon").await;
    let installed = started.elapsed();
    let launched = guide.follow(&bed, "Launch the first node").await;
    eprintln!("installed after {installed:?}, first node after {:?}", started.elapsed());
    for part in ["successfully rolled out", "nodeclaim.karpenter.sh/default-", "launch a node"] {
        assert!(launched.contains(part), "{part} is not in:\n{launched}");
    }
    a_difference_has_an_exit_code(&bed).await;
    screens_fit_every_terminal(&bed).await;
    let removed = guide.follow(&bed, "Remove it again").await;
    assert!(removed.contains("nothing is left"), "{removed}");
    guide.has_read_all_but(&["Get `tenon`"]);
    guide.write_recording();
    the_readme_is_as_short(&bed, &tenon, &cluster, &repository).await;
    registry.stop().await;
    must(bed.stop().await);
}
