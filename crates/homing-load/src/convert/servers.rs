//! Writes MCP servers as each program expects them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::targets::ServerForm;

/// The servers in the form of a target.
pub(super) struct WrittenServers {
    pub(super) value: Option<Value>,
    /// Servers that the form cannot express.
    pub(super) left_out: Vec<String>,
}

pub(super) fn write(servers: &BTreeMap<String, Value>, form: ServerForm) -> WrittenServers {
    let (mut map, mut list, mut left_out) = (Map::new(), Vec::new(), Vec::new());
    for (name, config) in servers {
        match (form, config) {
            (ServerForm::List, Value::Null) | (ServerForm::Names, _) => list.push(json!(name)),
            (ServerForm::List, _) => list.push(json!({ name: config })),
            (ServerForm::None, _) | (_, Value::Null) => left_out.push(name.clone()),
            (ServerForm::Map, _) => _ = map.insert(name.clone(), config.clone()),
            (ServerForm::Codex, _) => _ = map.insert(name.clone(), codex(config)),
            (ServerForm::Copilot, _) => _ = map.insert(name.clone(), copilot(config)),
            (ServerForm::Gemini, _) => _ = map.insert(name.clone(), gemini(config)),
        }
    }
    let value = match (list.is_empty(), map.is_empty()) {
        (false, _) => Some(Value::Array(list)),
        (_, false) => Some(Value::Object(map)),
        (true, true) => None,
    };
    WrittenServers { value, left_out }
}

/// Codex tells the kinds apart by their keys, and calls headers `http_headers`.
fn codex(config: &Value) -> Value {
    let mut config = config.clone();
    if let Value::Object(map) = &mut config {
        map.shift_remove("type");
        if let Some(headers) = map.shift_remove("headers") {
            map.insert("http_headers".to_owned(), headers);
        }
    }
    config
}

/// Copilot wants the kind and the list of tools.
fn copilot(config: &Value) -> Value {
    let mut config = config.clone();
    if let Value::Object(map) = &mut config {
        let kind = if map.contains_key("command") { "local" } else { "http" };
        if map.get("type").is_none_or(|kind| kind == "stdio") {
            map.insert("type".to_owned(), json!(kind));
        }
        map.entry("tools").or_insert_with(|| json!(["*"]));
    }
    config
}

/// Gemini CLI knows the kinds `http` and `sse` only.
fn gemini(config: &Value) -> Value {
    let mut config = config.clone();
    if let Value::Object(map) = &mut config
        && map.get("type").is_some_and(|kind| kind != "http" && kind != "sse")
    {
        map.shift_remove("type");
    }
    config
}
