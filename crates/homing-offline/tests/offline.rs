//! The offline model answers questions about a small fixed set of files.
#![allow(missing_docs)]

mod corpus;

use std::sync::Arc;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use homing_core::{
    message::{Args, Message, Reply, ToolCall, ToolResult, TranscriptEntry},
    model::{Model, ModelRequest, ToolChoice, Toolbox},
    tool::{Replay, ToolSpec},
};
use homing_offline::OfflineModel;
use serde_json::{Value, json};

fn spec(name: &str, schema: Value) -> ToolSpec {
    ToolSpec::new(name, "", schema).replay(Replay::Safe).effect(homing_core::tool::Effect::Reads)
}

fn object(fields: &[&str]) -> Value {
    let fields: serde_json::Map<String, Value> = fields.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    json!({ "type": "object", "properties": fields })
}

fn search_tools() -> Vec<ToolSpec> {
    vec![
        spec("grep", object(&["pattern", "path"])),
        spec("glob", object(&["pattern"])),
        spec("read", object(&["path", "offset", "limit"])),
    ]
}

fn delegate() -> ToolSpec {
    let schema =
        json!({"type": "object", "properties": {"agent": {"enum": ["code", "explore"]}, "task": {"type": "string"}}});
    spec("delegate", schema)
}

fn grep(pattern: &str) -> String {
    let matcher = RegexMatcher::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    let mut out = String::new();
    for (path, text) in corpus::FILES {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| matcher.is_match(line.as_bytes()).unwrap()) {
            out.push_str(&format!("{path}:{}: {}\n", at + 1, line.trim()));
        }
    }
    out
}

fn read(path: &str, offset: usize, limit: usize) -> String {
    let text = corpus::FILES.iter().find(|(known, _)| *known == path).map_or("", |(_, text)| *text);
    let lines = text.lines().enumerate().skip(offset.saturating_sub(1)).take(limit);
    lines.map(|(at, line)| format!("{}\t{line}\n", at + 1)).collect()
}

fn arg<'a>(call: &'a ToolCall, name: &str) -> &'a Value {
    match &call.args {
        Args::Json(value) => &value[name],
        Args::Malformed(text) => panic!("{text}"),
    }
}

/// The last reply of an agent and the names of the tools it called.
struct OfflineRun {
    last: Reply,
    calls: Vec<String>,
}

async fn run(task: &str, specs: Vec<ToolSpec>, choice: ToolChoice) -> OfflineRun {
    let (model, tools) = (OfflineModel::new(), Toolbox::new(specs));
    let mut messages: Vec<Arc<TranscriptEntry>> = vec![TranscriptEntry::new(Message::user(task))];
    let mut calls = Vec::new();
    for _ in 0..8 {
        let request = ModelRequest::new("", &messages, &tools, "")
            .choice(choice)
            .max_output(1_000)
            .sampling(&homing_core::model::Sampling::NONE);
        let reply = model.reply(request, &|_| ()).await.unwrap();
        let made: Vec<ToolCall> = reply.calls().cloned().collect();
        if made.is_empty() || made.iter().any(|call| call.name == "answer") {
            return OfflineRun { last: reply, calls };
        }
        messages.push(TranscriptEntry::new(Message::Assistant(reply.into())));
        for (index, call) in made.into_iter().enumerate() {
            let text = match call.name.as_str() {
                "grep" => grep(arg(&call, "pattern").as_str().unwrap()),
                "glob" => String::new(),
                "read" => read(
                    arg(&call, "path").as_str().unwrap(),
                    arg(&call, "offset").as_u64().unwrap_or(1) as usize,
                    arg(&call, "limit").as_u64().unwrap_or(2_000) as usize,
                ),
                "delegate" => {
                    let task = arg(&call, "task").as_str().unwrap().to_owned();
                    let child = Box::pin(run(&task, search_tools(), ToolChoice::Auto)).await;
                    format!("agent explore: done, {} steps\n\n{}", child.calls.len(), child.last.text())
                }
                other => panic!("{other}"),
            };
            calls.push(call.name.clone());
            messages.push(TranscriptEntry::new(Message::Tool(
                ToolResult {
                    index: index as u32,
                    call_id: call.id,
                    name: call.name,
                    text,
                    images: vec![],
                    data: None,
                    is_error: false,
                }
                .into(),
            )));
        }
    }
    panic!("the run does not end: {calls:?}");
}

/// Returns the paths of a report, in order.
fn paths(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("- ")?.split(':').next()).collect()
}

#[tokio::test]
async fn question_finds_the_right_files() {
    for (question, file) in [
        ("where is the Retry-After header parsed?", "src/errors.rs"),
        ("Where are tool calls written as text understood?", "src/wire/text_tool_calls.rs"),
        ("which code scrubs the key from errors?", "src/secret.rs"),
        ("how are server-sent events split?", "src/sse.rs"),
        ("where are retired model names mapped to successors?", "src/names.rs"),
        ("where are prices rounded up to micro dollars?", "src/prices.rs"),
        ("Where does the stream decoder for Anthropic live?", "src/wire/anthropic_stream.rs"),
    ] {
        let run = run(question, search_tools(), ToolChoice::Auto).await;
        let text = run.last.text();
        let found = paths(&text);
        let mut files: Vec<&str> = found.clone();
        files.dedup();
        assert!(files.iter().take(2).any(|path| *path == file), "{question}\n{text}");
        assert!(text.starts_with("(offline: a keyword search, not a language model"), "{text}");
    }
}

#[tokio::test]
async fn lead_delegates_to_explorers_and_merges_their_findings() {
    let mut specs = search_tools();
    specs.push(delegate());
    let run = run("where is the Retry-After header parsed?", specs, ToolChoice::Auto).await;
    assert_eq!(run.calls[..3], ["delegate", "delegate", "delegate"]);
    assert!(run.calls[3..].iter().all(|name| name == "read"), "{:?}", run.calls);
    let text = run.last.text();
    assert_eq!(paths(&text)[0], "src/errors.rs", "{text}");
}

#[tokio::test]
async fn replies_are_deterministic() {
    let ask = || run("where are redirects refused?", search_tools(), ToolChoice::Auto);
    assert_eq!(ask().await.last, ask().await.last);
}

#[tokio::test]
async fn missing_tools_or_keywords_are_reported() {
    let without_tools = run("where are redirects refused?", vec![], ToolChoice::Auto).await;
    assert!(without_tools.last.text().contains("no tool here to search with"), "{}", without_tools.last.text());
    let without_words = run("please explain this", search_tools(), ToolChoice::Auto).await;
    assert!(without_words.last.text().contains("no word worth searching"), "{}", without_words.last.text());
    let no_match = run("where is the zyzzyva flummoxed?", search_tools(), ToolChoice::Auto).await;
    assert!(no_match.last.text().contains("Nothing was found"), "{}", no_match.last.text());
}

#[tokio::test]
async fn without_tools_it_reports_immediately() {
    let run = run("where are redirects refused?", search_tools(), ToolChoice::Off).await;
    assert!(run.calls.is_empty());
    assert!(!run.last.text().is_empty());
}

#[tokio::test]
async fn answer_schema_is_filled() {
    let mut specs = search_tools();
    specs.push(spec(
        "answer",
        json!({"type": "object", "required": ["summary", "places"], "properties": {
            "summary": {"type": "string"},
            "places": {"type": "array", "items": {"type": "object", "properties": {
                "path": {"type": "string"}, "line": {"type": "integer"}}}},
        }}),
    ));
    let run = run("where is the Retry-After header parsed?", specs, ToolChoice::Auto).await;
    let call = run.last.calls().next().unwrap();
    assert_eq!(call.name, "answer");
    assert!(arg(call, "places").as_array().unwrap().iter().any(|place| place["path"] == "src/errors.rs"));
}
