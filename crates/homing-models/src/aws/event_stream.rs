//! [`FrameSplitter`]: splits a byte stream in AWS's event-stream framing into events, and checks their sums. Does no IO.

use crate::sse::{SplitError, SseFlow};

/// Size of the lengths and their sum at the beginning of a frame.
const PRELUDE: usize = 12;

/// Size of the sum at the end of a frame.
const TRAILER: usize = 4;

/// Splits chunks of bytes into events. Each is passed on as a JSON object of one member: the type of the event and its
/// payload. Exceptions become `{"exception": {"type": …, "body": …}}`.
pub(crate) struct FrameSplitter {
    /// Maximum size of a frame in bytes.
    max_event: usize,
    /// The beginning of an incomplete frame.
    buffer: Vec<u8>,
    event: Vec<u8>,
}

impl FrameSplitter {
    /// Creates a splitter of frames of at most `max_event` bytes.
    pub(crate) fn new(max_event: usize) -> Self {
        Self { max_event, buffer: Vec::new(), event: Vec::new() }
    }

    /// Reads a chunk and calls `on_event` with every event that it completes, until that returns `Enough`.
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        mut on_event: impl FnMut(&[u8]) -> SseFlow,
    ) -> Result<SseFlow, SplitError> {
        self.buffer.extend_from_slice(chunk);
        let mut at = 0;
        let mut flow = SseFlow::More;
        while flow == SseFlow::More {
            let rest = &self.buffer[at..];
            let Some(length) = frame_length(rest, self.max_event)? else { break };
            let Some(frame) = rest.get(..length) else { break };
            at += length;
            if write_event(frame, &mut self.event)? {
                flow = on_event(&self.event);
            }
        }
        self.buffer.drain(..at);
        Ok(flow)
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The length of the frame at the beginning of `bytes`; `None` while there are too few of them.
fn frame_length(bytes: &[u8], max: usize) -> Result<Option<usize>, SplitError> {
    let (Some(length), Some(headers), Some(sum)) = (number(bytes, 0), number(bytes, 4), number(bytes, 8)) else {
        return Ok(None);
    };
    if sum != crc32fast::hash(&bytes[..8]) {
        return Err(SplitError::Damaged);
    }
    let (length, headers) = (length as usize, headers as usize);
    if length > max {
        return Err(SplitError::TooLong);
    }
    if headers.saturating_add(PRELUDE + TRAILER) > length {
        return Err(SplitError::Damaged);
    }
    Ok(Some(length))
}

/// Writes the event of a complete frame as JSON. Returns false for a frame without an event.
fn write_event(frame: &[u8], out: &mut Vec<u8>) -> Result<bool, SplitError> {
    let end = frame.len() - TRAILER;
    if number(frame, end) != Some(crc32fast::hash(&frame[..end])) {
        return Err(SplitError::Damaged);
    }
    let headers_end = PRELUDE + number(frame, 4).unwrap_or_default() as usize;
    let headers = Headers::parse(&frame[PRELUDE..headers_end]).ok_or(SplitError::Damaged)?;
    let payload = &frame[headers_end..end];
    let payload: &[u8] = if payload.trim_ascii().is_empty() { b"null" } else { payload };
    out.clear();
    match headers.message_type {
        "event" => {
            out.push(b'{');
            out.extend(quoted(headers.event_type));
            out.push(b':');
            out.extend_from_slice(payload);
            out.push(b'}');
        }
        "exception" => write_exception(out, headers.exception_type, payload),
        "error" => write_exception(out, headers.error_code, &quoted_message(headers.error_message)),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Writes an exception as the wire reads it: its type, and its body as JSON.
fn write_exception(out: &mut Vec<u8>, kind: &str, body: &[u8]) {
    out.extend_from_slice(b"{\"exception\":{\"type\":");
    out.extend(quoted(kind));
    out.extend_from_slice(b",\"body\":");
    out.extend_from_slice(body);
    out.extend_from_slice(b"}}");
}

fn quoted_message(message: &str) -> Vec<u8> {
    serde_json::json!({"message": message}).to_string().into_bytes()
}

fn quoted(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).unwrap_or_default()
}

/// The headers of a frame that matter here.
#[derive(Default)]
struct Headers<'a> {
    message_type: &'a str,
    event_type: &'a str,
    exception_type: &'a str,
    error_code: &'a str,
    error_message: &'a str,
}

impl<'a> Headers<'a> {
    fn parse(mut bytes: &'a [u8]) -> Option<Self> {
        let mut headers = Self::default();
        while let Some((&length, rest)) = bytes.split_first() {
            let (name, rest) = rest.split_at_checked(usize::from(length))?;
            let (&kind, rest) = rest.split_first()?;
            let (length, rest) = match kind {
                0 | 1 => (0, rest),
                2 => (1, rest),
                3 => (2, rest),
                4 => (4, rest),
                5 | 8 => (8, rest),
                9 => (16, rest),
                6 | 7 => {
                    let (length, rest) = rest.split_at_checked(2)?;
                    (usize::from(u16::from_be_bytes(length.try_into().ok()?)), rest)
                }
                _ => return None,
            };
            let (value, rest) = rest.split_at_checked(length)?;
            bytes = rest;
            let text = std::str::from_utf8(value).unwrap_or_default();
            match name {
                b":message-type" => headers.message_type = text,
                b":event-type" => headers.event_type = text,
                b":exception-type" => headers.exception_type = text,
                b":error-code" => headers.error_code = text,
                b":error-message" => headers.error_message = text,
                _ => (),
            }
        }
        Some(headers)
    }
}

#[cfg(test)]
mod tests {
    use homing_testing::aws_frame;

    use super::*;

    fn split(chunks: &[&[u8]]) -> Result<Vec<String>, SplitError> {
        let mut splitter = FrameSplitter::new(1 << 20);
        let mut events = Vec::new();
        for chunk in chunks {
            splitter.push(chunk, |event| {
                events.push(String::from_utf8_lossy(event).into_owned());
                SseFlow::More
            })?;
        }
        Ok(events)
    }

    fn stream() -> Vec<u8> {
        [
            aws_frame(&[(":message-type", "event"), (":event-type", "messageStart")], r#"{"role":"assistant"}"#),
            aws_frame(&[(":message-type", "event"), (":event-type", "contentBlockStop")], ""),
            aws_frame(
                &[(":message-type", "exception"), (":exception-type", "throttlingException")],
                r#"{"message":"slow"}"#,
            ),
            aws_frame(&[(":message-type", "error"), (":error-code", "X"), (":error-message", "a \"b\"")], ""),
        ]
        .concat()
    }

    #[test]
    fn frames_do_not_depend_on_chunk_boundaries() {
        let stream = stream();
        let expected = [
            r#"{"messageStart":{"role":"assistant"}}"#,
            r#"{"contentBlockStop":null}"#,
            r#"{"exception":{"type":"throttlingException","body":{"message":"slow"}}}"#,
            r#"{"exception":{"type":"X","body":{"message":"a \"b\""}}}"#,
        ];
        assert_eq!(split(&[&stream]).unwrap(), expected);
        for cut in 0..stream.len() {
            assert_eq!(split(&[&stream[..cut], &stream[cut..]]).unwrap(), expected, "cut at {cut}");
        }
    }

    #[test]
    fn damaged_and_oversized_frames_are_refused() {
        let stream = stream();
        for at in 0..40 {
            let mut damaged = stream.clone();
            damaged[at] ^= 1;
            assert!(split(&[&damaged]).is_err(), "byte {at}");
        }
        let mut splitter = FrameSplitter::new(32);
        assert_eq!(splitter.push(&stream, |_| SseFlow::More), Err(SplitError::TooLong));
    }
}
