//! A YAML document of kOps, of the kind that was asked for.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::problem::Problem;

/// Versions of kOps' API that a state store may hold.
const VERSIONS: [&str; 2] = ["kops.k8s.io/v1alpha2", "kops.k8s.io/v1alpha3"];

/// The document as JSON. `name` is what to call it in errors.
pub(crate) fn parse(text: &str, kind: &str, name: &str) -> Result<Value, Problem> {
    let wrong = |field: &str, message: String| Problem::new(name, field, message);
    if text.trim().is_empty() {
        return Err(wrong("", "the file is empty".to_owned()));
    }
    let document: Value = serde_saphyr::from_str(text)
        .map_err(|error| wrong("", format!("the file is no YAML document: {error}")))?;
    let version = document["apiVersion"].as_str().unwrap_or_default();
    if !VERSIONS.contains(&version) {
        let message =
            format!("{version:?} is not known; Tenon reads {} and {}", VERSIONS[0], VERSIONS[1]);
        return Err(wrong("apiVersion", message));
    }
    if document["kind"] != kind {
        return Err(wrong("kind", format!("{} is not a {kind}", document["kind"])));
    }
    if document["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
        return Err(wrong("metadata.name", "the name is missing".to_owned()));
    }
    Ok(document)
}

/// A part of it, typed.
pub(crate) fn typed<T: DeserializeOwned>(
    value: &Value,
    path: &str,
    name: &str,
) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let below = error.path().to_string();
        let field = if below == "." { path.to_owned() } else { format!("{path}.{below}") };
        Problem::new(name, &field, error.inner().to_string())
    })
}
