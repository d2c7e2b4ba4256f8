use std::collections::VecDeque;
use std::io::Write;

use tenon_checks::observe::{Rival, RivalKind};
use tenon_installer_core::observe::node_groups::NodeGroup;
use tenon_installer_core::settings::Inferred;
use tenon_installer_core::settings::config::{Architecture, Config, Host};
use tenon_installer_core::target::NamedTarget;

use super::ask::{Question, answer_line, screen, wrap};
use super::known::{GROUP_LABEL, NodeView, Survey};
use super::step::Delivery;
use super::survey::plain;
use super::*;

/// Answers from a list, and writes down what was asked and said.
#[derive(Default)]
struct Script {
    answers: VecDeque<&'static str>,
    asked: Vec<Question>,
    said: Vec<String>,
}

impl Script {
    fn new(answers: &[&'static str]) -> Self {
        Self { answers: answers.iter().copied().collect(), ..Self::default() }
    }
}

impl Ask for Script {
    async fn ask(&mut self, question: &Question) -> io::Result<Reply> {
        self.asked.push(question.clone());
        let answer = self.answers.pop_front();
        let answer = answer.ok_or_else(|| io::Error::other(format!("asked: {}", question.text)))?;
        Ok(match answer {
            "<" => Reply::Back,
            "" => Reply::Answer(question.default.clone()),
            text => Reply::Answer(text.to_owned()),
        })
    }

    fn say(&mut self, text: &str) {
        self.said.push(text.to_owned());
    }
}

fn survey() -> Survey {
    Survey {
        facts: Some(tenon_installer_core::testing::facts()),
        agent_is_missing: true,
        nodes: ["a", "b", "c"].map(|zone| node("system", zone, None)).to_vec(),
        subnets: ["subnet-a", "subnet-b", "subnet-c"].map(plain).to_vec(),
        quotas: Some((640.0, 320.0)),
        ..Survey::default()
    }
}

fn node(group: &str, zone: &str, taint: Option<&str>) -> NodeView {
    let taint = taint.map(|key| (key.to_owned(), "system".to_owned(), "NoSchedule".to_owned()));
    NodeView {
        group: (!group.is_empty()).then(|| group.to_owned()),
        zone: Some(format!("eu-central-1{zone}")),
        taints: taint.into_iter().collect(),
    }
}

fn known(config: &Config) -> Known {
    Known { given: config.clone(), survey: survey(), ..Known::default() }
}

/// Asks for everything but the target. The account is right.
async fn rest(answers: &[&'static str], config: &mut Config) -> Script {
    let mut known = known(config);
    rest_with(answers, config, &mut known).await.1
}

async fn rest_with(
    answers: &[&'static str],
    config: &mut Config,
    known: &mut Known,
) -> (Answers, Script) {
    let mut script = Script::new(answers);
    let mut given = Answers { config: config.clone(), ..Answers::default() };
    ask_rest(&mut script, &mut given, known).await.expect("enough answers");
    *config = given.config.clone();
    (given, script)
}

async fn target(answers: &[&'static str], known: &mut Known) -> (Answers, Script) {
    let mut script = Script::new(answers);
    let mut given = Answers { config: known.given.clone(), ..Answers::default() };
    let list = async |region: &str| match region {
        "eu-west-1" => Ok(vec!["prod".to_owned(), "test".to_owned()]),
        "eu-west-2" => Ok(Vec::new()),
        _ => Err("eks:ListClusters on *: AccessDenied".to_owned()),
    };
    ask_target(&mut script, &mut given, known, list).await.expect("enough answers");
    (given, script)
}

#[tokio::test]
async fn the_cluster_is_chosen_from_those_of_the_region() {
    let mut known = Known::default();
    // A misspelt region, a region without clusters, back, a number beyond the list, an unknown
    // name.
    let typed = ["eu-wst-1", "eu-west-2", "<", "eu-west-1", "3", "prdo", "2"];
    let (answers, script) = target(&typed, &mut known).await;
    let cluster = &answers.config.cluster;
    assert_eq!(
        (cluster.name.as_deref(), cluster.region.as_deref()),
        (Some("test"), Some("eu-west-1"))
    );
    let said = script.said.join("\n");
    for part in [
        "did you mean eu-west-1?",
        "EKS lists no cluster in eu-west-2",
        "3 is not a number from 1 to 2.",
        "EKS has no cluster prdo in this region",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let last = script.asked.last().expect("asked");
    assert_eq!(last.choices, ["prod", "test"]);
    // Who may not list them types the name.
    let (answers, script) = target(&["us-east-1", "prod"], &mut Known::default()).await;
    assert_eq!(answers.config.cluster.name.as_deref(), Some("prod"));
    assert!(script.said.concat().contains("AccessDenied"), "{:?}", script.said);
    // A region by its number.
    let (answers, _) = target(&["1", "prod"], &mut Known::default()).await;
    assert_eq!(answers.config.cluster.region.as_deref(), Some("af-south-1"));
}

#[tokio::test]
async fn a_context_of_the_kubeconfig_is_cluster_and_region_at_once() {
    let context = |name: &str, region: &str, current| NamedTarget {
        context: format!("arn-of-{name}"),
        cluster: name.to_owned(),
        region: region.to_owned(),
        current,
    };
    let contexts = vec![context("prod", "eu-west-1", true), context("test", "us-east-1", false)];
    let known = || Known { contexts: contexts.clone(), ..Known::default() };
    let (answers, script) = target(&[""], &mut known()).await;
    assert_eq!(answers.context.as_deref(), Some("arn-of-prod"));
    assert_eq!(answers.config.cluster.name.as_deref(), Some("prod"));
    assert_eq!(answers.config.cluster.region.as_deref(), Some("eu-west-1"));
    assert_eq!(script.asked.len(), 1);
    let (answers, _) = target(&["3", "eu-west-1", "1"], &mut known()).await;
    assert_eq!((answers.context, answers.config.cluster.name.as_deref()), (None, Some("prod")));
    // With a region that was given, only its clusters.
    let mut known = known();
    known.given.cluster.region = Some("us-east-1".to_owned());
    let (answers, script) = target(&["1"], &mut known).await;
    assert_eq!(answers.context.as_deref(), Some("arn-of-test"));
    assert_eq!(script.asked[0].choices.len(), 2);
}

#[tokio::test]
async fn enter_accepts_everything_that_follows_from_the_cluster() {
    let mut config = Config::default();
    let script = rest(&["", "", ""], &mut config).await;
    assert_eq!(script.asked.len(), 3, "the account, the settings, what happens with them");
    insta::assert_snapshot!(script.asked[1].notes.join("\n"));
    insta::assert_snapshot!(config.to_yaml());
}

#[tokio::test]
async fn asks_for_each_setting_and_takes_what_is_inferred() {
    let mut config = Config::default();
    let typed = ["", "no", "", "", "", "2", "1 3", "no", "", "2", "all", "many", "200", ""];
    rest(&typed, &mut config).await;
    insta::assert_snapshot!(config.to_yaml(), @r#"
    apiVersion: tenon.sh/v1alpha1
    kind: Installation
    cluster:
      accountId: "111122223333"
    identity:
      mode: pod-identity
      installAgent: true
    interruption:
      enabled: false
    network:
      discovery: ids
      subnetIds:
      - subnet-a
      - subnet-c
    deploy:
      host: nodes
    defaults:
      enabled: true
      capacityTypes:
      - on-demand
      arch:
      - amd64
      - arm64
      cpuLimit: 200
    "#);
    config.network.subnet_ids = vec!["subnet-a".to_owned()];
    let script = rest(&[""], &mut config).await;
    assert_eq!(script.asked.len(), 1, "a complete configuration leaves only its delivery to ask");
}

#[tokio::test]
async fn what_is_installed_is_the_default_of_every_question() {
    let mut installed = Config::default();
    let typed = ["", "no", "2", "2", "2", "1 3", "no", "", "2", "all", "50", ""];
    rest(&typed, &mut installed).await;
    installed.deploy.replicas = Some(1);
    let mut config = installed.clone();
    let mut known = known(&Config::default());
    known.given.interruption.enabled = Some(false);
    let mut typed = vec!["", "no"];
    typed.extend([""; 9]);
    let (_, script) = rest_with(&typed, &mut config, &mut known).await;
    let defaults: Vec<_> = script.asked.iter().map(|asked| asked.default.as_str()).collect();
    assert_eq!(defaults, ["yes", "yes", "2", "2", "2", "1,3", "yes", "2", "1,2", "50", "1"]);
    assert_eq!(config, installed, "Enter changes nothing");
}

#[tokio::test]
async fn back_leads_to_the_last_question_that_was_answered() {
    let mut config = Config::default();
    config.network.discovery = Some(tenon_installer_core::settings::config::Discovery::Tags);
    // The account, back, the account and the details; where the operator runs, how, the agent, the
    // subnets, back, the subnets again, and so on.
    let typed = ["<", "", "no", "", "", "no", "1", "<", "all", "", "", "", "", "", ""];
    let script = rest(&typed, &mut config).await;
    assert_eq!(script.said, ["This is the first question."]);
    assert_eq!(config.identity.install_agent, Some(false));
    assert!(config.network.subnet_ids.is_empty(), "the second answer counts");
    assert_eq!(config.defaults.arch, [Architecture::Amd64]);
}

#[tokio::test]
async fn without_defaults_nothing_is_asked_about_them() {
    let mut config = Config::default();
    let script = rest(&["", "no", "", "", "", "", "", "", "no", ""], &mut config).await;
    assert_eq!(script.asked.len(), 10);
    assert_eq!(config.defaults.cpu_limit, None);
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_asked_again() {
    let mut config = Config::default();
    let typed = ["", "no", "", "", "perhaps", "y", "3", "1", "0", "all", "", "no", "5", "1"];
    let script = rest(&typed, &mut config).await;
    assert_eq!(
        script.said,
        [
            "perhaps is neither yes nor no.",
            "3 is not a number from 1 to 2.",
            "0 is not a number from 1 to 3.",
            "5 is not a number from 1 to 4.",
        ]
    );
}

#[tokio::test]
async fn the_wrong_account_ends_it() {
    let mut known = known(&Config::default());
    known.survey.alias = Some("acme".to_owned());
    let mut script = Script::new(&["no"]);
    let ended = ask_rest(&mut script, &mut Answers::default(), &mut known).await;
    assert!(matches!(ended, Err(Unanswered::Declined(hint)) if hint.contains("--profile")));
    assert_eq!(
        script.asked[0].text,
        "Cluster prod in eu-central-1, Kubernetes 1.34, account 111122223333 (acme), as \
         arn:aws:iam::111122223333:user/me: is that right?"
    );
}

#[tokio::test]
async fn other_autoscalers_are_named_and_it_can_end_there() {
    let rival = |kind, name: &str| Rival {
        kind,
        namespace: "kube-system".to_owned(),
        name: name.to_owned(),
    };
    let karpenter = rival(RivalKind::Karpenter, "karpenter");
    let autoscaler = rival(RivalKind::ClusterAutoscaler, "cluster-autoscaler");
    let with = |rival: &Rival| {
        let mut known = known(&Config::default());
        known.survey.rivals = vec![rival.clone()];
        known
    };
    for (rival, typed, hint) in
        [(&karpenter, "", "tenon adopt"), (&autoscaler, "3", "tenon install")]
    {
        let mut script = Script::new(&["", typed]);
        let ended = ask_rest(&mut script, &mut Answers::default(), &mut with(rival)).await;
        assert!(matches!(ended, Err(Unanswered::Declined(said)) if said.contains(hint)));
        let text = &script.asked[1].text;
        assert!(text.contains(&format!("kube-system/{}", rival.name)), "{text}");
    }
    let mut config = Config::default();
    rest_with(&["", "2", "", ""], &mut config, &mut with(&autoscaler)).await;
    assert_eq!(config.defaults.enabled, Some(false), "nothing is launched beside it");
    let mut config = Config::default();
    rest_with(&["", "1", "", ""], &mut config, &mut with(&autoscaler)).await;
    assert_eq!(config.defaults.enabled, Some(true));
}

#[tokio::test]
async fn the_operator_runs_where_its_pods_can() {
    let mut known = known(&Config::default());
    known.survey.nodes =
        vec![node("system", "a", Some("dedicated")), node("gpu", "b", Some("gpu"))];
    let mut config = Config::default();
    let (_, script) = rest_with(&["", "", ""], &mut config, &mut known).await;
    let notes = script.asked[1].notes.join("\n");
    assert!(notes.contains("operator: on node group gpu"), "no other node takes them: {notes}");
    let values = config.values().expect("values of the chart");
    assert_eq!(values.node_selector[GROUP_LABEL], "gpu");
    assert_eq!(values.node_selector["kubernetes.io/os"], "linux", "as the chart has it");
    let tolerated = values.tolerations.iter().filter_map(|one| one.key.as_deref());
    assert_eq!(tolerated.collect::<Vec<_>>(), ["CriticalAddonsOnly", "gpu"]);
    // Another answer takes that back, and Fargate has no Pod Identity.
    known.given = Config::default();
    let (_, script) =
        rest_with(&["", "no", "4", "", "", "", "", "", "", "", ""], &mut config, &mut known).await;
    assert_eq!(script.asked[2].default, "2", "what is installed: {:?}", script.asked[2]);
    assert!(config.deploy.values.is_empty(), "{:?}", config.deploy.values);
    assert_eq!(config.deploy.host, Some(Host::Fargate));
    assert_eq!(config.identity.mode, None);
}

#[tokio::test]
async fn node_groups_say_subnets_images_and_architectures() {
    let mut known = known(&Config::default());
    known.survey.node_groups = vec![NodeGroup {
        name: "system".to_owned(),
        subnet_ids: vec!["subnet-b".to_owned(), "subnet-c".to_owned()],
        image: "BOTTLEROCKET_ARM_64".to_owned(),
        ..NodeGroup::default()
    }];
    known.survey.security_groups = vec!["sg-nodes".to_owned()];
    let mut config = Config::default();
    rest_with(&["", "", ""], &mut config, &mut known).await;
    assert_eq!(config.network.subnet_ids, ["subnet-b", "subnet-c"]);
    assert_eq!(config.network.security_group_ids, ["sg-nodes"]);
    assert_eq!(config.defaults.ami_alias.as_deref(), Some("bottlerocket@latest"));
    assert_eq!(config.defaults.arch, [Architecture::Arm64]);
}

#[tokio::test]
async fn the_limit_stands_beside_the_quota() {
    let mut config = Config::default();
    config.defaults.capacity_types =
        vec![tenon_installer_core::settings::config::CapacityType::Spot];
    let mut typed = vec!["", "no"];
    typed.extend([""; 7]);
    typed.extend(["", "500", ""]);
    let script = rest(&typed, &mut config).await;
    let question = script.asked.iter().find(|asked| asked.text.contains("CPU limit"));
    let question = question.expect("asked");
    assert!(question.text.contains("allow 640 on-demand and 320 spot vCPUs"), "{question:?}");
    assert_eq!(question.default, "320");
    assert!(script.said.concat().contains("allow 320 vCPUs"), "{:?}", script.said);
}

#[tokio::test]
async fn the_settings_are_applied_or_written_or_handed_to_gitops() {
    let mut known = known(&Config::default());
    let typed = [
        "",
        "",
        "4",
        "registry/charts",
        "oci://registry.example/charts/",
        "",
        "https://git.example/x",
        "clusters/prod",
    ];
    let (answers, script) = rest_with(&typed, &mut Config::default(), &mut known).await;
    assert_eq!(answers.delivery, Delivery::Argocd);
    assert_eq!(answers.charts, "oci://registry.example/charts");
    assert_eq!(answers.repository, "https://git.example/x");
    assert_eq!(answers.folder, "clusters/prod");
    assert!(script.said[0].contains("is not a URL"), "{:?}", script.said);
    let (answers, _) = rest_with(&["", "", "2"], &mut Config::default(), &mut known).await;
    assert_eq!(answers.delivery, Delivery::Write);
    known.only_plans = true;
    let (answers, script) = rest_with(&["", ""], &mut Config::default(), &mut known).await;
    assert_eq!((answers.delivery, script.asked.len()), (Delivery::Apply, 2));
}

#[tokio::test]
async fn every_question_can_be_explained() {
    let script = rest(&EVERY, &mut Config::default()).await;
    assert_eq!(script.asked.len(), EVERY.len());
    assert!(script.asked.iter().all(|question| question.help.len() > 60));
}

/// Each setting asked, and answered with its default.
const EVERY: [&str; 13] = ["", "no", "", "", "", "", "", "", "", "", "", "", ""];

/// Everything that the wizard asks, as it stands on a terminal of so many columns, each question
/// explained and answered with its default.
async fn screens(width: usize, color: bool) -> String {
    let mut known = Known {
        inferred: Inferred {
            cluster: Some("prod".to_owned()),
            region: Some("eu-west-1".to_owned()),
        },
        ..Known::default()
    };
    let (answers, script) = target(&["", ""], &mut known).await;
    let mut asked = script.asked;
    known.given = answers.config.clone();
    known.survey = survey();
    let mut config = answers.config;
    asked.extend(rest_with(&EVERY, &mut config, &mut known).await.1.asked);
    let screens = asked.iter().map(|question| {
        let lines = [
            screen(question, width),
            answer_line(question) + "?",
            wrap(question.help, width, "    "),
            answer_line(question),
        ];
        lines.join("\n")
    });
    let text = screens.collect::<Vec<_>>().join("\n");
    if color {
        return text.replace('\u{1b}', "\\e");
    }
    let mut plain = anstream::StripStream::new(Vec::new());
    plain.write_all(text.as_bytes()).expect("it is in memory");
    String::from_utf8(plain.into_inner()).expect("text")
}

#[tokio::test]
async fn every_screen_at_80_columns() {
    insta::assert_snapshot!(screens(80, false).await);
}

#[tokio::test]
async fn every_screen_at_120_columns() {
    insta::assert_snapshot!(screens(120, false).await);
}

#[tokio::test]
async fn every_screen_at_80_columns_in_colour() {
    insta::assert_snapshot!(screens(80, true).await);
}

#[tokio::test]
async fn every_screen_at_120_columns_in_colour() {
    insta::assert_snapshot!(screens(120, true).await);
}
