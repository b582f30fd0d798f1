//! Requests as the fake provider received them, and a minimal HTTP parser.

use std::time::Instant;

/// A request that was received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The method, such as `POST`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
    /// The time at which it was complete.
    pub at: Instant,
}

impl ReceivedRequest {
    /// Returns the value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Parses a complete request at the beginning of `bytes`; returns it with its length.
pub(crate) fn parse(bytes: &[u8]) -> Option<(ReceivedRequest, usize)> {
    let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let body_start = head_end + 4;
    let end = body_start + length.unwrap_or(0);
    let body = String::from_utf8_lossy(bytes.get(body_start..end)?).into_owned();
    Some((ReceivedRequest { method, path, headers, body, at: Instant::now() }, end))
}
