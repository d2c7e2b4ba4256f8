use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::observe::state::ProviderState;
use tenon_installer_core::testing;

use super::*;
use crate::cli::export::{ArgocdArgs, ChartArgs, FluxArgs};
use crate::commands::iam::example;
use crate::printer::OutputFormat;

fn charts() -> ChartArgs {
    ChartArgs {
        charts: "oci://registry.example/charts".to_owned(),
        chart_version: "1.0.0".to_owned(),
        path: "clusters/prod/tenon".to_owned(),
        out: None,
    }
}

fn flux() -> Vec<File> {
    let (settings, desired) = example();
    flux_of(&settings, &desired)
}

fn flux_of(settings: &Settings, desired: &Desired) -> Vec<File> {
    let args = FluxArgs {
        settings: SettingArgs::default(),
        charts: charts(),
        source: "flux-system".to_owned(),
    };
    gitops::flux(&args, settings, desired)
}

fn argocd() -> Vec<File> {
    let (settings, desired) = example();
    argocd_of(&settings, &desired)
}

fn argocd_of(settings: &Settings, desired: &Desired) -> Vec<File> {
    let args = ArgocdArgs {
        settings: SettingArgs::default(),
        charts: charts(),
        repository: "https://git.example/nodes".to_owned(),
    };
    gitops::argocd(&args, settings, desired)
}

fn all(files: Vec<File>) -> Vec<Value> {
    files.into_iter().flat_map(|(_, bodies)| bodies).collect()
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
    let module = terraform::module(&desired, &Actual::default());
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
    let (flux, argocd) = (all(flux()), all(argocd()));
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
    for body in argocd.iter().filter(|body| body["kind"] == "Application") {
        let annotations = &body["metadata"]["annotations"];
        assert_eq!(annotations["argocd.argoproj.io/sync-options"], "Prune=false");
        assert_eq!(body["metadata"].get("finalizers"), None, "its deletion deletes nothing else");
    }
    let crds = argocd.iter().find(|body| body["metadata"]["name"] == "tenon-crds").expect("one");
    assert_eq!(crds["spec"]["syncPolicy"]["automated"]["prune"], false);
    assert_eq!(crds["spec"]["source"]["repoURL"], "registry.example/charts");
}

#[test]
fn flux_applies_each_folder_when_the_one_before_is_ready() {
    let files = flux();
    let bodies = |path: &str| {
        let file = files.iter().find(|(known, _)| known == path);
        &file.unwrap_or_else(|| panic!("no {path}")).1
    };
    let chain = bodies("flux.yaml").iter().map(|body| {
        let spec = &body["spec"];
        (
            body["metadata"]["name"].as_str().expect("a name"),
            spec["path"].as_str().expect("a path"),
            spec["dependsOn"][0]["name"].as_str(),
            (spec["wait"] == true, spec["prune"] == true),
        )
    });
    let waits = (true, false);
    assert_eq!(
        chain.collect::<Vec<_>>(),
        [
            ("tenon-crds", "./clusters/prod/tenon/crds", None, waits),
            ("tenon", "./clusters/prod/tenon/operator", Some("tenon-crds"), waits),
            ("tenon-nodepools", "./clusters/prod/tenon/nodepools", Some("tenon"), waits),
        ]
    );
    // Otherwise the folder above would apply everything at once.
    assert_eq!(bodies("kustomization.yaml")[0]["resources"], json!(["flux.yaml"]));
    let kinds =
        |path: &str| bodies(path).iter().map(|body| body["kind"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds("crds/release.yaml"), ["HelmRepository", "HelmRelease"]);
    assert_eq!(kinds("operator/release.yaml"), ["HelmRelease"]);
    assert_eq!(kinds("nodepools/nodepool-default.yaml"), ["NodePool"]);
    assert_eq!(kinds("nodepools/ec2nodeclass-default.yaml"), ["EC2NodeClass"]);
    assert_eq!(files.len(), 6, "nothing is outside of these");
}

#[test]
fn what_the_settings_leave_to_others_is_not_exported() {
    let (mut settings, mut desired) = example();
    settings.manage_crds = false;
    desired.node_objects.clear();
    let names = |files: &[File]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let named = |kind: &str, files: Vec<File>| {
        let of_kind = all(files).into_iter().filter(|body| body["kind"] == kind);
        of_kind.map(|body| body["metadata"]["name"].clone()).collect::<Vec<_>>()
    };
    let files = flux_of(&settings, &desired);
    assert_eq!(names(&files), ["kustomization.yaml", "flux.yaml", "operator/release.yaml"]);
    let depends =
        all(files.clone()).into_iter().find(|body| body["spec"].get("dependsOn").is_some());
    assert_eq!(depends, None, "nothing waits for what is not there");
    assert_eq!(named("HelmRepository", files), ["tenon"]);
    let files = argocd_of(&settings, &desired);
    assert_eq!(names(&files), ["applications.yaml"]);
    assert_eq!(named("Application", files), ["tenon"]);
}

#[test]
fn argocd_applies_and_marks_what_is_there_already() {
    let (settings, mut desired) = example();
    let name = "example.com/team".to_owned();
    desired.values.additional_annotations.insert(name.clone(), "nodes".into());
    let files = argocd_of(&settings, &desired);
    let operator = all(files).into_iter().find(|body| body["metadata"]["name"] == "tenon");
    let operator = operator.expect("it is there");
    let annotations = &operator["spec"]["source"]["helm"]["valuesObject"]["additionalAnnotations"];
    assert_eq!(annotations["argocd.argoproj.io/sync-options"], "ServerSideApply=true");
    assert_eq!(annotations[&name], "nodes");
}

#[test]
fn argocd_has_as_many_applications_as_its_help_says() {
    use clap::CommandFactory;

    let files = argocd();
    let applications = all(files).into_iter().filter(|body| body["kind"] == "Application").count();
    let command = crate::cli::Cli::command();
    let export = command.find_subcommand("export").expect("it is a command");
    let argocd = export.find_subcommand("argocd").expect("it is a command");
    let about = argocd.get_about().expect("it has a help text").to_string();
    assert!(about.starts_with("Three Applications"), "{about}");
    assert_eq!(applications, 3);
}

#[test]
fn what_is_installed_is_imported_into_terraform_and_nothing_else() {
    for extra in [
        "",
        "identity:\n  mode: irsa\nnodes:\n  instanceProfile: static\ndeploy:\n  host: fargate\n",
    ] {
        let desired = testing::desired(extra);
        let addresses = |module: &Value, field: &str| {
            let blocks = module["import"].as_array().into_iter().flatten();
            let texts = blocks.map(|block| block[field].as_str().expect("a text").to_owned());
            texts.collect::<std::collections::BTreeSet<_>>()
        };
        let module = terraform::module(&desired, &testing::untouched());
        assert_eq!(module.get("import"), None, "nothing is there yet");

        let mut cloud = testing::complete(&desired);
        let module = terraform::module(&desired, &cloud);
        let resources = module["resource"].as_object().expect("resources").iter();
        let resources = resources.flat_map(|(kind, labels)| {
            let labels = labels.as_object().expect("labels").keys();
            labels.map(move |label| format!("{kind}.{label}"))
        });
        assert_eq!(addresses(&module, "to"), resources.collect(), "all of it is imported");
        let node = &desired.node_role.name;
        assert!(addresses(&module, "id").contains(node));

        // What another installation has made keeps its owner.
        let foreign = cloud.roles.get_mut(node).expect("it is there");
        foreign.tags.clear();
        let module = terraform::module(&desired, &cloud);
        assert!(!addresses(&module, "to").contains("aws_iam_role.node"));
    }
}

#[test]
fn files_are_written_below_the_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("tenon");
    write(Some(&out), &flux(), Printer::new(OutputFormat::Text, true)).expect("written");
    let text = std::fs::read_to_string(out.join("operator/release.yaml")).expect("it is there");
    let body: Value = serde_saphyr::from_str(&text).expect("YAML");
    assert_eq!(body["spec"]["dependsOn"][0]["name"], "tenon-crds");
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
    let desired = testing::desired(
        "identity:\n  mode: irsa\nnodes:\n  instanceProfile: static\ndeploy:\n  host: fargate\ninterruption:\n  kmsKey: arn:aws:kms:eu-central-1:111122223333:key/1\n",
    );
    let module = terraform::module(&desired, &Actual::default());
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
    let cloud = Actual { provider: Some(ProviderState::default()), ..Actual::default() };
    let module = terraform::module(&desired, &cloud);
    assert!(module["resource"].get("aws_iam_openid_connect_provider").is_none());
}

#[test]
fn what_no_such_tool_can_make_is_refused_or_told() {
    let by_aws_auth = testing::desired("nodes:\n  authorization: aws-auth\n");
    let refused = cloud::check(&by_aws_auth).expect_err("no node would join");
    assert_eq!(refused.exit_code(), crate::exit_codes::EXIT_REFUSED);
    assert!(refused.hints().iter().any(|hint| hint.contains("access-entry")));
    let (_, desired) = example();
    cloud::check(&desired).expect("an access entry is a resource");
    let told = cloud::outside_of_template(&desired).join("\n");
    assert!(told.contains("aws ec2 create-tags"), "{told}");
}
