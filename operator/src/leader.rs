//! Leader election on a Lease: of all replicas one works, the others keep their caches warm.
//!
//! The holder renews the lease every two seconds. A candidate takes it when its holder gave it up,
//! which it watches for, or when it has not changed for as long as the lease lasts, measured by the
//! candidate's own clock, so that clocks need not agree. A holder that could not renew for ten
//! seconds has lost it: five seconds before another may take over.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use crate::clock::Clock;

/// How long a lease lasts that is not renewed.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for so long gives up.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Between attempts to acquire or renew.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Giving the lease up must not take longer: it runs out by itself.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the API server keeps a watch of the lease open.
const WATCH_SECONDS: u32 = 290;
/// Rest after a watch of the lease that failed. The lease is read every [`RETRY_PERIOD`] all the
/// same.
const WATCH_REST: Duration = Duration::from_secs(10);

/// A replica that led can't be sure any more that it still does.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Another holds the lease.
    #[error("{by} has taken the lease {lease}")]
    Taken {
        /// Name of the Lease.
        lease: String,
        /// Identity of the new holder.
        by: String,
    },
    /// The lease could not be renewed.
    #[error("the lease {lease} could not be renewed for {} seconds", RENEW_DEADLINE.as_secs())]
    Expired {
        /// Name of the Lease.
        lease: String,
    },
}

/// One replica's part in the election.
#[derive(Clone, Debug)]
pub(crate) struct Election {
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
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        name: String,
        identity: String,
        clock: Clock,
    ) -> Self {
        Self { api: Api::namespaced(client, namespace), name, identity, clock }
    }

    /// Waits until this replica holds the lease.
    pub(crate) async fn acquire(&self) {
        let mut seen = None;
        tracing::info!(
            lease = self.name,
            identity = self.identity,
            "attempting to acquire leader lease"
        );
        let mut given_up = std::pin::pin!(self.watch_for_release());
        loop {
            match tokio::time::timeout(RENEW_DEADLINE, self.attempt(&mut seen)).await {
                Ok(Ok(())) => {
                    tracing::info!(
                        lease = self.name,
                        identity = self.identity,
                        "acquired leader lease"
                    );
                    return;
                }
                Ok(Err(Refused::Held(by))) => tracing::debug!(by, "lease is held"),
                Ok(Err(error)) => {
                    tracing::warn!(
                        error = %crate::text::chain(&error),
                        "failed to acquire the lease"
                    );
                }
                Err(_) => tracing::warn!("acquiring the lease took too long"),
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY_PERIOD) => {}
                () = &mut given_up => given_up.set(self.watch_for_release()),
            }
        }
    }

    /// Returns when the watch says that nobody holds the lease any more.
    async fn watch_for_release(&self) {
        loop {
            let params = WatchParams::default()
                .fields(&format!("metadata.name={}", self.name))
                .timeout(WATCH_SECONDS)
                .disable_bookmarks();
            // From "0" the first event is the lease as it is, which is read anyway.
            match self.api.watch(&params, "0").await {
                Ok(events) => {
                    let mut events = std::pin::pin!(events);
                    let mut is_first = true;
                    while let Some(Ok(event)) = events.next().await {
                        let free = match event {
                            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                                let spec = lease.spec.unwrap_or_default();
                                spec.holder_identity.unwrap_or_default().is_empty()
                            }
                            WatchEvent::Deleted(_) => true,
                            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => false,
                        };
                        if free && !is_first {
                            return;
                        }
                        is_first = false;
                    }
                }
                Err(error) => {
                    tracing::debug!(error = %crate::text::chain(&error), "watching the lease failed");
                }
            }
            tokio::time::sleep(WATCH_REST).await;
        }
    }

    /// Who holds the lease, as far as the API server tells.
    pub(crate) async fn holder(&self) -> Option<String> {
        let read = tokio::time::timeout(RELEASE_TIMEOUT, self.api.get_opt(&self.name)).await;
        let spec = read.ok()?.ok()??.spec?;
        spec.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// Renews the lease for as long as that works.
    pub(crate) async fn hold(&self) -> Lost {
        let mut seen = None;
        let mut renewed = Instant::now();
        loop {
            let deadline = renewed + RENEW_DEADLINE;
            // What counts is when the renewal was sent: a candidate may have seen it then.
            let sent = Instant::now();
            match tokio::time::timeout_at(deadline, self.attempt(&mut seen)).await {
                Ok(Ok(())) => renewed = sent,
                Ok(Err(Refused::Held(by))) => return Lost::Taken { lease: self.name.clone(), by },
                Ok(Err(error)) => {
                    tracing::warn!(
                        error = %crate::text::chain(&error),
                        "failed to renew the lease"
                    );
                }
                Err(_) => tracing::warn!("renewing the lease took too long"),
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return Lost::Expired { lease: self.name.clone() };
            }
            tokio::time::sleep_until((Instant::now() + RETRY_PERIOD).min(renewed + RENEW_DEADLINE))
                .await;
        }
    }

    /// Gives the lease up, so that a standby need not wait until it runs out. Only when all work
    /// has ended.
    pub(crate) async fn release(&self) {
        if tokio::time::timeout(RELEASE_TIMEOUT, self.try_release()).await.is_err() {
            tracing::warn!(lease = self.name, "releasing the lease took too long");
        }
    }

    async fn try_release(&self) {
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
                    error = %crate::text::chain(&error),
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use kube::client::Body;

    use super::*;

    /// One that asks an API server which takes every call and answers none.
    fn election_in_silence() -> (Election, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let calls = Arc::clone(&asked);
        let silent = tower::service_fn(move |request: http::Request<Body>| {
            // The lease is watched as well.
            let watches = request.uri().query().is_some_and(|query| query.contains("watch"));
            calls.fetch_add(u32::from(!watches), Ordering::SeqCst);
            std::future::pending::<Result<http::Response<Body>, tower::BoxError>>()
        });
        let client = Client::new(silent, "default");
        let clock = Clock::anchored(Timestamp::UNIX_EPOCH);
        let election = Election::new(client, "default", "lease".into(), "me".into(), clock);
        (election, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_asked_for_the_lease_again() {
        let (election, asked) = election_in_silence();
        tokio::time::timeout(Duration::from_mins(1), election.acquire()).await.unwrap_err();
        // Each time ten seconds, and two of rest.
        assert_eq!(asked.load(Ordering::SeqCst), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_ends_does_not_wait_for_an_api_server_that_does_not_answer() {
        let (election, _) = election_in_silence();
        let began = Instant::now();
        election.release().await;
        assert_eq!(began.elapsed(), RELEASE_TIMEOUT);
    }

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
