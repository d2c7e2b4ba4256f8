//! Texts in columns of a terminal. Names and messages come from a cluster that others write to, so
//! nothing gets to the screen that could move the cursor, hide or reorder what stands beside it.

use tenon_installer_core::words::count;
pub(super) use tenon_simulate::age;
use unicode_width::UnicodeWidthChar as _;

/// What stands for a character that is not shown.
const REPLACEMENT: char = '\u{fffd}';

/// Levels of a sparkline, the lowest first.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A text on one line, without what a terminal would obey: control characters, marks that change
/// the direction of writing, and characters without a width that join or hide others.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() { ' ' } else { shown(c) }).collect()
}

fn shown(c: char) -> char {
    let is_hidden = c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        );
    if is_hidden { REPLACEMENT } else { c }
}

fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// The columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// The beginning of a text that takes at most so many columns.
fn beginning(text: &str, most: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, c)| {
        taken += columns(*c);
        taken > most
    });
    end.map_or(text, |(at, _)| &text[..at])
}

/// The end of a text that takes at most so many columns.
fn ending(text: &str, most: usize) -> &str {
    let mut taken = 0;
    let before = text.char_indices().rev().find(|(_, c)| {
        taken += columns(*c);
        taken > most
    });
    before.map_or(text, |(at, c)| &text[at + c.len_utf8()..])
}

/// A text in at most so many columns; where it is cut, its last column says so.
pub(super) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    match most {
        0 => String::new(),
        _ => format!("{}…", beginning(text, most - 1)),
    }
}

/// The same for names that differ at their end: cut in the middle.
pub(super) fn cut_middle(text: &str, most: usize) -> String {
    if width(text) <= most || most < 8 {
        return cut(text, most);
    }
    let last = (most - 1) / 2;
    format!("{}…{}", beginning(text, most - 1 - last), ending(text, last))
}

/// A text in exactly so many columns, from the left.
pub(super) fn left(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let rest = columns.saturating_sub(width(&text));
    format!("{text}{}", " ".repeat(rest))
}

/// A text in exactly so many columns, up to the right.
pub(super) fn right(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let rest = columns.saturating_sub(width(&text));
    format!("{}{text}", " ".repeat(rest))
}

/// A text in lines of at most so many columns: broken at spaces where there are some, and within
/// what is longer. What follows a break is indented as the line is.
pub(super) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let most = most.max(1);
    let mut lines = Vec::new();
    let mut rest = clean(text).trim_end().to_owned();
    let indent = rest.len() - rest.trim_start().len();
    let indent = if indent + 8 > most { 0 } else { indent };
    while width(&rest) > most {
        let first = beginning(&rest, most);
        let at_space = first.rfind(' ').filter(|at| *at > indent);
        let at = match at_space {
            Some(at) => at,
            // A character that is wider than the line.
            None if first.is_empty() => rest.chars().next().map_or(rest.len(), char::len_utf8),
            None => first.len(),
        };
        lines.push(rest[..at].trim_end().to_owned());
        rest = format!("{}{}", " ".repeat(indent), rest[at..].trim_start());
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(rest);
    }
    lines
}

/// `1,000`
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 node`, `1,000 nodes`
pub(super) fn counted(number: usize, noun: &str) -> String {
    count(number, noun).replacen(&number.to_string(), &grouped(number), 1)
}

/// A price in USD, with as many decimals as matter: `$0.0992`, `$12.3400`, `$1234.50`.
pub(super) fn money(usd: f64) -> String {
    if usd.abs() < 100.0 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

/// How much of so many columns is filled by a share in percent.
pub(super) fn bar(percent: i64, columns: usize) -> String {
    let share = usize::try_from(percent.clamp(0, 100)).unwrap_or(0);
    // What is used a little is not empty, and what is not full has room left.
    let filled = match share {
        0 => 0,
        100 => columns,
        _ => (share * columns / 100).clamp(1, columns.saturating_sub(1).max(1)),
    };
    format!("{}{}", "█".repeat(filled), "░".repeat(columns - filled.min(columns)))
}

/// A curve of values in at most so many columns, the last one at the right: from the lowest of them
/// to the highest. Where there are more values than columns, each column is the mean of some.
pub(super) fn sparkline(values: &[f64], columns: usize) -> String {
    if values.is_empty() || columns == 0 {
        return String::new();
    }
    let n = values.len();
    let wide = n.min(columns);
    #[expect(clippy::cast_precision_loss, reason = "some hundred values")]
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let means = (0..wide).map(|column| mean(&values[column * n / wide..((column + 1) * n / wide)]));
    let means = means.collect::<Vec<f64>>();
    let low = means.iter().copied().fold(f64::INFINITY, f64::min);
    let high = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let level = |value: f64| {
        if high <= low {
            return LEVELS[3];
        }
        let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to 7, as it is clamped"
        )]
        let at = (share * 7.0).round() as usize;
        LEVELS[at.min(LEVELS.len() - 1)]
    };
    means.into_iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_the_cursor_or_turns_the_line_around() {
        let hostile = "a\u{1b}[2J\rb\nc\t\u{202e}d\u{200b}e\u{0}\u{9b}31m";
        let shown = clean(hostile);
        assert_eq!(shown, "a\u{fffd}[2J b c \u{fffd}d\u{fffd}e\u{fffd}\u{fffd}31m");
        assert!(!shown.chars().any(char::is_control));
        assert_eq!(width(&shown), shown.chars().count());
    }

    #[test]
    fn wide_characters_take_two_columns_and_are_never_cut_in_two() {
        assert_eq!(width("節点"), 4);
        assert_eq!(cut("節点名", 4), "節…");
        assert_eq!(left("節点", 5), "節点 ");
        assert_eq!(right("節", 4), "  節");
        assert_eq!(cut_middle("節点節点節点節点-x7k2p", 12), "節点節…x7k2p");
        for columns in 0..12 {
            for text in ["節点名節点名節点名", "abcdefghijklmnop", "a節b点c", ""] {
                assert_eq!(width(&left(text, columns)), columns, "{text} in {columns}");
                assert!(width(&cut_middle(text, columns)) <= columns, "{text} in {columns}");
            }
        }
    }

    #[test]
    fn lines_are_broken_at_spaces_and_within_words_that_are_too_long() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("  one two three", 12), ["  one two", "  three"]);
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("節点", 1), ["節", "点"]);
    }

    #[test]
    fn bars_show_that_something_is_used_and_that_something_is_left() {
        assert_eq!(bar(0, 4), "░░░░");
        assert_eq!(bar(1, 4), "█░░░");
        assert_eq!(bar(99, 4), "███░");
        assert_eq!(bar(100, 4), "████");
        assert_eq!(bar(150, 4), "████");
        assert_eq!(bar(-5, 4), "░░░░");
        assert_eq!(bar(50, 1), "█");
    }

    #[test]
    fn curves_go_from_the_lowest_to_the_highest_value() {
        assert_eq!(sparkline(&[1.0, 2.0, 3.0], 10), "▁▅█");
        assert_eq!(sparkline(&[2.0, 2.0], 10), "▄▄");
        assert_eq!(sparkline(&[1.0, 1.0, 3.0, 3.0], 2), "▁█");
        assert_eq!(sparkline(&[], 10), "");
        assert_eq!(sparkline(&[1.0], 0), "");
        assert_eq!(sparkline(&vec![1.0; 1000], 24).chars().count(), 24);
    }

    #[test]
    fn numbers_read_as_elsewhere() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 1000].map(|n| counted(n, "node")), ["1 node", "1,000 nodes"]);
        assert_eq!([0.0992, 12.34, 1234.5].map(money), ["$0.0992", "$12.3400", "$1234.50"]);
    }
}
