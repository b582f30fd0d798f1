//! Splits a stream of bytes into server-sent events, within bounds. It knows nothing of what the events say.

/// The longest line and the largest event that are taken; a provider's are thousands of times smaller.
const MAX_EVENT: usize = 16 * 1024 * 1024;

/// A line or an event grew beyond [`MAX_EVENT`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Takes bytes in any chunking and gives the data of whole events. Comments, ids and retry advice are dropped here, so
/// that a ping never looks like an answer.
#[derive(Default)]
pub(crate) struct Splitter {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// The data lines of an event whose end has not come.
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was `\r`: a `\n` that follows belongs to it.
    after_cr: bool,
    begun: bool,
}

impl Splitter {
    /// Takes a chunk and hands every event that it completes to `on_event`, until that says to stop.
    pub(crate) fn push(&mut self, mut chunk: &[u8], mut on_event: impl FnMut(&[u8]) -> Flow) -> Result<Flow, TooLong> {
        while let Some(&first) = chunk.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) else {
                return self.keep(chunk).map(|()| Flow::More);
            };
            self.after_cr = chunk[end] == b'\r';
            let (head, rest) = (&chunk[..end], &chunk[end + 1..]);
            chunk = rest;
            if self.end_line(head)? == SseLine::Blank && self.flush(&mut on_event) == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    /// The stream has ended: an event that lacks only its blank line still counts if `on_event` can read it.
    pub(crate) fn finish(&mut self, mut on_event: impl FnMut(&[u8]) -> Flow) -> Flow {
        let line = std::mem::take(&mut self.line);
        match self.take_line(&line) {
            Ok(SseLine::Blank | SseLine::Taken) => self.flush(&mut on_event),
            Err(TooLong) => Flow::More,
        }
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + part.len() > MAX_EVENT {
            return Err(TooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line(&mut self, end: &[u8]) -> Result<SseLine, TooLong> {
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

    fn take_line(&mut self, mut line: &[u8]) -> Result<SseLine, TooLong> {
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(SseLine::Blank);
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            let data = data.strip_prefix(b" ").unwrap_or(data);
            if self.data.len() + data.len() > MAX_EVENT {
                return Err(TooLong);
            }
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data);
        }
        Ok(SseLine::Taken)
    }

    fn flush(&mut self, on_event: &mut impl FnMut(&[u8]) -> Flow) -> Flow {
        if !std::mem::take(&mut self.has_data) {
            return Flow::More;
        }
        let flow = on_event(&self.data);
        self.data.clear();
        flow
    }
}

/// Whether more events are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Go on.
    More,
    /// The rest of the stream does not matter.
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
        let mut splitter = Splitter::default();
        let mut events = Vec::new();
        for chunk in chunks {
            let flow = splitter.push(chunk, |data| {
                events.push(String::from_utf8_lossy(data).into_owned());
                Flow::More
            });
            flow.unwrap();
        }
        splitter.finish(|data| {
            events.push(String::from_utf8_lossy(data).into_owned());
            Flow::More
        });
        events
    }

    #[test]
    fn s1_s2_any_chunking_gives_the_same_events() {
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
    fn s4_s5_s6_every_way_to_write_an_event_is_read() {
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
    fn s7_comments_alone_are_no_events() {
        assert!(split(&[b": ping\n\n: ping\n\nevent: x\n\n"]).is_empty());
    }

    #[test]
    fn s8_a_line_without_end_is_refused() {
        let mut splitter = Splitter::default();
        let part = vec![b'a'; 1024 * 1024];
        let refused = (0..100).find(|_| splitter.push(&part, |_| Flow::More).is_err());
        assert_eq!(refused, Some(16));
        assert!(splitter.line.capacity() <= 2 * MAX_EVENT);
    }
}
