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
    /// What belongs to the question, a line each.
    pub notes: Vec<String>,
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

/// More choices than this are put into columns.
const MANY: usize = 12;

/// The question with its choices.
pub(super) fn screen(question: &Question, width: usize) -> String {
    let mut lines =
        vec![wrap(&format!("? {}", question.text), width, "  ").trim_start().to_owned()];
    lines.extend(question.notes.iter().map(|note| wrap(note, width, "    ")));
    let numbered = question.choices.iter().enumerate();
    let numbered = numbered.map(|(i, choice)| format!("{}) {choice}", i + 1)).collect::<Vec<_>>();
    if numbered.len() > MANY {
        lines.extend(columns(&numbered, width));
    } else {
        lines.extend(numbered.iter().map(|choice| wrap(choice, width, "    ")));
    }
    lines.join("\n")
}

/// Short texts in as many columns as the terminal has room for, to be read downwards.
fn columns(texts: &[String], width: usize) -> Vec<String> {
    let widest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let fitting = width.saturating_sub(2) / (widest + 2);
    let height = texts.len().div_ceil(fitting.max(1));
    let row = |row: usize| {
        let cells = texts.iter().skip(row).step_by(height);
        let cells = cells.map(|text| format!("{text:widest$}")).collect::<Vec<_>>().join("  ");
        format!("    {}", cells.trim_end())
    };
    (0..height).map(row).collect()
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
    fn many_choices_stand_in_columns_that_fit() {
        let choices = (1..=30).map(|n| format!("region-{n}")).collect::<Vec<_>>();
        for width in [20, 60, 80, 120] {
            let question = Question { choices: choices.clone(), ..Question::default() };
            let screen = screen(&question, width);
            assert!(screen.lines().all(|line| line.chars().count() <= width), "{screen}");
            assert!((1..=30).all(|n| screen.contains(&format!("{n}) region-{n}"))), "{screen}");
        }
    }

    #[test]
    fn a_question_shows_its_choices_by_number() {
        let question = Question {
            text: "Capacity?".to_owned(),
            help: "",
            notes: vec!["as usual".to_owned()],
            choices: vec!["spot".to_owned(), "on-demand".to_owned()],
            default: "1".to_owned(),
        };
        assert_eq!(
            screen(&question, 80),
            "? Capacity?\n    as usual\n    1) spot\n    2) on-demand"
        );
    }
}
