//! A real Flux installs Tenon, takes over what is installed, or has installed Karpenter: the
//! stories that `cargo sandbox neighbours flux`, `flux-take-over` and `flux-adopt` tell. Flux takes
//! minutes to build, so CI tells them only where that was done.

use tenon_bed::demo::{Neighbour, prove_neighbour};
use tenon_bed::wait::must;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Flux, which takes eight minutes"]
async fn flux_installs_tenon_from_git_and_leaves_nothing_when_it_is_removed() {
    let report = must(prove_neighbour(Neighbour::Flux).await);
    report.must_be_ok();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Flux, which takes eight minutes"]
async fn flux_takes_over_what_tenon_install_has_installed() {
    let report = must(prove_neighbour(Neighbour::FluxTakeOver).await);
    report.must_be_ok();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Flux, which takes eight minutes"]
async fn karpenter_that_flux_installed_is_adopted_and_comes_back() {
    let report = must(prove_neighbour(Neighbour::FluxAdopt).await);
    report.must_be_ok();
}
