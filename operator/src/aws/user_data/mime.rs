//! MIME multipart archives, as cloud-init and nodeadm read them.

use super::UserDataError;

/// Content type of a shell script.
pub(super) const SHELL: &str = "text/x-shellscript; charset=\"us-ascii\"";

/// One part of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Header lines, without line ends.
    pub(super) headers: Vec<String>,
    /// Content, without the line end before the boundary.
    pub(super) body: String,
}

impl Part {
    /// A part with nothing but a content type.
    pub(super) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self { headers: vec![format!("Content-Type: {content_type}")], body: body.into() }
    }

    /// The same part with nothing but its content type.
    pub(super) fn with_content_type_only(mut self) -> Self {
        self.headers.retain(|header| header_value(header, "content-type").is_some());
        self
    }
}

/// Whether a text claims to be an archive.
pub(super) fn is_archive(text: &str) -> bool {
    let text = text.trim();
    text.starts_with("MIME-Version:") || text.starts_with("Content-Type:")
}

/// The archive of these parts. Its boundary is `//`, as Karpenter's, unless a part has such a line.
pub(super) fn write(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| {
        let headers = part.headers.iter().flat_map(|header| [header.as_str(), "\n"]);
        headers.chain(["\n", &part.body, "\n"]).collect::<String>().replace('\r', "")
    });
    let texts = texts.collect::<Vec<_>>();
    let numbered = (1..).map(|n| format!("//{n}"));
    let boundary = std::iter::once("//".to_owned())
        .chain(numbered)
        .find(|boundary| !texts.iter().any(|text| has_delimiter(text, boundary)))
        .expect("a text has an end, and so fewer lines than there are numbers");
    let mut archive =
        format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for text in texts {
        archive.extend(["--", &boundary, "\n", &text]);
    }
    archive.extend(["--", &boundary, "--\n"]);
    archive
}

/// Whether a line of the text would begin the next part, or end the archive.
fn has_delimiter(text: &str, boundary: &str) -> bool {
    text.lines().any(|line| {
        let rest = line.trim_end().strip_prefix("--").and_then(|line| line.strip_prefix(boundary));
        matches!(rest, Some("" | "--"))
    })
}

/// The parts of an archive.
pub(super) fn read(text: &str) -> Result<Vec<Part>, UserDataError> {
    let text = text.replace('\r', "");
    let (headers, body) = split_headers(text.trim_start());
    let content_type = headers
        .iter()
        .find_map(|header| header_value(header, "content-type"))
        .ok_or(UserDataError::Mime("it has no Content-Type"))?;
    if !content_type.trim_start().to_ascii_lowercase().starts_with("multipart/") {
        return Err(UserDataError::Mime("its Content-Type is not multipart"));
    }
    let boundary =
        boundary(content_type).ok_or(UserDataError::Mime("its Content-Type has no boundary"))?;
    let (delimiter, end) = (format!("--{boundary}"), format!("--{boundary}--"));

    let mut parts = Vec::new();
    let mut current: Option<Vec<&str>> = None;
    for line in body.lines() {
        let trimmed = line.trim_end();
        if trimmed == end {
            parts.extend(current.take().map(|lines| part(&lines)));
            return Ok(parts);
        }
        if trimmed == delimiter {
            parts.extend(current.replace(Vec::new()).map(|lines| part(&lines)));
        } else if let Some(lines) = &mut current {
            lines.push(line);
        }
    }
    Err(UserDataError::Mime("its last boundary is missing"))
}

fn part(lines: &[&str]) -> Part {
    let text = lines.join("\n");
    let (headers, body) = split_headers(&text);
    Part { headers, body: body.to_owned() }
}

/// Header lines, with continued lines joined, and what follows the first empty line.
fn split_headers(text: &str) -> (Vec<String>, &str) {
    let mut headers: Vec<String> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = after;
        if line.trim().is_empty() {
            break;
        }
        match headers.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => headers.push(line.trim_end().to_owned()),
        }
    }
    (headers, rest)
}

fn header_value<'h>(header: &'h str, name: &str) -> Option<&'h str> {
    let (key, value) = header.split_once(':')?;
    key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
}

fn boundary(content_type: &str) -> Option<&str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"');
        (key.trim().eq_ignore_ascii_case("boundary") && !value.is_empty()).then_some(value)
    })
}
