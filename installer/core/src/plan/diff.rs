//! The difference between what should be there and what is. Pure: same values, same plan.

mod access;
mod compute;
mod identity;
mod interruption;
mod network;
mod objects;
mod release;
mod roles;
mod schema;
mod views;

use tenon_iam_policies::Document;

use super::{Op, Plan, Step};
use crate::desired::Desired;
use crate::observe::actual::Actual;
use crate::ownership::{Installation, Tags};

pub use interruption::{queue_step, rule_step};
pub use objects::{CANARY_GOES, object_changes, object_step, step_id};
pub use roles::{calls, changes, role_changes};
pub use views::document as policy;

/// What has to be done, or everything that stands in the way: things under our names that aren't
/// ours. Then nothing at all is done.
pub fn diff(desired: &Desired, actual: &Actual) -> Result<Plan, Vec<String>> {
    let mut differ = Differ { desired, actual, plan: Plan::default(), conflicts: Vec::new() };
    let node_role_is_new = differ.role("node-role", &desired.node_role);
    differ.instance_profile();
    differ.spot_role();
    differ.role("controller-role", &desired.controller_role);
    differ.provider();
    differ.agent();
    differ.association();
    differ.access_entry(node_role_is_new);
    differ.aws_auth();
    differ.fargate();
    differ.queue();
    differ.rules();
    differ.network();
    if desired.manage_operator {
        differ.namespace();
        differ.objects();
        differ.release();
    }
    differ.plan.drop_unknown_dependencies();
    if differ.conflicts.is_empty() { Ok(differ.plan) } else { Err(differ.conflicts) }
}

/// Why something is updated that shows no change.
const ONLY_THE_CHECKSUM: &str = "only the checksum that tenon keeps there";

struct Differ<'a> {
    desired: &'a Desired,
    actual: &'a Actual,
    plan: Plan,
    conflicts: Vec<String>,
}

impl Differ<'_> {
    fn add(&mut self, mut step: Step) {
        if step.op == Op::Update && step.changes.is_empty() && step.reasons.is_empty() {
            step.reasons.push(ONLY_THE_CHECKSUM.to_owned());
        }
        self.plan.steps.push(step);
    }

    /// Whether a thing that exists is ours; if not, it stands in the way.
    fn owns(&mut self, what: &str, tags: &Tags) -> bool {
        let owns = self.desired.installation.owns(tags);
        if !owns {
            self.conflicts
                .push(format!("{what} exists, and {}", Installation::owner_in_words(tags)));
        }
        owns
    }
}

/// Every tag of ours is there with its value; what else is there doesn't matter.
fn has_tags(live: &Tags, wanted: &Tags) -> bool {
    wanted.iter().all(|(key, value)| live.get(key) == Some(value))
}

fn same_document(live: &str, wanted: &Document) -> bool {
    Document::parse(live).is_ok_and(|live| live.says_the_same_as(wanted))
}
