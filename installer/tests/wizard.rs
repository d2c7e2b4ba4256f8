//! The wizard on a pseudo-terminal, as `script` makes one: what is on the screen, and how it ends.
//! Nothing is called: the questions before the first call are enough.

use std::path::Path;
use std::process::Command;

use tenon_terminal::{Session, Terminal};

/// `tenon install` on a terminal.
fn install(directory: &Path, terminal: Terminal) -> Session {
    let tenon = assert_cmd::cargo::cargo_bin!("tenon").display().to_string();
    let mut command = Command::new(Terminal::PROGRAM);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", directory)
        // A call fails at once instead of leaving the machine.
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_MAX_ATTEMPTS", "1")
        .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .current_dir(directory);
    terminal.run(command, &format!("{tenon} install; echo exit code $?"))
}

/// Types lines, and reads the screen once the program has ended.
fn screen(columns: u16, has_colors: bool, typed: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let terminal = Terminal { columns, has_colors, ..Terminal::default() };
    let mut session = install(directory.path(), terminal);
    session.press(typed);
    let text = session.converse(&[]).replace('\r', "");
    // How a refused connection reads differs between systems.
    let differs = |line: &&str| {
        line.contains("error:") || line.starts_with("hint:") || line.contains("can't be listed")
    };
    let kept = text.lines().filter(|line| !differs(line));
    kept.collect::<Vec<_>>().join("\n").replace('\u{1b}', "\\e")
}

/// Types each text once the screen shows the text before it.
///
/// Nothing but what the test put there may be in the home directory afterwards.
fn converse(turns: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let screen = install(directory.path(), Terminal::default()).converse(turns);
    let left = std::fs::read_dir(directory.path()).expect("it is there").count();
    assert_eq!(left, 0, "something was written");
    screen
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
