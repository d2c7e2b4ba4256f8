//! The AWS double's gateway: one loopback port that speaks every AWS API that the operator and the
//! installer use.
//!
//! A call passes: authentication → faults (which may be for one caller) → authorisation → a service
//! of ours, or moto → log. moto (a separate process, see [`crate::moto`]) holds what it models
//! well: IAM, SQS, EventBridge, VPCs. The gateway holds what moto lacks or gets wrong, above all
//! instances ([`instances`]) and launch templates ([`templates`]).

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cache::{self, CacheError};
use crate::clock::Clock;
use crate::moto::{self, Moto, MotoError};
use crate::progress::Progress;

pub mod amis;
pub mod authorization;
mod auto_scaling;
pub mod aws_state;
mod buckets;
pub mod calls;
pub mod catalog;
pub mod consistency;
pub mod control;
pub mod credentials;
mod ec2;
pub mod eks;
pub mod events;
pub mod faults;
mod filters;
pub mod guard;
mod iam;
pub mod identity;
pub mod instance;
pub mod instances;
mod kms;
pub mod metadata;
pub mod moto_client;
pub mod placement_groups;
pub mod policy;
pub(crate) mod policy_store;
pub mod prices;
mod pricing;
mod quotas;
pub mod request;
pub mod reservations;
pub mod response;
pub mod rewrite;
mod scaling_groups;
pub mod seed;
mod server;
pub mod service;
pub(crate) mod shifts;
pub mod signature;
mod simulation;
mod sqs;
mod ssm;
mod templates;
pub mod token_review;
mod user_keys;
pub mod xml;
pub mod zonal_shifts;

use aws_state::AwsState;
use calls::CallLog;
use catalog::Catalog;
use control::Control;
use instances::Instances;
use moto_client::MotoClient;
use response::AwsError;
use server::Server;
use service::{AllowAll, AnyService, Endpoint, Gate};

/// What to start.
pub struct GatewayConfig {
    /// The bed's directory: `moto.log` and `calls.jsonl` are written there.
    pub dir: PathBuf,
    /// Region of all endpoints.
    pub region: String,
    /// The account ID.
    pub account: String,
    /// The port on loopback; 0 takes a free one.
    pub port: u16,
    /// Seed of IDs and of faults with a probability.
    pub seed: u64,
    /// Gives all times that answers hold.
    pub clock: Clock,
    /// Services that go before ours.
    pub(crate) services: Vec<Arc<dyn AnyService>>,
    /// Routes that are no AWS calls.
    pub endpoints: Vec<Arc<dyn Endpoint>>,
    /// Who may do what.
    pub(crate) gate: Arc<dyn Gate>,
    /// Where the installation of moto is shown.
    pub progress: Progress,
}

impl GatewayConfig {
    /// A gateway in eu-central-1 that lets everybody do everything.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            region: "eu-central-1".to_owned(),
            account: "123456789012".to_owned(),
            port: 0,
            seed: 1,
            clock: Clock::system(),
            services: vec![],
            endpoints: vec![],
            gate: Arc::new(AllowAll),
            progress: Progress::hidden(),
        }
    }
}

/// The gateway can't be started.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// moto can't be started.
    #[error("the AWS double can't start moto")]
    Moto(#[from] MotoError),
    /// The cache can't be used.
    #[error("no cache for instance types")]
    Cache(#[from] CacheError),
    /// moto does not tell its instance types.
    #[error("the AWS double can't read instance types from moto")]
    Catalog(#[source] AwsError),
    /// The port can't be bound.
    #[error("the AWS double can't listen on 127.0.0.1:{port}")]
    Listen {
        /// On loopback.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// The call log can't be written.
    #[error("the AWS double can't write its call log in {}", .dir.display())]
    CallLog {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The running gateway. It ends with this handle.
#[derive(Debug)]
pub struct Gateway {
    url: String,
    control: Control,
    moto: Moto,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Gateway {
    /// Starts moto, and the gateway before it.
    ///
    /// # Errors
    /// When moto can't be installed or started, or a file or the port can't be used.
    pub async fn start(config: GatewayConfig) -> Result<Self, GatewayError> {
        let GatewayConfig {
            dir,
            region,
            account,
            port,
            seed,
            clock,
            mut services,
            endpoints,
            gate,
            progress,
        } = config;
        let cache = cache::dir()?;
        let moto = Moto::start(&dir, &account, &progress).await?;
        let client = MotoClient::new(moto.url(), region.as_str());
        let catalog = Catalog::load(&cache.join("moto"), &client, &region, moto::VERSION)
            .await
            .map_err(GatewayError::Catalog)?;
        let aws_state = Arc::new(
            AwsState::new(account, region, clock, client).with_catalog(catalog).with_seed(seed),
        );
        let calls = CallLog::to_file(&dir.join("calls.jsonl"))
            .map_err(|source| GatewayError::CallLog { dir, source })?;
        let calls = Arc::new(calls);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(|source| GatewayError::Listen { port, source })?;
        let address =
            listener.local_addr().map_err(|source| GatewayError::Listen { port, source })?;
        let control = Control::new(Arc::clone(&aws_state), Arc::clone(&calls), seed);
        services.extend([
            Arc::new(ec2::Ec2) as Arc<dyn AnyService>,
            Arc::new(iam::Iam),
            Arc::new(sqs::Sqs),
            Arc::new(auto_scaling::AutoScaling),
            Arc::new(events::EventBridge),
            Arc::new(buckets::Buckets),
        ]);
        let server = Arc::new(Server {
            aws_state: Arc::clone(&aws_state),
            services,
            endpoints,
            gate,
            calls,
            control: control.clone(),
        });
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.serve(listener, stop.clone()));
        // Unbounded: a change is a few bytes, and instances are few.
        let (announced, changed) = mpsc::unbounded_channel();
        tasks.spawn(Server::tick(Arc::clone(&aws_state), announced, stop.clone()));
        tasks.spawn(Server::announce(aws_state, changed, stop.clone()));
        Ok(Self { url: format!("http://{address}"), control, moto, stop, tasks })
    }

    /// Its URL, without a slash at the end: the endpoint of every AWS service.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// By which tests change what AWS does.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The state that services share.
    pub fn state(&self) -> &Arc<AwsState> {
        self.control.state()
    }

    /// All instances, whenever one changes: for those who play their machines.
    pub fn instances(&self) -> watch::Receiver<Instances> {
        self.state().instances().watch()
    }

    /// moto behind it.
    pub fn moto(&self) -> &Moto {
        &self.moto
    }

    /// Ends it and moto; open connections are cut.
    pub async fn stop(self) {
        let Self { moto, stop, mut tasks, .. } = self;
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        moto.stop().await;
    }
}
