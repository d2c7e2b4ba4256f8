//! Whether both operators can stand beside each other with one of them at work: looked at before
//! anything is changed, on the way there and on the way back.

use serde_json::Value;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::kubernetes::correction::{Correction, Pause};
use tenon_installer_core::kubernetes::git_source::GitSource;
use tenon_installer_core::kubernetes::lease::{self, Place, variable};
use tenon_installer_core::kubernetes::object::label;
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::ownership::INSTALL_ID;
use tenon_installer_core::words::some;

use super::karpenter::Operator;
use super::{Karpenter, ports};
use crate::options::{Given, Origin};

/// Why they can't before a hand-over, each with what to do; nothing where it is done already.
pub(crate) fn against_adoption(found: &Karpenter, desired: &Desired) -> Vec<String> {
    let operator = &found.operator;
    let id = &desired.installation.id;
    if operator.replicas_now() == 0 && operator.adopted_by.as_ref() == Some(id) {
        return Vec::new();
    }
    if !desired.manage_operator {
        return vec![
            "deploy.operator is skip, or --aws-only is passed, and `tenon adopt` has to deploy the \
             operator that takes over from Karpenter"
                .to_owned(),
        ];
    }
    let Some(ours) = desired.deployment() else { return Vec::new() };
    let mut reasons = leaders(found, &ours.body);
    if operator.replicas_now() > 0
        && let Some((source, pause)) = restored(operator)
    {
        let GitSource { tool, object, values, .. } = source;
        reasons.push(format!(
            "{tool} restores the replicas of {}, so Karpenter would start again: pause {tool} with \
             `{}`, run this command again, set the replicas to 0 in {values} of {object} in git, \
             and resume {tool} with `{}`",
            operator.live.key(),
            pause.on,
            pause.off
        ));
    }
    reasons.extend(collision(found, ports::of_tenon(&desired.values), desired.values.host_network));
    reasons
}

/// Why they can't before the way back; nothing where Tenon's pods are gone already.
pub(crate) fn against_return(found: &Karpenter, desired: &Desired, actual: &Actual) -> Vec<String> {
    let id = &desired.installation.id;
    let operator = &found.operator;
    if operator.adopted_by.as_ref() == Some(id)
        && operator.replicas_now() != operator.replicas
        && let Some((GitSource { tool, object, values, .. }, _)) = restored(operator)
    {
        return vec![format!(
            "{tool} restores the replicas of {}: set them to {} in {values} of {object} in git, \
             wait until Karpenter's pods are ready, and run this command again",
            operator.live.key(),
            operator.replicas
        )];
    }
    let live = desired.deployment().and_then(|ours| actual.objects.get(&ours.key()));
    let Some(live) = live.filter(|live| label(live, INSTALL_ID) == Some(id)) else {
        return Vec::new();
    };
    let mut reasons = leaders(found, live);
    if found.operator.replicas_now() == 0 {
        let on_host = live["spec"]["template"]["spec"]["hostNetwork"] == true;
        reasons.extend(collision(found, ports_of(live), on_host));
    }
    reasons
}

/// The tool that would restore Karpenter's replicas as they are in git, and how to pause it.
fn restored(operator: &Operator) -> Option<(&GitSource, &Pause)> {
    match operator.in_git.as_ref()? {
        (source, Correction::Restores(pause)) => Some((source, pause)),
        _ => None,
    }
}

/// Why both would work at once, or wait for each other for ever.
fn leaders(found: &Karpenter, ours: &Value) -> Vec<String> {
    let options = &found.operator.options;
    let key = found.operator.live.key();
    let mut reasons = Vec::new();
    if let Some(given) = options.get(lease::DISABLED_VARIABLE)
        && found.operator.is_without_lease()
    {
        let from = origin(given);
        reasons.push(format!(
            "{key} has {}=true{from}: it runs without the Lease, so both operators would be active \
             at once; remove the setting, wait until Karpenter's pods are replaced, and run the \
             command again",
            lease::DISABLED_VARIABLE
        ));
    }
    let hidden = [lease::NAME_VARIABLE, lease::NAMESPACE_VARIABLE];
    let hidden = hidden.into_iter().filter(|name| options.get(name).is_some_and(Given::is_secret));
    let hidden = hidden.map(str::to_owned).collect::<Vec<_>>();
    if !hidden.is_empty() {
        reasons.push(format!(
            "{key} reads {} from a Secret, and Tenon would have to record it: move it to the \
             Deployment or a ConfigMap",
            some(&hidden, hidden.len())
        ));
        return reasons;
    }
    if variable(ours, lease::DISABLED_VARIABLE).as_deref() == Some("true") {
        reasons.push(format!(
            "Tenon's Deployment has {}=true, so both operators would be active at once: remove it \
             from controller.env in deploy.values",
            lease::DISABLED_VARIABLE
        ));
    }
    let (theirs, ours) = (found.operator.lease(), Place::of(ours));
    if theirs != ours {
        reasons.push(format!(
            "Karpenter uses the Lease {theirs} and Tenon {ours}, so both operators would be active \
             at once: set the same {} and {} for both, Tenon's in controller.env of deploy.values",
            lease::NAME_VARIABLE,
            lease::NAMESPACE_VARIABLE
        ));
    }
    reasons
}

fn origin(given: &Given) -> String {
    match &given.origin {
        Origin::Flag => " (a flag of its container)".to_owned(),
        Origin::ConfigMap(name) => format!(" (from ConfigMap {name})"),
        Origin::Secret(name) => format!(" (from Secret {name})"),
        Origin::Variable | Origin::Pod => String::new(),
    }
}

/// The literal ports of a Deployment of Tenon's.
fn ports_of(deployment: &Value) -> [u16; 2] {
    let port = |name: &str, default: u16| {
        variable(deployment, name).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    [port("METRICS_PORT", 8080), port("HEALTH_PROBE_PORT", 8081)]
}

/// Why pods of both can't be on one node.
fn collision(found: &Karpenter, ours: [u16; 2], on_host: bool) -> Option<String> {
    if !on_host || !found.operator.is_on_host_network() {
        return None;
    }
    let theirs = ports::of_karpenter(found);
    let both = ours.into_iter().filter(|port| theirs.contains(port));
    let both = both.map(|port| port.to_string()).collect::<Vec<_>>();
    (!both.is_empty()).then(|| {
        format!(
            "both operators would use port {} of the same nodes, so their pods can't run side by \
             side: set free ports for Tenon with `tenon install --set controller.metrics.port=8082 \
             --set controller.healthProbe.port=8083`; for an adoption, pass the same flags to it",
            both.join(" and ")
        )
    })
}
