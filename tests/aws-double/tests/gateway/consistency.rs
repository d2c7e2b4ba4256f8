use super::*;

#[test]
fn a_fresh_instance_profile_is_invisible_to_launches() {
    on_the_gateway(async |bed| {
        bed.iam("CreateInstanceProfile", &[("InstanceProfileName", "fresh")]).await.unwrap();
        bed.iam(
            "AddRoleToInstanceProfile",
            &[("InstanceProfileName", "fresh"), ("RoleName", "node")],
        )
        .await
        .unwrap();
        let template = bed
            .template_with(
                "fresh-profile",
                &[("LaunchTemplateData.IamInstanceProfile.Name", "fresh")],
            )
            .await;
        bed.gateway.control().consistency(Delays { instance_profile: 3600.0, ..Delays::default() });
        let answer = bed.send(&bed.fleet(&template, "on-demand", &["m5.large"], 1)).await.unwrap();
        let error = &answer.items("errorSet")[0];
        assert_eq!(error.get("errorCode"), Some("InvalidParameterValue"));
        assert!(error.get("errorMessage").unwrap().contains("Invalid IAM Instance Profile name"));
        bed.gateway.control().consistency(Delays::default());
        assert_eq!(bed.launch(&template, "on-demand", &["m5.large"], 1).await.len(), 1);
    });
}

#[test]
fn a_fresh_launch_template_is_invisible() {
    on_the_gateway(async |bed| {
        let template = bed.template("fresh-template").await;
        bed.gateway.control().consistency(Delays { launch_template: 3600.0, ..Delays::default() });
        let launch = bed.send(&bed.fleet(&template, "on-demand", &["m5.large"], 1)).await;
        assert_eq!(code(launch), "InvalidLaunchTemplateName.NotFoundException");
        assert!(
            bed.ec2("DescribeLaunchTemplates", &[("LaunchTemplateName.1", &template)])
                .await
                .is_err()
        );
        let again =
            [("LaunchTemplateName", template.as_str()), ("LaunchTemplateData.ImageId", "ami-1")];
        assert_eq!(
            code(bed.ec2("CreateLaunchTemplate", &again).await),
            "InvalidLaunchTemplateName.AlreadyExistsException"
        );
    });
}

#[test]
fn a_fresh_instance_is_invisible_to_lists() {
    on_the_gateway(async |bed| {
        let template = bed.template("fresh-instance").await;
        assert_eq!(bed.control("POST", "consistency", json!({ "instance": 3600.0 })).await.0, 200);
        let id = bed.launch(&template, "on-demand", &["m5.large"], 1).await.remove(0);
        assert_eq!(
            code(bed.ec2("DescribeInstances", &[("InstanceId.1", &id)]).await),
            "InvalidInstanceID.NotFound"
        );
        let all = bed.ec2("DescribeInstances", &[]).await.unwrap();
        assert!(!all.to_string().contains(&id));
        bed.gateway.control().consistency(Delays::default());
        assert!(bed.ec2("DescribeInstances", &[]).await.unwrap().to_string().contains(&id));
    });
}

#[test]
fn the_name_of_a_deleted_queue_rests() {
    on_the_gateway(async |bed| {
        let name = json!({ "QueueName": "rests" });
        let queue = bed.aws.json("sqs", "AmazonSQS.CreateQueue", &name).await.unwrap();
        bed.gateway.control().consistency(Delays { deleted_queue: 3600.0, ..Delays::default() });
        bed.aws
            .json("sqs", "AmazonSQS.DeleteQueue", &json!({ "QueueUrl": queue["QueueUrl"] }))
            .await
            .unwrap();
        let error = bed.aws.json("sqs", "AmazonSQS.CreateQueue", &name).await.unwrap_err();
        assert_eq!(error.code, "AWS.SimpleQueueService.QueueDeletedRecently");
        bed.gateway.control().consistency(Delays::default());
        bed.aws.json("sqs", "AmazonSQS.CreateQueue", &name).await.unwrap();
    });
}

#[test]
fn a_fresh_tag_is_invisible_to_filters() {
    on_the_gateway(async |bed| {
        let subnet = bed.seed.subnet_ids[0].as_str();
        bed.gateway.control().consistency(Delays { tag: 3600.0, ..Delays::default() });
        let tag = [("ResourceId.1", subnet), ("Tag.1.Key", "fresh"), ("Tag.1.Value", "yes")];
        bed.ec2("CreateTags", &tag).await.unwrap();
        let filter = [("Filter.1.Name", "tag:fresh"), ("Filter.1.Value.1", "*")];
        assert!(bed.ec2("DescribeSubnets", &filter).await.unwrap().items("subnetSet").is_empty());
        bed.gateway.control().consistency(Delays::default());
        assert_eq!(bed.ec2("DescribeSubnets", &filter).await.unwrap().items("subnetSet").len(), 1);
        bed.ec2("DeleteTags", &tag).await.unwrap();
    });
}
