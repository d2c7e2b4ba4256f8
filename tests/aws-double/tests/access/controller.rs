//! The controller's own policies hold it to what belongs to its cluster, call by call.

use super::*;

const TAGS: [(&str, &str); 3] = [
    ("kubernetes.io/cluster/bed", "owned"),
    ("eks:eks-cluster-name", "bed"),
    ("karpenter.sh/nodepool", "default"),
];

/// Parameters of a call that tags what it makes, for each of these resource types.
fn tagged(params: &mut Params, prefix: &str, kinds: &[&str]) {
    for (index, kind) in kinds.iter().enumerate() {
        let spec = format!("{prefix}TagSpecification.{}", index + 1);
        params.set(format!("{spec}.ResourceType"), *kind);
        for (tag, (key, value)) in TAGS.iter().enumerate() {
            params.set(format!("{spec}.Tag.{}.Key", tag + 1), *key);
            params.set(format!("{spec}.Tag.{}.Value", tag + 1), *value);
        }
    }
}

struct Controller {
    aws: Aws,
    role: String,
    profile: String,
}

/// A controller with a node role and an instance profile that it made itself.
async fn controller(bed: &Bed, name: &str) -> Controller {
    let node = bed
        .role("/tenon/bed/", &format!("{name}-node"), &trust(r#"{"Service":"ec2.amazonaws.com"}"#))
        .await;
    let role = format!("{name}-controller");
    let arn = controller_role(bed, &role, &controller_scope(&node, &format!("{name}-queue"))).await;
    let aws = bed.session(&arn).await;
    let profile = format!("bed_{name}");
    let mut params = Params::of([
        ("InstanceProfileName", profile.as_str()),
        ("Path", "/karpenter/eu-central-1/bed/uid/"),
    ]);
    let tags = [
        ("kubernetes.io/cluster/bed", "owned"),
        ("eks:eks-cluster-name", "bed"),
        ("topology.kubernetes.io/region", REGION),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
    ];
    for (index, (key, value)) in tags.iter().enumerate() {
        params.set(format!("Tags.member.{}.Key", index + 1), *key);
        params.set(format!("Tags.member.{}.Value", index + 1), *value);
    }
    aws.form("iam", "CreateInstanceProfile", params)
        .await
        .expect("a profile under its path, with its tags");
    let add = [
        ("InstanceProfileName", profile.as_str()),
        ("RoleName", node.rsplit('/').next().expect("a name")),
    ];
    aws.query("iam", "AddRoleToInstanceProfile", &add).await.expect("the node role");
    // Launches of spot instances need it, and every account has it.
    drop(
        bed.admin
            .query("iam", "CreateServiceLinkedRole", &[("AWSServiceName", "spot.amazonaws.com")])
            .await,
    );
    Controller { aws, role, profile }
}

impl Controller {
    fn template(&self, bed: &Bed, name: &str, inner_kinds: &[&str]) -> Params {
        let image = bed
            .gateway
            .state()
            .amis()
            .iter()
            .find(|ami| ami.recommended)
            .expect("images")
            .id
            .clone();
        let mut params = Params::of([
            ("LaunchTemplateName", name),
            ("LaunchTemplateData.ImageId", image.as_str()),
            ("LaunchTemplateData.IamInstanceProfile.Name", self.profile.as_str()),
            ("LaunchTemplateData.NetworkInterface.1.DeviceIndex", "0"),
            (
                "LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1",
                bed.seed.node_security_group_id.as_str(),
            ),
        ]);
        tagged(&mut params, "LaunchTemplateData.", inner_kinds);
        params
    }

    /// Makes a launch template with all tags.
    async fn make_template(&self, bed: &Bed, name: &str) {
        let mut params = self.template(bed, name, &["network-interface", "spot-instances-request"]);
        tagged(&mut params, "", &["launch-template"]);
        self.aws.form("ec2", "CreateLaunchTemplate", params).await.expect("template");
    }

    fn fleet(bed: &Bed, template: &str, kinds: &[&str]) -> Params {
        let subnet = bed.seed.subnet_ids[0].as_str();
        let mut params = Params::of([
            ("Type", "instant"),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", template),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "$Latest"),
            ("LaunchTemplateConfigs.1.Overrides.1.InstanceType", "m5.large"),
            ("LaunchTemplateConfigs.1.Overrides.1.SubnetId", subnet),
            ("TargetCapacitySpecification.DefaultTargetCapacityType", "spot"),
            ("TargetCapacitySpecification.TotalTargetCapacity", "1"),
        ]);
        tagged(&mut params, "", kinds);
        params
    }

    async fn launch(&self, bed: &Bed, template: &str) -> String {
        let params = Self::fleet(bed, template, &["fleet", "instance", "volume"]);
        let answer = self.aws.form("ec2", "CreateFleet", params).await.expect("fleet");
        let group = answer
            .items("fleetInstanceSet")
            .first()
            .unwrap_or_else(|| panic!("nothing launched: {answer}"));
        group.items("instanceIds")[0].text.clone()
    }
}

#[test]
fn the_controller_may_do_all_that_launching_needs() {
    on_the_gateway(async |bed| {
        let controller = controller(&bed, "all").await;
        let aws = &controller.aws;
        for action in [
            "DescribeInstanceTypes",
            "DescribeSubnets",
            "DescribeSecurityGroups",
            "DescribeInstances",
            "DescribeImages",
            "DescribeLaunchTemplates",
            "DescribeInstanceTypeOfferings",
            "DescribeSpotPriceHistory",
            "DescribeInstanceStatus",
        ] {
            aws.query("ec2", action, &[]).await.unwrap_or_else(|error| panic!("{action}: {error}"));
        }
        let parameter = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id";
        aws.json("ssm", "AmazonSSM.GetParameter", json!({ "Name": parameter }))
            .await
            .expect("image");
        aws.json(
            "pricing",
            "AWSPriceListService.GetProducts",
            json!({ "ServiceCode": "AmazonEC2" }),
        )
        .await
        .expect("prices");
        aws.eks("GET", &format!("/clusters/{CLUSTER}"), Value::Null).await.expect("cluster");
        controller.make_template(&bed, "all").await;
        let dry = {
            let mut dry = Controller::fleet(&bed, "all", &["fleet", "instance", "volume"]);
            dry.set("DryRun", "true");
            dry
        };
        assert_eq!(
            refused(aws.form("ec2", "CreateFleet", dry).await),
            ("DryRunOperation".into(), 412)
        );
        let instance = controller.launch(&bed, "all").await;
        let tag = [
            ("ResourceId.1", instance.as_str()),
            ("Tag.1.Key", "karpenter.sh/nodeclaim"),
            ("Tag.1.Value", "n"),
            ("Tag.2.Key", "Name"),
            ("Tag.2.Value", "n"),
        ];
        aws.query("ec2", "CreateTags", &tag).await.expect("its own keys");
        aws.query("ec2", "TerminateInstances", &[("InstanceId.1", &instance)])
            .await
            .expect("its own");
        aws.query("ec2", "DeleteLaunchTemplate", &[("LaunchTemplateName", "all")])
            .await
            .expect("its own");
        aws.query("iam", "GetInstanceProfile", &[("InstanceProfileName", &controller.profile)])
            .await
            .expect("its own");
        let remove =
            [("InstanceProfileName", controller.profile.as_str()), ("RoleName", "all-node")];
        aws.query("iam", "RemoveRoleFromInstanceProfile", &remove).await.expect("its own");
        aws.query("iam", "DeleteInstanceProfile", &[("InstanceProfileName", &controller.profile)])
            .await
            .expect("its own");
        aws.query("iam", "ListInstanceProfiles", &[("PathPrefix", "/karpenter/")])
            .await
            .expect("list");

        let unneeded: Vec<String> = bed
            .guard
            .authorization
            .usage()
            .unneeded_statements()
            .into_iter()
            .filter(|statement| statement.role == controller.role)
            .map(|statement| statement.sid)
            .collect();
        // Nothing above asked for them: tags are given at creation, and messages and zonal shifts
        // are other tests' matter.
        assert_eq!(
            unneeded,
            [
                "AllowScopedInstanceProfileTagActions",
                "AllowInterruptionQueueActions",
                "AllowZonalShiftStatusReadOnly"
            ]
        );
        let usage = bed.guard.authorization.usage().needed_statements();
        let passing = usage
            .iter()
            .find(|used| used.role == controller.role && used.sid == "AllowPassingInstanceRole")
            .expect("needed");
        assert!(
            passing.calls.contains("ec2:CreateFleet")
                && passing.calls.contains("iam:AddRoleToInstanceProfile"),
            "{passing:?}"
        );
    });
}

#[test]
fn a_fleet_is_checked_on_every_resource_that_it_touches() {
    on_the_gateway(async |bed| {
        let controller = controller(&bed, "checks").await;
        controller.make_template(&bed, "checks").await;
        let template = bed.gateway.state().templates().by_name("checks").expect("it is there").id;
        drop(controller.launch(&bed, "checks").await);
        let calls = bed.gateway.control().calls().all();
        let fleet = calls
            .iter()
            .rev()
            .find(|call| {
                call.action == "ec2:CreateFleet" && call.caller.contains("checks-controller")
            })
            .expect("logged");
        let ec2 = |resource: &str| format!("arn:aws:ec2:{REGION}:{ACCOUNT}:{resource}");
        for resource in [
            ec2("fleet/*"),
            ec2("instance/*"),
            ec2("volume/*"),
            ec2("network-interface/*"),
            ec2("spot-instances-request/*"),
            ec2(&format!("launch-template/{template}")),
            ec2(&format!("subnet/{}", bed.seed.subnet_ids[0])),
            ec2(&format!("security-group/{}", bed.seed.node_security_group_id)),
            format!("arn:aws:iam::{ACCOUNT}:role/tenon/bed/checks-node"),
        ] {
            assert!(
                fleet.resources.contains(&resource),
                "{resource} is not in {:?}",
                fleet.resources
            );
        }
        assert!(
            fleet
                .resources
                .iter()
                .any(|resource| resource.starts_with(&format!("arn:aws:ec2:{REGION}::image/ami-")))
        );
    });
}

#[test]
fn whatever_a_launch_makes_must_be_tagged() {
    on_the_gateway(async |bed| {
        let controller = controller(&bed, "untagged").await;
        let aws = &controller.aws;
        let untagged = aws
            .form("ec2", "CreateLaunchTemplate", controller.template(&bed, "untagged", &[]))
            .await;
        assert!(missing(untagged).starts_with("ec2:CreateLaunchTemplate on resource: "));
        controller.make_template(&bed, "untagged").await;
        for (kinds, lacking) in [
            (
                &["instance", "volume"][..],
                "ec2:CreateFleet on resource: arn:aws:ec2:eu-central-1:123456789012:fleet/*",
            ),
            (
                &["fleet", "volume"],
                "ec2:RunInstances on resource: arn:aws:ec2:eu-central-1:123456789012:instance/*",
            ),
            (
                &["fleet", "instance"],
                "ec2:RunInstances on resource: arn:aws:ec2:eu-central-1:123456789012:volume/*",
            ),
        ] {
            let answer =
                aws.form("ec2", "CreateFleet", Controller::fleet(&bed, "untagged", kinds)).await;
            assert_eq!(missing(answer), lacking);
        }
        for (name, kinds, lacking) in [
            ("no-eni", &["spot-instances-request"][..], "network-interface/*"),
            ("no-spot", &["network-interface"], "spot-instances-request/*"),
        ] {
            let mut params = controller.template(&bed, name, kinds);
            tagged(&mut params, "", &["launch-template"]);
            aws.form("ec2", "CreateLaunchTemplate", params)
                .await
                .expect("the template itself is tagged");
            let answer = aws
                .form(
                    "ec2",
                    "CreateFleet",
                    Controller::fleet(&bed, name, &["fleet", "instance", "volume"]),
                )
                .await;
            assert_eq!(
                missing(answer),
                format!(
                    "ec2:RunInstances on resource: arn:aws:ec2:eu-central-1:123456789012:{lacking}"
                )
            );
        }
    });
}

#[test]
fn the_controller_reaches_nothing_that_is_not_its_own() {
    on_the_gateway(async |bed| {
        let controller = controller(&bed, "foreign").await;
        let aws = &controller.aws;
        let image = bed
            .gateway
            .state()
            .amis()
            .iter()
            .find(|ami| ami.recommended)
            .expect("images")
            .id
            .clone();
        let run = [
            ("ImageId", image.as_str()),
            ("InstanceType", "m5.large"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("SubnetId", &bed.seed.subnet_ids[0]),
        ];
        let answer = bed.admin.query("ec2", "RunInstances", &run).await.expect("somebody else's");
        let foreign = answer.items("instancesSet")[0].get("instanceId").expect("an id").to_owned();
        controller.make_template(&bed, "foreign").await;
        let own = controller.launch(&bed, "foreign").await;
        let terminate = |ids: &[&str]| {
            ids.iter()
                .enumerate()
                .map(|(index, id)| (format!("InstanceId.{}", index + 1), (*id).to_owned()))
                .collect::<Vec<_>>()
        };
        let refusal =
            aws.form("ec2", "TerminateInstances", Params::of(terminate(&[&own, &foreign]))).await;
        assert!(missing(refusal).ends_with(&format!("instance/{foreign}")));
        assert!(
            bed.gateway.state().instances().get(&own).expect("listed").state.is_alive(),
            "one refusal refuses the whole call"
        );
        let steal = [
            ("ResourceId.1", foreign.as_str()),
            ("Tag.1.Key", "kubernetes.io/cluster/bed"),
            ("Tag.1.Value", "owned"),
        ];
        assert!(missing(aws.query("ec2", "CreateTags", &steal).await).ends_with(&foreign));
        let own_key = [("ResourceId.1", own.as_str()), ("Tag.1.Key", "team"), ("Tag.1.Value", "x")];
        assert!(missing(aws.query("ec2", "CreateTags", &own_key).await).ends_with(&own));
        let role = format!("arn:aws:iam::{ACCOUNT}:role/tenon/bed/{}", controller.role);
        for (region, decision) in [(REGION, "allowed"), ("us-east-1", "implicitDeny")] {
            let params = [
                ("PolicySourceArn", role.as_str()),
                ("ActionNames.member.1", "ec2:DescribeSubnets"),
                ("ContextEntries.member.1.ContextKeyName", "aws:RequestedRegion"),
                ("ContextEntries.member.1.ContextKeyType", "string"),
                ("ContextEntries.member.1.ContextKeyValues.member.1", region),
            ];
            let answer = bed.admin.query("iam", "SimulatePrincipalPolicy", &params).await;
            let answer = answer.expect("an answer");
            let results = answer.children[0].items("EvaluationResults");
            assert_eq!(results[0].get("EvalDecision"), Some(decision), "{region}");
        }
        let unknown = aws
            .query("ec2", "TerminateInstances", &[("InstanceId.1", "i-0123456789abcdef0")])
            .await;
        assert_eq!(refused(unknown), ("InvalidInstanceID.NotFound".into(), 400));
    });
}

#[test]
fn the_controller_writes_profiles_only_under_its_path_with_its_tags() {
    on_the_gateway(async |bed| {
        let controller = controller(&bed, "profiles").await;
        let aws = &controller.aws;
        let untagged =
            [("InstanceProfileName", "bed_untagged"), ("Path", "/karpenter/eu-central-1/bed/uid/")];
        assert!(
            missing(aws.query("iam", "CreateInstanceProfile", &untagged).await)
                .ends_with("/karpenter/eu-central-1/bed/uid/bed_untagged")
        );
        bed.admin
            .query("iam", "CreateInstanceProfile", &[("InstanceProfileName", "somebodys")])
            .await
            .expect("profile");
        assert!(
            missing(
                aws.query("iam", "DeleteInstanceProfile", &[("InstanceProfileName", "somebodys")])
                    .await
            )
            .ends_with("instance-profile/somebodys")
        );
        aws.query("iam", "GetInstanceProfile", &[("InstanceProfileName", "somebodys")])
            .await
            .expect("may be read");
        let absent =
            aws.query("iam", "GetInstanceProfile", &[("InstanceProfileName", "absent")]).await;
        assert_eq!(refused(absent), ("NoSuchEntity".into(), 404));
        bed.role("/", "profiles-other", &trust(r#"{"Service":"ec2.amazonaws.com"}"#)).await;
        let other =
            [("InstanceProfileName", controller.profile.as_str()), ("RoleName", "profiles-other")];
        assert_eq!(
            missing(aws.query("iam", "AddRoleToInstanceProfile", &other).await),
            "iam:PassRole on resource: arn:aws:iam::123456789012:role/profiles-other"
        );
    });
}

#[test]
fn the_controller_receives_from_its_own_queue_only() {
    on_the_gateway(async |bed| {
        let controller = controller(&bed, "queue").await;
        let aws = &controller.aws;
        for name in ["queue-queue", "queue-other"] {
            bed.admin
                .json("sqs", "AmazonSQS.CreateQueue", json!({ "QueueName": name }))
                .await
                .expect("queue");
        }
        let url = |name: &str| format!("{}/{ACCOUNT}/{name}", bed.gateway.url());
        let own = aws
            .json("sqs", "AmazonSQS.GetQueueUrl", json!({ "QueueName": "queue-queue" }))
            .await
            .expect("own");
        aws.json("sqs", "AmazonSQS.ReceiveMessage", json!({ "QueueUrl": own["QueueUrl"] }))
            .await
            .expect("own");
        let other = aws
            .json("sqs", "AmazonSQS.ReceiveMessage", json!({ "QueueUrl": url("queue-other") }))
            .await;
        assert!(missing(other).ends_with(":queue-other"));
        let purge = aws
            .json("sqs", "AmazonSQS.PurgeQueue", json!({ "QueueUrl": url("queue-queue") }))
            .await;
        assert_eq!(
            missing(purge),
            "sqs:PurgeQueue on resource: arn:aws:sqs:eu-central-1:123456789012:queue-queue"
        );
    });
}

#[test]
fn a_policy_that_is_taken_away_is_missed_from_the_next_call_on() {
    on_the_gateway(async |bed| {
        let controller = controller(&bed, "taken").await;
        let aws = &controller.aws;
        aws.query("ec2", "DescribeSubnets", &[]).await.expect("allowed");
        let policy = [
            ("RoleName", controller.role.as_str()),
            ("PolicyName", "KarpenterControllerResourceDiscoveryPolicy"),
        ];
        bed.admin.query("iam", "DeleteRolePolicy", &policy).await.expect("deleted");
        assert_eq!(missing(aws.query("ec2", "DescribeSubnets", &[]).await), "ec2:DescribeSubnets");
        let everything = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;
        let policy = [
            ("RoleName", controller.role.as_str()),
            ("PolicyName", "all"),
            ("PolicyDocument", everything),
        ];
        bed.admin.query("iam", "PutRolePolicy", &policy).await.expect("put");
        aws.query("ec2", "DescribeSubnets", &[]).await.expect("allowed again");
    });
}

#[test]
fn managed_policies_and_boundaries_count() {
    on_the_gateway(async |bed| {
        let role = bed.role("/", "managed", &trust(&format!(r#"{{"AWS":"{ACCOUNT}"}}"#))).await;
        let aws = bed.session(&role).await;
        assert_eq!(missing(aws.query("ec2", "DescribeSubnets", &[]).await), "ec2:DescribeSubnets");
        let attach =
            [("RoleName", "managed"), ("PolicyArn", "arn:aws:iam::aws:policy/AdministratorAccess")];
        bed.admin.query("iam", "AttachRolePolicy", &attach).await.expect("attached");
        aws.query("ec2", "DescribeSubnets", &[]).await.expect("everything is allowed");
        let boundary = [
            ("RoleName", "managed"),
            ("PermissionsBoundary", "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"),
        ];
        bed.admin.query("iam", "PutRolePermissionsBoundary", &boundary).await.expect("boundary");
        let error =
            aws.query("ec2", "DescribeSubnets", &[]).await.expect_err("beyond the boundary");
        assert!(
            error
                .message
                .ends_with("because no permissions boundary allows the ec2:DescribeSubnets action"),
            "{error}"
        );
    });
}
