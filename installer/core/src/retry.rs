//! The one table of what AWS says while something new is not visible everywhere yet, and how long
//! that is worth waiting for.
//!
//! Throttling and broken connections are the SDK's own business; here is only what looks like an
//! error of ours but isn't.

use std::future::Future;
use std::time::Duration;

use crate::aws::AwsError;

/// Something that takes a while to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lag {
    /// A new role, for other calls to IAM.
    RoleInIam,
    /// A new role, as the principal of an access entry.
    RoleInAccessEntry,
    /// A new role, as that of a Pod Identity association.
    RoleInAssociation,
    /// A new role, as a principal in a policy.
    RoleInPolicy,
    /// A queue's name, after the queue was deleted.
    QueueDeleted,
    /// A new role for Fargate's pods, and another profile of the cluster that is being made or
    /// removed.
    FargateProfile,
    /// A new rule, for its targets.
    RuleForTargets,
    /// A change to the same thing that is under way.
    OtherChange,
    /// What a role is attached to, while it is being deleted.
    RoleInUse,
    /// What was mended in AWS, for the operator, which looks at a failure again after a while.
    Mended,
}

/// One line of the table.
struct Line {
    /// Codes that mean "not yet".
    codes: &'static [&'static str],
    /// One of these must be in the message; empty: any message.
    texts: &'static [&'static str],
    /// Time between tries.
    every: Duration,
    /// How many tries.
    tries: u32,
}

impl Lag {
    fn line(self) -> Line {
        let line = |codes, texts, every, tries| Line {
            codes,
            texts,
            every: Duration::from_secs(every),
            tries,
        };
        match self {
            Self::RoleInIam => {
                line(&["NoSuchEntity", "ConcurrentModification", "ServiceFailure"], &[], 2, 15)
            }
            Self::RoleInAccessEntry => line(&["InvalidParameterException"], &["principal"], 3, 20),
            Self::RoleInAssociation => line(
                &["InvalidParameterException", "InvalidRequestException"],
                &["role", "Role", "trust", "Trust"],
                3,
                20,
            ),
            Self::RoleInPolicy => line(&["MalformedPolicyDocument"], &["principal"], 3, 20),
            Self::QueueDeleted => line(
                &["AWS.SimpleQueueService.QueueDeletedRecently", "QueueDeletedRecently"],
                &[],
                5,
                15,
            ),
            Self::FargateProfile => line(
                &[
                    "InvalidParameterException",
                    "ResourceInUseException",
                    "ConcurrentModificationException",
                ],
                &["role", "Role", "currently has", "in progress"],
                5,
                60,
            ),
            Self::RuleForTargets => {
                line(&["ResourceNotFoundException", "ConcurrentModificationException"], &[], 2, 10)
            }
            Self::OtherChange => line(
                &[
                    "ConcurrentModificationException",
                    "ConcurrentModification",
                    "ResourceInUseException",
                ],
                &[],
                5,
                24,
            ),
            // Nothing of this is an error of AWS's: what the operator says is looked at.
            Self::Mended => line(&[], &[], 2, 60),
            Self::RoleInUse => {
                line(&["DeleteConflict", "ConcurrentModification", "ServiceFailure"], &[], 3, 20)
            }
        }
    }

    /// Whether the error means "not yet".
    pub fn explains(self, error: &AwsError) -> bool {
        let line = self.line();
        error.has_code(line.codes)
            && (line.texts.is_empty() || line.texts.iter().any(|text| error.message.contains(text)))
    }
}

/// Calls until it works, the error means something else, or the table's patience is at its end.
pub(crate) async fn until_visible<T, F>(
    lag: Lag,
    mut call: impl FnMut() -> F,
) -> Result<T, AwsError>
where
    F: Future<Output = Result<T, AwsError>>,
{
    let line = lag.line();
    let mut tried = 1;
    loop {
        match call().await {
            Err(error) if tried < line.tries && lag.explains(&error) => {
                tracing::debug!(error = %error, tried, "not visible yet");
                tried += 1;
                tokio::time::sleep(line.every).await;
            }
            result => return result,
        }
    }
}

/// Calls `find_missing` until nothing is missing, as often as the table allows; returns what is
/// missing in the end.
///
/// # Errors
/// Of the first call of `find_missing` that fails.
pub async fn until_nothing_is_missing<T, E, F>(
    lag: Lag,
    mut find_missing: impl FnMut() -> F,
) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<Vec<T>, E>>,
{
    let line = lag.line();
    let mut tried = 1;
    loop {
        let missing = find_missing().await?;
        if missing.is_empty() || tried >= line.tries {
            return Ok(missing);
        }
        tried += 1;
        tokio::time::sleep(line.every).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn error(code: &str, message: &str) -> AwsError {
        AwsError {
            action: "eks:CreateAccessEntry",
            resource: "x".into(),
            code: Some(code.into()),
            message: message.into(),
            no_answer: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_a_role_to_become_visible() {
        let tries = Cell::new(0);
        let result = until_visible(Lag::RoleInAccessEntry, || async {
            tries.set(tries.get() + 1);
            if tries.get() < 3 {
                Err(error("InvalidParameterException", "invalid principal"))
            } else {
                Ok(tries.get())
            }
        });
        assert_eq!(result.await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_until_the_operator_has_seen_what_was_mended_and_not_for_ever() {
        let calls = Cell::new(0);
        let find = |until: u32| {
            let calls = &calls;
            move || async move {
                calls.set(calls.get() + 1);
                let missing = if calls.get() < until { vec!["default"] } else { Vec::new() };
                Ok::<_, ()>(missing)
            }
        };
        let began = tokio::time::Instant::now();
        assert_eq!(until_nothing_is_missing(Lag::Mended, find(4)).await, Ok(Vec::new()));
        assert_eq!(began.elapsed(), Duration::from_secs(6));
        calls.set(0);
        let missing = until_nothing_is_missing(Lag::Mended, find(u32::MAX)).await;
        assert_eq!((missing, calls.get()), (Ok(vec!["default"]), 60));
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_at_the_end_of_the_table_and_at_once_on_other_errors() {
        let tries = Cell::new(0);
        let call = |message: &'static str| {
            let tries = &tries;
            move || async move {
                tries.set(tries.get() + 1);
                Err::<(), _>(error("InvalidParameterException", message))
            }
        };
        assert!(until_visible(Lag::RoleInAccessEntry, call("invalid principal")).await.is_err());
        assert_eq!(tries.get(), 20);
        tries.set(0);
        assert!(
            until_visible(Lag::RoleInAccessEntry, call("groups are not allowed")).await.is_err()
        );
        assert_eq!(tries.get(), 1);
    }
}
