use std::collections::BTreeSet;

use tenon_aws_double::prices::CapacityType;

use super::*;

/// Every item of a list, page by page; each page has at most `size`.
async fn all(
    bed: &Bed,
    action: &str,
    set: &str,
    size: usize,
    params: &[(&str, &str)],
) -> Vec<Element> {
    let mut found = Vec::new();
    let mut request = Params::of(params.iter().copied());
    request.set("Action", action);
    request.set("MaxResults", size.to_string());
    loop {
        let answer = bed.aws.query_params("ec2", action, &request).await.expect("a page");
        let items = answer.items(set);
        assert!(items.len() <= size, "{} items in a page of {size}", items.len());
        found.extend(items.iter().cloned());
        match answer.get("nextToken") {
            Some(token) => request.set("NextToken", token),
            None => return found,
        }
    }
}

#[test]
fn instance_types_are_filtered_by_any_value_and_paged() {
    on_the_gateway(async |bed| {
        let filters = [
            ("Filter.1.Name", "processor-info.supported-architecture"),
            ("Filter.1.Value.1", "x86_64"),
            ("Filter.1.Value.2", "arm64"),
            ("Filter.2.Name", "supported-virtualization-type"),
            ("Filter.2.Value.1", "hvm"),
        ];
        let types = all(&bed, "DescribeInstanceTypes", "instanceTypeSet", 100, &filters).await;
        let names: BTreeSet<&str> =
            types.iter().filter_map(|found| found.get("instanceType")).collect();
        assert_eq!(names.len(), types.len(), "each once");
        for name in ["t2.nano", "m5.large", "m6g.large", "m5.metal"] {
            assert!(names.contains(name), "{name}");
        }
        let offered = all(
            &bed,
            "DescribeInstanceTypeOfferings",
            "instanceTypeOfferingSet",
            1000,
            &[("LocationType", "availability-zone")],
        )
        .await;
        let offered: BTreeSet<&str> =
            offered.iter().filter_map(|offer| offer.get("instanceType")).collect();
        assert!(names.iter().all(|name| offered.contains(name)), "only what the region offers");
        let unlimited = bed.ec2("DescribeInstanceTypes", &[]).await.unwrap();
        assert_eq!(unlimited.items("instanceTypeSet").len(), 100, "a page even when not asked for");
        assert_eq!(
            code(bed.ec2("DescribeInstanceTypes", &[("InstanceType.1", "m99.large")]).await),
            "InvalidInstanceType"
        );
        assert_eq!(
            code(
                bed.ec2(
                    "DescribeInstanceTypes",
                    &[("Filter.1.Name", "nonsense"), ("Filter.1.Value.1", "x")]
                )
                .await
            ),
            "InvalidParameterValue"
        );
    });
}

#[test]
fn offerings_match_wildcards_and_zone_ids() {
    on_the_gateway(async |bed| {
        let zone = [
            ("LocationType", "availability-zone"),
            ("Filter.1.Name", "instance-type"),
            ("Filter.1.Value.1", "m5.*"),
        ];
        let found =
            all(&bed, "DescribeInstanceTypeOfferings", "instanceTypeOfferingSet", 1000, &zone)
                .await;
        assert!(
            found.len() > 9
                && found.iter().all(|offer| offer.get("instanceType").unwrap().starts_with("m5."))
        );
        let ids = [("LocationType", "availability-zone-id"), zone[1], zone[2]];
        let by_id =
            all(&bed, "DescribeInstanceTypeOfferings", "instanceTypeOfferingSet", 1000, &ids).await;
        assert_eq!(by_id.len(), found.len());
        assert!(by_id.iter().all(|offer| offer.get("location").unwrap().starts_with("euc1-az")));
    });
}

#[test]
fn spot_prices_are_those_that_launches_go_by() {
    on_the_gateway(async |bed| {
        let params = [
            ("ProductDescription.1", "Linux/UNIX"),
            ("ProductDescription.2", "Linux/UNIX (Amazon VPC)"),
            ("StartTime", "2026-01-01T00:00:00Z"),
        ];
        let rows =
            all(&bed, "DescribeSpotPriceHistory", "spotPriceHistorySet", 2000, &params).await;
        assert!(rows.len() > 2000, "{} rows", rows.len());
        let aws_state = bed.gateway.state();
        for row in rows.iter().step_by(97) {
            let known = aws_state.catalog().get(row.get("instanceType").unwrap()).unwrap();
            let price = aws_state.prices().of(
                known,
                row.get("availabilityZone").unwrap(),
                CapacityType::Spot,
            );
            assert_eq!(row.get("spotPrice").unwrap(), price.to_string());
        }
    });
}

#[test]
fn instances_are_filtered_and_paged_and_named_twice_only_once() {
    on_the_gateway(async |bed| {
        let template = bed.template("listed").await;
        let launched = bed.launch(&template, "on-demand", &["m5.large"], 12).await;
        let filters = [
            ("Filter.1.Name", "tag:karpenter.sh/nodepool"),
            ("Filter.1.Value.1", "list*"),
            ("Filter.2.Name", "tag-key"),
            ("Filter.2.Value.1", "aws:ec2:fleet-id"),
            ("Filter.2.Value.2", "nobody-has-this"),
            ("Filter.3.Name", "instance-state-name"),
            ("Filter.3.Value.1", "pending"),
            ("Filter.3.Value.2", "running"),
        ];
        let mut seen = BTreeSet::new();
        for reservation in all(&bed, "DescribeInstances", "reservationSet", 5, &filters).await {
            for instance in reservation.items("instancesSet") {
                assert!(seen.insert(instance.get("instanceId").unwrap().to_owned()), "twice");
            }
        }
        assert_eq!(seen, launched.iter().cloned().collect());
        let (one, two) = (launched[0].as_str(), launched[1].as_str());
        let twice = bed
            .ec2(
                "DescribeInstances",
                &[("InstanceId.1", one), ("InstanceId.2", two), ("InstanceId.3", one)],
            )
            .await
            .unwrap();
        assert_eq!(twice.items("reservationSet")[0].items("instancesSet").len(), 2);
        assert_eq!(
            code(
                bed.ec2("DescribeInstances", &[("InstanceId.1", one), ("InstanceId.2", "i-0123")])
                    .await
            ),
            "InvalidInstanceID.NotFound"
        );
        assert_eq!(
            code(bed.ec2("DescribeInstances", &[("InstanceId.1", one), ("MaxResults", "5")]).await),
            "InvalidParameterCombination"
        );
        assert_eq!(
            code(
                bed.ec2(
                    "DescribeInstances",
                    &[("Filter.1.Name", "nonsense"), ("Filter.1.Value.1", "x")]
                )
                .await
            ),
            "InvalidParameterValue"
        );
        let lifecycle = [
            ("Filter.1.Name", "instance-lifecycle"),
            ("Filter.1.Value.1", "spot"),
            ("Filter.2.Name", "instance-id"),
            ("Filter.2.Value.1", one),
        ];
        assert!(
            bed.ec2("DescribeInstances", &lifecycle)
                .await
                .unwrap()
                .items("reservationSet")
                .is_empty(),
            "it is on-demand"
        );
    });
}

#[test]
fn every_launch_template_is_listed_and_told_by_its_own_errors() {
    on_the_gateway(async |bed| {
        for index in 0..40 {
            bed.template(&format!("karpenter.k8s.aws/{index}")).await;
        }
        let filter = [("Filter.1.Name", "tag:test"), ("Filter.1.Value.1", "karpenter.k8s.aws/*")];
        let answer = bed.ec2("DescribeLaunchTemplates", &filter).await.unwrap();
        assert_eq!(answer.items("launchTemplates").len(), 40);
        assert_eq!(
            all(&bed, "DescribeLaunchTemplates", "launchTemplates", 15, &filter).await.len(),
            40
        );
        let id = answer.items("launchTemplates")[0].get("launchTemplateId").unwrap();
        bed.ec2("DeleteLaunchTemplate", &[("LaunchTemplateId", id)]).await.unwrap();
        assert_eq!(
            code(bed.ec2("DeleteLaunchTemplate", &[("LaunchTemplateId", id)]).await),
            "InvalidLaunchTemplateId.NotFound"
        );
        assert_eq!(
            code(bed.ec2("DescribeLaunchTemplates", &[("LaunchTemplateId.1", id)]).await),
            "InvalidLaunchTemplateId.NotFound"
        );
        let by_name = [("LaunchTemplateName.1", "nobody")];
        assert_eq!(
            code(bed.ec2("DescribeLaunchTemplates", &by_name).await),
            "InvalidLaunchTemplateName.NotFoundException"
        );
        let twice = [
            ("LaunchTemplateName", "karpenter.k8s.aws/39"),
            ("LaunchTemplateData.ImageId", "ami-1"),
        ];
        assert_eq!(
            code(bed.ec2("CreateLaunchTemplate", &twice).await),
            "InvalidLaunchTemplateName.AlreadyExistsException"
        );
        let blank =
            [("LaunchTemplateName", "with blanks"), ("LaunchTemplateData.ImageId", "ami-1")];
        assert_eq!(
            code(bed.ec2("CreateLaunchTemplate", &blank).await),
            "InvalidLaunchTemplateName.MalformedException"
        );
    });
}

#[test]
fn tags_reach_resources_of_the_gateway_and_of_moto() {
    on_the_gateway(async |bed| {
        let template = bed.template("tagged").await;
        let id = bed.launch(&template, "on-demand", &["m5.large"], 1).await.remove(0);
        let subnet = bed.seed.subnet_ids[2].as_str();
        let params = [
            ("ResourceId.1", id.as_str()),
            ("ResourceId.2", subnet),
            ("Tag.1.Key", "team"),
            ("Tag.1.Value", "a"),
        ];
        bed.ec2("CreateTags", &params).await.unwrap();
        let filter = [("Filter.1.Name", "key"), ("Filter.1.Value.1", "team")];
        let tagged = |answer: &Element| -> BTreeSet<String> {
            answer
                .items("tagSet")
                .iter()
                .filter_map(|tag| tag.get("resourceId").map(str::to_owned))
                .collect()
        };
        assert_eq!(
            tagged(&bed.ec2("DescribeTags", &filter).await.unwrap()),
            BTreeSet::from([id.clone(), subnet.to_owned()])
        );
        // AWS joins values of one filter with "or".
        let keys = [
            ("Filter.1.Name", "tag-key"),
            ("Filter.1.Value.1", "team"),
            ("Filter.1.Value.2", "nobody-has-this"),
        ];
        assert_eq!(bed.ec2("DescribeSubnets", &keys).await.unwrap().items("subnetSet").len(), 1);
        bed.ec2("DeleteTags", &params[..3]).await.unwrap();
        assert!(tagged(&bed.ec2("DescribeTags", &filter).await.unwrap()).is_empty());
        let reserved = [params[0], ("Tag.1.Key", "aws:x"), ("Tag.1.Value", "y")];
        assert_eq!(code(bed.ec2("CreateTags", &reserved).await), "InvalidParameterValue");
        let missing = [("ResourceId.1", "i-0123"), ("Tag.1.Key", "x"), ("Tag.1.Value", "y")];
        assert_eq!(code(bed.ec2("CreateTags", &missing).await), "InvalidInstanceID.NotFound");
    });
}

#[test]
fn subnets_are_paged() {
    on_the_gateway(async |bed| {
        let vpc = [("Filter.1.Name", "vpc-id"), ("Filter.1.Value.1", bed.seed.vpc_id.as_str())];
        let found = all(&bed, "DescribeSubnets", "subnetSet", 5, &vpc).await;
        let found: BTreeSet<&str> =
            found.iter().filter_map(|subnet| subnet.get("subnetId")).collect();
        assert!(bed.seed.subnet_ids.iter().all(|id| found.contains(id.as_str())));
        assert!(
            bed.ec2("DescribeSubnets", &[]).await.unwrap().items("subnetSet").len() > 5,
            "the default VPC's too"
        );
    });
}

#[test]
fn images_are_found_by_name_and_owner() {
    on_the_gateway(async |bed| {
        let named = [
            ("Owner.1", "amazon"),
            ("Filter.1.Name", "name"),
            ("Filter.1.Value.1", "amazon-eks-node-al2023-*-standard-1.36-*"),
            ("Filter.2.Name", "architecture"),
            ("Filter.2.Value.1", "arm64"),
        ];
        let answer = bed.ec2("DescribeImages", &named).await.unwrap();
        let images = answer.items("imagesSet");
        assert_eq!(images.len(), 2, "an older and a newer release");
        assert!(
            images.iter().all(|image| image.get("deprecationTime") > image.get("creationDate"))
        );
        let mut mine = named;
        mine[0].1 = "self";
        assert!(bed.ec2("DescribeImages", &mine).await.unwrap().items("imagesSet").is_empty());
        assert_eq!(
            code(bed.ec2("DescribeImages", &[("ImageId.1", "ami-0123")]).await),
            "InvalidAMIID.NotFound"
        );
    });
}

#[test]
fn there_are_no_reservations_until_some_are_made() {
    on_the_gateway(async |bed| {
        assert!(
            bed.ec2("DescribeCapacityReservations", &[])
                .await
                .unwrap()
                .items("capacityReservationSet")
                .is_empty()
        );
        let named =
            bed.ec2("DescribeCapacityReservations", &[("CapacityReservationId.1", "cr-1")]).await;
        assert_eq!(code(named), "InvalidCapacityReservationId.NotFound");
    });
}
