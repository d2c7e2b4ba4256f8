//! `tenon dashboard`: a page in a browser on this machine, from the kubeconfig's rights. Page and
//! server are those of `tenon-dashboard`; here is where the data comes from, and the token.

mod source;
#[cfg(test)]
mod tests;
mod token;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::StatusCode;
use tenon_dashboard::{App, Backend, Failure};
use tenon_simulate::{Simulation, Subject, WhatIf};
use tenon_state::decision::{Decisions, MOST};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::errors::ExpectedError;
use crate::ledger::{Ledger, Question};

pub(crate) use self::source::Source;
use self::token::Token;

/// A dashboard that has its port and is not served yet.
pub(crate) struct Dashboard {
    listener: TcpListener,
    local: Local,
    app: Arc<App<Local>>,
}

impl Dashboard {
    /// Takes a port of the loopback address; 0 is any that is free. Without a ledger the page says
    /// that there are no decisions to read.
    ///
    /// # Errors
    /// When the port is taken, there is no randomness for the token, or the source can't be read:
    /// then a terminal is the better place to say so.
    pub(crate) async fn open(
        port: u16,
        source: Source,
        ledger: Option<Ledger>,
    ) -> Result<Self, ExpectedError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let failed = |source| ExpectedError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let token = Token::new().map_err(failed)?;
        let read = source.read().await?;
        let local = Local::new(port, token, source, ledger);
        let app = App::new(local.clone());
        app.begin(read).await;
        Ok(Self { listener, local, app: Arc::new(app) })
    }

    /// Where the page is, with its token.
    pub(crate) fn url(&self) -> String {
        self.local.url()
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(self) {
        tenon_dashboard::serve(self.listener, self.app).await;
    }
}

/// What the page shows, for whoever has the token.
#[derive(Clone)]
struct Local {
    port: u16,
    token: Arc<Token>,
    source: Source,
    /// One question at a time, as its connection takes them.
    ledger: Option<Arc<Mutex<Ledger>>>,
}

impl Local {
    fn new(port: u16, token: Token, source: Source, ledger: Option<Ledger>) -> Self {
        let ledger = ledger.map(|ledger| Arc::new(Mutex::new(ledger)));
        Self { port, token: Arc::new(token), source, ledger }
    }

    /// Browsers send no fragment to servers, write none into a `Referer`, and the page removes it
    /// from the address bar.
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/#token={}", self.port, self.token.text())
    }
}

const HOW_TO_OPEN: &str =
    "open the URL that tenon dashboard has printed, with everything after the #";

impl Backend for Local {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn port(&self) -> Option<u16> {
        Some(self.port)
    }

    fn how_to_open(&self) -> &'static str {
        HOW_TO_OPEN
    }

    async fn authorize(&self, token: &str) -> Result<(), Failure> {
        if self.token.is(token) {
            return Ok(());
        }
        let message = "the token is missing or is that of another run of tenon dashboard";
        Err(Failure::new(StatusCode::UNAUTHORIZED, message).hint(HOW_TO_OPEN))
    }

    async fn read(&self) -> Result<(Simulation, Vec<String>), Failure> {
        self.source.read().await.map_err(|error| failure(&error))
    }

    async fn observe(&self, simulation: &mut Simulation, subject: &Subject) {
        self.source.observe(simulation, subject).await;
    }

    async fn what_if(&self, manifests: String) -> Result<WhatIf, Failure> {
        self.source.what_if(&manifests).await.map_err(|error| failure(&error))
    }

    async fn decisions(&self, after: Option<u64>) -> Result<Decisions, Failure> {
        let Some(ledger) = &self.ledger else {
            let message = "decisions are read from the operator of a cluster";
            let failure = Failure::new(StatusCode::NOT_FOUND, message);
            return Err(failure.hint("start tenon dashboard without -f, or with --url"));
        };
        let question = Question { after, limit: MOST, ..Question::default() };
        ledger.lock().await.ask(&question).await.map_err(|error| failure(&error.into()))
    }
}

/// The same words as on a terminal.
fn failure(error: &ExpectedError) -> Failure {
    let status = match error {
        ExpectedError::Simulate(error) => Failure::status_of(error),
        _ => StatusCode::BAD_GATEWAY,
    };
    let (message, details, hints) = (error.message(), error.details(), error.hints());
    Failure { status, message, details, hints }
}
