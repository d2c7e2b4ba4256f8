//! The only place that prints: data on stdout, talk on stderr.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::ValueEnum;
use dialoguer::console::{Term, measure_text_width};
use owo_colors::OwoColorize;
use serde::Serialize;
use serde_json::json;
use tenon_installer_core::apply::Progress;
use tenon_installer_core::plan::text::{Line, Tone};
use tenon_installer_core::words::count;

/// What is printed on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable.
    #[default]
    #[value(alias = "table")]
    Text,
    /// Machine-readable, as JSON.
    Json,
    /// Machine-readable, as YAML.
    Yaml,
}

/// A failure as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReport {
    /// A short word for programs.
    pub kind: &'static str,
    /// How the program will end.
    pub exit_code: u8,
    /// What failed and what is behind it, in one line.
    pub message: String,
    /// The single facts behind it, one per line.
    pub details: Vec<String>,
    /// What to do next.
    pub hints: Vec<String>,
}

/// Prints results and talk.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    format: OutputFormat,
    quiet: bool,
}

impl Printer {
    /// Prints in this format; `quiet` keeps the talk away.
    pub fn new(format: OutputFormat, quiet: bool) -> Self {
        Self { format, quiet }
    }

    /// The format of results.
    pub fn format(&self) -> OutputFormat {
        self.format
    }

    /// Somebody is looking: stdin and stderr are terminals.
    pub fn is_interactive() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// A result for people, on stdout, unless programs read it.
    pub fn text(&self, text: &str) {
        if self.format == OutputFormat::Text {
            // A reader that went away wants nothing more.
            let _ = writeln!(anstream::stdout(), "{text}");
        }
    }

    /// Lines as a result for people, on stdout, unless programs read it: wrapped to the terminal
    /// and colored if there is one.
    pub fn lines(&self, lines: &[Line]) {
        if self.format == OutputFormat::Text {
            let width = columns(&Term::stdout());
            for line in lines.iter().flat_map(|line| line.wrapped(width)) {
                let _ = writeln!(anstream::stdout(), "{}", colored(&line));
            }
        }
    }

    /// The same as talk, on stderr.
    pub fn note_lines(&self, lines: &[Line]) {
        let width = columns(&Term::stderr());
        for line in lines.iter().flat_map(|line| line.wrapped(width)) {
            self.note(&colored(&line));
        }
    }

    /// The width of the terminal that results are for, if they are for one.
    pub fn width(&self) -> Option<usize> {
        columns(&Term::stdout())
    }

    /// A result as it is, on stdout, whatever the format.
    pub fn raw(&self, text: &str) {
        let _ = writeln!(anstream::stdout(), "{}", text.trim_end());
    }

    /// A result for programs, on stdout, if programs read it.
    pub fn json(&self, value: &impl Serialize) {
        let text = match self.format {
            OutputFormat::Text => return,
            OutputFormat::Json => serde_json::to_string_pretty(value).ok(),
            OutputFormat::Yaml => serde_saphyr::to_string(value).ok(),
        };
        let text = text.expect("results are maps, lists and scalars, which always serialise");
        let _ = writeln!(anstream::stdout(), "{}", text.trim_end());
    }

    /// Prose as a result for people, wrapped to the terminal if there is one.
    pub fn prose(&self, text: &str) {
        self.text(&folded(text, columns(&Term::stdout())));
    }

    /// Talk, on stderr, wrapped to the terminal if there is one.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(anstream::stderr(), "{}", folded(text, columns(&Term::stderr())));
        }
    }

    /// Takes a line away that is written again and again, so that others can be written meanwhile.
    pub fn interrupt_line(&self) {
        if !self.quiet && std::io::stderr().is_terminal() {
            let _ = write!(anstream::stderr(), "\r\x1b[2K");
        }
    }

    /// Something that a person should know, on stderr.
    pub fn warn(&self, text: &str) {
        self.note(&format!("{} {text}", "warning:".yellow().bold()));
    }

    /// One line per thing that was done.
    pub fn done(&self, resource: &str, what: &str, took: Duration) {
        let dots = ".".repeat(56_usize.saturating_sub(resource.chars().count()).max(2));
        self.note(&format!(
            " {} {resource} {} {what:<8} {:>5.1} s",
            "✔".green(),
            dots.dimmed(),
            took.as_secs_f64()
        ));
    }

    /// A failure: what, why, and what to do.
    pub fn error(&self, error: &ErrorReport) {
        if self.format != OutputFormat::Text {
            self.json(&json!({"error": {
                "kind": error.kind,
                "exitCode": error.exit_code,
                "message": error.message,
                "details": error.details,
                "hints": error.hints,
            }}));
        }
        let mut stderr = anstream::stderr();
        let _ = writeln!(stderr, "{} {}", "error:".red().bold(), error.message);
        for detail in &error.details {
            let _ = writeln!(stderr, "  {detail}");
        }
        for hint in &error.hints {
            let _ = writeln!(stderr, "{} {hint}", "hint:".cyan().bold());
        }
    }
}

impl Progress for Printer {
    fn done(&self, resource: &str, what: &str, took: Duration) {
        Self::done(self, resource, what, took);
    }

    fn note(&self, text: &str) {
        Self::note(self, text);
    }
}

/// A screen that is shown again and again: on a terminal in place, elsewhere one below the other.
pub struct Frame {
    printer: Printer,
    /// The terminal, if it can be redrawn.
    terminal: Option<Term>,
    /// Lines of the last one.
    shown: usize,
}

impl Frame {
    /// Nothing is shown yet. `term` is the terminal's type.
    pub fn new(printer: Printer, term: Option<&str>) -> Self {
        let terminal = Term::stdout();
        let redraws = terminal.is_term() && term != Some("dumb");
        Self { printer, terminal: redraws.then_some(terminal), shown: 0 }
    }

    /// Whether a screen replaces the one before.
    pub fn is_in_place(&self) -> bool {
        self.terminal.is_some()
    }

    /// Shows a title, lines and a text that is wrapped already. What does not fit on the terminal
    /// is left out, and said to be.
    pub fn show(&mut self, title: &str, lines: &[Line], text: Option<&str>) {
        if self.printer.format != OutputFormat::Text {
            return;
        }
        let width = self.printer.width();
        let wrapped = lines.iter().flat_map(|line| line.wrapped(width)).map(|line| colored(&line));
        let text = text.map(|text| format!("\n{text}")).unwrap_or_default();
        let text = text.lines().map(str::to_owned);
        let all = std::iter::once(title.to_owned()).chain(wrapped).chain(text).collect::<Vec<_>>();
        let Some(terminal) = &self.terminal else {
            self.printer.text(&all.join("\n"));
            return;
        };
        let rows = usize::from(terminal.size().0).max(2);
        let all = cut(all, rows - 1);
        // A terminal that went away can't be told so.
        let _ = terminal.move_cursor_up(self.shown);
        let _ = terminal.clear_to_end_of_screen();
        self.printer.text(&all.join("\n"));
        self.shown = all.len();
    }
}

/// So many lines; the last one counts those that are left out.
fn cut(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if lines.len() > most {
        let more = lines.len() - most.saturating_sub(1);
        lines.truncate(most.saturating_sub(1));
        lines.push(format!("… {}", count(more, "more line")));
    }
    lines
}

/// The width of a terminal; `None` where there is none, and lines may be as long as they are.
pub fn columns(terminal: &Term) -> Option<usize> {
    terminal.is_term().then(|| usize::from(terminal.size().1)).filter(|columns| *columns > 0)
}

/// Lines broken at spaces, those after the first with two more columns of indentation. Commands to
/// copy stay whole: in backticks, after an arrow, and indented by four columns.
fn folded(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let fold = |line: &str| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let is_command = indent == 4 || line.contains('`') || line.contains('→');
        if is_command || measure_text_width(line) <= width {
            return line.to_owned();
        }
        let mut folded = " ".repeat(indent);
        let mut column = indent;
        for word in line.split_whitespace() {
            let length = measure_text_width(word);
            if column > indent && column + 1 + length > width {
                folded += "\n";
                folded += &" ".repeat(indent + 2);
                column = indent + 2;
            } else if column > indent {
                folded.push(' ');
                column += 1;
            }
            folded += word;
            column += length;
        }
        folded
    };
    text.split('\n').map(fold).collect::<Vec<_>>().join("\n")
}

/// A line with its colors, which are dropped when it is printed where there are none.
fn colored(line: &Line) -> String {
    let parts = line.parts().map(|(tone, text)| match tone {
        Tone::Plain => text.to_owned(),
        Tone::Heading => text.bold().to_string(),
        Tone::Added => text.green().to_string(),
        Tone::Changed | Tone::Mark => text.yellow().to_string(),
        Tone::Removed => text.red().to_string(),
    });
    let text = parts.collect::<String>();
    format!("{}{text}", line.indentation()).trim_end().to_owned()
}

/// The width of a terminal that does not say its own.
const WIDTH: usize = 80;

/// What is being waited for, on one line. On a terminal the line is written again and again,
/// elsewhere once for every change.
pub struct StatusLine {
    printer: Printer,
    on_terminal: bool,
    last: String,
}

impl StatusLine {
    /// Nothing is shown yet.
    pub fn new(printer: Printer) -> Self {
        let on_terminal = !printer.quiet && std::io::stderr().is_terminal();
        Self { printer, on_terminal, last: String::new() }
    }

    /// Shows what is waited for, and since when.
    pub fn show(&mut self, what: &str, since: Duration) {
        if self.on_terminal {
            let mut stderr = anstream::stderr();
            let width = columns(&Term::stderr()).unwrap_or(WIDTH);
            let _ = write!(stderr, "\r\x1b[2K{}", shortened(what, since, width));
            let _ = stderr.flush();
        } else if self.last != what {
            self.printer.note(&format!("   {what}"));
        }
        what.clone_into(&mut self.last);
    }

    /// Takes the line away.
    pub fn end(&mut self) {
        if self.on_terminal && !self.last.is_empty() {
            let mut stderr = anstream::stderr();
            let _ = write!(stderr, "\r\x1b[2K");
            let _ = stderr.flush();
        }
        self.last.clear();
    }
}

/// The line of a wait on a terminal of this width. It is written again and again: a longer one
/// would wrap, and leave its first part behind.
fn shortened(what: &str, since: Duration, width: usize) -> String {
    let clock = format!(" {} s", since.as_secs());
    let room = width.saturating_sub(4 + clock.chars().count());
    let what = if what.chars().count() > room {
        what.chars().take(room.saturating_sub(1)).chain(['…']).collect()
    } else {
        what.to_owned()
    };
    format!("   {what}{clock}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_only_around_the_text() {
        let line = Line::plain("  kept").with(Tone::Added, " +").with(Tone::Mark, " mark");
        assert_eq!(colored(&line), "  kept\u{1b}[32m +\u{1b}[39m\u{1b}[33m mark\u{1b}[39m");
        let mut plain = anstream::StripStream::new(Vec::new());
        plain.write_all(colored(&line).as_bytes()).expect("it is in memory");
        assert_eq!(plain.into_inner(), b"  kept + mark");
    }

    #[test]
    fn prose_is_broken_at_spaces_and_commands_are_not() {
        assert_eq!(folded("one two three", None), "one two three");
        assert_eq!(folded("one two three\nfour", Some(8)), "one two\n  three\nfour");
        assert_eq!(
            folded("  \u{1b}[1mone two\u{1b}[0m x", Some(9)),
            "  \u{1b}[1mone two\u{1b}[0m\n    x"
        );
        for command in
            ["run `tenon install` now", "     → tenon install now", "    tenon install now"]
        {
            assert_eq!(folded(command, Some(8)), command);
        }
    }

    #[test]
    fn a_screen_is_never_taller_than_its_terminal() {
        let lines = || (1..=5).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(cut(lines(), 5), lines());
        assert_eq!(cut(lines(), 4), ["1", "2", "3", "… 2 more lines"]);
    }

    #[test]
    fn a_line_that_is_written_again_never_wraps() {
        let short = shortened("operator: 0 of 2 pods", Duration::from_secs(7), 80);
        assert_eq!(short, "   operator: 0 of 2 pods 7 s");
        for width in [40, 60, 80, 120] {
            let long = shortened(&"x".repeat(200), Duration::from_secs(1234), width);
            assert_eq!(long.chars().count(), width - 1);
            assert!(long.ends_with("… 1234 s"), "{long}");
        }
    }
}
