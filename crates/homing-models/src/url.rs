//! `Url`: the address of a provider or a proxy, on top of [`http::Uri`]. It has no international domain names, which would
//! need 27 more crates: such a host is written as `xn--…`.

use std::fmt;

use ::http::{
    Uri,
    uri::{Authority, PathAndQuery, Scheme},
};

/// An address with a scheme and a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// The address without credentials and fragment.
    uri: Uri,
    /// The user name and password, decoded.
    credentials: Option<(String, String)>,
}

impl Url {
    /// Parses an address.
    ///
    /// # Errors
    /// Fails with the reason if the text is not an address with a scheme and a host.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.split('#').next().unwrap_or_default();
        let parts = Uri::try_from(text).map_err(|error| error.to_string())?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err("it has no scheme and host".to_owned());
        };
        let default_port = match scheme.as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let credentials = authority.as_str().rsplit_once('@').map(|(credentials, _)| {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            (percent_decoded(user), percent_decoded(password))
        });
        let host = authority.host().to_ascii_lowercase();
        let port = authority.port_u16().filter(|port| Some(*port) != default_port);
        let authority = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = joined(scheme, &authority, path)?;
        Ok(Self { uri, credentials })
    }

    pub(crate) fn scheme(&self) -> &str {
        self.uri.scheme_str().unwrap_or_default()
    }

    /// The host, an IPv6 address in brackets.
    pub(crate) fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// The port, unless it is the scheme's own.
    pub(crate) fn port(&self) -> Option<u16> {
        self.uri.port_u16()
    }

    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }

    /// The names and values of the query, decoded.
    pub(crate) fn query_pairs(&self) -> impl Iterator<Item = (String, String)> {
        let pairs = self.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decoded = |text: &str| percent_decoded(&text.replace('+', " "));
        pairs.map(move |pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
    }

    /// The user name and password that it contains.
    pub(crate) fn credentials(&self) -> Option<&(String, String)> {
        self.credentials.as_ref()
    }

    /// The address without credentials.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", self.scheme(), self.uri.authority().map_or("", Authority::as_str))
    }

    /// Replaces the path and keeps the query.
    pub(crate) fn with_path(&self, path: &str) -> Result<Self, String> {
        let query = self.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let parsed = Self::parse(&format!("{}{path}{query}", self.origin()))?;
        Ok(Self { credentials: self.credentials.clone(), ..parsed })
    }
}

/// Shows no credentials.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

fn joined(scheme: Scheme, authority: &str, path: PathAndQuery) -> Result<Uri, String> {
    let built = Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build();
    built.map_err(|error| error.to_string())
}

fn percent_decoded(text: &str) -> String {
    let escape = |at: usize| {
        let digits = text.get(at..at + 3)?.strip_prefix('%')?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.as_bytes().get(at) {
        let escaped = escape(at);
        bytes.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_split_into_its_parts() {
        let url = Url::parse("https://ada:p%40ss+1@Example.ORG:443/v1/x?a=1&b=two%20words+3#top").unwrap();
        assert_eq!((url.scheme(), url.host(), url.port(), url.path()), ("https", "example.org", None, "/v1/x"));
        assert_eq!(url.credentials(), Some(&("ada".to_owned(), "p@ss+1".to_owned())));
        let pairs: Vec<_> = url.query_pairs().collect();
        assert_eq!(pairs, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "two words 3".to_owned())]);
        assert_eq!(url.to_string(), "https://example.org/v1/x?a=1&b=two%20words+3", "without credentials");
        assert_eq!(url.origin(), "https://example.org");
        let other = url.with_path("/models").unwrap();
        assert_eq!(other.to_string(), "https://example.org/models?a=1&b=two%20words+3");
        assert_eq!(other.credentials(), url.credentials());
    }

    #[test]
    fn ports_addresses_and_odd_escapes_are_kept() {
        let url = Url::parse("http://[::1]:8080").unwrap();
        assert_eq!((url.host(), url.port(), url.path()), ("[::1]", Some(8080), "/"));
        assert_eq!(percent_decoded("100%, %4, %zz, %C3%A9"), "100%, %4, %zz, é");
    }

    #[test]
    fn text_without_scheme_or_host_is_not_an_address() {
        for text in ["", "nonsense", "/v1", "http://", "http:///x", "http://a b/", "http://exämple.org/"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
