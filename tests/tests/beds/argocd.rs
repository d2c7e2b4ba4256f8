//! A real Argo CD installs Tenon, takes over what is installed, or has installed Karpenter: the
//! stories that `cargo sandbox neighbours argocd`, `argocd-take-over` and `argocd-adopt` tell. Argo
//! CD takes minutes to build, so CI tells them only where that was done.

use tenon_bed::demo::{Neighbour, prove_neighbour};
use tenon_bed::wait::must;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Argo CD, which takes five minutes"]
async fn argocd_installs_tenon_from_git_and_leaves_nothing_when_it_is_removed() {
    let report = must(prove_neighbour(Neighbour::ArgoCd).await);
    report.must_be_ok();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Argo CD, which takes five minutes"]
async fn argocd_takes_over_what_tenon_install_has_installed() {
    let report = must(prove_neighbour(Neighbour::ArgoCdTakeOver).await);
    report.must_be_ok();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Argo CD, which takes five minutes"]
async fn karpenter_that_argocd_installed_is_adopted_and_comes_back() {
    let report = must(prove_neighbour(Neighbour::ArgoCdAdopt).await);
    report.must_be_ok();
}
