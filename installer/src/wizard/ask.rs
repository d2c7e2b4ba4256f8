//! How a question is put to a person, line by line, so that it works on every terminal and over
//! every connection.

use std::io::{self, Write};

use owo_colors::OwoColorize;
use tenon_installer_core::plan::text::{Line, Tone};
use tokio::task::spawn_blocking;

/// A question as it is put.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Question {
    /// What is asked.
    pub text: String,
    /// What `?` explains.
    pub help: &'static str,
    /// What can be chosen, by number; empty for a free answer.
    pub choices: Vec<String>,
    /// What an empty answer means.
    pub default: String,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// An answer; the default where nothing was typed.
    Answer(String),
    /// Back to the question before.
    Back,
}

/// Puts questions to somebody.
pub(crate) trait Ask {
    /// Puts a question, and explains it as often as that is asked for.
    fn ask(&mut self, question: &Question) -> impl Future<Output = io::Result<Reply>>;
    /// Tells something.
    fn say(&mut self, text: &str);
}

/// Asks on the terminal: questions on stderr, answers from stdin.
pub(crate) struct Terminal {
    width: usize,
}

impl Default for Terminal {
    fn default() -> Self {
        let (_, columns) = dialoguer::console::Term::stderr().size();
        Self { width: usize::from(columns) }
    }
}

impl Ask for Terminal {
    async fn ask(&mut self, question: &Question) -> io::Result<Reply> {
        self.say(&screen(question, self.width));
        loop {
            let mut stderr = anstream::stderr();
            write!(stderr, "{}", answer_line(question))?;
            stderr.flush()?;
            let line = read_line().await?;
            match line.trim() {
                "?" => self.say(&wrap(question.help, self.width, "    ")),
                "<" => return Ok(Reply::Back),
                "" => return Ok(Reply::Answer(question.default.clone())),
                answer => return Ok(Reply::Answer(answer.to_owned())),
            }
        }
    }

    fn say(&mut self, text: &str) {
        // A terminal that went away can't be told so.
        let _ = writeln!(anstream::stderr(), "{text}");
    }
}

/// Where the answer is typed, with what an empty one means. Colours are taken out where the
/// terminal has none.
pub(super) fn answer_line(question: &Question) -> String {
    format!("  [{}] {} ", question.default.cyan(), "›".bold())
}

/// A line of the input. It is read on a thread of its own, so that Ctrl-C is noticed meanwhile.
async fn read_line() -> io::Result<String> {
    let read = spawn_blocking(|| {
        let mut line = String::new();
        let n = io::stdin().read_line(&mut line)?;
        if n == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(line) }
    });
    read.await.map_err(io::Error::other)?
}

/// The question with its choices.
pub(super) fn screen(question: &Question, width: usize) -> String {
    let mut lines =
        vec![wrap(&format!("? {}", question.text), width, "  ").trim_start().to_owned()];
    for (i, choice) in question.choices.iter().enumerate() {
        lines.push(wrap(&format!("{}) {choice}", i + 1), width, "    "));
    }
    lines.join("\n")
}

/// Breaks a text at spaces, each line indented, so that no line is wider than the terminal.
pub(super) fn wrap(text: &str, width: usize, indent: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = Line::new(indent.len(), indent.len()).with(Tone::Plain, &words);
    line.wrapped(Some(width)).iter().map(Line::text).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = "The operator gets its permissions by EKS Pod Identity, and the add-on that hands them out is missing. ".repeat(4);
        for width in [40, 80, 120] {
            let wrapped = wrap(&text, width, "    ");
            assert!(wrapped.lines().all(|line| line.chars().count() <= width), "{wrapped}");
            assert!(wrapped.lines().all(|line| line.starts_with("    ")));
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&wrapped), words(&text));
        }
    }

    #[test]
    fn a_question_shows_its_choices_by_number() {
        let question = Question {
            text: "Capacity?".to_owned(),
            help: "",
            choices: vec!["spot".to_owned(), "on-demand".to_owned()],
            default: "1".to_owned(),
        };
        assert_eq!(screen(&question, 80), "? Capacity?\n    1) spot\n    2) on-demand");
    }
}
