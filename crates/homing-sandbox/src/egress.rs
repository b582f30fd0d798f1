//! Decides which network addresses commands and tools may reach: only the public internet, unless the user allows more.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Url;

/// The set of addresses that may be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Only addresses of the public internet.
    #[default]
    Public,
    /// Every address, including this machine's and its local network's. Only if the user asked for it.
    Any,
}

impl Reach {
    /// Returns true if `address` may be reached.
    pub fn includes(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Public => match address {
                IpAddr::V4(address) => is_public_v4(address),
                IpAddr::V6(address) => is_public_v6(address),
            },
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 31, 196)
            | (192, 52, 193)
            | (192, 88, 99)
            | (192, 168, _)
            | (192, 175, 48)
            | (198, 18..=19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    );
    !special
}

/// Global unicast, except ranges that embed an IPv4 address or lead through a tunnel.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let global = (0x2000..=0x3fff).contains(&a);
    let special = matches!((a, b), (0x2001, 0..=0x01ff | 0x0db8) | (0x2002, _) | (0x3fff, _));
    global && !special
}

/// Parses a URL and checks that its form allows fetching it; returns it with its host in the form that rules compare.
///
/// # Errors
/// Fails with a message for the model if the URL is malformed, has credentials, or names an address outside `reach`.
pub fn checked(text: &str, reach: Reach) -> Result<(Url, String), String> {
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
    fn t13_only_public_addresses_are_reached() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.2.1",
            "240.0.0.1",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "::7f00:1",
        ] {
            assert!(!Reach::Public.includes(private.parse().unwrap()), "{private}");
            assert!(Reach::Any.includes(private.parse().unwrap()), "{private}");
        }
        for public in ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"] {
            assert!(Reach::Public.includes(public.parse().unwrap()), "{public}");
        }
    }

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
