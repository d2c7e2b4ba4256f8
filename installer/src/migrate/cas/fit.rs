//! What speaks against the move, each with what to do about it.

use std::collections::BTreeSet;

use tenon_installer_core::kubernetes::operator_deployment::gitops;
use tenon_installer_core::words::count;

use super::super::stopped::Stopped as _;
use super::{Autoscaler, Found};

/// Pods that are listed; the rest is counted.
const NAMED: usize = 10;

/// Which Cluster Autoscaler is meant; the reasons if none can be.
pub(crate) fn the_one(found: &Found) -> Result<Option<&Autoscaler>, Vec<String>> {
    let running = found.autoscalers.iter().filter(|one| one.live.replicas_now() > 0).count();
    match found.autoscalers.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        all if running <= 1 => Ok(all.iter().max_by_key(|one| one.live.replicas_now())),
        all => {
            let names = all.iter().map(|one| one.live.key().path()).collect::<Vec<_>>();
            Err(vec![format!(
                "{} of Cluster Autoscaler run ({}): scale down those that are not used, and run \
                 this command again",
                count(running, "Deployment"),
                names.join(", ")
            )])
        }
    }
}

/// Why Tenon can't take over. `lacks`: what the operator is missing.
pub(crate) fn against(
    found: &Found,
    autoscaler: &Autoscaler,
    lacks: Option<&str>,
    wanted: &[String],
) -> Vec<String> {
    let mut reasons = against_reading(found, autoscaler, wanted);
    if let Some(lacks) = lacks {
        reasons.push(format!("Tenon's operator is not ready ({lacks}): see `tenon doctor`"));
    }
    let key = autoscaler.live.key();
    if autoscaler.live.replicas_now() > 0
        && let Some(tool) = gitops(&autoscaler.live.body)
    {
        reasons.push(format!(
            "{tool} manages {key} and would start it again: set its replicas to 0 in git, and run \
             this command again"
        ));
    }
    reasons
}

/// Why its groups are not known.
pub(crate) fn against_reading(
    found: &Found,
    autoscaler: &Autoscaler,
    wanted: &[String],
) -> Vec<String> {
    let key = autoscaler.live.key();
    if let Some(provider) = autoscaler.flag("cloud-provider").filter(|it| *it != "aws") {
        return vec![format!("{key} has --cloud-provider={provider}: its groups are not of AWS")];
    }
    if !autoscaler.selects_any() {
        return vec![format!(
            "{key} has neither --nodes nor --node-group-auto-discovery=asg:tag=…: it scales no \
             group"
        )];
    }
    if found.groups.is_empty() {
        return vec![format!(
            "no Auto Scaling group of this account and region is one that {key} scales by its \
             --nodes and --node-group-auto-discovery"
        )];
    }
    let known = found.groups.iter().map(|group| group.name.as_str()).collect::<BTreeSet<_>>();
    let unknown = wanted.iter().filter(|name| !known.contains(name.as_str()));
    let known = || known.iter().copied().collect::<Vec<_>>().join(", ");
    let reasons = unknown
        .map(|name| format!("Cluster Autoscaler scales no group {name}; it scales {}", known()));
    reasons.collect()
}

/// Pods without a place, of the simulation: each with its reasons.
pub(crate) fn against_places(pending: &[(String, Vec<String>)]) -> Vec<String> {
    let mut reasons = pending
        .iter()
        .take(NAMED)
        .map(|(pod, why)| {
            let why =
                if why.is_empty() { "there is no NodePool".to_owned() } else { why.join("; ") };
            format!("pod {pod} would stay pending: {why}")
        })
        .collect::<Vec<_>>();
    if let Some(more) = pending.len().checked_sub(NAMED).filter(|more| *more > 0) {
        reasons.push(format!("{} would stay pending as well", count(more, "other pod")));
    }
    if !reasons.is_empty() {
        reasons.push(
            "change the NodePools (--propose prints them, -f takes yours) or these pods, or use \
             --allow-pending"
                .to_owned(),
        );
    }
    reasons
}
