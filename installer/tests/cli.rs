//! The program as users run it: what it prints, where, and how it ends. Nothing here needs a cluster, and nothing is called.

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

fn with_version(screen: String) -> String {
    screen.replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
}

#[test]
fn help_lists_the_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(with_version(screen(tenon(directory.path()).arg("--help"))));
    insta::assert_snapshot!(
        "help_install",
        with_version(screen(tenon(directory.path()).args(["install", "--help"])))
    );
}

#[test]
fn version_is_data() {
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(with_version(screen(tenon(directory.path()).arg("version"))), @"");
    insta::assert_snapshot!(with_version(screen(tenon(directory.path()).args(["version", "-o", "json"]))), @"");
}

#[test]
fn a_wrong_settings_file_ends_with_code_2_and_all_its_problems() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "apiVersion: tenon.sh/v1alpha1\nkind: Installation\ncluster:\n  nmae: prod\ndeploy:\n  replicas: many\n";
    std::fs::write(directory.path().join("tenon.yaml"), text).expect("written");
    for verb in ["install", "plan", "uninstall"] {
        let screen = screen(tenon(directory.path()).args([verb, "-f", "tenon.yaml"]));
        insta::allow_duplicates! {
            insta::assert_snapshot!(screen, @"");
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
    insta::assert_snapshot!(screen(tenon(directory.path()).args(["install", "--yes"])), @"");
}

#[test]
fn a_missing_settings_file_is_a_usage_error() {
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(screen(tenon(directory.path()).args(["plan", "-f", "none.yaml"])), @"");
}

#[test]
fn a_valid_settings_file_is_told_so_without_a_call() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "apiVersion: tenon.sh/v1alpha1\nkind: Installation\ncluster:\n  name: prod\n  region: eu-central-1\n";
    std::fs::write(directory.path().join("tenon.yaml"), text).expect("written");
    insta::assert_snapshot!(screen(tenon(directory.path()).args(["config", "validate", "-f", "tenon.yaml"])), @"");
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
fn wrong_arguments_end_with_code_2() {
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(screen(tenon(directory.path()).args(["install", "--timeout", "soon"])), @"");
}
