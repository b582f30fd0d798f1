//! A file's definition and remarks as text that fits into a snapshot.
#![allow(dead_code, reason = "each test file uses its part of this")]

use std::path::Path;

use homing_core::definition::{AgentDefinition, Scope};
use homing_load::{ParseOptions, Parsed, ParsedFile, parse};

/// Reads `text` as the file at `path` and shows what came of it.
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
    for it in &parsed.diagnostics {
        let hint = it.hint.as_deref().map(|it| format!(" [{it}]")).unwrap_or_default();
        let text = it.to_string();
        let text = text.split_once(": ").map_or(text.as_str(), |_| &text);
        let path = it.path.as_ref().map(|it| format!("{}:", it.display())).unwrap_or_default();
        lines.push(format!("! {}{hint}", text.strip_prefix(&path).unwrap_or(text)));
    }
    lines.join("\n")
}

/// Every field that differs from an empty definition's, one a line.
fn fields(definition: &AgentDefinition) -> Vec<String> {
    let value = |it: &AgentDefinition| serde_json::to_value(it).expect("a definition is JSON");
    let (value, empty) = (value(definition), value(&AgentDefinition::default()));
    let mut lines = Vec::new();
    for (key, value) in value.as_object().expect("an object") {
        if key == "source" {
            lines.push(format!("dialect: {}", definition.source.dialect));
        } else if key == "limits" {
            let said = value.as_object().expect("an object").iter().filter(|(_, it)| *it != "default");
            lines.extend(said.map(|(key, it)| format!("limit {key}: {it}")));
        } else if empty.get(key) != Some(value) {
            lines.push(format!("{key}: {value}"));
        }
    }
    lines
}
