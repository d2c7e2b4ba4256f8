//! The record by which Helm knows an installation as a release of its own: `helm list`, `get`,
//! `upgrade`, `rollback` and `uninstall` work on what `tenon` installed.
//!
//! A release is a Secret with JSON, compressed and base64-coded. It holds the chart that is part of
//! this program, the values, and the manifest: the operator's objects without our marks, so that an
//! upgrade by Helm leaves the marks alone.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::monitoring;
use super::object::Object;
use super::revision::Content;
use crate::names;
use crate::ownership::{INSTALL_ID, SPEC_HASH};
use crate::settings::values::{self, Values};

/// Name of the release.
pub const RELEASE: &str = values::RELEASE;
/// What Helm writes into `app.kubernetes.io/managed-by`, and expects there.
pub const MANAGED_BY: &str = "Helm";
/// Who owns the fields that the chart renders, so that Helm may change them later.
pub(crate) const FIELD_MANAGER: &str = "helm";
/// Type of the Secrets.
const SECRET_TYPE: &str = "helm.sh/release.v1";
/// How many revisions are kept, as Helm does.
pub(crate) const KEPT: usize = 10;

const CHART: &str = include_str!("../../../../charts/tenon/Chart.yaml");
const VALUES: &str = include_str!("../../../../charts/tenon/values.yaml");
const SCHEMA: &str = include_str!("../../../../charts/tenon/values.schema.json");
const TEMPLATES: [(&str, &str); 12] = [
    ("templates/NOTES.txt", include_str!("../../../../charts/tenon/templates/NOTES.txt")),
    ("templates/_env.tpl", include_str!("../../../../charts/tenon/templates/_env.tpl")),
    ("templates/_helpers.tpl", include_str!("../../../../charts/tenon/templates/_helpers.tpl")),
    (
        "templates/dashboards.yaml",
        include_str!("../../../../charts/tenon/templates/dashboards.yaml"),
    ),
    (
        "templates/deployment.yaml",
        include_str!("../../../../charts/tenon/templates/deployment.yaml"),
    ),
    (
        "templates/poddisruptionbudget.yaml",
        include_str!("../../../../charts/tenon/templates/poddisruptionbudget.yaml"),
    ),
    (
        "templates/prometheusrule.yaml",
        include_str!("../../../../charts/tenon/templates/prometheusrule.yaml"),
    ),
    ("templates/rbac.yaml", include_str!("../../../../charts/tenon/templates/rbac.yaml")),
    ("templates/service.yaml", include_str!("../../../../charts/tenon/templates/service.yaml")),
    (
        "templates/serviceaccount.yaml",
        include_str!("../../../../charts/tenon/templates/serviceaccount.yaml"),
    ),
    (
        "templates/servicemonitor.yaml",
        include_str!("../../../../charts/tenon/templates/servicemonitor.yaml"),
    ),
    (
        "templates/tests/doctor.yaml",
        include_str!("../../../../charts/tenon/templates/tests/doctor.yaml"),
    ),
];

/// What a release should hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// Namespace of the release.
    pub namespace: String,
    /// The values that differ from the chart's.
    pub values: Value,
    /// The objects as YAML documents.
    pub manifest: String,
    /// Hash of all this.
    pub hash: String,
    /// The installation.
    pub install_id: String,
    /// Why it is written, as `helm history` shows it.
    pub description: String,
    /// The chart, with what else belongs to the revision among its files.
    #[serde(skip)]
    pub chart: Value,
}

/// A revision that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Name of its Secret.
    pub secret: String,
    /// From 1 on.
    pub number: u32,
    /// `deployed`, `superseded`, ….
    pub status: String,
    /// The hash of the record that it was written from, if we wrote it.
    pub hash: Option<String>,
    /// The installation that wrote it, if one did.
    pub install_id: Option<String>,
}

impl Record {
    /// The release of these objects, as they are before they get our marks.
    pub fn new(
        values: &Values,
        objects: &[Object],
        namespace: &str,
        install_id: &str,
        content: &Content,
    ) -> Self {
        let defaults = serde_json::to_value(Values::default()).expect("values are JSON");
        let given = serde_json::to_value(values).expect("values are JSON");
        let values = differences(&given, &defaults).unwrap_or_else(|| json!({}));
        let documents = objects.iter().map(|object| {
            let text = serde_saphyr::to_string(&object.body).expect("JSON always goes into YAML");
            format!("---\n{}\n", text.trim_start_matches("---\n").trim_end())
        });
        let manifest = documents.collect::<String>();
        let hash = names::hash(&format!("{CHART}{values}{manifest}{}", content.hash()), 12);
        Self {
            namespace: namespace.to_owned(),
            values,
            manifest,
            hash,
            install_id: install_id.to_owned(),
            description: "applied by tenon".to_owned(),
            chart: chart(content),
        }
    }

    /// A release again as an earlier revision had it.
    pub fn again(release: &Value, hash: &str, namespace: &str, install_id: &str) -> Option<Self> {
        Some(Self {
            namespace: namespace.to_owned(),
            values: release["config"].clone(),
            manifest: release["manifest"].as_str()?.to_owned(),
            hash: hash.to_owned(),
            install_id: install_id.to_owned(),
            description: format!("rollback to {}", release["version"]),
            chart: release["chart"].clone(),
        })
    }

    /// The Secret of a revision.
    pub fn secret(&self, number: u32, first_deployed: Timestamp, now: Timestamp) -> Secret {
        let release = json!({
            "name": RELEASE,
            "namespace": self.namespace,
            "version": number,
            "info": {
                "first_deployed": first_deployed,
                "last_deployed": now,
                "deleted": "",
                "description": self.description,
                "status": "deployed",
            },
            "chart": self.chart,
            "config": self.values,
            "manifest": self.manifest,
            "hooks": [],
            // Helm 4 goes on as the release began.
            "apply_method": "ssa",
        });
        let labels = [
            ("name", RELEASE.to_owned()),
            ("owner", "helm".to_owned()),
            ("status", "deployed".to_owned()),
            ("version", number.to_string()),
            ("modifiedAt", now.as_second().to_string()),
            (INSTALL_ID, self.install_id.clone()),
        ];
        Secret {
            metadata: ObjectMeta {
                name: Some(secret_name(number)),
                namespace: Some(self.namespace.clone()),
                labels: Some(
                    labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
                ),
                annotations: Some([(SPEC_HASH.to_owned(), self.hash.clone())].into()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some([("release".to_owned(), ByteString(encode(&release)))].into()),
            ..Secret::default()
        }
    }
}

/// Name of the Secret of a revision.
pub fn secret_name(number: u32) -> String {
    format!("sh.helm.release.v1.{RELEASE}.v{number}")
}

/// Labels of all revisions.
pub fn selector() -> String {
    format!("owner=helm,name={RELEASE}")
}

/// The revision of a Secret, by its metadata alone.
pub fn revision(metadata: &ObjectMeta) -> Option<Revision> {
    let label = |key: &str| metadata.labels.as_ref()?.get(key).cloned();
    Some(Revision {
        secret: metadata.name.clone()?,
        number: label("version")?.parse().ok()?,
        status: label("status").unwrap_or_default(),
        hash: metadata.annotations.as_ref().and_then(|all| all.get(SPEC_HASH).cloned()),
        install_id: label(INSTALL_ID),
    })
}

/// The Secrets of an installation's revisions, and of Helm's own that followed on them. What was
/// there before is of another release of that name.
pub fn secrets_of(revisions: &[Revision], install_id: &str) -> Vec<String> {
    let is_ours = |revision: &&Revision| revision.install_id.as_deref() == Some(install_id);
    let first = revisions.iter().filter(is_ours).map(|revision| revision.number).min();
    let since = revisions.iter().filter(|it| first.is_some_and(|first| it.number >= first));
    since.map(|revision| revision.secret.clone()).collect()
}

/// The annotations by which Helm knows an object for a release's.
pub fn ownership(namespace: &str) -> BTreeMap<String, String> {
    [("meta.helm.sh/release-name", RELEASE), ("meta.helm.sh/release-namespace", namespace)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// A release's JSON out of its Secret.
pub fn decode(secret: &Secret) -> Option<Value> {
    let data = &secret.data.as_ref()?.get("release")?.0;
    let compressed = STANDARD.decode(data).ok()?;
    let mut text = String::new();
    GzDecoder::new(compressed.as_slice()).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// A release's JSON as its Secret holds it, before the coding that every Secret has.
pub fn encode(release: &Value) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(release.to_string().as_bytes()).expect("writing to memory does not fail");
    STANDARD.encode(encoder.finish().expect("writing to memory does not fail")).into_bytes()
}

/// A revision that another one follows.
pub fn superseded(secret: &Secret) -> Option<Secret> {
    let mut release = decode(secret)?;
    release["info"]["status"] = "superseded".into();
    let mut secret = secret.clone();
    secret
        .metadata
        .labels
        .get_or_insert_default()
        .insert("status".to_owned(), "superseded".to_owned());
    secret.metadata.managed_fields = None;
    secret.data.get_or_insert_default().insert("release".to_owned(), ByteString(encode(&release)));
    Some(secret)
}

fn chart(content: &Content) -> Value {
    let read =
        |text: &str| -> Value { serde_saphyr::from_str(text).expect("the embedded chart is YAML") };
    let templates =
        TEMPLATES.map(|(name, text)| json!({"name": name, "data": STANDARD.encode(text)}));
    let own = monitoring::files();
    let own = own.map(|(name, text)| json!({"name": name, "data": STANDARD.encode(text)}));
    let files: Vec<Value> = own.into_iter().chain([content.file()]).collect();
    json!({
        "metadata": read(CHART),
        "lock": null,
        "templates": templates,
        "values": read(VALUES),
        "schema": STANDARD.encode(SCHEMA),
        "files": files,
    })
}

/// What of `given` is not in `defaults`; `None` if all of it is.
fn differences(given: &Value, defaults: &Value) -> Option<Value> {
    match (given, defaults) {
        (Value::Object(given), Value::Object(defaults)) => {
            let mut map = Map::new();
            for (key, value) in given {
                let default = defaults.get(key).unwrap_or(&Value::Null);
                if let Some(value) = differences(value, default) {
                    map.insert(key.clone(), value);
                }
            }
            for key in defaults.keys().filter(|key| !given.contains_key(*key)) {
                map.insert(key.clone(), Value::Null);
            }
            (!map.is_empty()).then_some(Value::Object(map))
        }
        (given, defaults) => (given != defaults).then(|| given.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::config::Config;

    #[test]
    fn a_release_survives_its_coding_and_is_superseded_in_both_places() {
        let values = Values::merged(
            &json!({"replicas": 1, "tolerations": [], "settings": {"clusterName": "prod"}}),
        )
        .expect("valid");
        let content = Content::new(&Config::default(), BTreeMap::new(), BTreeMap::new());
        let record = Record::new(&values, &[], "kube-system", "abcd0123", &content);
        assert_eq!(
            record.values,
            json!({"replicas": 1, "tolerations": [], "settings": {"clusterName": "prod"}})
        );
        let now = Timestamp::from_second(100).expect("in range");
        let secret = record.secret(3, now, now);
        let release = decode(&secret).expect("it decodes");
        assert_eq!(release["version"], 3);
        assert_eq!(release["config"], record.values);
        assert_eq!(release["chart"]["metadata"]["name"], "tenon");
        assert_eq!(Content::of(&release), Some(content));
        let again = Record::again(&release, &record.hash, "kube-system", "abcd0123");
        let again = again.expect("it has a manifest");
        assert_eq!(again.description, "rollback to 3");
        assert_eq!(Record { description: record.description.clone(), ..again }, record);
        let revision = revision(&secret.metadata).expect("a revision");
        assert_eq!((revision.number, revision.status.as_str()), (3, "deployed"));
        assert_eq!(revision.hash.as_deref(), Some(record.hash.as_str()));
        let old = superseded(&secret).expect("it decodes");
        assert_eq!(decode(&old).expect("it decodes")["info"]["status"], "superseded");
        assert_eq!(super::revision(&old.metadata).expect("a revision").status, "superseded");
    }

    #[test]
    fn the_embedded_chart_is_whole() {
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/tenon");
        let inside = |folder: &str| -> Vec<String> {
            let entries = std::fs::read_dir(format!("{chart}/{folder}"));
            let entries =
                entries.expect("the chart is there").map(|entry| entry.expect("an entry"));
            let files = entries.filter(|entry| entry.path().is_file());
            files.map(|entry| format!("{folder}/{}", entry.file_name().display())).collect()
        };
        let mut files = [inside("templates"), inside("templates/tests")].concat();
        files.sort();
        assert_eq!(files, TEMPLATES.map(|(name, _)| name));
    }
}
