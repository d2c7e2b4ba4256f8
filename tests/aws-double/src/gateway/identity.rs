//! Whose access keys these are: users that the bed makes (the person who installs, with or without
//! restrictions), and sessions of roles.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tenon_iam_policies::{Document, Partition};

use super::policy::NamedDocument;
use super::request::{AwsRequest, Credential, Protocol};
use super::response::AwsError;
use super::service::Principal;
use crate::clock::Clock;

/// What a program needs to sign calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// `AKIA…` of users, `ASIA…` of sessions.
    pub access_key: String,
    /// The secret.
    pub secret_key: String,
    /// The session token, of sessions.
    pub session_token: Option<String>,
    /// When a session ends.
    pub expires: Option<Timestamp>,
}

/// What somebody may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grants {
    /// Everything.
    Everything,
    /// What these documents allow.
    Documents(Vec<NamedDocument>),
    /// What the policies of a user of IAM and of their groups allow, as moto holds them when a call
    /// is made.
    User {
        /// The user's name.
        name: String,
    },
    /// What the policies of a role allow, as moto holds them when a call is made.
    Role {
        /// The role's name.
        name: String,
        /// The session policy that limits them further.
        session_policy: Option<Document>,
    },
}

/// Who an access key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who calls.
    pub principal: Principal,
    /// What they may do.
    pub grants: Grants,
    /// The secret that they sign with.
    pub secret_key: String,
    session_token: Option<String>,
    expires: Option<Timestamp>,
    /// Whether IAM lets the key be used.
    active: bool,
}

/// A role of which a session is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionOf<'a> {
    /// The role's ARN, with its path.
    pub role_arn: &'a str,
    /// The role's unique id (`AROA…`).
    pub role_id: &'a str,
    /// The session's name.
    pub session_name: &'a str,
    /// The session's tags.
    pub tags: Vec<(String, String)>,
    /// The policy that limits the session.
    pub policy: Option<Document>,
    /// How long it lasts.
    pub lasts: SignedDuration,
}

/// Why credentials are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The call is not signed.
    #[error("Request is missing Authentication Token")]
    Unsigned,
    /// Nobody has this access key, it is not active, or the session token is not the one that
    /// belongs to it.
    #[error("The security token included in the request is invalid.")]
    Unknown,
    /// The session is over.
    #[error("The security token included in the request is expired")]
    Expired,
}

/// Every access key of the account.
#[derive(Debug)]
pub struct Identities {
    account: String,
    partition: Partition,
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    by_key: BTreeMap<String, Identity>,
    rng: StdRng,
}

impl Identities {
    /// Nobody yet. The seed makes keys the same in every run.
    pub fn new(account: impl Into<String>, clock: Clock, seed: u64) -> Self {
        let inner = Inner { by_key: BTreeMap::new(), rng: StdRng::seed_from_u64(seed) };
        Self { account: account.into(), partition: Partition::Aws, clock, inner: Mutex::new(inner) }
    }

    /// The same, with ARNs of this partition.
    #[must_use]
    pub(crate) fn in_partition(mut self, partition: Partition) -> Self {
        self.partition = partition;
        self
    }

    /// Adds a user with an access key.
    pub fn add_user(&self, name: &str, grants: Grants) -> Credentials {
        let mut inner = self.inner.lock();
        let id = inner.text(16);
        let principal = Principal {
            arn: format!("arn:{}:iam::{}:user/{name}", self.partition, self.account),
            account: self.account.clone(),
            user_id: format!("AIDA{}", id.to_ascii_uppercase()),
            role_arn: None,
            session_tags: vec![],
        };
        inner.add(principal, grants, None)
    }

    /// Makes an access key known that IAM has made for one of its users.
    pub(crate) fn add_key(
        &self,
        principal: Principal,
        name: &str,
        access_key: &str,
        secret_key: &str,
    ) {
        let identity = Identity {
            principal,
            grants: Grants::User { name: name.to_owned() },
            secret_key: secret_key.to_owned(),
            session_token: None,
            expires: None,
            active: true,
        };
        self.inner.lock().by_key.insert(access_key.to_owned(), identity);
    }

    /// Lets a key be used, or not, from the next call on.
    pub(crate) fn set_active(&self, access_key: &str, active: bool) {
        if let Some(identity) = self.inner.lock().by_key.get_mut(access_key) {
            identity.active = active;
        }
    }

    /// Forgets a key that IAM has deleted.
    pub(crate) fn remove_key(&self, access_key: &str) {
        self.inner.lock().by_key.remove(access_key);
    }

    /// Changes what a user may do, from the next call on. Returns whether there is such a key.
    pub fn set_grants(&self, access_key: &str, grants: Grants) -> bool {
        self.inner
            .lock()
            .by_key
            .get_mut(access_key)
            .map(|identity| identity.grants = grants)
            .is_some()
    }

    /// What the user of this ARN may do; `None` when there is no such user.
    pub(crate) fn grants_of(&self, arn: &str) -> Option<Grants> {
        let inner = self.inner.lock();
        let user = inner.by_key.values().find(|identity| identity.principal.arn == arn)?;
        Some(user.grants.clone())
    }

    /// Opens a session of a role.
    pub(crate) fn open_session(&self, of: SessionOf<'_>) -> (Principal, Credentials) {
        let SessionOf { role_arn, role_id, session_name, tags, policy, lasts } = of;
        let name = role_arn.rsplit('/').next().unwrap_or(role_arn);
        let principal = Principal {
            arn: format!(
                "arn:{}:sts::{}:assumed-role/{name}/{session_name}",
                self.partition, self.account
            ),
            account: self.account.clone(),
            user_id: format!("{role_id}:{session_name}"),
            role_arn: Some(role_arn.to_owned()),
            session_tags: tags,
        };
        let grants = Grants::Role { name: name.to_owned(), session_policy: policy };
        let expires = self.clock.now().saturating_add(lasts).unwrap_or(Timestamp::MAX);
        let credentials = self.inner.lock().add(principal.clone(), grants, Some(expires));
        (principal, credentials)
    }

    /// Who signed a call.
    pub(crate) fn identify(&self, credential: Option<&Credential>) -> Result<Identity, Refusal> {
        let credential = credential.ok_or(Refusal::Unsigned)?;
        let inner = self.inner.lock();
        let identity = inner.by_key.get(&credential.access_key).ok_or(Refusal::Unknown)?;
        if identity.session_token != credential.session_token || !identity.active {
            return Err(Refusal::Unknown);
        }
        if identity.expires.is_some_and(|expires| expires <= self.clock.now()) {
            return Err(Refusal::Expired);
        }
        Ok(identity.clone())
    }
}

impl Inner {
    fn add(
        &mut self,
        principal: Principal,
        grants: Grants,
        expires: Option<Timestamp>,
    ) -> Credentials {
        let prefix = if expires.is_some() { "ASIA" } else { "AKIA" };
        let access_key = format!("{prefix}{}", self.text(16).to_ascii_uppercase());
        let secret_key = self.text(40);
        let session_token = expires.is_some().then(|| self.text(120));
        let identity = Identity {
            principal,
            grants,
            secret_key: secret_key.clone(),
            session_token: session_token.clone(),
            expires,
            active: true,
        };
        self.by_key.insert(access_key.clone(), identity);
        Credentials { access_key, secret_key, session_token, expires }
    }

    /// Letters and digits.
    fn text(&mut self, length: usize) -> String {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        (0..length).map(|_| char::from(LETTERS[self.rng.random_range(0..LETTERS.len())])).collect()
    }
}

impl Refusal {
    /// The error as the called service words it.
    pub fn error(self, request: &AwsRequest) -> AwsError {
        let message = self.to_string();
        match (request.protocol, self) {
            (Protocol::Ec2, Self::Expired) => {
                AwsError::new("RequestExpired", "Request has expired.")
            }
            (Protocol::Ec2, Self::Unknown) => AwsError::new(
                "AuthFailure",
                "AWS was not able to validate the provided access credentials",
            ),
            (Protocol::Json(_), Self::Unknown) if request.service != "sqs" => {
                AwsError::new("UnrecognizedClientException", message).with_status(400)
            }
            (Protocol::RestJson, Self::Unknown) => {
                AwsError::new("UnrecognizedClientException", message)
            }
            (Protocol::Json(_), Self::Expired) if request.service != "sqs" => {
                AwsError::new("ExpiredTokenException", message).with_status(400)
            }
            (Protocol::RestJson, Self::Expired) => AwsError::new("ExpiredTokenException", message),
            (_, Self::Unknown) => AwsError::new("InvalidClientTokenId", message),
            (_, Self::Expired) => AwsError::new("ExpiredToken", message),
            (_, Self::Unsigned) => AwsError::new("MissingAuthenticationToken", message),
        }
    }
}

#[cfg(test)]
mod tests;
