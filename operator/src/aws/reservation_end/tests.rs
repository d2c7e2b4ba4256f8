use aws_sdk_ec2::Client;
use aws_sdk_ec2::operation::describe_capacity_reservations::{
    DescribeCapacityReservationsError, DescribeCapacityReservationsOutput,
};
use aws_sdk_ec2::operation::describe_instances::DescribeInstancesOutput;
use aws_sdk_ec2::types::{
    CapacityReservation, CapacityReservationState, CapacityReservationType, Instance,
    InstanceState, InstanceStateName, InstanceType, Placement, Reservation,
};
use aws_smithy_mocks::mock;

use super::*;
use crate::aws::tests::mk_provider;
use crate::testing::apiserver::{ApiServer, refused};
use crate::testing::bench::{Bench, node, nodeclaim};
use crate::watch::wire::Node;

/// A NodeClaim of a machine in a reservation of its own, `cr-NAME`.
fn reserved(name: &str) -> Value {
    let mut claim = nodeclaim(name);
    claim["metadata"]["labels"][labels::CAPACITY_TYPE] = "reserved".into();
    claim["metadata"]["labels"][keys::CAPACITY_RESERVATION_ID] = format!("cr-{name}").into();
    claim
}

/// An instance that is in no reservation.
fn on_demand(name: &str) -> Instance {
    Instance::builder()
        .instance_id(format!("i-{name}"))
        .instance_type(InstanceType::M5Large)
        .placement(Placement::builder().availability_zone("eu-central-1a").build())
        .state(InstanceState::builder().name(InstanceStateName::Running).build())
        .build()
}

/// Three machines on a server that does not write to the NodeClaim of the first and the Node of the
/// second.
async fn bench(method: &'static str, paths: &'static [&'static str]) -> Bench {
    let api = ApiServer::unless(move |request| {
        let is_refused = request.method == method && paths.contains(&request.path.as_str());
        is_refused.then(|| refused(403, "Forbidden"))
    });
    let bench = Bench::with(api).await;
    for name in ["a", "b", "c"] {
        bench.seen::<NodeClaim>(reserved(name)).await;
        bench.seen::<Node>(node(name)).await;
    }
    bench
}

#[tokio::test(start_paused = true)]
async fn machines_without_their_reservation_are_relabelled_though_others_can_not_be_written() {
    let bench = bench("PATCH", &["/apis/karpenter.sh/v1/nodeclaims/a", "/api/v1/nodes/b"]).await;
    let rule = mock!(Client::describe_instances).then_output(|| {
        let reservation = Reservation::builder()
            .set_instances(Some(["a", "b", "c"].map(on_demand).into()))
            .build();
        DescribeInstancesOutput::builder().reservations(reservation).build()
    });
    let provider = mk_provider(&[&rule]);
    provider.state.get_or_init(|| bench.state.clone());
    relabel(&provider, &bench.context, &bench.write).await;
    let left: Vec<_> = provider
        .claims(|claim| label(claim, labels::CAPACITY_TYPE) == Some("reserved"))
        .into_iter()
        .filter_map(|claim| claim.metadata.name.clone())
        .collect();
    assert_eq!(left, ["a", "b"], "they are tried again, and the third is done");
    let errors = |category| {
        let labels = ["capacityreservation.capacitytype", category];
        bench.context.metrics.reconcile_errors.get(labels)
    };
    assert_eq!(errors("forbidden"), 2);
}

#[tokio::test(start_paused = true)]
async fn machines_of_a_block_that_ends_go_though_others_can_not_be_read_or_deleted() {
    let bench = bench("DELETE", &["/apis/karpenter.sh/v1/nodeclaims/b"]).await;
    let ends = bench.context.clock.now() + jiff::SignedDuration::from_mins(1);
    let asks_for = |name: &'static str| {
        move |input: &aws_sdk_ec2::operation::describe_capacity_reservations::DescribeCapacityReservationsInput| {
            input.capacity_reservation_ids().contains(&format!("cr-{name}"))
        }
    };
    let unreadable = mock!(Client::describe_capacity_reservations)
        .match_requests(asks_for("a"))
        .then_error(|| {
            DescribeCapacityReservationsError::generic(
                aws_sdk_ec2::error::ErrorMetadata::builder().code("UnauthorizedOperation").build(),
            )
        });
    let block = |name: &'static str| {
        mock!(Client::describe_capacity_reservations).match_requests(asks_for(name)).then_output(
            move || {
                let reservation = CapacityReservation::builder()
                    .capacity_reservation_id(format!("cr-{name}"))
                    .instance_type("p5.48xlarge")
                    .availability_zone("eu-central-1a")
                    .reservation_type(CapacityReservationType::CapacityBlock)
                    .state(CapacityReservationState::Active)
                    .end_date(aws_smithy_types::DateTime::from_secs(ends.as_second()))
                    .build();
                DescribeCapacityReservationsOutput::builder()
                    .capacity_reservations(reservation)
                    .build()
            },
        )
    };
    let (b, c) = (block("b"), block("c"));
    let provider = mk_provider(&[&unreadable, &b, &c]);
    provider.state.get_or_init(|| bench.state.clone());
    expire(&provider, &bench.context, &bench.write).await;
    let going: Vec<_> = provider
        .claims(|claim| claim.metadata.deletion_timestamp.is_some())
        .into_iter()
        .filter_map(|claim| claim.metadata.name.clone())
        .collect();
    assert_eq!(going, ["c"]);
    let errors = |category| {
        let labels = ["capacityreservation.expiration", category];
        bench.context.metrics.reconcile_errors.get(labels)
    };
    assert_eq!(errors("forbidden"), 1);
    assert_eq!(errors("DescribeCapacityReservations"), 1);
}
