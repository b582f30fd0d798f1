//! How the tools present themselves: names, descriptions, what goes in and what comes out.

use std::sync::Arc;

use homing::{Registry, crates::core::sanitize};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// The longest description of an agent, in bytes; every turn of the client pays for all of them.
const LONGEST: usize = 400;

/// The longest list of agents, in bytes.
const LONGEST_LIST: usize = 24_000;

/// The tools, as the agents stand.
pub(crate) fn tools(agents: &Registry) -> Vec<Tool> {
    vec![
        tool("delegate", delegate_text(agents), delegate_input(agents), envelope()).with_annotations(acts("Delegate")),
        tool("wait", WAIT.into(), wait_input(), runs_output(envelope())).with_annotations(looks("Wait for runs")),
        tool("tell", TELL.into(), tell_input(), tell_output()).with_annotations(acts("Tell a run")),
        tool("cancel", CANCEL.into(), run_input(), cancel_output()).with_annotations(stops("Cancel a run")),
        tool("runs", RUNS.into(), runs_input(), runs_output(listed())).with_annotations(looks("List runs")),
    ]
}

const WAIT: &str = "Waits for runs that were delegated in the background, and returns their results: for all of them, or with \
                    `any` for the first. When `timeout` is up, it returns them as they stand.";
const TELL: &str = "Tells a run something more. A run that is under way reads it at its next step. A run that has ended is \
                    continued by a new one, in the background, which knows what was said before: wait for that.";
const CANCEL: &str = "Stops a run and everything below it. What it had by then is kept: `wait` returns it.";
const RUNS: &str = "Lists the runs that you delegated, newest first: who, what, how it is going, what it used.";

fn tool(name: &'static str, description: String, input: Value, output: Value) -> Tool {
    Tool::new(name, description, object(input)).with_raw_output_schema(object(output))
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        other => unreachable!("schemas here are objects: {other}"),
    }
}

fn acts(title: &str) -> ToolAnnotations {
    ToolAnnotations::with_title(title).read_only(false).open_world(true)
}

fn looks(title: &str) -> ToolAnnotations {
    ToolAnnotations::with_title(title).read_only(true).open_world(false)
}

fn stops(title: &str) -> ToolAnnotations {
    ToolAnnotations::with_title(title).read_only(false).destructive(true).idempotent(true).open_world(false)
}

fn delegate_text(agents: &Registry) -> String {
    let mut text = "Gives a task to an agent and returns its answer, within limits. The agent sees nothing of this \
                    conversation: the task must say everything it needs. With `background` it returns at once; `wait` for the \
                    result.\n\nAgents:"
        .to_owned();
    for it in agents.all() {
        let line = format!("\n- {}: {}", it.definition.name, described(&it.definition.description));
        if text.len() + line.len() > LONGEST_LIST {
            text.push_str("\n- … more: see the resources homing://agents/NAME");
            break;
        }
        text.push_str(&line);
    }
    text
}

/// A description from a file is a stranger's text: visible, on one line, and short.
pub(crate) fn described(description: &str) -> String {
    let line = sanitize::inert_line(description);
    match line.len() > LONGEST {
        true => format!("{}…", &line[..line.floor_char_boundary(LONGEST)]),
        false => line,
    }
}

fn delegate_input(agents: &Registry) -> Value {
    let mut agent = json!({"type": "string", "description": "Who is to do it."});
    // An empty `enum` is no valid schema.
    if !agents.is_empty() {
        agent["enum"] = agents.names().collect();
    }
    let count = |what: &str| json!({"type": "integer", "minimum": 0, "description": what});
    json!({
        "type": "object",
        "properties": {
            "agent": agent,
            "task": {"type": "string", "minLength": 1, "description": "What is to be done, complete in itself."},
            "limits": {
                "type": "object",
                "description": "What it may use; less than the usual, never more.",
                "properties": {
                    "max_cost": {"type": "number", "exclusiveMinimum": 0, "description": "US dollars, such as 0.50."},
                    "max_tokens": count("Input and output tokens, of it and of everything below it."),
                    "max_turns": count("Replies of its model."),
                    "max_tool_calls": count("Tool calls, of it and of everything below it."),
                    "max_children": count("Runs below it."),
                    "max_depth": count("Levels of delegation below it; 0 means that it cannot delegate."),
                    "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."},
                },
                "additionalProperties": false,
            },
            "background": {"type": "boolean", "default": false, "description": "Whether to return at once."},
        },
        "required": ["agent", "task"],
        "additionalProperties": false,
    })
}

fn id(what: &str) -> Value {
    json!({"type": "string", "format": "uuid", "description": what})
}

/// Not every client takes a list of types.
fn or_null(kind: &str) -> Value {
    json!({"anyOf": [{"type": kind}, {"type": "null"}]})
}

fn wait_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "runs": {
                "type": "array", "items": id("A run."),
                "description": "The runs to wait for; without it, all of yours that are under way.",
            },
            "any": {"type": "boolean", "default": false, "description": "Whether the first one is enough."},
            "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."},
        },
        "additionalProperties": false,
    })
}

fn tell_input() -> Value {
    json!({
        "type": "object",
        "properties": {"run": id("The run."), "message": {"type": "string", "minLength": 1}},
        "required": ["run", "message"],
        "additionalProperties": false,
    })
}

fn run_input() -> Value {
    json!({
        "type": "object", "properties": {"run": id("The run.")}, "required": ["run"], "additionalProperties": false,
    })
}

const STATUS: [&str; 9] =
    ["queued", "running", "waiting", "interrupted", "done", "exhausted", "timed_out", "cancelled", "failed"];

fn runs_input() -> Value {
    json!({
        "type": "object",
        "properties": {"status": {"type": "string", "enum": STATUS, "description": "Only those that are going like this."}},
        "additionalProperties": false,
    })
}

fn usage() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    json!({
        "type": "object",
        "properties": {
            "input": count, "cached": count, "output": count, "cost_micros": count, "estimated": {"type": "boolean"},
            "turns": count, "tool_calls": count, "wall_ms": count,
        },
        "required": ["input", "cached", "output", "cost_micros", "estimated", "turns", "tool_calls", "wall_ms"],
    })
}

/// The result envelope. Fields are only ever added to it.
fn envelope() -> Value {
    let (text, flag) = (json!({"type": "string"}), json!({"type": "boolean"}));
    let texts = json!({"type": "array", "items": text});
    json!({
        "type": "object",
        "properties": {
            "v": {"type": "integer"}, "run": id("The run."), "place": text, "agent": text, "model": text,
            "status": {"type": "string", "enum": STATUS},
            "output": text, "data": {"description": "The answer for programs: any JSON."}, "partial": flag,
            "error": or_null("object"), "limit": or_null("object"),
            "usage": usage(), "subtree": usage(), "verified": or_null("boolean"),
            "warnings": texts, "denied": texts, "resumable": flag,
            "children": {"type": "array", "items": {"type": "object"}},
        },
        "required": [
            "v", "run", "place", "agent", "model", "status", "output", "data", "partial", "error", "limit", "usage",
            "subtree", "verified", "warnings", "denied", "resumable", "children",
        ],
    })
}

fn listed() -> Value {
    let text = json!({"type": "string"});
    json!({
        "type": "object",
        "properties": {
            "run": id("The run."), "place": text, "agent": text, "task": text,
            "status": {"type": "string", "enum": STATUS},
            "started": {"type": "integer", "description": "Milliseconds since 1970."}, "usage": usage(),
        },
        "required": ["run", "place", "agent", "task", "status", "started", "usage"],
    })
}

fn runs_output(run: Value) -> Value {
    json!({"type": "object", "properties": {"runs": {"type": "array", "items": run}}, "required": ["runs"]})
}

fn tell_output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "run": id("The run that goes on: the one that was told, or its continuation."),
            "continues": or_null("string"),
        },
        "required": ["run", "continues"],
    })
}

fn cancel_output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "run": id("The run."),
            "cancelled": {"type": "boolean", "description": "False where it had ended, or was stopping."},
        },
        "required": ["run", "cancelled"],
    })
}
