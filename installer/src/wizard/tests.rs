use std::collections::VecDeque;
use std::io::Write;

use tenon_installer_core::settings::config::Architecture;

use super::ask::{Question, answer_line, screen, wrap};
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

fn facts() -> Facts {
    tenon_installer_core::testing::facts()
}

async fn rest(answers: &[&'static str], config: &mut Config) -> Script {
    let mut script = Script::new(answers);
    let given = config.clone();
    ask_rest(&mut script, &given, config, &facts(), true, &[]).await.expect("enough answers");
    script
}

#[tokio::test]
async fn asks_for_what_is_missing_and_takes_what_is_inferred() {
    let mut config = Config::default();
    let inferred = Inferred { cluster: Some("prod".to_owned()), region: None };
    let mut script = Script::new(&["", "eu-west-1"]);
    ask_target(&mut script, &mut config, &inferred).await.expect("answers");
    rest(&["", "2", "1 3", "no", "", "2", "all", "many", "200"], &mut config).await;
    insta::assert_snapshot!(config.to_yaml(), @r#"
    apiVersion: tenon.sh/v1alpha1
    kind: Installation
    cluster:
      name: prod
      region: eu-west-1
    identity:
      installAgent: true
    interruption:
      enabled: false
    network:
      discovery: ids
      subnetIds:
      - subnet-a
      - subnet-c
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
    let script = rest(&[], &mut config).await;
    assert_eq!(script.asked, [], "a complete configuration leaves nothing to ask");
}

#[tokio::test]
async fn what_is_installed_is_the_default_of_every_question() {
    let mut installed = Config::default();
    rest(&["no", "2", "1 3", "no", "", "2", "all", "50"], &mut installed).await;
    installed.deploy.replicas = Some(1);
    let mut given = Config::default();
    given.interruption.enabled = Some(false);
    let mut config = installed.clone();
    let mut script = Script::new(&[""; 7]);
    ask_rest(&mut script, &given, &mut config, &facts(), true, &[]).await.expect("answers");
    let defaults: Vec<_> = script.asked.iter().map(|asked| asked.default.as_str()).collect();
    assert_eq!(defaults, ["no", "2", "1,3", "yes", "2", "1,2", "50"]);
    assert_eq!(config, installed, "Enter changes nothing");
}

#[tokio::test]
async fn back_leads_to_the_last_question_that_was_answered() {
    let mut config = Config::default();
    config.network.discovery = Some(tenon_installer_core::settings::config::Discovery::Tags);
    // The agent, the subnets, back, the subnets again, and so on.
    let script = rest(&["<", "no", "1", "<", "all", "", "", "", "", ""], &mut config).await;
    assert_eq!(script.said, ["This is the first question."]);
    assert_eq!(config.identity.install_agent, Some(false));
    assert!(config.network.subnet_ids.is_empty(), "the second answer counts");
    assert_eq!(config.defaults.arch, [Architecture::Amd64]);
}

#[tokio::test]
async fn without_defaults_nothing_is_asked_about_them() {
    let mut config = Config::default();
    let script = rest(&["", "", "", "", "no"], &mut config).await;
    assert_eq!(script.asked.len(), 5);
    assert_eq!(config.defaults.cpu_limit, None);
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_asked_again() {
    let mut config = Config::default();
    let script = rest(&["perhaps", "y", "3", "1", "0", "all", "", "no"], &mut config).await;
    assert_eq!(
        script.said,
        [
            "perhaps is neither yes nor no.",
            "3 is not a number from 1 to 2.",
            "0 is not a number from 1 to 3."
        ]
    );
}

#[tokio::test]
async fn every_question_can_be_explained() {
    let script = rest(&["", "", "", "", "", "", "", ""], &mut Config::default()).await;
    assert_eq!(script.asked.len(), 8);
    assert!(script.asked.iter().all(|question| question.help.len() > 60));
}

/// Everything that the wizard asks, as it stands on a terminal of so many columns, each question
/// explained and answered with its default.
async fn screens(width: usize, color: bool) -> String {
    let mut config = Config::default();
    let inferred =
        Inferred { cluster: Some("prod".to_owned()), region: Some("eu-west-1".to_owned()) };
    let mut script = Script::new(&["", "", "", "", "", "", "", "", "", ""]);
    ask_target(&mut script, &mut config, &inferred).await.expect("answers");
    let given = config.clone();
    ask_rest(&mut script, &given, &mut config, &facts(), true, &[]).await.expect("answers");
    let screens = script.asked.iter().map(|question| {
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
