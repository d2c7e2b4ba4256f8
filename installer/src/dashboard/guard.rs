//! Who may ask: whoever has the token, from a page that this server has sent.
//!
//! The loopback address is open to every user and every web page of the machine. So data needs the
//! token, which is in the URL's fragment only and comes in a header that no other page can send;
//! the `Host` has to be ours, so that a foreign name that resolves to 127.0.0.1 gets nothing; and a
//! foreign `Origin` is refused.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::rand;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};

/// Bytes of the token.
const TOKEN: usize = 16;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who may ask.
pub(super) struct Access {
    /// In hexadecimal digits.
    token: String,
    /// The hosts that requests may name, with the port.
    hosts: [String; 2],
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It names another host.
    Host,
    /// It comes from another page.
    Origin,
    /// It has no token, or another one.
    Token,
}

impl Refusal {
    /// For who sees it.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Host => "this server answers to 127.0.0.1 and localhost only",
            Self::Origin => "this request comes from another page",
            Self::Token => "the token is missing or is that of another run of tenon dashboard",
        }
    }

    /// What to do.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Host | Self::Origin | Self::Token => {
                "open the URL that tenon dashboard has printed, with everything after the #"
            }
        }
    }
}

impl Access {
    /// With a new token, for a server on this port.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub(super) fn new(port: u16) -> std::io::Result<Self> {
        let mut bytes = [0; TOKEN];
        rand::fill(&mut bytes).map_err(|_| std::io::Error::other("there is no randomness"))?;
        let token = format!("{:032x}", u128::from_be_bytes(bytes));
        let hosts = ["127.0.0.1", "localhost"].map(|host| format!("{host}:{port}"));
        Ok(Self { token, hosts })
    }

    /// Where the page is. Browsers send no fragment to servers, write none into a `Referer`, and
    /// the page removes it from the address bar.
    pub(super) fn url(&self) -> String {
        format!("http://{}/#token={}", self.hosts[0], self.token)
    }

    /// Whether a request may have the page itself, which has nothing of the cluster in it.
    pub(super) fn page(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let is_ours = |host: &str| self.hosts.iter().any(|known| known == host);
        // HTTP/1.1 requires one; two are an attempt to be read in two ways.
        if headers.get_all(HOST).iter().count() != 1 || !text(HOST).is_some_and(is_ours) {
            return Err(Refusal::Host);
        }
        let origin = text(ORIGIN);
        let foreign = |origin: &str| !origin.strip_prefix("http://").is_some_and(is_ours);
        if origin.is_some_and(foreign) { Err(Refusal::Origin) } else { Ok(()) }
    }

    /// Whether a request may have data of the cluster.
    pub(super) fn data(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.page(headers)?;
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // Sent by browsers: where the request was made. `none` is a person, in the address bar.
        if headers.contains_key(FETCH_SITE)
            && !matches!(text(FETCH_SITE), Some("same-origin" | "none"))
        {
            return Err(Refusal::Origin);
        }
        let given = text(AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
        let given = given.unwrap_or_default().as_bytes();
        verify_slices_are_equal(given, self.token.as_bytes()).map_err(|_| Refusal::Token)
    }
}
