//! Patterns with `*` (any text) and `?` (one character), compared with one another.

/// Whether everything that `inner` matches is matched by `outer`. Careful: a `false` may be wrong
/// for exotic patterns, a `true` never is.
pub fn contains(outer: &str, inner: &str) -> bool {
    let outer = outer.chars().collect::<Vec<_>>();
    let inner = inner.chars().collect::<Vec<_>>();
    walk(&outer, &inner, |outer, inner| match outer {
        // A star of the inner pattern stands for any text, and a single character can't match that.
        '?' => inner != '*',
        _ => outer == inner && inner != '?',
    })
}

/// Whether some text is matched by both patterns.
pub fn overlaps(one: &str, other: &str) -> bool {
    let one = one.chars().collect::<Vec<_>>();
    let other = other.chars().collect::<Vec<_>>();
    // reach[j]: the first i characters of `one` and the first j of `other` can match the same text.
    let mut reach = vec![false; other.len() + 1];
    reach[0] = true;
    for j in 0..other.len() {
        reach[j + 1] = reach[j] && other[j] == '*';
    }
    for &a in &one {
        let mut next = vec![false; other.len() + 1];
        next[0] = reach[0] && a == '*';
        for (j, &b) in other.iter().enumerate() {
            next[j + 1] = if a == '*' || b == '*' {
                next[j] || reach[j + 1]
            } else {
                reach[j] && (a == b || a == '?' || b == '?')
            };
        }
        reach = next;
    }
    reach[other.len()]
}

/// [`contains`] for actions, which are compared without regard to case.
pub(super) fn contains_action(outer: &str, inner: &str) -> bool {
    contains(&outer.to_ascii_lowercase(), &inner.to_ascii_lowercase())
}

/// [`overlaps`] for actions.
pub(super) fn actions_overlap(one: &str, other: &str) -> bool {
    overlaps(&one.to_ascii_lowercase(), &other.to_ascii_lowercase())
}

/// Matches `pattern`, whose `*` take any run of characters, against `text`, one character by one.
fn walk(pattern: &[char], text: &[char], matches: impl Fn(char, char) -> bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on when the last star has to take one character more.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&'*') {
            retry = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p).is_some_and(|&one| matches(one, text[t])) {
            p += 1;
            t += 1;
        } else if let Some((after_star, taken)) = retry {
            retry = Some((after_star, taken + 1));
            p = after_star;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&one| one == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_contains_whatever_is_narrower() {
        assert!(contains("*", "arn:aws:ec2:*:*:instance/*"));
        assert!(contains("arn:aws:ec2:*:*:instance/*", "arn:aws:ec2:eu-west-1:*:instance/*"));
        assert!(!contains("arn:aws:ec2:eu-west-1:*:instance/*", "arn:aws:ec2:*:*:instance/*"));
        assert!(contains("ec2:Describe*", "ec2:DescribeInstances"));
        assert!(!contains("ec2:DescribeInstances", "ec2:Describe*"));
        assert!(contains("a?c", "abc"));
        assert!(!contains("a?c", "a*c"));
        assert!(contains("*b*b", "ab*b"));
    }

    #[test]
    fn patterns_overlap_when_one_text_fits_both() {
        assert!(overlaps("ec2:*", "*:DescribeInstances"));
        assert!(!overlaps("ec2:*", "iam:*"));
        assert!(overlaps("a*", "*b"));
        assert!(overlaps("a?", "?b"));
        assert!(!overlaps("a?", "b?"));
        assert!(overlaps("", "*"));
        assert!(!overlaps("", "?"));
    }
}
