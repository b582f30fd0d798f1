//! The response objects and events of OpenAI's responses protocol.

use bytes::Bytes;
use homing::{Envelope, Event, Status, uuid::Uuid};
use serde_json::{Value, json};

use crate::{
    agent_call::{Translator, answer, failure},
    openai::written,
};

/// Translates a run into a response.
pub(crate) struct ResponseTranslator {
    run: Uuid,
    model: String,
    created: u64,
    has_schema: bool,
    /// Number of the next event.
    number: u64,
}

impl ResponseTranslator {
    pub(crate) fn new(run: Uuid, model: String, created: u64, has_schema: bool) -> Self {
        Self { run, model, created, has_schema, number: 0 }
    }

    /// Returns the whole response.
    pub(crate) fn whole(&self, envelope: &Envelope) -> Value {
        let failed = failure(envelope);
        let status = match (&failed, envelope.status) {
            (Some(_), _) => "failed",
            (None, Status::Done) => "completed",
            (None, _) => "incomplete",
        };
        let mut response = self.response(status);
        response["error"] = failed.as_ref().map_or(Value::Null, |why| json!({"code": "server_error", "message": why}));
        if status == "incomplete" {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        if failed.is_none() {
            response["output"] = json!([self.message("completed", &[self.part(envelope)])]);
        }
        let used = &envelope.subtree;
        response["usage"] = json!({
            "input_tokens": used.input,
            "input_tokens_details": {"cached_tokens": used.cached},
            "output_tokens": used.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used.input + used.output,
        });
        response
    }

    fn response(&self, status: &str) -> Value {
        json!({
            "id": format!("resp_{}", self.run), "object": "response", "created_at": self.created, "status": status,
            "error": null, "incomplete_details": null, "instructions": null, "metadata": {}, "model": self.model,
            "output": [], "parallel_tool_calls": true, "previous_response_id": null, "temperature": 1.0,
            "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "truncation": "disabled", "usage": null,
        })
    }

    fn message_id(&self) -> String {
        format!("msg_{}", self.run)
    }

    fn message(&self, status: &str, content: &[Value]) -> Value {
        json!({"type": "message", "id": self.message_id(), "status": status, "role": "assistant", "content": content})
    }

    fn part(&self, envelope: &Envelope) -> Value {
        json!({"type": "output_text", "text": answer(envelope, self.has_schema), "annotations": [], "logprobs": []})
    }

    fn frame(&mut self, kind: &str, mut fields: Value) -> Bytes {
        fields["type"] = json!(kind);
        fields["sequence_number"] = json!(self.number);
        self.number += 1;
        Bytes::from(format!("event: {kind}\ndata: {fields}\n\n"))
    }

    /// Returns the event about the only part of the only message.
    fn part_frame(&mut self, kind: &str, field: &str, value: &Value) -> Bytes {
        let mut fields = json!({"item_id": self.message_id(), "output_index": 0, "content_index": 0, "logprobs": []});
        fields[field] = value.clone();
        self.frame(kind, fields)
    }
}

impl Translator for ResponseTranslator {
    fn begin(&mut self) -> Vec<Bytes> {
        let response = json!({"response": self.response("in_progress")});
        vec![self.frame("response.created", response.clone()), self.frame("response.in_progress", response)]
    }

    fn event(&mut self, event: &Event) -> Vec<Bytes> {
        let Some(text) = written(event, self.run).map(str::to_owned) else { return Vec::new() };
        let id = format!("rs_{}", self.run);
        let fields = json!({"item_id": id, "output_index": 0, "content_index": 0, "delta": text});
        vec![self.frame("response.reasoning_text.delta", fields)]
    }

    fn end(&mut self, envelope: &Envelope) -> Vec<Bytes> {
        let response = self.whole(envelope);
        let kind = format!("response.{}", response["status"].as_str().unwrap_or("completed"));
        let mut frames = Vec::new();
        if response["status"] != "failed" {
            let part = self.part(envelope);
            let text = part["text"].clone();
            let empty = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
            let item = |message: Value| json!({"output_index": 0, "item": message});
            frames = vec![
                self.frame("response.output_item.added", item(self.message("in_progress", &[]))),
                self.part_frame("response.content_part.added", "part", &empty),
                self.part_frame("response.output_text.delta", "delta", &text),
                self.part_frame("response.output_text.done", "text", &text),
                self.part_frame("response.content_part.done", "part", &part),
                self.frame("response.output_item.done", item(self.message("completed", &[part]))),
            ];
        }
        frames.push(self.frame(&kind, json!({"response": response})));
        frames
    }
}
