//! Reads the chat completion chunks that make up nearly all of a stream: one choice with a piece of text, of reasoning or of one call.
//! It scans an event once and allocates nothing. Whatever it does not recognise, or finds malformed, is left to the complete types
//! in `chat_chunk`, so it never decides that an event is wrong.

use homing_core::message::Usage;

use super::{
    json_scanner::{JsonStr, Scanner},
    reasoning::FIELDS,
    usage,
};

/// The parts of a chunk that matter.
#[derive(Default)]
pub(super) struct PlainChunk<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) usage: Option<ChunkUsage<'a>>,
    pub(super) content: Option<JsonStr<'a>>,
    /// The reasoning, with the name of its field.
    pub(super) reasoning: Option<(&'static str, JsonStr<'a>)>,
    pub(super) call: Option<PlainCall<'a>>,
    pub(super) finish_reason: Option<&'a str>,
    /// The end of the members before the choices, if only the model matters of them, and the keys that they have.
    head: Option<(usize, Seen)>,
}

/// The usage in a chunk.
#[derive(Debug, PartialEq)]
pub(super) enum ChunkUsage<'a> {
    Read(Usage),
    /// An object of another form.
    Json(&'a str),
}

impl<'a> ChunkUsage<'a> {
    /// Reads an object or `null`.
    fn read(scan: &mut Scanner<'a>) -> Option<Option<Self>> {
        let start = scan.at;
        if let Some(usage) = usage::scan_chat(scan) {
            return Some(Some(Self::Read(usage)));
        }
        scan.at = start;
        Some(scan.object_or_null()?.map(Self::Json))
    }

    /// The usage.
    pub(super) fn usage(self) -> Usage {
        match self {
            Self::Read(usage) => usage,
            Self::Json(json) => usage::of_chat_text(json),
        }
    }
}

/// A piece of a call.
#[derive(Default)]
pub(super) struct PlainCall<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) arguments: Option<JsonStr<'a>>,
}

impl<'a> PlainChunk<'a> {
    /// Reads an event; `None` if it has another form. If it begins like `before`, that part is not read again, and the model, which
    /// is in it, is left out.
    pub(super) fn read(event: &'a str, before: Option<&ChunkHead>) -> Option<Self> {
        let (mut chunk, mut scan, mut seen) = (Self::default(), Scanner::new(event), Seen(0));
        let known = before.filter(|head| event.starts_with(&*head.text));
        match known {
            Some(head) => (scan.at, seen) = (head.text.len(), head.seen),
            None => scan.open_object()?,
        }
        scan.rest_of_members(|scan, key| match key {
            "choices" => {
                if chunk.usage.is_none() {
                    chunk.head = Some((key.as_ptr() as usize - event.as_ptr() as usize - 1, seen));
                }
                seen.first(0)?;
                scan.elements(|scan, at| if at == 0 { chunk.read_choice(scan) } else { None })
            }
            "model" => {
                seen.first(1)?;
                scan.plain_or_null().map(|name| chunk.model = name)
            }
            "usage" => {
                seen.first(2)?;
                ChunkUsage::read(scan).map(|usage| chunk.usage = usage)
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
        scan.rest().is_empty().then_some(chunk)
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

/// The beginning of an event up to its choices: ids, the time, the model. Most events of a stream have the same.
pub(super) struct ChunkHead {
    text: Box<str>,
    seen: Seen,
}

impl ChunkHead {
    /// The beginning of an event.
    pub(super) fn of(event: &str, chunk: &PlainChunk<'_>) -> Option<Self> {
        let (end, seen) = chunk.head?;
        Some(Self { text: event.get(..end)?.into(), seen })
    }
}

/// The keys that an object has had. A repeated one is an error, which is not reported here.
#[derive(Clone, Copy)]
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
    pub(super) fn content<'a>(&self, event: &'a str) -> Option<JsonStr<'a>> {
        let mut scan = Scanner::new(event.strip_prefix(&*self.before)?);
        let content = scan.text()?;
        (scan.rest() == &*self.after).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

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
            decoder.take_plain(PlainChunk::read(event, None)?, &mut on_delta)?
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
        let frame = ContentFrame::of(&first, &PlainChunk::read(&first, None).unwrap()).unwrap();
        let content = |event: &str| frame.content(event).and_then(JsonStr::read).map(Cow::into_owned);
        assert_eq!(content(&event(r#""b \n \"c\"""#)).as_deref(), Some("b \n \"c\""));
        for other in [r#""a","role":"x""#, r#""a" "#, "null", r#""\x""#, "\"\u{1}\"", r#"["a"]"#] {
            assert_eq!(content(&event(other)), None, "{other}");
        }
        let stop = first.replace("null", "\"stop\"");
        assert!(ContentFrame::of(&stop, &PlainChunk::read(&stop, None).unwrap()).is_none());
    }

    #[test]
    fn beginning_that_was_read_before_is_not_read_again() {
        let head = |event: &str| ChunkHead::of(event, &PlainChunk::read(event, None).unwrap());
        let first = r#"{"id":"c","model":"m", "choices":[{"delta":{"content":"a"}}]}"#;
        let known = head(first).unwrap();
        assert_eq!(&*known.text, r#"{"id":"c","model":"m", "#);
        let last = r#"{"id":"c","model":"m", "choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"a":1}}"#;
        let chunk = PlainChunk::read(last, Some(&known)).unwrap();
        assert_eq!(
            (chunk.model, chunk.finish_reason, chunk.usage),
            (None, Some("stop"), Some(ChunkUsage::Json(r#"{"a":1}"#)))
        );
        let other = PlainChunk::read(r#"{"id":"d","model":"n","choices":[]}"#, Some(&known)).unwrap();
        assert_eq!(other.model, Some("n"));
        for wrong in [r#"{"id":"c","model":"m", }"#, r#"{"id":"c","model":"m", "choices":[],"model":"n"}"#] {
            assert!(PlainChunk::read(wrong, Some(&known)).is_none(), "{wrong}");
        }
        assert!(head(r#"{"usage":{},"choices":[]}"#).is_none(), "its usage would be lost");
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
