//! Systems Manager parameters, remembered.

use std::time::Duration;

use aws_sdk_ssm::Client;

use super::backoff::{Backoff, Waits};
use super::error::{Error, Result};
use super::ttl::TtlMap;

/// Parameters of AWS change seldom; a release that is deprecated is noticed sooner (see
/// [`Parameters::mutable`]).
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Parameters that a user names.
const USER_TTL: Duration = Duration::from_secs(5 * 60);

/// What a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An alias' newest version: what it holds may change.
    Latest,
    /// A pinned version.
    Pinned,
    /// Named by a user.
    User,
}

/// Reads parameters.
#[derive(Debug)]
pub(super) struct Parameters {
    ssm: Client,
    values: TtlMap<String, (String, Purpose)>,
    /// Parameters that do not exist: on every reconcile they would be three to five calls in vain.
    missing: Backoff<String>,
}

impl Parameters {
    /// Nothing read yet.
    pub(super) fn new(ssm: Client) -> Self {
        Self { ssm, values: TtlMap::new(TTL), missing: Backoff::new(Waits::QUESTIONS) }
    }

    /// The value; `None` when the parameter does not exist.
    pub(super) async fn get(&self, name: &str, purpose: Purpose) -> Result<Option<String>> {
        if let Some((value, _)) = self.values.get(name) {
            return Ok(Some(value));
        }
        let key = name.to_owned();
        if self.missing.wait(&key).is_some() {
            return Ok(None);
        }
        let value = match self.ssm.get_parameter().name(name).send().await {
            Ok(answer) => answer.parameter.and_then(|parameter| parameter.value),
            Err(error) => match Error::from_sdk("GetParameter", &error) {
                error if error.is_not_found() => None,
                error => return Err(error),
            },
        };
        let Some(value) = value else {
            self.missing.failed(key);
            return Ok(None);
        };
        self.missing.succeeded(&key);
        tracing::info!(parameter = name, value, "discovered ssm parameter");
        let ttl = if purpose == Purpose::User { USER_TTL } else { TTL };
        self.values.insert_for(key, (value.clone(), purpose), ttl);
        Ok(Some(value))
    }

    /// Names and values of parameters that hold the newest version of something.
    pub(super) fn mutable(&self) -> Vec<(String, String)> {
        self.values
            .entries()
            .into_iter()
            .filter(|(_, (_, purpose))| *purpose == Purpose::Latest)
            .map(|(name, (value, _))| (name, value))
            .collect()
    }

    /// Reads a parameter anew next time.
    pub(super) fn forget(&self, name: &str) {
        self.values.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ssm::operation::get_parameter::{GetParameterError, GetParameterOutput};
    use aws_sdk_ssm::types::Parameter;
    use aws_smithy_mocks::mock;

    use super::*;
    use crate::aws::tests::{coded, mock_ssm};

    #[tokio::test(start_paused = true)]
    async fn a_parameter_that_was_made_meanwhile_is_found_within_seconds() {
        let rule = mock!(Client::get_parameter)
            .sequence()
            .error(|| GetParameterError::generic(coded("ParameterNotFound", "")))
            .output(|| {
                let parameter = Parameter::builder().value("ami-1").build();
                GetParameterOutput::builder().parameter(parameter).build()
            })
            .build();
        let parameters = Parameters::new(mock_ssm(&[&rule]));
        for _ in 0..3 {
            assert_eq!(parameters.get("/mine", Purpose::User).await.unwrap(), None);
        }
        assert_eq!(rule.num_calls(), 1);
        tokio::time::advance(Duration::from_secs(2)).await;
        let found = parameters.get("/mine", Purpose::User).await.unwrap();
        assert_eq!(found.as_deref(), Some("ami-1"));
        tokio::time::advance(USER_TTL / 2).await;
        parameters.get("/mine", Purpose::User).await.unwrap();
        assert_eq!(rule.num_calls(), 2, "what was found is remembered");
    }
}
