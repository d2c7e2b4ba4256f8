use super::*;

const GROUP: &str = "LaunchTemplateData.Placement.GroupName";
const GROUP_ID: &str = "LaunchTemplateData.Placement.GroupId";
const PARTITION: &str = "LaunchTemplateData.Placement.PartitionNumber";

/// Makes a group; returns its ID.
async fn make(bed: &Bed, params: &[(&str, &str)]) -> String {
    let answer = bed.ec2("CreatePlacementGroup", params).await.expect("it is made");
    let made = answer.child("placementGroup").expect("the group");
    assert_eq!(made.get("state"), Some("available"));
    made.get("groupId").expect("an ID").to_owned()
}

/// Group, and partition if there is one, as DescribeInstances tells them.
async fn placed(bed: &Bed, id: &str) -> (String, String, Option<u32>) {
    let answer = bed.ec2("DescribeInstances", &[("InstanceId.1", id)]).await.expect("an answer");
    let path = ["reservationSet", "item", "instancesSet", "item", "placement"];
    let placement = answer.at(&path).expect("placement");
    let text = |name: &str| placement.get(name).unwrap_or_default().to_owned();
    let partition = placement.get("partitionNumber").map(|number| number.parse().expect("number"));
    (text("groupName"), text("groupId"), partition)
}

#[test]
fn groups_are_made_listed_and_deleted_with_ec2_s_refusals() {
    on_the_gateway(async |bed| {
        let refusals: [(&[(&str, &str)], &str); 5] = [
            (&[], "MissingParameter"),
            (&[("GroupName", "x"), ("Strategy", "heap")], "InvalidParameterValue"),
            (
                &[("GroupName", "x"), ("Strategy", "cluster"), ("PartitionCount", "2")],
                "InvalidParameterCombination",
            ),
            (
                &[("GroupName", "x"), ("Strategy", "partition"), ("PartitionCount", "8")],
                "InvalidParameterValue",
            ),
            (
                &[("GroupName", "x"), ("Strategy", "spread"), ("SpreadLevel", "host")],
                "InvalidParameterValue",
            ),
        ];
        for (params, expected) in refusals {
            assert_eq!(code(bed.ec2("CreatePlacementGroup", params).await), expected, "{params:?}");
        }
        let cluster = make(&bed, &[("GroupName", "close")]).await;
        let tagged = [
            ("GroupName", "parts"),
            ("Strategy", "partition"),
            ("TagSpecification.1.ResourceType", "placement-group"),
            ("TagSpecification.1.Tag.1.Key", "team"),
            ("TagSpecification.1.Tag.1.Value", "data"),
        ];
        make(&bed, &tagged).await;
        make(&bed, &[("GroupName", "apart"), ("Strategy", "spread")]).await;
        let again = bed.ec2("CreatePlacementGroup", &[("GroupName", "close")]).await;
        assert_eq!(code(again), "InvalidPlacementGroup.Duplicate");

        let names = async |params: &[(&str, &str)]| {
            let answer = bed.ec2("DescribePlacementGroups", params).await.expect("an answer");
            let items = answer.items("placementGroupSet").iter();
            items
                .map(|item| item.get("groupName").unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&[]).await, ["apart", "close", "parts"]);
        assert_eq!(names(&[("GroupId.1", &cluster)]).await, ["close"]);
        let by = |name: &'static str, value: &'static str| {
            [("Filter.1.Name", name), ("Filter.1.Value.1", value)]
        };
        assert_eq!(names(&by("strategy", "partition")).await, ["parts"]);
        assert_eq!(names(&by("tag:team", "data")).await, ["parts"]);
        assert_eq!(names(&by("spread-level", "rack")).await, ["apart"]);
        assert_eq!(names(&by("state", "deleted")).await, [""; 0]);
        let by_id = [("Filter.1.Name", "group-id"), ("Filter.1.Value.1", cluster.as_str())];
        let refused = bed.ec2("DescribePlacementGroups", &by_id).await;
        assert_eq!(code(refused), "InvalidParameterValue", "EC2 has no such filter");
        let unknown = "InvalidPlacementGroup.Unknown";
        for params in [[("GroupName.1", "gone")], [("GroupId.1", "pg-00000000000000000")]] {
            assert_eq!(code(bed.ec2("DescribePlacementGroups", &params).await), unknown);
        }
        bed.ec2("DeletePlacementGroup", &[("GroupName", "close")]).await.expect("it goes");
        assert_eq!(code(bed.ec2("DeletePlacementGroup", &[("GroupName", "close")]).await), unknown);
    });
}

#[test]
fn launches_go_into_the_partition_that_they_name_or_into_the_emptiest() {
    on_the_gateway(async |bed| {
        let params = [("GroupName", "parts"), ("Strategy", "partition"), ("PartitionCount", "3")];
        let id = make(&bed, &params).await;
        let named = bed.template_with("second", &[(GROUP_ID, id.as_str()), (PARTITION, "2")]).await;
        let second = bed.launch(&named, "on-demand", &["m5.large"], 2).await;
        for instance in &second {
            assert_eq!(placed(&bed, instance).await, ("parts".into(), id.clone(), Some(2)));
        }
        let any = bed.template_with("any", &[(GROUP, "parts")]).await;
        let mut chosen = Vec::new();
        for instance in bed.launch(&any, "spot", &["m5.large"], 5).await {
            chosen.push(placed(&bed, &instance).await.2.expect("a partition"));
        }
        assert_eq!(chosen, [1, 3, 1, 3, 1]);
        // A group with instances stays.
        let delete = async || bed.ec2("DeletePlacementGroup", &[("GroupName", "parts")]).await;
        assert_eq!(code(delete().await), "InvalidPlacementGroup.InUse");
        let all: Vec<String> = bed.gateway.control().alive().into_keys().collect();
        bed.gateway.control().terminate(&all).expect("they are there");
        delete().await.expect("it goes");
    });
}

#[test]
fn launches_into_what_is_not_there_are_refused_with_ec2_s_code() {
    on_the_gateway(async |bed| {
        make(&bed, &[("GroupName", "parts"), ("Strategy", "partition")]).await;
        let cases: [(&[(&str, &str)], &str); 5] = [
            (&[(GROUP, "gone")], "InvalidPlacementGroup.Unknown"),
            (&[(GROUP_ID, "pg-00000000000000000")], "InvalidPlacementGroup.Unknown"),
            (&[(GROUP, "parts"), (PARTITION, "3")], "InvalidParameterValue"),
            (&[(PARTITION, "1")], "InvalidParameterCombination"),
            (&[(GROUP, "parts"), (GROUP_ID, "pg-1")], "InvalidParameterCombination"),
        ];
        for (params, expected) in cases {
            let template = bed.template_with("wrong", params).await;
            let fleet = bed.fleet(&template, "on-demand", &["m5.large"], 1);
            let answer = bed.send(&fleet).await.expect("an answer");
            let errors = answer.items("errorSet").iter();
            let codes: Vec<_> = errors.filter_map(|error| error.get("errorCode")).collect();
            assert_eq!(codes, [expected; 3], "one for each zone: {params:?}");
            assert_eq!(ids(&answer), [""; 0]);
            let run = [
                ("LaunchTemplate.LaunchTemplateName", template.as_str()),
                ("InstanceType", "m5.large"),
                ("SubnetId", bed.seed.subnet_ids[0].as_str()),
                ("MinCount", "1"),
                ("MaxCount", "1"),
                ("DryRun", "true"),
            ];
            assert_eq!(code(bed.ec2("RunInstances", &run).await), expected, "{params:?}");
        }
    });
}

#[test]
fn a_spread_group_takes_seven_instances_in_a_zone() {
    on_the_gateway(async |bed| {
        make(&bed, &[("GroupName", "apart"), ("Strategy", "spread")]).await;
        let template = bed.template_with("apart", &[(GROUP, "apart")]).await;
        let launch = async |count: u32| {
            let fleet = bed.fleet(&template, "on-demand", &["m5.large"], count);
            bed.send(&fleet).await.expect("an answer")
        };
        assert_eq!(ids(&launch(5).await).len(), 5);
        let answer = launch(17).await;
        assert_eq!(ids(&answer).len(), 16, "seven in each of three zones");
        let full = "limit of instances in this spread placement group";
        let errors = answer.items("errorSet");
        let told = |error: &Element| error.get("errorMessage").unwrap_or_default().contains(full);
        assert!(errors.len() == 3 && errors.iter().all(told), "{answer}");
        let item = &answer.items("fleetInstanceSet")[0].items("instanceIds")[0];
        assert_eq!(placed(&bed, &item.text).await.2, None, "it has no partitions");
    });
}
