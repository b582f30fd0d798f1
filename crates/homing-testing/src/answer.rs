//! Responses as lists of steps, with constructors for the two common wire formats.

use std::time::Duration;

/// One step of a response.
#[derive(Clone, Debug)]
pub enum ResponseStep {
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Sends these bytes one at a time, with a pause after each.
    Drip {
        /// The bytes.
        bytes: Vec<u8>,
        /// The pause after each byte.
        pause: Duration,
    },
    /// Sends the same bytes again and again.
    Repeat {
        /// The bytes.
        bytes: Vec<u8>,
        /// The pause after each repetition.
        pause: Duration,
        /// The time after which it stops.
        limit: Duration,
    },
    /// Waits.
    Sleep(Duration),
    /// Sends nothing more and keeps the connection open.
    Stall,
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
}

/// The response to one request.
#[derive(Clone, Debug)]
pub struct FakeResponse {
    /// The steps, in order.
    pub steps: Vec<ResponseStep>,
    /// True if the connection accepts another request afterwards.
    pub keeps_open: bool,
}

impl FakeResponse {
    /// Creates a response of these steps, after which the connection is closed.
    pub fn steps(steps: Vec<ResponseStep>) -> Self {
        Self { steps, keeps_open: false }
    }

    /// Creates a response with a content length, after which the connection stays open.
    pub fn response(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut bytes = head(status, headers);
        bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        Self { steps: vec![ResponseStep::Bytes(bytes)], keeps_open: true }
    }

    /// Creates a response with a JSON body.
    pub fn json(status: u16, body: &str) -> Self {
        Self::response(status, &[("content-type", "application/json")], body)
    }

    /// Creates a complete stream of server-sent events.
    pub fn events(events: &str) -> Self {
        Self::response(200, &[("content-type", "text/event-stream")], events)
    }

    /// Creates a stream that ends with the connection; the steps are its body.
    pub fn open_stream(steps: Vec<ResponseStep>) -> Self {
        let mut bytes = head(200, &[("content-type", "text/event-stream")]);
        bytes.extend_from_slice(b"connection: close\r\n\r\n");
        let mut all = vec![ResponseStep::Bytes(bytes)];
        all.extend(steps);
        Self::steps(all)
    }

    /// Creates a chunked stream that is cut after `len` bytes of `body` by closing the connection.
    pub fn cut_stream(body: &str, len: usize) -> Self {
        let mut bytes = head(200, &[("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(format!("{len:x}\r\n").as_bytes());
        bytes.extend_from_slice(&body.as_bytes()[..len]);
        bytes.extend_from_slice(b"\r\n");
        Self::steps(vec![ResponseStep::Bytes(bytes)])
    }

    /// Delays the response.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.steps.insert(0, ResponseStep::Sleep(pause));
        self
    }

    /// Creates a streamed chat completion of text.
    pub fn chat_text(text: &str) -> Self {
        Self::events(&chat_events(&[format!("{{\"content\":{}}}", quoted(text))], "stop"))
    }

    /// Creates a streamed chat completion that calls tools, given by name and JSON arguments.
    pub fn chat_calls(calls: &[(&str, &str)]) -> Self {
        Self::events(&chat_events(&call_deltas(calls), "tool_calls"))
    }

    /// Creates a streamed chat completion of text, followed by calls.
    pub fn chat_text_and_calls(text: &str, calls: &[(&str, &str)]) -> Self {
        let mut deltas = vec![format!("{{\"content\":{}}}", quoted(text))];
        deltas.extend(call_deltas(calls));
        Self::events(&chat_events(&deltas, "tool_calls"))
    }

    /// Creates a streamed chat completion of text that was cut by the output limit.
    pub fn chat_cut_text(text: &str) -> Self {
        Self::events(&chat_events(&[format!("{{\"content\":{}}}", quoted(text))], "length"))
    }

    /// Creates a streamed chat completion whose last call was cut by the output limit. The arguments may be incomplete JSON.
    pub fn chat_cut_calls(calls: &[(&str, &str)]) -> Self {
        Self::events(&chat_events(&call_deltas(calls), "length"))
    }

    /// Creates a streamed Anthropic message of text.
    pub fn anthropic_text(text: &str) -> Self {
        let block = r#"{"type":"text","text":""}"#;
        Self::anthropic(block, &format!(r#"{{"type":"text_delta","text":{}}}"#, quoted(text)), "end_turn")
    }

    /// Creates a streamed Anthropic message of text that was cut by the output limit.
    pub fn anthropic_cut_text(text: &str) -> Self {
        let block = r#"{"type":"text","text":""}"#;
        Self::anthropic(block, &format!(r#"{{"type":"text_delta","text":{}}}"#, quoted(text)), "max_tokens")
    }

    /// Creates a streamed Anthropic message whose only call was cut by the output limit. The arguments may be incomplete JSON.
    pub fn anthropic_cut_call(name: &str, args: &str) -> Self {
        let block = format!(r#"{{"type":"tool_use","id":"toolu_x0","name":{},"input":{{}}}}"#, quoted(name));
        let delta = format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, quoted(args));
        Self::anthropic(&block, &delta, "max_tokens")
    }

    /// Creates an Anthropic message of one block in one delta, with a usage of 10 input and 5 output tokens.
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

/// Returns one chat completion delta per call.
pub(crate) fn call_deltas(calls: &[(&str, &str)]) -> Vec<String> {
    let delta = |(at, (name, args)): (usize, &(&str, &str))| {
        let (name, args) = (quoted(name), quoted(args));
        format!(
            "{{\"tool_calls\":[{{\"index\":{at},\"id\":\"call_x{at}\",\"type\":\"function\",\
             \"function\":{{\"name\":{name},\"arguments\":{args}}}}}]}}"
        )
    };
    calls.iter().enumerate().map(delta).collect()
}

/// Returns the events of a chat completion with these deltas, with a usage of 10 input and 5 output tokens.
pub(crate) fn chat_events(deltas: &[String], reason: &str) -> String {
    chat_events_with(deltas, reason, r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}"#)
}

/// Returns the events of a chat completion with these deltas and this usage.
pub(crate) fn chat_events_with(deltas: &[String], reason: &str, usage: &str) -> String {
    let mut events = String::new();
    for delta in deltas {
        events.push_str(&format!("data: {{\"model\":\"fake\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n"));
    }
    events.push_str(&format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\n"
    ));
    events.push_str(&format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n"));
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

pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if (control as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", control as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
