//! The definitions of `tenon-crds` on a real API server: it takes them, it accepts and rejects what
//! `fixtures/crd-cases/` says, and what it accepts is read by the Rust types without loss.

use std::path::Path;
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::wait::eventually;
use tenon_crds::{
    CapacityBuffer, EC2NodeClass, KWOKNodeClass, NodeClaim, NodeOverlay, NodePool, Quantity,
    Timestamp, manifests,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_and_rejects_what_the_table_says() {
    let bed =
        Bed::start(BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() }).await;
    let bed = bed.expect("the bed starts");
    let client = bed.client();
    install_definitions(&client).await;

    let mut n_cases = 0;
    let mut failures = Vec::new();
    for (file, table) in tables() {
        let kind = table["kind"].as_str().expect("kind is a text");
        let resource = Resource::new(kind, &table["base"]);
        for case in table["cases"].as_array().expect("cases are a list") {
            n_cases += 1;
            if let Err(failure) = check(&client, &resource, &table["base"], case).await {
                failures.push(format!("{file}: {}: {failure}", case["name"]));
            }
        }
    }
    bed.stop().await.expect("the bed stops");
    assert!(failures.is_empty(), "{} of {n_cases} cases:\n{}", failures.len(), failures.join("\n"));
    assert!(n_cases >= 150, "only {n_cases} cases were found");
}

async fn install_definitions(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in manifests::all() {
        definitions
            .create(&PostParams::default(), &definition)
            .await
            .expect("the API server takes it");
    }
    eventually("all definitions are served", Duration::from_mins(1), async || {
        for definition in manifests::all() {
            let name = definition.metadata.name.expect("definitions have names");
            let status = definitions.get(&name).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            if let Some(problem) = conditions
                .iter()
                .find(|it| it.type_ == "NonStructuralSchema" && it.status == "True")
            {
                panic!("{name}: {}", problem.message.as_deref().unwrap_or_default());
            }
            if !conditions.iter().any(|it| it.type_ == "Established" && it.status == "True") {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
    .expect("the API server establishes them");
}

fn tables() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/crd-cases");
    let mut tables = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("the folder of the cases") {
        let path = entry.expect("an entry of the folder").path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let file = path.file_name().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a readable table");
            let table =
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
            tables.push((file, table));
        }
    }
    tables.sort_by(|a, b| a.0.cmp(&b.0));
    tables
}

/// How a kind is reached, and how its Rust type reads it.
struct Resource {
    path: String,
    read_back: fn(&Value) -> Result<Value, serde_json::Error>,
}

impl Resource {
    fn new(kind: &str, base: &Value) -> Self {
        fn read_back<K: DeserializeOwned + Serialize>(
            object: &Value,
        ) -> Result<Value, serde_json::Error> {
            serde_json::to_value(serde_json::from_value::<K>(object.clone())?)
        }
        let (plural, read_back): (_, fn(&Value) -> _) = match kind {
            "NodePool" => ("nodepools", read_back::<NodePool>),
            "NodeClaim" => ("nodeclaims", read_back::<NodeClaim>),
            "NodeOverlay" => ("nodeoverlays", read_back::<NodeOverlay>),
            "CapacityBuffer" => ("namespaces/default/capacitybuffers", read_back::<CapacityBuffer>),
            "EC2NodeClass" => ("ec2nodeclasses", read_back::<EC2NodeClass>),
            "KWOKNodeClass" => ("kwoknodeclasses", read_back::<KWOKNodeClass>),
            _ => panic!("{kind} is not a kind of tenon-crds"),
        };
        let version = base["apiVersion"].as_str().expect("the base has a version");
        Self { path: format!("/apis/{version}/{plural}"), read_back }
    }
}

async fn check(
    client: &Client,
    resource: &Resource,
    base: &Value,
    case: &Value,
) -> Result<(), String> {
    let object = changed(base, case);
    let path = &resource.path;
    let second = if case["update"].is_object() {
        Some("")
    } else {
        case["status"].is_object().then_some("/status")
    };
    let answer = match second {
        None => {
            send(
                client,
                Method::POST,
                &format!("{path}?fieldValidation=Strict&dryRun=All"),
                &object,
            )
            .await
        }
        Some(subresource) => {
            let created =
                send(client, Method::POST, &format!("{path}?fieldValidation=Strict"), &object)
                    .await
                    .map_err(|message| format!("the object itself is rejected: {message}"))?;
            let mut next = changed(&created, &case["update"]);
            if case["status"].is_object() {
                next["status"] = case["status"].clone();
            }
            let name = created["metadata"]["name"].as_str().expect("objects have names");
            let uri = format!("{path}/{name}{subresource}?fieldValidation=Strict");
            let answer = send(client, Method::PUT, &uri, &next).await;
            send(client, Method::DELETE, &format!("{path}/{name}"), &json!({})).await?;
            answer
        }
    };
    match (case["rejected"].as_str(), answer) {
        (Some(expected), Err(message)) if message.contains(expected) => Ok(()),
        (Some(expected), Err(message)) => {
            Err(format!("rejected with {message:?} instead of {expected:?}"))
        }
        (Some(_), Ok(_)) => Err("accepted".to_owned()),
        (None, Err(message)) => Err(format!("rejected: {message}")),
        (None, Ok(stored)) => {
            check_stored(&stored, &case["stored"])?;
            check_types(&stored, resource)
        }
    }
}

/// Sends a request; the error is the API server's message.
async fn send(client: &Client, method: Method, uri: &str, body: &Value) -> Result<Value, String> {
    let body = serde_json::to_vec(body).expect("JSON");
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .expect("a request");
    client.request(request).await.map_err(|error| match error {
        Error::Api(status) => status.message,
        error => format!("no answer: {error}"),
    })
}

fn check_stored(stored: &Value, expected: &Value) -> Result<(), String> {
    for (path, expected) in expected.as_object().into_iter().flatten() {
        let found = path.split('.').fold(stored, |value, field| &value[field]);
        if found != expected {
            return Err(format!("{path} is {found} instead of {expected}"));
        }
    }
    Ok(())
}

/// The Rust type reads the object, and writing it loses nothing.
fn check_types(stored: &Value, resource: &Resource) -> Result<(), String> {
    let read =
        (resource.read_back)(stored).map_err(|error| format!("the type can't read it: {error}"))?;
    for part in ["spec", "status"] {
        check_lossless(part, &stored[part], &read[part])?;
    }
    let again = (resource.read_back)(&read)
        .map_err(|error| format!("the type can't read what it wrote: {error}"))?;
    if again == read { Ok(()) } else { Err(format!("{read} is read as {again}")) }
}

/// Whether every field is there again: quantities and times may be spelled otherwise, empty may
/// become absent.
fn check_lossless(path: &str, stored: &Value, read: &Value) -> Result<(), String> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(_) => false,
    };
    let same = |stored: &Value, read: &Value| {
        let quantity = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
        let time = |value: &Value| serde_json::from_value::<Timestamp>(value.clone()).ok();
        stored == read
            || (quantity(stored).is_some() && quantity(stored) == quantity(read))
            || (time(stored).is_some() && time(stored) == time(read))
    };
    match (stored, read) {
        (Value::Object(stored), Value::Object(read)) => {
            let null = Value::Null;
            stored.iter().try_for_each(|(name, value)| {
                check_lossless(&format!("{path}.{name}"), value, read.get(name).unwrap_or(&null))
            })
        }
        (Value::Array(stored), Value::Array(read)) if stored.len() == read.len() => {
            stored.iter().zip(read).enumerate().try_for_each(|(index, (stored, read))| {
                check_lossless(&format!("{path}[{index}]"), stored, read)
            })
        }
        _ if same(stored, read) || (is_empty(stored) && read.is_null()) => Ok(()),
        _ => Err(format!("the type reads {path} {stored} as {read}")),
    }
}

/// Applies `set` and `unset`.
fn changed(object: &Value, changes: &Value) -> Value {
    let mut object = object.clone();
    for (path, value) in changes["set"].as_object().into_iter().flatten() {
        let (parents, field) = path.rsplit_once('.').unwrap_or(("", path));
        parent(&mut object, parents)[field] = expanded(value);
    }
    for path in changes["unset"].as_array().into_iter().flatten() {
        let path = path.as_str().expect("a path is a text");
        let (parents, field) = path.rsplit_once('.').unwrap_or(("", path));
        parent(&mut object, parents)
            .as_object_mut()
            .and_then(|parent| parent.remove(field))
            .unwrap_or_else(|| panic!("there is no {path} to unset"));
    }
    object
}

fn parent<'o>(object: &'o mut Value, path: &str) -> &'o mut Value {
    path.split('.').filter(|field| !field.is_empty()).fold(object, |value, field| &mut value[field])
}

/// Spells out what is too long to be written: `{$repeat: 3, $item: x}`, `{$text: a, $repeat: 3}`,
/// `{$keys: 3, $item: x}`.
fn expanded(value: &Value) -> Value {
    let count = |value: &Value| usize::try_from(value.as_u64().expect("a count")).expect("a count");
    match value {
        Value::Object(fields) if fields.contains_key("$text") => {
            value["$text"].as_str().expect("a text").repeat(count(&value["$repeat"])).into()
        }
        Value::Object(fields) if fields.contains_key("$repeat") => {
            vec![value["$item"].clone(); count(&value["$repeat"])].into()
        }
        Value::Object(fields) if fields.contains_key("$keys") => {
            let keys = (0..count(&value["$keys"])).map(|index| format!("key-{index}"));
            Value::Object(keys.map(|key| (key, value["$item"].clone())).collect())
        }
        Value::Object(fields) => {
            let fields: Map<String, Value> =
                fields.iter().map(|(key, value)| (key.clone(), expanded(value))).collect();
            fields.into()
        }
        Value::Array(items) => items.iter().map(expanded).collect(),
        other => other.clone(),
    }
}
