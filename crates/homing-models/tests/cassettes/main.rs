//! Replays recorded exchanges with real providers over HTTP: text, calls, reasoning, usage and errors must match the
//! recording. Exchanges that cannot be replayed are counted, with the reason.
#![cfg(feature = "genai")]
#![allow(missing_docs, clippy::print_stdout, unreachable_pub)]

mod folder;
mod recorded;
#[path = "../it/support/mod.rs"]
mod support;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use folder::{RecordedExchange, RecordedResponse, Shape, Speech, exchanges, shape, speech};
use homing_core::{
    message::{Args, Message, Part, Reply, TranscriptEntry},
    model::{AskFailure, Model, ModelError},
    token_estimate::input_bound,
};
use homing_testing::{FakeProvider, FakeResponse};
use recorded::{Recorded, Summary, recorded};
use serde_json::Value;
use support::*;

fn answer(then: &RecordedResponse) -> FakeResponse {
    let body = then.body.as_deref().unwrap_or_default();
    let unpacked = ["content-length", "transfer-encoding", "content-encoding", "connection"];
    let kept = then.header.iter().filter(|header| !unpacked.contains(&header.name.to_lowercase().as_str()));
    let mut headers: Vec<(&str, &str)> = kept.map(|header| (header.name.as_str(), header.value.as_str())).collect();
    // Some recorders omit the content type, which every real response has.
    headers.retain(|(name, value)| !name.eq_ignore_ascii_case("content-type") || value.contains('/'));
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        let is_whole = shape(body) == Shape::Whole;
        headers.push(("content-type", if is_whole { "application/json" } else { "text/event-stream" }));
    }
    FakeResponse::response(then.status, &headers, body)
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

/// A server that replays one response after the other, and the models that use it.
struct ReplayServer {
    next: Arc<Mutex<FakeResponse>>,
    server: FakeProvider,
    models: BTreeMap<(Speech, Shape, String), Arc<dyn Model>>,
}

impl ReplayServer {
    async fn start() -> Self {
        let next = Arc::new(Mutex::new(FakeResponse::json(500, "")));
        let shared = next.clone();
        let server = FakeProvider::start(move |_, _| shared.lock().unwrap().clone()).await;
        Self { next, server, models: BTreeMap::new() }
    }

    /// A model that asks for responses of the form `asks` and receives `answer`.
    fn play(&mut self, speech: Speech, asks: Shape, base: &str, answer: FakeResponse) -> Arc<dyn Model> {
        *self.next.lock().unwrap() = answer;
        let url = format!("{}{base}", self.server.url());
        let (wire, provider, name) = match speech {
            Speech::Chat => ("chat", "fake", "m"),
            Speech::Messages => ("anthropic", "fake", "m"),
            Speech::Responses => ("responses", "fake", "gpt-5"),
            Speech::Gemini => ("genai", "gemini", "gemini-2.5-flash"),
            Speech::Interactions => ("genai", "gemini-interactions", "gemini-3-flash"),
            Speech::Ollama => ("genai", "ollama", "qwen3"),
        };
        let made = self.models.entry((speech, asks, base.to_owned()));
        made.or_insert_with(|| match asks {
            Shape::Streamed => model_named(&url, wire, provider, name, patient()),
            Shape::Whole => unstreamed_model(&url, wire, provider, name),
        })
        .clone()
    }
}

/// The forms of request that a response of this form can answer. The native wires also accept a whole response to a
/// streamed request, because some servers do not stream.
fn ways_to_ask(speech: Speech, shape: Shape, status: u16) -> Vec<Shape> {
    match (speech, shape) {
        (_, Shape::Streamed) => vec![Shape::Streamed],
        _ if status >= 400 => vec![Shape::Streamed, Shape::Whole],
        (Speech::Chat | Speech::Messages | Speech::Responses, Shape::Whole) => vec![Shape::Streamed, Shape::Whole],
        (Speech::Gemini | Speech::Interactions | Speech::Ollama, Shape::Whole) => {
            vec![Shape::Whole]
        }
    }
}

#[derive(Debug, Default)]
#[allow(dead_code, reason = "the figures are printed")]
struct ReplayTotals {
    exchanges: usize,
    replies: usize,
    errors: usize,
    cut_off: usize,
    asks: usize,
    calls: usize,
    with_thinking: usize,
    by_speech: BTreeMap<String, usize>,
    not_replayed: BTreeMap<&'static str, usize>,
}

#[tokio::test]
async fn replayed_exchanges_match_their_recordings() {
    let Some(exchanges) = exchanges() else { return };
    let (mut totals, mut wrong) = (ReplayTotals::default(), Vec::new());
    let mut server = ReplayServer::start().await;
    for (place, exchange) in &exchanges {
        totals.exchanges += 1;
        match speech(exchange) {
            Err(why) => *totals.not_replayed.entry(why).or_default() += 1,
            Ok((speech, base)) => {
                let found = replay(&mut server, exchange, speech, &base, &mut totals).await;
                wrong.extend(found.into_iter().map(|what| format!("{place} ({speech:?}): {what}")));
            }
        }
    }
    println!("{totals:#?}");
    assert!(totals.replies >= 100, "{totals:?}");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), totals.asks, wrong.join("\n\n"));
}

/// Replays one exchange with every form of request and returns the differences.
async fn replay(
    server: &mut ReplayServer,
    exchange: &RecordedExchange,
    speech: Speech,
    base: &str,
    totals: &mut ReplayTotals,
) -> Vec<String> {
    let then = &exchange.then;
    let body = then.body.as_deref().unwrap_or_default();
    let shape = shape(body);
    let expected = match then.status {
        200..300 => recorded(speech, body),
        _ => Recorded::Error,
    };
    *totals.by_speech.entry(format!("{speech:?}, {shape:?}")).or_default() += 1;
    match &expected {
        Recorded::Reply(summary) => {
            totals.replies += 1;
            totals.calls += summary.calls.len();
            totals.with_thinking += usize::from(!summary.thinking.is_empty());
        }
        Recorded::Error => totals.errors += 1,
        Recorded::Cut => totals.cut_off += 1,
    }
    let mut wrong = Vec::new();
    for asks in ways_to_ask(speech, shape, then.status) {
        let result = ask(&*server.play(speech, asks, base, answer(then))).await.result;
        totals.asks += 1;
        wrong.extend(difference(&expected, &result, then).map(|what| format!("asked {asks:?}: {what}")));
    }
    wrong
}

fn difference(expected: &Recorded, result: &Result<Reply, AskFailure>, then: &RecordedResponse) -> Option<String> {
    match (expected, result) {
        (Recorded::Reply(expected), Ok(reply)) => {
            let ours = settled(reply, expected);
            let kept: Reply = serde_json::from_str(&serde_json::to_string(reply).unwrap()).unwrap();
            let is_right = ours == *expected && kept == *reply;
            (!is_right).then(|| format!("recorded {expected:#?}\nreplayed {ours:#?}"))
        }
        (Recorded::Error, Err(failure)) => {
            let body = then.body.as_deref().unwrap_or_default();
            let is_right = is_right_error(then.status, body, &failure.error);
            (!is_right).then(|| format!("HTTP {} {body}\nbecame {failure:?}", then.status))
        }
        (Recorded::Cut, Err(failure)) => {
            (!failure.error.is_retryable()).then(|| format!("a cut response became {failure:?}"))
        }
        (Recorded::Reply(_) | Recorded::Error | Recorded::Cut, result) => {
            Some(format!("recorded {expected:#?}\nreplayed {result:?}"))
        }
    }
}

/// Our summary, with accepted differences from the recording removed.
fn settled(reply: &Reply, expected: &Summary) -> Summary {
    let mut ours = ours(reply);
    // Reasoning that is not part of the output is added to it.
    if reply.usage.reasoning > 0 && ours.output == expected.output + reply.usage.reasoning {
        ours.output = expected.output;
    }
    // Paragraphs of reasoning may be joined.
    if ours.thinking.replace('\n', "") == expected.thinking.replace('\n', "") {
        ours.thinking.clone_from(&expected.thinking);
    }
    ours
}

/// Returns true if `error` has the kind and the message of a recorded error.
fn is_right_error(status: u16, body: &str, error: &ModelError) -> bool {
    let said = body.to_lowercase();
    let too_long =
        ["maximum context", "context length", "context_length", "context window", "too long", "context size"];
    let is_kind = match status {
        400 if too_long.iter().any(|words| said.contains(words)) => matches!(error, ModelError::ContextFull { .. }),
        400 if said.contains("tool_use_failed") => matches!(error, ModelError::Broken { .. }),
        401..=403 => matches!(error, ModelError::Unauthorized { .. } | ModelError::Refused { .. }),
        429 => matches!(error, ModelError::Busy { .. } | ModelError::Unauthorized { .. }),
        408 | 409 | 500..600 => error.is_retryable(),
        400..500 => !error.is_retryable(),
        _ => true,
    };
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let inner = value.get(0).unwrap_or(&value);
    let message = inner["error"]["message"].as_str().or_else(|| inner["message"].as_str()).unwrap_or_default();
    let beginning: String = message.chars().take(80).collect();
    is_kind && error.to_string().replace(' ', "").contains(&beginning.replace(['\n', ' '], ""))
}

/// Compares the bound on input tokens with the providers' counts, for every recorded first request.
#[test]
fn input_token_bound_holds_for_all_recordings() {
    let Some(exchanges) = exchanges() else { return };
    let (mut below, mut ratios) = (Vec::new(), Vec::new());
    for (place, exchange) in &exchanges {
        let Ok((spoken @ (Speech::Chat | Speech::Messages), _)) = speech(exchange) else { continue };
        let Some(sent) = exchange.when.body.as_deref().and_then(|body| serde_json::from_str::<Value>(body).ok()) else {
            continue;
        };
        let body = exchange.then.body.as_deref().unwrap_or_default();
        let Recorded::Reply(Summary { input: counted @ 1.., .. }) = recorded(spoken, body) else { continue };
        if !is_like_ours(&sent) || body.contains("executed_tools") {
            continue;
        }
        let bound = bound_of(&sent);
        ratios.push(bound as f64 / counted as f64);
        if bound < counted {
            below.push(format!("{place}: {bound} < {counted}"));
        }
    }
    ratios.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (ratios.first(), ratios.last()) else { return };
    let median = ratios[ratios.len() / 2];
    println!("{} asks: bound / counted from {least:.2} to {most:.2}, median {median:.2}", ratios.len());
    assert!(below.is_empty(), "{below:#?}");
}

/// Returns true if a request has only features that ours have. Images, files, output schemas and the provider's own tools
/// are counted differently.
fn is_like_ours(sent: &Value) -> bool {
    let is_function = |tool: &Value| tool["function"].is_object() || tool["input_schema"].is_object();
    let (text, tools) = (sent.to_string(), sent["tools"].as_array().cloned().unwrap_or_default());
    let others = ["base64", "image_url", "input_audio", "file_id", "\"source\"", "mcp_servers", "output_format"];
    let more = ["response_format", "output_config", "betas", "allowed_callers", "tool_addition"];
    tools.iter().all(is_function) && !others.iter().chain(&more).any(|word| text.contains(word))
}

fn bound_of(sent: &Value) -> u64 {
    let tools = sent.get("tools").map_or(0, |tools| tools.to_string().len() as u64);
    let system = sent.get("system").map(Value::to_string).unwrap_or_default();
    let entries: Vec<Arc<TranscriptEntry>> = sent["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|message| TranscriptEntry::new(Message::user(message.to_string())))
        .collect();
    input_bound(&system, tools, &entries, None)
}
