//! A provider that speaks OpenAI's Responses API. It refuses requests as OpenAI does: reasoning that it did not issue or
//! that nothing follows, results without calls, calls without results, and fields that the model does not accept.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::{FakeProvider, FakeResponse, ReceivedRequest};

/// The end of a response.
#[derive(Clone, Debug, Default)]
pub enum ResponsesEnd {
    /// The model stopped.
    #[default]
    Completed,
    /// `incomplete` for this reason, such as `max_output_tokens`.
    Incomplete(&'static str),
    /// `failed` with this code and message.
    Failed(&'static str, &'static str),
}

/// One response: its output items and its end.
#[derive(Clone, Debug, Default)]
pub struct ResponsesTurn {
    /// The output items, as in a finished response.
    pub items: Vec<Value>,
    /// The end.
    pub end: ResponsesEnd,
}

impl ResponsesTurn {
    /// Creates a complete response of these items.
    pub fn items(items: Vec<Value>) -> Self {
        Self { items, end: ResponsesEnd::Completed }
    }

    /// Creates a response that was cut at the output limit.
    pub fn cut(items: Vec<Value>) -> Self {
        Self { items, end: ResponsesEnd::Incomplete("max_output_tokens") }
    }

    /// Creates an item of encrypted reasoning with a summary.
    pub fn reasoning(id: &str, summary: &str) -> Value {
        json!({"id": id, "type": "reasoning", "summary": [{"type": "summary_text", "text": summary}],
            "encrypted_content": format!("gAAAA-{id}=="), "status": "completed"})
    }

    /// Creates an item of text.
    pub fn message(text: &str) -> Value {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
    }

    /// Creates an item that calls a tool.
    pub fn call(call_id: &str, name: &str, arguments: &str) -> Value {
        json!({"id": format!("fc_{call_id}"), "type": "function_call", "status": "completed", "call_id": call_id,
            "name": name, "arguments": arguments})
    }

    /// Returns the response as the provider sends it if it does not stream.
    pub fn whole(&self) -> Value {
        let (status, incomplete, error) = match self.end {
            ResponsesEnd::Completed => ("completed", Value::Null, Value::Null),
            ResponsesEnd::Incomplete(reason) => ("incomplete", json!({ "reason": reason }), Value::Null),
            ResponsesEnd::Failed(code, message) => ("failed", Value::Null, json!({"code": code, "message": message})),
        };
        json!({"id": "resp_1", "object": "response", "model": "gpt-fake", "status": status, "error": error,
            "incomplete_details": incomplete, "output": self.items,
            "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 12}, "total_tokens": 120}})
    }

    /// Returns the response as a stream of events.
    pub fn events(&self) -> String {
        let begun =
            json!({"id": "resp_1", "object": "response", "model": "gpt-fake", "status": "in_progress", "output": []});
        let mut events = vec![
            json!({"type": "response.created", "response": begun}),
            json!({"type": "response.in_progress", "response": begun}),
        ];
        for (index, item) in self.items.iter().enumerate() {
            let mut item_events = item_events(item);
            item_events.iter_mut().for_each(|event| event["output_index"] = index.into());
            events.append(&mut item_events);
        }
        let last = match self.end {
            ResponsesEnd::Completed => "response.completed",
            ResponsesEnd::Incomplete(_) => "response.incomplete",
            ResponsesEnd::Failed(..) => "response.failed",
        };
        events.push(json!({"type": last, "response": self.whole()}));
        let lines = events.iter().enumerate().map(|(number, event)| {
            let mut event = event.clone();
            event["sequence_number"] = number.into();
            format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
        });
        lines.collect()
    }

    /// Creates a script for [`FakeProvider::start`] that sends these responses in turn and then repeats the last one, unless
    /// a request breaks the rules: that gets the error 400.
    ///
    /// # Panics
    /// Panics if `turns` is empty.
    pub fn script(turns: Vec<Self>) -> impl Fn(usize, &ReceivedRequest) -> FakeResponse + Send + Sync + 'static {
        assert!(!turns.is_empty(), "a provider needs at least one answer");
        let (next, issued) = (Mutex::new(0), Mutex::new(Vec::new()));
        move |_, request| {
            let mut issued = issued.lock().unwrap_or_else(PoisonError::into_inner);
            let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
            if let Err((code, message)) = check(&request.path, &body, &issued) {
                let error = json!({"message": message, "type": "invalid_request_error", "param": null, "code": code});
                return FakeResponse::json(400, &json!({ "error": error }).to_string());
            }
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = &turns[(*next).min(turns.len() - 1)];
            *next += 1;
            issued.extend(turn.items.iter().filter(|item| item["type"] == "reasoning").cloned());
            if body["stream"] == true {
                FakeResponse::events(&turn.events())
            } else {
                FakeResponse::json(200, &turn.whole().to_string())
            }
        }
    }
}

impl FakeProvider {
    /// Starts a server of the Responses API that plays [`ResponsesTurn::script`].
    ///
    /// # Panics
    /// Panics if `turns` is empty.
    pub async fn responses(turns: Vec<ResponsesTurn>) -> Self {
        Self::start(ResponsesTurn::script(turns)).await
    }
}

/// The events of one item: its beginning, its deltas and its end.
fn item_events(item: &Value) -> Vec<Value> {
    let id = &item["id"];
    let mut begun = item.clone();
    begun["status"] = "in_progress".into();
    let deltas = match item["type"].as_str() {
        Some("reasoning") => {
            // The content at the beginning is not the final one.
            begun["encrypted_content"] = "gAAAA-incomplete".into();
            let text = item["summary"][0]["text"].as_str().unwrap_or_default().to_owned();
            begun["summary"] = json!([]);
            let mut events =
                vec![json!({"type": "response.reasoning_summary_part.added", "item_id": id, "summary_index": 0})];
            events.extend(deltas("response.reasoning_summary_text.delta", id, &text));
            events
        }
        Some("function_call") => {
            begun["arguments"] = "".into();
            let arguments = item["arguments"].as_str().unwrap_or_default();
            let mut events = deltas("response.function_call_arguments.delta", id, arguments);
            events
                .push(json!({"type": "response.function_call_arguments.done", "item_id": id, "arguments": arguments}));
            events
        }
        _ => {
            begun["content"] = json!([]);
            let piece = &item["content"][0];
            match piece["refusal"].as_str() {
                Some(refusal) => deltas("response.refusal.delta", id, refusal),
                None => deltas("response.output_text.delta", id, piece["text"].as_str().unwrap_or_default()),
            }
        }
    };
    let mut events = vec![json!({"type": "response.output_item.added", "item": begun})];
    events.extend(deltas);
    events.push(json!({"type": "response.output_item.done", "item": item}));
    events
}

/// Splits `text` into two deltas.
fn deltas(kind: &str, id: &Value, text: &str) -> Vec<Value> {
    let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (head, tail) = text.split_at(middle);
    [head, tail]
        .iter()
        .filter(|delta| !delta.is_empty())
        .map(|delta| json!({"type": kind, "item_id": id, "content_index": 0, "delta": delta}))
        .collect()
}

/// Checks a request; the error is a code and a message.
fn check(path: &str, body: &Value, issued: &[Value]) -> Result<(), (&'static str, String)> {
    let invalid = |message: &str| Err(("invalid_value", message.to_owned()));
    if path != "/v1/responses" {
        return invalid("unknown path");
    }
    let reasons = body["model"].as_str().is_some_and(|name| !name.starts_with("gpt-4"));
    if reasons && body.get("temperature").is_some() {
        return invalid("Unsupported parameter: 'temperature' is not supported with this model.");
    }
    if !reasons && (body.get("include").is_some() || body.get("reasoning").is_some()) {
        return invalid("Encrypted content is not supported with this model.");
    }
    if body["max_output_tokens"].as_u64().is_some_and(|limit| limit < 16) {
        return invalid("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.");
    }
    let known =
        ["model", "stream", "store", "max_output_tokens", "prompt_cache_key", "include", "reasoning", "temperature"];
    let more = ["tools", "tool_choice", "instructions", "input"];
    let is_unknown = |key: &&String| !known.contains(&key.as_str()) && !more.contains(&key.as_str());
    if let Some(key) = body.as_object().and_then(|object| object.keys().find(is_unknown)) {
        return invalid(&format!("Unknown parameter: '{key}'."));
    }
    let items = body["input"].as_array().map_or(&[][..], Vec::as_slice);
    let is_call = |item: &Value, id: &Value| item["type"] == "function_call" && item["call_id"] == *id;
    let is_output = |item: &Value, id: &Value| item["type"] == "function_call_output" && item["call_id"] == *id;
    for (at, item) in items.iter().enumerate() {
        let id = &item["call_id"];
        match item["type"].as_str() {
            Some("function_call") if items[at..].iter().filter(|other| is_output(other, id)).count() != 1 => {
                return invalid(&format!("No tool output found for function call {id}."));
            }
            Some("function_call_output") if items[..at].iter().filter(|other| is_call(other, id)).count() != 1 => {
                return invalid(&format!("No tool call found for function call output with call_id {id}."));
            }
            Some("reasoning") => check_reasoning(item, items.get(at + 1), issued)?,
            Some("message" | "function_call" | "function_call_output") => (),
            _ => return invalid(&format!("Invalid value: 'input[{at}]'.")),
        }
    }
    Ok(())
}

fn check_reasoning(item: &Value, next: Option<&Value>, issued: &[Value]) -> Result<(), (&'static str, String)> {
    let id = &item["id"];
    if item.get("status").is_some() {
        return Err(("unknown_parameter", "Unknown parameter: 'input[1].status'.".to_owned()));
    }
    let is_same =
        |known: &Value| ["id", "summary", "encrypted_content"].iter().all(|key| known.get(key) == item.get(key));
    if !issued.iter().any(is_same) {
        return Err((
            "invalid_encrypted_content",
            format!("The encrypted content for item {id} could not be verified."),
        ));
    }
    let is_output = |next: &Value| match next["type"].as_str() {
        Some("message") => next["role"] == "assistant",
        other => matches!(other, Some("function_call" | "reasoning")),
    };
    if !next.is_some_and(is_output) {
        return Err((
            "invalid_value",
            format!("Item {id} of type 'reasoning' was provided without its required following item."),
        ));
    }
    Ok(())
}
