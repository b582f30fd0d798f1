//! Reads the chat completion chunks that make up nearly all of a stream: one choice with a piece of text, of reasoning or of one call.
//! It scans an event once and allocates nothing. Whatever it does not recognise, or finds malformed, is left to the complete types
//! in `chat_chunk`, so it never decides that an event is wrong.

use std::borrow::Cow;

use super::{EventText, reasoning::FIELDS};

/// The parts of a chunk that matter.
#[derive(Default)]
pub(super) struct PlainChunk<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) usage: Option<&'a str>,
    pub(super) content: Option<JsonText<'a>>,
    /// The reasoning, with the name of its field.
    pub(super) reasoning: Option<(&'static str, JsonText<'a>)>,
    pub(super) call: Option<PlainCall<'a>>,
    pub(super) finish_reason: Option<&'a str>,
}

/// A piece of a call.
#[derive(Default)]
pub(super) struct PlainCall<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) arguments: Option<JsonText<'a>>,
}

/// A JSON string whose escapes are not checked yet.
#[derive(Clone, Copy)]
pub(super) struct JsonText<'a> {
    /// With its quotes.
    quoted: &'a str,
    has_escapes: bool,
}

impl<'a> JsonText<'a> {
    /// The text; `None` if an escape is wrong.
    pub(super) fn read(self) -> Option<Cow<'a, str>> {
        if !self.has_escapes {
            return Some(Cow::Borrowed(&self.quoted[1..self.quoted.len() - 1]));
        }
        serde_json::from_str::<EventText<'a>>(self.quoted).ok().map(|text| text.0)
    }
}

impl<'a> PlainChunk<'a> {
    /// Reads an event; `None` if it has another form.
    pub(super) fn read(event: &'a str) -> Option<Self> {
        let (mut chunk, mut scan, mut seen) = (Self::default(), Scanner { text: event, at: 0 }, Seen(0));
        scan.members(|scan, key| match key {
            "choices" => {
                seen.first(0)?;
                scan.elements(|scan, at| if at == 0 { chunk.read_choice(scan) } else { None })
            }
            "model" => {
                seen.first(1)?;
                scan.plain_or_null().map(|name| chunk.model = name)
            }
            "usage" => {
                seen.first(2)?;
                scan.object_or_null().map(|usage| chunk.usage = usage)
            }
            "object" => {
                seen.first(3)?;
                scan.plain().filter(|word| *word != "error").map(drop)
            }
            "error" | "x_groq" => {
                seen.first(if key == "error" { 4 } else { 5 })?;
                scan.null()
            }
            _ => scan.skip(0),
        })?;
        scan.space();
        (scan.at == event.len()).then_some(chunk)
    }

    fn read_choice(&mut self, scan: &mut Scanner<'a>) -> Option<()> {
        let mut seen = Seen(0);
        scan.members(|scan, key| match key {
            "index" => {
                seen.first(0)?;
                scan.number().filter(|index| *index == 0).map(drop)
            }
            "delta" => {
                seen.first(1)?;
                self.read_delta(scan)
            }
            "finish_reason" => {
                seen.first(2)?;
                scan.plain_or_null().map(|why| self.finish_reason = why)
            }
            "message" => None,
            _ => scan.skip(0),
        })
    }

    fn read_delta(&mut self, scan: &mut Scanner<'a>) -> Option<()> {
        let mut seen = Seen(0);
        scan.members(|scan, key| match key {
            "content" => {
                seen.first(0)?;
                scan.text_or_null().map(|text| self.content = text)
            }
            "tool_calls" => {
                seen.first(1)?;
                scan.elements(|scan, at| {
                    (at == 0).then_some(())?;
                    self.call = Some(PlainCall::read(scan)?);
                    Some(())
                })
            }
            "refusal" | "reasoning_details" | "function_call" => {
                seen.first(
                    ["refusal", "reasoning_details", "function_call"].iter().position(|name| *name == key)? + 2,
                )?;
                scan.null()
            }
            _ => match FIELDS.iter().position(|field| *field == key) {
                Some(at) => {
                    seen.first(at + 5)?;
                    let text = scan.text_or_null()?;
                    // Some servers send the same reasoning under two names.
                    (text.is_none() || self.reasoning.is_none()).then_some(())?;
                    self.reasoning = self.reasoning.or(text.map(|text| (FIELDS[at], text)));
                    Some(())
                }
                None => scan.skip(0),
            },
        })
    }
}

impl<'a> PlainCall<'a> {
    fn read(scan: &mut Scanner<'a>) -> Option<Self> {
        let (mut call, mut seen) = (Self::default(), Seen(0));
        scan.members(|scan, key| match key {
            "index" => {
                seen.first(0)?;
                scan.number().map(|index| call.index = Some(index))
            }
            "id" => {
                seen.first(1)?;
                scan.plain_or_null().map(|id| call.id = id)
            }
            "function" => {
                seen.first(2)?;
                scan.members(|scan, key| match key {
                    "name" => {
                        seen.first(3)?;
                        scan.plain_or_null().map(|name| call.name = name)
                    }
                    "arguments" => {
                        seen.first(4)?;
                        scan.text().map(|text| call.arguments = Some(text))
                    }
                    _ => scan.skip(0),
                })
            }
            _ => scan.skip(0),
        })?;
        Some(call)
    }
}

/// The keys that an object has had. A repeated one is an error, which is not reported here.
struct Seen(u32);

impl Seen {
    /// `None` if the key with this number was seen before.
    fn first(&mut self, key: usize) -> Option<()> {
        let is_first = self.0 & (1 << key) == 0;
        self.0 |= 1 << key;
        is_first.then_some(())
    }
}

/// The text around the content of an event. Most events of a stream differ in nothing else, so the next one need not be parsed.
pub(super) struct ContentFrame {
    before: Box<str>,
    after: Box<str>,
}

impl ContentFrame {
    /// The frame of an event that has content and nothing else.
    pub(super) fn of(event: &str, chunk: &PlainChunk<'_>) -> Option<Self> {
        let others = chunk.usage.is_some() || chunk.reasoning.is_some() || chunk.call.is_some();
        let content = chunk.content.filter(|_| !others && chunk.finish_reason.is_none())?;
        let start = content.quoted.as_ptr() as usize - event.as_ptr() as usize;
        Some(Self { before: event[..start].into(), after: event[start + content.quoted.len()..].into() })
    }

    /// The content of an event with this frame.
    pub(super) fn content<'a>(&self, event: &'a str) -> Option<JsonText<'a>> {
        let mut scan = Scanner { text: event.strip_prefix(&*self.before)?, at: 0 };
        let content = scan.text()?;
        (scan.text[scan.at..] == *self.after).then_some(content)
    }
}

/// The bytes that end a part of a string without escapes: the quote, an escape, and those that a string must not contain.
static ENDS_PLAIN_TEXT: [bool; 256] = {
    let mut ends = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        ends[control] = true;
        control += 1;
    }
    ends[b'"' as usize] = true;
    ends[b'\\' as usize] = true;
    ends
};

/// Nesting of ignored values that is followed.
const MAX_DEPTH: usize = 16;

/// Reads JSON strictly, and gives up with `None`.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Reads this byte, after white space.
    fn eat(&mut self, byte: u8) -> Option<()> {
        self.space();
        self.take(byte)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// Reads an object; `read` must read the value of each key.
    #[inline]
    fn members(&mut self, mut read: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.eat(b'{')?;
        self.space();
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let key = self.plain()?;
            self.eat(b':')?;
            read(self, key)?;
            self.space();
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    /// Reads an array; `read` must read each element.
    #[inline]
    fn elements(&mut self, mut read: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        self.eat(b'[')?;
        self.space();
        if self.take(b']').is_some() {
            return Some(());
        }
        for at in 0.. {
            read(self, at)?;
            self.space();
            if self.take(b',').is_none() {
                break;
            }
        }
        self.take(b']')
    }

    /// Reads a string.
    fn text(&mut self) -> Option<JsonText<'a>> {
        self.eat(b'"')?;
        let (start, mut has_escapes) = (self.at - 1, false);
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            self.at += rest.iter().position(|byte| ENDS_PLAIN_TEXT[usize::from(*byte)])?;
            match self.text.as_bytes()[self.at] {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.at += 2;
                }
                _ => return None,
            }
        }
        self.at += 1;
        Some(JsonText { quoted: self.text.get(start..self.at)?, has_escapes })
    }

    /// Reads a string without escapes.
    fn plain(&mut self) -> Option<&'a str> {
        let text = self.text()?;
        (!text.has_escapes).then(|| &text.quoted[1..text.quoted.len() - 1])
    }

    fn is_null(&mut self) -> bool {
        self.space();
        self.peek() == Some(b'n')
    }

    fn null(&mut self) -> Option<()> {
        self.space();
        self.word("null")
    }

    fn plain_or_null(&mut self) -> Option<Option<&'a str>> {
        if self.is_null() { self.null().map(|()| None) } else { self.plain().map(Some) }
    }

    fn text_or_null(&mut self) -> Option<Option<JsonText<'a>>> {
        if self.is_null() { self.null().map(|()| None) } else { self.text().map(Some) }
    }

    /// Reads an object as text.
    fn object_or_null(&mut self) -> Option<Option<&'a str>> {
        if self.is_null() {
            return self.null().map(|()| None);
        }
        let start = self.at;
        (self.peek() == Some(b'{')).then_some(())?;
        self.skip(0)?;
        Some(Some(&self.text[start..self.at]))
    }

    /// Reads a number without sign, fraction and exponent.
    fn number(&mut self) -> Option<u64> {
        self.space();
        let start = self.at;
        self.digits()?;
        let digits = &self.text[start..self.at];
        let is_plain = digits.len() < 19 && (digits.len() == 1 || !digits.starts_with('0'));
        let is_whole = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if is_plain && is_whole { digits.parse().ok() } else { None }
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    /// Reads any value. Strings with escapes are not checked here, so they are not accepted.
    fn skip(&mut self, depth: usize) -> Option<()> {
        self.space();
        match self.peek()? {
            b'"' => self.plain().map(drop),
            b'{' if depth < MAX_DEPTH => self.members(|scan, _| scan.skip(depth + 1)),
            b'[' if depth < MAX_DEPTH => self.elements(|scan, _| scan.skip(depth + 1)),
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'0'..=b'9' => self.skip_number(),
            _ => None,
        }
    }

    fn skip_number(&mut self) -> Option<()> {
        let start = self.at;
        self.digits()?;
        if self.at > start + 1 && self.text.as_bytes()[start] == b'0' {
            return None;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        // An exponent is rare and may be out of range.
        (!matches!(self.peek(), Some(b'e' | b'E'))).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use homing_core::model::Delta;

    use super::*;
    use crate::wire::{
        chat_chunk::{ChatChunk, MessageForm},
        chat_stream::ChatDecoder,
        reply_builder::ReplyBuilder,
    };

    const EVENTS: [&str; 8] = [
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Gr\u00fc\n\"e"},"logprobs":null,"finish_reason":null}],"usage":null}"#,
        r#" { "choices" : [ { "index" : 0 , "delta" : { "reasoning_content" : "so ü" , "content" : null } , "finish_reason" : null } ] } "#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c1","type":"function","function":{"name":"read","arguments":"{\"n\":0}"}}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"a"}}]},"finish_reason":"tool_calls"}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":null,"error":null,"service_tier":"default"}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"cost":0.25}}"#,
        r#"{"choices":[{"index":0,"delta":{"reasoning":"a","thinking":"a","content":"b","refusal":null}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"mine"}}]}"#,
    ];

    /// Describes the additions of an event, by either reader.
    fn added(event: &str, is_plain: bool) -> Option<String> {
        let (mut decoder, mut deltas) = (ChatDecoder::new(ReplyBuilder::default()), String::new());
        let mut on_delta = |delta: Delta<'_>| deltas.push_str(&format!("{delta:?};"));
        let progress = if is_plain {
            decoder.take_plain(PlainChunk::read(event)?, &mut on_delta)?
        } else {
            let chunk: ChatChunk<'_> = serde_json::from_str(event).expect("what the plain reader accepts is valid");
            decoder.take_chunk(chunk, MessageForm::Delta, &mut on_delta)
        };
        let draft = &decoder.draft;
        let rest = (&draft.blocks, &draft.stop, &draft.usage, &draft.model, &draft.origin);
        Some(format!("{progress:?} {deltas} {rest:?}"))
    }

    #[test]
    fn plain_events_are_read_like_all_others() {
        for (at, event) in EVENTS.iter().enumerate() {
            let plain = added(event, true);
            assert_eq!(plain.is_some(), at < 6, "{event}");
            assert!(plain.is_none() || plain == added(event, false), "{event}");
        }
    }

    #[test]
    fn events_that_differ_in_their_content_only_are_recognised() {
        let event = |text: &str| format!(r#"{{"choices":[{{"delta":{{"content": {text}}},"finish_reason":null}}]}}"#);
        let first = event(r#""a""#);
        let frame = ContentFrame::of(&first, &PlainChunk::read(&first).unwrap()).unwrap();
        let content = |event: &str| frame.content(event).and_then(JsonText::read).map(Cow::into_owned);
        assert_eq!(content(&event(r#""b \n \"c\"""#)).as_deref(), Some("b \n \"c\""));
        for other in [r#""a","role":"x""#, r#""a" "#, "null", r#""\x""#, "\"\u{1}\"", r#"["a"]"#] {
            assert_eq!(content(&event(other)), None, "{other}");
        }
        let stop = first.replace("null", "\"stop\"");
        assert!(ContentFrame::of(&stop, &PlainChunk::read(&stop).unwrap()).is_none());
    }

    #[test]
    fn damaged_events_are_never_read_differently() {
        for event in EVENTS {
            for at in (0..event.len()).filter(|at| event.is_char_boundary(*at)) {
                let rest = &event[at..];
                let after = rest.chars().next().map_or("", |letter| &rest[letter.len_utf8()..]);
                for other in
                    ["", "0", "1", "\"", "\\", "{", "}", "[", ",", ":", "-", ".", "e", "n", " ", "\u{1}", "\"a\":"]
                {
                    let damaged = format!("{}{other}{after}", &event[..at]);
                    let inserted = format!("{}{other}{rest}", &event[..at]);
                    for event in [damaged, inserted] {
                        let plain = added(&event, true);
                        assert!(plain.is_none() || plain == added(&event, false), "{event}");
                    }
                }
                assert!(rest.trim().is_empty() || added(&event[..at], true).is_none(), "{}", &event[..at]);
            }
        }
    }
}
