//! The format of HTTP/1 responses: the head, and where the body ends. Does no IO.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use thiserror::Error;

/// Maximum size of the head of a response in bytes.
const MAX_HEAD: usize = 64 * 1024;

/// Maximum number of headers of a response.
const MAX_HEADERS: usize = 100;

/// Maximum size of the line with the size of a chunk, and of the headers after the last one, in bytes.
const MAX_CHUNK_LINE: usize = 16 * 1024;

/// A response that does not follow the format.
#[derive(Debug, Error)]
pub(crate) enum FramingError {
    #[error("the response is not valid HTTP: {0}")]
    Invalid(httparse::Error),
    #[error("the response has an invalid status: {0}")]
    Status(u16),
    #[error("the head of the response exceeds {MAX_HEAD} bytes")]
    LargeHead,
    #[error("the response has no valid length")]
    Length,
    #[error("the response has an invalid chunk")]
    Chunk,
    #[error("the connection was closed before the response was complete")]
    Incomplete,
}

impl From<httparse::Error> for FramingError {
    fn from(error: httparse::Error) -> Self {
        Self::Invalid(error)
    }
}

/// The head of a response: what is needed of it.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    pub(crate) is_gzip: bool,
    /// The headers of an error. Those of a success are not kept, because reading them costs more than all the rest.
    pub(crate) headers: HeaderMap,
}

impl From<http::response::Parts> for ResponseHead {
    fn from(parts: http::response::Parts) -> Self {
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let encoding = parts.headers.get(header::CONTENT_ENCODING);
        Self {
            status: parts.status,
            content_type: content_type.unwrap_or_default().to_owned(),
            is_gzip: encoding.is_some_and(|value| value.as_bytes().starts_with(b"gzip")),
            headers: parts.headers,
        }
    }
}

/// A head with what it says about the connection.
#[derive(Debug)]
pub(crate) struct Http1Head {
    pub(crate) head: ResponseHead,
    pub(crate) body: BodyFraming,
    /// The server accepts another request after this response.
    pub(crate) is_persistent: bool,
    /// Number of bytes of the head.
    pub(crate) len: usize,
}

impl Http1Head {
    /// Reads the head of a response from the beginning of `bytes`; `None` while it is incomplete. Interim responses are passed over.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, FramingError> {
        let mut start = 0;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut response = httparse::Response::new(&mut headers);
            let httparse::Status::Complete(len) = response.parse(&bytes[start..])? else {
                return if bytes.len() > MAX_HEAD { Err(FramingError::LargeHead) } else { Ok(None) };
            };
            start += len;
            let code = response.code.unwrap_or_default();
            match code {
                // No request asks for another protocol.
                101 => return Err(FramingError::Status(code)),
                100..200 => continue,
                _ => return Self::of(&response, start).map(Some),
            }
        }
    }

    fn of(response: &httparse::Response<'_, '_>, len: usize) -> Result<Self, FramingError> {
        let code = response.code.unwrap_or_default();
        let status = StatusCode::from_u16(code).map_err(|_| FramingError::Status(code))?;
        let is_1_1 = response.version == Some(1);
        let headers = FramingHeaders::of(response.headers);
        let body = match code {
            204 | 304 => BodyFraming::Length(0),
            _ => headers.body(is_1_1)?,
        };
        let is_persistent = match body {
            BodyFraming::UntilClose => false,
            // Two lengths are an attempt to make two programs disagree on where the next response begins.
            BodyFraming::Chunked(_) if headers.length.is_some() => false,
            BodyFraming::Chunked(_) | BodyFraming::Length(_) if is_1_1 => !headers.closes,
            BodyFraming::Chunked(_) | BodyFraming::Length(_) => headers.keeps,
        };
        let head = ResponseHead {
            status,
            content_type: String::from_utf8_lossy(headers.content_type).into_owned(),
            is_gzip: headers.is_gzip,
            headers: if status.is_success() { HeaderMap::new() } else { header_map(response.headers) },
        };
        Ok(Self { head, body, is_persistent, len })
    }
}

/// The headers that decide how a response is read.
#[derive(Default)]
struct FramingHeaders<'a> {
    content_type: &'a [u8],
    is_gzip: bool,
    /// The length, or that it is not valid.
    length: Option<Result<u64, FramingError>>,
    /// The last encoding of the transfer.
    transfer: Option<&'a [u8]>,
    closes: bool,
    keeps: bool,
}

impl<'a> FramingHeaders<'a> {
    fn of(headers: &[httparse::Header<'a>]) -> Self {
        let mut read = Self::default();
        for httparse::Header { name, value } in headers {
            // Their lengths tell most headers apart.
            match name.len() {
                10 if name.eq_ignore_ascii_case("connection") => {
                    read.closes |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"close"));
                    read.keeps |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"keep-alive"));
                }
                12 if name.eq_ignore_ascii_case("content-type") => read.content_type = value,
                14 if name.eq_ignore_ascii_case("content-length") => {
                    tokens(value).for_each(|token| read.take_length(token));
                }
                16 if name.eq_ignore_ascii_case("content-encoding") => read.is_gzip |= value.starts_with(b"gzip"),
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    read.is_gzip |= value.starts_with(b"gzip");
                    read.transfer = tokens(value).last();
                }
                _ => (),
            }
        }
        read
    }

    fn take_length(&mut self, token: &[u8]) {
        let is_number = !token.is_empty() && token.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(token).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
        self.length = Some(match (self.length.take(), length) {
            (None, Some(length)) => Ok(length),
            (Some(Ok(before)), Some(length)) if before == length => Ok(length),
            (_, _) => Err(FramingError::Length),
        });
    }

    fn body(&self, is_1_1: bool) -> Result<BodyFraming, FramingError> {
        match (self.transfer, &self.length) {
            (Some(_), _) if !is_1_1 => Err(FramingError::Length),
            (Some(last), _) if last.eq_ignore_ascii_case(b"chunked") => Ok(BodyFraming::Chunked(ChunkPart::Size)),
            (Some(_), _) | (None, None) => Ok(BodyFraming::UntilClose),
            (None, Some(Ok(length))) => Ok(BodyFraming::Length(*length)),
            (None, Some(Err(_))) => Err(FramingError::Length),
        }
    }
}

/// The elements of a header with a list.
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn header_map(headers: &[httparse::Header<'_>]) -> HeaderMap {
    let pairs = headers.iter().filter_map(|header| {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(header.value).ok()?))
    });
    pairs.collect()
}

/// The rest of a body: how its end is found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// This many bytes are left.
    Length(u64),
    Chunked(ChunkPart),
    /// It ends with the connection.
    UntilClose,
}

/// The part of a chunked body that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkPart {
    Size,
    /// This many bytes of the chunk are left.
    Data(u64),
    DataEnd,
    Trailers,
    Over,
}

/// A part of a body that was decoded in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Number of bytes of the body, which are at the beginning now.
    pub(crate) data: usize,
    /// Number of bytes that were read.
    pub(crate) used: usize,
}

impl BodyFraming {
    /// Returns whether nothing of the body is left.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(ChunkPart::Over))
    }

    /// Ends the body where the connection was closed.
    pub(crate) fn close(&mut self) -> Result<(), FramingError> {
        match self {
            Self::UntilClose => {
                *self = Self::Length(0);
                Ok(())
            }
            Self::Length(_) | Self::Chunked(_) => Err(FramingError::Incomplete),
        }
    }

    /// Decodes what `bytes` contain of the body, and moves its data to their beginning.
    pub(crate) fn decode(&mut self, bytes: &mut [u8]) -> Result<Decoded, FramingError> {
        match self {
            Self::UntilClose => Ok(Decoded { data: bytes.len(), used: bytes.len() }),
            Self::Length(left) => {
                let len = take(left, bytes.len());
                Ok(Decoded { data: len, used: len })
            }
            Self::Chunked(part) => {
                let mut decoded = Decoded::default();
                loop {
                    match part.decode(bytes, &mut decoded) {
                        Ok(Progress::More) => (),
                        Ok(Progress::Stop) => return Ok(decoded),
                        // What came before is returned first; the part is still the same for the next call.
                        Err(_) if decoded.data > 0 => return Ok(decoded),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }
}

/// The decision to decode the next part or to stop.
enum Progress {
    More,
    Stop,
}

impl ChunkPart {
    /// Decodes one part from `bytes` behind what was used before.
    fn decode(&mut self, bytes: &mut [u8], decoded: &mut Decoded) -> Result<Progress, FramingError> {
        let rest = &bytes[decoded.used..];
        *self = match self {
            Self::Size => {
                let Some((len, size)) = chunk_size(rest)? else { return Ok(Progress::Stop) };
                decoded.used += len;
                if size == 0 { Self::Trailers } else { Self::Data(size) }
            }
            Self::Data(left) => {
                let len = take(left, rest.len());
                bytes.copy_within(decoded.used..decoded.used + len, decoded.data);
                decoded.used += len;
                decoded.data += len;
                if *left > 0 {
                    return Ok(Progress::Stop);
                }
                Self::DataEnd
            }
            Self::DataEnd if rest.starts_with(b"\r\n") => {
                decoded.used += 2;
                Self::Size
            }
            Self::DataEnd if b"\r\n".starts_with(rest) => return Ok(Progress::Stop),
            Self::DataEnd => return Err(FramingError::Chunk),
            Self::Trailers => {
                let Some(len) = trailers(rest)? else { return Ok(Progress::Stop) };
                decoded.used += len;
                Self::Over
            }
            Self::Over => return Ok(Progress::Stop),
        };
        Ok(Progress::More)
    }
}

/// Takes as many as there are of `left`, at most `available`.
fn take(left: &mut u64, available: usize) -> usize {
    let len = usize::try_from(*left).map_or(available, |left| left.min(available));
    *left -= len as u64;
    len
}

/// Reads the line with the size of a chunk: its length, and the size. `None` while it is incomplete.
fn chunk_size(bytes: &[u8]) -> Result<Option<(usize, u64)>, FramingError> {
    // The parser takes a line without a number for the end.
    if bytes.first().is_some_and(|first| !first.is_ascii_hexdigit()) {
        return Err(FramingError::Chunk);
    }
    match httparse::parse_chunk_size(bytes) {
        Ok(httparse::Status::Complete(line)) => Ok(Some(line)),
        Ok(httparse::Status::Partial) if bytes.len() < MAX_CHUNK_LINE => Ok(None),
        Ok(httparse::Status::Partial) | Err(_) => Err(FramingError::Chunk),
    }
}

/// The length of the headers after the last chunk, which say nothing that is needed; `None` while they are incomplete.
fn trailers(bytes: &[u8]) -> Result<Option<usize>, FramingError> {
    match httparse::parse_headers(bytes, &mut [httparse::EMPTY_HEADER; MAX_HEADERS])? {
        httparse::Status::Complete((len, _)) => Ok(Some(len)),
        httparse::Status::Partial if bytes.len() < MAX_CHUNK_LINE => Ok(None),
        httparse::Status::Partial => Err(FramingError::Chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Http1Head, FramingError> {
        Http1Head::read(text.as_bytes()).map(|head| head.expect("a whole head"))
    }

    fn framing(headers: &str) -> Result<(BodyFraming, bool), FramingError> {
        head(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n")).map(|head| (head.body, head.is_persistent))
    }

    /// Decodes `bytes` that arrive in pieces of `size`: the body, and whether it is complete or an error follows.
    fn decode(framing: &mut BodyFraming, bytes: &[u8], size: usize) -> (Vec<u8>, Result<bool, FramingError>) {
        let (mut body, mut buffer) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            buffer.extend_from_slice(piece);
            loop {
                match framing.decode(&mut buffer) {
                    Err(error) => return (body, Err(error)),
                    Ok(decoded) => {
                        body.extend_from_slice(&buffer[..decoded.data]);
                        buffer.drain(..decoded.used);
                        if decoded.data == 0 {
                            break;
                        }
                    }
                }
            }
        }
        (body, Ok(framing.is_over()))
    }

    fn chunked() -> BodyFraming {
        BodyFraming::Chunked(ChunkPart::Size)
    }

    #[test]
    fn headers_decide_where_the_body_ends() {
        assert_eq!(framing("content-length: 5\r\n").unwrap(), (BodyFraming::Length(5), true));
        assert_eq!(framing("Content-Length: 5, 5\r\nCONTENT-LENGTH: 5\r\n").unwrap(), (BodyFraming::Length(5), true));
        assert_eq!(framing("transfer-encoding: gzip, Chunked\r\n").unwrap(), (chunked(), true));
        assert_eq!(framing("transfer-encoding: gzip\r\n").unwrap(), (BodyFraming::UntilClose, false));
        assert_eq!(framing("").unwrap(), (BodyFraming::UntilClose, false));
        assert_eq!(framing("content-length: 5\r\nconnection: x, Close\r\n").unwrap(), (BodyFraming::Length(5), false));
        let twice = framing("content-length: 5\r\ntransfer-encoding: chunked\r\n").unwrap();
        assert_eq!(twice, (chunked(), false), "such a connection must not be used again");
        for wrong in ["5\r\ncontent-length: 6", "+5", "-5", "5, 6", "", "0x5", "99999999999999999999"] {
            assert!(framing(&format!("content-length: {wrong}\r\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn responses_of_http_1_0_are_read() {
        let old = |headers: &str| head(&format!("HTTP/1.0 200 OK\r\n{headers}\r\n"));
        let read = old("content-length: 5\r\n").unwrap();
        assert_eq!((read.body, read.is_persistent), (BodyFraming::Length(5), false));
        assert!(old("content-length: 5\r\nconnection: Keep-Alive\r\n").unwrap().is_persistent);
        assert!(old("transfer-encoding: chunked\r\n").is_err());
    }

    #[test]
    fn interim_responses_are_passed_over() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 \r\n\r\nrest";
        let read = head(text).unwrap();
        assert_eq!((read.head.status.as_u16(), read.body, read.is_persistent), (204, BodyFraming::Length(0), true));
        assert_eq!(&text[read.len..], "rest");
        assert!(head("HTTP/1.1 101 Switching Protocols\r\n\r\n").is_err());
    }

    #[test]
    fn only_errors_keep_their_headers() {
        let read = head("HTTP/1.1 429 Slow\r\nRetry-After: 7\r\ncontent-type: text/plain\r\n\r\n").unwrap().head;
        assert_eq!((read.content_type.as_str(), &read.headers["retry-after"]), ("text/plain", &HeaderValue::from(7)));
        let read = head("HTTP/1.1 200 OK\r\nx: y\r\nContent-Encoding: gzip\r\n\r\n").unwrap().head;
        assert!(read.headers.is_empty() && read.is_gzip);
    }

    #[test]
    fn incomplete_heads_wait_and_endless_ones_fail() {
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
        assert!((0..text.len()).all(|len| Http1Head::read(&text[..len]).unwrap().is_none()));
        let endless = [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'y'; MAX_HEAD]].concat();
        assert!(matches!(Http1Head::read(&endless), Err(FramingError::LargeHead)));
    }

    #[test]
    fn chunks_are_joined_wherever_they_are_cut() {
        let bytes =
            b"5\r\nhello\r\n1;name=\"value\"\r\n,\r\n00A\r\n wide worl\r\n1 \r\nd\r\n0\r\nexpires: never\r\n\r\n";
        for size in 1..=bytes.len() {
            let (body, end) = decode(&mut chunked(), bytes, size);
            assert_eq!((body.as_slice(), end.unwrap()), (b"hello, wide world".as_slice(), true), "{size}");
        }
    }

    #[test]
    fn bytes_behind_the_body_are_left() {
        let mut bytes = *b"2\r\nab\r\n0\r\n\r\nHTTP";
        assert_eq!(chunked().decode(&mut bytes).unwrap(), Decoded { data: 2, used: 12 });
        assert_eq!(BodyFraming::Length(2).decode(&mut bytes).unwrap(), Decoded { data: 2, used: 2 });
    }

    #[test]
    fn invalid_chunks_fail_after_what_came_before() {
        for wrong in ["\r\n", "zz\r\n", "fffffffffffffffff\r\n", "-1\r\n", "1\nx"] {
            let mut framing = chunked();
            let mut bytes = [b"2\r\nab\r\n", wrong.as_bytes()].concat();
            let decoded = framing.decode(&mut bytes).unwrap();
            assert_eq!(&bytes[..decoded.data], b"ab", "{wrong:?}");
            assert!(framing.decode(&mut bytes[decoded.used..]).is_err(), "{wrong:?}");
        }
        assert!(decode(&mut chunked(), b"2\r\nabc\r\n", 1).1.is_err());
        let endless = [b"1;".as_slice(), &vec![b'x'; MAX_CHUNK_LINE]].concat();
        assert!(decode(&mut chunked(), &endless, 1_000).1.is_err());
        let endless = [b"0\r\nx: ".as_slice(), &vec![b'x'; MAX_CHUNK_LINE]].concat();
        assert!(decode(&mut chunked(), &endless, 1_000).1.is_err());
    }

    /// The status and the body of a response that arrived in pieces of `size` bytes, and whether it is complete; or that it is not valid.
    fn read(bytes: &[u8], size: usize) -> (Option<u16>, Vec<u8>, Option<bool>) {
        let len = (1..=bytes.len()).find(|len| !matches!(Http1Head::read(&bytes[..*len]), Ok(None)));
        let Some(Ok(Some(mut head))) = len.map(|len| Http1Head::read(&bytes[..len])) else {
            return (None, Vec::new(), len.map(|_| false));
        };
        let (body, end) = decode(&mut head.body, &bytes[head.len..], size);
        (Some(head.head.status.as_u16()), body, end.ok())
    }

    #[test]
    fn damaged_responses_are_read_alike_in_all_pieces() {
        let response = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nb;x\r\ndata: {\"a\":1}\r\n0\r\nx: y\r\n\r\n";
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let mut bytes = response.to_vec();
            for _ in 0..=next(3) {
                let at = next(bytes.len());
                match next(3) {
                    0 => bytes[at] = next(256) as u8,
                    1 => _ = bytes.remove(at),
                    _ => bytes.insert(at, b"\r\n0f;: "[next(7)]),
                }
            }
            let whole = read(&bytes, bytes.len());
            for size in [1, 2, 7] {
                assert_eq!(read(&bytes, size), whole, "{size}: {:?}", String::from_utf8_lossy(&bytes));
            }
        }
    }

    #[test]
    fn closing_ends_only_a_body_without_a_length() {
        let mut framing = BodyFraming::UntilClose;
        assert!(!framing.is_over() && framing.close().is_ok() && framing.is_over());
        assert!(BodyFraming::Length(1).close().is_err() && chunked().close().is_err());
    }
}
