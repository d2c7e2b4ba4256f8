//! A plan in a file: what somebody has looked at, and what is applied exactly so or not at all.
//!
//! The file holds the settings and every detail of every step. To apply it, the plan is made once
//! more; only if it is the same to the last detail is it carried out. So a saved plan can't do
//! anything that today's settings and today's state don't require.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Moved, Plan};
use crate::files::FileError;
use crate::settings::config::Config;

/// Version of the form.
pub const SCHEMA: &str = "tenon.sh/saved-plan/v1alpha1";

/// A plan as it is saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SavedPlan {
    schema: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Version of the program that made it.
    pub version: String,
    /// Cluster and account.
    pub target: Value,
    /// What was asked for.
    pub config: Config,
    /// What is to be done.
    steps: Value,
}

impl SavedPlan {
    /// To be saved. `directory` is what relative paths in the settings start from.
    pub fn new(
        plan: &Plan,
        target: Value,
        config: &Config,
        directory: &Path,
        created_at: Timestamp,
    ) -> Self {
        let mut config = config.clone();
        for manifest in &mut config.defaults.manifests {
            *manifest = std::path::absolute(directory.join(&*manifest))
                .unwrap_or_else(|_| PathBuf::from(&*manifest));
        }
        Self {
            schema: SCHEMA.to_owned(),
            created_at,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target,
            config,
            steps: details(plan),
        }
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let text = serde_json::to_string_pretty(self).expect("a plan is maps, lists and scalars");
        std::fs::write(path, text + "\n").map_err(FileError::writing(path))
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let failed = FileError::reading(path);
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let saved: Self = serde_json::from_str(&text).map_err(|error| failed(error.into()))?;
        if saved.schema != SCHEMA {
            let other = std::io::Error::other(format!("{} is not {SCHEMA}", saved.schema));
            return Err(failed(other));
        }
        Ok(saved)
    }

    /// Whether a plan made now is the saved one; if not, what differs.
    pub fn check(&self, now: &Plan) -> Result<(), Moved> {
        let now = details(now);
        if self.steps == now {
            return Ok(());
        }
        let of = |steps: &Value| steps.as_array().cloned().unwrap_or_default();
        let (saved, now) = (of(&self.steps), of(&now));
        let find =
            |steps: &[Value], id: &Value| steps.iter().find(|step| step["id"] == *id).cloned();
        let line = |word: &str, step: &Value| {
            let text = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
            format!("{word}: {} {}", text("type"), text("resource"))
        };
        let gone = saved.iter().filter(|step| find(&now, &step["id"]).is_none());
        let mut changes = gone.map(|step| line("no longer needed", step)).collect::<Vec<_>>();
        for step in &now {
            match find(&saved, &step["id"]) {
                None => changes.push(line("now needed", step)),
                Some(before) if before != *step => changes.push(line("differs", step)),
                Some(_) => {}
            }
        }
        if changes.is_empty() {
            changes.push("the steps are in another order".to_owned());
        }
        Err(Moved { changes })
    }
}

fn details(plan: &Plan) -> Value {
    let steps = plan.steps.iter().map(|step| {
        let mut value = json!(step);
        value["action"] = json!(step.action);
        value
    });
    steps.collect()
}
