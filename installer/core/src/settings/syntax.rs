//! What the API server takes for names, labels and quantities. What it would refuse is refused
//! before the first call.

use tenon_crds::Quantity;

/// What [`is_quantity`] takes, in words.
pub(super) const QUANTITY: &str =
    "a number of at least 0 with an optional suffix, such as 500m, 2, 512Mi or 1Gi";

/// What [`is_label_value`] takes, in words.
pub(super) const LABEL_VALUE: &str = "nothing, or at most 63 letters, digits, dashes, underscores and dots, with a letter or digit at both ends";

/// What [`is_label_key`] takes, in words.
pub(super) const LABEL_KEY: &str = "keys such as team or example.com/team: at most 63 letters, digits, dashes, underscores and dots, with a letter or digit at both ends, after an optional domain and slash";

/// What [`is_dns_label`] takes, in words.
pub(super) const DNS_LABEL: &str =
    "a DNS label: at most 63 lower-case letters, digits and dashes, no dash at an end";

/// What [`is_dns_name`] takes, in words.
pub(super) const DNS_NAME: &str = "a DNS name: at most 253 lower-case letters, digits, dashes and dots, a letter or digit at both ends";

/// What [`is_tag`] takes, in words.
pub(super) const TAG: &str =
    "at most 128 letters, digits, underscores, dots and dashes, no dot or dash first";

/// What [`is_repository`] takes, in words.
pub(super) const REPOSITORY: &str =
    "an image without tag, such as registry.example.com/team/tenon-operator";

/// A quantity of a resource.
pub(super) fn is_quantity(text: &str) -> bool {
    text.parse::<Quantity>().is_ok_and(|quantity| quantity >= Quantity::ZERO)
}

fn has_ends(text: &str, is_end: impl Fn(char) -> bool) -> bool {
    text.starts_with(&is_end) && text.ends_with(&is_end)
}

/// The value of a label.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || text.len() <= 63
            && has_ends(text, |c| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// The key of a label or an annotation.
pub(super) fn is_label_key(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(d, name)| (Some(d), name));
    !name.is_empty() && is_label_value(name) && domain.is_none_or(is_dns_name)
}

/// The name of a namespace, a Service or a container.
pub(super) fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && !text.contains('.') && is_dns_name(text)
}

/// The name of most objects.
pub(super) fn is_dns_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253
        && text
            .split('.')
            .all(|part| has_ends(part, is_inner) && part.chars().all(|c| is_inner(c) || c == '-'))
}

/// The tag of an image.
pub(super) fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=128).contains(&text.len())
        && text.starts_with(is_word)
        && text.chars().all(|c| is_word(c) || ".-".contains(c))
}

/// The digest of an image.
pub(super) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
    })
}

/// An image's repository, with or without its registry.
pub(super) fn is_repository(text: &str) -> bool {
    let (registry, path) = match text.split_once('/') {
        Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => {
            (Some(first), path)
        }
        _ => (None, text),
    };
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_host = |host: &str| {
        let (name, port) = host.split_once(':').unwrap_or((host, "1"));
        has_ends(name, |c| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
            && port.parse::<u16>().is_ok()
    };
    registry.is_none_or(is_host)
        && path.split('/').all(|part| {
            has_ends(part, is_inner) && part.chars().all(|c| is_inner(c) || "-_.".contains(c))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for text in ["0", "1", "0.5", "500m", "1Gi", "2e3", "1E6", "3E", "1.5Ti"] {
            assert!(is_quantity(text), "{text}");
        }
        for text in ["", "1x", "-1", "1 Gi", "Gi", "1gi", "one", "1GiB", "1e"] {
            assert!(!is_quantity(text), "{text}");
        }
    }

    #[test]
    fn labels_and_names_are_those_of_kubernetes() {
        for key in ["team", "example.com/team", "A_b.c"] {
            assert!(is_label_key(key), "{key}");
        }
        for key in ["", "a b", "/x", "x/", "Example.com/x", "a/b/c", "-x"] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("v1.2_x") && !is_label_value("a/b"));
        assert!(!is_label_value(&"x".repeat(64)));
        assert!(is_dns_label("kube-system") && !is_dns_label("a.b") && !is_dns_label("-a"));
        assert!(is_dns_name("a.b-c") && !is_dns_name("a..b") && !is_dns_name(""));
    }

    #[test]
    fn images_are_those_of_registries() {
        for text in ["tenon-operator", "registry.example.com:5000/a/b_c", "localhost/a", "a/b"] {
            assert!(is_repository(text), "{text}");
        }
        for text in ["", "A", "a b", "a:1", "https://example.com/a", "a//b", "a@sha256:0"] {
            assert!(!is_repository(text), "{text}");
        }
        assert!(is_tag("v1.2-x") && !is_tag("") && !is_tag(".x") && !is_tag("a b"));
        let digest = format!("sha256:{}", "0".repeat(64));
        assert!(is_digest(&digest) && !is_digest("sha256:0"));
    }
}
