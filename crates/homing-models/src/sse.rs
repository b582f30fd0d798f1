//! [`SseSplitter`]: splits a byte stream into server-sent events of bounded size, without reading their data.

/// Maximum size of a line or an event in bytes, whatever a request permits.
pub(crate) const MAX_EVENT: usize = 16 * 1024 * 1024;

/// The beginning of a line of data.
const DATA: &[u8] = b"data:";

/// Reason why a stream cannot be split into events.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SplitError {
    /// A line or an event is too large.
    TooLong,
    /// A checksum or a length is wrong.
    Damaged,
}

/// Splits chunks of bytes into the data of complete events. Comments, ids and retry fields are dropped, so that a ping
/// never counts as content.
pub(crate) struct SseSplitter {
    /// Maximum size of a line or an event in bytes.
    max_event: usize,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    /// The data lines of an incomplete event.
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was `\r`: a following `\n` belongs to the same line end.
    after_cr: bool,
    begun: bool,
}

impl Default for SseSplitter {
    fn default() -> Self {
        Self::new(MAX_EVENT)
    }
}

impl SseSplitter {
    /// Creates a splitter of lines and events of at most `max_event` bytes.
    pub(crate) fn new(max_event: usize) -> Self {
        Self { max_event, line: Vec::new(), data: Vec::new(), has_data: false, after_cr: false, begun: false }
    }

    /// Reads a chunk and calls `on_event` with every event that it completes, until that returns `Enough`.
    pub(crate) fn push(
        &mut self,
        mut chunk: &[u8],
        mut on_event: impl FnMut(&[u8]) -> SseFlow,
    ) -> Result<SseFlow, SplitError> {
        while let Some(&first) = chunk.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) else {
                return self.keep(chunk).map(|()| SseFlow::More);
            };
            let (head, rest) = (&chunk[..end], &chunk[end + 1..]);
            if let Some(after) = self.after_whole_event(head, chunk[end], rest) {
                (chunk, self.begun) = (after, true);
                let data = &head[DATA.len()..];
                if on_event(data.strip_prefix(b" ").unwrap_or(data)) == SseFlow::Enough {
                    return Ok(SseFlow::Enough);
                }
                continue;
            }
            self.after_cr = chunk[end] == b'\r';
            chunk = rest;
            if self.end_line(head)? == SseLine::Blank && self.flush(&mut on_event) == SseFlow::Enough {
                return Ok(SseFlow::Enough);
            }
        }
        Ok(SseFlow::More)
    }

    /// Returns what follows an event whose only line is `line`. Nearly all events are one line of data and a blank line in one
    /// chunk, and need not be copied.
    fn after_whole_event<'a>(&self, line: &[u8], line_end: u8, rest: &'a [u8]) -> Option<&'a [u8]> {
        let is_whole = self.line.is_empty() && !self.has_data && line.len() <= self.max_event;
        let blank_line: &[u8] = if line_end == b'\n' { b"\n" } else { b"\n\r\n" };
        rest.strip_prefix(blank_line).filter(|_| is_whole && line.starts_with(DATA))
    }

    /// Ends the stream: an event that lacks only its blank line is passed to `on_event` as well.
    pub(crate) fn finish(&mut self, mut on_event: impl FnMut(&[u8]) -> SseFlow) -> SseFlow {
        let line = std::mem::take(&mut self.line);
        match self.take_line(&line) {
            Ok(SseLine::Blank | SseLine::Taken) => self.flush(&mut on_event),
            Err(_) => SseFlow::More,
        }
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), SplitError> {
        if self.line.len() + part.len() > self.max_event {
            return Err(SplitError::TooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line(&mut self, end: &[u8]) -> Result<SseLine, SplitError> {
        if self.line.is_empty() {
            return self.take_line(end);
        }
        self.keep(end)?;
        let mut line = std::mem::take(&mut self.line);
        let taken = self.take_line(&line);
        line.clear();
        self.line = line;
        taken
    }

    fn take_line(&mut self, mut line: &[u8]) -> Result<SseLine, SplitError> {
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(SseLine::Blank);
        }
        if let Some(data) = line.strip_prefix(DATA) {
            let data = data.strip_prefix(b" ").unwrap_or(data);
            if self.data.len() + data.len() > self.max_event {
                return Err(SplitError::TooLong);
            }
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data);
        }
        Ok(SseLine::Taken)
    }

    fn flush(&mut self, on_event: &mut impl FnMut(&[u8]) -> SseFlow) -> SseFlow {
        if !std::mem::take(&mut self.has_data) {
            return SseFlow::More;
        }
        let flow = on_event(&self.data);
        self.data.clear();
        flow
    }
}

/// The decision of an event handler to continue or to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SseFlow {
    /// Continue.
    More,
    /// Ignore the rest of the stream.
    Enough,
}

#[derive(PartialEq, Eq)]
enum SseLine {
    Blank,
    Taken,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<String> {
        let mut splitter = SseSplitter::default();
        let mut events = Vec::new();
        for chunk in chunks {
            let flow = splitter.push(chunk, |data| {
                events.push(String::from_utf8_lossy(data).into_owned());
                SseFlow::More
            });
            flow.unwrap();
        }
        splitter.finish(|data| {
            events.push(String::from_utf8_lossy(data).into_owned());
            SseFlow::More
        });
        events
    }

    #[test]
    fn s1_s2_events_do_not_depend_on_chunk_boundaries() {
        let text =
            "\u{feff}event: a\r\ndata: {\"t\":\"ü→\"}\r\n\r\n: ping\n\ndata:x\rdata: y\r\rid: 1\nretry: 5\ndata: z\n\n";
        let bytes = text.as_bytes();
        let whole = split(&[bytes]);
        assert_eq!(whole, ["{\"t\":\"ü→\"}", "x\ny", "z"]);
        for cut in 0..bytes.len() {
            assert_eq!(split(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
        }
        let singles: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(split(&singles), whole);
    }

    #[test]
    fn s4_s5_s6_every_form_of_event_is_read() {
        assert_eq!(
            split(&[b"data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\ndata: e\r\n\n"]),
            ["a", "b", "c", "d", "e"]
        );
        assert_eq!(split(&[b"\xef\xbb\xbfdata: a\n\n"]), ["a"]);
        assert_eq!(split(&[b"\xef", b"\xbb", b"\xbf", b"data: a\n\n"]), ["a"]);
        assert_eq!(split(&[b"data:a\ndata: b\ndata:  c\ndata\ndata:\n\n"]), ["a\nb\n c\n"]);
        assert_eq!(split(&[b"id: 7\nretry: 10\nevent: x\nfoo: bar\nfoo\ndata: a\n\n"]), ["a"]);
        assert_eq!(split(&[b"data: a"]), ["a"], "the last blank line may be missing");
    }

    #[test]
    fn s3_invalid_utf8_does_not_stop_the_stream() {
        assert_eq!(split(&[b"data: a\xff\n\ndata: b\n\n"]), ["a\u{fffd}", "b"]);
    }

    #[test]
    fn s7_comments_alone_are_not_events() {
        assert!(split(&[b": ping\n\n: ping\n\nevent: x\n\n"]).is_empty());
    }

    #[test]
    fn s8_endless_line_is_refused() {
        let mut splitter = SseSplitter::default();
        let part = vec![b'a'; 1024 * 1024];
        let refused = (0..100).find(|_| splitter.push(&part, |_| SseFlow::More).is_err());
        assert_eq!(refused, Some(16));
        assert!(splitter.line.capacity() <= 2 * MAX_EVENT);
    }
}
