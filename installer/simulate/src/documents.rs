//! Files cut into documents: pieces that can be parsed on their own, and so side by side.
//!
//! A list of 20,000 pods is one YAML document of 60 MB. Cut at its items it is 20,000 small ones.
//! Cutting looks at lines and brackets only; what a piece says is decided by the parsers.

use std::borrow::Cow;
use std::path::Path;

/// `apiVersion` and `kind`.
pub(super) type Header<'a> = (&'a str, &'a str);

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Document<'a> {
    /// For messages.
    pub(super) file: &'a Path,
    /// Which document of the file, from 1.
    pub(super) number: usize,
    /// Which item of the list that the document is, from 0.
    pub(super) item: Option<usize>,
    /// `apiVersion` and `kind` of that list, as far as they can be told: the items of a PodList
    /// need not say that they are Pods.
    pub(super) list: Option<Header<'a>>,
    /// The line that it starts on, from 1.
    pub(super) line: usize,
    /// What it says.
    pub(super) text: &'a str,
    /// In which notation.
    pub(super) notation: Notation,
}

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// An item of a YAML list: `- ` stands before its first line.
    YamlItem,
}

impl<'a> Document<'a> {
    /// The document as YAML that stands for itself.
    pub(super) fn standalone(&self) -> Cow<'a, str> {
        match self.notation {
            Notation::Json | Notation::Yaml => Cow::Borrowed(self.text),
            Notation::YamlItem => Cow::Owned(self.text.replacen('-', " ", 1)),
        }
    }

    /// `apiVersion` and `kind`, where they can be told without parsing.
    pub(super) fn header(&self) -> Option<Header<'a>> {
        if self.notation == Notation::Json {
            return None;
        }
        let own = self.text.lines().find(|line| is_content(line)).map_or(0, |line| {
            indent(line) + if self.notation == Notation::YamlItem { 2 } else { 0 }
        });
        let mut api_version = None;
        let mut kind = None;
        for (index, line) in self.text.lines().enumerate() {
            let first = index == 0 && self.notation == Notation::YamlItem;
            let line = if first {
                line.trim_start().strip_prefix('-').unwrap_or(line).trim_start()
            } else if line.len() > own && indent(line) == own {
                &line[own..]
            } else {
                continue;
            };
            if let Some(value) = line.strip_prefix("apiVersion:") {
                api_version = plain(value);
            } else if let Some(value) = line.strip_prefix("kind:") {
                kind = plain(value);
            }
            if let (Some(api_version), Some(kind)) = (api_version, kind) {
                return Some((api_version, kind));
            }
        }
        None
    }
}

/// A scalar that means what it looks like.
fn plain(value: &str) -> Option<&str> {
    let value = value.split(" #").next().unwrap_or_default().trim();
    let quoted = |quote| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    let simple = |c: char| c.is_ascii_alphanumeric() || ".-/".contains(c);
    (!value.is_empty() && value.chars().all(simple)).then_some(value)
}

/// Cuts a file.
pub(super) fn cut<'a>(file: &'a Path, text: &'a str) -> Vec<Document<'a>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    if text.trim_start().starts_with(['{', '[']) && !text.contains("\n---") {
        cut_json(file, text, &mut documents);
    } else {
        cut_yaml(file, text, &mut documents);
    }
    documents
}

fn cut_yaml<'a>(file: &'a Path, text: &'a str, documents: &mut Vec<Document<'a>>) {
    let mut number = 0;
    let mut start = 0;
    let mut start_line = 1;
    let mut take = |start: usize, end: usize, line: usize| {
        let text = &text[start..end];
        if text.lines().any(is_content) {
            number += 1;
            let document = Document {
                file,
                number,
                item: None,
                list: None,
                line,
                text,
                notation: Notation::Yaml,
            };
            cut_list(document, documents);
        }
    };
    for (line, (begin, end)) in (1..).zip(lines(text)) {
        let content = &text[begin..end];
        let marker = content.strip_prefix("---").or_else(|| content.strip_prefix("..."));
        if marker.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])) {
            take(start, begin, start_line);
            // `--- {…}` is rare and lawful: what follows the marker belongs to the document.
            start = begin + 3;
            start_line = line;
        }
    }
    take(start, text.len(), start_line);
}

/// A YAML list in block style becomes its items; every other document stays whole.
fn cut_list<'a>(document: Document<'a>, documents: &mut Vec<Document<'a>>) {
    let Document { text, line, .. } = document;
    let list = document.header();
    if !list.is_none_or(|(_, kind)| kind.ends_with("List")) {
        documents.push(document);
        return;
    }
    let mut items = Vec::new();
    let mut number = line;
    let mut dash = None;
    let mut in_items = false;
    for (begin, end) in lines(text) {
        let content = &text[begin..end];
        let own = indent(content);
        if !in_items {
            in_items = content.strip_prefix("items:").is_some_and(|rest| !is_content(rest));
        } else if is_content(content) {
            let starts = content[own..].starts_with("- ");
            let at = *dash.get_or_insert(own);
            if starts && own == at {
                items.push((begin, number));
            } else if own <= at {
                // Something follows the items.
                items.push((begin, number));
                break;
            }
        }
        number += 1;
    }
    let ended =
        items.last().is_some_and(|&(begin, _)| !text[begin..].trim_start().starts_with("- "));
    if !ended {
        items.push((text.len(), number));
    }
    if items.len() < 2 {
        documents.push(document);
        return;
    }
    documents.extend(items.windows(2).enumerate().map(|(item, pair)| Document {
        item: Some(item),
        list,
        line: pair[0].1,
        text: &text[pair[0].0..pair[1].0],
        notation: Notation::YamlItem,
        ..document
    }));
}

/// JSON values one after the other; lists and arrays become their items.
fn cut_json<'a>(file: &'a Path, text: &'a str, documents: &mut Vec<Document<'a>>) {
    let mut number = 0;
    let mut at = 0;
    while let Some(begin) = text[at..].find(|c: char| !c.is_whitespace()).map(|i| at + i) {
        number += 1;
        let end = value_end(text, begin);
        let line = 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..begin]).count();
        let text = &text[begin..end];
        let notation = Notation::Json;
        let whole = Document { file, number, item: None, list: None, line, text, notation };
        let array = match text.as_bytes().first() {
            Some(b'[') => Some((0, None)),
            Some(b'{') => items_of(text),
            _ => None,
        };
        match array {
            Some((open, list)) => {
                let mut lines = LineCounter { text, at: 0, line };
                let items = elements(text, open).enumerate();
                documents.extend(items.map(|(item, (from, to))| Document {
                    item: Some(item),
                    list,
                    line: lines.at(from),
                    text: &text[from..to],
                    ..whole
                }));
            }
            None => documents.push(whole),
        }
        at = end;
    }
}

/// Where the array `items` of an object opens that is a Kubernetes list, and what the list says it
/// is.
fn items_of(object: &str) -> Option<(usize, Option<Header<'_>>)> {
    let mut api_version = None;
    let mut kind = None;
    let mut items = None;
    for (from, to) in elements(object, 0) {
        let (key, value) = object[from..to].split_once(':')?;
        match key.trim() {
            "\"apiVersion\"" => api_version = Some(value.trim().trim_matches('"')),
            "\"kind\"" => kind = Some(value.trim().trim_matches('"')),
            "\"items\"" => items = Some(to - value.trim_start().len()),
            _ => {}
        }
    }
    let open = items.filter(|&at| object[at..].starts_with('['));
    let open = open.filter(|_| kind.is_none_or(|kind| kind.ends_with("List")))?;
    Some((open, api_version.zip(kind)))
}

/// The elements of an array or the members of an object that opens here.
fn elements(text: &str, open: usize) -> impl Iterator<Item = (usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = open + 1;
    std::iter::from_fn(move || {
        while at < bytes.len() && (bytes[at].is_ascii_whitespace() || bytes[at] == b',') {
            at += 1;
        }
        if at >= bytes.len() || matches!(bytes[at], b']' | b'}') {
            return None;
        }
        let from = at;
        at = member_end(bytes, from);
        Some((from, at))
    })
}

/// Where a member or an element ends: at the comma or the closing bracket of what it is in.
fn member_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 0 => return at,
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Where the object or array ends that opens here.
fn value_end(text: &str, open: usize) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut at = open;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// The closing quote of the string that opens here.
fn string_end(bytes: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

/// Line numbers of places that only go forward.
struct LineCounter<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl LineCounter<'_> {
    fn at(&mut self, place: usize) -> usize {
        self.line += memchr::memchr_iter(b'\n', &self.text.as_bytes()[self.at..place]).count();
        self.at = place;
        self.line
    }
}

/// Begin and end of each line, without its end mark.
fn lines(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut ends = memchr::memchr_iter(b'\n', text.as_bytes())
        .chain((!text.ends_with('\n')).then_some(text.len()));
    let mut begin = 0;
    std::iter::from_fn(move || {
        let end = ends.next()?;
        let line = (begin, end);
        begin = end + 1;
        Some(line)
    })
}

pub(super) fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Neither blank nor a comment.
pub(super) fn is_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<(usize, Option<usize>, usize, String)> {
        cut(Path::new("f"), text)
            .iter()
            .map(|d| (d.number, d.item, d.line, d.standalone().trim().to_owned()))
            .collect()
    }

    fn piece(
        number: usize,
        item: Option<usize>,
        line: usize,
        text: &str,
    ) -> (usize, Option<usize>, usize, String) {
        (number, item, line, text.to_owned())
    }

    #[test]
    fn documents_end_at_markers_and_empty_ones_do_not_count() {
        let text =
            "# made by hand\n---\nkind: A\n---\n# nothing\n---\nkind: B\ntext: |\n  ---\n...\n";
        assert_eq!(
            pieces(text),
            [piece(1, None, 2, "kind: A"), piece(2, None, 6, "kind: B\ntext: |\n  ---")]
        );
    }

    #[test]
    fn a_list_in_block_style_is_cut_at_its_items_wherever_they_are_indented() {
        for pad in ["", "  "] {
            let text = format!(
                "apiVersion: v1\nitems:\n{pad}- kind: A\n{pad}  list:\n{pad}  - a\n{pad}# c\n{pad}- kind: B\nkind: List\nmetadata: {{}}\n"
            );
            let kinds: Vec<_> = cut(Path::new("f"), &text)
                .iter()
                .map(|d| (d.item, d.line, d.standalone().lines().next().unwrap().trim().to_owned()))
                .collect();
            assert_eq!(
                kinds,
                [(Some(0), 3, "kind: A".to_owned()), (Some(1), 7, "kind: B".to_owned())]
            );
        }
    }

    #[test]
    fn what_is_no_list_in_block_style_stays_whole() {
        for text in [
            "kind: List\nitems: [{kind: A}]\n",
            "apiVersion: v1\nkind: A\nitems:\n- b\n",
            "kind: List\nitems:\n",
        ] {
            assert_eq!(pieces(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn json_is_cut_at_brackets_and_strings_hide_them() {
        let text = "{\"kind\":\"A\",\"x\":\"}\\\"]\"}\n{\"items\":[\n{\"kind\":\"B\"},\n{\"kind\":\"C\"}],\"kind\":\"List\"}";
        assert_eq!(
            pieces(text),
            [
                piece(1, None, 1, "{\"kind\":\"A\",\"x\":\"}\\\"]\"}"),
                piece(2, Some(0), 3, "{\"kind\":\"B\"}"),
                piece(2, Some(1), 4, "{\"kind\":\"C\"}"),
            ]
        );
        assert_eq!(pieces("[{\"kind\":\"A\"}, {}]").len(), 2);
        // What is cut short is left to the parser to complain about.
        assert_eq!(pieces("{\"kind\":\"A\"").len(), 1);
    }

    #[test]
    fn headers_are_read_from_the_outermost_level_only() {
        let header = |text: &'static str| {
            let documents = cut(Path::new("f"), text);
            documents[0].header().map(|(a, k)| format!("{a} {k}"))
        };
        assert_eq!(
            header("metadata:\n  kind: X\nkind: Pod # yes\napiVersion: \"v1\"\n").as_deref(),
            Some("v1 Pod")
        );
        assert_eq!(
            header(
                "apiVersion: v1\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\nkind: List\n"
            )
            .as_deref(),
            Some("apps/v1 Deployment")
        );
        assert_eq!(header("kind: *alias\napiVersion: v1\n"), None);
    }
}
