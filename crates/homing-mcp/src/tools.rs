//! The MCP tools: names, descriptions, input and output schemas.

use std::sync::Arc;

use homing::{
    OnQuestion, Registry,
    crates::{core::sanitize, runtime::AgentListing},
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// Maximum length of an agent's description in bytes. The client sends all of them to its model in every turn.
const MAX_DESCRIPTION: usize = 400;

/// Returns the tools for the current agents.
pub(crate) fn tools(agents: &Registry, policy: OnQuestion) -> Vec<Tool> {
    let mut tools = vec![
        tool("delegate", delegate_text(agents), delegate_input(agents), envelope())
            .with_annotations(changes("Delegate")),
        tool("wait", WAIT.into(), wait_input(), runs_output(envelope())).with_annotations(reads("Wait for runs")),
        tool("tell", TELL.into(), tell_input(), tell_output()).with_annotations(changes("Tell a run")),
        tool("cancel", CANCEL.into(), run_input(), cancel_output()).with_annotations(stops("Cancel a run")),
        tool("runs", RUNS.into(), runs_input(), runs_output(listed())).with_annotations(reads("List runs")),
        tool("resume", RESUME.into(), run_input(), envelope()).with_annotations(changes("Resume a run")),
    ];
    if policy == OnQuestion::Park {
        let answer = tool("answer", ANSWER.into(), answer_input(), answer_output());
        tools.push(answer.with_annotations(changes("Answer a question")));
    }
    tools
}

const WAIT: &str = "Waits for runs that were delegated in the background and returns their results: all of them, or with \
                    `any` the first to finish. After `timeout` it returns the runs in their current state. Without `runs` it \
                    returns every run whose result you have not received.";
const TELL: &str = "Sends a message to a run. A run in progress reads it at its next step. A run that has ended is continued \
                    by a new run in the background, which has the earlier messages: wait for that one.";
const CANCEL: &str = "Stops a run and every run below it. Its partial result is kept: `wait` returns it.";
const RUNS: &str = "Lists the runs that you delegated, newest first, with agent, task, status and usage; also those of earlier \
                    sessions in this folder.";
const RESUME: &str = "Continues a run whose status is `interrupted`, because the server stopped while it worked. It continues in \
                      the background: `wait` for it.";

const ANSWER: &str = "Answers a question of a run whose status is `waiting`; then `wait` for the run again. A request for approval of a \
                      call cannot be answered here: only the user can approve it.";

fn tool(name: &'static str, description: String, input: Value, output: Value) -> Tool {
    Tool::new(name, description, object(input)).with_raw_output_schema(object(output))
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        other => unreachable!("schemas here are objects: {other}"),
    }
}

fn changes(title: &str) -> ToolAnnotations {
    ToolAnnotations::with_title(title).read_only(false).open_world(true)
}

fn reads(title: &str) -> ToolAnnotations {
    ToolAnnotations::with_title(title).read_only(true).open_world(false)
}

fn stops(title: &str) -> ToolAnnotations {
    ToolAnnotations::with_title(title).read_only(false).destructive(true).idempotent(true).open_world(false)
}

fn delegate_text(agents: &Registry) -> String {
    let text = "Gives a task to an agent and returns its answer, within limits. The agent sees nothing of this \
                conversation, so the task must contain everything it needs. With `background` it returns immediately; \
                `wait` for the result.\n\nAgents:";
    let listing = listing(agents);
    let count = agents.offered().count();
    let more = match (listing.is_described, listing.text.is_empty()) {
        (true, _) => String::new(),
        (false, false) => "\nTheir descriptions are the resources homing://agents/NAME.".to_owned(),
        (false, true) => format!(" {count}, too many to list: they are the resources homing://agents/NAME."),
    };
    format!("{text}{}{more}", listing.text)
}

/// Lists the agents as requests of a run do. The text of a file is not trusted, so it has no control characters.
fn listing(agents: &Registry) -> AgentListing {
    let shown: Vec<(&str, String)> = agents
        .offered()
        .map(|agent| (agent.definition.name.as_str(), sanitize::inert_line(&agent.definition.description)))
        .collect();
    AgentListing::new(shown.iter().map(|(name, description)| (*name, description.as_str())))
}

/// Returns a description as one short line without control characters, because the text of a file is not trusted.
pub(crate) fn shown_description(description: &str) -> String {
    let line = sanitize::inert_line(description);
    if line.len() > MAX_DESCRIPTION {
        format!("{}…", &line[..line.floor_char_boundary(MAX_DESCRIPTION)])
    } else {
        line
    }
}

fn delegate_input(agents: &Registry) -> Value {
    let mut agent = json!({"type": "string", "description": "Agent to run."});
    // An empty `enum` is not a valid schema, and names that are listed alone would be sent twice.
    let names: Value = agents.offered().map(|agent| agent.definition.name.as_str()).collect();
    if !listing(agents).is_described {
        agent["description"] = "Name of the agent to run.".into();
    } else if names.as_array().is_some_and(|names| !names.is_empty()) {
        agent["enum"] = names;
    }
    let count = |what: &str| json!({"type": "integer", "minimum": 0, "description": what});
    json!({
        "type": "object",
        "properties": {
            "agent": agent,
            "task": {"type": "string", "minLength": 1, "description": "Task, complete in itself."},
            "limits": {
                "type": "object",
                "description": "Limits of the run. They can only lower the defaults.",
                "properties": {
                    "max_cost": {"type": "number", "exclusiveMinimum": 0, "description": "US dollars, such as 0.50."},
                    "max_tokens": count("Input and output tokens, including all runs below it."),
                    "max_turns": count("Replies of its model."),
                    "max_tool_calls": count("Tool calls, including all runs below it."),
                    "max_children": count("Runs below it."),
                    "max_depth": count("Levels of delegation below it; with 0 it cannot delegate."),
                    "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."},
                },
                "additionalProperties": false,
            },
            "background": {"type": "boolean", "default": false, "description": "Return immediately."},
        },
        "required": ["agent", "task"],
        "additionalProperties": false,
    })
}

fn id(what: &str) -> Value {
    json!({"type": "string", "format": "uuid", "description": what})
}

/// A value or null. Not every client accepts a list of types.
fn or_null(kind: &str) -> Value {
    json!({"anyOf": [{"type": kind}, {"type": "null"}]})
}

fn wait_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "runs": {
                "type": "array", "items": id("A run."),
                "description": "Runs to wait for; by default all of yours whose results you have not received.",
            },
            "any": {"type": "boolean", "default": false, "description": "Return when the first run has ended."},
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

fn answer_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1, "description": "ID of the question."},
            "answer": {"type": "string", "minLength": 1, "description": "Text, or one of the question's options."},
        },
        "required": ["question", "answer"],
        "additionalProperties": false,
    })
}

const STATUS: [&str; 9] =
    ["queued", "running", "waiting", "interrupted", "done", "exhausted", "timed_out", "cancelled", "failed"];

fn runs_input() -> Value {
    json!({
        "type": "object",
        "properties": {"status": {"type": "string", "enum": STATUS, "description": "Only runs with this status."}},
        "additionalProperties": false,
    })
}

fn usage() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    json!({
        "type": "object",
        "properties": {
            "input": count, "cached": count, "output": count, "cost_micros": count, "estimated": {"type": "boolean"},
            "at_most_micros": count, "turns": count, "tool_calls": count, "wall_ms": count,
        },
        "required": ["input", "cached", "output", "cost_micros", "estimated", "turns", "tool_calls", "wall_ms"],
    })
}

/// The schema of the result envelope. Fields may be added to it, but never removed.
fn envelope() -> Value {
    let (text, flag) = (json!({"type": "string"}), json!({"type": "boolean"}));
    let texts = json!({"type": "array", "items": text});
    json!({
        "type": "object",
        "properties": {
            "v": {"type": "integer"}, "run": id("The run."), "place": text, "agent": text, "model": text,
            "status": {"type": "string", "enum": STATUS},
            "output": text, "data": {"description": "Structured answer: any JSON."}, "partial": flag,
            "error": or_null("object"), "limit": or_null("object"),
            "usage": usage(), "subtree": usage(), "verified": or_null("boolean"),
            "warnings": texts, "denied": texts, "needs_approval": texts, "resumable": flag,
            "questions": {"type": "array", "items": {"type": "object"}, "description": "Questions that wait for an answer."},
            "receipts": {"type": "object", "description": "What the run really did: files, commands, hosts."},
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
            "run": id("The run that continues: the given one, or a new one."),
            "continues": or_null("string"),
        },
        "required": ["run", "continues"],
    })
}

fn answer_output() -> Value {
    json!({"type": "object", "properties": {"run": id("The run that continues.")}, "required": ["run"]})
}

fn cancel_output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "run": id("The run."),
            "cancelled": {"type": "boolean", "description": "False if it had ended or was already stopping."},
        },
        "required": ["run", "cancelled"],
    })
}

#[cfg(test)]
mod tests {
    use homing::AgentDefinition;

    use super::*;

    fn delegate(count: usize) -> (String, bool) {
        let agent = |number: usize| AgentDefinition::new(format!("agent-{number}"), "does things ".repeat(50), "p");
        let agents = Registry::from_iter((0..count).map(agent));
        let input = delegate_input(&agents);
        (delegate_text(&agents), input["properties"]["agent"].get("enum").is_some())
    }

    #[test]
    fn list_of_agents_has_the_budget_of_requests() {
        let (few, has_names) = delegate(3);
        assert!(has_names && few.contains("\n- agent-2: does things does things"), "{few}");
        let (some, has_names) = delegate(200);
        assert!(has_names && some.contains("\n- agent-199: does things") && some.len() < 25_000, "{}", some.len());
        let (many, has_names) = delegate(1_000);
        assert!(!has_names && many.contains(", agent-999\n") && many.len() < 25_000, "{}", many.len());
        assert!(many.contains("homing://agents/NAME"));
        let (too_many, has_names) = delegate(5_000);
        assert!(!has_names && too_many.contains("5000, too many to list") && too_many.len() < 1_000, "{too_many}");
    }
}
