//! How each question reads, with its choices and its default.

use tenon_checks::observe::{Rival, RivalKind};
use tenon_installer_core::names::AGENT;
use tenon_installer_core::settings::config::{CapacityType, Config, Discovery, Host, IdentityMode};
use tenon_installer_core::settings::region;

use super::ask::Question;
use super::help::help;
use super::known::{GROUP_LABEL, HostChoice, Known};
use super::step::{ARCHITECTURES, Answers, IMAGES, Step};

/// The limit where nothing says another.
const CPU_LIMIT: u32 = 1000;

impl Step {
    /// How it reads.
    pub(super) fn question(self, answers: &Answers, known: &Known) -> Question {
        let (config, survey) = (&answers.config, &known.survey);
        let number = |index: usize| (index + 1).to_string();
        let (text, choices, default) = match self {
            Self::Context => {
                let contexts = known.offered_contexts();
                let at =
                    contexts.iter().position(|one| answers.context.as_ref() == Some(&one.context));
                let mut choices = contexts
                    .iter()
                    .map(|one| {
                        format!("{} in {}  (context {})", one.cluster, one.region, one.context)
                    })
                    .collect::<Vec<_>>();
                choices.push("another cluster".to_owned());
                ("Which cluster?".to_owned(), choices, number(at.unwrap_or(0)))
            }
            Self::Region => {
                let usual = config.cluster.region.as_ref().or(known.inferred.region.as_ref());
                let regions = region::KNOWN.iter().map(|name| (*name).to_owned()).collect();
                ("Region of the cluster (number or name)".to_owned(), regions, owned(usual))
            }
            Self::Cluster => {
                let usual = config.cluster.name.as_ref().or(known.inferred.cluster.as_ref());
                let clusters = known.clusters.clone();
                let default = match clusters.as_slice() {
                    [] => owned(usual),
                    [only] => only.clone(),
                    _ => owned(usual.filter(|name| clusters.contains(name))),
                };
                let how = if clusters.is_empty() { "" } else { " (number or name)" };
                (format!("Name of the EKS cluster{how}"), clusters, default)
            }
            Self::Account => (account_question(known), vec![], "yes".to_owned()),
            Self::Karpenter => {
                let choices = vec![
                    "quit, and take over from it with `tenon adopt`, which keeps NodePools and \
                     nodes"
                        .to_owned(),
                    "continue: the installation is refused while Karpenter runs".to_owned(),
                ];
                (
                    format!("{} What should happen?", runs(known, RivalKind::Karpenter)),
                    choices,
                    number(0),
                )
            }
            Self::ClusterAutoscaler => {
                let text =
                    format!("{} What should happen?", runs(known, RivalKind::ClusterAutoscaler));
                let choices = vec![
                    "install next to it: until it is scaled down, both may launch nodes for the \
                     same pods"
                        .to_owned(),
                    "install without a NodePool: Tenon launches nothing until you create one"
                        .to_owned(),
                    "quit".to_owned(),
                ];
                let is_without = config.defaults.enabled == Some(false);
                (text, choices, number(usize::from(is_without)))
            }
            Self::Recommended => (
                "Use these settings? (no: choose each)".to_owned(),
                vec![],
                yes_or_no(Some(!answers.is_detailed)),
            ),
            Self::Host => {
                let hosts = survey.hosts();
                let at = default_host(config, &hosts);
                let words = hosts.into_iter().map(|(_, words)| words).collect();
                ("Where should the operator run?".to_owned(), words, number(at))
            }
            Self::Identity => {
                let agent = if survey.agent_is_missing {
                    format!("recommended; its add-on {AGENT} has to be installed first")
                } else {
                    format!("recommended; its add-on {AGENT} is installed")
                };
                let choices = vec![
                    format!("by EKS Pod Identity: {agent}"),
                    "by IRSA: IAM trusts the cluster's OIDC issuer, which tenon registers if needed"
                        .to_owned(),
                ];
                let is_irsa = config.identity.mode == Some(IdentityMode::Irsa);
                let text = "How should the operator get its permissions?".to_owned();
                (text, choices, number(usize::from(is_irsa)))
            }
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
                number(usize::from(config.network.discovery == Some(Discovery::Ids))),
            ),
            Self::Subnets => {
                let (usual, why) = survey.usual_subnets();
                let chosen =
                    numbers(&survey.subnets, |one| config.network.subnet_ids.contains(&one.id));
                let usual = numbers(&survey.subnets, |one| usual.contains(&one.id.as_str()));
                (
                    format!("Which subnets may nodes use? (numbers, or all; the default is {why})"),
                    survey.subnets.iter().map(|one| one.words.clone()).collect(),
                    all_or(chosen.or(usual), survey.subnets.len()),
                )
            }
            Self::SecurityGroups => {
                let groups = survey.all_security_groups();
                let chosen = numbers(&groups, |id| config.network.security_group_ids.contains(id));
                let usual = numbers(&groups, |id| survey.security_groups.contains(id));
                let default = all_or(chosen.or(usual), groups.len());
                let words = groups.iter().map(|id| security_group(id, known)).collect();
                let text = "Which security groups do nodes get? (numbers, or all)".to_owned();
                (text, words, default)
            }
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
            Self::Image => {
                let usual = config.defaults.ami_alias.as_deref().or(survey.ami_alias());
                let at = IMAGES.iter().position(|image| Some(*image) == usual).unwrap_or(0);
                let words = ["Amazon Linux 2023", "Bottlerocket"].map(str::to_owned).into();
                ("Operating system of the nodes".to_owned(), words, number(at))
            }
            Self::Capacity => (
                "Capacity".to_owned(),
                ["spot and on-demand", "on-demand only", "spot only"].map(str::to_owned).into(),
                number(match config.defaults.capacity_types.as_slice() {
                    [CapacityType::OnDemand] => 1,
                    [CapacityType::Spot] => 2,
                    _ => 0,
                }),
            ),
            Self::Architectures => {
                let inferred = survey.architectures();
                let chosen = numbers(&ARCHITECTURES, |arch| config.defaults.arch.contains(arch));
                let inferred = numbers(&ARCHITECTURES, |arch| inferred.contains(arch));
                (
                    "Architectures (numbers)".to_owned(),
                    ["amd64", "arm64"].map(str::to_owned).into(),
                    chosen.or(inferred).unwrap_or_else(|| number(0)),
                )
            }
            Self::CpuLimit => {
                let quota = survey.quotas.map_or_else(String::new, |(on_demand, spot)| {
                    format!(
                        " (the account's quotas allow {on_demand} on-demand and {spot} spot vCPUs)"
                    )
                });
                let most = most_vcpus(config, known).unwrap_or(CPU_LIMIT);
                let usual = config.defaults.cpu_limit.unwrap_or(CPU_LIMIT.min(most));
                (format!("CPU limit of the NodePool, in vCPUs{quota}"), vec![], usual.to_string())
            }
            Self::Delivery => (
                "What should happen with these settings?".to_owned(),
                vec![
                    "show the plan, and apply it once you confirm it".to_owned(),
                    "write them to a settings file, and quit".to_owned(),
                    "write them, and files for Flux".to_owned(),
                    "write them, and files for Argo CD".to_owned(),
                ],
                number(answers.delivery as usize),
            ),
            Self::Charts => (
                "Registry and path of the charts, such as oci://registry.example/charts".to_owned(),
                vec![],
                answers.charts.clone(),
            ),
            Self::Repository => (
                "URL of the git repository to which the files are committed".to_owned(),
                vec![],
                answers.repository.clone(),
            ),
            Self::Folder => (
                "Folder of the repository for the files".to_owned(),
                vec![],
                Some(answers.folder.clone())
                    .filter(|folder| !folder.is_empty())
                    .unwrap_or_else(|| "tenon".to_owned()),
            ),
        };
        Question { text, help: help(self), notes: vec![], choices, default }
    }
}

fn owned(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

fn account_question(known: &Known) -> String {
    let Some(facts) = &known.survey.facts else { return String::new() };
    let (cluster, caller) = (&facts.cluster, &facts.caller);
    let alias = known.survey.alias.as_ref().map_or_else(String::new, |alias| format!(" ({alias})"));
    format!(
        "Cluster {} in {}, Kubernetes {}, account {}{alias}, as {}: is that right?",
        cluster.name, cluster.region, cluster.version, caller.account, caller.arn
    )
}

/// Which Deployments of a kind run, as a sentence.
fn runs(known: &Known, kind: RivalKind) -> String {
    let found = known.survey.rivals.iter().filter(|rival| rival.kind == kind);
    let found = found.map(|Rival { namespace, name, .. }| format!("{namespace}/{name}"));
    let name = match kind {
        RivalKind::Karpenter => "Karpenter",
        RivalKind::ClusterAutoscaler => "The Cluster Autoscaler",
    };
    format!("{name} runs in this cluster ({}).", found.collect::<Vec<_>>().join(", "))
}

/// As the settings have it; otherwise where the pods can be scheduled.
fn default_host(config: &Config, hosts: &[(HostChoice, String)]) -> usize {
    let is_fargate = config.deploy.host == Some(Host::Fargate);
    let group =
        config.deploy.values.get("nodeSelector").and_then(|labels| labels[GROUP_LABEL].as_str());
    let is_chosen = |choice: &HostChoice| match choice {
        HostChoice::AnyNode { open } => !is_fargate && group.is_none() && *open > 0,
        HostChoice::Group { name, .. } => !is_fargate && group.is_none_or(|group| group == name),
        HostChoice::Fargate => true,
    };
    let found = hosts.iter().position(|(choice, _)| is_chosen(choice));
    found.unwrap_or(0)
}

fn security_group(id: &str, known: &Known) -> String {
    let facts = known.survey.facts.as_ref();
    let own = facts.and_then(|facts| facts.cluster.security_group.as_deref());
    let is_used = known.survey.security_groups.iter().any(|used| used == id);
    match (own == Some(id), is_used) {
        (true, _) => format!("{id}  the cluster's own"),
        (false, _) => format!("{id}  of the node groups"),
    }
}

/// How many vCPUs the account may run of the capacity types that are chosen.
pub(super) fn most_vcpus(config: &Config, known: &Known) -> Option<u32> {
    let (on_demand, spot) = known.survey.quotas?;
    let quota = match config.defaults.capacity_types.as_slice() {
        [CapacityType::OnDemand] => on_demand,
        [CapacityType::Spot] => spot,
        _ => on_demand + spot,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    let quota = quota.clamp(1.0, f64::from(u32::MAX)) as u32;
    Some(quota)
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

/// The same, shorter where it is all of them.
fn all_or(chosen: Option<String>, n: usize) -> String {
    let all = |numbers: &String| numbers.split(',').count() == n;
    chosen.filter(|numbers| !all(numbers)).unwrap_or_else(|| "all".to_owned())
}
