//! Leader election on a Lease: of all replicas one works, the others keep their caches warm.
//!
//! The holder renews the lease every two seconds. A candidate takes it when its holder gave it up, or when it has not changed for as long as the lease
//! lasts, measured by the candidate's own clock, so that clocks need not agree. A holder that could not renew for ten seconds ends: five seconds before
//! another may take over, it has stopped.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// How long a lease lasts that is not renewed.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for so long gives up.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Between attempts to acquire or renew.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// The lease was lost.
#[derive(Debug, thiserror::Error)]
#[error(
    "the lease {0} was lost: somebody else holds it, or the API server could not be reached for 10 seconds"
)]
pub struct Lost(String);

/// One replica's part in the election.
#[derive(Clone, Debug)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    clock: Clock,
}

/// Why an attempt to take or renew the lease did not succeed.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0} holds it")]
    Held(String),
    #[error("{operation} the lease")]
    Api { operation: &'static str, source: kube::Error },
}

/// What was seen of the lease, and when it was seen to change.
#[derive(Clone, Debug)]
struct Seen {
    spec: LeaseSpec,
    at: Instant,
}

impl Election {
    /// Takes part as `identity`, in the lease of this name and namespace.
    pub fn new(
        client: Client,
        namespace: &str,
        name: String,
        identity: String,
        clock: Clock,
    ) -> Self {
        Self { api: Api::namespaced(client, namespace), name, identity, clock }
    }

    /// Waits until this replica holds the lease.
    pub async fn acquire(&self) {
        let mut seen = None;
        tracing::info!(
            lease = self.name,
            identity = self.identity,
            "attempting to acquire leader lease"
        );
        loop {
            match self.attempt(&mut seen).await {
                Ok(()) => {
                    tracing::info!(
                        lease = self.name,
                        identity = self.identity,
                        "acquired leader lease"
                    );
                    return;
                }
                Err(Refused::Held(by)) => tracing::debug!(by, "lease is held"),
                Err(error) => {
                    tracing::warn!(
                        error = %crate::logging::chain(&error),
                        "failed to acquire the lease"
                    );
                }
            }
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    }

    /// Renews the lease until `stop`, and then gives it up.
    pub async fn hold(&self, stop: CancellationToken) -> Result<(), Lost> {
        let mut seen = None;
        let mut renewed = Instant::now();
        loop {
            let deadline = renewed + RENEW_DEADLINE;
            let attempt = tokio::time::timeout_at(deadline, self.attempt(&mut seen));
            match attempt.await {
                Ok(Ok(())) => renewed = Instant::now(),
                Ok(Err(Refused::Held(by))) => {
                    tracing::error!(by, "the lease was taken");
                    return Err(Lost(self.name.clone()));
                }
                Ok(Err(error)) => {
                    tracing::warn!(
                        error = %crate::logging::chain(&error),
                        "failed to renew the lease"
                    );
                }
                Err(_) => tracing::warn!("renewing the lease took too long"),
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return Err(Lost(self.name.clone()));
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY_PERIOD) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    /// Gives the lease up, so that a standby need not wait until it runs out. Only when all work has ended.
    pub async fn release(&self) {
        let Ok(Some(lease)) = self.api.get_opt(&self.name).await else { return };
        let spec = lease.spec.unwrap_or_default();
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return;
        }
        let now = micro(self.clock.now());
        let patch = json!({
            "metadata": {"resourceVersion": lease.metadata.resource_version},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now},
        });
        match self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => tracing::info!(lease = self.name, "released leader lease"),
            Err(error) => {
                tracing::warn!(
                    error = %crate::logging::chain(&error),
                    "failed to release the lease"
                );
            }
        }
    }

    /// Takes or renews the lease, if that is allowed.
    async fn attempt(&self, seen: &mut Option<Seen>) -> Result<(), Refused> {
        let api = |operation| move |source| Refused::Api { operation, source };
        let now = micro(self.clock.now());
        let Some(lease) = self.api.get_opt(&self.name).await.map_err(api("reading"))? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.spec(&now, 0)),
            };
            return self
                .api
                .create(&PostParams::default(), &lease)
                .await
                .map(drop)
                .map_err(api("creating"));
        };
        let spec = lease.spec.unwrap_or_default();
        let unchanged = seen.as_ref().filter(|seen| seen.spec == spec).map(|seen| seen.at);
        let since = unchanged.unwrap_or_else(Instant::now);
        *seen = Some(Seen { spec: spec.clone(), at: since });
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let mine = holder == self.identity;
        if !mine && !is_free(&spec, since.elapsed()) {
            return Err(Refused::Held(holder.to_owned()));
        }
        let mut own = self.spec(&now, spec.lease_transitions.unwrap_or(0) + i32::from(!mine));
        if mine {
            own.acquire_time = spec.acquire_time.or(own.acquire_time);
        }
        let patch = json!({
            "metadata": {"resourceVersion": lease.metadata.resource_version},
            "spec": own,
        });
        let patch = Patch::Merge(patch);
        let written = self.api.patch(&self.name, &PatchParams::default(), &patch).await;
        let written = written.map_err(api("writing"))?;
        *seen = written.spec.map(|spec| Seen { spec, at: Instant::now() });
        Ok(())
    }

    fn spec(&self, now: &MicroTime, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now.clone()),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

/// Whether a lease that has not changed for `unchanged` may be taken.
fn is_free(spec: &LeaseSpec, unchanged: Duration) -> bool {
    let given_up = spec.holder_identity.as_deref().unwrap_or_default().is_empty();
    let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    given_up || unchanged >= lasts.map_or(LEASE_DURATION, Duration::from_secs)
}

fn micro(now: Timestamp) -> MicroTime {
    MicroTime(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: &str, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(by.to_owned()),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_free_when_given_up_or_not_renewed_for_as_long_as_it_lasts() {
        let secs = Duration::from_secs;
        assert!(!is_free(&held("a", 15), secs(14)));
        assert!(is_free(&held("a", 15), secs(15)));
        assert!(is_free(&held("", 15), secs(0)));
        assert!(is_free(&LeaseSpec::default(), secs(0)));
    }
}
