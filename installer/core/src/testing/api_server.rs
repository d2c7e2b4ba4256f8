//! For tests: an API server that keeps what it is sent, lets go of what has no finalizers, and does
//! nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::kubernetes::client::{Cluster, without_hidden_retries};
use crate::kubernetes::merge_patch::merged;

/// What it keeps, by path.
type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

/// An API server. It ends with the value.
pub struct Double {
    objects: Objects,
    address: String,
    _serving: JoinSet<()>,
}

impl Double {
    /// Starts it on a port of its own, with these objects by their paths.
    pub async fn start(objects: &[(&str, Value)]) -> Self {
        let objects = objects.iter().map(|(path, body)| ((*path).to_owned(), body.clone()));
        let objects: Objects = Arc::new(Mutex::new(objects.collect()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let kept = Arc::clone(&objects);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serve(stream, &kept).await;
            }
        });
        Self { objects, address, _serving: serving }
    }

    /// What answers a path that the caller may not ask for.
    pub fn denied() -> Value {
        status(403, "Forbidden", "forbidden")
    }

    /// Speaks to it.
    pub fn cluster(&self) -> Cluster {
        let config = Config::new(self.address.parse().expect("an address"));
        let client = Client::try_from(without_hidden_retries(config)).expect("a client");
        Cluster::new(client, crate::audit::Audit::default())
    }

    /// Paths of all that is there.
    pub fn paths(&self) -> Vec<String> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.keys().cloned().collect()
    }
}

/// Answers one request.
async fn serve(stream: TcpStream, objects: &Objects) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    if stream.read_line(&mut line).await.is_err() {
        return;
    }
    let mut length = 0;
    loop {
        let mut header = String::new();
        if stream.read_line(&mut header).await.is_err() || header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    if stream.read_exact(&mut body).await.is_err() {
        return;
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let (status, answer) = {
        let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
        answer(&mut objects, method, path, &serde_json::from_slice(&body).unwrap_or_default())
    };
    let answer = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    // A client that has gone does not want it.
    let _ = stream.write_all(format!("{head}{answer}").as_bytes()).await;
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

fn answer(
    objects: &mut BTreeMap<String, Value>,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let missing = || (404, status(404, "NotFound", &format!("{path} not found")));
    match method {
        "POST" => {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            let mut made = body.clone();
            made["metadata"]["uid"] = "uid".into();
            objects.insert(format!("{path}/{name}"), made.clone());
            (201, made)
        }
        "DELETE" => {
            let Some(live) = objects.get_mut(path) else { return missing() };
            // One with finalizers goes when the last of them is taken off.
            if has_finalizers(live) {
                live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                return (200, live.clone());
            }
            objects.remove(path).map_or_else(missing, |gone| (200, gone))
        }
        "PATCH" => {
            let Some(live) = objects.get_mut(path) else { return missing() };
            *live = match body {
                Value::Array(operations) => match patched(live.clone(), operations) {
                    Some(changed) => changed,
                    None => return (422, status(422, "Invalid", "the test failed")),
                },
                patch => merged(live.clone(), patch),
            };
            let changed = live.clone();
            if changed.pointer("/metadata/deletionTimestamp").is_some() && !has_finalizers(&changed)
            {
                objects.remove(path);
            }
            (200, changed)
        }
        _ => match objects.get(path) {
            Some(found) if found["kind"] == "Status" => (403, found.clone()),
            Some(found) => (200, found.clone()),
            // The last word of a collection's path is its plural, in small letters and without
            // digits.
            None if path.ends_with('s') => {
                let items = objects.iter().filter(|(key, _)| {
                    key.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
                });
                let items = items.map(|(_, body)| body.clone()).collect::<Vec<_>>();
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
            }
            None => missing(),
        },
    }
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|all| !all.is_empty())
}

/// What a JSON patch of `test` and `remove` makes of it; nothing if a test fails.
fn patched(mut live: Value, operations: &[Value]) -> Option<Value> {
    for operation in operations {
        let path = operation["path"].as_str()?;
        match operation["op"].as_str()? {
            "test" if live.pointer(path) == Some(&operation["value"]) => {}
            "remove" => {
                let (list, index) = path.rsplit_once('/')?;
                live.pointer_mut(list)?.as_array_mut()?.remove(index.parse().ok()?);
            }
            _ => return None,
        }
    }
    Some(live)
}
