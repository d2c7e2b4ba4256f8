//! Wildcards: `*` for any characters, `?` for exactly one, and the rules by which ARNs are
//! compared.

/// Marks a `*`, `?` or `$` that a policy variable stands for, and that therefore means itself.
/// Private-use characters don't occur in ARNs.
pub(super) const LITERAL: [(char, char); 3] =
    [('*', '\u{E000}'), ('?', '\u{E001}'), ('$', '\u{E002}')];

/// Whether the text matches the pattern, in which `*` stands for any characters and `?` for one.
pub fn glob(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    // Greedy with one step back: enough, because a later `*` makes the choices of an earlier one
    // irrelevant.
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&c) if c == '?' || literal(c) == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    p = after;
                    t = from + 1;
                    retry = Some((after, t));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

/// Whether an ARN matches an ARN pattern: each of the six parts on its own, so that a `*` in one
/// part does not reach into the next.
pub(crate) fn arn_matches(pattern: &str, arn: &str) -> bool {
    let parts = |text: &str| text.splitn(6, ':').map(str::to_owned).collect::<Vec<_>>();
    let (pattern, arn) = (parts(pattern), parts(arn));
    pattern.len() == 6
        && arn.len() == 6
        && pattern.iter().zip(&arn).all(|(pattern, part)| glob(pattern, part))
}

/// Whether a call's resource matches a `Resource` pattern: `*` matches everything, and parts that
/// are missing at the end of a pattern that ends with `*` match everything.
pub(super) fn resource_matches(pattern: &str, resource: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    if resource == "*" {
        return false;
    }
    let missing = 6usize.saturating_sub(pattern.split(':').count());
    if missing > 0 && pattern.ends_with('*') {
        return arn_matches(&format!("{pattern}{}", ":*".repeat(missing)), resource);
    }
    arn_matches(pattern, resource)
}

/// A text without the marks of literal wildcards.
pub(super) fn unmarked(text: &str) -> String {
    text.chars().map(literal).collect()
}

fn literal(c: char) -> char {
    LITERAL.iter().find(|(_, mark)| *mark == c).map_or(c, |(plain, _)| *plain)
}
