//! What an answer changes, or what is wrong with it.

use serde_json::{Value, json};
use tenon_installer_core::settings::config::{
    CapacityType, Config, Discovery, Host, IdentityMode, Switch,
};
use tenon_installer_core::settings::region;
use tenon_installer_core::settings::values::Values;

use super::ask::Question;
use super::known::{GROUP_LABEL, HostChoice, Known};
use super::questions::most_vcpus;
use super::step::{ARCHITECTURES, Answers, Delivery, IMAGES, Step, details};

impl Step {
    /// Takes an answer, or says what is wrong with it.
    pub(super) fn take(
        self,
        answer: &str,
        answers: &mut Answers,
        known: &Known,
    ) -> Result<(), AnswerError> {
        let config = &mut answers.config;
        match self {
            Self::Context => {
                let contexts = known.offered_contexts();
                let chosen = contexts.get(one(answer, contexts.len() + 1)?);
                answers.context = chosen.map(|one| one.context.clone());
                if let Some(chosen) = chosen {
                    config.cluster.name = Some(chosen.cluster.clone());
                    config.cluster.region = Some(chosen.region.clone());
                }
            }
            Self::Region => {
                let name = listed(answer, &region::KNOWN.map(str::to_owned))?;
                if let Some(problem) = region::problem(&name, known.may_be_unknown_region) {
                    return Err(AnswerError::Refused(problem));
                }
                config.cluster.region = Some(name);
            }
            Self::Cluster => {
                let name = listed(answer, &known.clusters)?;
                if !known.clusters.is_empty() && !known.clusters.contains(&name) {
                    return Err(AnswerError::NoSuchCluster(name));
                }
                let before = config.cluster.name.replace(name);
                let problem = config.check().into_iter().find(|(at, _)| at == "cluster.name");
                if let Some((_, problem)) = problem {
                    config.cluster.name = before;
                    return Err(AnswerError::Refused(problem));
                }
            }
            Self::Account => {
                if !yes(answer)? {
                    let hint = "use other credentials, such as another --profile, or another \
                                --cluster, --region or --context";
                    return Err(AnswerError::Declined(hint));
                }
                let facts = known.survey.facts.as_ref();
                config.cluster.account_id = facts.map(|facts| facts.caller.account.clone());
            }
            Self::Karpenter => {
                if one(answer, 2)? == 0 {
                    let hint = "run `tenon adopt` with the same --cluster and --region: \
                                `tenon adopt --dry-run` shows what it would do";
                    return Err(AnswerError::Declined(hint));
                }
            }
            Self::ClusterAutoscaler => {
                config.defaults.enabled = match one(answer, 3)? {
                    0 => known.defaults_enabled.filter(|enabled| *enabled),
                    1 => Some(false),
                    _ => {
                        let hint = "run `tenon install` again when you have decided what to do \
                                    about the Cluster Autoscaler";
                        return Err(AnswerError::Declined(hint));
                    }
                };
            }
            Self::Recommended => answers.is_detailed = !yes(answer)?,
            Self::Host => {
                let hosts = known.survey.hosts();
                let (host, _) = &hosts[one(answer, hosts.len())?];
                run_on(host, config);
            }
            Self::Identity => {
                config.identity.mode = Some(match one(answer, 2)? {
                    0 => IdentityMode::PodIdentity,
                    _ => IdentityMode::Irsa,
                });
            }
            Self::Agent => config.identity.install_agent = Some(yes(answer)?),
            Self::Interruption => config.interruption.enabled = Some(yes(answer)?),
            Self::Defaults => config.defaults.enabled = Some(yes(answer)?),
            Self::Discovery => {
                config.network.discovery = Some(match one(answer, 2)? {
                    0 => Discovery::Tags,
                    _ => Discovery::Ids,
                });
            }
            Self::Subnets => {
                let ids = known.survey.subnets.iter().map(|one| one.id.clone());
                config.network.subnet_ids = some_of(answer, &ids.collect::<Vec<_>>())?;
            }
            Self::SecurityGroups => {
                let groups = known.survey.all_security_groups();
                let chosen = many(answer, groups.len())?;
                let chosen = chosen.into_iter().map(|i| groups[i].clone()).collect::<Vec<_>>();
                // The cluster's own alone is what an empty list says, too.
                let facts = known.survey.facts.as_ref();
                let own = facts.and_then(|facts| facts.cluster.security_group.as_ref());
                let is_own = chosen.len() == 1 && chosen.first() == own;
                config.network.security_group_ids = if is_own { Vec::new() } else { chosen };
            }
            Self::Image => {
                let image = IMAGES[one(answer, IMAGES.len())?];
                config.defaults.ami_alias = Some(image.to_owned());
            }
            Self::Capacity => {
                config.defaults.capacity_types = match one(answer, 3)? {
                    0 => vec![CapacityType::Spot, CapacityType::OnDemand],
                    1 => vec![CapacityType::OnDemand],
                    _ => vec![CapacityType::Spot],
                };
            }
            Self::Architectures => {
                let chosen = many(answer, ARCHITECTURES.len())?;
                config.defaults.arch = chosen.into_iter().map(|i| ARCHITECTURES[i]).collect();
            }
            Self::CpuLimit => {
                let cores = answer.parse().map_err(|_| AnswerError::NotCores(answer.to_owned()))?;
                config.defaults.cpu_limit = Some(cores);
            }
            Self::Delivery => {
                answers.delivery = match one(answer, 4)? {
                    0 => Delivery::Apply,
                    1 => Delivery::Write,
                    2 => Delivery::Flux,
                    _ => Delivery::Argocd,
                };
                if matches!(answers.delivery, Delivery::Flux | Delivery::Argocd) {
                    config.deploy.operator = Some(Switch::Skip);
                }
            }
            Self::Charts => {
                let is_url =
                    ["oci://", "https://", "http://"].iter().any(|it| answer.starts_with(it));
                if !is_url {
                    return Err(AnswerError::NoUrl(answer.to_owned()));
                }
                answer.trim_end_matches('/').clone_into(&mut answers.charts);
            }
            Self::Repository => answers.repository = filled(answer)?,
            Self::Folder => filled(answer)?.trim_matches('/').clone_into(&mut answers.folder),
        }
        Ok(())
    }

    /// What is worth knowing about the answer that was just taken.
    pub(super) fn remark(self, answers: &Answers, known: &Known) -> Option<String> {
        match self {
            Self::CpuLimit => {
                let limit = answers.config.defaults.cpu_limit?;
                let most = most_vcpus(&answers.config, known).filter(|most| *most < limit)?;
                Some(format!(
                    "The account's quotas allow {most} vCPUs of the chosen capacity types: EC2 \
                     launches no more until Service Quotas grants an increase."
                ))
            }
            _ => None,
        }
    }
}

/// The settings that follow when every detail is accepted, and each of them in words.
pub(super) fn accepted(answers: &Answers, known: &Known) -> (Answers, Vec<String>) {
    let mut accepted = Answers { is_detailed: true, ..answers.clone() };
    let mut words = Vec::new();
    for step in details() {
        if !step.applies(&accepted, known) {
            continue;
        }
        let question = step.question(&accepted, known);
        // A default that its own question would refuse is asked for.
        if step.take(&question.default, &mut accepted, known).is_ok() {
            words.push(format!("{}: {}", label(step), chosen_words(step, &question, known)));
        }
    }
    accepted.is_detailed = answers.is_detailed;
    (accepted, words)
}

/// What a setting is called in a list of them.
fn label(step: Step) -> &'static str {
    match step {
        Step::Host => "operator",
        Step::Identity => "permissions",
        Step::Agent => "install the add-on",
        Step::Discovery => "selection",
        Step::Subnets => "subnets",
        Step::SecurityGroups => "security groups",
        Step::Interruption => "replace nodes before interruptions",
        Step::Defaults => "NodePool and EC2NodeClass default",
        Step::Image => "operating system",
        Step::Capacity => "capacity",
        Step::Architectures => "architectures",
        Step::CpuLimit => "CPU limit",
        _ => "",
    }
}

/// The default of a question, as its choices say it.
fn chosen_words(step: Step, question: &Question, known: &Known) -> String {
    let n = question.choices.len();
    match many(&question.default, n) {
        Ok(chosen) if n > 0 && step == Step::Subnets => {
            let ids = chosen.iter().map(|i| known.survey.subnets[*i].id.as_str());
            format!("{} of {n}: {}", chosen.len(), ids.collect::<Vec<_>>().join(", "))
        }
        Ok(chosen) if n > 0 => {
            let words = chosen.iter().map(|i| question.choices[*i].as_str());
            words.collect::<Vec<_>>().join(", ")
        }
        _ => question.default.clone(),
    }
}

/// Sets where the operator runs, and takes back what an earlier answer set.
fn run_on(host: &HostChoice, config: &mut Config) {
    config.deploy.host = Some(match host {
        HostChoice::Fargate => Host::Fargate,
        HostChoice::AnyNode { .. } | HostChoice::Group { .. } => Host::Nodes,
    });
    if *host == HostChoice::Fargate && config.identity.mode == Some(IdentityMode::PodIdentity) {
        // It is not available there.
        config.identity.mode = None;
    }
    let values = &mut config.deploy.values;
    let selector = values.get_mut("nodeSelector").and_then(Value::as_object_mut);
    let was_group = selector.is_some_and(|labels| labels.remove(GROUP_LABEL).is_some());
    if was_group {
        values.remove("tolerations");
        if values["nodeSelector"].as_object().is_some_and(serde_json::Map::is_empty) {
            values.remove("nodeSelector");
        }
    }
    let HostChoice::Group { name, taints } = host else { return };
    let labels = values.entry("nodeSelector").or_insert_with(|| json!({}));
    labels[GROUP_LABEL] = json!(name);
    if taints.is_empty() {
        return;
    }
    let usual = Values::default().tolerations;
    let mut tolerations = usual.iter().map(|toleration| json!(toleration)).collect::<Vec<_>>();
    tolerations.extend(taints.iter().map(|(key, value, effect)| {
        json!({"key": key, "operator": "Equal", "value": value, "effect": effect})
    }));
    values.insert("tolerations".to_owned(), tolerations.into());
}

/// A choice by number, or as it was typed.
fn listed(answer: &str, choices: &[String]) -> Result<String, AnswerError> {
    let answer = filled(answer)?;
    match answer.parse::<usize>() {
        Ok(number) if !choices.is_empty() => {
            let index = number.checked_sub(1).filter(|index| *index < choices.len());
            let index = index.ok_or(AnswerError::NotAChoice { answer, choices: choices.len() })?;
            Ok(choices[index].clone())
        }
        _ => Ok(answer),
    }
}

fn filled(answer: &str) -> Result<String, AnswerError> {
    if answer.is_empty() { Err(AnswerError::Empty) } else { Ok(answer.to_owned()) }
}

/// The chosen ids; none if it is all of them, which an empty list says, too.
fn some_of(answer: &str, ids: &[String]) -> Result<Vec<String>, AnswerError> {
    let chosen = many(answer, ids.len())?;
    if chosen.len() == ids.len() {
        return Ok(Vec::new());
    }
    Ok(chosen.into_iter().map(|i| ids[i].clone()).collect())
}

/// What is wrong with an answer, as the person who gave it reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    /// Nothing was entered, and there is no default.
    #[error("Please enter a value: it can't be detected.")]
    Empty,
    /// EKS does not list it.
    #[error(
        "EKS has no cluster {0} in this region: choose one from the list, or enter < to choose \
         another region."
    )]
    NoSuchCluster(String),
    /// Charts are found by URL.
    #[error("{0:?} is not a URL: it begins with oci:// or https://.")]
    NoUrl(String),
    /// The installation ends here; what to do instead.
    #[error("{0}")]
    Declined(&'static str),
    /// The settings don't allow it.
    #[error("{0}")]
    Refused(String),
    /// It is no answer to a question of yes or no.
    #[error("{0} is neither yes nor no.")]
    NeitherYesNorNo(String),
    /// One choice was asked for.
    #[error("Please choose one.")]
    NotOne,
    /// One choice or more were asked for.
    #[error("Please choose at least one.")]
    NoChoice,
    /// No choice has this number.
    #[error("{answer} is not a number from 1 to {choices}.")]
    NotAChoice {
        /// A word of the answer.
        answer: String,
        /// How many choices there are.
        choices: usize,
    },
    /// A limit of CPU cores was asked for.
    #[error("{0} is not a number of cores.")]
    NotCores(String),
}

fn yes(answer: &str) -> Result<bool, AnswerError> {
    match answer.to_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        other => Err(AnswerError::NeitherYesNorNo(other.to_owned())),
    }
}

/// The index of a choice.
fn one(answer: &str, n: usize) -> Result<usize, AnswerError> {
    match many(answer, n)?.as_slice() {
        [one] => Ok(*one),
        _ => Err(AnswerError::NotOne),
    }
}

/// The indices of choices, in order and once each.
fn many(answer: &str, n: usize) -> Result<Vec<usize>, AnswerError> {
    if answer.eq_ignore_ascii_case("all") {
        return Ok((0..n).collect());
    }
    let words = answer.split([',', ' ']).filter(|word| !word.is_empty());
    let mut chosen = words
        .map(|word| match word.parse::<usize>() {
            Ok(number) if (1..=n).contains(&number) => Ok(number - 1),
            _ => Err(AnswerError::NotAChoice { answer: word.to_owned(), choices: n }),
        })
        .collect::<Result<Vec<_>, _>>()?;
    chosen.sort_unstable();
    chosen.dedup();
    if chosen.is_empty() { Err(AnswerError::NoChoice) } else { Ok(chosen) }
}
