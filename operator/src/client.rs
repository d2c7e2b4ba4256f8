//! Clients of the API server on which nothing can hang: every call has a deadline, and no watch
//! stays on a connection that is dead.
//!
//! A network that drops packets tells nobody: the socket looks open, and an answer that never comes
//! is waited for as long as the caller likes. So connections speak HTTP/2 and are pinged, also
//! while nothing is asked for; one whose ping stays unanswered is closed, which ends its calls and
//! watches with an error, and the next call opens another. Where there is no HTTP/2 (plain text, a
//! proxy that breaks TLS open) the kernel probes the connection instead. Calls have a deadline
//! beyond that ([`calls`]), for the API server that answers pings and nothing else.

pub(crate) mod calls;
mod proxy;
pub(crate) mod target;

use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _, RustlsTlsError};
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceBuilder};

use self::calls::{Bounded, CallMetrics};
use self::proxy::Route;

/// How much a stream may send ahead of its reader: hyper's own default, named because
/// [`CONNECTION_WINDOW`] follows from it.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;

/// How much all streams of a connection may send ahead of their readers together. Watches are held
/// back while the state is busy; with less than all of their windows, a few of them could take the
/// connection away from the calls.
const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Until a connection is open, TLS included.
    pub connect: Duration,
    /// Until a call is answered, from the moment when it was asked for to the last byte. A watch
    /// only has to begin within it.
    pub call: Duration,
    /// The same for a list or one page of it.
    pub list: Duration,
    /// A connection that has been silent for so long is pinged.
    pub ping: Duration,
    /// A connection whose ping is not answered within this time is closed.
    pub pong: Duration,
}

impl Deadlines {
    /// For everything but the lease. Lists get as long as the API server itself allows for a call
    /// (`--request-timeout`, a minute by default); others half of it, which is what a slow webhook
    /// may take at most. A dead connection is noticed after 25 seconds at the latest.
    pub(crate) const API: Self = Self {
        connect: Duration::from_secs(10),
        call: Duration::from_secs(30),
        list: Duration::from_secs(60),
        ping: Duration::from_secs(10),
        pong: Duration::from_secs(15),
    };

    /// For the lease, which is lost after ten seconds: what does not answer within five is tried
    /// anew, as upstream does, and a dead connection is noticed early enough for another one.
    pub(crate) const LEASE: Self = Self {
        connect: Duration::from_secs(3),
        call: Duration::from_secs(5),
        list: Duration::from_secs(5),
        ping: Duration::from_secs(2),
        pong: Duration::from_secs(3),
    };

    /// How long a dead connection may stay unnoticed.
    pub(crate) const fn dead_connection(&self) -> Duration {
        self.ping.saturating_add(self.pong)
    }
}

/// A client of the API server that the configuration names.
///
/// Nothing is tried again in silence: to the eviction API 429 means that a PodDisruptionBudget
/// forbids it, which has to be told, and every controller has a back-off of its own. Fails when the
/// configuration can't be used: certificates, credentials, the proxy.
pub(crate) fn connect(
    config: &Config,
    deadlines: Deadlines,
    metrics: &CallMetrics,
) -> Result<Client, kube::Error> {
    match proxy::route(config, kernel_probed(&deadlines))? {
        Route::Direct(connector) => client(config, connector, deadlines, metrics),
        Route::Socks(connector) => client(config, connector, deadlines, metrics),
        Route::Tunnel(connector) => client(config, connector, deadlines, metrics),
        Route::SecureTunnel(connector) => client(config, connector, deadlines, metrics),
    }
}

/// TCP connections that the kernel gives up about when pings would: those of HTTP/1 have no other
/// guard.
fn kernel_probed(deadlines: &Deadlines) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(deadlines.ping));
    connector.set_keepalive_interval(Some(deadlines.pong / 3));
    connector.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(deadlines.dead_connection()));
    connector
}

fn client<C>(
    config: &Config,
    connector: C,
    deadlines: Deadlines,
    metrics: &CallMetrics,
) -> Result<Client, kube::Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let mut tls = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(RustlsTlsError::InvalidServerName);
        let name = name.map_err(kube::Error::RustlsTls)?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(tls.enable_all_versions().wrap_connector(connector));
    connector.set_connect_timeout(Some(deadlines.connect));
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(deadlines.ping)
        .http2_keep_alive_timeout(deadlines.pong)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    let service = Bounded::new(service, deadlines, metrics.clone());
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests;
