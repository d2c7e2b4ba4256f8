//! The program as users run it: what it prints, where, and how it ends. Nothing here needs a
//! cluster, and nothing is called.

use assert_cmd::Command;

/// The program in an empty environment: nothing of the machine that runs the tests shows.
fn tenon(directory: &std::path::Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tenon"));
    command
        .env_clear()
        .env("HOME", directory)
        .env("KUBECONFIG", directory.join("none"))
        .current_dir(directory);
    // A call would fail at once, and loudly, instead of leaving the machine.
    command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

/// Exit code, stdout and stderr.
fn screen(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "exit code {}\n--- stdout\n{}--- stderr\n{}",
        output.status.code().map_or_else(|| "none".to_owned(), |code| code.to_string()),
        text(&output.stdout),
        text(&output.stderr)
    )
}

fn with_version(screen: &str) -> String {
    screen.replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
}

#[test]
fn help_lists_the_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(with_version(&screen(tenon(directory.path()).arg("--help"))));
    insta::assert_snapshot!(
        "help_install",
        with_version(&screen(tenon(directory.path()).args(["install", "--help"])))
    );
}

#[test]
fn version_is_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let commit = option_env!("TENON_COMMIT").unwrap_or("unknown");
    let told = |arguments: &[&str]| {
        with_version(&screen(tenon(directory.path()).args(arguments)))
            .replace(&target, "[TARGET]")
            .replace(commit, "[COMMIT]")
    };
    insta::assert_snapshot!(told(&["version"]), @r#"
    exit code 0
    --- stdout
    tenon [VERSION] (commit [COMMIT], [TARGET])
    --- stderr
    "#);
    insta::assert_snapshot!(told(&["version", "-o", "json"]), @r#"
    exit code 0
    --- stdout
    {
      "version": "[VERSION]",
      "commit": "[COMMIT]",
      "target": "[TARGET]"
    }
    --- stderr
    "#);
}

#[test]
fn a_credential_plugin_that_fails_is_named_with_what_it_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
        contexts: [{name: x, context: {cluster: x, user: x}}]\n\
        clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\n\
        users: [{name: x, user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: /bin/sh, \
        args: ['-c', 'echo The SSO session has expired >&2; exit 255']}}}]\n";
    let file = directory.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig).expect("written");
    let mut command = tenon(directory.path());
    let screen = screen(command.env("KUBECONFIG", &file).args(["simulate", "--live"]));
    insta::assert_snapshot!(screen, @"
    exit code 3
    --- stdout
    --- stderr
    error: the kubeconfig's credential plugin failed (exit status: 255): `/bin/sh -c echo The SSO session has expired >&2; exit 255`
      The SSO session has expired
    hint: run `/bin/sh -c echo The SSO session has expired >&2; exit 255` manually to see its output; log in again if the session has expired (`aws sso login`)
    hint: without --kubeconfig, KUBECONFIG and --context, tenon creates the token from the AWS credentials itself
    ");
}

#[test]
fn a_wrong_settings_file_ends_with_code_2_and_all_its_problems() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "apiVersion: tenon.sh/v1alpha1\nkind: Installation\ncluster:\n  nmae: prod\ndeploy:\n  replicas: many\n";
    std::fs::write(directory.path().join("tenon.yaml"), text).expect("written");
    for verb in ["install", "plan", "uninstall"] {
        let screen = screen(tenon(directory.path()).args([verb, "-f", "tenon.yaml"]));
        insta::allow_duplicates! {
            insta::assert_snapshot!(screen, @r#"
            exit code 2
            --- stdout
            --- stderr
            error: the settings have 4 problems
              tenon.yaml:4: cluster.nmae: unknown field (did you mean name?); allowed: name, region, provider, accountId
              tenon.yaml:6: deploy.replicas: "many" is not allowed; allowed: a whole number
              tenon.yaml:4: cluster.name: missing: set it in the settings file, or use --cluster or TENON_CLUSTER
              tenon.yaml:4: cluster.region: missing: set it in the settings file, or use --region or AWS_REGION
            hint: `tenon config schema` prints the allowed fields and values
            "#);
        }
    }
    let screen = screen(tenon(directory.path()).args([
        "config",
        "validate",
        "-f",
        "tenon.yaml",
        "-o",
        "json",
    ]));
    insta::assert_snapshot!("wrong_settings_as_json", screen);
}

#[test]
fn missing_values_are_named_together_and_nothing_is_asked_without_a_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(screen(tenon(directory.path()).args(["install", "--yes"])), @r#"
    exit code 2
    --- stdout
    --- stderr
    error: the settings have 2 problems
      cluster.name: missing: set it in the settings file, or use --cluster or TENON_CLUSTER
      cluster.region: missing: set it in the settings file, or use --region or AWS_REGION
    hint: `tenon config schema` prints the allowed fields and values
    "#);
}

#[test]
fn a_missing_settings_file_is_a_usage_error() {
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(screen(tenon(directory.path()).args(["plan", "-f", "none.yaml"])), @r#"
    exit code 2
    --- stdout
    --- stderr
    error: can't read none.yaml: No such file or directory (os error 2)
    hint: check the path and the permissions of the file
    "#);
}

#[test]
fn a_valid_settings_file_is_told_so_without_a_call() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "apiVersion: tenon.sh/v1alpha1\nkind: Installation\ncluster:\n  name: prod\n  region: eu-central-1\n";
    std::fs::write(directory.path().join("tenon.yaml"), text).expect("written");
    insta::assert_snapshot!(screen(tenon(directory.path()).args(["config", "validate", "-f", "tenon.yaml"])), @r#"
    exit code 0
    --- stdout
    tenon.yaml is valid: cluster prod in eu-central-1
    --- stderr
    "#);
}

#[test]
fn the_schema_is_json_and_knows_every_section() {
    let directory = tempfile::tempdir().expect("a directory");
    let output =
        tenon(directory.path()).args(["config", "schema"]).output().expect("the program runs");
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut sections = schema["properties"]
        .as_object()
        .expect("sections")
        .keys()
        .map(String::as_str)
        .collect::<Vec<_>>();
    sections.sort_unstable();
    assert_eq!(
        sections,
        [
            "apiVersion",
            "cluster",
            "defaults",
            "deploy",
            "identity",
            "interruption",
            "kind",
            "network",
            "nodes",
            "protect",
            "tags"
        ]
    );
}

#[test]
fn how_to_drain_is_not_asked_for_where_nothing_is_drained() {
    let directory = tempfile::tempdir().expect("a directory");
    for how in [&["--parallel", "2"][..], &["--force-capacity"], &["--repair-first"]] {
        for what in ["--keep-nodes", "--aws-only"] {
            let args = [&["uninstall", what], how].concat();
            let screen = screen(tenon(directory.path()).args(&args));
            assert!(screen.starts_with("exit code 2\n"), "{args:?}: {screen}");
            assert!(screen.contains("cannot be used with"), "{args:?}: {screen}");
        }
    }
}

#[test]
fn wrong_arguments_end_with_code_2() {
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(screen(tenon(directory.path()).args(["install", "--timeout", "soon"])), @r#"
    exit code 2
    --- stdout
    --- stderr
    error: invalid value 'soon' for '--timeout <TIME>': "soon" is not a time such as 90s, 20m or 1h

    For more information, try '--help'.
    "#);
}
