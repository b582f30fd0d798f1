//! Decides which HTTP requests are accepted, from their head alone, before the protocol sees them.

use std::net::{IpAddr, SocketAddr};

use hyper::{
    HeaderMap, Method, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN},
    http::request::Parts,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The only path that is served.
pub(crate) const PATH: &str = "/mcp";

/// Headers of every response. They keep browsers from executing, storing, framing or referring to it.
pub(crate) const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
];

/// Creates a random token of 256 bits, as hexadecimal digits.
pub(crate) fn fresh_token() -> String {
    // Each UUID has 122 random bits from the system; the hash combines them.
    let mut hash = Sha256::new();
    (0..4).for_each(|_| hash.update(Uuid::new_v4().as_bytes()));
    format!("{:x}", hash.finalize())
}

/// The checks of a request's head.
pub(crate) struct RequestGuard {
    /// The hash of the token. Hashes are compared so that the time of a comparison reveals nothing about the token.
    token: [u8; 32],
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// The refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpRefusal(pub(crate) StatusCode, pub(crate) &'static str);

impl RequestGuard {
    /// Creates the guard of a server at `address` that clients may also call by `names`.
    pub(crate) fn new(address: SocketAddr, names: &[String], token: &str) -> Self {
        let port = address.port();
        let mut hosts: Vec<String> = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}")).to_vec();
        if !address.ip().is_unspecified() {
            hosts.push(address.to_string());
        }
        hosts.extend(names.iter().map(|name| name.to_ascii_lowercase()));
        let origins = hosts.iter().flat_map(|host| [format!("http://{host}"), format!("https://{host}")]).collect();
        Self { token: Sha256::digest(token).into(), hosts, origins }
    }

    /// Checks the head of a request.
    ///
    /// # Errors
    /// Fails with the status and message of the response.
    pub(crate) fn admit(&self, head: &Parts) -> Result<(), HttpRefusal> {
        self.host(&head.headers, &head.uri)?;
        self.origin(&head.headers)?;
        self.token(&head.headers)?;
        content_type(&head.method, &head.headers)?;
        match head.uri.path() {
            PATH => Ok(()),
            _ => Err(HttpRefusal(StatusCode::NOT_FOUND, "not found")),
        }
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

    fn token(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let given = only(headers, &AUTHORIZATION).and_then(|value| value.split_once(' '));
        let is_valid = given.is_some_and(|(scheme, token)| {
            let given: [u8; 32] = Sha256::digest(token.trim()).into();
            let differs = given.iter().zip(&self.token).fold(0, |sum, (a, b)| sum | (a ^ b));
            scheme.eq_ignore_ascii_case("bearer") && differs == 0
        });
        if is_valid { Ok(()) } else { Err(HttpRefusal(StatusCode::UNAUTHORIZED, "missing or wrong token")) }
    }
}

/// Accepts only JSON bodies, because a form on any web page can post other types.
fn content_type(method: &Method, headers: &HeaderMap) -> Result<(), HttpRefusal> {
    let is_json = |value: &str| {
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    };
    if *method == Method::POST && !only(headers, &CONTENT_TYPE).is_some_and(is_json) {
        return Err(HttpRefusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "only application/json is accepted"));
    }
    Ok(())
}

/// Returns the value of a header that occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Returns true if an address can be reached only from this machine.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
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
        let guard = RequestGuard::new("192.0.2.1:80".parse().unwrap(), &["agents.example:443".into()], "t");
        for (host, known) in [("192.0.2.1:80", true), ("agents.example:443", true), ("agents.example", false)] {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            assert_eq!(guard.host(&headers, &Uri::from_static("/mcp")).is_ok(), known, "{host}");
        }
    }
}
