use tenon_aws_double::prices::{CapacityType, MicroUsd};

use super::*;

#[test]
fn on_demand_takes_the_cheapest_type_and_groups_its_instances() {
    on_the_gateway(async |bed| {
        let template = bed.template("cheapest").await;
        let answer = bed
            .send(&bed.fleet(&template, "on-demand", &["m5.2xlarge", "m5.large", "m5.xlarge"], 3))
            .await
            .unwrap();
        let groups = answer.items("fleetInstanceSet");
        assert_eq!(groups.len(), 1, "{answer}");
        assert_eq!(
            (groups[0].get("instanceType"), groups[0].get("lifecycle")),
            (Some("m5.large"), Some("on-demand"))
        );
        assert_eq!(ids(&answer).len(), 3);
        assert!(answer.items("errorSet").is_empty());
        let chosen = groups[0].child("launchTemplateAndOverrides").unwrap();
        assert_eq!(chosen.at(&["launchTemplateSpecification", "version"]).unwrap().text, "1");
        assert_eq!(chosen.at(&["overrides", "instanceType"]).unwrap().text, "m5.large");
    });
}

#[test]
fn spot_takes_the_cheapest_zone() {
    on_the_gateway(async |bed| {
        let template = bed.template("zone").await;
        bed.gateway.control().price("m5.large", "eu-central-1b", CapacityType::Spot, MicroUsd(1));
        let launched = bed.launch(&template, "spot", &["m5.xlarge", "m5.large"], 1).await;
        let instance = bed.instance(&launched[0]);
        assert_eq!(
            (instance.instance_type.as_str(), instance.zone.as_str()),
            ("m5.large", "eu-central-1b")
        );
        assert_eq!(instance.capacity_type, CapacityType::Spot);
    });
}

#[test]
fn priorities_decide_where_the_strategy_says_so() {
    on_the_gateway(async |bed| {
        let template = bed.template("priority").await;
        let mut fleet = bed.fleet(&template, "on-demand", &["m5.large", "m5.4xlarge"], 1);
        fleet.set("OnDemandOptions.AllocationStrategy", "prioritized");
        for index in 1..=6 {
            fleet.set(
                format!("LaunchTemplateConfigs.1.Overrides.{index}.Priority"),
                if index == 5 { "0.5" } else { "1.5" },
            );
        }
        let launched = ids(&bed.send(&fleet).await.unwrap());
        let instance = bed.instance(&launched[0]);
        assert_eq!(
            (instance.instance_type.as_str(), instance.zone.as_str()),
            ("m5.4xlarge", "eu-central-1b")
        );
    });
}

#[test]
fn a_launched_instance_keeps_what_its_template_says() {
    on_the_gateway(async |bed| {
        let template = bed.template("kept").await;
        let launched = bed.launch(&template, "spot", &["m5.large"], 1).await;
        let answer = bed.ec2("DescribeInstances", &[("InstanceId.1", &launched[0])]).await.unwrap();
        let instance = answer.at(&["reservationSet", "item", "instancesSet", "item"]).unwrap();
        let text = |path: &[&str]| {
            instance.at(path).map(|element| element.text.clone()).unwrap_or_default()
        };
        assert_eq!(text(&["groupSet", "item", "groupId"]), bed.seed.node_security_group_id);
        assert!(text(&["iamInstanceProfile", "arn"]).ends_with(":instance-profile/node"));
        assert_eq!(text(&["metadataOptions", "httpTokens"]), "required");
        assert_eq!(text(&["metadataOptions", "httpPutResponseHopLimit"]), "2");
        assert_eq!(text(&["instanceLifecycle"]), "spot");
        assert!(text(&["spotInstanceRequestId"]).starts_with("sir-"));
        assert_eq!(text(&["imageId"]), bed.image("x86_64"));
        let ip = text(&["privateIpAddress"]);
        assert_eq!(
            text(&["privateDnsName"]),
            format!("ip-{}.eu-central-1.compute.internal", ip.replace('.', "-"))
        );
        let tags: std::collections::BTreeMap<&str, &str> = instance.tags().collect();
        assert_eq!(tags["karpenter.sh/nodepool"], "kept");
        assert!(
            tags["aws:ec2:fleet-id"].starts_with("fleet-")
                && tags["aws:ec2launchtemplate:id"].starts_with("lt-")
        );
        assert_eq!(tags["aws:ec2launchtemplate:version"], "1");
        assert!(!tags.contains_key("test"), "the template's own tags are not the instance's");
        let filter = [
            ("Filter.1.Name", "attachment.instance-id"),
            ("Filter.1.Value.1", launched[0].as_str()),
        ];
        let volumes = bed.ec2("DescribeVolumes", &filter).await.unwrap();
        let [volume] = volumes.items("volumeSet") else { panic!("one volume: {volumes}") };
        assert_eq!(
            (volume.get("size"), volume.get("encrypted"), volume.get("volumeType")),
            (Some("33"), Some("true"), Some("gp3"))
        );
        assert_eq!(volume.tags().collect::<Vec<_>>(), [("karpenter.sh/nodepool", "kept")]);
        let interfaces = bed.ec2("DescribeNetworkInterfaces", &filter).await.unwrap();
        assert_eq!(
            interfaces.items("networkInterfaceSet")[0].tags().collect::<Vec<_>>(),
            [("eni", "yes")]
        );
        assert_eq!(bed.instance(&launched[0]).user_data.as_deref(), Some("aGVsbG8="));
    });
}

#[test]
fn pools_without_capacity_come_back_as_error_items() {
    on_the_gateway(async |bed| {
        let template = bed.template("ice").await;
        bed.gateway.control().ice(shortage("m5.large"));
        let answer = bed
            .send(&bed.fleet(&template, "on-demand", &["m5.large", "m5.xlarge"], 1))
            .await
            .unwrap();
        let errors = answer.items("errorSet");
        assert_eq!(errors.len(), 3, "the three zones of the cheaper type: {answer}");
        for error in errors {
            assert_eq!(error.get("errorCode"), Some("InsufficientInstanceCapacity"));
            let overrides = error.at(&["launchTemplateAndOverrides", "overrides"]).unwrap();
            assert_eq!(overrides.get("instanceType"), Some("m5.large"));
            assert!(overrides.get("availabilityZone").unwrap().starts_with(REGION));
        }
        assert_eq!(bed.instance(&ids(&answer)[0]).instance_type, "m5.xlarge");
        bed.gateway.control().ice(shortage("*"));
        let answer = bed.send(&bed.fleet(&template, "spot", &["m5.large"], 1)).await.unwrap();
        assert_eq!((answer.items("errorSet").len(), ids(&answer).len()), (3, 0));
    });
}

#[test]
fn capacity_that_is_left_is_used_up_first() {
    on_the_gateway(async |bed| {
        let template = bed.template("left").await;
        let mut some = shortage("m5.large");
        some.left = 2;
        bed.gateway.control().ice(some);
        let answer = bed
            .send(&bed.fleet(&template, "on-demand", &["m5.large", "m5.xlarge"], 3))
            .await
            .unwrap();
        let groups: Vec<(Option<&str>, usize)> = answer
            .items("fleetInstanceSet")
            .iter()
            .map(|group| (group.get("instanceType"), group.items("instanceIds").len()))
            .collect();
        assert_eq!(groups, [(Some("m5.large"), 2), (Some("m5.xlarge"), 1)]);
    });
}

#[test]
fn what_can_never_be_launched_is_refused_with_awss_codes() {
    on_the_gateway(async |bed| {
        let template = bed.template("refused").await;
        let missing = bed.send(&bed.fleet("no-such-template", "spot", &["m5.large"], 1)).await;
        assert_eq!(code(missing), "InvalidLaunchTemplateName.NotFoundException");
        let item = async |fleet: &Params| {
            let answer = bed.send(fleet).await.unwrap();
            assert!(ids(&answer).is_empty());
            let error = &answer.items("errorSet")[0];
            (
                error.get("errorCode").unwrap().to_owned(),
                error.get("errorMessage").unwrap().to_owned(),
            )
        };
        assert_eq!(
            item(&bed.fleet(&template, "spot", &["m99.large"], 1)).await.0,
            "InvalidParameterValue"
        );
        let arm = item(&bed.fleet(&template, "spot", &["m6g.large"], 1)).await;
        assert!(arm.0 == "InvalidParameterValue" && arm.1.contains("architecture"), "{arm:?}");
        let mut other_image = bed.fleet(&template, "spot", &["m5.large"], 1);
        other_image.set("LaunchTemplateConfigs.1.Overrides.1.ImageId", "ami-00000000000000000");
        for index in [2, 3] {
            other_image.set(
                format!("LaunchTemplateConfigs.1.Overrides.{index}.ImageId"),
                "ami-00000000000000000",
            );
        }
        assert_eq!(item(&other_image).await.0, "InvalidAMIID.NotFound");
        let profile = bed
            .template_with(
                "no-profile",
                &[("LaunchTemplateData.IamInstanceProfile.Name", "nobody")],
            )
            .await;
        let profile = item(&bed.fleet(&profile, "spot", &["m5.large"], 1)).await;
        assert!(profile.1.contains("Invalid IAM Instance Profile name"), "{profile:?}");
        assert_eq!(
            item(&bed.fleet(&template, "reserved-capacity", &["m5.large"], 1)).await.0,
            "ReservationCapacityExceeded"
        );
    });
}

#[test]
fn spot_needs_its_service_linked_role() {
    on_the_gateway(async |bed| {
        let template = bed.template("role").await;
        let role = "AWSServiceRoleForEC2Spot";
        bed.gateway.state().moto().query("iam", "DeleteRole", [("RoleName", role)]).await.unwrap();
        let answer = bed.send(&bed.fleet(&template, "spot", &["m5.large"], 1)).await.unwrap();
        let made = bed
            .iam("CreateServiceLinkedRole", &[("AWSServiceName", "spot.amazonaws.com")])
            .await
            .unwrap();
        assert_eq!(
            answer.items("errorSet")[0].get("errorCode"),
            Some("AuthFailure.ServiceLinkedRoleCreationNotPermitted")
        );
        assert_eq!(
            made.at(&["CreateServiceLinkedRoleResult", "Role", "RoleName"]).unwrap().text,
            role
        );
        assert_eq!(bed.launch(&template, "spot", &["m5.large"], 1).await.len(), 1);
    });
}

#[test]
fn a_dry_run_launches_nothing_and_says_that_it_could() {
    on_the_gateway(async |bed| {
        let template = bed.template("dry").await;
        let n_before = bed.gateway.state().instances().all().len();
        let mut fleet = bed.fleet(&template, "on-demand", &["m5.large"], 1);
        fleet.set("DryRun", "true");
        assert_eq!(code(bed.send(&fleet).await), "DryRunOperation");
        let subnet = bed.seed.subnet_ids[0].as_str();
        let run = [
            ("DryRun", "true"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("LaunchTemplate.LaunchTemplateName", template.as_str()),
            ("LaunchTemplate.Version", "$Latest"),
            ("InstanceType", "m5.large"),
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.1.SubnetId", subnet),
        ];
        let error = bed.ec2("RunInstances", &run).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.status), ("DryRunOperation", 412));
        let bad = bed
            .template_with("dry-bad", &[("LaunchTemplateData.IamInstanceProfile.Name", "nobody")])
            .await;
        let mut run = run;
        run[3].1 = bad.as_str();
        assert!(
            bed.ec2("RunInstances", &run)
                .await
                .unwrap_err()
                .message
                .contains("Invalid IAM Instance Profile name")
        );
        let create = [
            ("DryRun", "true"),
            ("LaunchTemplateName", "dry-created"),
            ("LaunchTemplateData.ImageId", "ami-1"),
        ];
        assert_eq!(code(bed.ec2("CreateLaunchTemplate", &create).await), "DryRunOperation");
        assert!(
            bed.ec2("DescribeLaunchTemplates", &[("LaunchTemplateName.1", "dry-created")])
                .await
                .is_err()
        );
        assert_eq!(bed.gateway.state().instances().all().len(), n_before);
    });
}

#[test]
fn a_request_with_the_same_client_token_launches_once() {
    on_the_gateway(async |bed| {
        let template = bed.template("token").await;
        let mut fleet = bed.fleet(&template, "on-demand", &["m5.large"], 2);
        fleet.set("ClientToken", "token-1");
        let first = ids(&bed.send(&fleet).await.unwrap());
        assert_eq!(ids(&bed.send(&fleet).await.unwrap()), first);
        assert_eq!(bed.gateway.control().alive().len(), 2);
        fleet.set("TargetCapacitySpecification.TotalTargetCapacity", "3");
        assert_eq!(code(bed.send(&fleet).await), "IdempotentParameterMismatch");
    });
}

#[test]
fn run_instances_launches_all_or_nothing() {
    on_the_gateway(async |bed| {
        let image = bed.image("arm64");
        let run = [
            ("ImageId", image.as_str()),
            ("InstanceType", "m6g.large"),
            ("MinCount", "2"),
            ("MaxCount", "2"),
            ("SubnetId", bed.seed.subnet_ids[1].as_str()),
            ("SecurityGroupId.1", bed.seed.node_security_group_id.as_str()),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "k"),
            ("TagSpecification.1.Tag.1.Value", "v"),
        ];
        let answer = bed.ec2("RunInstances", &run).await.unwrap();
        let made = answer.items("instancesSet");
        assert_eq!((made.len(), made[0].get("architecture")), (2, Some("arm64")));
        assert_eq!(made[0].tags().collect::<Vec<_>>(), [("k", "v")]);
        bed.gateway.control().ice(shortage("m6g.large"));
        assert_eq!(code(bed.ec2("RunInstances", &run).await), "InsufficientInstanceCapacity");
        assert_eq!(bed.gateway.control().alive().len(), 2);
    });
}

#[test]
fn addresses_of_a_subnet_are_used_up() {
    on_the_gateway(async |bed| {
        let params = [
            ("VpcId", bed.seed.vpc_id.as_str()),
            ("CidrBlock", "10.0.200.0/28"),
            ("AvailabilityZone", "eu-central-1a"),
        ];
        let made = bed.ec2("CreateSubnet", &params).await.unwrap();
        let subnet = made.at(&["subnet", "subnetId"]).unwrap().text.clone();
        let template = bed.template("addresses").await;
        let mut fleet = bed.fleet(&template, "on-demand", &["m5.large"], 20);
        for index in 1..=3 {
            fleet.set(
                format!("LaunchTemplateConfigs.1.Overrides.{index}.SubnetId"),
                subnet.as_str(),
            );
        }
        let answer = bed.send(&fleet).await.unwrap();
        // Sixteen, less five that AWS keeps.
        assert_eq!(ids(&answer).len(), 11);
        assert_eq!(
            answer.items("errorSet")[0].get("errorCode"),
            Some("InsufficientFreeAddressesInSubnet")
        );
        let subnets = bed.ec2("DescribeSubnets", &[("SubnetId.1", &subnet)]).await.unwrap();
        assert_eq!(subnets.items("subnetSet")[0].get("availableIpAddressCount"), Some("0"));
        assert_eq!(
            code(bed.ec2("DeleteSubnet", &[("SubnetId", &subnet)]).await),
            "DependencyViolation"
        );
        let group = bed.seed.node_security_group_id.as_str();
        assert_eq!(
            code(bed.ec2("DeleteSecurityGroup", &[("GroupId", group)]).await),
            "DependencyViolation"
        );
    });
}
