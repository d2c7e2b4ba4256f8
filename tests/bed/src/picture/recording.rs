//! Commands that were typed one after the other, as a terminal shows them: lines appear in the
//! order in which they were printed, and waits are shortened, with their time beside them.

use std::fmt::Write;

use super::Typed;
use super::svg::{escaped, picture};
use super::terminal::{COLUMNS, LINE, MARGIN, width};

/// Lines that are shown at a time.
const ROWS: usize = 28;

/// Seconds before a command is typed, so that what is above can be read.
const PAUSE: f64 = 1.6;

/// Seconds between two lines of an output, at most.
const BETWEEN: f64 = 0.06;

/// Seconds that an output takes to appear, at most.
const LONGEST: f64 = 2.4;

/// A line, and when it appears.
struct Line {
    at: f64,
    class: &'static str,
    text: String,
}

pub(super) fn draw(commands: &[Typed]) -> String {
    let lines = lines(commands);
    let mut body = String::from("<style>\n");
    body.push_str(STYLE);
    let last = lines.last().map_or(0.0, |line| line.at) + PAUSE;
    body.push_str(&scrolling(&lines, last));
    body.push_str(AT_ONCE);
    let rows = ROWS.min(lines.len());
    let height = rows * LINE + 2 * MARGIN;
    let width = width();
    let _ = write!(
        body,
        "</style>\n<clipPath id=\"window\"><rect x=\"0\" y=\"{}\" width=\"{width}\" height=\"{}\"/>\
         </clipPath>\n<g clip-path=\"url(#window)\"><g class=\"scrolling\">\n",
        MARGIN / 2,
        height - MARGIN
    );
    for (index, Line { at, class, text }) in lines.iter().enumerate() {
        if text.is_empty() {
            continue;
        }
        let y = MARGIN + LINE * index + 15;
        let _ = writeln!(
            body,
            "<text class=\"line {class}\" x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\" \
             style=\"animation-delay:{at:.2}s\">{}</text>",
            escaped(text)
        );
    }
    body.push_str("</g></g>\n");
    picture(width, height, "From an EKS cluster to the first node, and back", &body)
}

/// Lines become visible one by one.
const STYLE: &str = "\
  .line { opacity: 0; animation: shown 1ms linear forwards; }
  @keyframes shown { to { opacity: 1; } }
";

/// Where people want no motion, the last screen is shown at once. After all other rules.
const AT_ONCE: &str = "\
  @media (prefers-reduced-motion: reduce) {
    .line { opacity: 1; animation: none; }
    .scrolling { animation-delay: -9999s; }
  }
";

/// The steps by which lines move up once the window is full.
fn scrolling(lines: &[Line], last: f64) -> String {
    let mut steps = String::new();
    let mut before = None;
    for (index, line) in lines.iter().enumerate().skip(ROWS) {
        // Those that appear together move as one.
        let percent = format!("{:.3}", 100.0 * line.at / last);
        let up = (index + 1 - ROWS) * LINE;
        if before.as_ref() == Some(&percent) {
            steps.truncate(steps.rfind("    ").unwrap_or(0));
        }
        let _ = writeln!(steps, "    {percent}% {{ transform: translateY(-{up}px); }}");
        before = Some(percent);
    }
    let all = lines.len().saturating_sub(ROWS) * LINE;
    format!(
        "  .scrolling {{ animation: up {last:.2}s step-end forwards; }}\n  @keyframes up {{\n{steps}    \
         100% {{ transform: translateY(-{all}px); }}\n  }}\n"
    )
}

fn lines(commands: &[Typed]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut at = 0.4;
    for Typed { command, output, seconds } in commands {
        let mut add = |at, class, text: &str| {
            lines.extend(broken(text).into_iter().map(|text| Line { at, class, text }));
        };
        add(at, "bold", &format!("$ {command}"));
        at += 0.5;
        let printed: Vec<&str> = output.trim_end().lines().collect();
        #[expect(clippy::cast_precision_loss, reason = "a few hundred lines")]
        let pace = BETWEEN.min(LONGEST / printed.len().max(1) as f64);
        for line in printed {
            add(at, "", line);
            at += pace;
        }
        if *seconds >= 1.0 {
            add(at, "dim", &format!("({seconds:.0} s)"));
        }
        add(at, "", "");
        at += PAUSE;
    }
    // Nothing is typed after the last one.
    lines.pop();
    lines
}

/// Lines of at most [`COLUMNS`] characters, as terminals break them.
fn broken(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.trim_end().chars().collect();
    if characters.is_empty() {
        return vec![String::new()];
    }
    characters.chunks(COLUMNS).map(|chunk| chunk.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(lines: usize, seconds: f64) -> Typed {
        let output = (0..lines).fold(String::new(), |text, n| format!("{text}line {n}\n"));
        Typed { command: "tenon <plan>".to_owned(), output, seconds }
    }

    #[test]
    fn lines_appear_in_order_and_long_waits_are_told() {
        let lines = lines(&[typed(3, 0.2), typed(2, 31.4)]);
        assert!(lines.iter().map(|line| line.at).is_sorted());
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "$ tenon <plan>",
                "line 0",
                "line 1",
                "line 2",
                "",
                "$ tenon <plan>",
                "line 0",
                "line 1",
                "(31 s)",
            ]
        );
    }

    #[test]
    fn a_full_window_moves_up_and_markup_stays_text() {
        let picture = draw(&[typed(40, 2.0)]);
        assert!(picture.contains("tenon &lt;plan&gt;"));
        // 40 lines, the command and its time.
        let all = (42 - ROWS) * LINE;
        assert!(picture.contains(&format!("100% {{ transform: translateY(-{all}px); }}")));
    }

    #[test]
    fn lines_are_broken_where_the_terminal_ends() {
        let lines = broken(&"x".repeat(COLUMNS + 1));
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [COLUMNS, 1]);
        assert_eq!(broken(""), [""]);
    }
}
