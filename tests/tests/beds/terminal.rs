//! A person at a terminal: `script` makes one, and the test types.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tenon_bed::bed::Bed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::{Instant, timeout_at};

/// How long the screen may take to show what is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs a command, answers its questions, and presses Ctrl-C once the screen shows `at`: it ends
/// with the code for that, and says how to go on.
pub(crate) async fn interrupted(bed: &Bed, command: &str, answers: &[(&str, &str)], at: &str) {
    let mut turns = answers.to_vec();
    turns.push((at, "\u{3}"));
    let screen = Terminal::default().converse(bed, command, &turns).await;
    let parts = [
        "exit code 130",
        "interrupted; completed steps stay",
        "run the same command again to resume",
    ];
    for part in parts {
        assert!(screen.contains(part), "{part} is not on the screen at {at}:\n{screen}");
    }
}

/// A terminal of 40 rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    pub(crate) columns: usize,
    /// The variable `TERM`.
    pub(crate) kind: &'static str,
    /// Whether `NO_COLOR` is left unset.
    pub(crate) has_colours: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { columns: 120, kind: "xterm-256color", has_colours: false }
    }
}

impl Terminal {
    /// Runs `tenon`, and types each text once the screen shows the text before it. Answers all that
    /// was written to the screen, with the exit code at its end.
    pub(crate) async fn converse(self, bed: &Bed, args: &str, turns: &[(&str, &str)]) -> String {
        let tenon = bed.tenon().expect("programs").display().to_string();
        let mut command = bed.command(Path::new("script"));
        // Ctrl-C reaches the shell as well, which has to stay to tell the exit code.
        let line = format!(
            "stty cols {} rows 40; trap : INT; {tenon} {args}; echo exit code $?",
            self.columns
        );
        command
            .args(["--quiet", "--return", "--echo", "never", "--command", &line, "/dev/null"])
            .envs([("SHELL", "/bin/sh"), ("TERM", self.kind)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if !self.has_colours {
            command.env("NO_COLOR", "1");
        }
        screen_of(command, turns).await
    }
}

/// Runs a terminal and types into it; answers what was written to its screen.
async fn screen_of(mut command: Command, turns: &[(&str, &str)]) -> String {
    let mut running = command.spawn().expect("script runs");
    let mut keyboard = running.stdin.take().expect("a pipe");
    let mut output = running.stdout.take().expect("a pipe");
    let mut screen = Vec::new();
    let mut part = [0; 4096];
    let mut seen = 0;
    let mut turns = turns.iter().peekable();
    // A screen may be redrawn for ever without what is waited for.
    let mut due = Instant::now() + PATIENCE;
    loop {
        let read = timeout_at(due, output.read(&mut part)).await;
        let shown = || String::from_utf8_lossy(&screen).into_owned();
        let read = read.unwrap_or_else(|_| panic!("{:?} never comes: {}", turns.peek(), shown()));
        let n = read.expect("the screen can be read");
        if n == 0 {
            break;
        }
        screen.extend_from_slice(&part[..n]);
        let text = String::from_utf8_lossy(&screen[seen..]).into_owned();
        if let Some((_, typed)) = turns.next_if(|(shown, _)| text.contains(shown)) {
            seen = screen.len();
            due = Instant::now() + PATIENCE;
            keyboard.write_all(typed.as_bytes()).await.expect("it reads");
        }
    }
    running.wait().await.expect("it ends");
    let screen = String::from_utf8_lossy(&screen).into_owned();
    assert_eq!(turns.next(), None, "it ended before that: {screen}");
    screen
}
