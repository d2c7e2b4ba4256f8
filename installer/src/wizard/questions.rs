//! The questions: when each is asked, how it reads, and what an answer changes.

use tenon_installer_core::names::AGENT;
use tenon_installer_core::settings::Inferred;
use tenon_installer_core::settings::config::{Architecture, CapacityType, Config, Discovery};

use super::ask::Question;

/// What was found out before asking.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// What the kubeconfig says.
    pub(super) inferred: Inferred,
    /// The cluster has no Pod Identity agent.
    pub(super) agent_is_missing: bool,
    /// Ids of the cluster's subnets, each with a few words about it.
    pub(super) subnets: Vec<(String, String)>,
}

/// One question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Cluster,
    Region,
    Agent,
    Discovery,
    Subnets,
    Interruption,
    Defaults,
    Capacity,
    Architectures,
    CpuLimit,
}

/// What has to be known before AWS is called.
pub(super) const TARGET: &[Step] = &[Step::Cluster, Step::Region];

/// What is asked with the cluster in view.
pub(super) const REST: &[Step] = &[
    Step::Agent,
    Step::Discovery,
    Step::Subnets,
    Step::Interruption,
    Step::Defaults,
    Step::Capacity,
    Step::Architectures,
    Step::CpuLimit,
];

/// In the order in which they are offered.
const ARCHITECTURES: [Architecture; 2] = [Architecture::Amd64, Architecture::Arm64];

impl Step {
    /// Whether it is asked: not what was given, and not what earlier answers made pointless.
    pub(super) fn applies(self, given: &Config, config: &Config, known: &Known) -> bool {
        let defaults =
            config.defaults.manifests.is_empty() && config.defaults.enabled != Some(false);
        match self {
            Self::Cluster => given.cluster.name.is_none(),
            Self::Region => given.cluster.region.is_none(),
            Self::Agent => known.agent_is_missing && given.identity.install_agent.is_none(),
            Self::Discovery => given.network.discovery.is_none(),
            Self::Subnets => given.network.subnet_ids.is_empty() && known.subnets.len() > 1,
            Self::Interruption => given.interruption.enabled.is_none(),
            Self::Defaults => {
                given.defaults.enabled.is_none() && config.defaults.manifests.is_empty()
            }
            Self::Capacity => defaults && given.defaults.capacity_types.is_empty(),
            Self::Architectures => defaults && given.defaults.arch.is_empty(),
            Self::CpuLimit => defaults && given.defaults.cpu_limit.is_none(),
        }
    }

    pub(super) fn question(self, config: &Config, known: &Known) -> Question {
        let text = |value: Option<&String>| value.cloned().unwrap_or_default();
        let (words, choices, default) = match self {
            Self::Cluster => (
                "Name of the EKS cluster".to_owned(),
                vec![],
                text(config.cluster.name.as_ref().or(known.inferred.cluster.as_ref())),
            ),
            Self::Region => (
                "Region of the cluster".to_owned(),
                vec![],
                text(config.cluster.region.as_ref().or(known.inferred.region.as_ref())),
            ),
            Self::Agent => (
                format!(
                    "The add-on {AGENT}, which provides credentials to the operator, is missing. \
                     Install it?"
                ),
                vec![],
                yes_or_no(config.identity.install_agent),
            ),
            Self::Discovery => (
                "How should subnets and security groups be selected?".to_owned(),
                vec![
                    "by the tag karpenter.sh/discovery, which tenon adds to them".to_owned(),
                    "by their ids in the EC2NodeClass (nothing is tagged)".to_owned(),
                ],
                if config.network.discovery == Some(Discovery::Ids) { "2" } else { "1" }.to_owned(),
            ),
            Self::Subnets => (
                "Which subnets may nodes use? (numbers, or all)".to_owned(),
                known.subnets.iter().map(|(_, words)| words.clone()).collect(),
                numbers(&known.subnets, |(id, _)| config.network.subnet_ids.contains(id))
                    .unwrap_or_else(|| "all".to_owned()),
            ),
            Self::Interruption => (
                "Replace nodes in advance when AWS announces an interruption?".to_owned(),
                vec![],
                yes_or_no(config.interruption.enabled),
            ),
            Self::Defaults => (
                "Create a NodePool and an EC2NodeClass named default?".to_owned(),
                vec![],
                yes_or_no(config.defaults.enabled),
            ),
            Self::Capacity => (
                "Capacity".to_owned(),
                ["spot and on-demand", "on-demand only", "spot only"].map(str::to_owned).into(),
                match config.defaults.capacity_types.as_slice() {
                    [CapacityType::OnDemand] => "2",
                    [CapacityType::Spot] => "3",
                    _ => "1",
                }
                .to_owned(),
            ),
            Self::Architectures => (
                "Architectures (numbers)".to_owned(),
                ["amd64", "arm64"].map(str::to_owned).into(),
                numbers(&ARCHITECTURES, |arch| config.defaults.arch.contains(arch))
                    .unwrap_or_else(|| "1".to_owned()),
            ),
            Self::CpuLimit => (
                "CPU limit of the NodePool, in cores".to_owned(),
                vec![],
                config.defaults.cpu_limit.unwrap_or(1000).to_string(),
            ),
        };
        Question { text: words, help: self.help(), choices, default }
    }

    /// What `?` explains.
    fn help(self) -> &'static str {
        match self {
            Self::Cluster => {
                "The name as shown by `aws eks list-clusters`. The default is the cluster of your \
                 kubeconfig's current context."
            }
            Self::Region => {
                "The AWS region of the cluster, such as eu-central-1. All resources are created \
                 there; IAM roles belong to the whole account."
            }
            Self::Agent => {
                "EKS Pod Identity provides the operator's pods with the credentials of an IAM \
                 role, through a small DaemonSet that EKS installs as a free add-on. Other pods \
                 are not affected. tenon never removes the add-on, because other workloads may use \
                 it too."
            }
            Self::Discovery => {
                "An EC2NodeClass selects subnets and security groups by a tag or by id. With the \
                 tag you can add a subnet later without changing Kubernetes objects. A subnet that \
                 several clusters share can carry the tag of only one of them: choose ids in that \
                 case."
            }
            Self::Subnets => {
                "Nodes are launched into these subnets, in the zone with available capacity at the \
                 best price. Private subnets are the usual choice. Every pod uses an address, so \
                 small subnets fill up."
            }
            Self::Interruption => {
                "AWS announces a spot interruption two minutes in advance, and maintenance \
                 earlier. One SQS queue and five EventBridge rules deliver these messages to the \
                 operator, which replaces the node in time. They cost next to nothing."
            }
            Self::Defaults => {
                "A NodePool defines which instances may be launched, an EC2NodeClass how. Without \
                 them, nothing is launched. You can change or delete both later."
            }
            Self::Capacity => {
                "Spot instances cost a fraction of the on-demand price and can be interrupted with \
                 two minutes' notice. With both, spot is tried first, and workloads that must not \
                 be interrupted can require on-demand."
            }
            Self::Architectures => {
                "arm64 is cheaper for the same work, if all your images support it. With both, a \
                 pod whose image lacks one architecture may be scheduled on the wrong one, unless \
                 it requires the right one."
            }
            Self::CpuLimit => {
                "A safeguard against mistakes: the NodePool launches nothing beyond this limit. \
                 Existing nodes stay."
            }
        }
    }

    /// Takes an answer, or says what is wrong with it.
    pub(super) fn take(
        self,
        answer: &str,
        config: &mut Config,
        known: &Known,
    ) -> Result<(), AnswerError> {
        match self {
            Self::Cluster | Self::Region => {
                let value = Some(answer.to_owned()).filter(|text| !text.is_empty());
                let value = value.ok_or(AnswerError::Empty)?;
                let slot = match self {
                    Self::Cluster => &mut config.cluster.name,
                    _ => &mut config.cluster.region,
                };
                *slot = Some(value);
                let path = if self == Self::Cluster { "cluster.name" } else { "cluster.region" };
                if let Some((_, problem)) = config.check().into_iter().find(|(at, _)| at == path) {
                    return Err(AnswerError::Refused(problem));
                }
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
                let chosen = many(answer, known.subnets.len())?;
                let ids = chosen.iter().map(|i| known.subnets[*i].0.clone()).collect::<Vec<_>>();
                // All of them is what an empty list says, too.
                let all = ids.len() == known.subnets.len();
                config.network.subnet_ids = if all { Vec::new() } else { ids };
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
                let cores = answer.parse().ok().filter(|cores| *cores > 0);
                let cores = cores.ok_or_else(|| AnswerError::NotCores(answer.to_owned()))?;
                config.defaults.cpu_limit = Some(cores);
            }
        }
        Ok(())
    }
}

/// The default of a question that is answered by yes unless the settings say no.
fn yes_or_no(setting: Option<bool>) -> String {
    if setting == Some(false) { "no" } else { "yes" }.to_owned()
}

/// The numbers of the choices that the settings have; `None` if they have none of them.
fn numbers<T>(choices: &[T], is_chosen: impl Fn(&T) -> bool) -> Option<String> {
    let chosen = choices.iter().enumerate().filter(|(_, choice)| is_chosen(choice));
    let chosen: Vec<_> = chosen.map(|(index, _)| (index + 1).to_string()).collect();
    (!chosen.is_empty()).then(|| chosen.join(","))
}

/// What is wrong with an answer, as the person who gave it reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    /// Nothing was entered, and there is no default.
    #[error("Please enter a value: it can't be detected.")]
    Empty,
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
