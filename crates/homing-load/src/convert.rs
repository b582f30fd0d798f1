//! Writes a definition in the form of another ecosystem, and reports what becomes of each field.
//!
//! Every written file is read back by the loader, and the report names each difference. It reads and writes no files.

mod access;
mod authority;
mod base_targets;
mod emit;
mod extensions;
mod models;
mod permission;
mod servers;
mod settings;
mod target_rows;
mod targets;

use std::path::{Path, PathBuf};

use homing_core::{
    definition::{AgentDefinition, Scope},
    limits::{Cap, Limit},
};
use serde_json::{Map, Value, json};

use self::{
    authority::McpNames,
    settings::Writer,
    targets::{Access, Syntax},
};
use crate::parse::{ParseOptions, ParsedFile, parse};

pub use target_rows::{form_table, target, targets};
pub use targets::Target;

/// An agent in the form of another ecosystem.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Conversion {
    /// The name of the agent.
    pub agent: String,
    /// The file that the ecosystem reads, relative to a project.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
    /// The changes of its fields, the gravest first.
    pub report: Vec<Change>,
    /// The agent's part of a file that contains all agents.
    member: Option<Value>,
}

impl Conversion {
    /// Returns the restrictions that the form cannot express.
    pub fn wider(&self) -> impl Iterator<Item = &Change> {
        self.report.iter().filter(|change| change.outcome == Outcome::Wider)
    }
}

/// The change of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The field as `AgentDefinition` calls it in JSON; limits as `limits.turns`.
    pub field: String,
    /// The kind of the change.
    pub outcome: Outcome,
    /// An explanation; empty if the field is kept.
    pub note: String,
}

/// The kind of a change, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// A restriction is lost: the agent may do more.
    Wider,
    /// The field is lost.
    Dropped,
    /// The agent may do less.
    Narrower,
    /// The field has another value with the same or nearly the same meaning.
    Mapped,
    /// The field is unchanged.
    Kept,
}

impl Outcome {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wider => "wider",
            Self::Dropped => "dropped",
            Self::Narrower => "narrower",
            Self::Mapped => "mapped",
            Self::Kept => "kept",
        }
    }
}

/// Translates the name of a model to `provider/model`; `None` if it is not known.
pub type ModelNames<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Writes a definition in the form of `target`.
pub fn convert(definition: &AgentDefinition, target: &'static Target, models: ModelNames<'_>) -> Conversion {
    let mut writer = Writer::new(definition, target, models);
    let front = writer.write();
    let name = file_name(&definition.name);
    let path = Path::new(target.folder).join(match target.syntax {
        Syntax::Modes => target.ending.to_owned(),
        Syntax::Markdown | Syntax::Toml | Syntax::Yaml | Syntax::Json => format!("{name}{}", target.ending),
    });
    let (text, member) = match target.syntax {
        Syntax::Markdown => (emit::markdown(&front, definition.prompt.trim()), None),
        Syntax::Toml => (emit::toml(&front), None),
        Syntax::Yaml => (emit::yaml(&front), None),
        Syntax::Json => (emit::json(&front), None),
        Syntax::Modes => {
            let member = Value::Object(front);
            (modes(vec![member.clone()]), Some(member))
        }
    };
    let report = report(definition, target, &path, &text, writer.changes);
    Conversion { agent: definition.name.clone(), path, text, report, member }
}

/// Returns the files of several conversions. Some ecosystems have one file for all agents.
pub fn files(conversions: &[Conversion]) -> Vec<(PathBuf, String)> {
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for conversion in conversions {
        if files.iter().any(|(path, _)| *path == conversion.path) {
            continue;
        }
        let members = conversions.iter().filter(|other| other.path == conversion.path);
        let members: Vec<Value> = members.filter_map(|other| other.member.clone()).collect();
        let text = if members.len() > 1 { modes(members) } else { conversion.text.clone() };
        files.push((conversion.path.clone(), text));
    }
    files
}

fn modes(members: Vec<Value>) -> String {
    let mut file = Map::new();
    file.insert("customModes".to_owned(), Value::Array(members));
    emit::json(&file)
}

/// The name of a file: `plugin:name` without the plugin.
fn file_name(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

/// Reads the file back and names each difference.
fn report(
    definition: &AgentDefinition,
    target: &'static Target,
    path: &Path,
    text: &str,
    mut changes: Vec<Change>,
) -> Vec<Change> {
    let found = ParsedFile::Among(target.dialect());
    let parsed = parse(path, text.as_bytes().to_vec(), found, Scope::Project, &ParseOptions::default());
    let Some(back) = parsed.definitions.first() else {
        let reason = parsed.diagnostics.first().map(ToString::to_string).unwrap_or_default();
        changes.push(Change {
            field: "file".into(),
            outcome: Outcome::Wider,
            note: format!("cannot be read back: {reason}"),
        });
        return changes;
    };
    let names = if matches!(target.access, Access::Permission) { McpNames::Joined } else { McpNames::Exact };
    let is_known = |changes: &[Change], field: &str| {
        let is_tool_field = |field: &str| matches!(field, "tools" | "denied" | "permission_mode");
        changes.iter().any(|change| {
            change.outcome == Outcome::Wider
                && (change.field == field || (is_tool_field(field) && is_tool_field(&change.field)))
        })
    };
    for lost in authority::widened(definition, back, names) {
        if !is_known(&changes, lost.field) {
            changes.push(Change { field: lost.field.to_owned(), outcome: Outcome::Wider, note: lost.what });
        }
    }
    let (before, after) = (fields(definition), fields(back));
    let empty = fields(&AgentDefinition::default());
    for (field, value) in &before {
        let (now, is_default) = (after.get(field), empty.get(field) == Some(value));
        let is_noted = changes.iter().any(|change| change.field == *field);
        if now == Some(value) {
            if !is_default && !is_noted {
                changes.push(Change { field: field.clone(), outcome: Outcome::Kept, note: String::new() });
            }
        } else if !is_noted {
            changes.push(difference(field, value, now, empty.get(field), target));
        }
    }
    for (field, value) in after.iter().filter(|(field, _)| !before.contains_key(*field)) {
        if !changes.iter().any(|change| change.field == *field) {
            changes.push(Change {
                field: field.clone(),
                outcome: Outcome::Mapped,
                note: format!("set to {}", short(value)),
            });
        }
    }
    changes.sort_by_key(|change| change.outcome);
    changes
}

/// A difference that the writer did not explain.
fn difference(field: &str, value: &Value, now: Option<&Value>, default: Option<&Value>, target: &Target) -> Change {
    let field = field.to_owned();
    match now.filter(|now| Some(*now) != default) {
        Some(now) => {
            Change { field, outcome: Outcome::Mapped, note: format!("{} is written as {}", short(value), short(now)) }
        }
        None if Some(value) == default => {
            Change { field, outcome: Outcome::Mapped, note: "set to the default".to_owned() }
        }
        None => {
            let note = format!("{} has no such setting: {} is lost", target.program, short(value));
            Change { field, outcome: Outcome::Dropped, note }
        }
    }
}

/// A value in a few words.
fn short(value: &Value) -> String {
    const MOST: usize = 80;
    let text = plain(value).replace('\n', " ");
    let cut: String = text.chars().take(MOST).collect();
    if cut.len() < text.len() { format!("`{cut}…`") } else { format!("`{cut}`") }
}

/// A value without JSON's punctuation, if it is simple.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(map) if map.len() == 1 && (map.contains_key("only") || map.contains_key("named")) => {
            map.values().map(plain).collect()
        }
        other => other.to_string(),
    }
}

/// The fields of a definition as JSON, with each limit as a field of its own.
fn fields(definition: &AgentDefinition) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(definition) else { return Map::new() };
    fields.shift_remove("source");
    fields.shift_remove("limits");
    for limit in Limit::SETTABLE {
        let value = match definition.limits.cap(limit) {
            Cap::Default => continue,
            Cap::Unlimited => json!("none"),
            Cap::At(value) => json!(value),
        };
        fields.insert(format!("limits.{limit}"), value);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{self, Field};

    /// The meaning of a key in a dialect, as the loader has it.
    fn meaning_of(target: &Target, key: &str) -> Option<Field> {
        let folded = fields::fold(key.rsplit('.').next().unwrap_or(key));
        let own = target.dialect().fields.iter().find(|(other, _)| *other == folded).map(|(_, field)| *field);
        own.or_else(|| fields::lookup(&folded))
    }

    /// A key that is written must be read as the same field.
    #[test]
    fn written_keys_are_those_that_the_loader_reads() {
        for target in targets() {
            for (field, key) in target.keys {
                let found = meaning_of(target, key);
                // Inside of a map, two keys have another meaning.
                let is_nested = matches!(*key, "response.json_schema" | "budget.maxTokens");
                assert!(found == Some(*field) || is_nested, "{}: `{key}` is read as {found:?}", target.name());
            }
        }
    }
}
