//! What the provider sees to before a Node is registered: asked of it, and what came to be known
//! put into the NodeClaim.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tenon_crds::NodeClaim;

use crate::cloud_provider::{CloudError, CloudProvider, HookProgress};
use crate::operator::Operator;
use crate::write::{Precondition, WriteError};

/// How far the hooks of a NodeClaim are.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    /// Names of those that are not done.
    pub pending: Vec<&'static str>,
    /// When to ask again; nothing when none is pending but those that failed.
    pub again: Option<Duration>,
    /// The first that failed.
    pub failed: Option<(&'static str, CloudError)>,
}

impl Hooks {
    /// Whether the Node may be registered.
    pub(super) fn is_done(&self) -> bool {
        self.pending.is_empty()
    }
}

/// Asks the provider, and labels the NodeClaim with what became known. Its status stays as it is at
/// hand.
pub(super) async fn run<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &mut NodeClaim,
) -> Result<Hooks, WriteError> {
    let mut hooks = Hooks::default();
    let mut learnt = BTreeMap::new();
    for hook in operator.cloud.before_registration(claim).await {
        match hook.progress {
            Ok(HookProgress::Done(labels)) => {
                learnt.extend(labels);
                continue;
            }
            Ok(HookProgress::Pending(after)) => {
                hooks.again = Some(hooks.again.map_or(after, |again| again.min(after)));
            }
            Err(error) => {
                hooks.failed.get_or_insert((hook.name, error));
            }
        }
        hooks.pending.push(hook.name);
    }
    if !learnt.is_empty() {
        let body = json!({"metadata": {"labels": learnt}});
        let status = claim.status.take();
        *claim = operator.write.patch_claim(claim, body, Precondition::SameUid).await?;
        claim.status = status;
    }
    Ok(hooks)
}

#[cfg(test)]
mod tests;
