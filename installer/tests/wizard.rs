//! The wizard on a pseudo-terminal, as `script` makes one: what is on the screen, and how it ends. Nothing is called: the questions before the first call are enough.

use std::io::Write;
use std::process::{Command, Stdio};

/// Types lines into `tenon install` on a terminal of so many columns, and reads the screen.
fn screen(columns: u16, color: bool, typed: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let tenon = assert_cmd::cargo::cargo_bin!("tenon").display().to_string();
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--echo", "never", "--command"])
        .arg(format!("stty cols {columns} rows 40; {tenon} install; echo exit code $?"))
        .arg("/dev/null")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm-256color")
        .env("HOME", directory.path())
        .env("KUBECONFIG", directory.path().join("none"))
        // A call fails at once instead of leaving the machine.
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_MAX_ATTEMPTS", "1")
        .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if !color {
        command.env("NO_COLOR", "1");
    }
    let mut running = command.spawn().expect("script runs");
    let mut stdin = running.stdin.take().expect("a pipe");
    stdin.write_all(typed.as_bytes()).expect("it reads");
    // The pipe stays open until the program has ended, as a keyboard does.
    let output = running.wait_with_output().expect("it ends");
    drop(stdin);
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    // How a refused connection reads differs between systems.
    let kept =
        text.lines().filter(|line| !line.starts_with("error:") && !line.contains("127.0.0.1"));
    kept.collect::<Vec<_>>().join("\n").replace('\u{1b}', "\\e")
}

const TYPED: &str = "?\n<\nprod\n<\nstaging\n?\neu-central-1\n";

#[test]
fn every_question_explains_itself_on_a_narrow_terminal() {
    insta::assert_snapshot!(screen(80, false, TYPED));
}

#[test]
fn every_question_explains_itself_on_a_wide_terminal() {
    insta::assert_snapshot!(screen(120, false, TYPED));
}

#[test]
fn colours_are_left_out_with_no_color() {
    assert!(screen(80, true, TYPED).contains("\\e["));
    assert!(!screen(80, false, TYPED).contains("\\e["));
}

#[test]
fn ctrl_c_at_a_question_says_how_to_go_on() {
    for typed in ["\u{3}", "prod\n\u{3}"] {
        let screen = screen(80, false, typed);
        assert!(screen.contains("exit code 130"), "{screen}");
    }
}
