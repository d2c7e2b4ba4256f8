//! A real Argo CD installs Tenon: the story that `cargo sandbox neighbours argocd` tells. Argo CD
//! takes minutes to build, so CI tells it only where that was done.

use tenon_bed::demo::{Neighbour, prove_neighbour};
use tenon_bed::wait::must;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Argo CD, which takes five minutes"]
async fn argocd_installs_tenon_from_git_and_leaves_nothing_when_it_is_removed() {
    let report = must(prove_neighbour(Neighbour::ArgoCd).await);
    report.must_be_ok();
}
