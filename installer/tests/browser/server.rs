//! The program on generated files, the ledger that it reads, and axe-core.

use std::convert::Infallible;
use std::path::Path;
use std::process::{Command as Blocking, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::data;

/// The release of axe-core that pages are judged by, and the SHA-256 of its script.
const AXE: (&str, &str) =
    ("4.10.3", "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb");

/// `tenon dashboard`, which ends with the value.
pub(crate) struct Server {
    /// As it was printed.
    pub(crate) url: String,
    child: Child,
    /// Number of decisions in the ledger.
    decided: Arc<AtomicU64>,
    _ledger: JoinSet<()>,
    _directory: tempfile::TempDir,
}

impl Server {
    /// On so many nodes.
    pub(crate) async fn start(nodes: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let fleet = file("fleet.json", data::manifests(nodes).to_string());
        // For the token that the ledger is asked with; its API server is never called.
        let kubeconfig = file("kubeconfig", kubeconfig());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let decided = Arc::new(AtomicU64::new(3));
        let mut ledger = JoinSet::new();
        ledger.spawn(answer(listener, Arc::clone(&decided)));
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("tenon"))
            .args(["dashboard", "-f"])
            .arg(&fleet)
            .args(["--url", &format!("http://{address}")])
            .env_clear()
            .env("HOME", directory.path())
            .env("KUBECONFIG", &kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let url = lines.next_line().await.expect("readable").expect("the URL");
        Self { url, child, decided, _ledger: ledger, _directory: directory }
    }

    /// One more decision.
    pub(crate) fn decide(&self) {
        self.decided.fetch_add(1, Ordering::SeqCst);
    }

    /// Ctrl-C; answers the exit code.
    pub(crate) async fn interrupt(&mut self) -> Option<i32> {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().await.expect("kill runs");
        assert!(sent.success());
        self.child.wait().await.expect("it ends").code()
    }

    /// Resident memory, in MiB.
    pub(crate) fn memory(&self) -> u64 {
        let file = format!("/proc/{}/status", self.child.id().expect("it runs"));
        let status = std::fs::read_to_string(file).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its size");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }
}

fn kubeconfig() -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": { "server": "http://127.0.0.1:1" } }],
        "users": [{ "name": "test", "user": { "token": "secret" } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    })
    .to_string()
}

/// Answers like the operator's port for decisions.
async fn answer(listener: TcpListener, decided: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let decided = Arc::clone(&decided);
        connections.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let mut pairs = request.uri().query().unwrap_or_default().split('&');
                let after = pairs.find_map(|pair| pair.strip_prefix("after="));
                let after = after.and_then(|after| after.parse().ok()).unwrap_or(0);
                let body = data::decisions(decided.load(Ordering::SeqCst), after).to_string();
                async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body)))) }
            });
            let server = hyper::server::conn::http1::Builder::new();
            // The program that asks has gone, at the end of a test.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// The script of axe-core, which npm downloads once.
pub(crate) fn axe() -> String {
    let (version, expected) = AXE;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("axe-core-{version}"));
    let script = folder.join("node_modules/axe-core/axe.min.js");
    if !script.is_file() {
        let installed = Blocking::new("npm")
            .args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"])
            .arg("--prefix")
            .arg(&folder)
            .arg(format!("axe-core@{version}"))
            .output()
            .expect("npm is installed");
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    }
    let text = std::fs::read(&script).expect("npm has installed it");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &text);
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|it| char::from_digit(it.into(), 16));
    let digest: String = digest.as_ref().iter().flat_map(digits).flatten().collect();
    assert_eq!(digest, expected, "another axe-core {version} than was reviewed");
    String::from_utf8(text).expect("UTF-8")
}
