//! Numbers and lists as people write them.

/// `1 step`, `2 steps`, `2 policies`, `2 node classes`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {}", plural(noun)) }
}

/// The same with what is said of them: `1 pod is ready`, `2 pods are ready`.
pub fn count_are(n: usize, noun: &str) -> String {
    format!("{} {}", count(n, noun), if n == 1 { "is" } else { "are" })
}

/// The regular plural.
fn plural(noun: &str) -> String {
    let hisses = |noun: &str| ["s", "x", "z", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if hisses(noun) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// The first of some names, at most `n`, and how many more there are: `a, b and 3 more`.
pub fn some(names: &[String], n: usize) -> String {
    let first = names[..names.len().min(n)].join(", ");
    match names.len().saturating_sub(n) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// An error and what is behind it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        // Some libraries print their source as well; saying it twice helps nobody.
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

/// What is at the bottom of an error: the only one of its texts that says what happened.
pub fn root(error: &dyn std::error::Error) -> String {
    let mut bottom = error;
    while let Some(source) = bottom.source() {
        bottom = source;
    }
    without_types(&bottom.to_string())
}

/// A text without the names that serde gives to what it expected.
pub fn without_types(text: &str) -> String {
    let mut parts = text.split("expected struct ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        plain = format!("{plain}expected a map{rest}");
    }
    plain
}

/// The candidate that was probably meant: one that differs in at most two letters, and not in most
/// of them.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).clamp(1, 2);
    let measured = candidates.into_iter().map(|candidate| (distance(name, candidate), candidate));
    let close = measured.filter(|(distance, _)| *distance <= allowed);
    close.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// The number of letters that are wrong, missing, too many or swapped with their neighbor.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.chars().collect::<Vec<_>>(), b.chars().collect::<Vec<_>>());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let differ = usize::from(a[i - 1] != b[j - 1]);
            let mut best =
                (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + differ);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_well() {
        assert_eq!(count(1, "step"), "1 step");
        assert_eq!(count(0, "step"), "0 steps");
        assert_eq!(count(2, "access entry"), "2 access entries");
        assert_eq!(count(2, "key"), "2 keys");
        assert_eq!(count(2, "node class"), "2 node classes");
        assert_eq!(count(2, "switch"), "2 switches");
        assert_eq!(count_are(1, "pod"), "1 pod is");
        assert_eq!(count_are(2, "pod"), "2 pods are");
    }

    #[test]
    fn a_slip_is_recognized_and_another_word_is_not() {
        let regions = ["eu-west-1", "eu-west-2", "us-east-1"];
        assert_eq!(nearest("eu-wst-1", regions), Some("eu-west-1"));
        assert_eq!(nearest("eu-wets-2", regions), Some("eu-west-2"));
        assert_eq!(nearest("us-east-1a", regions), Some("us-east-1"));
        assert_eq!(nearest("moon-north-9", regions), None);
        assert_eq!(nearest("x", ["prod"]), None);
    }

    #[test]
    fn a_type_is_called_what_people_write_for_it() {
        let text = "invalid type: null, expected struct Config at line 1";
        assert_eq!(without_types(text), "invalid type: null, expected a map at line 1");
    }

    #[test]
    fn a_long_list_ends_with_how_many_more_there_are() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(some(&names, 3), "a, b, c");
        assert_eq!(some(&names, 2), "a, b and 1 more");
        assert_eq!(some(&[], 2), "");
    }
}
