//! The region of an availability zone.

/// `eu-west-1` for `eu-west-1a`, and `us-west-2` for the local zone `us-west-2-lax-1a`.
pub(crate) fn of_zone(zone: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in zone.split('-') {
        let digits = part.trim_end_matches(|c: char| c.is_ascii_lowercase());
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            parts.push(digits);
            return (parts.len() > 2).then(|| parts.join("-"));
        }
        parts.push(part);
    }
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn zones_of_every_kind_name_their_region() {
        let of = |zone: &str| super::of_zone(zone).unwrap_or_default();
        assert_eq!(of("eu-west-1a"), "eu-west-1");
        assert_eq!(of("us-gov-west-1b"), "us-gov-west-1");
        assert_eq!(of("us-west-2-lax-1a"), "us-west-2");
        assert_eq!(of("us-east-1-wl1-bos-wlz-1"), "us-east-1");
        assert_eq!(of("nowhere"), "");
    }
}
