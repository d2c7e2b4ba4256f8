//! Rust's text as words and signs, without comments and without what stands in quotes.

use std::str::Chars;

/// A word or a sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name or keyword; `r#` is left out.
    Word(String),
    /// `::`
    Path,
    /// Any other sign.
    Sign(char),
}

impl Token {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }

    pub(crate) fn is(&self, sign: char) -> bool {
        matches!(self, Self::Sign(own) if *own == sign)
    }
}

/// Cuts a text. What is in quotes becomes a `"`.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.chars();
    while let Some(c) = rest.clone().next() {
        let ahead = rest.as_str();
        if c.is_whitespace() {
            rest.next();
        } else if ahead.starts_with("//") {
            skip_while(&mut rest, |c| c != '\n');
        } else if ahead.starts_with("/*") {
            skip_comment(&mut rest);
        } else if let Some(end) = quoted(ahead) {
            rest = ahead[end..].chars();
            tokens.push(Token::Sign('"'));
        } else if c.is_alphabetic() || c == '_' {
            let word = ahead.strip_prefix("r#").unwrap_or(ahead);
            let end = word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len());
            tokens.push(Token::Word(word[..end].to_owned()));
            rest = word[end..].chars();
        } else if let Some(behind) = ahead.strip_prefix("::") {
            rest = behind.chars();
            tokens.push(Token::Path);
        } else {
            rest.next();
            tokens.push(Token::Sign(c));
        }
    }
    tokens
}

fn skip_while(rest: &mut Chars<'_>, is_part: impl Fn(char) -> bool) {
    while rest.clone().next().is_some_and(&is_part) {
        rest.next();
    }
}

/// Comments in comments count.
fn skip_comment(rest: &mut Chars<'_>) {
    let mut depth = 0_usize;
    loop {
        let ahead = rest.as_str();
        if let Some(behind) = ahead.strip_prefix("/*") {
            depth += 1;
            *rest = behind.chars();
        } else if let Some(behind) = ahead.strip_prefix("*/") {
            depth -= 1;
            *rest = behind.chars();
        } else if rest.next().is_none() {
            return;
        }
        if depth == 0 {
            return;
        }
    }
}

/// Where the string or character ends that a text begins with, if it begins with one.
fn quoted(text: &str) -> Option<usize> {
    let prefix = text.len() - text.trim_start_matches(['b', 'c', 'r']).len();
    // Longer words that end in these letters are cut before this is asked.
    let after = &text[prefix.min(2)..];
    let start = text.len() - after.len();
    let is_raw = text[..start].contains('r');
    let hashes = after.len() - after.trim_start_matches('#').len();
    if is_raw && after[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let body = start + hashes + 1;
        return Some(text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()));
    }
    if !is_raw && after.starts_with('"') {
        return Some(start + until(after, '"'));
    }
    // A lifetime is no character: 'a' ends after one, or begins with a backslash.
    let character = after.strip_prefix('\'').filter(|_| !is_raw)?;
    let mut two = character.chars();
    let first = two.next()?;
    (first == '\\' || two.next() == Some('\'')).then(|| start + until(after, '\''))
}

/// Behind the quote that closes; a backslash hides the next character.
fn until(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if !escaped && c == quote {
            return at + c.len_utf8();
        }
        escaped = !escaped && c == '\\';
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let words = tokens(text).into_iter().filter_map(|token| match token {
            Token::Word(word) => Some(word),
            _ => None,
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_quotes_are_left_out() {
        assert_eq!(words("a // b\n/* c /* d */ e */ f"), "a f");
        assert_eq!(words(r##"a "b \" c" d r#"e " f"# g b"h" i"##), "a d g i");
        assert_eq!(words(r"let c = 'x'; let d = '\''; e"), "let c let d e");
        assert_eq!(words("fn f<'a>(b: &'a str) {}"), "fn f a b a str");
        assert_eq!(words("r#type bar r"), "type bar r");
    }
}
