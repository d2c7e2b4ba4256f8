//! A person at a terminal, for tests of programs that ask, draw and redraw: the program `script`
//! makes a pseudo-terminal, and the test types.

mod screen;

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub use screen::Screen;

/// How long the screen may take to show what is waited for: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal that is not running yet. By default 80 columns of 40 rows, without colours.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Characters per row.
    pub columns: u16,
    /// Rows on the screen.
    pub rows: u16,
    /// The variable `TERM`.
    pub kind: &'static str,
    /// Whether `NO_COLOR` is left unset.
    pub has_colors: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { columns: 80, rows: 40, kind: "xterm-256color", has_colors: false }
    }
}

impl Terminal {
    /// The program to set directory and environment of, and to pass to [`Self::run`].
    pub const PROGRAM: &'static str = "env";

    /// Runs a line of shell on the terminal, in the directory and environment of `command`.
    ///
    /// Ctrl-C reaches the shell as well as the program that it runs; the shell survives it, so that
    /// the line can go on with `echo exit code $?`.
    ///
    /// # Panics
    ///
    /// If `env` can't be started.
    pub fn run(self, mut command: Command, line: &str) -> Session {
        let Self { columns, rows, kind, has_colors } = self;
        command
            // A test that runs in the background of a script has Ctrl-C ignored, and so would have
            // everything that it starts.
            .args(["--default-signal=INT", "script"])
            .args(["--quiet", "--return", "--echo", "never", "--command"])
            .arg(format!("stty cols {columns} rows {rows}; trap : INT; {line}"))
            .arg("/dev/null")
            .env("SHELL", "/bin/sh")
            .env("TERM", kind)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if !has_colors {
            command.env("NO_COLOR", "1");
        }
        let mut running = command.spawn().expect("env runs");
        let keyboard = running.stdin.take().expect("a pipe");
        let mut screen = running.stdout.take().expect("a pipe");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(n) = screen.read(&mut part)
                && n > 0
                && sender.send(part[..n].to_vec()).is_ok()
            {}
        });
        Session { running, keyboard, output }
    }

    /// Runs a line of shell as [`Self::run`] does, and keeps what the screen shows: for programs
    /// that draw on all of it.
    ///
    /// # Panics
    ///
    /// If `env` can't be started, or the terminal has no columns or rows.
    pub fn draw(self, command: Command, line: &str) -> Screen {
        Screen::new(self.run(command, line), self.rows, self.columns)
    }
}

/// What runs on a terminal. A test that fails leaves nothing behind: what runs is ended.
#[derive(Debug)]
pub struct Session {
    running: Child,
    /// Stays open until the program has ended, as a keyboard does.
    keyboard: ChildStdin,
    output: Receiver<Vec<u8>>,
}

impl Session {
    /// Types a text.
    ///
    /// # Panics
    ///
    /// If the program has ended.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it reads");
    }

    /// The next bytes that are written to the screen; none when the program has ended.
    ///
    /// # Panics
    ///
    /// If nothing comes by then; `missing` tells what is waited for and what is on the screen.
    fn read_until(&self, due: Instant, missing: impl FnOnce() -> String) -> Option<Vec<u8>> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.output.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(part) => Some(part),
            Err(Disconnected) => None,
            Err(Timeout) => panic!("{}", missing()),
        }
    }

    /// Types each text once the screen shows the text before it: a key has to meet the question
    /// that it is for. Answers all that was written to the screen once the program has ended.
    ///
    /// # Panics
    ///
    /// If one of the texts does not come within a minute after the one before it, or at all.
    pub fn converse(mut self, turns: &[(&str, &str)]) -> String {
        let mut screen = Vec::new();
        let mut seen = 0;
        let mut turns = turns.iter().peekable();
        // A screen may be redrawn for ever without what is waited for.
        let mut due = Instant::now() + PATIENCE;
        while let Some(part) = self.read_until(due, || {
            format!("{:?} never comes: {}", turns.peek(), String::from_utf8_lossy(&screen))
        }) {
            screen.extend_from_slice(&part);
            let text = String::from_utf8_lossy(&screen[seen..]);
            if let Some((_, keys)) = turns.next_if(|(shown, _)| text.contains(shown)) {
                seen = screen.len();
                due = Instant::now() + PATIENCE;
                self.press(keys);
            }
        }
        let screen = String::from_utf8_lossy(&screen).into_owned();
        assert_eq!(turns.next(), None, "it ended before that: {screen}");
        screen
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It has ended already, unless a test fails.
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(terminal: Terminal, line: &str) -> Session {
        terminal.run(Command::new(Terminal::PROGRAM), line)
    }

    #[test]
    fn keys_meet_the_questions_that_they_are_for() {
        let line = "echo first; read a; sleep 0.1; echo second; read b; echo $b after $a";
        let screen =
            run(Terminal::default(), line).converse(&[("first", "1\n"), ("second", "2\n")]);
        assert!(screen.contains("2 after 1"), "{screen}");
    }

    #[test]
    fn the_terminal_has_the_size_and_the_kind_that_are_asked_for() {
        let terminal = Terminal { columns: 60, rows: 24, kind: "dumb", has_colors: false };
        let screen = run(terminal, "stty size; echo $TERM $NO_COLOR").converse(&[]);
        assert_eq!(screen.replace('\r', ""), "24 60\ndumb 1\n");
    }

    #[test]
    fn ctrl_c_ends_the_program_and_not_the_shell() {
        let line = "sh -c 'echo ready; exec sleep 60'; echo exit code $?";
        let screen = run(Terminal::default(), line).converse(&[("ready", "\u{3}")]);
        assert!(screen.contains("exit code 130"), "{screen}");
    }

    #[test]
    #[should_panic(expected = "it ended before that")]
    fn a_question_that_is_never_asked_is_an_error() {
        run(Terminal::default(), "echo none").converse(&[("name?", "x\n")]);
    }
}
