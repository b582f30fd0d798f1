//! Decides which HTTP requests are accepted, from their head alone, before anything else sees them.

use std::net::{IpAddr, SocketAddr};

use hyper::{
    HeaderMap, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, HeaderName, ORIGIN},
    http::request::Parts,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Creates a random token of 256 bits, as hexadecimal digits.
pub fn fresh_token() -> String {
    // Each UUID has 122 random bits from the system; the hash combines them.
    let mut hash = Sha256::new();
    (0..4).for_each(|_| hash.update(Uuid::new_v4().as_bytes()));
    format!("{:x}", hash.finalize())
}

/// The checks of a request's head.
pub struct RequestGuard {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// The refusal of a request: the status and the message of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpRefusal(pub StatusCode, pub &'static str);

impl RequestGuard {
    /// Creates the guard of a server at `address` that clients may also call by `names`.
    pub fn new(address: SocketAddr, names: &[String]) -> Self {
        let port = address.port();
        let mut hosts: Vec<String> = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}")).to_vec();
        if !address.ip().is_unspecified() {
            hosts.push(address.to_string());
        }
        hosts.extend(names.iter().map(|name| name.to_ascii_lowercase()));
        let origins = hosts.iter().flat_map(|host| [format!("http://{host}"), format!("https://{host}")]).collect();
        Self { hosts, origins }
    }

    /// Accepts only requests to a known host name, and none of other web sites.
    ///
    /// # Errors
    /// Fails with the status and message of the response.
    pub fn check_site(&self, head: &Parts) -> Result<(), HttpRefusal> {
        self.host(&head.headers, &head.uri)?;
        self.origin(&head.headers)
    }

    /// Accepts only known host names. Any other name may be one that an attacker resolves to this machine (DNS rebinding).
    fn host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), HttpRefusal> {
        let forbidden = HttpRefusal(StatusCode::FORBIDDEN, "unknown host name");
        let is_known = |host: &str| self.hosts.contains(&host.to_ascii_lowercase());
        let named = only(headers, &HOST).ok_or(forbidden)?;
        let absolute = uri.authority().is_none_or(|authority| is_known(authority.as_str()));
        if is_known(named) && absolute { Ok(()) } else { Err(forbidden) }
    }

    /// Refuses requests of other web pages, even with a valid token.
    fn origin(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let forbidden = HttpRefusal(StatusCode::FORBIDDEN, "cross-site requests are refused");
        let is_own = |origin: &str| self.origins.contains(&origin.to_ascii_lowercase());
        if headers.contains_key(ORIGIN) && !only(headers, &ORIGIN).is_some_and(is_own) {
            return Err(forbidden);
        }
        let site = HeaderName::from_static("sec-fetch-site");
        let is_same_origin = |site: &str| matches!(site, "same-origin" | "none");
        if headers.contains_key(&site) && !only(headers, &site).is_some_and(is_same_origin) {
            return Err(forbidden);
        }
        Ok(())
    }

    /// Accepts only JSON bodies, because a form on any web page can post other types.
    ///
    /// # Errors
    /// Fails with the status and message of the response.
    pub fn check_json(head: &Parts) -> Result<(), HttpRefusal> {
        let is_json = |value: &str| {
            let kind = value.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json")
        };
        if only(&head.headers, &CONTENT_TYPE).is_some_and(is_json) {
            return Ok(());
        }
        Err(HttpRefusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "only application/json is accepted"))
    }

    /// Returns true if the request has this token as `Authorization: Bearer …`.
    pub fn has_bearer(head: &Parts, token: &str) -> bool {
        let given = only(&head.headers, &AUTHORIZATION).and_then(|value| value.split_once(' '));
        given.is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case("bearer") && is_same(given.trim(), token))
    }

    /// Returns true if the request has this token as a cookie.
    pub fn has_cookie(head: &Parts, name: &str, token: &str) -> bool {
        cookie(&head.headers, name).is_some_and(|given| is_same(given, token))
    }
}

/// Compares hashes, so that the time of the comparison reveals nothing about the token.
pub fn is_same(given: &str, token: &str) -> bool {
    let (given, token) = (Sha256::digest(given), Sha256::digest(token));
    given.iter().zip(&token).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Returns the value of a header that occurs exactly once.
pub fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Returns the value of a cookie.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Decodes a part of a path or query; `None` if it is not valid UTF-8. In a query, `+` is a space.
pub fn percent_decoded(text: &str, in_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' if in_query => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let value = digit(rest.next())? * 16 + digit(rest.next())?;
                u8::try_from(value).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Returns true if an address can be reached only from this machine.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h17_every_start_has_a_new_token() {
        let (one, other) = (fresh_token(), fresh_token());
        assert!(one != other && one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn public_server_accepts_its_address_and_given_names() {
        let guard = RequestGuard::new("192.0.2.1:80".parse().unwrap(), &["agents.example:443".into()]);
        for (host, known) in [("192.0.2.1:80", true), ("agents.example:443", true), ("agents.example", false)] {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            assert_eq!(guard.host(&headers, &Uri::from_static("/mcp")).is_ok(), known, "{host}");
        }
    }

    #[test]
    fn escapes_are_decoded_or_refused() {
        assert_eq!(percent_decoded("a%20b+c", true).as_deref(), Some("a b c"));
        assert_eq!(percent_decoded("a+b%2f", false).as_deref(), Some("a+b/"));
        for broken in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(percent_decoded(broken, true), None, "{broken}");
        }
    }

    #[test]
    fn cookie_is_found_among_others() {
        let headers = HeaderMap::from_iter([(COOKIE, "a=1; token=xyz; b=2".parse().unwrap())]);
        assert_eq!(cookie(&headers, "token"), Some("xyz"));
        assert_eq!(cookie(&headers, "tok"), None);
    }
}
