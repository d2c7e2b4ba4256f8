use super::*;
use crate::cli::export::GitOpsArgs;
use crate::commands::iam::example;

fn args(charts: &str) -> GitOpsArgs {
    GitOpsArgs {
        settings: SettingArgs::default(),
        charts: charts.to_owned(),
        chart_version: "1.0.0".to_owned(),
        repository: "https://git.example/nodes".to_owned(),
    }
}

#[test]
fn values_hold_only_what_differs_from_the_chart() {
    let values = values(&example().1);
    let mut keys = values.as_object().expect("a map").keys().cloned().collect::<Vec<_>>();
    keys.sort();
    assert_eq!(keys, ["settings"]);
    assert_eq!(
        difference(&json!({"a": 1, "b": {"c": 2}}), &json!({"a": 1, "b": {"c": 3}})),
        Some(json!({"b": {"c": 2}}))
    );
}

#[test]
fn every_resource_of_the_module_is_one_of_the_installation() {
    let (_, desired) = example();
    let module = terraform::module(&desired, false);
    let roles = module["resource"]["aws_iam_role"].as_object().expect("roles");
    assert_eq!(roles.len(), 2);
    assert_eq!(roles["node"]["name"], desired.node_role.name.as_str());
    let rules = module["resource"]["aws_cloudwatch_event_rule"].as_object().expect("rules");
    assert_eq!(rules.len(), desired.rules.len());
    let policies = module["resource"]["aws_iam_role_policy"].as_object().expect("policies");
    for policy in policies.values() {
        let text = policy["policy"].as_str().expect("a document");
        tenon_iam_policies::Document::parse(text).expect("it is one");
    }
}

#[test]
fn the_template_holds_the_same_documents() {
    let (_, desired) = example();
    let template = cloudformation::template(&desired, false);
    let spec = desired.controller_role.spec.as_ref().expect("ours");
    let role = &template["Resources"]["ControllerRole"]["Properties"];
    assert_eq!(role["AssumeRolePolicyDocument"], json!(spec.trust));
    assert_eq!(role["Policies"].as_array().expect("policies").len(), spec.inline.len());
    let ids = template["Resources"].as_object().expect("resources").keys();
    assert!(ids.into_iter().all(|id| id.chars().all(char::is_alphanumeric)));
}

#[test]
fn nothing_that_holds_nodes_is_ever_pruned() {
    let (settings, desired) = example();
    let flux = gitops::flux(&args("oci://registry.example/charts"), &settings, &desired);
    let argocd = gitops::argocd(&args("oci://registry.example/charts"), &settings, &desired);
    let is_node_object = |body: &&Value| {
        ["NodePool", "EC2NodeClass"].contains(&body["kind"].as_str().unwrap_or_default())
    };
    assert_eq!(flux.iter().filter(is_node_object).count(), 2);
    for body in flux.iter().filter(is_node_object) {
        assert_eq!(
            body["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/prune"],
            "disabled"
        );
    }
    for body in argocd.iter().filter(is_node_object) {
        assert_eq!(
            body["metadata"]["annotations"]["argocd.argoproj.io/sync-options"],
            "Prune=false,Delete=false"
        );
    }
    let crds = argocd.iter().find(|body| body["metadata"]["name"] == "tenon-crds").expect("one");
    assert_eq!(crds["spec"]["syncPolicy"]["automated"]["prune"], false);
    assert_eq!(crds["spec"]["source"]["repoURL"], "registry.example/charts");
}

#[test]
fn manifests_are_documents_that_read_back() {
    let (_, desired) = example();
    let text = documents(desired.objects().map(|object| &object.body));
    assert_eq!(text.matches("---\n").count(), desired.objects().count());
    insta::assert_snapshot!(yaml(&values(&desired)));
}

#[test]
fn fargate_a_static_profile_irsa_and_a_key_are_in_both_forms() {
    let desired = tenon_installer_core::testing::desired(
        "identity:\n  mode: irsa\nnodes:\n  instanceProfile: static\ndeploy:\n  host: fargate\ninterruption:\n  kmsKey: arn:aws:kms:eu-central-1:111122223333:key/1\n",
    );
    let module = terraform::module(&desired, false);
    let resource = |kind: &str, label: &str| module["resource"][kind][label].clone();
    assert_eq!(resource("aws_iam_instance_profile", "node")["role"], "${aws_iam_role.node.name}");
    assert_eq!(
        resource("aws_eks_fargate_profile", "controller")["pod_execution_role_arn"],
        "${aws_iam_role.fargate.arn}"
    );
    assert_eq!(resource("aws_iam_role", "fargate")["name"], desired.fargate_role.name.as_str());
    assert!(resource("aws_iam_openid_connect_provider", "cluster")["url"].is_string());
    let queue = resource("aws_sqs_queue", "interruption");
    assert_eq!(queue["kms_data_key_reuse_period_seconds"], 300);
    assert!(queue.get("sqs_managed_sse_enabled").is_none());
    let template = cloudformation::template(&desired, false);
    let properties = |id: &str| template["Resources"][id]["Properties"].clone();
    assert_eq!(properties("NodeProfile")["Roles"], json!([{"Ref": "NodeRole"}]));
    assert_eq!(
        properties("ControllerFargate")["PodExecutionRoleArn"],
        json!({"Fn::GetAtt": ["FargateRole", "Arn"]})
    );
    assert!(properties("ClusterIssuer")["Url"].is_string());
    assert_eq!(properties("InterruptionQueue")["KmsDataKeyReusePeriodSeconds"], 300);
    // One that is there is used, not made a second time.
    let module = terraform::module(&desired, true);
    assert!(module["resource"].get("aws_iam_openid_connect_provider").is_none());
}

#[test]
fn what_no_such_tool_can_make_is_refused_or_told() {
    let by_aws_auth = tenon_installer_core::testing::desired("nodes:\n  authorization: aws-auth\n");
    let refused = cloud::check(&by_aws_auth).expect_err("no node would join");
    assert_eq!(refused.exit_code(), crate::exit_codes::EXIT_REFUSED);
    assert!(refused.hints().iter().any(|hint| hint.contains("access-entry")));
    let (_, desired) = example();
    cloud::check(&desired).expect("an access entry is a resource");
    let told = cloud::outside_of_template(&desired).join("\n");
    assert!(told.contains("aws ec2 create-tags"), "{told}");
}
