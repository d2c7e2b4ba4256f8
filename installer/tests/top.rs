//! `tenon top` on a pseudo-terminal, as `script` makes one: what it draws, what keys do, and that
//! the terminal is as before, however it ends. The API server is a list of answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tenon_terminal::{Screen, Terminal};

const POOL: &str = "/apis/karpenter.sh/v1/nodepools/default";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "resourceVersion": "7"},
        "spec": {"limits": {"cpu": "100"}, "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        }}},
    })
}

/// The lists of a small cluster, by path.
fn list(path: &str) -> Option<Value> {
    let items = match path {
        "/apis/karpenter.sh/v1/nodepools" => json!([pool()]),
        "/api/v1/nodes" => json!([{
            "metadata": {
                "name": "ip-10-0-1-17",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {
                    "node.kubernetes.io/instance-type": "m7i.large",
                    "karpenter.sh/nodepool": "default",
                },
            },
            "spec": {},
            "status": {
                "capacity": {"cpu": "2", "memory": "8Gi", "pods": "58"},
                "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "58"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }]),
        "/api/v1/pods" | "/api/v1/namespaces/default/events" => json!([]),
        _ => return None,
    };
    Some(
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
    )
}

/// What the operator answers to the questions for decisions, one after the other: a launch, that it
/// is done, and then another leader with a ledger of its own.
fn decisions(query: &str, is_another: &AtomicBool) -> Option<Value> {
    let answer = |leader: &str, revision: u64, decisions: Value| {
        json!({
            "version": 1, "leader": leader, "since": "2026-01-01T00:00:00Z", "revision": revision,
            "decisions": decisions,
        })
    };
    let launch = |state: &str| {
        json!([{
            "seq": 1, "time": "2026-01-01T11:00:00Z", "kind": "launch", "action": "launch",
            "reason": "a pending pod fits on no existing node", "nodePools": ["default"], "count": 1,
            "result": {"state": state, "at": "2026-01-01T11:00:41Z", "seconds": 41.0, "message": ""},
        }])
    };
    let deletion = json!([{
        "seq": 1, "time": "2026-01-01T12:00:00Z", "kind": "drift", "action": "delete",
        "reason": "its NodePool has changed", "nodePools": ["web"], "count": 1,
    }]);
    let before = is_another.load(Ordering::SeqCst);
    match query {
        "limit=200" if before => Some(answer("karpenter-b_1", 5, deletion)),
        "limit=200" => Some(answer("karpenter-a_1", 1, launch("pending"))),
        "limit=500&after=1&wait=25" => Some(answer("karpenter-a_1", 2, launch("done"))),
        "limit=500&after=2&wait=25" => {
            is_another.store(true, Ordering::SeqCst);
            Some(answer("karpenter-b_1", 5, deletion))
        }
        // Nothing happens any more.
        _ => None,
    }
}

/// An API server and an operator in one.
#[derive(Clone, Default)]
struct Server(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_silent: AtomicBool,
    /// Another replica of the operator leads.
    is_another: AtomicBool,
    /// What was written, by method and path.
    written: Mutex<Vec<(String, Value)>>,
}

impl Server {
    /// Starts it, and says where it is reached.
    fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let server = Self::default();
        let serving = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = serving.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        (server, address)
    }

    /// Every connection is closed at the next request from now on.
    fn go_away(&self) {
        self.0.is_silent.store(true, Ordering::SeqCst);
    }

    /// The bodies that were written to a path.
    fn written(&self, what: &str) -> Vec<Value> {
        let written = self.0.written.lock().expect("no thread panics with it");
        written.iter().filter(|(to, _)| to == what).map(|(_, body)| body.clone()).collect()
    }

    fn answer(&self, method: &str, target: &str, body: Value) -> Option<Value> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        match (method, path) {
            ("GET", "/decisions") => decisions(query, &self.0.is_another),
            ("GET", POOL) => Some(pool()),
            ("GET", path) => list(path),
            _ => {
                let mut written = self.0.written.lock().expect("no thread panics with it");
                written.push((format!("{method} {path}"), body.clone()));
                Some(body)
            }
        }
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut writer = stream;
        loop {
            let mut request = String::new();
            if reader.read_line(&mut request).unwrap_or(0) == 0 {
                return;
            }
            let mut length = 0;
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).expect("headers come in one piece");
                if header.trim().is_empty() {
                    break;
                }
                if let Some(n) = header.to_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().expect("a number");
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            if self.0.is_silent.load(Ordering::SeqCst) {
                return;
            }
            let mut words = request.split(' ');
            let method = words.next().unwrap_or_default();
            let target = words.next().unwrap_or_default();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (status, body) = match self.answer(method, target, body) {
                Some(body) => ("200 OK", body),
                None if target.starts_with("/decisions") => {
                    // Nothing is new until the reader goes away.
                    let _ = reader.read_line(&mut request);
                    return;
                }
                None => (
                    "404 Not Found",
                    json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "reason": "NotFound", "code": 404,
                    }),
                ),
            };
            let body = body.to_string();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            if writer.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

const ROWS: u16 = 24;
const COLUMNS: u16 = 80;

/// `tenon top` on a terminal. The shell around it says how it ended and how the terminal is then.
fn start(directory: &Path, server: &str, (has_colors, options): (bool, &str)) -> Screen {
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: prod\n\
         contexts: [{{name: prod, context: {{cluster: x, user: x}}}}]\n\
         clusters: [{{name: x, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: x, user: {{token: x}}}}]\n"
    );
    std::fs::write(directory.join("kubeconfig"), kubeconfig).expect("written");
    let tenon = assert_cmd::cargo::cargo_bin!("tenon").display().to_string();
    let top = format!("echo $$ > pid; exec {tenon} top --cluster prod --interval 1s {options}");
    let mut command = Command::new(Terminal::PROGRAM);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", directory)
        .env("KUBECONFIG", directory.join("kubeconfig"))
        .current_dir(directory);
    let terminal = Terminal { columns: COLUMNS, rows: ROWS, has_colors, ..Terminal::default() };
    let line = format!(
        "stty -a > before; sh -c '{top}'; echo exit code $?; stty -a > after; \
         cmp before after && echo as before; echo end"
    );
    terminal.draw(command, &line)
}

/// Waits until the popup is closed: an escape character and a letter that are read together are one
/// key.
fn until_closed(screen: &mut Screen) {
    screen.wait("the popup is closed", |text| !text.contains("Esc closes"));
}

/// How it ended: with this code, and with a terminal as it was before.
fn ended(mut screen: Screen, code: u8) {
    screen.until("end\n");
    let text = screen.text();
    assert!(text.contains(&format!("exit code {code}\n")), "{text}");
    assert!(text.contains("as before"), "{text}");
    assert!(screen.is_left());
}

#[test]
fn the_cluster_is_shown_explained_and_kept_when_the_api_server_goes_away() {
    let (server, address) = Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let mut screen = start(directory.path(), &address, (false, ""));
    // A screen may arrive in parts.
    screen.until("the cluster has no Tenon operator");
    for shown in [" prod  1 node, 0% spot", "NODEPOOLS 1", "═ NODES 1 ═", ">  ip-10-0-1-17"] {
        screen.until(shown);
    }
    assert!(screen.is_drawn_on());
    screen.press("\r");
    screen.until("What to do:");
    screen.until("═ explain node ip-10-0-1-17 ═");
    screen.press("\x1b");
    until_closed(&mut screen);
    screen.press("f");
    screen.until("Pause NodePool default?");
    screen.press("n");
    until_closed(&mut screen);
    server.go_away();
    screen.until(" ! as of ");
    assert!(screen.text().contains("ip-10-0-1-17"));
    screen.press("q");
    ended(screen, 0);
}

#[test]
fn decisions_and_their_results_are_shown_as_they_come_and_of_one_leader_only() {
    let (_, address) = Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let options = format!("--url {address}");
    let mut screen = start(directory.path(), &address, (false, &options));
    screen.until("drift: delete");
    screen.until("DECISIONS 1  karpenter-b leads since 00:00:00Z");
    screen.wait("the other leader's decisions are gone", |it| !it.contains("launch a node"));
    screen.press("5\r");
    screen.until("why: its NodePool has changed");
    screen.press("\x03");
    ended(screen, 0);
}

#[test]
fn a_node_pool_is_paused_when_the_user_says_yes() {
    let (server, address) = Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let mut screen = start(directory.path(), &address, (false, ""));
    screen.until("ip-10-0-1-17");
    screen.press("f");
    screen.until("Pause NodePool default?");
    assert_eq!(server.written(&format!("PATCH {POOL}")), Vec::<Value>::new());
    screen.press("y");
    screen.until(" paused: default");
    let patches = server.written(&format!("PATCH {POOL}"));
    let [patch] = &patches[..] else { panic!("{patches:?}") };
    assert_eq!(patch["spec"]["limits"]["cpu"], "0");
    assert_eq!(patch["spec"]["disruption"]["budgets"], json!([{"nodes": "0"}]));
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    // Under the lock of all commands.
    assert_eq!(server.written(&format!("POST {LEASES}")).len(), 1);
    screen.press("q");
    ended(screen, 0);
}

#[test]
fn ctrl_c_and_a_request_to_terminate_leave_the_terminal_as_it_was() {
    let (_, address) = Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let mut screen = start(directory.path(), &address, (true, ""));
    screen.until("ip-10-0-1-17");
    screen.press("\x03");
    ended(screen, 0);
    let mut screen = start(directory.path(), &address, (true, ""));
    screen.until("ip-10-0-1-17");
    let pid = std::fs::read_to_string(directory.path().join("pid")).expect("its process id");
    let killed = Command::new("kill").args(["-TERM", pid.trim()]).status().expect("kill runs");
    assert!(killed.success());
    ended(screen, 0);
}

#[test]
fn what_fails_before_the_first_screen_is_an_error_like_any_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut screen = start(directory.path(), "http://127.0.0.1:1", (true, ""));
    screen.until("error: ");
    screen.until("hint: ");
    assert!(screen.is_left());
    ended(screen, 1);
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let directory = tempfile::tempdir().expect("a directory");
    let tenon = |arguments: &[&str]| {
        let output = Command::new(assert_cmd::cargo::cargo_bin!("tenon"))
            .args(arguments)
            .env_clear()
            .env("HOME", directory.path())
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        format!("exit code {}\n{stderr}", output.status.code().expect("it ended by itself"))
    };
    insta::assert_snapshot!(tenon(&["top"]));
    assert!(tenon(&["top", "-o", "json"]).contains("JSON"));
    assert!(tenon(&["top", "--interval", "0s"]).contains("use at least 1s"));
}
