//! One installer at a time: a Lease in the cluster for everybody, and a locked file for this
//! machine.
//!
//! The Lease is renewed while its holder works, and ends by itself a minute after a holder was
//! killed. The file tells at once that a holder on this machine is gone: the operating system
//! unlocks it with the process. It holds the token of the Lease, so that the next run knows the
//! Lease for its predecessor's.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinSet;

use crate::cleanup::Cleanup;
use crate::clock;
use crate::kubernetes::client::{Cluster, KubeError, failed};
use crate::names;

/// Where the Lease is: in a namespace that every cluster has.
pub const NAMESPACE: &str = "kube-system";
/// Name of the Lease.
pub const LEASE: &str = "tenon-installer";
/// Annotation: which run holds the Lease.
const TOKEN: &str = "tenon.sh/lock-token";
/// Annotation: what that run does.
const OPERATION: &str = "tenon.sh/operation";

/// How long a Lease holds after it was renewed last.
const HOLDS_FOR: SignedDuration = SignedDuration::from_secs(60);
/// How often it is renewed: a few lost tries cost nothing.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// Who holds a lock, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// `user@host`.
    pub who: String,
    /// `install`, `uninstall`, ….
    pub operation: String,
    /// Since when.
    pub since: Timestamp,
}

/// The lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else has it.
    #[error("{} has the cluster's installer lock", .holder.who)]
    Held {
        /// Who.
        holder: Holder,
        /// When it ends by itself unless it is renewed; unknown when the holder is on this machine
        /// and has not written the Lease.
        ends: Option<Timestamp>,
    },
    /// Kubernetes did not let it be taken.
    #[error(transparent)]
    Kubernetes(#[from] KubeError),
}

/// The lock, held until this is dropped and its [`Cleanup`] has run.
#[derive(Debug)]
pub struct Lock {
    _file: Option<File>,
    _renewal: JoinSet<()>,
}

/// What the locked file says.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    /// Tokens of Leases that a run with this file may have written.
    tokens: Vec<String>,
    holder: Option<Holder>,
}

impl Lock {
    /// Takes the lock, or says who has it.
    pub async fn take(
        cluster: &Cluster,
        holder: Holder,
        file: Option<&Path>,
        cleanup: &Cleanup,
    ) -> Result<Self, LockError> {
        let token =
            names::hash(&format!("{}{}{}", holder.who, std::process::id(), clock::now()), 16);
        let mut local = file.and_then(open);
        let mut known = Vec::new();
        if let Some(file) = &mut local {
            let note = read(file);
            match file.try_lock() {
                Ok(()) => known = note.tokens,
                Err(TryLockError::WouldBlock) => {
                    let holder = note.holder.unwrap_or(holder);
                    return Err(LockError::Held { holder, ends: None });
                }
                // A file system without locks: the Lease alone has to do.
                Err(TryLockError::Error(error)) => tracing::debug!(%error, "no lock on this file"),
            }
            let tokens = known.iter().cloned().chain([token.clone()]).collect();
            write(file, &Note { tokens, holder: Some(holder.clone()) });
        }
        let leases: Api<Lease> = Api::namespaced(cluster.client(), NAMESPACE);
        acquire(&leases, &holder, &token, &known).await?;
        if let Some(file) = &mut local {
            write(file, &Note { tokens: vec![token.clone()], holder: Some(holder) });
        }
        cleanup.add(release(leases.clone(), token.clone()));
        let mut renewal = JoinSet::new();
        renewal.spawn(renew(leases, token));
        Ok(Self { _file: local, _renewal: renewal })
    }
}

fn open(path: &Path) -> Option<File> {
    std::fs::create_dir_all(path.parent()?).ok()?;
    File::options().read(true).write(true).create(true).truncate(false).open(path).ok()
}

/// A note that can't be read is as good as none: then the Lease's time decides.
fn read(file: &mut File) -> Note {
    let mut text = String::new();
    if file.read_to_string(&mut text).is_err() {
        return Note::default();
    }
    serde_json::from_str(&text).unwrap_or_default()
}

fn write(file: &mut File, note: &Note) {
    let text = serde_json::to_string(note).expect("a note is lists and strings");
    let written = file
        .rewind()
        .and_then(|()| file.set_len(0))
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_data());
    if let Err(error) = written {
        tracing::debug!(%error, "the lock's note can't be written");
    }
}

fn key() -> String {
    format!("Lease {NAMESPACE}/{LEASE}")
}

async fn acquire(
    leases: &Api<Lease>,
    holder: &Holder,
    token: &str,
    known: &[String],
) -> Result<(), LockError> {
    loop {
        let live = leases.get_opt(LEASE).await.map_err(|error| failed("get", key(), error))?;
        let written = match &live {
            None => {
                let lease = lease(holder, token, None);
                leases
                    .create(&PostParams::default(), &lease)
                    .await
                    .map_err(|error| failed("create", key(), error))
            }
            Some(live) => {
                if let Some(held) = held(live, known, clock::now()) {
                    return Err(held);
                }
                let lease = lease(holder, token, live.metadata.resource_version.clone());
                leases
                    .replace(LEASE, &PostParams::default(), &lease)
                    .await
                    .map_err(|error| failed("update", key(), error))
            }
        };
        match written {
            Ok(_) => return Ok(()),
            // Somebody was faster; who it was is seen in the next round.
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Who holds a Lease now; `None` if it has ended, or is one of a run that is known to be gone.
fn held(lease: &Lease, known: &[String], now: Timestamp) -> Option<LockError> {
    let annotation = |key: &str| lease.metadata.annotations.as_ref()?.get(key).cloned();
    let spec = lease.spec.clone().unwrap_or_default();
    let renewed = spec.renew_time.map(|time| time.0)?;
    let holds =
        spec.lease_duration_seconds.map_or(HOLDS_FOR, |s| SignedDuration::from_secs(s.into()));
    let ends = renewed.saturating_add(holds).ok()?;
    let is_gone = annotation(TOKEN).is_some_and(|token| known.contains(&token));
    if is_gone || ends < now {
        return None;
    }
    let holder = Holder {
        who: spec.holder_identity.unwrap_or_else(|| "an unknown user".to_owned()),
        operation: annotation(OPERATION).unwrap_or_else(|| "change".to_owned()),
        since: spec.acquire_time.map_or(renewed, |time| time.0),
    };
    Some(LockError::Held { holder, ends: Some(ends) })
}

fn lease(holder: &Holder, token: &str, resource_version: Option<String>) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(LEASE.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            annotations: Some(
                [(TOKEN, token), (OPERATION, holder.operation.as_str())]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            resource_version,
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.who.clone()),
            lease_duration_seconds: i32::try_from(HOLDS_FOR.as_secs()).ok(),
            acquire_time: Some(MicroTime(holder.since)),
            renew_time: Some(MicroTime(clock::now())),
            ..LeaseSpec::default()
        }),
    }
}

async fn renew(leases: Api<Lease>, token: String) {
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let patch = json!([
            // Refused when the lock was broken and is somebody else's now.
            {"op": "test", "path": "/metadata/annotations/tenon.sh~1lock-token", "value": token},
            {"op": "replace", "path": "/spec/renewTime", "value": MicroTime(clock::now())},
        ]);
        let patch: Patch<()> = Patch::Json(
            serde_json::from_value(patch).expect("these are two operations of a JSON patch"),
        );
        if let Err(error) = leases.patch(LEASE, &PatchParams::default(), &patch).await {
            tracing::warn!("the installer lock can't be renewed: {error}");
        }
    }
}

/// Gives the lock back, if it is still this run's.
async fn release(leases: Api<Lease>, token: String) {
    let Ok(Some(live)) = leases.get_opt(LEASE).await else { return };
    let is_ours =
        live.metadata.annotations.as_ref().is_some_and(|all| all.get(TOKEN) == Some(&token));
    if !is_ours {
        return;
    }
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: live.metadata.uid, resource_version: None }),
        ..DeleteParams::default()
    };
    if let Err(error) = leases.delete(LEASE, &params).await {
        tracing::debug!(%error, "the installer lock ends by itself");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("in range")
    }

    fn of(who: &str, renewed: i64) -> Lease {
        let holder = Holder { who: who.to_owned(), operation: "install".to_owned(), since: at(1) };
        let mut lease = lease(&holder, "t1", None);
        if let Some(spec) = &mut lease.spec {
            spec.renew_time = Some(MicroTime(at(renewed)));
        }
        lease
    }

    #[test]
    fn a_renewed_lease_is_its_holders_and_says_who_that_is() {
        let Some(LockError::Held { holder, ends }) = held(&of("ann@ci", 100), &[], at(159)) else {
            panic!("it is held");
        };
        assert_eq!((holder.who.as_str(), holder.operation.as_str()), ("ann@ci", "install"));
        assert_eq!((holder.since, ends), (at(1), Some(at(160))));
    }

    #[test]
    fn a_lease_ends_by_itself_and_with_a_holder_that_is_known_to_be_gone() {
        assert!(held(&of("ann@ci", 100), &[], at(161)).is_none());
        assert!(held(&of("ann@ci", 100), &["t1".to_owned()], at(101)).is_none());
        assert!(held(&of("ann@ci", 100), &["t0".to_owned()], at(101)).is_some());
    }

    #[test]
    fn a_file_remembers_the_tokens_of_its_runs_and_can_be_locked_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a/b.lock");
        let mut file = open(&path).expect("it can be made");
        file.try_lock().expect("nobody has it");
        write(&mut file, &Note { tokens: vec!["t1".to_owned()], holder: None });
        let mut other = open(&path).expect("it is there");
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        assert_eq!(read(&mut other).tokens, ["t1"]);
        drop(file);
        other.try_lock().expect("its holder is gone");
    }
}
