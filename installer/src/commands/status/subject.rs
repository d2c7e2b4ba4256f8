//! Whose status it is: an installation that `tenon` made, or the operator in a kOps cluster.

use serde_json::{Value, json};
use tenon_installer_core::aws::Aws;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::object::{Key, Object};
use tenon_installer_core::observe::messaging;
use tenon_installer_core::observe::state::QueueState;
use tenon_installer_core::plan::{Op, Plan, Step};
use tenon_kops::queue_name;

use super::report::{Line, Operator, Queue};
use crate::cli::GlobalArgs;
use crate::commands::kops_cluster::KopsCluster;
use crate::commands::kops_observation::{NO_REGION, region};
use crate::commands::session::Session;
use crate::errors::ExpectedError;
use crate::kops::operator;

/// Whose status it is.
pub(super) enum Subject {
    /// An installation in EKS.
    Installed(Box<Session>),
    /// An operator in a kOps cluster.
    Kops(Box<InKops>),
}

/// An operator in a kOps cluster, which `helm` and kOps have installed.
pub(super) struct InKops {
    cluster: KopsCluster,
    /// None where nothing says in which region the cluster is.
    region: Option<(String, Aws)>,
    queue: Result<Option<QueueState>, String>,
}

/// What differs from the settings.
pub(super) struct Compared {
    pub(super) lines: Vec<Line>,
    pub(super) in_sync: bool,
    pub(super) warnings: Vec<String>,
}

impl InKops {
    /// Looks at what AWS has for the cluster.
    pub(super) async fn observe(
        global: &GlobalArgs,
        cluster: KopsCluster,
    ) -> Result<Self, ExpectedError> {
        // Who may not list nodes still sees all else.
        let region = region(global, &cluster.kube).await;
        let region = match region.unwrap_or_else(|_| global.default_region.clone()) {
            Some(region) => {
                let aws = global.connect_region(&region).await?;
                Some((region, aws))
            }
            None => None,
        };
        let mut seen = Self { cluster, region, queue: Ok(None) };
        seen.observe_queue().await;
        Ok(seen)
    }

    /// Nodes and pods are of use without AWS, too.
    async fn observe_queue(&mut self) {
        let name = queue_name(&self.cluster.name);
        self.queue = match &self.region {
            Some((_, aws)) => messaging::queue(aws, &name).await.map_err(|error| error.to_string()),
            None => Err(NO_REGION.to_owned()),
        };
    }

    fn compared(&self) -> Compared {
        let mut lines = vec![Line {
            id: "installation".to_owned(),
            ok: true,
            detail: "a kOps cluster: `tenon kops diff` compares it with the state store".to_owned(),
        }];
        let mut warnings = Vec::new();
        match &self.queue {
            Ok(Some(_)) => {}
            Ok(None) => lines.push(Line {
                id: "queue".to_owned(),
                ok: false,
                detail: format!(
                    "{} does not exist: run `tenon kops queue`",
                    queue_name(&self.cluster.name)
                ),
            }),
            Err(why) => warnings.push(format!("{why}; the interruption queue is not shown")),
        }
        Compared { lines, in_sync: true, warnings }
    }
}

impl Subject {
    pub(super) fn cluster(&self) -> &Cluster {
        match self {
            Self::Installed(session) => &session.target.cluster,
            Self::Kops(seen) => &seen.cluster.kube,
        }
    }

    pub(super) fn aws(&self) -> Option<&Aws> {
        match self {
            Self::Installed(session) => Some(&session.aws),
            Self::Kops(seen) => seen.region.as_ref().map(|(_, aws)| aws),
        }
    }

    pub(super) fn target_json(&self) -> Value {
        match self {
            Self::Installed(session) => session.target_json(),
            Self::Kops(seen) => json!({
                "cluster": seen.cluster.name,
                "region": seen.region.as_ref().map(|(region, _)| region),
            }),
        }
    }

    /// Where the operator's Deployment is expected, if there is to be one.
    pub(super) fn operator(&self) -> Option<Key> {
        match self {
            Self::Installed(session) => session.desired.deployment().map(Object::key),
            Self::Kops(_) => Some(operator::deployment()),
        }
    }

    /// The EC2NodeClasses and NodePools that the settings contain, as `KIND/NAME`.
    pub(super) fn node_objects(&self) -> Vec<String> {
        match self {
            Self::Installed(session) => {
                let objects = session.desired.node_objects.iter();
                objects.map(|object| format!("{}/{}", object.resource.kind, object.name)).collect()
            }
            Self::Kops(_) => Vec::new(),
        }
    }

    /// Looks at AWS again.
    pub(super) async fn observe_again(&mut self) -> Result<(), ExpectedError> {
        match self {
            Self::Installed(session) => session.observe_again().await,
            Self::Kops(seen) => {
                seen.observe_queue().await;
                Ok(())
            }
        }
    }

    /// How the last command ended, if it did not come to its end.
    pub(super) fn interruption(&self) -> Option<String> {
        match self {
            Self::Installed(session) => session.interruption(),
            Self::Kops(_) => None,
        }
    }

    /// Compares what is there with the settings.
    pub(super) fn compared(&self, operator: Option<&Operator>) -> Result<Compared, ExpectedError> {
        let session = match self {
            Self::Installed(session) => session,
            Self::Kops(seen) => return Ok(seen.compared()),
        };
        match (session.plan(), operator) {
            (Ok(plan), _) => Ok(of_plan(plan)),
            // It owns what `tenon` would compare.
            (Err(ExpectedError::Foreign { .. }), Some(Operator { managed_by: Some(tool), .. })) => {
                let detail =
                    format!("{tool} manages the operator: there are no settings to compare");
                let line = Line { id: "installation".to_owned(), ok: true, detail };
                Ok(Compared { lines: vec![line], in_sync: true, warnings: Vec::new() })
            }
            (Err(error), _) => Err(error),
        }
    }

    pub(super) fn queue(&self) -> Option<Queue> {
        let (name, state) = match self {
            Self::Installed(session) => {
                (session.settings.queue_name.clone()?, session.actual.queue.as_ref()?)
            }
            Self::Kops(seen) => {
                (queue_name(&seen.cluster.name), seen.queue.as_ref().ok()?.as_ref()?)
            }
        };
        let number = |name: &str| state.attributes.get(name).and_then(|text| text.parse().ok());
        Some(Queue {
            name,
            waiting: number("ApproximateNumberOfMessages").unwrap_or(0),
            in_flight: number("ApproximateNumberOfMessagesNotVisible").unwrap_or(0),
        })
    }
}

fn of_plan(plan: Plan) -> Compared {
    let detail = |step: &Step| match step.op {
        Op::Create => format!("{} {} is missing", step.kind, step.resource),
        _ => format!("{} {} differs: {}", step.kind, step.resource, step.reasons.join("; ")),
    };
    let mut lines = plan
        .steps
        .iter()
        .map(|step| Line { id: step.id.clone(), ok: false, detail: detail(step) })
        .collect::<Vec<_>>();
    let in_sync = lines.is_empty();
    if in_sync {
        lines.push(Line {
            id: "installation".to_owned(),
            ok: true,
            detail: "everything exists and matches the settings".to_owned(),
        });
    }
    Compared { lines, in_sync, warnings: plan.warnings }
}
