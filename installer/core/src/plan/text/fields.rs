//! How one change reads: a sign, the path, and `before → after`.

use serde_json::{Map, Value};

use super::line::{Line, Tone};
use crate::plan::change::{Change, Origin, Path, Segment};
use crate::words::count;

/// The longest text that is printed.
const LONGEST: usize = 200;
/// The longest list that is printed.
const LONGEST_LIST: usize = 1000;
/// How many lines of one value are printed.
const MOST: usize = 12;
/// How long what a list gains and loses may be to stand on one line.
const SHORT: usize = 48;

/// The lines of a change.
pub(super) fn lines(change: &Change) -> Vec<Line> {
    let (before, after) = (change.shown_before(), change.shown_after());
    let (sign, tone) = match (&before, &after) {
        (None, _) => ("+", Tone::Added),
        (_, None) => ("-", Tone::Removed),
        _ => ("~", Tone::Changed),
    };
    let line = Line::new(5, 9).with(tone, sign).with(Tone::Plain, &format!(" {}:", change.path));
    let mark = |line: Line| match &change.origin {
        Origin::Settings => line,
        Origin::Outside { by } if by.is_empty() => {
            line.with(Tone::Mark, "  (changed outside tenon)")
        }
        Origin::Outside { by } => {
            line.with(Tone::Mark, &format!("  (changed outside tenon, by {})", by.join(" and ")))
        }
    };
    match (&before, &after) {
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            let gained = beyond(after, before);
            let lost = beyond(before, after);
            list(line, &mark, &gained, &lost)
        }
        (Some(before), Some(after)) => {
            let (mut from, mut to) = (value(before), value(after));
            if from == to && before != after {
                // A number and a text of the same digits.
                (from, to) = (before.to_string(), after.to_string());
            }
            vec![mark(line.with(Tone::Plain, &format!(" {from} → {to}")))]
        }
        (Some(Value::Object(map)), None) | (None, Some(Value::Object(map))) => {
            // The path says its key.
            let fields = sorted(map).into_iter().filter(|(key, _)| !is_key(&change.path, key));
            let fields = fields.map(|(key, field)| format!("{key}: {}", value(field)));
            let mut lines = vec![mark(line)];
            lines.extend(shortened(fields.collect()).iter().map(|field| below(Tone::Plain, field)));
            lines
        }
        (Some(one), None) | (None, Some(one)) => {
            vec![mark(line.with(Tone::Plain, &format!(" {}", value(one))))]
        }
        (None, None) => Vec::new(),
    }
}

fn is_key(path: &Path, field: &str) -> bool {
    matches!(path.0.last(), Some(Segment::Element { key, .. }) if *key == field)
}

/// Fields in an order that does not depend on who wrote them.
fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields = map.iter().collect::<Vec<_>>();
    fields.sort_unstable_by_key(|(key, _)| *key);
    fields
}

fn below(tone: Tone, text: &str) -> Line {
    Line::new(9, 13).with(tone, text)
}

fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(MOST);
    if more > 0 {
        lines.truncate(MOST);
        lines.push(format!("… {} more (-o json shows all)", count(more, "line")));
    }
    lines
}

/// Elements of a list that another one lacks, as often as it lacks them.
fn beyond(list: &[Value], other: &[Value]) -> Vec<String> {
    let mut other = other.to_vec();
    let mut beyond = Vec::new();
    for element in list {
        match other.iter().position(|there| there == element) {
            Some(at) => drop(other.swap_remove(at)),
            None => beyond.push(value(element)),
        }
    }
    beyond
}

fn list(line: Line, mark: &dyn Fn(Line) -> Line, gained: &[String], lost: &[String]) -> Vec<Line> {
    if gained.is_empty() && lost.is_empty() {
        return vec![mark(line.with(Tone::Plain, " in another order"))];
    }
    let signed = |sign: &str, texts: &[String]| {
        texts.iter().map(|text| format!("{sign} {text}")).collect::<Vec<_>>()
    };
    let all = [signed("+", gained), signed("-", lost)].concat();
    let inline = all.join(", ");
    if inline.chars().count() <= SHORT {
        return vec![mark(line.with(Tone::Plain, &format!(" {inline}")))];
    }
    let tone = |text: &str| match text.chars().next() {
        Some('+') => Tone::Added,
        Some('-') => Tone::Removed,
        _ => Tone::Plain,
    };
    let mut lines = vec![mark(line)];
    lines.extend(shortened(all).iter().map(|text| below(tone(text), text)));
    lines
}

/// A value on one line, if it is short enough to be read.
fn value(value: &Value) -> String {
    let text = flow(value);
    let n = text.chars().count();
    // The actions of a statement are what its reader looks for.
    let longest = if value.is_array() { LONGEST_LIST } else { LONGEST };
    if n <= longest && !text.contains('\n') {
        return text;
    }
    match value {
        Value::Array(list) => format!("({})", count(list.len(), "element")),
        Value::Object(map) => format!("({})", count(map.len(), "field")),
        _ => format!("({})", count(n, "character")),
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::Array(list) => list.iter().map(nested).collect::<Vec<_>>().join(", "),
        other => nested(other),
    }
}

fn nested(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() || text.trim() != text => format!("{text:?}"),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            format!("[{}]", list.iter().map(nested).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let inner = sorted(map).into_iter();
            let inner = inner.map(|(key, value)| format!("{key}: {}", nested(value)));
            format!("{{{}}}", inner.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
