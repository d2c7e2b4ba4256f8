//! The nodes: drained and terminated by the operator while it lives, by ourselves when it is gone,
//! and in both cases proven gone before anything else goes.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};
use tenon_crds::labels::{NODEPOOL, TERMINATION_TIMESTAMP};
use tenon_installer_core::apply::{Context, wait};
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::observe;
use tenon_installer_core::words::{count, some};
use tokio::time::Instant;

use super::abandoned::Abandoned;
use super::objects::{delete_all, key};
use super::{Inventory, Motion, Remover, frozen_in_words, set_motion, stranded};
use crate::errors::ExpectedError;
use crate::printer::Printer;

/// An operator that is unavailable for so long won't come back by itself: longer than a rolling
/// update or a lost lease takes.
const GIVEN_UP_AFTER: Duration = Duration::from_mins(1);

/// How often the slow things are asked about.
pub(crate) const POLL: Duration = Duration::from_secs(1);

impl Remover<'_> {
    pub(super) async fn remove_nodes(
        &mut self,
        inventory: &Inventory,
    ) -> Result<(), ExpectedError> {
        let context = self.context.clone();
        let deployment = self.desired.deployment().cloned();
        let timeout = self.options.timeout;
        let pools = inventory.nodes.pools.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        // All at once, unless the others stand still: a pool that is left would replace the nodes
        // of those that go.
        let at_once = self.options.parallel.unwrap_or(pools.len());
        if at_once < pools.len() {
            let mut frozen = Vec::new();
            let done = set_motion(&context.cluster, Motion::Still, &mut frozen).await;
            if let Some(words) = frozen_in_words(&frozen) {
                self.printer.note(&words);
            }
            done.map_err(|error| self.failed("freeze", error.into()))?;
        }
        for some in pools.chunks(at_once.max(1)) {
            let is_all = some.len() == pools.len();
            let id =
                |step: &str| if is_all { step.to_owned() } else { format!("{step}/{}", some[0]) };
            let delete = delete_all(&context.cluster, resources::node_pools(), some);
            self.step(&id("nodepools"), &format!("NodePools {}", some.join(", ")), delete).await?;
            if !is_all {
                let what = format!("nodes of {}", some.join(", "));
                self.drain(&id("nodeclaims"), &what, &context, Some(some)).await?;
            }
        }
        let claims = inventory.nodes.claims.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        if !claims.is_empty() || !pools.is_empty() {
            self.drain("nodeclaims", "NodeClaims and their nodes", &context, None).await?;
        }
        if !inventory.nodes.instances.is_empty() || !claims.is_empty() {
            let desired = self.desired;
            let lives = operator_lives(&context.cluster, deployment.as_ref()).await;
            let evict_for = (!lives).then(|| self.options.evict_for());
            let abandoned = std::mem::take(&mut self.abandoned);
            let prove = no_instances(&context, desired, evict_for, timeout, &abandoned);
            let proven = self.step("instances", "EC2 instances", prove).await;
            self.abandoned = abandoned;
            proven?;
        }
        let classes = inventory.nodes.classes.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        if !classes.is_empty() {
            let desired = self.desired;
            let run = remove_classes(&context, desired, deployment.as_ref(), &classes, timeout);
            self.step("nodeclasses", &format!("EC2NodeClasses {}", classes.join(", ")), run)
                .await?;
        }
        Ok(())
    }

    /// Gets rid of all NodeClaims, or of those of some NodePools.
    async fn drain(
        &mut self,
        id: &str,
        what: &str,
        context: &Context,
        pools: Option<&[String]>,
    ) -> Result<(), ExpectedError> {
        let abandoned = std::mem::take(&mut self.abandoned);
        let drain = Drain {
            context,
            pools,
            deployment: self.desired.deployment(),
            timeout: self.options.timeout,
            evict_for: self.options.evict_for(),
            forced_after: self.options.drain_timeout,
            abandoned: &abandoned,
            printer: self.printer,
        };
        let drained = self.step(id, what, drain.run(self.desired)).await;
        self.abandoned = abandoned;
        drained
    }
}

/// Whether an operator is there to drain nodes and to take its finalizers off.
pub(crate) async fn operator_lives(cluster: &Cluster, deployment: Option<&Object>) -> bool {
    let Some(deployment) = deployment else { return false };
    match cluster.get(&deployment.resource, &deployment.key()).await {
        Ok(live) => live.as_ref().is_some_and(is_available),
        // Not knowing is no proof that it is gone.
        Err(_) => true,
    }
}

/// Whether a pod of a Deployment is available.
pub(crate) fn is_available(live: &Value) -> bool {
    has(live, "/status/availableReplicas")
}

/// Whether a Deployment has this number, and it is not zero.
fn has(live: &Value, number: &str) -> bool {
    live.pointer(number).and_then(Value::as_i64) > Some(0)
}

/// Whether there is still an operator to wait for, asked again and again: one that does not run now
/// may be starting.
pub(crate) struct OperatorWatch<'a> {
    cluster: &'a Cluster,
    deployment: Option<&'a Object>,
    /// When it was last seen, or could be starting.
    seen: Option<Instant>,
    is_first: bool,
}

impl<'a> OperatorWatch<'a> {
    /// Not asked yet.
    pub(crate) fn new(cluster: &'a Cluster, deployment: Option<&'a Object>) -> Self {
        Self { cluster, deployment, seen: None, is_first: true }
    }

    /// Whether nobody drains nodes any more: there was no operator from the beginning, its
    /// Deployment was scaled to zero then, or none of its pods has been available for a minute.
    pub(crate) async fn is_gone(&mut self) -> bool {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let Some(deployment) = self.deployment else { return true };
        let is_seen = match self.cluster.get(&deployment.resource, &deployment.key()).await {
            Ok(None) => false,
            Ok(Some(live)) => {
                let may_start = has(&live, "/spec/replicas") || has(&live, "/status/replicas");
                is_available(&live) || (is_first && may_start)
            }
            // Not knowing is no proof that it is gone.
            Err(_) => true,
        };
        if is_seen {
            self.seen = Some(Instant::now());
        }
        self.seen.is_none_or(|seen| seen.elapsed() >= GIVEN_UP_AFTER)
    }
}

/// Gets rid of all NodeClaims.
struct Drain<'a> {
    context: &'a Context,
    /// Only those of these NodePools.
    pools: Option<&'a [String]>,
    deployment: Option<&'a Object>,
    timeout: Duration,
    evict_for: Duration,
    /// When the operator is to stop waiting for budgets.
    forced_after: Option<Duration>,
    abandoned: &'a Abandoned,
    printer: Printer,
}

impl Drain<'_> {
    async fn run(&self, desired: &tenon_installer_core::desired::Desired) -> Result<(), Failure> {
        let cluster = &self.context.cluster;
        let resource = resources::node_claims();
        let end = Instant::now() + self.timeout;
        let mut operator = OperatorWatch::new(cluster, self.deployment);
        let told = wait::LastReport::default();
        loop {
            let mut claims = cluster.list(&resource).await?;
            claims.retain(|claim| self.is_meant(claim));
            if claims.is_empty() {
                return Ok(());
            }
            let doomed = claims
                .iter()
                .filter(|claim| claim.metadata.deletion_timestamp.is_none())
                .map(ResourceExt::name_any)
                .collect::<Vec<_>>();
            if let Some(at_most) = self.forced_after {
                set_deadline(cluster, &claims, at_most).await?;
            }
            delete_all(cluster, resource.clone(), &doomed).await?;
            if operator.is_gone().await {
                self.printer.warn(
                    "the operator is not running: tenon drains and terminates its nodes itself \
                     (--repair-first restores the operator)",
                );
                self.remove_stranded(desired, &claims, self.evict_for).await?;
                continue;
            }
            let waiting = waiting_for(&claims);
            if told.is_new(&waiting) {
                self.printer.note(&format!("   {waiting}"));
            }
            if Instant::now() >= end && self.abandoned.is_allowed() {
                // Their pods had their time; what was told to end just now has all of its own.
                self.remove_stranded(desired, &claims, Duration::ZERO).await?;
                continue;
            }
            if Instant::now() >= end {
                return Err(Failure::Wait {
                    what: "NodeClaims to be gone".to_owned(),
                    last: waiting,
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drain<'_> {
    fn is_meant(&self, claim: &kube::api::DynamicObject) -> bool {
        let of = claim.labels().get(NODEPOOL);
        self.pools.is_none_or(|pools| of.is_some_and(|pool| pools.contains(pool)))
    }

    async fn remove_stranded(
        &self,
        desired: &tenon_installer_core::desired::Desired,
        claims: &[kube::api::DynamicObject],
        evict_for: Duration,
    ) -> Result<(), Failure> {
        let removal = stranded::ClaimRemoval {
            context: self.context,
            evict_for,
            timeout: self.timeout,
            abandoned: self.abandoned,
        };
        removal.claims(&desired.scope, claims).await
    }
}

/// Tells the operator until when it may wait for budgets. A claim that has a time already keeps it:
/// it is its owner's, or was set here before.
async fn set_deadline(
    cluster: &Cluster,
    claims: &[kube::api::DynamicObject],
    at_most: Duration,
) -> Result<(), Failure> {
    let resource = resources::node_claims();
    let until = tenon_installer_core::clock::now() + at_most;
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for claim in claims {
        if claim.annotations().contains_key(TERMINATION_TIMESTAMP) {
            continue;
        }
        let patch = json!({"metadata": {"annotations": {TERMINATION_TIMESTAMP: until}}});
        match cluster.merge(&resource, &key(&resource, &claim.name_any()), &patch).await {
            Err(error) if error.is_not_found() => {}
            result => result?,
        }
    }
    Ok(())
}

/// What holds the claims up, as their conditions say it.
pub(crate) fn waiting_for(claims: &[kube::api::DynamicObject]) -> String {
    let reasons = claims.iter().map(|claim| {
        let body = serde_json::to_value(claim).unwrap_or_default();
        let of = |kind: &str| match wait::condition(&body, kind) {
            Some((status, _, message)) if status != "True" && !message.is_empty() => {
                Some(message.to_owned())
            }
            _ => None,
        };
        let why =
            of("Drained").or_else(|| of("VolumesDetached")).or_else(|| of("InstanceTerminating"));
        match why {
            Some(why) => format!("{} ({why})", claim.name_any()),
            None => claim.name_any(),
        }
    });
    let (all, reasons) = (count(claims.len(), "NodeClaim"), reasons.collect::<Vec<_>>());
    format!("{all} to go: {}", some(&reasons, 3))
}

/// Proves that no instance is left. The operator's garbage collection takes those without a claim;
/// `evict_for` is given when there is no operator, and then they are drained and terminated here.
async fn no_instances(
    context: &Context,
    desired: &tenon_installer_core::desired::Desired,
    evict_for: Option<Duration>,
    timeout: Duration,
    abandoned: &Abandoned,
) -> Result<(), Failure> {
    let mut empty = 0;
    let end = Instant::now() + timeout;
    let left = || async {
        let mut left = observe::ec2::instances(&context.aws, &desired.scope).await?;
        let abandoned = abandoned.ids();
        left.retain(|id| !abandoned.contains(id));
        Ok::<_, Failure>(left)
    };
    if let Some(evict_for) = evict_for {
        let ids = left().await?;
        stranded::remove_instances(context, &ids, evict_for, timeout, abandoned).await?;
    }
    loop {
        let left = left().await?;
        // EC2's lists lag behind: once empty is no proof.
        empty = if left.is_empty() { empty + 1 } else { 0 };
        if empty == 2 {
            return Ok(());
        }
        if Instant::now() >= end {
            let what = "EC2 instances to be gone".to_owned();
            for id in &left {
                let last = format!("still present: {}", left.join(", "));
                abandoned.instead_of(Err(Failure::Wait { what: what.clone(), last }), id)?;
            }
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn remove_classes(
    context: &Context,
    desired: &tenon_installer_core::desired::Desired,
    deployment: Option<&Object>,
    names: &[String],
    timeout: Duration,
) -> Result<(), Failure> {
    let cluster = &context.cluster;
    let resource = resources::node_classes();
    delete_all(cluster, resource.clone(), names).await?;
    let end = Instant::now() + timeout;
    let mut alive_at = Instant::now();
    let was_there = operator_lives(cluster, deployment).await;
    loop {
        let left = cluster.list(&resource).await?;
        if left.is_empty() {
            return Ok(());
        }
        if operator_lives(cluster, deployment).await {
            alive_at = Instant::now();
        } else if !was_there || alive_at.elapsed() >= GIVEN_UP_AFTER {
            stranded::remove_classes(context, desired, &left).await?;
            continue;
        }
        if Instant::now() >= end {
            let names = left.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(", ");
            return Err(Failure::Wait {
                what: "EC2NodeClasses to be gone".to_owned(),
                last: format!("still present: {names}"),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;

    use super::*;

    #[test]
    fn what_is_waited_for_is_counted_whole_and_named_in_part() {
        let claim = |name: &str| DynamicObject::new(name, &resources::node_claims());
        let mut claims = ["a", "b", "c", "d"].map(claim);
        claims[0].data = json!({"status": {"conditions": [
            {"type": "Drained", "status": "Unknown", "message": "1 pod waits for its budget"},
        ]}});
        assert_eq!(
            waiting_for(&claims),
            "4 NodeClaims to go: a (1 pod waits for its budget), b, c and 1 more"
        );
        assert_eq!(waiting_for(&claims[1..2]), "1 NodeClaim to go: b");
    }
}
