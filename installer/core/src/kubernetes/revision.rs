//! What a Helm revision of ours holds that Helm does not know: a file of the chart, which Helm
//! keeps with the release and never renders.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenon_iam_policies::Document;

use crate::kubernetes::crds::compatibility::Known;
use crate::names;
use crate::settings::config::{Config, DefaultsConfig};

/// Name of the file.
const FILE: &str = "tenon/revision.json";
/// Version of its form.
const SCHEMA: &str = "tenon.sh/revision/v1alpha1";

/// What an installation was made from, beside the chart's values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    schema: String,
    /// What was asked for. NodePools out of files are left out: their files may be gone.
    pub config: Config,
    /// The controller's inline policies by name; none if its role is somebody else's.
    pub policies: BTreeMap<String, Document>,
    /// What this version knows of the CRDs' objects.
    pub crds: BTreeMap<String, Known>,
}

impl Content {
    /// Of an installation.
    pub fn new(
        config: &Config,
        policies: BTreeMap<String, Document>,
        crds: BTreeMap<String, Known>,
    ) -> Self {
        let mut config = config.clone();
        if !config.defaults.manifests.is_empty() || config.defaults.enabled == Some(false) {
            config.defaults = DefaultsConfig { enabled: Some(false), ..DefaultsConfig::default() };
        }
        Self { schema: SCHEMA.to_owned(), config, policies, crds }
    }

    /// Tells apart what has to be a revision of its own.
    pub(super) fn hash(&self) -> String {
        names::hash(&json!([self.config, self.policies]).to_string(), 12)
    }

    /// As a file of a chart, in the form of Helm's release records.
    pub(super) fn file(&self) -> Value {
        let text = json!(self).to_string();
        json!({"name": FILE, "data": STANDARD.encode(text)})
    }

    /// What a release holds of it; `None` for a revision that Helm made from the plain chart.
    pub fn of(release: &Value) -> Option<Self> {
        let files = release.pointer("/chart/files")?.as_array()?;
        let file = files.iter().find(|file| file["name"] == FILE)?;
        let content: Self =
            serde_json::from_slice(&STANDARD.decode(file["data"].as_str()?).ok()?).ok()?;
        (content.schema == SCHEMA).then_some(content)
    }
}
