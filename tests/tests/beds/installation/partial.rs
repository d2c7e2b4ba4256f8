//! An installation that was given up on the way is uninstalled, wherever it ended.

use tenon_bed::bed::{Bed, BedConfig};

use super::command::tenon;
use super::install::{MANY, assert_unchanged, inventory, settings, write};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_installation_left_is_uninstalled_wherever_it_ended() {
    let bed = Bed::start(BedConfig::default()).await.expect("the bed starts");
    let before = inventory(&bed).await;
    let file = write(&bed, "tenon.yaml", &format!("{:#}\n", settings(&bed))).display().to_string();
    let install = ["install", "-f", file.as_str(), "--yes"];
    let mut complete = false;
    for steps in 1..MANY {
        let installed = tenon(&bed, &install, Some(steps)).await;
        complete = installed.code == 0;
        let removed = tenon(&bed, &["uninstall", "--yes"], None).await;
        assert_eq!(
            removed.code, 0,
            "after {steps} steps:\n{}\n{}\n{}",
            installed.stderr, removed.stderr, removed.stdout
        );
        assert_unchanged(&before, &inventory(&bed).await);
        if complete {
            assert!(steps > 20, "only {steps} steps");
            break;
        }
    }
    assert!(complete, "the installation has more steps than {MANY}");
    bed.stop().await.expect("the bed stops");
}
