//! The demo as a terminal shows it.

use std::fmt::Write;

use super::svg::{escaped, picture};
use super::{Chapter, Recorded};

pub(super) const COLUMNS: usize = 100;
/// Width of a character and height of a line at 14 px.
const CHARACTER: f64 = 8.43;
pub(super) const LINE: usize = 20;
pub(super) const MARGIN: usize = 20;

/// A piece of a line, with its class.
type Piece = (&'static str, String);

pub(super) fn draw(recorded: &Recorded) -> String {
    let mut lines = vec![vec![("dim", "$ ".to_owned()), ("bold", "cargo sandbox".to_owned())]];
    for (index, chapter) in recorded.chapters.iter().enumerate() {
        lines.push(Vec::new());
        lines.extend(chapter_lines(index + 1, chapter));
    }
    let needed = recorded.statements.iter().filter(|statement| !statement.calls.is_empty()).count();
    let ends = [
        String::new(),
        format!(
            "The operator needed {needed} of the {} statements of its policies.",
            recorded.statements.len()
        ),
        String::new(),
        format!("Done after {:.0} s. Nothing is left.", recorded.seconds),
    ];
    lines.extend(ends.into_iter().map(|text| vec![("", text)]));
    let mut body = String::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let y = MARGIN + LINE * index + 15;
        let _ = write!(body, "<text x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\">");
        for (class, text) in line {
            let text = escaped(text);
            let _ = match *class {
                "" => write!(body, "{text}"),
                class => write!(body, "<tspan class=\"{class}\">{text}</tspan>"),
            };
        }
        body.push_str("</text>\n");
    }
    picture(width(), lines.len() * LINE + 2 * MARGIN, "cargo sandbox in a terminal", &body)
}

/// Of a picture of a terminal.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a hundred columns"
)]
pub(super) fn width() -> usize {
    (COLUMNS as f64 * CHARACTER).ceil() as usize + 2 * MARGIN
}

fn chapter_lines(number: usize, chapter: &Chapter) -> Vec<Vec<Piece>> {
    let mut lines = vec![vec![("dim", format!("{number}. ")), ("bold", chapter.title.clone())]];
    lines.extend(wrapped(&chapter.shows, "   ").map(|line| vec![("dim", line)]));
    for note in &chapter.notes {
        lines.extend(wrapped(&format!("• {note}"), "   ").map(|line| vec![("", line)]));
    }
    let seconds = format!(" {:.1} s", chapter.seconds);
    lines.push(vec![("", "   ".to_owned()), ("good", "✔".to_owned()), ("", seconds)]);
    lines
}

/// Lines of at most [`COLUMNS`] characters, broken between words.
fn wrapped(text: &str, indent: &str) -> impl Iterator<Item = String> {
    let mut lines = vec![indent.to_owned()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("one at least");
        let is_first = line.len() == indent.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("{indent}{word}"));
        } else {
            if !is_first {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words_and_begin_with_the_indent() {
        let text = ["word"; 25].join(" ");
        let lines = wrapped(&text, "   ").collect::<Vec<_>>();
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [97, 32]);
        assert!(lines.iter().all(|line| line.starts_with("   word")));
    }
}
