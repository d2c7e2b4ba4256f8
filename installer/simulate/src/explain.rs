//! The planner's reasons for one object, and what to do. The format is described in
//! `docs/src/reference/simulate.md`.

mod node;
mod node_pool;
mod pod;

use serde::Serialize;
use tenon_planner::Snapshot;
use tenon_planner::snapshot::{Eviction, Node};

use self::node::NodeFacts;
use self::node_pool::PoolFacts;
use self::pod::PodFacts;
use super::advice::{Advice, Cause};
use super::error::SimulateError;
use super::layout::Page;
use super::observed::Observed;
use super::options::{Kind, Subject};
use super::outcome::{Disruption, Plans};
use super::words::{self, price};

/// The version of the format.
const SCHEMA: &str = "tenon.sh/explanation/v1alpha1";

/// Why an object is as it is, and what to do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    schema: &'static str,
    /// Kubernetes' name of the kind.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// The answer in one sentence.
    summary: String,
    /// The answer for programs.
    cause: Cause,
    /// What to do, the most promising first.
    advice: Vec<Advice>,
    /// What else there is to say, in words. Two spaces at the beginning are one level.
    #[serde(skip)]
    details: Vec<String>,
    #[serde(flatten)]
    facts: Facts,
}

/// The answer as data.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Facts {
    Pod(Box<PodFacts>),
    Node(Box<NodeFacts>),
    NodePool(Box<PoolFacts>),
}

/// What is known.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) plans: &'a Plans,
    pub(super) observed: &'a Observed,
    pub(super) now: jiff::Timestamp,
}

impl Answer {
    /// For people; `width` is the number of columns of their terminal, if they have one.
    pub fn text(&self, width: Option<usize>) -> String {
        let name = match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        };
        let mut page = Page::new(width);
        page.say(0, &format!("{} {name}: {}", self.kind, self.summary));
        for detail in &self.details {
            let indent = detail.len() - detail.trim_start().len();
            page.say(2 + indent, detail);
        }
        page.blank();
        page.say(0, "What to do:");
        for advice in &self.advice {
            page.say(2, &advice.text);
            for copied in [&advice.command, &advice.yaml].into_iter().flatten() {
                page.copy(6, copied);
            }
        }
        page.text()
    }
}

impl Answer {
    /// The answer for programs.
    pub(super) fn cause(&self) -> Cause {
        self.cause
    }

    /// What else there is to say.
    pub(super) fn details(&self) -> &[String] {
        &self.details
    }

    /// Why a pod is pending, without saying so.
    pub(super) fn reason(&self) -> &str {
        let starts = [
            "it stays pending because ",
            "it is pending: ",
            "it is pending; ",
            "it is pending and ",
        ];
        let start = starts.into_iter().find_map(|start| self.summary.strip_prefix(start));
        start.unwrap_or(&self.summary)
    }
}

/// Looks the object up and puts together what the plans say about it.
pub(super) fn explain(subject: &Subject, known: Known<'_>) -> Result<Answer, SimulateError> {
    let Subject { kind, namespace, name } = subject;
    match kind {
        Kind::Pod => pod::pod(namespace, name, known),
        Kind::Node => node::node(name, false, known),
        Kind::NodeClaim => node::node(name, true, known),
        Kind::NodePool => node_pool::node_pool(name, known),
    }
}

fn eviction(eviction: &Eviction) -> Option<String> {
    match eviction {
        Eviction::Allowed => None,
        Eviction::DoNotDisrupt => {
            Some("it keeps its node: it has karpenter.sh/do-not-disrupt".to_owned())
        }
        Eviction::BlockedByPdb(budget) => Some(format!(
            "it keeps its node for now: PodDisruptionBudget {budget} allows no disruption at the moment"
        )),
        Eviction::FullyBlockedByPdb(budget) => Some(format!(
            "it keeps its node: PodDisruptionBudget {budget} never allows a disruption, or is not the only one"
        )),
    }
}

/// `a, b (Underutilized), replaced by c-4x, saving $0.1000 per hour`
fn removal(disruption: &Disruption) -> String {
    let nodes = words::some(disruption.nodes.iter().cloned(), 3);
    let by = disruption.replacements.iter().map(|launch| {
        launch.instance_types.first().map_or_else(|| "a node".to_owned(), |kind| kind.name.clone())
    });
    let by = words::some(by, 3);
    let replaced = if by.is_empty() { String::new() } else { format!(", replaced by {by}") };
    format!(
        "{nodes} ({:?}){replaced}, saving {} per hour",
        disruption.reason,
        price(disruption.savings_per_hour)
    )
}

fn title(node: &Node) -> String {
    match (&node.name, &node.claim) {
        (Some(name), Some(claim)) => format!("Node {name} (NodeClaim {})", claim.name),
        (Some(name), None) => format!("Node {name}"),
        (None, _) => format!("NodeClaim {}, which has no Node yet", node.key),
    }
}

pub(super) fn index(id: u32) -> usize {
    usize::try_from(id).expect("indexes have 32 bits at most")
}
