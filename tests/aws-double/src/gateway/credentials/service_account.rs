//! Tokens of service accounts, and the API server that says whether they are good.

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::{Api, PostParams};
use parking_lot::RwLock;

/// Whom a token belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountToken {
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub name: String,
    /// The pod that the token was made for; empty when it was made for none.
    pub pod: String,
    /// The pod's uid.
    pub pod_uid: String,
}

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The API server does not accept it.
    #[error("the token is not valid: {0}")]
    NotAuthenticated(String),
    /// The API server can't be asked.
    #[error("the API server can't be asked about tokens: {0}")]
    Unavailable(String),
}

/// Says whether tokens are good.
pub trait ReviewTokens: Send + Sync + 'static {
    /// Whom the token belongs to, if it is good for the audience.
    fn review<'a>(
        &'a self,
        token: &'a str,
        audience: &'a str,
    ) -> BoxFuture<'a, Result<ServiceAccountToken, TokenRefusal>>;
}

/// Asks the API server, once there is one.
#[derive(Default)]
pub struct ApiServerTokens {
    client: RwLock<Option<kube::Client>>,
}

impl ApiServerTokens {
    /// Hands in the API server. Until then no token is good.
    pub fn set_client(&self, client: kube::Client) {
        *self.client.write() = Some(client);
    }
}

impl ReviewTokens for ApiServerTokens {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audience: &'a str,
    ) -> BoxFuture<'a, Result<ServiceAccountToken, TokenRefusal>> {
        Box::pin(async move {
            let client = self.client.read().clone();
            let client = client.ok_or_else(|| {
                TokenRefusal::Unavailable("it has not been started yet".to_owned())
            })?;
            let review = TokenReview {
                spec: TokenReviewSpec {
                    token: token.to_owned(),
                    audiences: Some(vec![audience.to_owned()]),
                },
                ..TokenReview::default()
            };
            let reviews: Api<TokenReview> = Api::all(client);
            let answer = reviews.create(&PostParams::default(), &review).await;
            let status = answer
                .map_err(|error| TokenRefusal::Unavailable(error.to_string()))?
                .status
                .unwrap_or_default();
            let refused = |reason: &str| TokenRefusal::NotAuthenticated(reason.to_owned());
            if !status.authenticated.unwrap_or(false) {
                return Err(refused(
                    status.error.as_deref().unwrap_or("the API server does not know it"),
                ));
            }
            if !status.audiences.iter().flatten().any(|of| of == audience) {
                return Err(refused("it is for another audience"));
            }
            let user = status.user.unwrap_or_default();
            let username = user.username.unwrap_or_default();
            let (namespace, name) = username
                .strip_prefix("system:serviceaccount:")
                .and_then(|rest| rest.split_once(':'))
                .ok_or_else(|| refused("it does not belong to a service account"))?;
            let extra = |key: &str| {
                let values = user
                    .extra
                    .as_ref()
                    .and_then(|extra| extra.get(&format!("authentication.kubernetes.io/{key}")));
                values.and_then(|values| values.first().cloned()).unwrap_or_default()
            };
            Ok(ServiceAccountToken {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                pod: extra("pod-name"),
                pod_uid: extra("pod-uid"),
            })
        })
    }
}
