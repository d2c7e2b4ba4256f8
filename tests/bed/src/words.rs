//! Numbers as people write them.

/// `1 pod`, `2 pods`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_well() {
        assert_eq!([0, 1, 2].map(|n| count(n, "pod")), ["0 pods", "1 pod", "2 pods"]);
    }
}
