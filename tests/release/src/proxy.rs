//! Whether a request goes through a proxy: `HTTPS_PROXY` and `NO_PROXY`, as curl has them.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

/// Proxies that this program was given.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Proxies {
    /// The proxy for HTTPS
    #[arg(long, env = "HTTPS_PROXY", hide = true)]
    pub https_proxy: Option<String>,
    /// What goes past it
    #[arg(long, env = "NO_PROXY", hide = true)]
    pub no_proxy: Option<String>,
}

impl Proxies {
    /// The proxy for a URL, if it goes through one.
    pub fn of(&self, url: &Uri) -> Option<Uri> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let matcher =
            Matcher::builder().https(text(&self.https_proxy)).no(text(&self.no_proxy)).build();
        matcher.intercept(url).map(|proxy| proxy.uri().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_goes_through_the_proxy_unless_its_host_is_listed() {
        let proxies = Proxies {
            https_proxy: Some("http://proxy:3128".to_owned()),
            no_proxy: Some("inside.example,10.0.0.0/8".to_owned()),
        };
        let of = |url: &'static str| proxies.of(&Uri::from_static(url)).map(|uri| uri.to_string());
        assert_eq!(of("https://registry.example/v2/").as_deref(), Some("http://proxy:3128/"));
        assert_eq!(of("http://registry.example/v2/"), None);
        assert_eq!(of("https://inside.example/v2/"), None);
        assert_eq!(of("https://10.1.2.3:5000/v2/"), None);
        assert_eq!(Proxies::default().of(&Uri::from_static("https://a.example/")), None);
    }
}
