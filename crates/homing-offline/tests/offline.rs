//! The offline model at work on real files: questions about this very crate, answered with its own sources.
#![allow(missing_docs)]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

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
    ToolSpec {
        name: name.into(),
        description: String::new(),
        schema,
        replay: Replay::Safe,
        effect: homing_core::tool::Effect::Reads,
    }
}

fn object(fields: &[&str]) -> Value {
    let fields: serde_json::Map<String, Value> = fields.iter().map(|it| ((*it).to_owned(), json!({}))).collect();
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

fn sources() -> Vec<PathBuf> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            // The questions of this test stand in this file.
            if path.is_dir() {
                walk(&path, files);
            } else if path.extension().is_some_and(|it| it == "rs" || it == "toml")
                && !path.ends_with("tests/offline.rs")
            {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(Path::new(env!("CARGO_MANIFEST_DIR")), &mut files);
    files.sort();
    files
}

fn relative(path: &Path) -> String {
    path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().to_string_lossy().into_owned()
}

fn grep(pattern: &str) -> String {
    let matcher = RegexMatcher::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    let mut out = String::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| matcher.is_match(line.as_bytes()).unwrap()) {
            out.push_str(&format!("{}:{}: {}\n", relative(&path), at + 1, line.trim()));
        }
    }
    out
}

fn read(path: &str, offset: usize, limit: usize) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default();
    let lines = text.lines().enumerate().skip(offset.saturating_sub(1)).take(limit);
    lines.map(|(at, line)| format!("{}\t{line}\n", at + 1)).collect()
}

fn arg<'a>(call: &'a ToolCall, name: &str) -> &'a Value {
    match &call.args {
        Args::Json(value) => &value[name],
        Args::Malformed(text) => panic!("{text}"),
    }
}

/// What one agent did: its last words, and how many calls of each tool it made.
struct Run {
    last: Reply,
    calls: Vec<String>,
}

async fn run(task: &str, specs: Vec<ToolSpec>, choice: ToolChoice) -> Run {
    let (model, tools) = (OfflineModel::new(), Toolbox::new(specs));
    let mut messages: Vec<Arc<TranscriptEntry>> = vec![TranscriptEntry::new(Message::user(task))];
    let mut calls = Vec::new();
    for _ in 0..8 {
        let request = ModelRequest {
            system: "",
            messages: &messages,
            tools: &tools,
            choice,
            max_output: 1_000,
            effort: None,
            temperature_milli: None,
            time_left: None,
            key: "",
        };
        let reply = model.reply(request, &|_| ()).await.unwrap();
        let made: Vec<ToolCall> = reply.calls().cloned().collect();
        if made.is_empty() || made.iter().any(|it| it.name == "answer") {
            return Run { last: reply, calls };
        }
        messages.push(TranscriptEntry::new(Message::Assistant(reply)));
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
            messages.push(TranscriptEntry::new(Message::Tool(ToolResult {
                index: index as u32,
                call_id: call.id,
                name: call.name,
                text,
                images: vec![],
                data: None,
                is_error: false,
            })));
        }
    }
    panic!("it never ends: {calls:?}");
}

/// The paths of a report, in order.
fn paths(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("- ")?.split(':').next()).collect()
}

#[tokio::test]
async fn a_question_gets_the_right_files() {
    for (question, file) in [
        ("where is the Retry-After header parsed?", "src/errors.rs"),
        ("Where are tool calls written as text understood?", "src/wire/spelled.rs"),
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
        assert!(files.iter().take(2).any(|it| *it == file), "{question}\n{text}");
        assert!(text.starts_with("(offline: a keyword search, not a language model"), "{text}");
    }
}

#[tokio::test]
async fn a_lead_sends_explorers_in_parallel_and_merges_what_they_found() {
    let mut specs = search_tools();
    specs.push(delegate());
    let run = run("where is the Retry-After header parsed?", specs, ToolChoice::Auto).await;
    assert_eq!(run.calls[..3], ["delegate", "delegate", "delegate"]);
    assert!(run.calls[3..].iter().all(|it| it == "read"), "{:?}", run.calls);
    let text = run.last.text();
    assert_eq!(paths(&text)[0], "src/errors.rs", "{text}");
}

#[tokio::test]
async fn it_is_the_same_every_time() {
    let ask = || run("where are redirects refused?", search_tools(), ToolChoice::Auto);
    assert_eq!(ask().await.last, ask().await.last);
}

#[tokio::test]
async fn without_search_tools_or_words_it_says_so() {
    let blind = run("where are redirects refused?", vec![], ToolChoice::Auto).await;
    assert!(blind.last.text().contains("no tool here to search with"), "{}", blind.last.text());
    let mute = run("please explain this", search_tools(), ToolChoice::Auto).await;
    assert!(mute.last.text().contains("no word worth searching"), "{}", mute.last.text());
    let nothing = run("where is the zyzzyva flummoxed?", search_tools(), ToolChoice::Auto).await;
    assert!(nothing.last.text().contains("Nothing was found"), "{}", nothing.last.text());
}

#[tokio::test]
async fn landing_reports_at_once() {
    let run = run("where are redirects refused?", search_tools(), ToolChoice::Off).await;
    assert!(run.calls.is_empty());
    assert!(!run.last.text().is_empty());
}

#[tokio::test]
async fn a_wanted_shape_is_filled() {
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
