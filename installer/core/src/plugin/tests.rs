//! Plugins are shell commands here. Where one hangs, the clock is tokio's and paused: it moves on
//! when nothing else is to be done.

use std::path::Path;

use kube::Api;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::audit::Audit;
use crate::kubernetes::client::{Cluster, without_hidden_retries};

fn shell(script: &str) -> ExecConfig {
    ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1beta1".to_owned()),
        command: Some("sh".to_owned()),
        args: Some(vec!["-c".to_owned(), script.to_owned()]),
        ..ExecConfig::default()
    }
}

/// A plugin whose token is in a file, and expires when the file says.
fn from_file(path: &Path) -> ExecConfig {
    shell(&format!("cat {}", path.display()))
}

fn answer(token: &str, expires_in: SignedDuration) -> String {
    let end = clock::now() + expires_in;
    json!({"kind": "ExecCredential", "status": {"token": token, "expirationTimestamp": end}})
        .to_string()
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_is_given_up_and_named() {
    let mut exec = shell("");
    exec.command = Some("sleep".to_owned());
    exec.args = Some(vec!["86400".to_owned()]);
    let mut config = Config::new("http://127.0.0.1:1".parse().expect("an address"));
    config.auth_info.exec = Some(exec);
    let began = Instant::now();
    let error = client(config, false).await.err().expect("it never answers");
    assert_eq!(began.elapsed().as_secs(), UNATTENDED.as_secs());
    assert_eq!(
        error.to_string(),
        "the kubeconfig's credential plugin did not answer within 30 s and was stopped: `sleep 86400`"
    );
    let ClientError::Plugin(error) = error else { panic!("{error}") };
    let hints = error.advice().join("\n");
    for hint in ["run `sleep 86400` manually", "`aws sso login`", "without --kubeconfig"] {
        assert!(hints.contains(hint), "{hints}");
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_who_has_to_log_in_first_gets_more_time_unless_the_plugin_never_asks() {
    // It holds stdin, so that the test's own is not read.
    let mut exec = shell("exec sleep 86400 < /dev/null");
    let began = Instant::now();
    ask(&exec, true).await.err().expect("it never answers");
    assert_eq!(began.elapsed().as_secs(), ATTENDED.as_secs());
    exec.interactive_mode = Some(ExecInteractiveMode::Never);
    let began = Instant::now();
    ask(&exec, true).await.err().expect("it never answers");
    assert_eq!(began.elapsed().as_secs(), UNATTENDED.as_secs());
}

#[tokio::test]
async fn a_plugin_ends_with_whoever_waited_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("pid");
    let exec =
        shell(&format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 86400", file.display()));
    let mut asking = JoinSet::new();
    asking.spawn(async move { ask(&exec, false).await.map(drop) });
    let pid = loop {
        match std::fs::read_to_string(&file) {
            Ok(pid) => break pid.trim().to_owned(),
            Err(_) => tokio::task::yield_now().await,
        }
    };
    asking.shutdown().await;
    // A process that was killed and not yet collected is a zombie.
    let lives = || {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
    };
    while lives() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_a_failing_plugin_says_is_told() {
    let script = "echo 'Error loading SSO Token: Token for corp does not exist' >&2; exit 255";
    let error = ask(&shell(script), false).await.err().expect("it fails");
    assert!(error.to_string().contains("failed (exit status: 255): `sh -c echo"), "{error}");
    assert_eq!(error.said, "Error loading SSO Token: Token for corp does not exist");
    assert!(error.in_one_line().contains("; Error loading SSO Token"), "{}", error.in_one_line());
    let mut missing = shell("");
    missing.command = Some("/nowhere/kops".to_owned());
    missing.install_hint = Some("get kops first".to_owned());
    let error = ask(&missing, false).await.err().expect("there is no such program");
    assert!(error.to_string().contains("can't be started"), "{error}");
    assert_eq!(error.advice()[0], "get kops first");
    for (script, why) in [
        ("echo hello", "other than an ExecCredential"),
        ("echo '{\"kind\":\"ExecCredential\"}'", "it has no status"),
        ("echo '{\"status\":{\"clientCertificateData\":\"x\"}}'", "neither a token nor"),
    ] {
        let error = ask(&shell(script), false).await.err().expect(script);
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_plugin_is_told_what_is_expected_of_it() {
    let mut exec = shell("echo \"$KUBERNETES_EXEC_INFO $WHO\" >&2; exit 1");
    exec.env =
        Some(vec![[("name", "WHO"), ("value", "me")].map(|(k, v)| (k.into(), v.into())).into()]);
    let said = ask(&exec, false).await.err().expect("it fails").said;
    let (info, who) = said.rsplit_once(' ').expect("both");
    assert_eq!(who, "me");
    let info: serde_json::Value = serde_json::from_str(info).expect("JSON");
    assert_eq!(
        info,
        json!({
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "kind": "ExecCredential",
            "spec": {"interactive": false}
        })
    );
}

#[tokio::test]
async fn the_end_of_a_long_complaint_is_kept() {
    let script = "i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1";
    let said = ask(&shell(script), false).await.err().expect("it fails").said;
    assert!(said.len() <= SAID && said.ends_with("line 1999"), "{said}");
}

/// A server that answers everything with a ConfigMap whose name is the token that was sent.
async fn server() -> (Config, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            connections.spawn(async move {
                use tokio::io::AsyncBufReadExt;
                let mut token = String::new();
                let mut line = String::new();
                while stream.read_line(&mut line).await.is_ok_and(|n| n > 0) {
                    if let Some(sent) = line.trim().strip_prefix("authorization: Bearer ") {
                        sent.clone_into(&mut token);
                    }
                    if line.trim().is_empty() {
                        let body = json!({"metadata": {"name": token}}).to_string();
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                            body.len()
                        );
                        stream.write_all(answer.as_bytes()).await.expect("an answer is taken");
                    }
                    line.clear();
                }
            });
        }
    });
    (Config::new(address.parse().expect("an address")), serving)
}

/// The token that arrives at the server.
async fn sent(client: &Client) -> Result<String, kube::Error> {
    let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client.clone(), "x");
    Ok(api.get("x").await?.metadata.name.expect("the server names it"))
}

#[tokio::test]
async fn a_token_is_asked_for_anew_before_it_expires() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("credential");
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    let (mut config, _serving) = server().await;
    config.auth_info.exec = Some(from_file(&file));
    write(&answer("first", SignedDuration::from_hours(1)));
    let fresh = client(config.clone(), false).await.expect("a client");
    write(&answer("second", EARLY / 2));
    assert_eq!(sent(&fresh).await.expect("an answer"), "first");

    let client = client(config, false).await.expect("a client");
    write(&answer("third", EARLY / 2));
    assert_eq!(sent(&client).await.expect("an answer"), "third");
    // The plugin fails: what it gave before serves as long as it can.
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(sent(&client).await.expect("an answer"), "third");
}

#[tokio::test]
async fn a_call_without_a_token_names_the_plugin_and_is_not_repeated() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("credential");
    std::fs::write(&file, answer("old", -EARLY)).expect("written");
    let (config, _serving) = server().await;
    let mut config = without_hidden_retries(config);
    config.auth_info.exec = Some(from_file(&file));
    let client = client(config, false).await.expect("a client");
    std::fs::remove_file(&file).expect("removed");
    let cluster = Cluster::new(client, Audit::default());
    let listed = cluster.all::<k8s_openapi::api::core::v1::Node>().await;
    let error = listed.expect_err("there is no token");
    assert!(!error.is_transient());
    assert!(
        error.to_string().starts_with("list nodes: the kubeconfig's credential plugin failed"),
        "{error}"
    );
    let plugin = error.plugin().expect("the plugin is at fault");
    assert!(plugin.said.contains("No such file"), "{}", plugin.said);
    assert!(plugin.advice().concat().contains("manually"), "{:?}", plugin.advice());
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_the_same_hanging_plugin_fail_together() {
    let credential = Credential {
        token: Some("old".to_owned()),
        expiration_timestamp: Some(clock::now() - EARLY),
        ..Credential::default()
    };
    let state = Mutex::new(State { credential, early: EARLY, failed: None });
    let plugin = Plugin { exec: shell("exec sleep 86400"), attended: false, state };
    let began = Instant::now();
    let (a, b, c) = tokio::join!(plugin.token(), plugin.token(), plugin.token());
    assert!(a.is_err() && a == b && b == c, "{a:?} {b:?} {c:?}");
    assert_eq!(began.elapsed().as_secs(), UNATTENDED.as_secs());
    // Who comes later asks again: perhaps somebody has logged in since.
    plugin.token().await.expect_err("it still hangs");
    assert_eq!(began.elapsed().as_secs(), 2 * UNATTENDED.as_secs());
}
