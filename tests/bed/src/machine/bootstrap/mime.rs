//! A MIME archive as cloud-init and nodeadm split it.

use super::BootstrapError;

/// One part: its content type without parameters, in lower case, and its body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) content_type: String,
    pub(super) body: String,
}

/// The parts of the archive; `None` when the text is not one at all (it has no MIME header).
pub(super) fn parts(text: &str) -> Result<Option<Vec<Part>>, BootstrapError> {
    let text = text.replace("\r\n", "\n");
    let Some((headers, body)) = text.split_once("\n\n") else { return Ok(None) };
    let Some(content_type) = header(headers, "content-type") else { return Ok(None) };
    if !content_type.to_ascii_lowercase().starts_with("multipart/") {
        return Ok(Some(vec![Part { content_type: bare(&content_type), body: body.to_owned() }]));
    }
    let boundary = content_type
        .split(';')
        .filter_map(|parameter| parameter.trim().split_once('='))
        .find(|(name, _)| name.eq_ignore_ascii_case("boundary"))
        .map(|(_, value)| value.trim_matches('"').to_owned())
        .filter(|boundary| !boundary.is_empty())
        .ok_or_else(|| BootstrapError::Mime("multipart without a boundary".into()))?;
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    let mut closed = false;
    for line in body.lines() {
        let trimmed = line.trim_end();
        if trimmed == format!("{delimiter}--") {
            finish(&mut parts, open.take())?;
            closed = true;
            break;
        }
        if trimmed == delimiter {
            finish(&mut parts, open.take())?;
            open = Some(Vec::new());
        } else if let Some(lines) = &mut open {
            lines.push(line);
        }
    }
    if !closed {
        return Err(BootstrapError::Mime(format!("the closing boundary {delimiter}-- is missing")));
    }
    Ok(Some(parts))
}

fn finish(parts: &mut Vec<Part>, lines: Option<Vec<&str>>) -> Result<(), BootstrapError> {
    let Some(lines) = lines else { return Ok(()) };
    let text = lines.join("\n");
    let (headers, body) = match text.split_once("\n\n") {
        Some(split) => split,
        None if text.starts_with('\n') => ("", text.trim_start_matches('\n')),
        None => {
            return Err(BootstrapError::Mime("a part has no empty line after its headers".into()));
        }
    };
    let content_type = header(headers, "content-type").unwrap_or_else(|| "text/plain".into());
    parts.push(Part { content_type: bare(&content_type), body: body.to_owned() });
    Ok(())
}

fn header(headers: &str, name: &str) -> Option<String> {
    headers
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim().eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
}

fn bare(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
