use std::path::Path;

use super::*;
use crate::settings::problem::Problem;

fn problems(text: &str) -> String {
    let problems = Source::parse(Path::new("tenon.yaml"), text).problems;
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

fn resolve(text: &str) -> Result<Settings, String> {
    let source = Source::parse(Path::new("tenon.yaml"), text);
    Settings::resolve(source, &Inferred::default()).map_err(|error| {
        error.problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
    })
}

const MINIMAL: &str = "apiVersion: tenon.sh/v1alpha1\nkind: Installation\ncluster:\n  name: prod\n  region: eu-central-1\n";

#[test]
fn reports_all_problems_at_once_with_line_path_and_what_is_allowed() {
    let text = "\
apiVersion: tenon.sh/v1
kind: Installation
cluster:
  nmae: prod
  region: 7
identity:
  mode: kiam
interruption:
  enabled: maybe
  events: [spot, sopt]
network:
  subnetIds: subnet-1
deploy:
  replicas: 99
  values:
    settings:
      batchIdleDuratoin: 1s
defaults:
  capacityTypes: [spot, reserved]
unknown: 1
";
    insta::assert_snapshot!(problems(text));
}

#[test]
fn reports_values_that_only_code_can_judge_together_with_the_others() {
    let text = "\
apiVersion: tenon.sh/v1alpha1
kind: Installation
cluster:
  name: -prod
  region: frankfurt
  accountId: '12'
network:
  subnetIds:
    - subnet-1
    - vpc-1
defaults:
  amiAlias: ubuntu@latest
tags:
  aws:x: y
  team: 7
";
    insta::assert_snapshot!(problems(text));
}

#[test]
fn reports_missing_fields_and_broken_yaml() {
    insta::assert_snapshot!(problems("cluster: {}\n"), @r#"
    tenon.yaml:1: apiVersion: missing; allowed: tenon.sh/v1alpha1
    tenon.yaml:1: kind: missing; allowed: Installation
    "#);
    let broken = problems("apiVersion: tenon.sh/v1alpha1\nkind: [Installation\n");
    assert!(broken.starts_with("tenon.yaml:"), "{broken}");
}

#[test]
fn a_missing_target_names_file_flag_and_variable() {
    let error =
        resolve("apiVersion: tenon.sh/v1alpha1\nkind: Installation\n").expect_err("no target");
    insta::assert_snapshot!(error, @r#"
    tenon.yaml:1: cluster.name: missing: set it in the settings file, or use --cluster or TENON_CLUSTER
    tenon.yaml:1: cluster.region: missing: set it in the settings file, or use --region or AWS_REGION
    "#);
}

#[test]
fn defaults_fill_what_the_file_leaves_out() {
    let settings = resolve(MINIMAL).expect("valid");
    assert_eq!(settings.namespace, "kube-system");
    assert_eq!(settings.role_path, "/tenon/prod/");
    assert_eq!(settings.queue_name.as_deref(), Some("tenon-prod"));
    assert_eq!(settings.events.len(), 5);
}

#[test]
fn what_the_installer_fills_in_cannot_be_set() {
    let text = format!("{MINIMAL}deploy:\n  values:\n    settings:\n      clusterName: other\n");
    insta::assert_snapshot!(resolve(&text).expect_err("set by the installer"), @"deploy.values: settings.clusterName is set by the installer");
}

#[test]
fn a_recorded_configuration_says_the_same_as_its_file() {
    let text = format!(
        "{MINIMAL}defaults:\n  cpuLimit: 50\n  arch: [arm64]\ndeploy:\n  values:\n    logLevel: debug\n"
    );
    let first = resolve(&text).expect("valid");
    let second = resolve(&first.config.to_yaml()).expect("valid");
    assert_eq!(first, second);
}

#[test]
fn cluster_and_region_are_inferred_from_context_names() {
    let of = |context: &str| {
        let inferred = infer_from_context(context);
        (inferred.cluster.unwrap_or_default(), inferred.region.unwrap_or_default())
    };
    assert_eq!(
        of("arn:aws:eks:eu-west-1:111122223333:cluster/prod"),
        ("prod".into(), "eu-west-1".into())
    );
    assert_eq!(of("admin@prod.eu-west-1.eksctl.io"), ("prod".into(), "eu-west-1".into()));
    assert_eq!(of("me@a.b.eu-west-1.eksctl.io"), ("a.b".into(), "eu-west-1".into()));
    assert_eq!(of("kind-kind"), (String::new(), String::new()));
}
