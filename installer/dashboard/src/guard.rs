//! Which pages may ask: the one that this server has sent.
//!
//! The loopback address is open to every user and every web page of the machine. So data needs a
//! token, which comes in a header that no other page can send; the `Host` has to be ours, so that a
//! foreign name that resolves to 127.0.0.1 gets nothing; and a foreign `Origin` is refused.

use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use http::{HeaderMap, StatusCode};

use crate::Failure;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names of the loopback address.
const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];

/// Whether a request may have the page itself, which has nothing of the cluster in it. `port` is
/// the one that it must name, if it may not be any.
pub(crate) fn page(headers: &HeaderMap, port: Option<u16>) -> Result<(), Failure> {
    // HTTP/1.1 requires one; two are an attempt to be read in two ways.
    let host = text(headers, &HOST).filter(|_| headers.get_all(HOST).iter().count() == 1);
    let Some(host) = host.filter(|host| is_ours(host, port)) else {
        let message = "this server answers to 127.0.0.1 and localhost only";
        return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, message));
    };
    let is_foreign = |origin: &str| {
        let origin = origin.strip_prefix("http://");
        // With any port, another one is another program's.
        !origin.is_some_and(|origin| is_ours(origin, port) && (port.is_some() || origin == host))
    };
    if headers.get(ORIGIN).map(|it| it.to_str().unwrap_or_default()).is_some_and(is_foreign) {
        return Err(elsewhere());
    }
    Ok(())
}

/// Whether a request for data comes from the page, as far as browsers say. `none` is a person, in
/// the address bar.
pub(crate) fn data(headers: &HeaderMap) -> Result<(), Failure> {
    let is_own = matches!(text(headers, &FETCH_SITE), Some("same-origin" | "none"));
    if headers.contains_key(FETCH_SITE) && !is_own { Err(elsewhere()) } else { Ok(()) }
}

/// The token of a request; empty if there is none.
pub(crate) fn token(headers: &HeaderMap) -> &str {
    let given = text(headers, &AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
    given.unwrap_or_default().trim()
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn is_ours(host: &str, port: Option<u16>) -> bool {
    let named = |name: &&str| host.strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
    let given = NAMES.iter().find_map(named).and_then(|port| port.parse::<u16>().ok());
    given.is_some_and(|given| port.is_none_or(|port| port == given))
}

fn elsewhere() -> Failure {
    Failure::new(StatusCode::FORBIDDEN, "this request comes from another page")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn refused(port: Option<u16>, host: &str, origin: Option<&str>) -> Option<StatusCode> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).expect("text"));
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).expect("text"));
        }
        page(&headers, port).err().map(|failure| failure.status)
    }

    #[test]
    fn only_names_of_this_address_with_the_right_port_are_answered() {
        let misdirected = Some(StatusCode::MISDIRECTED_REQUEST);
        for (port, host, expected) in [
            (Some(80), "127.0.0.1:80", None),
            (Some(80), "localhost:80", None),
            (Some(80), "localhost:81", misdirected),
            (Some(80), "localhost", misdirected),
            (None, "localhost:7070", None),
            (None, "127.0.0.1:1", None),
            (None, "localhost", misdirected),
            (None, "localhost:", misdirected),
            (None, "localhost.example.com:80", misdirected),
            (None, "example.com:80", misdirected),
            (None, "127.0.0.1:80.example.com", misdirected),
        ] {
            assert_eq!(refused(port, host, None), expected, "{port:?} {host}");
        }
    }

    #[test]
    fn an_origin_is_the_page_itself() {
        let forbidden = Some(StatusCode::FORBIDDEN);
        for (port, origin, expected) in [
            (None, "http://localhost:7070", None),
            // Another server of this machine.
            (None, "http://localhost:8080", forbidden),
            (None, "http://127.0.0.1:7070", forbidden),
            (None, "https://localhost:7070", forbidden),
            (None, "null", forbidden),
            (Some(7070), "http://127.0.0.1:7070", None),
            (Some(7070), "http://127.0.0.1:8080", forbidden),
        ] {
            assert_eq!(
                refused(port, "localhost:7070", Some(origin)),
                expected,
                "{port:?} {origin}"
            );
        }
    }
}
