//! What is wrong with a file of manifests: where, and what is allowed there.

use std::fmt;
use std::path::PathBuf;

use super::documents::Document;

/// Stands for the file in problems of manifests that are no file.
pub(super) const TYPED: &str = "manifest";

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it was read.
    pub file: PathBuf,
    /// Which document of the file, from 1; and which item of it, from 0, if it is a list.
    pub document: (usize, Option<usize>),
    /// The line that the document, or what is wrong in it, starts on.
    pub line: usize,
    /// `Kind namespace/name`, as far as known.
    pub object: String,
    /// The path of the field, such as `spec.containers[0].resources`.
    pub path: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl Problem {
    /// Of a document as a whole.
    pub(super) fn of(document: &Document<'_>, message: impl Into<String>) -> Self {
        Self {
            file: document.file.to_owned(),
            document: (document.number, document.item),
            line: document.line,
            object: String::new(),
            path: String::new(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: document {}", self.file.display(), self.line, self.document.0)?;
        if let Some(item) = self.document.1 {
            write!(f, ", items[{item}]")?;
        }
        if !self.object.is_empty() {
            write!(f, ", {}", self.object)?;
        }
        f.write_str(": ")?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// What serde says about a value, in words of manifests: what is there, then what is allowed.
pub(super) fn in_words(error: &str) -> String {
    let error = error.split(" at line ").next().unwrap_or_default();
    let Some((found, expected)) = error
        .strip_prefix("invalid type: ")
        .or_else(|| error.strip_prefix("invalid value: "))
        .and_then(|error| error.split_once(", expected "))
    else {
        return match error.split_once(", expected ") {
            Some((found, expected)) => format!("{found}; allowed: {}", expected.replace('`', "")),
            None => error.to_owned(),
        };
    };
    let found = match found {
        "sequence" => "a list".to_owned(),
        "map" => "a map".to_owned(),
        "unit value" | "null" => "nothing".to_owned(),
        found => found
            .split_once(' ')
            .filter(|(word, _)| ["string", "integer", "boolean", "floating"].contains(word))
            .map_or(found, |(_, value)| value.trim_start_matches("point "))
            .replace('`', ""),
    };
    let allowed = match expected {
        "i32" | "i64" | "u16" | "u32" | "u64" => "a whole number",
        "a string" => "a text",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        expected if expected.starts_with("struct ") => "a map",
        expected => expected,
    };
    format!("{found} is not allowed; allowed: {allowed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serde_says_becomes_what_is_allowed() {
        for (said, words) in [
            (
                "invalid type: string \"three\", expected i32 at line 1 column 2",
                "\"three\" is not allowed; allowed: a whole number",
            ),
            ("invalid type: map, expected a sequence", "a map is not allowed; allowed: a list"),
            ("invalid type: integer `3`, expected a string", "3 is not allowed; allowed: a text"),
            (
                "unknown variant `Never`, expected `In` or `NotIn`",
                "unknown variant `Never`; allowed: In or NotIn",
            ),
            ("missing field `spec`", "missing field `spec`"),
        ] {
            assert_eq!(in_words(said), words);
        }
    }
}
