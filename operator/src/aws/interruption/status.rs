//! The poll of instances' status checks: a machine that fails them is replaced at once, one with a
//! scheduled event is drained.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::act_on_instance;
use super::message::Kind;
use crate::aws::ec2::{self, InstanceStatus};
use crate::aws::error::Kind as ErrorKind;
use crate::aws::{AwsProvider, Leader};
use crate::context::Context;
use crate::controller::Periodic;
use crate::logging::log_failure;
use crate::text::chain;
use crate::write::Writer;

/// Between polls.
const PERIOD: Duration = Duration::from_secs(60);
/// A check that fails for less than this may be a hiccup.
const TOLERATED: SignedDuration = SignedDuration::from_secs(120);

/// Polls; without the permission it says so once and rests until the next start.
pub(in crate::aws) struct StatusChecks {
    leader: Leader,
    known: BTreeSet<(String, Kind)>,
}

impl StatusChecks {
    pub(in crate::aws) fn new(leader: Leader) -> Self {
        Self { leader, known: BTreeSet::new() }
    }
}

impl Periodic for StatusChecks {
    const NAME: &'static str = "interruption.instancestatus";

    async fn begin(&mut self) -> Duration {
        self.leader.write.state().claims_listed().await;
        Duration::ZERO
    }

    async fn pass(&mut self) -> Duration {
        let Leader { provider, context, write } = &self.leader;
        match ec2::unhealthy_instances(&provider.clients.ec2).await {
            Ok(found) => self.known = handle(provider, context, write, &found, &self.known).await,
            Err(error) if error.kind == ErrorKind::Unauthorized => {
                tracing::error!(
                    %error,
                    "the status checks of instances are not monitored: allow \
                     ec2:DescribeInstanceStatus and restart the operator"
                );
                std::future::pending::<()>().await;
            }
            Err(error) => {
                context.metrics.reconcile_errors.inc([Self::NAME, error.operation]);
                log_failure!(passing: error.is_retryable(), %error, "failed to read the status \
                     checks of instances, retrying");
            }
        }
        PERIOD
    }
}

/// Acts on what is wrong; answers what that was, so that it is counted once.
async fn handle(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    found: &[InstanceStatus],
    known: &BTreeSet<(String, Kind)>,
) -> BTreeSet<(String, Kind)> {
    let now = context.clock.now();
    let mut seen = BTreeSet::new();
    for status in found {
        for kind in judge(status, now) {
            match act_on_instance(provider, context, write, kind, None, &status.id).await {
                Ok(0) => continue,
                Ok(_) => {}
                Err(error) => {
                    log_failure!(passing: error.is_passing(), instance = status.id, error = chain(&error), "failed \
                         to replace an instance");
                }
            }
            let problem = (status.id.clone(), kind);
            if !known.contains(&problem) {
                provider.metrics.unhealthy_instances.inc([category(kind)]);
            }
            seen.insert(problem);
        }
    }
    seen
}

/// What has to be done about an instance: what ends it at once comes first.
fn judge(status: &InstanceStatus, now: Timestamp) -> Vec<Kind> {
    let lasting = |failures: &[Option<Timestamp>]| {
        failures.iter().flatten().any(|&since| now.duration_since(since) >= TOLERATED)
    };
    let kinds = [
        (Kind::InstanceStatus, lasting(&status.instance_failures)),
        (Kind::SystemStatus, lasting(&status.system_failures)),
        (Kind::EventStatus, status.has_event),
    ];
    kinds.into_iter().filter_map(|(kind, holds)| holds.then_some(kind)).collect()
}

/// As the metric labels it.
fn category(kind: Kind) -> &'static str {
    match kind {
        Kind::InstanceStatus => "InstanceStatus",
        Kind::SystemStatus => "SystemStatus",
        _ => "EventStatus",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_count_when_they_fail_for_two_minutes_and_events_at_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut status = InstanceStatus {
            id: "i-1".to_owned(),
            instance_failures: vec![Some(at(1000))],
            system_failures: vec![None],
            has_event: false,
        };
        assert_eq!(judge(&status, at(1119)), []);
        assert_eq!(judge(&status, at(1120)), [Kind::InstanceStatus]);
        status.has_event = true;
        status.system_failures = vec![Some(at(0)), Some(at(1100))];
        assert_eq!(judge(&status, at(1110)), [Kind::SystemStatus, Kind::EventStatus]);
        assert!(judge(&status, at(1110))[0].is_forceful());
    }
}
