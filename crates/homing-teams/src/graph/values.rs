//! The values that the results of nodes write into the state.

use std::collections::HashMap;

use homing_core::tool_names;
use serde_json::{Value, json};

use crate::{
    graph::{FieldType, Graph, Reducer, script::COMMAND},
    history::JobResult,
    shell_template, template,
};

/// The nodes that wrote each field in one step.
#[derive(Default)]
pub(super) struct Writers(HashMap<String, String>);

impl Writers {
    /// Notes a write; fails if another write of the same step would be lost.
    pub(super) fn note(&mut self, graph: &Graph, field: &str, node: &str) -> Result<(), String> {
        let in_code = graph.reducers.contains_key(field);
        if in_code || graph.state.get(field).is_none_or(|field| field.reducer != Reducer::Replace) {
            return Ok(());
        }
        match self.0.insert(field.to_owned(), node.to_owned()) {
            None => Ok(()),
            Some(other) => {
                let whose = if other == node { "another item".to_owned() } else { format!("node `{other}`") };
                Err(format!(
                    "`{field}` was already written in this step by {whose}: use a reducer other than `replace`"
                ))
            }
        }
    }
}

/// The value that a structured result spreads over the fields of the state.
pub(super) fn spread_value(job: &JobResult) -> Value {
    if job.is_of_tool() { tool_value(job, FieldType::Any) } else { job.data.clone().unwrap_or_default() }
}

/// The value of a tool's result. A function of the team returns its value as data. Other tools return text, and data about
/// it, such as the exit code of a command: then a field of type `string` gets the text, one of type `number`, `boolean` or
/// `list` the value that the text is as JSON, and any other field an object of the data with the text as `output`.
pub(super) fn tool_value(job: &JobResult, kind: FieldType) -> Value {
    let Some(data) = &job.data else { return json!(job.output) };
    let is_value = data.as_str() == Some(&job.output)
        || serde_json::from_str::<Value>(&job.output).is_ok_and(|value| value == *data);
    let (Value::Object(fields), false) = (data, is_value) else { return data.clone() };
    // A command without output has a note for models in its place.
    let is_empty = fields.get("bytes") == Some(&json!(0));
    let text = if is_empty { "" } else { job.output.as_str() };
    match kind {
        FieldType::String => json!(text),
        FieldType::Number | FieldType::Boolean | FieldType::List => {
            serde_json::from_str(text.trim()).unwrap_or_else(|_| json!(text))
        }
        FieldType::Any | FieldType::Object => {
            let mut fields = fields.clone();
            fields.insert("output".to_owned(), json!(text));
            Value::Object(fields)
        }
    }
}

/// Renders the arguments of a tool. In a command, values are quoted: they come from models and must not become shell code.
pub(super) fn tool_args(tool: &str, args: &Value, scope: &Value) -> Result<Value, String> {
    let command = args.get(COMMAND).and_then(Value::as_str).filter(|_| tool == tool_names::BASH);
    let Some(command) = command else { return template::fill(args, scope) };
    let mut others = args.clone();
    let command = shell_template::render(command, scope)?;
    if let Some(fields) = others.as_object_mut() {
        fields.remove(COMMAND);
    }
    let mut filled = template::fill(&others, scope)?;
    if let Some(fields) = filled.as_object_mut() {
        fields.insert(COMMAND.to_owned(), Value::String(command));
    }
    Ok(filled)
}
