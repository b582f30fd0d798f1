//! Recorded exchanges with real providers, served again over HTTP: words, calls, thoughts, figures and errors must come
//! out as they were recorded. The oracle folds the recording by itself, in the plainest way.
#![allow(missing_docs, clippy::print_stdout)]

mod support;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use homing_core::{
    bound::input_bound,
    message::{Args, Entry, Message, Part, Reply, Stop},
    model::{Model, ModelError},
};
use homing_fake::{Answer, FakeProvider};
use serde::Deserialize;
use serde_json::Value;
use support::*;

#[derive(Deserialize)]
struct Exchange {
    when: When,
    then: Then,
}

#[derive(Deserialize)]
struct When {
    path: String,
    body: Option<String>,
}

#[derive(Deserialize)]
struct Then {
    status: u16,
    #[serde(default)]
    header: Vec<Header>,
    body: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

/// What the recording says, or what we made of it; only as much as both must agree on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    text: String,
    thinking: String,
    calls: Vec<(String, Value)>,
    input: u64,
    output: u64,
    stop: String,
}

fn cassettes() -> Option<Vec<(PathBuf, Vec<Exchange>)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cassettes");
    if !root.is_dir() {
        println!("skipped: there are no recordings at {}", root.display());
        return None;
    }
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    Some(files.into_iter().filter_map(|path| read(&path).map(|exchanges| (path, exchanges))).collect())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|it| it == "yaml") {
            files.push(path);
        }
    }
}

fn read(path: &Path) -> Option<Vec<Exchange>> {
    let text = std::fs::read_to_string(path).ok()?;
    match serde_saphyr::from_multiple(&text) {
        Ok(exchanges) => Some(exchanges),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// The wire and the base address of a path, where the wire is ours.
fn wire(path: &str) -> Option<(&'static str, &str)> {
    let path = path.split('?').next().unwrap_or_default();
    path.strip_suffix("/chat/completions")
        .map(|base| ("chat", base))
        .or_else(|| path.strip_suffix("/v1/messages").map(|base| ("anthropic", base)))
}

fn answer(then: &Then) -> Answer {
    let kept = then
        .header
        .iter()
        .filter(|it| !["content-length", "transfer-encoding", "content-encoding"].contains(&it.name.as_str()));
    let headers: Vec<(&str, &str)> = kept.map(|it| (it.name.as_str(), it.value.as_str())).collect();
    Answer::response(then.status, &headers, then.body.as_deref().unwrap_or_default())
}

fn ours(reply: &Reply) -> Summary {
    let thinking = reply.parts.iter().filter_map(|part| match part {
        Part::Thinking { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let args = |args: &Args| match args {
        Args::Json(value) => value.clone(),
        Args::Malformed(text) => Value::String(format!("malformed {text}")),
    };
    Summary {
        text: reply.text(),
        thinking: thinking.collect(),
        calls: reply.calls().map(|call| (call.name.clone(), args(&call.args))).collect(),
        input: reply.usage.input,
        output: reply.usage.output,
        stop: format!("{:?}", reply.stop),
    }
}

/// The data of the events of a body, or the body itself where it is no stream.
fn events(body: &str) -> Vec<Value> {
    if body.trim_start().starts_with('{') {
        return vec![serde_json::from_str(body).expect("recorded JSON")];
    }
    body.lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .filter_map(|it| serde_json::from_str(it.trim()).ok())
        .collect()
}

fn recorded_chat(body: &str) -> Summary {
    let mut summary = Summary::default();
    let mut calls: Vec<(String, String)> = Vec::new();
    let mut reason = String::new();
    for event in events(body) {
        if let Some(usage) = event.get("usage").filter(|it| it.is_object()) {
            summary.input = usage["prompt_tokens"].as_u64().unwrap_or(0);
            summary.output = usage["completion_tokens"].as_u64().unwrap_or(0);
        }
        let choice = &event["choices"][0];
        let delta = choice.get("delta").or_else(|| choice.get("message")).cloned().unwrap_or_default();
        let thought = ["reasoning_content", "reasoning"].iter().find_map(|key| delta[*key].as_str());
        summary.thinking.push_str(thought.unwrap_or_default());
        match &delta["content"] {
            Value::String(text) => summary.text.push_str(text),
            Value::Array(pieces) => {
                for piece in pieces {
                    summary.text.push_str(piece["text"].as_str().unwrap_or_default());
                    summary.thinking.push_str(piece["thinking"][0]["text"].as_str().unwrap_or_default());
                }
            }
            _ => (),
        }
        summary.text.push_str(delta["refusal"].as_str().unwrap_or_default());
        for (at, call) in delta["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let index = call["index"].as_u64().map_or(at, |it| it as usize);
            if calls.len() <= index {
                calls.resize(index + 1, Default::default());
            }
            calls[index].0.push_str(call["function"]["name"].as_str().unwrap_or_default());
            calls[index].1.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
        if let Some(word) = choice["finish_reason"].as_str() {
            reason = word.to_owned();
        }
    }
    summary.stop = stop(&reason);
    summary.calls = finished(calls, &summary.stop);
    if summary.stop == "Calls" && summary.calls.is_empty() {
        summary.stop = "End".into();
    }
    summary
}

fn recorded_message(body: &str) -> Summary {
    let mut summary = Summary::default();
    let mut calls: Vec<(String, String)> = Vec::new();
    let mut kinds: BTreeMap<u64, String> = BTreeMap::new();
    let mut reason = String::new();
    let usage = |figures: &Value, summary: &mut Summary| {
        let input = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
        if figures["input_tokens"].is_u64() {
            summary.input = input.iter().filter_map(|key| figures[*key].as_u64()).sum();
        }
        summary.output = figures["output_tokens"].as_u64().unwrap_or(summary.output);
    };
    for event in events(body) {
        let index = event["index"].as_u64().unwrap_or(0);
        let delta = &event["delta"];
        let blocks = match event["type"].as_str().unwrap_or_default() {
            "message" => event["content"].as_array().cloned().unwrap_or_default(),
            "content_block_start" => vec![event["content_block"].clone()],
            _ => vec![],
        };
        for block in blocks {
            let kind = block["type"].as_str().unwrap_or_default().to_owned();
            summary.text.push_str(block["text"].as_str().unwrap_or_default());
            summary.thinking.push_str(block["thinking"].as_str().unwrap_or_default());
            if kind == "tool_use" {
                let input = block["input"].as_object().filter(|it| !it.is_empty());
                let args = input.map(|it| Value::Object(it.clone()).to_string()).unwrap_or_default();
                calls.push((block["name"].as_str().unwrap_or_default().to_owned(), args));
            }
            kinds.insert(index, kind);
        }
        summary.text.push_str(delta["text"].as_str().unwrap_or_default());
        summary.thinking.push_str(delta["thinking"].as_str().unwrap_or_default());
        if let (Some(more), Some("tool_use")) = (delta["partial_json"].as_str(), kinds.get(&index).map(String::as_str))
        {
            calls.last_mut().unwrap().1.push_str(more);
        }
        usage(&event["message"]["usage"], &mut summary);
        usage(&event["usage"], &mut summary);
        let word = delta["stop_reason"].as_str().or_else(|| event["stop_reason"].as_str());
        reason = word.map_or(reason, str::to_owned);
    }
    summary.stop = stop(&reason);
    summary.calls = finished(calls, &summary.stop);
    summary
}

fn stop(reason: &str) -> String {
    match reason {
        "stop" | "end_turn" | "stop_sequence" => "End".into(),
        "tool_calls" | "tool_use" => "Calls".into(),
        "length" | "max_tokens" => "Length".into(),
        "refusal" => "Refusal".into(),
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

/// What a failing recording must become.
fn is_right_error(status: u16, body: &str, error: &ModelError) -> bool {
    match status {
        400 if body.contains("context") => matches!(error, ModelError::ContextFull { .. }),
        401 | 403 => matches!(error, ModelError::Unauthorized { .. } | ModelError::Refused { .. }),
        400 if body.contains("tool_use_failed") => matches!(error, ModelError::Broken { .. }),
        _ => matches!(error, ModelError::Unusable { .. }),
    }
}

/// A server that gives one answer after the other, and the models that point at it: connections are set up once.
struct Player {
    next: Arc<Mutex<Answer>>,
    server: FakeProvider,
    models: BTreeMap<(String, String), Arc<dyn Model>>,
}

impl Player {
    async fn start() -> Self {
        let next = Arc::new(Mutex::new(Answer::json(500, "")));
        let shared = next.clone();
        let server = FakeProvider::start(move |_, _| shared.lock().unwrap().clone()).await;
        Self { next, server, models: BTreeMap::new() }
    }

    /// A model that will get `answer`.
    fn play(&mut self, wire: &str, base: &str, answer: Answer) -> Arc<dyn Model> {
        *self.next.lock().unwrap() = answer;
        let url = format!("{}{base}", self.server.url());
        let (provider, name) = if wire == "genai" { ("openai-responses", "gpt-5") } else { ("fake", "m") };
        let made = self.models.entry((wire.to_owned(), base.to_owned()));
        made.or_insert_with(|| model_named(&url, wire, provider, name, patient())).clone()
    }
}

#[derive(Debug, Default)]
#[allow(dead_code, reason = "the figures are printed")]
struct Totals {
    replies: usize,
    errors: usize,
    calls: usize,
    with_thinking: usize,
    cut_short: usize,
    foreign: usize,
}

#[tokio::test]
async fn recorded_exchanges_come_out_as_they_were_recorded() {
    let Some(cassettes) = cassettes() else { return };
    let mut totals = Totals::default();
    let mut player = Player::start().await;
    for (path, exchanges) in cassettes {
        for (at, exchange) in exchanges.iter().enumerate() {
            let Some((wire, base)) = wire(&exchange.when.path) else {
                totals.foreign += 1;
                continue;
            };
            let place = format!("{} #{at}", path.display());
            let body = exchange.then.body.clone().unwrap_or_default();
            let result = ask(&*player.play(wire, base, answer(&exchange.then))).await.result;
            match result {
                Ok(reply) => {
                    assert!((200..300).contains(&exchange.then.status), "{place}");
                    let expected = if wire == "chat" { recorded_chat(&body) } else { recorded_message(&body) };
                    compare(&place, &reply, expected);
                    totals.replies += 1;
                    totals.calls += reply.calls().count();
                    totals.with_thinking +=
                        usize::from(reply.parts.iter().any(|it| matches!(it, Part::Thinking { .. })));
                    totals.cut_short += usize::from(reply.stop == Stop::Length);
                    survives_the_journal(&place, &reply);
                }
                Err(failure) => {
                    let status = exchange.then.status;
                    assert!(status >= 400 || body.contains("content_filter"), "{place}: {failure:?}");
                    assert!(is_right_error(status, &body, &failure.error), "{place}: {failure:?} {body}");
                    totals.errors += 1;
                }
            }
        }
    }
    println!("{totals:?}");
    assert!(totals.replies >= 100, "{totals:?}");
}

fn compare(place: &str, reply: &Reply, mut expected: Summary) {
    let mut ours = ours(reply);
    // A refusal in words ends with an ordinary reason.
    if ours.stop == "Refusal" && expected.stop == "End" {
        expected.stop = "Refusal".into();
    }
    // Reasoning beside the output is added to it, and a provider that says nothing is flagged.
    if reply.usage.reasoning > 0 && ours.output == expected.output + reply.usage.reasoning {
        ours.output = expected.output;
    }
    assert_eq!(ours, expected, "{place}");
}

fn survives_the_journal(place: &str, reply: &Reply) {
    let text = serde_json::to_string(reply).unwrap();
    assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), *reply, "{place}");
}

/// How far the bound on input tokens is from what providers counted, over every recorded first ask.
#[test]
fn the_bound_on_input_tokens_holds_over_all_recordings() {
    let Some(cassettes) = cassettes() else { return };
    let (mut count, mut below, mut ratios) = (0, Vec::new(), Vec::new());
    for (path, exchanges) in cassettes {
        for exchange in &exchanges {
            let Some((wire, _)) = wire(&exchange.when.path).filter(|_| exchange.then.status == 200) else { continue };
            let Some(sent) = exchange.when.body.as_deref().and_then(|it| serde_json::from_str::<Value>(it).ok()) else {
                continue;
            };
            let body = exchange.then.body.clone().unwrap_or_default();
            let counted = if wire == "chat" { recorded_chat(&body).input } else { recorded_message(&body).input };
            // Pictures and the provider's own searches are counted by other rules.
            if counted == 0 || sent.to_string().contains("base64") || sent["tools"].to_string().contains("web_search") {
                continue;
            }
            let bound = bound_of(&sent);
            count += 1;
            ratios.push(bound as f64 / counted as f64);
            if bound < counted {
                below.push(format!("{}: {bound} < {counted}", path.display()));
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!(
        "{count} asks: bound / counted from {:.2} to {:.2}, median {median:.2}; below: {below:?}",
        ratios[0],
        ratios[count - 1]
    );
    assert!(below.is_empty(), "{below:?}");
}

fn bound_of(sent: &Value) -> u64 {
    let tools = sent.get("tools").map_or(0, |it| it.to_string().len() as u64);
    let system = sent.get("system").map(Value::to_string).unwrap_or_default();
    let entries: Vec<Arc<Entry>> =
        sent["messages"].as_array().into_iter().flatten().map(|it| Entry::new(Message::user(it.to_string()))).collect();
    input_bound(&system, tools, &entries, None)
}

/// Recorded streams of wires that are not ours, through the library that speaks them: words must come out as recorded.
#[tokio::test]
async fn recorded_streams_of_foreign_wires_come_out_too() {
    let Some(cassettes) = cassettes() else { return };
    let (mut count, mut wrong) = (0, Vec::new());
    let mut player = Player::start().await;
    for (path, exchanges) in cassettes {
        for exchange in exchanges.iter().filter(|it| it.then.status == 200 && it.when.path.ends_with("/responses")) {
            let body = exchange.then.body.clone().unwrap_or_default();
            if !body.contains("response.completed") {
                continue;
            }
            let model = player.play("genai", "/v1", answer(&exchange.then));
            let expected: String = events(&body)
                .iter()
                .filter(|it| it["type"] == "response.output_text.delta")
                .filter_map(|it| it["delta"].as_str().map(str::to_owned))
                .collect();
            let calls = events(&body)
                .iter()
                .filter(|it| it["type"] == "response.output_item.done" && it["item"]["type"] == "function_call")
                .count();
            count += 1;
            match ask(&*model).await.result {
                Ok(reply) if reply.text() == expected && reply.calls().count() == calls => (),
                other => wrong.push(format!("{}: {other:?}", path.display())),
            }
        }
    }
    println!("{count} recorded streams of the responses wire, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
