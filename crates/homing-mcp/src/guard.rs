//! Who may speak to the HTTP server: decided from the head of a request alone, before anything of it reaches the protocol.

use std::net::{IpAddr, SocketAddr};

use hyper::{
    HeaderMap, Method, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN},
    http::request::Parts,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The one address that answers.
pub(crate) const PATH: &str = "/mcp";

/// What every answer carries: a browser that shows it runs nothing, keeps nothing, tells nobody and frames nothing.
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

/// A secret of 256 bits, new at every start, shown as hexadecimal digits.
pub(crate) fn fresh_token() -> String {
    // Each id has 122 random bits from the system; the hash gathers them.
    let mut hash = Sha256::new();
    (0..4).for_each(|_| hash.update(Uuid::new_v4().as_bytes()));
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

/// Who may speak.
pub(crate) struct Guard {
    /// Hashes are compared, so that the time it takes says nothing about how much of a guess was right.
    token: [u8; 32],
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Why a request goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpRefusal(pub(crate) StatusCode, pub(crate) &'static str);

impl Guard {
    /// A guard for a server at `address`, which is also known by `names`.
    pub(crate) fn new(address: SocketAddr, names: &[String], token: &str) -> Self {
        let port = address.port();
        let mut hosts: Vec<String> = ["127.0.0.1", "localhost", "[::1]"].map(|it| format!("{it}:{port}")).to_vec();
        if !address.ip().is_unspecified() {
            hosts.push(address.to_string());
        }
        hosts.extend(names.iter().map(|it| it.to_ascii_lowercase()));
        let origins = hosts.iter().flat_map(|it| [format!("http://{it}"), format!("https://{it}")]).collect();
        Self { token: Sha256::digest(token).into(), hosts, origins }
    }

    /// Looks at the head of a request.
    pub(crate) fn admit(&self, head: &Parts) -> Result<(), HttpRefusal> {
        self.host(&head.headers, &head.uri)?;
        self.origin(&head.headers)?;
        self.token(&head.headers)?;
        content_type(&head.method, &head.headers)?;
        match head.uri.path() {
            PATH => Ok(()),
            _ => Err(HttpRefusal(StatusCode::NOT_FOUND, "there is nothing here")),
        }
    }

    /// A name that leads elsewhere today may lead here tomorrow: only our own names count, whatever the connection.
    fn host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), HttpRefusal> {
        let forbidden = HttpRefusal(StatusCode::FORBIDDEN, "this server is not known by that name");
        let known = |it: &str| self.hosts.contains(&it.to_ascii_lowercase());
        let named = only(headers, &HOST).ok_or(forbidden)?;
        let absolute = uri.authority().is_none_or(|it| known(it.as_str()));
        if known(named) && absolute { Ok(()) } else { Err(forbidden) }
    }

    /// A web page of somebody else's has no business here, whatever it knows.
    fn origin(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let forbidden = HttpRefusal(StatusCode::FORBIDDEN, "requests of other sites are refused");
        let ours = |it: &str| self.origins.contains(&it.to_ascii_lowercase());
        if headers.contains_key(ORIGIN) && !only(headers, &ORIGIN).is_some_and(ours) {
            return Err(forbidden);
        }
        let site = HeaderName::from_static("sec-fetch-site");
        let near = |it: &str| matches!(it, "same-origin" | "none");
        if headers.contains_key(&site) && !only(headers, &site).is_some_and(near) {
            return Err(forbidden);
        }
        Ok(())
    }

    fn token(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let given = only(headers, &AUTHORIZATION).and_then(|it| it.split_once(' '));
        let right = given.is_some_and(|(scheme, token)| {
            let given: [u8; 32] = Sha256::digest(token.trim()).into();
            let differs = given.iter().zip(&self.token).fold(0, |sum, (a, b)| sum | (a ^ b));
            scheme.eq_ignore_ascii_case("bearer") && differs == 0
        });
        if right { Ok(()) } else { Err(HttpRefusal(StatusCode::UNAUTHORIZED, "this needs the token of this start")) }
    }
}

/// A form on any page can post text; nothing but JSON is read.
fn content_type(method: &Method, headers: &HeaderMap) -> Result<(), HttpRefusal> {
    let is_json = |it: &str| {
        let kind = it.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    };
    match *method == Method::POST && !only(headers, &CONTENT_TYPE).is_some_and(is_json) {
        true => Err(HttpRefusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "only application/json is read")),
        false => Ok(()),
    }
}

/// The value of a header that is there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether an address can be reached from this machine only.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h17_every_start_has_a_token_of_its_own() {
        let (one, other) = (fresh_token(), fresh_token());
        assert!(one != other && one.len() == 64 && one.bytes().all(|it| it.is_ascii_hexdigit()));
    }

    #[test]
    fn a_public_server_is_known_by_its_address_and_the_names_it_was_given() {
        let guard = Guard::new("192.0.2.1:80".parse().unwrap(), &["agents.example:443".into()], "t");
        for (host, known) in [("192.0.2.1:80", true), ("agents.example:443", true), ("agents.example", false)] {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            assert_eq!(guard.host(&headers, &Uri::from_static("/mcp")).is_ok(), known, "{host}");
        }
    }
}
