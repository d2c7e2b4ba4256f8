//! The record of an installation: what was asked for, and which steps were begun and done. Written
//! before each step and after it.
//!
//! It lives in the cluster (ConfigMap `tenon-install` in the operator's namespace) and on this
//! machine, because the cluster may not be writable yet. It is a record for people and for later
//! commands; what belongs to the installation is known by tags and labels alone, so nothing is lost
//! with it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::clock;
use crate::kubernetes::client::{Cluster, KubeError};
use crate::kubernetes::object::{Key, Object, label};
use crate::ownership::{COMPONENT, INSTALL_ID, MANAGED_BY, RECORD};
use crate::settings::config::Config;

/// Name of the ConfigMap.
pub const CONFIG_MAP: &str = "tenon-install";

/// What is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Version of this form.
    pub schema: u32,
    /// Which installation.
    pub install_id: String,
    /// What was asked for.
    pub config: Config,
    /// The last command that changed something, such as `install` or `uninstall`.
    pub operation: String,
    /// That command came to its end. Records from before this was noted count as finished.
    #[serde(default = "yes")]
    pub finished: bool,
    /// The Helm revision that a rollback of it goes back to: for `upgrade` the one it came from,
    /// for `rollback` the one it goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_to: Option<u32>,
    /// Its steps, in the order in which they were begun.
    pub steps: Vec<Entry>,
}

fn yes() -> bool {
    true
}

impl Record {
    /// What became of a command that did not come to its end, in words; `None` if it did.
    pub fn interruption(&self) -> Option<String> {
        if self.finished {
            return None;
        }
        let done = self.steps.iter().filter(|entry| entry.state == State::Done).count();
        let last = self.steps.iter().max_by_key(|entry| entry.at);
        let at = last.map_or_else(
            || "before its first step".to_owned(),
            |entry| {
                let how = match entry.state {
                    State::Begun => "in",
                    State::Done => "after",
                    State::Failed => "by a failure of",
                };
                format!("{how} step {} at {}", entry.step, entry.at)
            },
        );
        Some(format!(
            "the last `tenon {}` ended {at}, with {} done",
            self.operation,
            crate::words::count(done, "step")
        ))
    }
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The step's id.
    pub step: String,
    /// What became of it.
    pub state: State,
    /// When that was.
    pub at: Timestamp,
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was about to be done. It may or may not have been.
    Begun,
    /// It was done.
    Done,
    /// It failed.
    Failed,
}

/// Neither of the two places took the record.
#[derive(Debug, thiserror::Error)]
#[error("{local}; {cluster}")]
pub struct JournalError {
    local: LocalError,
    cluster: KubeError,
}

/// This machine did not take it.
#[derive(Debug, thiserror::Error)]
enum LocalError {
    #[error("no state directory is known; set XDG_STATE_HOME or HOME")]
    NoDirectory,
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
}

/// Writes a record.
pub struct Journal {
    record: Record,
    file: Option<PathBuf>,
    /// Where it is in the cluster, with the namespace; nowhere for a journal that is not written.
    cluster: Option<(Cluster, String)>,
}

/// The file of one installation.
pub fn file(dir: &Path, account: &str, region: &str, cluster: &str) -> PathBuf {
    dir.join(format!("{account}-{region}-{cluster}.json"))
}

/// The file beside a record in which calls that delete are written down.
pub fn audit_file(record: &Path) -> PathBuf {
    record.with_extension("audit.jsonl")
}

/// What is recorded on this machine. A file that can't be read as a record is as good as none.
pub fn read_file(file: &Path) -> Option<Record> {
    serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()
}

/// The ConfigMap's place.
pub fn config_map(namespace: &str) -> (ApiResource, Key) {
    let resource = ApiResource::erase::<ConfigMap>(&());
    let key = Key {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: Some(namespace.to_owned()),
        name: CONFIG_MAP.to_owned(),
    };
    (resource, key)
}

/// What is recorded in the cluster, and by which installation.
pub async fn read_cluster(
    cluster: &Cluster,
    namespace: &str,
) -> Result<Option<(String, Option<Record>)>, KubeError> {
    let (resource, key) = config_map(namespace);
    let Some(live) = cluster.get(&resource, &key).await? else { return Ok(None) };
    let id = label(&live, INSTALL_ID).unwrap_or_default().to_owned();
    let record = live
        .pointer("/data/record.json")
        .and_then(serde_json::Value::as_str)
        .and_then(|text| serde_json::from_str(text).ok());
    Ok(Some((id, record)))
}

/// What an installation recorded in the cluster, in whichever namespace that is.
pub async fn find(cluster: &Cluster, install_id: &str) -> Result<Option<Record>, KubeError> {
    let maps: Api<ConfigMap> = Api::all(cluster.client());
    let labels = format!("{INSTALL_ID}={install_id},{COMPONENT}={RECORD}");
    let found = maps.list(&ListParams::default().labels(&labels)).await.map_err(|source| {
        KubeError { verb: "list", resource: "configmaps".to_owned(), cause: Box::new(source) }
    })?;
    let mut texts = found.items.into_iter().filter_map(|map| map.data?.remove("record.json"));
    Ok(texts.find_map(|text| serde_json::from_str(&text).ok()))
}

impl Journal {
    /// Starts a record of one command's steps.
    pub fn new(
        install_id: &str,
        config: &Config,
        operation: &str,
        file: Option<PathBuf>,
        cluster: Cluster,
        namespace: &str,
    ) -> Self {
        let record = Record {
            schema: 1,
            install_id: install_id.to_owned(),
            config: config.clone(),
            operation: operation.to_owned(),
            finished: false,
            back_to: None,
            steps: Vec::new(),
        };
        Self { record, file, cluster: Some((cluster, namespace.to_owned())) }
    }

    /// Of a command about something that `tenon install` did not make: nothing is written, and
    /// nothing hangs on it.
    pub fn unwritten() -> Self {
        let record = Record {
            schema: 1,
            install_id: String::new(),
            config: Config::default(),
            operation: String::new(),
            finished: false,
            back_to: None,
            steps: Vec::new(),
        };
        Self { record, file: None, cluster: None }
    }

    /// Of a command that can be taken back to a Helm revision.
    #[must_use]
    pub fn back_to(mut self, revision: Option<u32>) -> Self {
        self.record.back_to = revision;
        self
    }

    /// Notes what became of a step, durably. At least one of the two places must take it.
    pub async fn note(&mut self, step: &str, state: State) -> Result<(), JournalError> {
        self.note_all(&[step.to_owned()], state).await
    }

    /// Notes what became of several steps, in one write.
    pub async fn note_all(&mut self, steps: &[String], state: State) -> Result<(), JournalError> {
        if steps.is_empty() {
            return Ok(());
        }
        let at = clock::now();
        for step in steps {
            let entry = Entry { step: step.clone(), state, at };
            match self.record.steps.iter_mut().find(|earlier| earlier.step == entry.step) {
                Some(earlier) => *earlier = entry,
                None => self.record.steps.push(entry),
            }
        }
        self.write().await
    }

    /// Notes that the command came to its end.
    pub async fn finish(&mut self) -> Result<(), JournalError> {
        self.record.finished = true;
        self.write().await
    }

    async fn write(&self) -> Result<(), JournalError> {
        let Some((cluster, namespace)) = &self.cluster else { return Ok(()) };
        let in_file = match &self.file {
            Some(file) => write_file(file, &self.record)
                .map_err(|source| LocalError::File { path: file.clone(), source }),
            None => Err(LocalError::NoDirectory),
        };
        let in_cluster = cluster.apply(&self.object(namespace)).await;
        match (in_file, in_cluster) {
            (Err(local), Err(cluster)) => Err(JournalError { local, cluster }),
            _ => Ok(()),
        }
    }

    fn object(&self, namespace: &str) -> Object {
        let text = serde_json::to_string_pretty(&self.record)
            .expect("a record holds maps, lists and scalars, which always serialise");
        Object::from_json(
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": CONFIG_MAP,
                    "namespace": namespace,
                    "labels": {INSTALL_ID: self.record.install_id, COMPONENT: RECORD, MANAGED_BY: "tenon"},
                },
                "data": {"record.json": text, "tenon.yaml": self.record.config.to_yaml()},
            }),
            "configmaps",
        )
    }

    /// Removes the record from the cluster. The one on this machine stays and says that the command
    /// came to its end: something of the installation is left.
    pub async fn leave_cluster(mut self) -> Result<(), KubeError> {
        self.record.finished = true;
        if let Some(file) = &self.file {
            // Without it, what is left is still found by its tags.
            let _ = write_file(file, &self.record);
        }
        self.delete_from_cluster().await
    }

    async fn delete_from_cluster(&self) -> Result<(), KubeError> {
        let Some((cluster, namespace)) = &self.cluster else { return Ok(()) };
        let (resource, key) = config_map(namespace);
        cluster.delete(&resource, &key, kube::api::PropagationPolicy::Background).await
    }

    /// Removes the record from both places: the last act of an uninstall.
    pub async fn remove(self) -> Result<(), KubeError> {
        self.delete_from_cluster().await?;
        if let Some(file) = &self.file {
            // Gone already is as good.
            let _ = std::fs::remove_file(file);
        }
        Ok(())
    }
}

/// Written beside and renamed, so that a reader never sees half a record.
fn write_file(file: &Path, record: &Record) -> std::io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    let mut beside = tempfile::NamedTempFile::new_in(dir)?;
    serde_json::to_writer_pretty(&mut beside, record)?;
    beside.as_file().sync_data()?;
    beside.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(finished: bool, steps: &[(&str, State)]) -> Record {
        let steps = (0..).zip(steps).map(|(second, (step, state))| Entry {
            step: (*step).to_owned(),
            state: *state,
            at: Timestamp::from_second(second).expect("in range"),
        });
        Record {
            schema: 1,
            install_id: "abcd0123".to_owned(),
            config: Config::default(),
            operation: "install".to_owned(),
            finished,
            back_to: None,
            steps: steps.collect(),
        }
    }

    #[test]
    fn an_unfinished_command_says_where_it_ended() {
        let steps = [("queue", State::Done), ("node-role", State::Begun)];
        assert_eq!(
            record(false, &steps).interruption().as_deref(),
            Some(
                "the last `tenon install` ended in step node-role at 1970-01-01T00:00:01Z, with 1 step done"
            )
        );
        assert_eq!(record(true, &steps).interruption(), None);
    }

    #[test]
    fn a_record_from_before_ends_were_noted_counts_as_finished() {
        let mut json = serde_json::to_value(record(false, &[])).expect("JSON");
        json.as_object_mut().expect("a map").remove("finished");
        let record: Record = serde_json::from_value(json).expect("it still reads");
        assert!(record.finished);
    }
}
