//! From a document to an object.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenon_crds::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use tenon_state::change::Watched;
use tenon_state::wire;

use super::documents::{Document, Notation};
use super::input::{Read, Workload, WorkloadKind};
use super::problem::{Problem, in_words};
use super::prune::prune;

/// Reads a document. A document that is a list after all (in flow style) gives all its items.
pub(super) fn decode(document: &Document<'_>) -> Result<Vec<Read>, Problem> {
    let header;
    let (api_version, kind) = match document.header() {
        Some(known) => known,
        None => {
            header = parse::<Header>(document, "")?;
            (header.api_version.as_str(), header.kind.as_str())
        }
    };
    // The items of a typed list may leave out what its name tells.
    let of_list = document.list.and_then(|(api_version, kind)| {
        Some((api_version, kind.strip_suffix("List").filter(|kind| !kind.is_empty())?))
    });
    let (api_version, kind) = match of_list {
        Some(of_list) if kind.is_empty() && api_version.is_empty() => of_list,
        _ => (api_version, kind),
    };
    if kind.is_empty() || api_version.is_empty() {
        let missing = if kind.is_empty() { "kind" } else { "apiVersion" };
        let mut problem = Problem::of(
            document,
            "missing; allowed: the kind and API version of a Kubernetes object, such as Pod and v1",
        );
        missing.clone_into(&mut problem.path);
        return Err(problem);
    }
    if kind.ends_with("List") && document.item.is_none() {
        return list(document, (api_version, kind));
    }
    one(document, api_version, kind).map(|read| vec![read])
}

/// Which types a document can be.
fn one(document: &Document<'_>, api_version: &str, kind: &str) -> Result<Read, Problem> {
    Ok(match (api_version, kind) {
        ("v1", "Pod") => object::<wire::Pod>(document, kind)?,
        ("v1", "Node") => object::<wire::Node>(document, kind)?,
        ("v1", "Service") => object::<wire::Service>(document, kind)?,
        ("v1", "Namespace") => object::<wire::Namespace>(document, kind)?,
        ("v1", "PersistentVolume") => object::<wire::PersistentVolume>(document, kind)?,
        ("v1", "PersistentVolumeClaim") => object::<wire::PersistentVolumeClaim>(document, kind)?,
        ("apps/v1", "DaemonSet") => object::<wire::DaemonSet>(document, kind)?,
        ("policy/v1", "PodDisruptionBudget") => {
            object::<wire::PodDisruptionBudget>(document, kind)?
        }
        ("storage.k8s.io/v1", "StorageClass") => object::<wire::StorageClass>(document, kind)?,
        ("storage.k8s.io/v1", "VolumeAttachment") => {
            object::<wire::VolumeAttachment>(document, kind)?
        }
        ("storage.k8s.io/v1", "CSINode") => object::<wire::CSINode>(document, kind)?,
        ("resource.k8s.io/v1", "DeviceClass") => object::<wire::DeviceClass>(document, kind)?,
        ("resource.k8s.io/v1", "ResourceClaim") => object::<wire::ResourceClaim>(document, kind)?,
        ("resource.k8s.io/v1", "ResourceClaimTemplate") => {
            object::<wire::ResourceClaimTemplate>(document, kind)?
        }
        ("resource.k8s.io/v1", "ResourceSlice") => object::<wire::ResourceSlice>(document, kind)?,
        ("karpenter.sh/v1", "NodePool") => object::<NodePool>(document, kind)?,
        ("karpenter.sh/v1", "NodeClaim") => object::<NodeClaim>(document, kind)?,
        ("karpenter.sh/v1alpha1", "NodeOverlay") => object::<NodeOverlay>(document, kind)?,
        ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer") => {
            object::<CapacityBuffer>(document, kind)?
        }
        ("v1", "Event") => Read::Event(Box::new(parse(document, kind)?)),
        ("v1", "PodTemplate") => object::<wire::PodTemplate>(document, kind)?,
        ("v1", "ResourceQuota") => object::<wire::ResourceQuota>(document, kind)?,
        ("apps/v1", "Deployment") => workload(document, WorkloadKind::Deployment)?,
        ("apps/v1", "ReplicaSet") => workload(document, WorkloadKind::ReplicaSet)?,
        ("apps/v1", "StatefulSet") => workload(document, WorkloadKind::StatefulSet)?,
        ("batch/v1", "Job") => workload(document, WorkloadKind::Job)?,
        ("scheduling.k8s.io/v1", "PriorityClass") => {
            Read::PriorityClass(Box::new(parse(document, kind)?))
        }
        ("karpenter.k8s.aws/v1", "EC2NodeClass") => {
            Read::Ec2NodeClass(Box::new(parse(document, kind)?))
        }
        // A KWOKNodeClass says when Nodes join, not what they are.
        ("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass") => Read::Understood,
        _ => Read::Unknown(format!("{api_version} {kind}")),
    })
}

fn object<T: Watched>(document: &Document<'_>, kind: &str) -> Result<Read, Problem> {
    parse::<T>(document, kind).map(|object| Read::Object(object.into_object()))
}

fn workload(document: &Document<'_>, kind: WorkloadKind) -> Result<Read, Problem> {
    let workload = parse::<Workload>(document, kind.as_str())?;
    Ok(Read::Workload(Box::new(Workload { kind, ..workload })))
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Header {
    api_version: String,
    kind: String,
}

/// A list that could not be cut by its lines. Its items are taken one by one all the same, so that
/// errors name them.
fn list(document: &Document<'_>, header: (&str, &str)) -> Result<Vec<Read>, Problem> {
    let mut list: Value = value(document)?;
    let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
        return Ok(Vec::new());
    };
    let mut read = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let text = item.to_string();
        let item = Document {
            item: Some(index),
            list: Some(header),
            text: &text,
            notation: Notation::Json,
            ..*document
        };
        read.extend(decode(&item)?);
    }
    Ok(read)
}

/// The document as a value of a type; on failure it is read again, slowly, to say what is wrong
/// where.
fn parse<T: DeserializeOwned>(document: &Document<'_>, kind: &str) -> Result<T, Problem> {
    let fast = match document.notation {
        Notation::Json => serde_json::from_str(document.text).ok(),
        Notation::Yaml | Notation::YamlItem => {
            serde_saphyr::from_str_with_options(&prune(&document.standalone()), options()).ok()
        }
    };
    match fast {
        Some(parsed) => Ok(parsed),
        None => slow(document, kind),
    }
}

fn slow<T: DeserializeOwned>(document: &Document<'_>, kind: &str) -> Result<T, Problem> {
    let mut value = value(document)?;
    // What is null counts as absent, as the API server has it.
    strip_nulls(&mut value);
    let object = describe(&value, kind);
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        Problem {
            object,
            path: if path == "." { String::new() } else { path },
            ..Problem::of(document, in_words(&error.inner().to_string()))
        }
    })
}

/// Any document.
fn value(document: &Document<'_>) -> Result<Value, Problem> {
    let at = |line: Option<usize>, message: String| Problem {
        line: document.line + line.unwrap_or(1).max(1) - 1,
        ..Problem::of(document, message)
    };
    match document.notation {
        Notation::Json => serde_json::from_str(document.text).map_err(|error| {
            at(Some(error.line()), format!("this is not JSON: {}", in_words(&error.to_string())))
        }),
        Notation::Yaml | Notation::YamlItem => serde_saphyr::from_str_with_options(
            &document.standalone(),
            options(),
        )
        .map_err(|error| {
            let line = error.location().and_then(|location| usize::try_from(location.line()).ok());
            let message = error.to_string();
            let message = message.lines().next().unwrap_or_default();
            at(line, format!("this is not YAML: {message}"))
        }),
    }
}

/// `y` and `no` are texts in YAML 1.2, and in labels they are meant as such.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true, with_snippet: false }
}

fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

/// `Pod default/web`
fn describe(value: &Value, kind: &str) -> String {
    let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").or_else(|| text("/metadata/generateName")).unwrap_or("?");
    match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}
