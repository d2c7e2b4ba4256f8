use super::*;

/// A call of Auto Scaling.
async fn call(bed: &Bed, action: &str, params: &[(&str, &str)]) -> Result<Element, AwsError> {
    bed.aws.query("autoscaling", action, params.iter().copied()).await
}

/// What `DescribeAutoScalingGroups` says of a group: least and wanted size, and its instances with
/// their states.
async fn group(bed: &Bed, name: &str) -> (String, String, Vec<(String, String)>) {
    let named = [("AutoScalingGroupNames.member.1", name)];
    let answer = call(bed, "DescribeAutoScalingGroups", &named).await.expect("an answer");
    let path = ["DescribeAutoScalingGroupsResult", "AutoScalingGroups", "member"];
    let found = answer.at(&path).expect("the group").clone();
    let text = |of: &Element, key: &str| of.get(key).unwrap_or_default().to_owned();
    let instances = found.child("Instances").expect("instances").children.iter();
    let instances = instances.map(|one| (text(one, "InstanceId"), text(one, "LifecycleState")));
    (text(&found, "MinSize"), text(&found, "DesiredCapacity"), instances.collect())
}

#[test]
fn a_group_keeps_the_number_of_its_instances() {
    on_the_gateway(async |bed| {
        let more = [("LaunchTemplateData.InstanceType", "m5.large")];
        let template = bed.template_with("group", &more).await;
        let subnets = bed.seed.subnet_ids.join(",");
        let name = ("AutoScalingGroupName", "group");
        let group_of = |desired| {
            [
                name,
                ("MinSize", "1"),
                ("MaxSize", "3"),
                ("DesiredCapacity", desired),
                ("VPCZoneIdentifier", &subnets),
                ("LaunchTemplate.LaunchTemplateName", &template),
                ("LaunchTemplate.Version", "$Latest"),
                ("Tags.member.1.Key", "crew"),
                ("Tags.member.1.Value", "red"),
            ]
        };
        let too_many = call(&bed, "CreateAutoScalingGroup", &group_of("4")).await;
        assert_eq!(code(too_many), "ValidationError");
        call(&bed, "CreateAutoScalingGroup", &group_of("2")).await.expect("it is created");
        let twice = call(&bed, "CreateAutoScalingGroup", &group_of("2")).await;
        assert_eq!(code(twice), "AlreadyExists");
        let (min, desired, instances) = group(&bed, "group").await;
        assert_eq!((min.as_str(), desired.as_str(), instances.len()), ("1", "2", 2));
        let (first, second) = (&instances[0].0, &instances[1].0);
        let tags = bed.instance(first).tags;
        assert_eq!(tags.get("crew").map(String::as_str), Some("red"));
        assert_eq!(tags.get("aws:autoscaling:groupName").map(String::as_str), Some("group"));
        assert_ne!(bed.instance(first).zone, bed.instance(second).zone);

        // One goes for good, and another one would make the group too small.
        let end = |id| [("InstanceId", id), ("ShouldDecrementDesiredCapacity", "true")];
        let action = "TerminateInstanceInAutoScalingGroup";
        call(&bed, action, &end(first)).await.expect("it ends");
        bed.reaches(first, State::Terminated).await;
        let (_, desired, left) = group(&bed, "group").await;
        assert_eq!((desired.as_str(), left.len()), ("1", 1));
        assert_eq!(code(call(&bed, action, &end(second)).await), "ValidationError");
        assert_eq!(code(call(&bed, action, &end(first)).await), "ValidationError");
        // It may be replaced.
        let replaced = [("InstanceId", second.as_str())];
        call(&bed, action, &replaced).await.expect("it is replaced");
        bed.reaches(second, State::Terminated).await;
        let (_, desired, left) = group(&bed, "group").await;
        assert_eq!((desired.as_str(), left.len()), ("1", 1));
        assert_ne!(left[0].0, *second);

        let smaller = [name, ("MinSize", "0"), ("DesiredCapacity", "0")];
        call(&bed, "UpdateAutoScalingGroup", &smaller).await.expect("it is changed");
        bed.reaches(&left[0].0, State::Terminated).await;
        assert_eq!(group(&bed, "group").await, ("0".to_owned(), "0".to_owned(), vec![]));
        call(&bed, "DeleteAutoScalingGroup", &[name]).await.expect("it is deleted");
        assert_eq!(code(call(&bed, "SetDesiredCapacity", &[name]).await), "ValidationError");
    });
}

#[test]
fn a_group_has_lifecycle_hooks_and_suspended_processes() {
    on_the_gateway(async |bed| {
        let name = ("AutoScalingGroupName", "hooked");
        let sizes = [("MinSize", "0"), ("MaxSize", "0"), ("VPCZoneIdentifier", "subnet-1")];
        let created = [&[name][..], &sizes].concat();
        call(&bed, "CreateAutoScalingGroup", &created).await.expect("it is created");
        let hook = [name, ("LifecycleHookName", "drain"), ("NotificationTargetARN", "arn:x")];
        call(&bed, "PutLifecycleHook", &hook).await.expect("it is kept");
        let found = call(&bed, "DescribeLifecycleHooks", &[name]).await.expect("an answer");
        let path = ["DescribeLifecycleHooksResult", "LifecycleHooks", "member"];
        let found = found.at(&path).expect("the hook").clone();
        assert_eq!(found.get("NotificationTargetARN"), Some("arn:x"));
        call(&bed, "DeleteLifecycleHook", &hook).await.expect("it goes");
        assert_eq!(code(call(&bed, "DeleteLifecycleHook", &hook).await), "ValidationError");

        let process = [name, ("ScalingProcesses.member.1", "AZRebalance")];
        let suspended = async || {
            let answer = call(&bed, "DescribeAutoScalingGroups", &[]).await.expect("an answer");
            answer.to_string().contains("<ProcessName>AZRebalance</ProcessName>")
        };
        call(&bed, "SuspendProcesses", &process).await.expect("it is suspended");
        assert!(suspended().await);
        call(&bed, "ResumeProcesses", &process).await.expect("it is resumed");
        assert!(!suspended().await);
        call(&bed, "DeleteAutoScalingGroup", &[name]).await.expect("it is deleted");
    });
}
