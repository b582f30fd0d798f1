//! The specifications of the delegation tools, as models see them.

use homing_core::{
    definition::AgentDefinition,
    tool::{Effect, Replay, ToolSpec},
};
use serde_json::{Value, json};

/// The longest description of an agent, in bytes: published descriptions are pages long, and every turn pays for them.
const MAX_DESCRIPTION: usize = 400;

/// The delegation tools of a run that may delegate to these agents; none if there are no agents.
pub(crate) fn specs<'a>(agents: impl Iterator<Item = &'a AgentDefinition>) -> Vec<ToolSpec> {
    let (mut names, mut lines) = (Vec::new(), String::new());
    for agent in agents {
        names.push(agent.name.clone());
        lines.push_str(&format!("\n- {}: {}", agent.name, brief(&agent.description)));
    }
    if names.is_empty() {
        return Vec::new();
    }
    let delegate = format!(
        "Delegates a task to another agent, which works on its own and returns its answer. Several calls in one reply run \
         in parallel. The agent does not see this conversation: put everything it needs into the task, and say what it \
         must report.\n\nAgents:{lines}"
    );
    let run = json!({"type": "string", "description": "Place of a run you started, such as 1.2"});
    vec![
        spec(
            "delegate",
            delegate,
            Replay::Keyed,
            &["agent", "task"],
            json!({
                "agent": {"type": "string", "enum": names, "description": "Agent to run"},
                "task": {"type": "string", "description": "Complete description of the task"},
                "timeout": {"type": "number", "description": "Maximum time in seconds"},
                "background": {"type": "boolean", "description": "Return at once; the result is sent to you later"},
            }),
        ),
        spec(
            "wait",
            "Waits for background runs. Their results are sent to you when they end.".into(),
            Replay::Safe,
            &[],
            json!({
                "runs": {"type": "array", "items": run, "description": "Runs to wait for (default: all)"},
                "any": {"type": "boolean", "description": "Return when the first of them has ended"},
            }),
        ),
        spec(
            "tell",
            "Sends a message to a run you started. A run that has ended continues with it and answers again.".into(),
            Replay::Keyed,
            &["run", "message"],
            json!({"run": run, "message": {"type": "string"}}),
        ),
        spec(
            "cancel",
            "Stops a run you started and returns what it had.".into(),
            Replay::Safe,
            &["run"],
            json!({"run": run}),
        ),
    ]
}

fn spec(name: &str, description: String, replay: Replay, required: &[&str], properties: Value) -> ToolSpec {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    ToolSpec { name: name.to_owned(), description, schema, replay, effect: Effect::Delegates }
}

/// The first paragraph of a description, cut.
fn brief(description: &str) -> String {
    let line = description.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > MAX_DESCRIPTION {
        format!("{}…", &line[..line.floor_char_boundary(MAX_DESCRIPTION)])
    } else {
        line
    }
}
