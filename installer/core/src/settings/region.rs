//! The regions that a cluster can be in. A misspelt region has no endpoints, which AWS's SDK only
//! finds out after all its retries.

use crate::words::nearest;

/// The regions of all partitions that Tenon knows.
pub const KNOWN: [&str; 38] = [
    "af-south-1",
    "ap-east-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "mx-central-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-west-1",
    "us-west-2",
];

/// What is wrong with a region. One that AWS may have opened since is right if the user says so.
pub fn problem(region: &str, may_be_unknown: bool) -> Option<String> {
    if may_be_unknown || KNOWN.contains(&region) {
        return None;
    }
    let instead = match nearest(region, KNOWN) {
        Some(known) => format!(" (did you mean {known}?)"),
        None => format!("; known: {}", KNOWN.join(", ")),
    };
    Some(format!(
        "{region:?} is not a known AWS region{instead}; if it is a new one, add \
         --allow-unknown-region"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_known_or_misspelt_or_new() {
        assert_eq!(problem("us-gov-west-1", false), None);
        assert_eq!(
            problem("eu-wst-1", false).expect("misspelt"),
            "\"eu-wst-1\" is not a known AWS region (did you mean eu-west-1?); if it is a new \
             one, add --allow-unknown-region"
        );
        let zone = problem("us-east-1a", false).expect("a zone");
        assert!(zone.contains("did you mean us-east-1?"), "{zone}");
        let new = problem("moon-north-9", false).expect("unknown");
        assert!(new.contains("known: af-south-1, ap-east-1"), "{new}");
        assert_eq!(problem("moon-north-9", true), None);
    }
}
