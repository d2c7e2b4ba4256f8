//! Placement groups over EC2's own API as its SDK speaks it, and who may make them.

use aws_sdk_ec2::Client as Ec2;
use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_sdk_ec2::types::{
    Filter, PlacementGroup, PlacementGroupState, PlacementStrategy, ResourceType, SpreadLevel, Tag,
    TagSpecification,
};

use super::*;

#[test]
fn the_sdk_makes_finds_tags_and_deletes_placement_groups() {
    on_the_gateway(async |bed| {
        let ec2 = Ec2::new(&bed.admin.sdk());
        let tag = |key: &str, value: &str| Tag::builder().key(key).value(value).build();
        let tags = TagSpecification::builder()
            .resource_type(ResourceType::PlacementGroup)
            .tags(tag("team", "data"));
        let make = ec2.create_placement_group().group_name("sdk-parts");
        let make = make.strategy(PlacementStrategy::Partition).partition_count(4);
        let answer = make.tag_specifications(tags.build()).send().await.expect("it is made");
        let made = answer.placement_group().expect("the group").clone();
        assert_eq!(made.state(), Some(&PlacementGroupState::Available));
        assert_eq!(made.strategy(), Some(&PlacementStrategy::Partition));
        assert_eq!((made.partition_count(), made.spread_level()), (Some(4), None));
        assert_eq!(made.tags(), [tag("team", "data")]);
        let arn = format!("arn:aws:ec2:{REGION}:{ACCOUNT}:placement-group/sdk-parts");
        assert_eq!(made.group_arn(), Some(arn.as_str()));
        let id = made.group_id().expect("an ID");
        assert!(id.starts_with("pg-"), "{id}");
        let spread = ec2.create_placement_group().group_name("sdk-apart");
        let spread = spread.strategy(PlacementStrategy::Spread).send().await.expect("it is made");
        let spread = spread.placement_group().expect("the group");
        assert_eq!(spread.spread_level(), Some(&SpreadLevel::Rack));

        // As the operator asks.
        let available = Filter::builder().name("state").values("available").build();
        let ask = || ec2.describe_placement_groups().filters(available.clone());
        let by_id = ask().group_ids(id).send().await.expect("a list");
        assert_eq!(by_id.placement_groups(), std::slice::from_ref(&made));
        let by_name = ask().group_names("sdk-parts").send().await.expect("a list");
        assert_eq!(by_name.placement_groups(), by_id.placement_groups());
        let unknown = ask().group_names("sdk-gone").send().await.expect_err("it is not there");
        assert_eq!(unknown.code(), Some("InvalidPlacementGroup.Unknown"));

        ec2.create_tags().resources(id).tags(tag("stage", "test")).send().await.expect("tagged");
        let tagged = Filter::builder().name("tag:stage").values("test").build();
        let found = ec2.describe_placement_groups().filters(tagged).send().await.expect("a list");
        let names = found.placement_groups().iter().filter_map(PlacementGroup::group_name);
        assert_eq!(names.collect::<Vec<_>>(), ["sdk-parts"]);
        for name in ["sdk-parts", "sdk-apart"] {
            ec2.delete_placement_group().group_name(name).send().await.expect("it goes");
        }
        let again = ec2.delete_placement_group().group_name("sdk-parts").send().await;
        let again = again.expect_err("it is gone");
        assert_eq!(again.code(), Some("InvalidPlacementGroup.Unknown"));
    });
}
