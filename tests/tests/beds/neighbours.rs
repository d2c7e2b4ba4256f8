//! The stories of `cargo sandbox neighbours` for which nothing has to be built.

use tenon_bed::demo::{Neighbour, prove_neighbour};
use tenon_bed::wait::must;

#[tokio::test(flavor = "multi_thread")]
async fn a_kops_cluster_gets_tenon_and_nodes_and_keeps_nothing_of_it() {
    must(prove_neighbour(Neighbour::Kops).await).must_be_ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_move_from_cluster_autoscaler_s_groups_to_node_pools_and_back() {
    must(prove_neighbour(Neighbour::ClusterAutoscaler).await).must_be_ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_reaches_a_real_alertmanager_and_ends() {
    must(prove_neighbour(Neighbour::Prometheus).await).must_be_ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interruption_survives_the_end_of_node_termination_handler() {
    must(prove_neighbour(Neighbour::TerminationHandler).await).must_be_ok();
}
