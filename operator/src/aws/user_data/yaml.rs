//! Writes JSON values as YAML in the layout that Kubernetes tools use: block style, keys sorted,
//! two spaces.

use std::collections::BTreeMap;

use serde_json::Value;

/// The value as a YAML document, ending with a line end.
pub(super) fn write(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            for (key, value) in sorted {
                pad(indent, text);
                text.push_str(&scalar(key));
                text.push(':');
                member(value, indent, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                pad(indent, text);
                text.push('-');
                if let Value::Object(map) = item
                    && !map.is_empty()
                {
                    // The first key stands behind the dash, the others below it.
                    let mut lines = String::new();
                    block(item, indent + 2, &mut lines);
                    text.push(' ');
                    text.push_str(lines.trim_start());
                } else {
                    member(item, indent + 2, text);
                }
            }
        }
        _ => {
            pad(indent, text);
            text.push_str(&flow(value));
            text.push('\n');
        }
    }
}

fn member(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            text.push('\n');
            block(value, indent + 2, text);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            block(value, indent, text);
        }
        _ => {
            text.push(' ');
            text.push_str(&flow(value));
            text.push('\n');
        }
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(string) => scalar(string),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// Plain where no reader can take it for anything but this string, quoted otherwise.
fn scalar(string: &str) -> String {
    const WORDS: [&str; 12] =
        ["true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf", "~"];
    let plain = string.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && string.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && !WORDS.contains(&string.to_ascii_lowercase().as_str());
    let url = string.starts_with("https://")
        && string.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c))
        && !string.ends_with(':');
    if plain || url {
        string.to_owned()
    } else if string.chars().any(char::is_control) {
        // JSON's strings are YAML's double-quoted strings.
        Value::String(string.to_owned()).to_string()
    } else {
        format!("'{}'", string.replace('\'', "''"))
    }
}

fn pad(indent: usize, text: &mut String) {
    text.extend(std::iter::repeat_n(' ', indent));
}
