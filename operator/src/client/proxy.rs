//! The way to the API server: direct, or through the proxy that the configuration names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use kube::Config;
use kube::client::ConfigExt as _;
use percent_encoding::percent_decode_str;

/// What opens connections.
pub(super) enum Route {
    /// Nothing in between.
    Direct(HttpConnector),
    /// A SOCKS5 proxy.
    Socks(SocksV5<HttpConnector>),
    /// `CONNECT` through a proxy that is spoken to in plain text.
    Tunnel(Tunnel<HttpConnector>),
    /// `CONNECT` through a proxy that is spoken to over TLS.
    SecureTunnel(Tunnel<HttpsConnector<HttpConnector>>),
}

/// The route of a configuration.
pub(super) fn route(config: &Config, connector: HttpConnector) -> Result<Route, kube::Error> {
    let Some(proxy) = &config.proxy_url else { return Ok(Route::Direct(connector)) };
    match proxy.scheme_str() {
        Some("socks5") => Ok(Route::Socks(SocksV5::new(proxy.clone(), connector))),
        Some("http") => {
            let tunnel = Tunnel::new(proxy.clone(), connector);
            Ok(Route::Tunnel(match credentials(proxy)? {
                Some(value) => tunnel.with_auth(value),
                None => tunnel,
            }))
        }
        Some("https") => {
            let connector = config.rustls_https_connector_with_connector(connector)?;
            let tunnel = Tunnel::new(proxy.clone(), connector);
            Ok(Route::SecureTunnel(match credentials(proxy)? {
                Some(value) => tunnel.with_auth(value),
                None => tunnel,
            }))
        }
        _ => Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy.clone()) }),
    }
}

/// `Proxy-Authorization` for a proxy whose URL has a user. Characters that a URL can't hold are
/// escaped there, and sent as they are.
fn credentials(proxy: &Uri) -> Result<Option<HeaderValue>, kube::Error> {
    let user = proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
    let Some((user, _)) = user else { return Ok(None) };
    let user: Vec<u8> = percent_decode_str(user).collect();
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(user)))
        .map_err(|error| kube::Error::HttpError(error.into()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_in_the_url_of_a_proxy_is_sent_as_it_is() {
        let sent = |url: &str| {
            let value = credentials(&url.parse().unwrap()).unwrap();
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let expected = format!("Basic {}", STANDARD.encode("mary:p@ss:word"));
        assert_eq!(sent("http://mary:p%40ss%3Aword@proxy:3128"), Some(expected));
        assert_eq!(sent("http://proxy:3128"), None);
    }
}
