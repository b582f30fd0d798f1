//! A request, and its form in HTTP/1.

use std::{borrow::Cow, io::Write as _};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{HOST, PROXY_AUTHORIZATION},
};

/// The header that identifies a reply to the provider, so that it is not generated twice.
pub(super) static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Bytes that the head of most requests has room in.
const HEAD_SIZE: usize = 512;

/// A request, without its address.
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    /// The headers of every request of a model, and those of a signature.
    pub(crate) headers: Cow<'a, HeaderMap>,
    pub(crate) idempotency_key: Option<HeaderValue>,
    pub(crate) body: Bytes,
}

impl Request<'_> {
    /// The head of the request in HTTP/1, for `target` at `host`.
    pub(super) fn http1_head(&self, target: &Uri, host: &HeaderValue, proxy_auth: Option<&HeaderValue>) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEAD_SIZE);
        // Writing to memory does not fail.
        let _ = write!(head, "{} {target} HTTP/1.1\r\ncontent-length: {}\r\n", self.method, self.body.len());
        let host = (!self.headers.contains_key(HOST)).then_some((&HOST, host));
        let key = self.idempotency_key.as_ref().map(|key| (&IDEMPOTENCY_KEY, key));
        let auth = proxy_auth.map(|auth| (&PROXY_AUTHORIZATION, auth));
        for (name, value) in host.into_iter().chain(&*self.headers).chain(key).chain(auth) {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}
