use tenon_aws_double::reservations::Reservation;

use super::*;

const ONLY: &str =
    "LaunchTemplateData.CapacityReservationSpecification.CapacityReservationPreference";
const TARGET: &str = "LaunchTemplateData.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";

fn reserve(bed: &Bed, total: u32) -> String {
    bed.gateway.control().reserve(Reservation {
        instance_type: "m5.large".to_owned(),
        zone: format!("{REGION}a"),
        total,
        tags: [("team".to_owned(), "ml".to_owned())].into(),
        ..Reservation::default()
    })
}

async fn listed(bed: &Bed, params: &[(&str, &str)]) -> Vec<(String, String)> {
    let answer = bed.ec2("DescribeCapacityReservations", params).await.expect("an answer");
    let text = |item: &Element, name: &str| item.get(name).unwrap_or_default().to_owned();
    let items = answer.items("capacityReservationSet").iter();
    items.map(|item| (text(item, "state"), text(item, "availableInstanceCount"))).collect()
}

#[test]
fn a_template_that_names_a_reservation_launches_into_it_until_it_is_full() {
    on_the_gateway(async |bed| {
        let id = reserve(&bed, 2);
        let reserved = [(ONLY, "capacity-reservations-only"), (TARGET, id.as_str())];
        let template = bed.template_with("reserved", &reserved).await;
        // A shortage is no matter: the capacity is set aside.
        bed.gateway.control().ice(shortage("*"));
        let answer = bed.send(&bed.fleet(&template, "on-demand", &["m5.large"], 3)).await.unwrap();
        let made = ids(&answer);
        assert_eq!(made.len(), 2, "{answer}");
        let codes: Vec<_> =
            answer.items("errorSet").iter().filter_map(|error| error.get("errorCode")).collect();
        assert_eq!(codes, ["ReservationCapacityExceeded"; 3], "the other zones have none");
        let instance = bed.instance(&made[0]);
        assert_eq!(instance.capacity_reservation.as_deref(), Some(id.as_str()));
        let answer = bed.ec2("DescribeInstances", &[("InstanceId.1", &made[0])]).await.unwrap();
        let item = answer.at(&["reservationSet", "item", "instancesSet", "item"]).unwrap();
        assert_eq!(item.get("capacityReservationId"), Some(id.as_str()));
        let preference =
            item.at(&["capacityReservationSpecification", "capacityReservationPreference"]);
        assert_eq!(preference.unwrap().text, "capacity-reservations-only");
    });
}

#[test]
fn reservations_are_listed_with_what_they_have_left_and_their_instances_outlive_them() {
    on_the_gateway(async |bed| {
        let id = reserve(&bed, 2);
        let template = bed.template_with("outlived", &[(TARGET, id.as_str())]).await;
        let made = bed.launch(&template, "on-demand", &["m5.large"], 1).await;
        let left = |state: &str, left: &str| vec![(state.to_owned(), left.to_owned())];
        let by_tag = [("Filter.1.Name", "tag:team"), ("Filter.1.Value.1", "ml")];
        assert_eq!(listed(&bed, &by_tag).await, left("active", "1"));
        let other = [("Filter.1.Name", "instance-match-criteria"), ("Filter.1.Value.1", "open")];
        assert_eq!(listed(&bed, &other).await, []);
        bed.gateway.control().cancel_reservation(&id).unwrap();
        assert_eq!(listed(&bed, &[("CapacityReservationId.1", &id)]).await, left("cancelled", "2"));
        assert_eq!(bed.instance(&made[0]).capacity_reservation, None);
        assert!(bed.gateway.control().alive().contains_key(&made[0]));
        let answer = bed.send(&bed.fleet(&template, "on-demand", &["m5.large"], 1)).await.unwrap();
        assert_eq!(ids(&answer), Vec::<String>::new(), "nothing is launched into it any more");
        let unknown = [("CapacityReservationId.1", "cr-00000000000000000")];
        let refused = bed.ec2("DescribeCapacityReservations", &unknown).await;
        assert_eq!(code(refused), "InvalidCapacityReservationId.NotFound");
    });
}
