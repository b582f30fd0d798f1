//! The size and the fingerprint of a message as JSON, computed together because both need its bytes. Nothing is allocated for it.

use std::io;

use serde::Serialize;

use super::{Args, Message, Part, Reply, StopReason, ToolCall, ToolResult, Usage};

/// Initial value of a fingerprint.
pub const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Computes FNV-1a, continued from `hash`.
#[inline]
pub fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Computes FNV-1a of a value as JSON.
pub fn json_hash(value: &impl Serialize) -> u64 {
    Measure::of(value).hash
}

/// Size and fingerprint of what is written to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    pub(super) size: u64,
    pub(super) hash: u64,
}

impl Measure {
    fn start() -> Self {
        Self { size: 0, hash: FNV_START }
    }

    fn of(value: &impl Serialize) -> Self {
        let mut measure = Self::start();
        measure.json(value);
        measure
    }

    /// Measures a message as the serializer writes it. The forms that nearly all messages have are written here, because the
    /// serializer takes several times as long for them.
    pub(super) fn of_message(message: &Message) -> Self {
        let mut measure = Self::start();
        match message {
            Message::User { text, images } if images.is_empty() => {
                measure.raw("{\"role\":\"user\",\"text\":");
                measure.text(text);
                measure.raw("}");
            }
            Message::Assistant(reply) if is_plain(reply) => measure.reply(reply),
            Message::Tool(result) if result.images.is_empty() && result.data.is_none() => measure.result(result),
            Message::User { .. } | Message::Assistant(_) | Message::Tool(_) => measure.json(message),
        }
        measure
    }

    fn reply(&mut self, reply: &Reply) {
        self.raw("{\"role\":\"assistant\",\"parts\":[");
        for (index, part) in reply.parts.iter().enumerate() {
            if index > 0 {
                self.raw(",");
            }
            match part {
                Part::Text(text) => {
                    self.raw("{\"text\":");
                    self.text(text);
                    self.raw("}");
                }
                Part::Call(call) => self.call(call),
                Part::Thinking { .. } | Part::Opaque { .. } => self.json(part),
            }
        }
        self.raw("],\"stop\":");
        match &reply.stop {
            StopReason::End => self.raw("\"end\""),
            StopReason::Calls => self.raw("\"calls\""),
            stop @ (StopReason::Length | StopReason::Refusal | StopReason::Other(_)) => self.json(stop),
        }
        self.usage(&reply.usage);
        if let Some(model) = &reply.model {
            self.raw(",\"model\":");
            self.text(model);
        }
        self.raw("}");
    }

    fn call(&mut self, call: &ToolCall) {
        self.raw("{\"call\":{\"id\":");
        self.text(&call.id);
        self.raw(",\"name\":");
        self.text(&call.name);
        self.raw(",\"args\":");
        match &call.args {
            Args::Json(value) => {
                self.raw("{\"json\":");
                self.json(value);
                self.raw("}");
            }
            args @ Args::Malformed(_) => self.json(args),
        }
        self.raw("}}");
    }

    fn usage(&mut self, usage: &Usage) {
        self.raw(",\"usage\":{\"input\":");
        self.json(&usage.input);
        self.raw(",\"cached\":");
        self.json(&usage.cached);
        self.raw(",\"cache_write\":");
        self.json(&usage.cache_write);
        self.raw(",\"output\":");
        self.json(&usage.output);
        self.raw(",\"reasoning\":");
        self.json(&usage.reasoning);
        self.raw(",\"cost_micros\":");
        self.json(&usage.cost_micros);
        self.raw(if usage.estimated { ",\"estimated\":true}" } else { "}" });
    }

    fn result(&mut self, result: &ToolResult) {
        self.raw("{\"role\":\"tool\",\"index\":");
        self.json(&result.index);
        self.raw(",\"call_id\":");
        self.text(&result.call_id);
        self.raw(",\"name\":");
        self.text(&result.name);
        self.raw(",\"text\":");
        self.text(&result.text);
        self.raw(if result.is_error { ",\"is_error\":true}" } else { "}" });
    }

    /// Writes a string.
    fn text(&mut self, text: &str) {
        let is_escaped = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        if text.bytes().fold(false, |found, byte| found | is_escaped(byte)) {
            return self.json(text);
        }
        self.raw("\"");
        self.raw(text);
        self.raw("\"");
    }

    fn raw(&mut self, json: &str) {
        self.size += json.len() as u64;
        self.hash = fnv(self.hash, json.as_bytes());
    }

    fn json(&mut self, value: &(impl Serialize + ?Sized)) {
        // Writing to it cannot fail.
        let _ = serde_json::to_writer(self, value);
    }
}

impl io::Write for Measure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.size += bytes.len() as u64;
        self.hash = fnv(self.hash, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether a reply has only members that every reply has.
fn is_plain(reply: &Reply) -> bool {
    reply.cut_call.is_none() && reply.data.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::Image;

    fn call(args: Args) -> Part {
        Part::from(ToolCall { id: "c\"1".into(), name: "read".into(), args })
    }

    fn replies() -> Vec<Reply> {
        let thinking = |signature: Option<&str>| Part::Thinking {
            text: "so".into(),
            signature: signature.map(str::to_owned),
            origin: None,
        };
        let parts = [
            vec![],
            vec![Part::Text("Grüße\n\u{1}\u{7f}".into())],
            vec![thinking(None), thinking(Some("s")), Part::Opaque { wire: "w".into(), block: json!([1]) }],
            vec![call(Args::Json(json!({"a": [1, "b\t"]}))), call(Args::Malformed("{".into()))],
        ];
        let stops = [StopReason::End, StopReason::Calls, StopReason::Length, StopReason::Other("x\"".into())];
        let mut replies: Vec<Reply> = parts.into_iter().map(Reply::new).collect();
        for (reply, stop) in replies.iter_mut().zip(stops) {
            (reply.stop, reply.model) = (stop, Some("m".into()));
            reply.usage = Usage::default().input(7).output(1_000_000).cached(3).estimated(true);
        }
        replies.push(Reply { stop: StopReason::Refusal, cut_call: Some("read".into()), ..Reply::default() });
        replies.push(Reply { data: Some(json!({"b": null}).into()), ..Reply::default() });
        replies
    }

    #[test]
    fn messages_are_measured_as_the_serializer_writes_them() {
        let image = || Image { media_type: "image/png".into(), base64: "AA".into(), pages: None };
        let result = ToolResult {
            index: 3,
            call_id: "c".into(),
            name: "read".into(),
            text: "plain".into(),
            images: Vec::new(),
            data: None,
            is_error: false,
        };
        let results = [
            result.clone(),
            ToolResult { text: "a \\ b".into(), is_error: true, ..result.clone() },
            ToolResult { images: vec![image()], data: Some(json!(1).into()), ..result },
        ];
        let users = [Message::user(""), Message::user("a \"b\" ü"), Message::user("plain")];
        let messages = users.into_iter().chain(replies().into_iter().map(|reply| Message::Assistant(reply.into())));
        let messages = messages.chain(results.into_iter().map(|result| Message::Tool(result.into())));
        for message in messages.chain([Message::User { text: "look".into(), images: vec![image()] }]) {
            let json = serde_json::to_string(&message).unwrap();
            let measure = Measure::of_message(&message);
            assert_eq!(measure.size, json.len() as u64, "{json}");
            assert_eq!(measure.hash, fnv(FNV_START, json.as_bytes()), "{json}");
        }
    }
}
