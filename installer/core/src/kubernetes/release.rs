//! What all objects of the operator have in common: their release, and the metadata that follows
//! from it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::settings::values::Values;

/// Under which name and by whom the objects are installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Value of `app.kubernetes.io/instance`.
    pub name: String,
    /// Namespace of the operator.
    pub namespace: String,
    /// Value of `app.kubernetes.io/managed-by`.
    pub managed_by: String,
}

/// Metadata with the labels and annotations of all our objects.
pub(super) fn metadata(
    values: &Values,
    release: &Release,
    name: &str,
    namespace: Option<&str>,
) -> ObjectMeta {
    let mut labels = BTreeMap::from([
        ("helm.sh/chart".to_owned(), concat!("tenon-", env!("CARGO_PKG_VERSION")).to_owned()),
        ("app.kubernetes.io/version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("app.kubernetes.io/managed-by".to_owned(), release.managed_by.clone()),
    ]);
    labels.extend(selector(values, release));
    // What selects pods can't be overridden, everything else can.
    for (key, value) in &values.additional_labels {
        if !selector(values, release).contains_key(key) {
            labels.insert(key.clone(), value.clone());
        }
    }
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(labels),
        annotations: (!values.additional_annotations.is_empty())
            .then(|| values.additional_annotations.clone()),
        ..ObjectMeta::default()
    }
}

/// Labels that the operator's pods are selected by.
pub(super) fn selector(values: &Values, release: &Release) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), values.app_name().to_owned()),
        ("app.kubernetes.io/instance".to_owned(), release.name.clone()),
    ])
}
