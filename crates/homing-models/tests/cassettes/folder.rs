//! Reads a folder of recorded exchanges. Their wire is detected from the request and the response, not from file names.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub struct RecordedExchange {
    pub when: RecordedRequest,
    pub then: RecordedResponse,
}

#[derive(Deserialize)]
pub struct RecordedRequest {
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub method: Option<String>,
    #[serde(default)]
    pub body: Option<String>,
}

#[derive(Deserialize)]
pub struct RecordedResponse {
    #[serde(default = "ok_status")]
    pub status: u16,
    #[serde(default)]
    pub header: Vec<RecordedHeader>,
    #[serde(default)]
    pub body: Option<String>,
}

#[derive(Deserialize)]
pub struct RecordedHeader {
    pub name: String,
    pub value: String,
}

fn ok_status() -> u16 {
    200
}

/// All exchanges in the folder of recordings, with their positions. `HOMING_CASSETTES` names another folder.
pub fn exchanges() -> Option<Vec<(String, RecordedExchange)>> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cassettes");
    let root = std::env::var_os("HOMING_CASSETTES").map_or(shared, PathBuf::from);
    if !root.is_dir() {
        println!("skipped: there are no recordings at {}", root.display());
        return None;
    }
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    Some(files.iter().flat_map(|path| read(&root, path)).collect())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            files.push(path);
        }
    }
}

fn read(root: &Path, path: &Path) -> Vec<(String, RecordedExchange)> {
    let name = path.strip_prefix(root).unwrap_or(path).display();
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let found: Vec<RecordedExchange> =
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    found.into_iter().enumerate().map(|(at, exchange)| (format!("{name} #{at}"), exchange)).collect()
}

/// The wire of a recorded exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speech {
    Chat,
    Messages,
    Responses,
    Gemini,
    Interactions,
    Ollama,
}

/// The form of a recorded response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    Streamed,
    Whole,
}

/// The wire and the base path of an exchange, or the reason why it is not a supported model call.
pub fn speech(exchange: &RecordedExchange) -> Result<(Speech, String), &'static str> {
    if exchange.when.method.as_deref().unwrap_or("POST") != "POST" {
        return Err("not a model call: fetches or deletes something");
    }
    let path = exchange.when.path.split('?').next().unwrap_or_default();
    let after_base = |suffix: &str| path.strip_suffix(suffix).map(str::to_owned);
    let tries = [
        (Speech::Chat, after_base("/chat/completions")),
        (Speech::Messages, after_base("/v1/messages")),
        (Speech::Responses, after_base("/responses")),
        (Speech::Interactions, after_base("/interactions")),
        (Speech::Ollama, after_base("/api/chat")),
        (Speech::Gemini, gemini_base(path)),
    ];
    if let Some((speech, base)) = tries.into_iter().find_map(|(speech, base)| base.map(|base| (speech, base))) {
        return Ok((speech, base));
    }
    // The path is unusual or missing, so the response decides.
    let first = events(exchange.then.body.as_deref().unwrap_or_default()).into_iter().next().unwrap_or_default();
    spoken(&first).map(|speech| (speech, "/v1".to_owned())).ok_or_else(|| other(path))
}

fn gemini_base(path: &str) -> Option<String> {
    let (base, call) = path.rsplit_once("/models/")?;
    (call.ends_with(":generateContent") || call.ends_with(":streamGenerateContent")).then(|| base.to_owned())
}

fn spoken(event: &Value) -> Option<Speech> {
    let word = |key: &str| event[key].as_str().unwrap_or_default();
    match (word("object"), word("type")) {
        ("chat.completion" | "chat.completion.chunk", _) => Some(Speech::Chat),
        ("response", _) => Some(Speech::Responses),
        (_, "message" | "message_start") => Some(Speech::Messages),
        (_, kind) if kind.starts_with("response.") => Some(Speech::Responses),
        _ if event["candidates"].is_array() => Some(Speech::Gemini),
        _ => None,
    }
}

fn other(path: &str) -> &'static str {
    let has = |word: &str| path.contains(word);
    match path {
        _ if has("embed") => "not a model call: embeddings",
        _ if has("cachedContents") || has("/files") => "not a model call: stores something at the provider",
        _ if has("/threads") || has("/assistants") => "not a model call: the provider's own agents",
        _ if has("/images") || has("/audio") || has("rerank") || has("moderations") => "not a model call for text",
        _ if path.ends_with("/completions") || has("generate") || path.ends_with("/complete") => {
            "a wire without messages"
        }
        _ if path.ends_with("/chat") => "Cohere's own wire",
        _ => "unknown wire",
    }
}

/// The data of the events or lines of a body, or the body itself if it is one JSON value.
pub fn events(body: &str) -> Vec<Value> {
    if let Ok(value) = serde_json::from_str(body) {
        return vec![value];
    }
    let data = |line: &str| line.strip_prefix("data:").unwrap_or(line).trim().to_owned();
    body.split(['\n', '\r'])
        .filter_map(|line| serde_json::from_str(&data(line)).ok())
        .filter(Value::is_object)
        .collect()
}

pub fn shape(body: &str) -> Shape {
    match serde_json::from_str::<Value>(body) {
        Ok(_) => Shape::Whole,
        Err(_) => Shape::Streamed,
    }
}
