//! Everything about who may do what, put together: users and sessions, the gate, STS, EKS, the
//! credentials of pods, and the token webhook.

use std::sync::Arc;

use tenon_iam_policies::Partition;

use super::GatewayConfig;
use super::authorization::Authorization;
use super::aws_state::AwsState;
use super::credentials::service_account::ApiServerTokens;
use super::credentials::{POD_CREDENTIALS_PATH, SessionIssuer};
use super::eks::Eks;
use super::identity::{Credentials, Grants, Identities};
use super::metadata::Metadata;
use super::policy_store::PolicyStore;
use super::pricing::Pricing;
use super::quotas::Quotas;
use super::service::AnyService;
use super::simulation::Simulation;
use super::ssm::Ssm;
use super::token_review::{Authenticator, TOKEN_REVIEW_PATH};
use super::user_keys::UserKeys;
use super::zonal_shifts::RecoveryController;

/// The parts, each shared with the gateway that it is installed in.
pub struct Guard {
    /// Access keys.
    pub identities: Arc<Identities>,
    /// Roles and policies as moto holds them.
    pub policies: Arc<PolicyStore>,
    /// EKS.
    pub eks: Arc<Eks>,
    /// Service Quotas.
    pub quotas: Quotas,
    /// Tokens of service accounts; give it the API server's client once there is one.
    pub tokens: Arc<ApiServerTokens>,
    /// The gate; tells which statements were needed.
    pub authorization: Arc<Authorization>,
    /// Tokens of EKS; have its aws-auth followed once there is an API server.
    pub authenticator: Arc<Authenticator>,
    /// The metadata service; tell it which instances have an instance profile.
    pub metadata: Arc<Metadata>,
    sessions: Arc<SessionIssuer>,
    administrator: Credentials,
}

impl Guard {
    /// The parts for a gateway with this configuration.
    pub fn new(config: &GatewayConfig) -> Self {
        let identities = Identities::new(config.account.as_str(), config.clock, config.seed)
            .in_partition(Partition::of_region(&config.region));
        let identities = Arc::new(identities);
        let administrator = identities.add_user("administrator", Grants::Everything);
        let policies = Arc::new(PolicyStore::default());
        let eks = Arc::new(Eks::new(config.clock, Arc::clone(&policies)));
        let tokens = Arc::new(ApiServerTokens::default());
        let authorization = Arc::new(Authorization::new(
            Arc::clone(&identities),
            Arc::clone(&policies),
            Arc::clone(&eks),
        ));
        let authenticator = Arc::new(Authenticator::new(Arc::clone(&identities), Arc::clone(&eks)));
        let sessions = Arc::new(SessionIssuer::new(
            Arc::clone(&identities),
            Arc::clone(&policies),
            Arc::clone(&eks),
            Arc::<ApiServerTokens>::clone(&tokens),
        ));
        Self {
            identities,
            policies,
            eks,
            quotas: Quotas::default(),
            tokens,
            authorization,
            authenticator,
            metadata: Arc::new(Metadata::new(Arc::clone(&sessions))),
            sessions,
            administrator,
        }
    }

    /// Plugs the parts into a gateway that is about to be started.
    pub fn install(&self, config: &mut GatewayConfig) {
        config.services.extend([
            Arc::<SessionIssuer>::clone(&self.sessions) as Arc<dyn AnyService>,
            Arc::<Eks>::clone(&self.eks),
            Arc::new(Ssm::new()),
            Arc::new(Pricing),
            Arc::new(RecoveryController::new(Arc::clone(&self.eks))),
            Arc::new(self.quotas.clone()),
            Arc::new(UserKeys::new(Arc::clone(&self.identities))),
            Arc::new(Simulation::new(Arc::clone(&self.identities), Arc::clone(&self.policies))),
        ]);
        config.endpoints.push(Arc::<SessionIssuer>::clone(&self.sessions));
        config.endpoints.push(Arc::<Metadata>::clone(&self.metadata));
        config.endpoints.push(Arc::<Authenticator>::clone(&self.authenticator));
        config.gate = Arc::<Authorization>::clone(&self.authorization);
    }

    /// Who may do everything in AWS.
    pub fn administrator(&self) -> &Credentials {
        &self.administrator
    }

    /// Makes the administrator the one who made the cluster: lets them into it. Call it when the
    /// cluster is announced.
    pub fn admit_administrator(&self, aws_state: &AwsState) {
        let arn = aws_state.iam_arn("user/administrator");
        self.eks.grant_cluster_admin(&arn, aws_state);
    }
}

/// Where pods get their credentials, for a gateway at `url`: `AWS_CONTAINER_CREDENTIALS_FULL_URI`.
pub fn pod_credentials_url(url: &str) -> String {
    format!("{url}{POD_CREDENTIALS_PATH}")
}

/// The webhook of the API server's token authenticator, for a gateway at `url`.
pub fn token_review_url(url: &str) -> String {
    format!("{url}{TOKEN_REVIEW_PATH}")
}
