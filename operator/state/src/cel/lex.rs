//! From text to tokens.

use super::CelError;

/// What an expression is made of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Ident(String),
    Int(i64),
    Double(f64),
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// Longer ones first, so that `<=` is not taken for `<`.
static SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")",
    "[", "]", "{", "}", ".", ",",
];

/// The tokens of a text, each with where it begins; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, CelError> {
    let mut list = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        if next.is_whitespace() {
            at += next.len_utf8();
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some((raw, quotes)) = opening(rest) {
            let (value, length) = string(&rest[quotes..], raw, at)?;
            list.push((Token::Text(value), at));
            at += quotes + length;
        } else if next.is_ascii_digit()
            || (next == '.' && rest[1..].starts_with(|digit: char| digit.is_ascii_digit()))
        {
            let (token, length) = number(rest, at)?;
            list.push((token, at));
            at += length;
        } else if next.is_ascii_alphabetic() || next == '_' {
            let end = rest.find(|it: char| !it.is_ascii_alphanumeric() && it != '_');
            let word = &rest[..end.unwrap_or(rest.len())];
            list.push((Token::Ident(word.to_owned()), at));
            at += word.len();
        } else if let Some(sign) = SIGNS.iter().copied().find(|sign| rest.starts_with(*sign)) {
            list.push((Token::Sign(sign), at));
            at += sign.len();
        } else {
            return Err(CelError::Syntax { what: format!("unexpected {next:?}"), at });
        }
    }
    list.push((Token::End, text.len()));
    Ok(list)
}

/// Whether a string begins here: whether it is raw, and how many bytes come before its first quote.
fn opening(rest: &str) -> Option<(bool, usize)> {
    let quote = |text: &str| text.starts_with(['"', '\'']);
    match rest.strip_prefix(['r', 'R']) {
        _ if quote(rest) => Some((false, 0)),
        Some(after) if quote(after) => Some((true, 1)),
        _ => None,
    }
}

/// A string from its first quote on, and how many bytes it takes.
fn string(rest: &str, raw: bool, at: usize) -> Result<(String, usize), CelError> {
    let error = |what: &str| CelError::Syntax { what: what.to_owned(), at };
    let one = &rest[..1];
    let quote = if rest.starts_with(&one.repeat(3)) { one.repeat(3) } else { one.to_owned() };
    let mut value = String::new();
    let mut position = quote.len();
    loop {
        let rest = &rest[position..];
        if rest.starts_with(&quote) {
            return Ok((value, position + quote.len()));
        }
        let next = rest.chars().next().ok_or_else(|| error("a string has no end"))?;
        position += next.len_utf8();
        if next == '\n' && quote.len() == 1 {
            return Err(error("a string has no end"));
        }
        if next != '\\' || raw {
            value.push(next);
            continue;
        }
        let escaped = rest[1..].chars().next().ok_or_else(|| error("a string has no end"))?;
        position += escaped.len_utf8();
        let hex = |digits: usize| -> Option<char> {
            let digits = rest.get(2..2 + digits)?;
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)
        };
        let (character, further) = match escaped {
            'n' => (Some('\n'), 0),
            't' => (Some('\t'), 0),
            'r' => (Some('\r'), 0),
            'a' => (Some('\u{7}'), 0),
            'b' => (Some('\u{8}'), 0),
            'f' => (Some('\u{c}'), 0),
            'v' => (Some('\u{b}'), 0),
            '\\' | '"' | '\'' | '`' | '?' => (Some(escaped), 0),
            'x' | 'X' => (hex(2), 2),
            'u' => (hex(4), 4),
            'U' => (hex(8), 8),
            _ => (None, 0),
        };
        value.push(character.ok_or_else(|| error("an escape in a string is not known"))?);
        position += further;
    }
}

fn number(rest: &str, at: usize) -> Result<(Token, usize), CelError> {
    let error = || CelError::Syntax { what: "a number is not valid".to_owned(), at };
    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        let end = hex.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(hex.len());
        let value = i64::from_str_radix(&hex[..end], 16).map_err(|_| error())?;
        return Ok((Token::Int(value), end + 2));
    }
    let bytes = rest.as_bytes();
    let mut end = 0;
    let mut double = false;
    while let Some(&byte) = bytes.get(end) {
        let after = bytes.get(end + 1).copied().unwrap_or(0);
        match byte {
            b'0'..=b'9' => {}
            b'.' if !double && after.is_ascii_digit() => double = true,
            b'e' | b'E' if after.is_ascii_digit() || matches!(after, b'+' | b'-') => {
                double = true;
                end += 1;
            }
            _ => break,
        }
        end += 1;
    }
    // Unsigned integers (`1u`) are a type that devices have no values of.
    if bytes.get(end).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_') {
        return Err(error());
    }
    let text = &rest[..end];
    let token = if double {
        Token::Double(text.parse().map_err(|_| error())?)
    } else {
        Token::Int(text.parse().map_err(|_| error())?)
    };
    Ok((token, end))
}
