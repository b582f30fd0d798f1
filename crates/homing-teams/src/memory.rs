//! The shared memory of a team: values by key, with the agent that wrote them. It has no storage of its own: the values are
//! the results of `memory_set` in the journal, so they survive a crash.

use std::{collections::BTreeMap, sync::Arc};

use homing_core::{
    BoxFuture,
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use serde_json::{Value, json};

/// Names of the memory tools.
pub(crate) const NAMES: [&str; 3] = ["memory_get", "memory_set", "memory_list"];

/// The latest version of each key in the run's tree.
fn entries(context: &ToolContext) -> BTreeMap<String, Value> {
    let mut latest: BTreeMap<String, Value> = BTreeMap::new();
    for entry in context.host.returned("memory_set") {
        let Some(key) = entry.get("key").and_then(Value::as_str) else { continue };
        if latest.get(key).is_none_or(|known| rank(known) < rank(&entry)) {
            latest.insert(key.to_owned(), entry);
        }
    }
    latest
}

/// The order of versions. On concurrent writes to one key the higher place wins, so that every reader sees the same.
fn rank(entry: &Value) -> (u64, String) {
    let place = entry.get("place").and_then(Value::as_str).unwrap_or_default().to_owned();
    (entry.get("version").and_then(Value::as_u64).unwrap_or(0), place)
}

fn by(entry: &Value) -> String {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("?");
    format!("{} (run {})", text("by"), text("place"))
}

fn get(context: &ToolContext, args: &Value) -> ToolOutput {
    let Some(key) = args.get("key").and_then(Value::as_str) else { return ToolOutput::error("`key` is missing") };
    match entries(context).remove(key) {
        Some(entry) => {
            let value = entry.get("value").cloned().unwrap_or_default();
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            ToolOutput::text(format!("[written by {}]\n{shown}", by(&entry))).data(value)
        }
        None => ToolOutput::text(format!("no value for `{key}`")),
    }
}

fn set(context: &ToolContext, args: &Value) -> ToolOutput {
    let (Some(key), Some(value)) = (args.get("key").and_then(Value::as_str), args.get("value")) else {
        return ToolOutput::error("`key` and `value` are required");
    };
    let before = entries(context).remove(key);
    let version = before.as_ref().map_or(0, |entry| rank(entry).0) + 1;
    let entry = json!({
        "key": key, "value": value, "version": version, "by": context.agent, "place": context.place.to_string(),
    });
    let note = before.map(|entry| format!(", replacing the value by {}", by(&entry))).unwrap_or_default();
    ToolOutput::text(format!("saved `{key}`{note}")).data(entry)
}

fn list(context: &ToolContext, _: &Value) -> ToolOutput {
    let entries = entries(context);
    let lines: Vec<String> = entries.iter().map(|(key, entry)| format!("{key}: by {}", by(entry))).collect();
    let text = if lines.is_empty() { "the memory is empty".to_owned() } else { lines.join("\n") };
    ToolOutput::text(text).data(entries.into_values().collect::<Value>())
}

struct MemoryTool {
    spec: ToolSpec,
    act: fn(&ToolContext, &Value) -> ToolOutput,
}

impl Tool for MemoryTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { (self.act)(context, &args) })
    }
}

/// The memory tools.
pub(crate) fn tools() -> Vec<Arc<dyn Tool>> {
    let key = json!({"type": "string", "description": "Key of the value"});
    let value = json!({"description": "Value to save"});
    let tool = |name: &str, description: &str, required: &[&str], properties: Value, act| -> Arc<dyn Tool> {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        // A write is only its own record, so repeating it does no harm.
        let spec =
            ToolSpec::new(name, description, schema).replay(Replay::Safe).effect(homing_core::tool::Effect::Reads);
        Arc::new(MemoryTool { spec, act })
    };
    vec![
        tool(
            NAMES[0],
            "Read a value from the team's shared memory, and which agent wrote it.",
            &["key"],
            json!({"key": key}),
            get,
        ),
        tool(
            NAMES[1],
            "Save a value in the team's shared memory, for all members to read.",
            &["key", "value"],
            json!({"key": key, "value": value}),
            set,
        ),
        tool(NAMES[2], "List the keys of the team's shared memory, and which agents wrote them.", &[], json!({}), list),
    ]
}
