//! Asks for what cannot be found out, and only for that; ends with a configuration that does the same without asking.

use std::io;

use crate::desired::AGENT;
use crate::observe::facts::Facts;
use crate::prompt::Prompt;
use crate::settings::Inferred;
use crate::settings::config::{Architecture, CapacityType, Config, Discovery};

/// Asks for the target, unless it is known.
pub fn ask_target(
    prompt: &mut impl Prompt,
    config: &mut Config,
    inferred: &Inferred,
) -> io::Result<()> {
    if config.cluster.name.is_none() {
        config.cluster.name =
            Some(prompt.input("Name of the EKS cluster", inferred.cluster.as_deref())?);
    }
    if config.cluster.region.is_none() {
        config.cluster.region =
            Some(prompt.input("Region of the cluster", inferred.region.as_deref())?);
    }
    Ok(())
}

/// Asks for the rest, knowing the cluster. `agent_is_missing`: the cluster has no Pod Identity agent.
pub fn ask_rest(
    prompt: &mut impl Prompt,
    config: &mut Config,
    facts: &Facts,
    agent_is_missing: bool,
) -> io::Result<()> {
    if agent_is_missing && config.identity.install_agent.is_none() {
        let question = format!(
            "The operator gets its permissions by EKS Pod Identity, and the add-on {AGENT} is missing. Install it?"
        );
        config.identity.install_agent = Some(prompt.confirm(&question, true)?);
    }
    if config.network.discovery.is_none() {
        let items = [
            "by the tag karpenter.sh/discovery, which is added to them".to_owned(),
            "by their ids, written into the EC2NodeClass (nothing is tagged)".to_owned(),
        ];
        let choice = prompt.select("How are subnets and security groups found?", &items, 0)?;
        config.network.discovery = Some(if choice == 0 { Discovery::Tags } else { Discovery::Ids });
    }
    let subnets = &facts.cluster.subnet_ids;
    if config.network.subnet_ids.is_empty() && subnets.len() > 1 {
        let chosen = prompt.multi_select(
            "Which subnets may nodes use?",
            subnets,
            &vec![true; subnets.len()],
        )?;
        // All of them is what an empty list says, too.
        if !chosen.is_empty() && chosen.len() < subnets.len() {
            config.network.subnet_ids =
                chosen.into_iter().filter_map(|i| subnets.get(i).cloned()).collect();
        }
    }
    if config.interruption.enabled.is_none() {
        let question = "Replace nodes in time when AWS announces an interruption (one SQS queue, five EventBridge rules)?";
        config.interruption.enabled = Some(prompt.confirm(question, true)?);
    }
    if config.defaults.enabled.is_none() && config.defaults.manifests.is_empty() {
        let enabled =
            prompt.confirm("Make a first NodePool and EC2NodeClass, both named default?", true)?;
        config.defaults.enabled = Some(enabled);
        if enabled {
            ask_defaults(prompt, config)?;
        }
    }
    Ok(())
}

fn ask_defaults(prompt: &mut impl Prompt, config: &mut Config) -> io::Result<()> {
    if config.defaults.capacity_types.is_empty() {
        let items =
            ["spot and on-demand".to_owned(), "on-demand only".to_owned(), "spot only".to_owned()];
        config.defaults.capacity_types = match prompt.select("Capacity", &items, 0)? {
            0 => vec![CapacityType::Spot, CapacityType::OnDemand],
            1 => vec![CapacityType::OnDemand],
            _ => vec![CapacityType::Spot],
        };
    }
    if config.defaults.arch.is_empty() {
        let items = ["amd64".to_owned(), "arm64".to_owned()];
        let chosen = prompt.multi_select(
            "Architectures (do all your images exist for them?)",
            &items,
            &[true, false],
        )?;
        config.defaults.arch = chosen
            .into_iter()
            .map(|i| if i == 0 { Architecture::Amd64 } else { Architecture::Arm64 })
            .collect();
    }
    while config.defaults.cpu_limit.is_none() {
        config.defaults.cpu_limit = prompt
            .input("Most CPU cores that the NodePool may have at once", Some("1000"))?
            .trim()
            .parse()
            .ok()
            .filter(|n| *n > 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers from a list, and writes down what was asked.
    struct Script {
        answers: Vec<&'static str>,
        asked: Vec<String>,
    }

    impl Script {
        fn next(&mut self, question: &str) -> &'static str {
            self.asked.push(question.to_owned());
            self.answers.remove(0)
        }
    }

    impl Prompt for Script {
        fn confirm(&mut self, question: &str, _default: bool) -> io::Result<bool> {
            Ok(self.next(question) == "y")
        }
        fn input(&mut self, question: &str, default: Option<&str>) -> io::Result<String> {
            let answer = self.next(question);
            Ok(if answer.is_empty() {
                default.unwrap_or_default().to_owned()
            } else {
                answer.to_owned()
            })
        }
        fn select(
            &mut self,
            question: &str,
            _items: &[String],
            _default: usize,
        ) -> io::Result<usize> {
            Ok(self.next(question).parse().expect("a number"))
        }
        fn multi_select(
            &mut self,
            question: &str,
            _items: &[String],
            _chosen: &[bool],
        ) -> io::Result<Vec<usize>> {
            Ok(self.next(question).split(' ').map(|text| text.parse().expect("a number")).collect())
        }
    }

    #[test]
    fn asks_for_what_is_missing_and_takes_what_is_inferred() {
        let mut script = Script {
            answers: vec!["", "eu-west-1", "y", "1", "0 2", "n", "y", "1", "0 1", "many", "200"],
            asked: vec![],
        };
        let mut config = Config::default();
        let inferred = Inferred { cluster: Some("prod".to_owned()), region: None };
        ask_target(&mut script, &mut config, &inferred).expect("answers");
        ask_rest(&mut script, &mut config, &crate::plan::tests::facts(), true).expect("answers");
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
        let n_asked = script.asked.len();
        ask_target(&mut script, &mut config, &inferred).expect("nothing is asked");
        config.defaults.arch = vec![Architecture::Amd64];
        ask_rest(&mut script, &mut config, &crate::plan::tests::facts(), true)
            .expect("nothing is asked");
        assert_eq!(script.asked.len(), n_asked, "a complete configuration leaves nothing to ask");
    }
}
