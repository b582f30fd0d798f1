//! HTTP client that only connects to permitted addresses: they are checked after name resolution, and the connection
//! uses the address that was checked.

use std::{
    error::Error,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use homing_sandbox::egress::Reach;
use reqwest::{
    Client, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};

/// The `User-Agent` header.
const USER_AGENT: &str = concat!("homing/", env!("CARGO_PKG_VERSION"));

/// Creates a client that follows no redirects, uses no proxy, and connects only within `reach`.
pub(crate) fn client(reach: Reach) -> Result<Client, String> {
    Client::builder()
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(Duration::from_secs(10))
        .dns_resolver(CheckedResolver { reach })
        .build()
        .map_err(|error| format!("cannot create an HTTP client: {}", root_of(&error)))
}

/// Resolves names, and rejects those that resolve to an address out of reach.
struct CheckedResolver {
    reach: Reach,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.reach;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One private address among public ones is enough to reject: such a name is a sign of DNS rebinding.
            if let Some(private) = found.iter().find(|address| !reach.includes(address.ip())) {
                return Err(
                    format!("{} resolves to {}, which is not a public address", name.as_str(), private.ip()).into()
                );
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Returns the message for a host that the run's network permissions do not include.
pub(crate) fn network_denied(host: &str) -> String {
    format!("this run has no network permission for {host}")
}

/// Returns the message of an error's innermost source.
pub(crate) fn root_of(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// Parses a URL and checks that its form allows fetching it; returns it with its host in the form that rules compare.
///
/// # Errors
/// Fails with a message for the model if the URL is malformed, has credentials, or names an address outside `reach`.
pub(crate) fn checked(text: &str, reach: Reach) -> Result<(Url, String), String> {
    let url = Url::parse(text.trim()).map_err(|error| {
        format!("`{text}` is not a URL ({error}): write it in full, such as https://example.org/page")
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("only http and https are fetched, not `{}`", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("URLs that contain a user name or password are not fetched".to_owned());
    }
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    if host.is_empty() {
        return Err(format!("`{text}` has no host"));
    }
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>()
        && !reach.includes(address)
    {
        return Err(format!("{address} is not a public address"));
    }
    Ok((url, host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t13_ambiguous_urls_are_refused() {
        for url in [
            "file:///etc/passwd",
            "ftp://example.org",
            "gopher://x",
            "data:text/html,x",
            "javascript:alert(1)",
            "example.org",
            "",
            "http://",
            "http://user@example.org",
            "http://user:pw@example.org",
            "http://example.org@evil.com\\@x",
            "http://169.254.169.254/latest",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://017700000001/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://127.1/",
            "http://a\0.allowed.com/",
            "http://127.0.0.1./",
            "http://①②⑦.0.0.1/",
        ] {
            assert!(checked(url, Reach::Public).is_err(), "{url:?}: {:?}", checked(url, Reach::Public));
        }
        let host = |url: &str| checked(url, Reach::Public).unwrap().1;
        assert_eq!(host("HTTPS://EXAMPLE.org./x"), "example.org");
        assert_eq!(host("https://ex\u{430}mple.org"), "xn--exmple-4nf.org");
    }
}
