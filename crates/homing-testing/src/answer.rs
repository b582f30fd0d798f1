//! Answers as lists of steps, and ready-made ones in the two common wire formats.

use std::time::Duration;

/// One thing a server does while it answers.
#[derive(Clone, Debug)]
pub enum ResponseStep {
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Sends these bytes one at a time, with a pause after each.
    Drip {
        /// What is sent.
        bytes: Vec<u8>,
        /// The pause after each byte.
        pause: Duration,
    },
    /// Sends the same bytes again and again.
    Repeat {
        /// What is sent.
        bytes: Vec<u8>,
        /// The pause after each time.
        pause: Duration,
        /// When to stop.
        limit: Duration,
    },
    /// Waits.
    Sleep(Duration),
    /// Says nothing more and keeps the connection open.
    Stall,
    /// Ends the connection in order.
    Close,
    /// Ends the connection with a reset.
    Reset,
}

/// What a server does with one request.
#[derive(Clone, Debug)]
pub struct FakeResponse {
    /// In this order.
    pub steps: Vec<ResponseStep>,
    /// Whether the connection takes another request afterwards.
    pub keeps_open: bool,
}

impl FakeResponse {
    /// These steps, then the end of the connection.
    pub fn steps(steps: Vec<ResponseStep>) -> Self {
        Self { steps, keeps_open: false }
    }

    /// A response with a length, after which the connection stays open.
    pub fn response(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut bytes = head(status, headers);
        bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        Self { steps: vec![ResponseStep::Bytes(bytes)], keeps_open: true }
    }

    /// A JSON body with a status.
    pub fn json(status: u16, body: &str) -> Self {
        Self::response(status, &[("content-type", "application/json")], body)
    }

    /// A stream of events, whole and with a proper end.
    pub fn events(events: &str) -> Self {
        Self::response(200, &[("content-type", "text/event-stream")], events)
    }

    /// The head of a stream whose end is the end of the connection; the steps that follow are its body.
    pub fn open_stream(steps: Vec<ResponseStep>) -> Self {
        let mut bytes = head(200, &[("content-type", "text/event-stream")]);
        bytes.extend_from_slice(b"connection: close\r\n\r\n");
        let mut all = vec![ResponseStep::Bytes(bytes)];
        all.extend(steps);
        Self::steps(all)
    }

    /// The head of a stream in chunks; `body` is cut after `len` bytes, and the connection with it.
    pub fn cut_stream(body: &str, len: usize) -> Self {
        let mut bytes = head(200, &[("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(format!("{len:x}\r\n").as_bytes());
        bytes.extend_from_slice(&body.as_bytes()[..len]);
        bytes.extend_from_slice(b"\r\n");
        Self::steps(vec![ResponseStep::Bytes(bytes)])
    }

    /// The same answer, a while later.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.steps.insert(0, ResponseStep::Sleep(pause));
        self
    }

    /// A chat completion of words, streamed.
    pub fn chat_text(text: &str) -> Self {
        Self::events(&chat_events(&[format!("{{\"content\":{}}}", quoted(text))], "stop"))
    }

    /// A chat completion that calls tools: name and arguments as JSON text.
    pub fn chat_calls(calls: &[(&str, &str)]) -> Self {
        Self::events(&chat_events(&call_deltas(calls), "tool_calls"))
    }

    /// A chat completion of words that the output limit cut.
    pub fn chat_cut_text(text: &str) -> Self {
        Self::events(&chat_events(&[format!("{{\"content\":{}}}", quoted(text))], "length"))
    }

    /// A chat completion whose last call the output limit cut: name and arguments as far as they came.
    pub fn chat_cut_calls(calls: &[(&str, &str)]) -> Self {
        Self::events(&chat_events(&call_deltas(calls), "length"))
    }

    /// An Anthropic message of words, streamed.
    pub fn anthropic_text(text: &str) -> Self {
        let block = r#"{"type":"text","text":""}"#;
        Self::anthropic(block, &format!(r#"{{"type":"text_delta","text":{}}}"#, quoted(text)), "end_turn")
    }

    /// An Anthropic message of words that the output limit cut.
    pub fn anthropic_cut_text(text: &str) -> Self {
        let block = r#"{"type":"text","text":""}"#;
        Self::anthropic(block, &format!(r#"{{"type":"text_delta","text":{}}}"#, quoted(text)), "max_tokens")
    }

    /// An Anthropic message whose one call the output limit cut: name and arguments as far as they came.
    pub fn anthropic_cut_call(name: &str, args: &str) -> Self {
        let block = format!(r#"{{"type":"tool_use","id":"toolu_x0","name":{},"input":{{}}}}"#, quoted(name));
        let delta = format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, quoted(args));
        Self::anthropic(&block, &delta, "max_tokens")
    }

    /// An Anthropic message of one block that comes in one delta, ten tokens in and five out.
    fn anthropic(block: &str, delta: &str, reason: &str) -> Self {
        let events = [
            r#"{"type":"message_start","message":{"model":"fake","usage":{"input_tokens":10,"output_tokens":1}}}"#
                .to_owned(),
            format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#),
            format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#),
            r#"{"type":"content_block_stop","index":0}"#.to_owned(),
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":5}}}}"#),
            r#"{"type":"message_stop"}"#.to_owned(),
        ];
        Self::events(&events.map(|event| format!("data: {event}\n\n")).concat())
    }
}

/// Calls as deltas of a chat completion, one each.
fn call_deltas(calls: &[(&str, &str)]) -> Vec<String> {
    let delta = |(at, (name, args)): (usize, &(&str, &str))| {
        let (name, args) = (quoted(name), quoted(args));
        format!(
            "{{\"tool_calls\":[{{\"index\":{at},\"id\":\"call_x{at}\",\"type\":\"function\",\
             \"function\":{{\"name\":{name},\"arguments\":{args}}}}}]}}"
        )
    };
    calls.iter().enumerate().map(delta).collect()
}

/// The events of a chat completion with these deltas, ten tokens in and five out.
pub(crate) fn chat_events(deltas: &[String], reason: &str) -> String {
    let mut events = String::new();
    for delta in deltas {
        events.push_str(&format!("data: {{\"model\":\"fake\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n"));
    }
    events.push_str(&format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\n"
    ));
    events.push_str(
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}\n\n",
    );
    events.push_str("data: [DONE]\n\n");
    events
}

fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} Said\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.into_bytes()
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for it in text.chars() {
        match it {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            it if (it as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", it as u32)),
            it => out.push(it),
        }
    }
    out.push('"');
    out
}
