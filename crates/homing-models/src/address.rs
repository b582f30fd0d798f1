//! The place of a server, as far as its address shows it: this machine, a private network or the internet.

use std::net::IpAddr;

use crate::url::Url;

/// The place of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// This machine: its models cost nothing and may have to be loaded first.
    Local,
    /// A private network: its models may have to be loaded first.
    Private,
    /// Elsewhere, or unknown.
    Public,
}

/// The place of the server at `url`.
pub(crate) fn place(url: &str) -> Place {
    let Some(host) = host(url) else { return Place::Public };
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) if ip.is_loopback() || ip.is_unspecified() => Place::Local,
        Ok(IpAddr::V4(ip)) if ip.is_private() || ip.is_link_local() => Place::Private,
        Ok(IpAddr::V6(ip)) if ip.is_loopback() || ip.is_unspecified() => Place::Local,
        Ok(IpAddr::V6(ip)) if ip.is_unique_local() || ip.is_unicast_link_local() => Place::Private,
        Ok(_) => Place::Public,
        Err(_) if host == "localhost" || host.ends_with(".localhost") || host == "host.docker.internal" => Place::Local,
        // A name without a dot is one of the local network or of another container.
        Err(_) if !host.contains('.') => Place::Private,
        Err(_) if [".local", ".lan", ".internal", ".home.arpa"].iter().any(|end| host.ends_with(end)) => Place::Private,
        Err(_) => Place::Public,
    }
}

/// Returns true if both addresses belong to the same domain, such as `openai.com`.
pub(crate) fn is_same_domain(url: &str, other: &str) -> bool {
    match (host(url), host(other)) {
        (Some(host), Some(other)) => domain(&host) == domain(&other),
        (None, _) | (_, None) => false,
    }
}

/// The last two labels of a host.
fn domain(host: &str) -> &str {
    host.rmatch_indices('.').nth(1).map_or(host, |(dot, _)| &host[dot + 1..])
}

fn host(url: &str) -> Option<String> {
    Url::parse(url.trim()).ok().map(|url| url.host().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_read_from_the_address() {
        for url in ["http://localhost:8080/v1", "http://127.0.0.1", "http://[::1]:1/v1", "http://0.0.0.0:8000/v1"] {
            assert_eq!(place(url), Place::Local, "{url}");
        }
        for url in ["http://192.168.1.7:11434", "http://10.0.0.1", "http://vllm:8000/v1", "http://gpu.lan/v1"] {
            assert_eq!(place(url), Place::Private, "{url}");
        }
        for url in ["https://api.openai.com/v1", "https://8.8.8.8/v1", "https://localhost.example.org", "", "nonsense"]
        {
            assert_eq!(place(url), Place::Public, "{url}");
        }
    }

    #[test]
    fn domains_are_compared_without_their_hosts() {
        assert!(is_same_domain("https://eu.api.openai.com/v1", "https://api.openai.com/v1"));
        assert!(is_same_domain("http://server/v1", "https://server"));
        assert!(!is_same_domain("https://openai.example.com/v1", "https://api.openai.com/v1"));
        assert!(!is_same_domain("", ""));
    }
}
