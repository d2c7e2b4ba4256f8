//! Names of what the installer makes in AWS: `<prefix>-<cluster>-<suffix>`, cut to the service's
//! limit in a way that stays unique. And names that EKS gives.

use sha2::{Digest, Sha256};

/// Longest name of an IAM role.
pub const ROLE: usize = 64;
/// Longest name of an instance profile.
pub(crate) const PROFILE: usize = 128;
/// Longest name of a Fargate profile.
pub(crate) const FARGATE_PROFILE: usize = 100;
/// Longest name of an SQS queue.
pub const QUEUE: usize = 80;
/// Longest name of an EventBridge rule.
pub const RULE: usize = 64;

/// The name of the EKS add-on that hands role credentials to pods.
pub const AGENT: &str = "eks-pod-identity-agent";
/// The annotation by which a service account gets a role under IRSA.
pub const ROLE_ANNOTATION: &str = "eks.amazonaws.com/role-arn";

/// A name of at most `limit` characters: the parts joined by dashes, or, if that is longer, cut and
/// with seven hex digits of the whole name's hash.
pub fn name(parts: &[&str], limit: usize) -> String {
    let full = parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("-");
    if full.len() <= limit {
        return full;
    }
    let hash = &hex::encode(Sha256::digest(full.as_bytes()))[..7];
    let mut cut = limit - hash.len() - 1;
    while !full.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}-{hash}", full[..cut].trim_end_matches('-'))
}

/// A queue's name: SQS allows no dots.
pub fn queue_name(parts: &[&str]) -> String {
    let parts = parts.iter().map(|part| part.replace('.', "-")).collect::<Vec<_>>();
    name(&parts.iter().map(String::as_str).collect::<Vec<_>>(), QUEUE)
}

/// The first `digits` hex digits of a text's SHA-256.
pub fn hash(text: &str, digits: usize) -> String {
    let mut hash = hex::encode(Sha256::digest(text.as_bytes()));
    hash.truncate(digits);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_names_are_kept() {
        assert_eq!(name(&["tenon", "prod", "node"], ROLE), "tenon-prod-node");
        assert_eq!(queue_name(&["tenon", "a.example.com"]), "tenon-a-example-com");
    }

    proptest! {
        #[test]
        fn names_fit_and_differ_when_their_clusters_differ(a in "[a-z][a-z0-9-]{0,98}", b in "[a-z][a-z0-9-]{0,98}") {
            let of = |cluster: &str| name(&["tenon", cluster, "controller"], ROLE);
            prop_assert!(of(&a).len() <= ROLE);
            prop_assert_eq!(of(&a) == of(&b), a == b);
        }
    }
}
