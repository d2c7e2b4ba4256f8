//! Systems Manager parameters, remembered.

use std::time::Duration;

use aws_sdk_ssm::Client;

use super::error::{Error, Result};
use super::ttl::TtlMap;

/// Parameters of AWS change seldom; a release that is deprecated is noticed sooner (see [`Parameters::mutable`]).
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Parameters that a user names.
const USER_TTL: Duration = Duration::from_secs(5 * 60);
/// A parameter that does not exist is asked for again only after this time: on every reconcile it would be three to five calls in vain.
const MISSING_TTL: Duration = Duration::from_secs(5 * 60);

/// What a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An alias' newest version: what it holds may change.
    Latest,
    /// A pinned version.
    Pinned,
    /// Named by a user.
    User,
}

/// Reads parameters.
#[derive(Debug)]
pub struct Parameters {
    ssm: Client,
    values: TtlMap<String, (Option<String>, Purpose)>,
}

impl Parameters {
    /// Nothing read yet.
    pub fn new(ssm: Client) -> Self {
        Self { ssm, values: TtlMap::new(TTL) }
    }

    /// The value; `None` when the parameter does not exist.
    pub async fn get(&self, name: &str, purpose: Purpose) -> Result<Option<String>> {
        if let Some((value, _)) = self.values.get(name) {
            return Ok(value);
        }
        let value = match self.ssm.get_parameter().name(name).send().await {
            Ok(answer) => answer.parameter.and_then(|parameter| parameter.value),
            Err(error) => match Error::from_sdk("GetParameter", &error) {
                error if error.is_not_found() => None,
                error => return Err(error),
            },
        };
        if let Some(value) = &value {
            tracing::info!(parameter = name, value, "discovered ssm parameter");
        }
        let ttl = match (&value, purpose) {
            (None, _) => MISSING_TTL,
            (_, Purpose::User) => USER_TTL,
            _ => TTL,
        };
        self.values.insert_for(name.to_owned(), (value.clone(), purpose), ttl);
        Ok(value)
    }

    /// Names and values of parameters that hold the newest version of something.
    pub fn mutable(&self) -> Vec<(String, String)> {
        self.values
            .entries()
            .into_iter()
            .filter(|(_, (_, purpose))| *purpose == Purpose::Latest)
            .filter_map(|(name, (value, _))| Some((name, value?)))
            .collect()
    }

    /// Reads a parameter anew next time.
    pub fn forget(&self, name: &str) {
        self.values.remove(name);
    }
}
