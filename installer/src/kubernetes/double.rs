//! For tests of waiting: an API server that keeps what it is sent, and does nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::client::{Cluster, without_hidden_retries};

/// What it keeps, by path.
type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

/// An API server. It ends with the value.
pub(crate) struct Double {
    objects: Objects,
    address: String,
    _serving: JoinSet<()>,
}

impl Double {
    /// Starts it on a port of its own, with these objects by their paths.
    pub(crate) async fn start(objects: &[(&str, Value)]) -> Self {
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

    /// Speaks to it.
    pub(crate) fn cluster(&self) -> Cluster {
        let config = Config::new(self.address.parse().expect("an address"));
        let client = Client::try_from(without_hidden_retries(config)).expect("a client");
        Cluster::new(client, crate::audit::Audit::default())
    }

    /// Paths of all that is there.
    pub(crate) fn paths(&self) -> Vec<String> {
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

fn answer(
    objects: &mut BTreeMap<String, Value>,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let missing = || {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": format!("{path} not found")});
        (404, status)
    };
    match method {
        "POST" => {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            let mut made = body.clone();
            made["metadata"]["uid"] = "uid".into();
            objects.insert(format!("{path}/{name}"), made.clone());
            (201, made)
        }
        "DELETE" => objects.remove(path).map_or_else(missing, |gone| (200, gone)),
        _ => match objects.get(path) {
            Some(found) => (200, found.clone()),
            // The last word of a collection's path is its plural, in small letters and without digits.
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
