//! Shows the definition and diagnostics of a file as text for snapshots.
#![allow(dead_code, reason = "each test file uses its part of this")]

use std::path::Path;

use homing_core::definition::{AgentDefinition, Scope};
use homing_load::{ParseOptions, Parsed, ParsedFile, parse};

/// Parses `text` as the file at `path` and shows the result.
pub(crate) fn read(path: &str, text: &str) -> String {
    show(&parsed(path, text))
}

pub(crate) fn parsed(path: &str, text: &str) -> Parsed {
    parse(Path::new(path), text.as_bytes().to_vec(), ParsedFile::Named, Scope::Project, &ParseOptions::default())
}

/// The only definition of a file that must load.
pub(crate) fn definition(text: &str) -> AgentDefinition {
    let mut parsed = parsed(".claude/agents/file.md", text);
    assert_eq!(parsed.definitions.len(), 1, "{:?}", parsed.diagnostics);
    parsed.definitions.remove(0)
}

pub(crate) fn show(parsed: &Parsed) -> String {
    let mut lines: Vec<String> = parsed.definitions.iter().flat_map(fields).collect();
    for diagnostic in &parsed.diagnostics {
        let hint = diagnostic.hint.as_deref().map(|hint| format!(" [{hint}]")).unwrap_or_default();
        let text = diagnostic.to_string();
        let path = diagnostic.path.as_ref().map(|path| format!("{}:", path.display())).unwrap_or_default();
        lines.push(format!("! {}{hint}", text.strip_prefix(&path).unwrap_or(&text)));
    }
    lines.join("\n")
}

/// All fields that differ from an empty definition, one per line.
fn fields(definition: &AgentDefinition) -> Vec<String> {
    let value = |definition: &AgentDefinition| serde_json::to_value(definition).expect("a definition is JSON");
    let (value, empty) = (value(definition), value(&AgentDefinition::default()));
    let mut lines = Vec::new();
    for (key, value) in value.as_object().expect("an object") {
        if key == "source" {
            lines.push(format!("dialect: {}", definition.source.dialect));
        } else if key == "limits" {
            let set = value.as_object().expect("an object").iter().filter(|(_, limit)| *limit != "default");
            lines.extend(set.map(|(key, limit)| format!("limit {key}: {limit}")));
        } else if empty.get(key) != Some(value) {
            lines.push(format!("{key}: {value}"));
        }
    }
    lines
}
