//! Who may read: a bearer token is authenticated and its user authorized by the API server, as
//! kube-rbac-proxy does.
//!
//! The API server is spared: what it said is kept for a while under a hash of the token, and few
//! reviews run at once.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tenon_state::decision::AUDIENCE;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long a caller may read who was allowed to.
const ALLOWED: Duration = Duration::from_secs(30);
/// How long a caller is refused who was: it may have been given the permission since.
const REFUSED: Duration = Duration::from_secs(5);
/// How many tokens are known at a time.
const KNOWN: usize = 256;
/// Reviews that run at the same time.
const REVIEWS: usize = 8;
/// A review that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the API server says about a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The caller may read.
    Allowed,
    /// The token is nobody's.
    Unknown,
    /// The user may not.
    Forbidden {
        /// Its name.
        user: String,
    },
}

/// The API server could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    /// It refused, or could not be reached.
    #[error("creating a {review}")]
    Api {
        /// The kind of review.
        review: &'static str,
        /// Why.
        source: kube::Error,
    },
    /// It said nothing in time.
    #[error("the API server did not answer in time")]
    Timeout,
}

/// Asks the API server, and remembers what it said.
#[derive(Debug)]
pub(crate) struct Access {
    /// The non-resource URL that callers must be permitted to `get`.
    path: &'static str,
    reviews: Semaphore,
    known: Mutex<Known>,
}

/// By hash of the token, with the end of the time for which it holds.
type Known = BTreeMap<[u8; 32], (Verdict, Instant)>;

impl Access {
    /// For what is served at a path.
    pub(crate) fn new(path: &'static str) -> Self {
        Self { path, reviews: Semaphore::new(REVIEWS), known: Mutex::default() }
    }

    /// Whether the bearer of a token may read.
    pub(crate) async fn check(&self, client: &Client, token: &str) -> Result<Verdict, AccessError> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(verdict) = self.recall(&key) {
            return Ok(verdict);
        }
        let review = async {
            let Ok(_permit) = self.reviews.acquire().await else {
                return Err(AccessError::Timeout);
            };
            // Who came first may have asked for the same.
            match self.recall(&key) {
                Some(verdict) => Ok(verdict),
                None => review(client, token, self.path).await,
            }
        };
        let verdict =
            tokio::time::timeout(TIMEOUT, review).await.map_err(|_| AccessError::Timeout)??;
        self.remember(key, verdict.clone());
        Ok(verdict)
    }

    fn recall(&self, key: &[u8; 32]) -> Option<Verdict> {
        let known = self.known.lock();
        let (verdict, until) = known.get(key)?;
        (Instant::now() < *until).then(|| verdict.clone())
    }

    fn remember(&self, key: [u8; 32], verdict: Verdict) {
        let now = Instant::now();
        let lasts = if verdict == Verdict::Allowed { ALLOWED } else { REFUSED };
        let mut known = self.known.lock();
        if known.len() >= KNOWN {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() >= KNOWN {
            let ends_first = known.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key);
            ends_first.and_then(|key| known.remove(&key));
        }
        known.insert(key, (verdict, now + lasts));
    }
}

async fn review(client: &Client, token: &str, path: &str) -> Result<Verdict, AccessError> {
    // A token of the API server's own audience first, as kubeconfigs have them; then one that is
    // good for nothing else. Whoever knows no audiences must not be asked for one.
    let mut user = authenticate(client, token, None).await?;
    if user.is_none() {
        user = authenticate(client, token, Some(AUDIENCE)).await?;
    }
    let Some(user) = user else { return Ok(Verdict::Unknown) };
    let name = user.username.clone().unwrap_or_default();
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    let answer =
        answer.map_err(|source| AccessError::Api { review: "SubjectAccessReview", source })?;
    let allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
    Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden { user: name } })
}

/// The user of a token; none if it is nobody's.
async fn authenticate(
    client: &Client,
    token: &str,
    audience: Option<&str>,
) -> Result<Option<UserInfo>, AccessError> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: token.to_owned(),
            audiences: audience.map(|audience| vec![audience.to_owned()]),
        },
        ..TokenReview::default()
    };
    let api: Api<TokenReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|source| AccessError::Api { review: "TokenReview", source })?;
    let Some(status) = answer.status.filter(|status| status.authenticated == Some(true)) else {
        return Ok(None);
    };
    // An authenticator that knows no audiences answers for its own.
    let fits =
        audience.is_none_or(|audience| status.audiences.iter().flatten().any(|it| it == audience));
    Ok(status.user.filter(|_| fits))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{ApiServer, Request};

    /// An API server that knows two users: `alice` may read and `bob` may not; `alice` has a token
    /// for decisions only, too.
    fn server() -> ApiServer {
        ApiServer::answering(|request| match request.path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => (201, authenticated(request)),
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let spec = &request.body["spec"];
                let attributes = &spec["nonResourceAttributes"];
                assert_eq!(*attributes, json!({"path": "/decisions", "verb": "get"}));
                let allowed = spec["user"] == "alice" && spec["groups"] == json!(["people"]);
                (201, json!({"spec": spec, "status": {"allowed": allowed}}))
            }
            other => panic!("{other}"),
        })
    }

    fn authenticated(request: &Request) -> Value {
        let spec = &request.body["spec"];
        let audiences = spec.get("audiences").cloned();
        let user = match (spec["token"].as_str().unwrap(), &audiences) {
            ("a" | "b", Some(_)) | ("bound", None) => None,
            ("a" | "bound", _) => Some("alice"),
            ("b", _) => Some("bob"),
            _ => None,
        };
        let mut status = json!({"authenticated": user.is_some()});
        if let Some(user) = user {
            status["user"] = json!({"username": user, "groups": ["people"]});
        }
        if let Some(audiences) = audiences {
            status["audiences"] = audiences;
        }
        json!({"spec": spec, "status": status})
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_the_api_server_knows_and_allows_may_read() {
        let (access, server) = (Access::new("/decisions"), server());
        let client = server.client();
        let forbidden = Verdict::Forbidden { user: "bob".to_owned() };
        for (token, expected) in [
            ("a", Verdict::Allowed),
            ("bound", Verdict::Allowed),
            ("b", forbidden),
            ("made up", Verdict::Unknown),
        ] {
            assert_eq!(access.check(&client, token).await.unwrap(), expected, "{token}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_kept_for_a_while_and_refusals_for_less() {
        let (access, server) = (Access::new("/decisions"), server());
        let client = server.client();
        let asked = async |token| {
            access.check(&client, token).await.unwrap();
            server.take_requests().len()
        };
        assert_eq!((asked("a").await, asked("a").await), (2, 0));
        assert_eq!((asked("b").await, asked("b").await), (2, 0));
        tokio::time::advance(REFUSED).await;
        assert_eq!((asked("a").await, asked("b").await), (0, 2));
        tokio::time::advance(ALLOWED).await;
        assert_eq!(asked("a").await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_is_bounded_and_holds_no_tokens() {
        let (access, server) = (Arc::new(Access::new("/decisions")), server());
        let client = server.client();
        for n in 0..2 * KNOWN {
            access.check(&client, &format!("made up {n}")).await.unwrap();
        }
        assert_eq!(access.known.lock().len(), KNOWN);
        access.check(&client, "a").await.unwrap();
        assert_eq!(access.recall(&Sha256::digest(b"a").into()), Some(Verdict::Allowed));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_an_api_server_that_can_not_be_asked() {
        let server = ApiServer::answering(|_| crate::testing::refused(403, "Forbidden"));
        let access = Access::new("/decisions");
        let error = access.check(&server.client(), "a").await.unwrap_err();
        assert_eq!(error.to_string(), "creating a TokenReview");
        assert_eq!(access.known.lock().len(), 0);
    }
}
