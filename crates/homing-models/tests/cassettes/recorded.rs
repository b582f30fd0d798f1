//! Reads the expected reply from a recording, independently of the code under test.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::folder::{Speech, events};

/// The parts of a reply in which recording and replay must agree.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub text: String,
    pub thinking: String,
    pub calls: Vec<(String, Value)>,
    pub input: u64,
    pub output: u64,
    pub stop: String,
}

/// The expected result of a replay.
#[derive(Debug)]
pub enum Recorded {
    Reply(Summary),
    /// An error of the provider, in a body with a success status.
    Error,
    /// The recording ends before the reply does.
    Cut,
}

#[derive(Default)]
struct RecordingFold {
    summary: Summary,
    calls: BTreeMap<u64, (String, String)>,
    reason: String,
    has_ended: bool,
    has_error: bool,
    has_refused: bool,
}

pub fn recorded(speech: Speech, body: &str) -> Recorded {
    let mut fold = RecordingFold::default();
    for event in events(body) {
        if event.get("error").is_some_and(|it| !it.is_null()) || event["type"] == "error" {
            fold.has_error = true;
        }
        match speech {
            Speech::Chat => fold.chat(&event),
            Speech::Messages => fold.message(&event),
            Speech::Responses => fold.response(&event),
            Speech::Gemini => fold.gemini(&event),
            Speech::Interactions => fold.interaction(&event),
            Speech::Ollama => fold.ollama(&event),
        }
    }
    // Text is complete if the server sends the end mark.
    let said_all = body.contains("[DONE]") && speech == Speech::Chat && fold.calls.is_empty();
    fold.has_ended |= said_all && !fold.summary.text.is_empty();
    fold.end()
}

impl RecordingFold {
    fn end(mut self) -> Recorded {
        if self.has_error {
            return Recorded::Error;
        }
        if !self.has_ended {
            return Recorded::Cut;
        }
        self.summary.stop = stop(&self.reason);
        if self.summary.stop == "Filter" {
            return Recorded::Error;
        }
        self.summary.calls = finished(self.calls.into_values().collect(), &self.summary.stop);
        self.summary.stop = match (self.summary.stop.as_str(), self.summary.calls.is_empty()) {
            _ if self.has_refused => "Refusal".into(),
            ("End", false) => "Calls".into(),
            ("Calls", true) => "End".into(),
            (stop, _) => stop.to_owned(),
        };
        Recorded::Reply(self.summary)
    }

    fn call(&mut self, index: u64, name: &str, args: &str) {
        let call = self.calls.entry(index).or_default();
        call.0.push_str(name);
        call.1.push_str(args);
    }

    fn add_call(&mut self, name: &Value, args: &Value) {
        let args = args.as_str().map_or_else(|| args.to_string(), str::to_owned);
        self.call(self.calls.len() as u64, word(name), if args == "null" { "" } else { &args });
    }

    fn figures(&mut self, input: Option<u64>, output: Option<u64>) {
        if let (Some(input), Some(output)) = (input, output) {
            (self.summary.input, self.summary.output) = (input, output);
        }
    }

    fn chat(&mut self, event: &Value) {
        let usage = event.get("usage").filter(|it| it.is_object()).or_else(|| event["x_groq"].get("usage"));
        if let Some(usage) = usage {
            self.figures(usage["prompt_tokens"].as_u64(), usage["completion_tokens"].as_u64());
        }
        let is_first = |choice: &&Value| choice["index"].as_u64().unwrap_or(0) == 0;
        let choice = list(&event["choices"]).iter().find(is_first).unwrap_or(&Value::Null);
        let is_whole = event["object"] == "chat.completion";
        let delta = if is_whole { &choice["message"] } else { &choice["delta"] };
        let thought = ["reasoning_content", "reasoning"].iter().find_map(|key| delta[*key].as_str());
        self.summary.thinking.push_str(thought.unwrap_or_default());
        match &delta["content"] {
            Value::String(text) => self.summary.text.push_str(text),
            Value::Array(pieces) => {
                for piece in pieces {
                    self.summary.text.push_str(word(&piece["text"]));
                    self.summary.thinking.push_str(word(&piece["thinking"][0]["text"]));
                }
            }
            _ => (),
        }
        self.has_refused |= !word(&delta["refusal"]).is_empty();
        self.summary.text.push_str(word(&delta["refusal"]));
        for (at, call) in list(&delta["tool_calls"]).iter().enumerate() {
            let index = call["index"].as_u64().unwrap_or(at as u64);
            self.call(index, word(&call["function"]["name"]), word(&call["function"]["arguments"]));
        }
        if delta["function_call"].is_object() {
            let call = &delta["function_call"];
            self.call(0, word(&call["name"]), word(&call["arguments"]));
        }
        self.finish(word(&choice["finish_reason"]));
    }

    fn finish(&mut self, reason: &str) {
        if !["", "in_progress", "queued"].contains(&reason) {
            self.reason = reason.to_owned();
            self.has_ended = true;
        }
    }

    fn message(&mut self, event: &Value) {
        let (index, delta) = (event["index"].as_u64().unwrap_or(0), &event["delta"]);
        match word(&event["type"]) {
            "message" => {
                for (at, block) in list(&event["content"]).iter().enumerate() {
                    self.block(at as u64, block);
                }
                self.message_usage(&event["usage"]);
                self.finish(event["stop_reason"].as_str().unwrap_or("end_turn"));
            }
            "message_start" => self.message_usage(&event["message"]["usage"]),
            "content_block_start" => self.block(index, &event["content_block"]),
            "content_block_delta" => {
                self.summary.text.push_str(word(&delta["text"]));
                self.summary.thinking.push_str(word(&delta["thinking"]));
                if let Some(call) = self.calls.get_mut(&index) {
                    call.1.push_str(word(&delta["partial_json"]));
                }
            }
            "message_delta" => {
                self.message_usage(&event["usage"]);
                self.reason = delta["stop_reason"].as_str().unwrap_or(&self.reason).to_owned();
            }
            "message_stop" => self.has_ended = true,
            _ => (),
        }
    }

    fn block(&mut self, index: u64, block: &Value) {
        match word(&block["type"]) {
            "text" => self.summary.text.push_str(word(&block["text"])),
            "thinking" => self.summary.thinking.push_str(word(&block["thinking"])),
            "tool_use" => {
                let input = block["input"].as_object().filter(|it| !it.is_empty());
                let args = input.map(|input| Value::Object(input.clone()).to_string()).unwrap_or_default();
                self.call(index, word(&block["name"]), &args);
            }
            _ => (),
        }
    }

    fn message_usage(&mut self, figures: &Value) {
        let input = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
        if figures["input_tokens"].is_u64() {
            self.summary.input = input.iter().filter_map(|key| figures[*key].as_u64()).sum();
        }
        self.summary.output = figures["output_tokens"].as_u64().unwrap_or(self.summary.output);
    }

    fn response(&mut self, event: &Value) {
        let kind = word(&event["type"]);
        let (index, item) = (event["output_index"].as_u64().unwrap_or(0), &event["item"]);
        match kind {
            "response.output_text.delta" => self.summary.text.push_str(word(&event["delta"])),
            "response.refusal.delta" => {
                self.has_refused = true;
                self.summary.text.push_str(word(&event["delta"]));
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                self.summary.thinking.push_str(word(&event["delta"]));
            }
            "response.output_item.added" if is_call(item) => self.call(index, word(&item["name"]), ""),
            "response.function_call_arguments.delta" => self.call(index, "", word(&event["delta"])),
            "response.output_item.done" if is_call(item) => {
                let args = word(item.get("arguments").unwrap_or(&item["input"])).to_owned();
                self.calls.insert(index, (word(&item["name"]).to_owned(), args));
            }
            "response.failed" => self.has_error = true,
            "response.completed" | "response.incomplete" => self.response_end(&event["response"]),
            "" if event["object"] == "response" => {
                list(&event["output"]).iter().for_each(|item| self.response_item(item));
                self.response_end(event);
            }
            _ => (),
        }
    }

    fn response_item(&mut self, item: &Value) {
        match word(&item["type"]) {
            "message" => {
                for piece in list(&item["content"]) {
                    self.has_refused |= !word(&piece["refusal"]).is_empty();
                    self.summary.text.push_str(word(&piece["text"]));
                    self.summary.text.push_str(word(&piece["refusal"]));
                }
            }
            "reasoning" => {
                for piece in list(&item["summary"]).iter().chain(list(&item["content"])) {
                    self.summary.thinking.push_str(word(&piece["text"]));
                }
            }
            _ if is_call(item) => self.add_call(&item["name"], item.get("arguments").unwrap_or(&item["input"])),
            _ => (),
        }
    }

    fn response_end(&mut self, response: &Value) {
        let usage = &response["usage"];
        self.figures(usage["input_tokens"].as_u64(), usage["output_tokens"].as_u64());
        let cut = word(&response["incomplete_details"]["reason"]);
        self.finish(if cut.is_empty() { word(&response["status"]) } else { cut });
    }

    fn gemini(&mut self, event: &Value) {
        let usage = &event["usageMetadata"];
        let sum = |keys: [&str; 2]| keys.iter().filter_map(|key| usage[*key].as_u64()).reduce(|a, b| a + b);
        self.figures(
            sum(["promptTokenCount", "toolUsePromptTokenCount"]),
            sum(["candidatesTokenCount", "thoughtsTokenCount"]),
        );
        self.has_error |= event["promptFeedback"]["blockReason"].is_string();
        let candidate = &event["candidates"][0];
        for part in list(&candidate["content"]["parts"]) {
            let text = word(&part["text"]);
            match part["thought"].as_bool() {
                Some(true) => self.summary.thinking.push_str(text),
                Some(false) | None => self.summary.text.push_str(text),
            }
            if part["functionCall"].is_object() {
                self.add_call(&part["functionCall"]["name"], &part["functionCall"]["args"]);
            }
        }
        self.finish(word(&candidate["finishReason"]));
    }

    fn interaction(&mut self, event: &Value) {
        let (index, step, delta) = (event["index"].as_u64().unwrap_or(0), &event["step"], &event["delta"]);
        match word(&event["event_type"]) {
            "step.start" if step["type"] == "function_call" => self.call(index, word(&step["name"]), ""),
            "step.delta" => match word(&delta["type"]) {
                "text" => self.summary.text.push_str(word(&delta["text"])),
                "thought_summary" => self.summary.thinking.push_str(word(&delta["content"]["text"])),
                "arguments_delta" => self.call(index, "", word(&delta["arguments"])),
                _ => (),
            },
            "interaction.completed" => self.interaction_end(&event["interaction"]),
            "" => {
                for step in list(&event["steps"]) {
                    let words = |key: &str| list(&step[key]).iter().map(|part| word(&part["text"])).collect::<String>();
                    match word(&step["type"]) {
                        "model_output" => self.summary.text.push_str(&words("content")),
                        "thought" => self.summary.thinking.push_str(&words("summary")),
                        "function_call" => self.add_call(&step["name"], &step["arguments"]),
                        _ => (),
                    }
                }
                self.interaction_end(event);
            }
            _ => (),
        }
    }

    fn interaction_end(&mut self, interaction: &Value) {
        let usage = &interaction["usage"];
        let sum = |keys: [&str; 2]| keys.iter().filter_map(|key| usage[*key].as_u64()).reduce(|a, b| a + b);
        let input = sum(["total_input_tokens", "total_tool_use_tokens"]);
        self.figures(input, sum(["total_output_tokens", "total_thought_tokens"]));
        self.finish(word(&interaction["status"]));
    }

    fn ollama(&mut self, event: &Value) {
        let message = &event["message"];
        self.summary.text.push_str(word(&message["content"]));
        self.summary.thinking.push_str(word(&message["thinking"]));
        for call in list(&message["tool_calls"]) {
            self.add_call(&call["function"]["name"], &call["function"]["arguments"]);
        }
        if event["done"] == true {
            self.figures(event["prompt_eval_count"].as_u64(), event["eval_count"].as_u64());
            self.finish(event["done_reason"].as_str().unwrap_or("stop"));
        }
    }
}

fn is_call(item: &Value) -> bool {
    item["type"] == "function_call" || item["type"] == "custom_tool_call"
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn stop(reason: &str) -> String {
    match reason {
        "" | "stop" | "end_turn" | "stop_sequence" | "completed" | "STOP" => "End".into(),
        "tool_calls" | "tool_use" | "function_call" | "requires_action" => "Calls".into(),
        "length" | "max_tokens" | "model_length" | "max_output_tokens" | "incomplete" | "MAX_TOKENS" => "Length".into(),
        "refusal" => "Refusal".into(),
        "content_filter" | "SAFETY" | "RECITATION" | "PROHIBITED_CONTENT" | "BLOCKLIST" | "SPII" => "Filter".into(),
        other => format!("Other({other:?})"),
    }
}

fn finished(calls: Vec<(String, String)>, stop: &str) -> Vec<(String, Value)> {
    let last = calls.len();
    let read =
        calls.into_iter().enumerate().filter_map(|(at, (name, args))| match serde_json::from_str::<Value>(&args) {
            Ok(Value::Null) => Some((name, Value::Object(Default::default()))),
            Ok(value) => Some((name, value)),
            Err(_) if stop == "Length" && at + 1 == last => None,
            Err(_) if args.is_empty() => Some((name, Value::Object(Default::default()))),
            Err(_) => Some((name, Value::String(format!("malformed {args}")))),
        });
    read.collect()
}
