//! The questions in their order, what was answered, and when each question is asked.

use tenon_checks::observe::RivalKind;
use tenon_installer_core::settings::config::{Architecture, Config, Host, IdentityMode};

use super::known::Known;

/// What was answered so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    /// The settings.
    pub(crate) config: Config,
    /// The context of the kubeconfig that was chosen.
    pub(crate) context: Option<String>,
    /// What becomes of the settings.
    pub(crate) delivery: Delivery,
    /// Each setting is asked for; otherwise they were accepted all at once.
    pub(crate) is_detailed: bool,
    /// Where the charts are, for GitOps.
    pub(crate) charts: String,
    /// The git repository, for Argo CD.
    pub(crate) repository: String,
    /// The folder of the repository to which the files are committed.
    pub(crate) folder: String,
}

/// What becomes of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Delivery {
    /// They are planned and, once the plan is confirmed, applied.
    #[default]
    Apply,
    /// They are written.
    Write,
    /// Files for Flux are written, too.
    Flux,
    /// Files for Argo CD are written, too.
    Argocd,
}

/// One question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Context,
    Region,
    Cluster,
    Account,
    Karpenter,
    ClusterAutoscaler,
    Recommended,
    Host,
    Identity,
    Agent,
    Discovery,
    Subnets,
    SecurityGroups,
    Interruption,
    Defaults,
    Image,
    Capacity,
    Architectures,
    CpuLimit,
    Delivery,
    Charts,
    Repository,
    Folder,
}

/// What has to be known before the cluster is asked.
pub(super) const TARGET: &[Step] = &[Step::Context, Step::Region, Step::Cluster];

/// What is asked with the cluster in view.
pub(super) const REST: &[Step] = &[
    Step::Account,
    Step::Karpenter,
    Step::ClusterAutoscaler,
    Step::Recommended,
    Step::Host,
    Step::Identity,
    Step::Agent,
    Step::Discovery,
    Step::Subnets,
    Step::SecurityGroups,
    Step::Interruption,
    Step::Defaults,
    Step::Image,
    Step::Capacity,
    Step::Architectures,
    Step::CpuLimit,
    Step::Delivery,
    Step::Charts,
    Step::Repository,
    Step::Folder,
];

/// What can be accepted all at once.
pub(super) fn details() -> impl Iterator<Item = Step> {
    REST.iter().copied().filter(|step| step.is_detail())
}

impl Step {
    /// Whether it can be accepted together with all other details.
    fn is_detail(self) -> bool {
        let before = [Self::Account, Self::Karpenter, Self::ClusterAutoscaler, Self::Recommended];
        let after = [Self::Delivery, Self::Charts, Self::Repository, Self::Folder];
        REST.contains(&self) && !before.contains(&self) && !after.contains(&self)
    }
}

/// In the order in which they are offered.
pub(super) const ARCHITECTURES: [Architecture; 2] = [Architecture::Amd64, Architecture::Arm64];

/// The same of images.
pub(super) const IMAGES: [&str; 2] = ["al2023@latest", "bottlerocket@latest"];

impl Step {
    /// Whether it is asked: not what was given, and not what earlier answers made pointless.
    pub(super) fn applies(self, answers: &Answers, known: &Known) -> bool {
        let (given, config, survey) = (&known.given, &answers.config, &known.survey);
        if self.is_detail() && !answers.is_detailed {
            return false;
        }
        let defaults =
            config.defaults.manifests.is_empty() && config.defaults.enabled != Some(false);
        let is_fargate = config.deploy.host == Some(Host::Fargate);
        let has = |kind| known.survey.rivals.iter().any(|rival| rival.kind == kind);
        match self {
            Self::Context => given.cluster.name.is_none() && !known.offered_contexts().is_empty(),
            Self::Region => given.cluster.region.is_none() && answers.context.is_none(),
            Self::Cluster => given.cluster.name.is_none() && answers.context.is_none(),
            Self::Account => given.cluster.account_id.is_none() && survey.facts.is_some(),
            Self::Karpenter => has(RivalKind::Karpenter),
            Self::ClusterAutoscaler => has(RivalKind::ClusterAutoscaler),
            Self::Recommended => {
                let detailed = Answers { is_detailed: true, ..answers.clone() };
                details().any(|step| step.applies(&detailed, known))
            }
            Self::Host => {
                let values = &given.deploy.values;
                given.deploy.host.is_none()
                    && !values.contains_key("nodeSelector")
                    && !values.contains_key("tolerations")
            }
            Self::Identity => {
                let has_issuer =
                    survey.facts.as_ref().is_some_and(|facts| facts.cluster.oidc_issuer.is_some());
                given.identity.mode.is_none() && !is_fargate && has_issuer
            }
            Self::Agent => {
                let by_agent = !is_fargate && config.identity.mode != Some(IdentityMode::Irsa);
                survey.agent_is_missing && given.identity.install_agent.is_none() && by_agent
            }
            Self::Discovery => given.network.discovery.is_none(),
            Self::Subnets => given.network.subnet_ids.is_empty() && survey.subnets.len() > 1,
            Self::SecurityGroups => {
                given.network.security_group_ids.is_empty()
                    && survey.all_security_groups().len() > 1
            }
            Self::Interruption => given.interruption.enabled.is_none(),
            Self::Defaults => {
                given.defaults.enabled.is_none() && config.defaults.manifests.is_empty()
            }
            Self::Image => {
                let usual = config.defaults.ami_alias.as_deref().or(survey.ami_alias());
                let is_offered = usual.is_some_and(|alias| IMAGES[1..].contains(&alias));
                defaults && given.defaults.ami_alias.is_none() && is_offered
            }
            Self::Capacity => defaults && given.defaults.capacity_types.is_empty(),
            Self::Architectures => defaults && given.defaults.arch.is_empty(),
            Self::CpuLimit => defaults && given.defaults.cpu_limit.is_none(),
            Self::Delivery => !known.only_plans,
            Self::Charts | Self::Folder => {
                matches!(answers.delivery, Delivery::Flux | Delivery::Argocd)
            }
            Self::Repository => answers.delivery == Delivery::Argocd,
        }
    }
}
