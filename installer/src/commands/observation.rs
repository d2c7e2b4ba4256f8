//! Looks at everything and goes on when a part can't be read: what the checks are made of.

use std::path::PathBuf;

use tenon_checks::observe::{Sources, Unreached, observe, observe_cluster};
use tenon_checks::observed::Observed;
use tenon_installer_core::aws::{Aws, AwsError};
use tenon_installer_core::desired::Desired;
use tenon_installer_core::journal;
use tenon_installer_core::observe::actual::{self, Actual};
use tenon_installer_core::observe::facts::{self, Facts};
use tenon_installer_core::plan::{Plan, diff};
use tenon_installer_core::settings::Settings;
use tenon_installer_core::target::Target;

use super::session::{Session, record_file};
use crate::cli::GlobalArgs;
use crate::errors::ExpectedError;

/// A check that has to wait for many attempts tells nothing more than after the second.
const ATTEMPTS: u32 = 2;

/// What is looked at besides what always is.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The proxies that this program was given: for HTTPS, and what goes past it.
    pub(super) proxies: (Option<String>, Option<String>),
    /// The operator at work.
    pub(super) installed: bool,
    /// What its pods reach.
    pub(super) inside: bool,
}

/// What could be read, and why the rest could not.
pub(super) struct Observation {
    settings: Settings,
    aws: Aws,
    facts: Result<Facts, AwsError>,
    target: Result<Target, Unreached>,
    desired: Result<Desired, Vec<String>>,
    actual: Option<Actual>,
    plan: Option<Plan>,
    conflicts: Vec<String>,
    audit: Option<PathBuf>,
}

impl Observation {
    /// Reads as much as can be read.
    pub(super) async fn at(global: &GlobalArgs, settings: Settings) -> Result<Self, ExpectedError> {
        let global =
            GlobalArgs { max_attempts: global.max_attempts.min(ATTEMPTS), ..global.clone() };
        let aws = global.connect(&settings).await?;
        let facts = read_facts(&aws, &settings).await;
        let target = match &facts {
            Ok(facts) => Target::connect(&global.kubeconfig(), &aws, &facts.cluster)
                .await
                .map_err(Unreached::Target),
            Err(error) => Err(error.clone().into()),
        };
        Ok(Self::of(&global, settings, aws, facts, target).await)
    }

    /// The same of a cluster that was reached already, whether or not AWS can be asked.
    pub(super) async fn with(
        global: &GlobalArgs,
        settings: Settings,
        aws: Aws,
        target: Target,
    ) -> Self {
        let facts = read_facts(&aws, &settings).await;
        Self::of(global, settings, aws, facts, Ok(target)).await
    }

    /// The same of a kOps cluster. EKS is not asked, and neither is anything else of AWS.
    pub(super) fn of_kops(settings: Settings, aws: Aws, target: Target) -> Self {
        let facts = Err(AwsError {
            action: "eks:DescribeCluster",
            resource: settings.cluster.clone(),
            code: None,
            message: "it is a kOps cluster".to_owned(),
            no_answer: None,
        });
        Self {
            settings,
            aws,
            facts,
            target: Ok(target),
            desired: Err(Vec::new()),
            actual: None,
            plan: None,
            conflicts: Vec::new(),
            audit: None,
        }
    }

    async fn of(
        global: &GlobalArgs,
        settings: Settings,
        aws: Aws,
        facts: Result<Facts, AwsError>,
        target: Result<Target, Unreached>,
    ) -> Self {
        let desired = match &facts {
            Ok(facts) => Desired::new(&settings, facts),
            Err(error) => Err(vec![error.to_string()]),
        };
        let actual = match (&desired, &target) {
            (Ok(desired), Ok(target)) => {
                Box::pin(actual::read(&aws, &target.cluster, &desired.lookup())).await.ok()
            }
            _ => None,
        };
        let (plan, conflicts) = match (&desired, &actual) {
            (Ok(desired), Some(actual)) => match diff(desired, actual) {
                Ok(plan) => (Some(plan), Vec::new()),
                Err(conflicts) => (None, conflicts),
            },
            _ => (None, Vec::new()),
        };
        let audit = facts.as_ref().ok().and_then(|facts| audit_file(global, facts, &settings));
        Self { settings, aws, facts, target, desired, actual, plan, conflicts, audit }
    }

    /// Whether there are credentials for AWS.
    pub(super) fn has_aws(&self) -> bool {
        !matches!(&self.facts, Err(error) if error.lacks_credentials())
    }

    /// What the API server says.
    pub(super) async fn observe_kubernetes(&self, asking: Asking) -> Observed {
        observe_cluster(&self.sources(asking)).await
    }

    /// Everything that the checks look at.
    pub(super) async fn observe(&self, asking: Asking) -> Observed {
        let sources = self.sources(asking);
        if self.target.is_ok() && !self.has_aws() {
            return observe_cluster(&sources).await;
        }
        observe(&sources).await
    }

    fn sources(&self, asking: Asking) -> Sources<'_> {
        Sources {
            settings: &self.settings,
            aws: &self.aws,
            facts: self.facts.as_ref(),
            target: self.target.as_ref(),
            desired: self.desired.as_ref().map_err(Clone::clone),
            actual: self.actual.as_ref(),
            plan: self.plan.as_ref(),
            conflicts: self.conflicts.clone(),
            audit: self.audit.clone(),
            proxies: asking.proxies,
            installed: asking.installed,
            inside: asking.inside,
        }
    }
}

async fn read_facts(aws: &Aws, settings: &Settings) -> Result<Facts, AwsError> {
    let node_role = settings.node_role_name.as_deref();
    facts::read(aws, &settings.cluster, &settings.region, node_role).await
}

/// Where calls that delete something of this installation are written down.
fn audit_file(global: &GlobalArgs, facts: &Facts, settings: &Settings) -> Option<PathBuf> {
    record_file(global, facts, settings).as_deref().map(journal::audit_file)
}

/// The same of a session that has looked already.
pub(super) async fn observe_session(
    session: &Session,
    plan: Option<&Plan>,
    asking: Asking,
) -> Observed {
    observe(&Sources {
        settings: &session.settings,
        aws: &session.aws,
        facts: Ok(&session.facts),
        target: Ok(&session.target),
        desired: Ok(&session.desired),
        actual: Some(&session.actual),
        plan,
        conflicts: Vec::new(),
        audit: session.file.as_deref().map(journal::audit_file),
        proxies: asking.proxies,
        installed: asking.installed,
        inside: asking.inside,
    })
    .await
}
