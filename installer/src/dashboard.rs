//! `tenon dashboard`: a page in a browser on this machine, from the kubeconfig's rights. It reads
//! and plans, and writes nothing. `docs/src/design/dashboard.md` describes page and endpoints.
//!
//! [`server`] answers on the loopback address, [`guard`] says who may ask, [`assets`] is the page,
//! [`fleet`] the cluster as it was read last, [`log`] the operator's decisions.

mod assets;
mod fleet;
mod guard;
mod log;
mod server;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::errors::ExpectedError;
use crate::ledger::Ledger;

use self::fleet::FleetReader;
pub(crate) use self::fleet::Source;
use self::guard::Access;
use self::log::Log;
use self::server::App;

/// A dashboard that has its port and is not served yet.
pub(crate) struct Dashboard {
    listener: TcpListener,
    app: Arc<App>,
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
        let access = Access::new(port).map_err(failed)?;
        let fleet = FleetReader::new(source);
        fleet.state().await?;
        let app = App::new(access, fleet, Log::new(ledger));
        Ok(Self { listener, app: Arc::new(app) })
    }

    /// Where the page is, with its token.
    pub(crate) fn url(&self) -> String {
        self.app.url()
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(self) {
        server::serve(self.listener, self.app).await;
    }
}
