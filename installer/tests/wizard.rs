//! The wizard on a pseudo-terminal, as `script` makes one: what is on the screen, and how it ends.
//! Nothing is called: the questions before the first call are enough.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// `tenon install` on a terminal of so many columns.
fn terminal(directory: &Path, columns: u16, color: bool) -> Command {
    let tenon = assert_cmd::cargo::cargo_bin!("tenon").display().to_string();
    let mut command = Command::new("script");
    // Ctrl-C reaches the shell as well, which has to stay to tell the exit code.
    command
        .args(["--quiet", "--return", "--echo", "never", "--command"])
        .arg(format!("stty cols {columns} rows 40; trap : INT; {tenon} install; echo exit code $?"))
        .arg("/dev/null")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm-256color")
        .env("HOME", directory)
        // A call fails at once instead of leaving the machine.
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_MAX_ATTEMPTS", "1")
        .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if !color {
        command.env("NO_COLOR", "1");
    }
    command
}

/// Types lines, and reads the screen once the program has ended.
fn screen(columns: u16, color: bool, typed: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let mut running = terminal(directory.path(), columns, color).spawn().expect("script runs");
    let mut stdin = running.stdin.take().expect("a pipe");
    stdin.write_all(typed.as_bytes()).expect("it reads");
    // The pipe stays open until the program has ended, as a keyboard does.
    let output = running.wait_with_output().expect("it ends");
    drop(stdin);
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    // How a refused connection reads differs between systems.
    let differs = |line: &&str| {
        line.contains("error:") || line.starts_with("hint:") || line.contains("can't be listed")
    };
    let kept = text.lines().filter(|line| !differs(line));
    kept.collect::<Vec<_>>().join("\n").replace('\u{1b}', "\\e")
}

/// Types each text once the screen shows the text before it: a key has to meet the question that it
/// is for.
///
/// Nothing but what the test put there may be in the home directory afterwards.
fn converse(turns: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let mut running = terminal(directory.path(), 80, false).spawn().expect("script runs");
    let mut stdin = running.stdin.take().expect("a pipe");
    let mut stdout = running.stdout.take().expect("a pipe");
    let mut screen = Vec::new();
    let mut part = [0; 4096];
    let mut seen = 0;
    let mut turns = turns.iter().peekable();
    loop {
        let n = stdout.read(&mut part).expect("the screen can be read");
        if n == 0 {
            break;
        }
        screen.extend_from_slice(&part[..n]);
        let text = String::from_utf8_lossy(&screen[seen..]).into_owned();
        if let Some((_, typed)) = turns.next_if(|(shown, _)| text.contains(shown)) {
            seen = screen.len();
            stdin.write_all(typed.as_bytes()).expect("it reads");
        }
    }
    running.wait().expect("it ends");
    let left = std::fs::read_dir(directory.path()).expect("it is there").count();
    assert_eq!(left, 0, "something was written");
    String::from_utf8_lossy(&screen).into_owned()
}

const TYPED: &str = "?\n<\neu-wst-1\neu-central-1\n?\n<\neu-west-1\nprod\n";

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
    let first = [("›", "\u{3}")];
    let second = [("›", "eu-west-1\n"), ("Name of the EKS cluster", "\u{3}")];
    for turns in [&first[..], &second[..]] {
        let screen = converse(turns);
        assert!(screen.contains("exit code 130"), "{screen}");
        assert!(screen.contains("interrupted; completed steps stay"), "{screen}");
        assert!(screen.contains("run the same command again to resume"), "{screen}");
    }
}
