//! A YAML document that remembers on which line each of its values is.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A value with the line it starts on.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// From 1; 0 when unknown.
    pub line: u64,
    /// The value.
    pub node: Node,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// `null`, a boolean, a number or a text.
    Scalar(Value),
    /// In the file's order.
    List(Vec<Document>),
    /// A map, in the order of the file. A key's line is known through its value.
    Map(Vec<(String, Document)>),
}

/// The text is no YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where.
    pub line: Option<u64>,
    /// What.
    pub message: String,
}

impl From<Value> for Document {
    /// A value that is in no file.
    fn from(value: Value) -> Self {
        let node = match value {
            Value::Object(map) => {
                Node::Map(map.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
            Value::Array(items) => Node::List(items.into_iter().map(Self::from).collect()),
            scalar => Node::Scalar(scalar),
        };
        Self { line: 0, node }
    }
}

impl Document {
    /// Reads one document.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        // `y` and `no` are texts in YAML 1.2, and in tags and names they are meant as such.
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options::<Self>(text, options).map_err(|error| {
            let line = error.location().map(|location| location.line());
            let message = first_line(&error.to_string());
            // The problem has the line already.
            let place = |text: &str| text.starts_with("line ") && text.contains(" column ");
            let message = match message.split_once(": ") {
                Some((before, after)) if line.is_some() && place(before) => after.to_owned(),
                _ => message,
            };
            SyntaxError { line, message }
        })
    }

    /// The document as JSON.
    pub fn to_json(&self) -> Value {
        self.to_json_without(&|_| false)
    }

    /// The document as JSON without what is at the paths that `leave_out` names.
    pub(crate) fn to_json_without(&self, leave_out: &impl Fn(&str) -> bool) -> Value {
        self.json_at("", leave_out)
    }

    fn json_at(&self, path: &str, leave_out: &impl Fn(&str) -> bool) -> Value {
        match &self.node {
            Node::Scalar(value) => value.clone(),
            Node::List(items) => {
                let items =
                    items.iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item));
                let kept = items.filter(|(path, _)| !leave_out(path));
                Value::Array(kept.map(|(path, item)| item.json_at(&path, leave_out)).collect())
            }
            Node::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    (key, path, value)
                });
                let kept = entries.filter(|(_, path, _)| !leave_out(path));
                kept.map(|(key, path, value)| (key.clone(), value.json_at(&path, leave_out)))
                    .collect::<Map<_, _>>()
                    .into()
            }
        }
    }

    /// The line of the value at a path, if that is the value there.
    pub(crate) fn line_of_value(&self, path: &str, value: &str) -> Option<u64> {
        let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
        let is_there = match self.to_json().pointer(&pointer)? {
            Value::String(text) => text == value,
            Value::Number(number) => number.to_string() == value,
            _ => false,
        };
        self.line_of(path).filter(|_| is_there)
    }

    /// The line of the value at a path such as `network.subnetIds[1]`, or of the nearest thing
    /// around it that is there.
    pub(crate) fn line_of(&self, path: &str) -> Option<u64> {
        let mut here = self;
        for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
            let next = match &here.node {
                Node::Map(entries) => {
                    entries.iter().find(|(key, _)| key == part).map(|(_, value)| value)
                }
                Node::List(items) => {
                    part.trim_end_matches(']').parse::<usize>().ok().and_then(|i| items.get(i))
                }
                Node::Scalar(_) => None,
            };
            match next {
                Some(next) => here = next,
                None => break,
            }
        }
        (here.line > 0).then_some(here.line)
    }
}

/// The first line of a message; the parser's goes on with a picture of the place.
pub fn first_line(message: &str) -> String {
    message
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned()
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Node>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), node: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map, a list or a scalar")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Node::Map(map))
    }
}
