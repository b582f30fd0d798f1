//! A person as a member of a team: an agent whose model is a program that asks the user, and answers with what the user says.
//!
//! The question is one of a run like any other, so it waits until any process answers it.

use std::sync::Arc;

use homing_core::{
    BoxFuture,
    authority::Allow,
    definition::{AgentDefinition, ModelChoice, ProjectContext},
    message::{Args, Message, Part, Reply, StopReason, ToolCall, ToolResult},
    model::{AskFailure, Charge, Delta, Model, ModelCard, ModelError, ModelRequest, OnDelta},
    registry::Registry,
    rule::Rule,
    tool_names::{ANSWER, ASK},
};
use serde_json::{Map, Value, json};

use crate::team::Team;

/// The name by which tasks, nodes and chats refer to the user.
pub(crate) const PERSON: &str = "person";

/// Name of the program that asks the user.
pub(crate) const MODEL: &str = "team/person";

/// Number of answers that do not fit the schema before the person counts as failed.
const MAX_TRIES: usize = 3;

/// The agent that stands for the user.
pub(crate) fn definition() -> AgentDefinition {
    let mut person = AgentDefinition::new(PERSON, "The user, who is asked and answers.", "");
    person.tools.allowed = Allow::Only(vec![Rule::tool(ASK)]);
    person.model.choice = ModelChoice::Named(vec![MODEL.to_owned()]);
    person.context.project_context = ProjectContext::None;
    person
}

/// Returns whether the user is a member of the team.
pub(crate) fn takes_part(team: &Team) -> bool {
    team.members().contains(&PERSON)
}

/// Registers the agent that stands for the user, if one of the teams needs it. An agent of the same name is not replaced.
pub(crate) fn register(registry: &mut Registry, teams: &[&Team]) {
    if teams.iter().any(|team| takes_part(team)) && !registry.has(PERSON) {
        registry.register(definition());
    }
}

/// The program of the agent that stands for the user.
pub(crate) fn model() -> Arc<dyn Model> {
    Arc::new(PersonModel(ModelCard::free(MODEL).max_output(0)))
}

struct PersonModel(ModelCard);

/// The form of answer that a schema asks of a person.
enum AnswerForm {
    /// Any text.
    Text,
    /// Yes, or no with the reason.
    Verdict,
    /// One of these values of this field.
    Choice(String, Vec<String>),
    /// The only field, of this type.
    Field(String, String),
    /// An object as JSON.
    Json,
}

impl AnswerForm {
    fn of(schema: Option<&Value>) -> Self {
        let Some(schema) = schema else { return Self::Text };
        let none = Map::new();
        let fields = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        if fields.contains_key("accepted") && fields.keys().all(|name| name == "accepted" || name == "feedback") {
            return Self::Verdict;
        }
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let only = match required.as_slice() {
            [only] => Some((*only).to_owned()),
            [] if fields.len() == 1 => fields.keys().next().cloned(),
            _ => None,
        };
        let Some((name, field)) = only.and_then(|name| Some((name.clone(), fields.get(&name)?))) else {
            return Self::Json;
        };
        match (field.get("enum").and_then(Value::as_array), field.get("type").and_then(Value::as_str)) {
            (Some(values), _) if values.iter().all(Value::is_string) => {
                Self::Choice(name, values.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            }
            (None, Some(kind @ ("string" | "number" | "integer" | "boolean"))) => Self::Field(name, kind.to_owned()),
            _ => Self::Json,
        }
    }

    fn options(&self) -> &[String] {
        match self {
            Self::Choice(_, options) => options,
            Self::Text | Self::Verdict | Self::Field(..) | Self::Json => &[],
        }
    }

    /// The instruction that follows the task.
    fn hint(&self, schema: Option<&Value>) -> String {
        match self {
            Self::Text | Self::Choice(..) => String::new(),
            Self::Verdict => "\n\nAnswer yes, or no with the reason.".to_owned(),
            Self::Field(name, kind) if kind == "boolean" => format!("\n\nAnswer yes or no ({name})."),
            Self::Field(name, _) => format!("\n\nAnswer with the value of {name}."),
            Self::Json => format!("\n\nAnswer with JSON that matches {}", schema.cloned().unwrap_or_default()),
        }
    }

    /// The answer as data, or the problem with it.
    fn data(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let is_yes = matches!(text.trim_end_matches(['.', '!']).to_lowercase().as_str(), "y" | "yes" | "ok" | "true");
        let is_no = matches!(text.trim_end_matches(['.', '!']).to_lowercase().as_str(), "n" | "no" | "false");
        match self {
            Self::Text => Ok(json!(text)),
            Self::Verdict if is_yes => Ok(json!({"accepted": true})),
            Self::Verdict => {
                let reason = text.strip_prefix("no,").or_else(|| text.strip_prefix("No,")).unwrap_or(text).trim();
                let mut verdict = json!({"accepted": false});
                if !is_no && !reason.is_empty() {
                    verdict["feedback"] = json!(reason);
                }
                Ok(verdict)
            }
            Self::Choice(name, _) => Ok(json!({ name: text })),
            Self::Field(name, kind) => match kind.as_str() {
                "string" => Ok(json!({ name: text })),
                "boolean" if is_yes || is_no => Ok(json!({ name: is_yes })),
                "boolean" => Err(format!("`{text}` is neither yes nor no")),
                _ => match serde_json::from_str::<serde_json::Number>(text) {
                    Ok(number) => Ok(json!({ name: number })),
                    Err(_) => Err(format!("`{text}` is not a number")),
                },
            },
            Self::Json => serde_json::from_str(text).map_err(|error| format!("not valid JSON: {error}")),
        }
    }
}

impl PersonModel {
    fn decide(request: &ModelRequest<'_>) -> Result<Reply, AskFailure> {
        let schema = request.tools.specs.iter().find(|spec| spec.name == ANSWER).map(|spec| &spec.schema);
        let form = AnswerForm::of(schema);
        let task = request.messages.iter().rev().find_map(|entry| match &entry.message {
            Message::User { text, .. } if !text.trim().is_empty() => Some(text.as_str()),
            Message::User { .. } | Message::Assistant(_) | Message::Tool(_) => None,
        });
        let answers: Vec<&ToolResult> = request
            .messages
            .iter()
            .filter_map(|entry| match &entry.message {
                Message::Tool(result) if result.name == ASK => Some(&**result),
                Message::User { .. } | Message::Assistant(_) | Message::Tool(_) => None,
            })
            .collect();
        let question = format!("{}{}", task.unwrap_or_default(), form.hint(schema));
        let Some(last) = answers.last() else { return Ok(ask(&question, form.options(), 0)) };
        if last.is_error {
            return Err(failed("no person answered the question"));
        }
        match (form.data(&last.text), schema) {
            (_, None) => Ok(reply(vec![Part::Text(last.text.clone())], StopReason::End)),
            (Ok(data), Some(_)) => Ok(reply(vec![call(ANSWER, ANSWER.to_owned(), data)], StopReason::Calls)),
            (Err(why), Some(_)) if answers.len() < MAX_TRIES => {
                Ok(ask(&format!("{why}\n\n{question}"), form.options(), answers.len()))
            }
            (Err(why), Some(_)) => Err(failed(&format!("the answer of the person cannot be used: {why}"))),
        }
    }
}

fn ask(question: &str, options: &[String], tries: usize) -> Reply {
    let args = json!({"question": question, "options": options});
    reply(vec![call(ASK, format!("ask/{tries}"), args)], StopReason::Calls)
}

fn call(name: &str, id: String, args: Value) -> Part {
    Part::from(ToolCall { id, name: name.to_owned(), args: Args::Json(args) })
}

fn reply(parts: Vec<Part>, stop: StopReason) -> Reply {
    Reply::new(parts).stop(stop)
}

fn failed(why: &str) -> AskFailure {
    let error = ModelError::Team { reason: why.to_owned(), data: None };
    AskFailure::new(error, Charge::Nothing)
}

impl Model for PersonModel {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let reply = Self::decide(&request)?;
            on_delta(Delta::Text(&reply.text()));
            Ok(reply)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(schema: Value, text: &str) -> Result<Value, String> {
        AnswerForm::of(Some(&schema)).data(text)
    }

    #[test]
    fn answers_are_read_by_the_schema() {
        let verdict = json!({"properties": {"accepted": {"type": "boolean"}, "feedback": {"type": "string"}}});
        assert_eq!(data(verdict.clone(), "Yes"), Ok(json!({"accepted": true})));
        assert_eq!(data(verdict.clone(), "no, too long"), Ok(json!({"accepted": false, "feedback": "too long"})));
        assert_eq!(data(verdict, "no"), Ok(json!({"accepted": false})));
        let choice = json!({"properties": {"speaker": {"enum": ["a", "b"]}}, "required": ["speaker"]});
        assert_eq!(AnswerForm::of(Some(&choice)).options(), ["a", "b"]);
        assert_eq!(data(choice, "b"), Ok(json!({"speaker": "b"})));
        let number = json!({"properties": {"n": {"type": "integer"}, "why": {"type": "string"}}, "required": ["n"]});
        assert_eq!((data(number.clone(), "7"), data(number, "x").is_err()), (Ok(json!({"n": 7})), true));
        let object = json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]});
        assert_eq!(data(object, "{\"a\": 1, \"b\": 2}"), Ok(json!({"a": 1, "b": 2})));
    }
}
