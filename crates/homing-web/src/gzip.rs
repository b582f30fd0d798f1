//! Compresses responses for clients that accept it. Streams of events are left alone: their pieces must arrive at once.

use std::{io::Write, sync::OnceLock};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use homing_http::{HttpResponse, only};
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap,
    body::Body,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY},
};

/// Size of a body in bytes from which on it is compressed.
const MIN_SIZE: u64 = 4 << 10;

/// Returns true if a client accepts compressed responses.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let refused = |option: &str| option.split_once(";q=").is_some_and(|(_, weight)| weight.trim().parse() == Ok(0.0));
    let is_gzip = |option: &str| option.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case("gzip"));
    let options = only(headers, &ACCEPT_ENCODING).unwrap_or_default();
    options.split(',').any(|option| is_gzip(option) && !refused(option))
}

/// Compresses a large whole response.
pub(crate) async fn compressed(mut response: HttpResponse) -> HttpResponse {
    let is_large = response.body().size_hint().exact().is_some_and(|size| size >= MIN_SIZE);
    if !is_large || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let body = std::mem::replace(response.body_mut(), Full::new(Bytes::new()).boxed());
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    };
    // A large list takes milliseconds, which others need not wait for.
    let small = tokio::task::spawn_blocking(move || encode(&bytes, Compression::fast())).await.unwrap_or_default();
    with_body(response, small)
}

/// Returns a response with the compressed form of a file, which is made once.
pub(crate) fn kept(response: HttpResponse, bytes: &'static [u8], kept: &'static OnceLock<Bytes>) -> HttpResponse {
    with_body(response, kept.get_or_init(|| encode(bytes, Compression::default())).clone())
}

fn with_body(mut response: HttpResponse, bytes: Bytes) -> HttpResponse {
    debug_assert!(response.headers().contains_key(CONTENT_TYPE), "the encoding is not the type");
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    *response.body_mut() = Full::new(bytes).boxed();
    response
}

/// Returns bytes in gzip's form.
pub(crate) fn encode(bytes: &[u8], level: Compression) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    Bytes::from(written.expect("memory can be written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_whether_they_accept_gzip() {
        let accepts = |value: &'static str| {
            is_accepted(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(accepts("gzip") && accepts("br, GZIP;q=0.5"));
        assert!(!accepts("br") && !accepts("gzip;q=0") && !accepts("x-gzip-like"));
        assert!(!is_accepted(&HeaderMap::new()));
    }
}
