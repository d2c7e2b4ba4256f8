//! A real Flux installs Tenon, or takes over what is installed: the stories that `cargo sandbox
//! neighbours flux` and `flux-take-over` tell. Flux takes minutes to build, so CI tells them only
//! where that was done.

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
