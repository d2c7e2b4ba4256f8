//! Numbers and lists as people write them.

/// `1 step`, `2 steps`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        return format!("{n} {noun}");
    }
    format!("{n} {noun}s")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_well() {
        assert_eq!(count(1, "step"), "1 step");
        assert_eq!(count(0, "step"), "0 steps");
    }

    #[test]
    fn a_long_list_ends_with_how_many_more_there_are() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(some(&names, 3), "a, b, c");
        assert_eq!(some(&names, 2), "a, b and 1 more");
        assert_eq!(some(&[], 2), "");
    }
}
