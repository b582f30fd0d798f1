//! Explains one agent: its origin, the agents it hides, its tools and limits, and why they are so.

use std::io::{self, Write};

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, ModelChoice, PermissionMode},
    registry::RegistryEntry,
    rule::Rule,
    sanitize,
};
use serde_json::Value;

use super::{diagnostics, scope};
use crate::{commands::run::plan, session::Session};

/// Prints the page. `effective` are the tools and limits of a root run.
pub(super) fn explain(
    entry: &RegistryEntry,
    session: &Session,
    effective: &Value,
    out: &mut dyn Write,
) -> io::Result<()> {
    let definition = &entry.definition;
    let mut page = Page { out };
    page.line("agent", &definition.name)?;
    for title in definition.title.iter().chain(&definition.aliases) {
        page.line("also", title)?;
    }
    page.line("about", &definition.description)?;
    page.line("from", &origin(definition))?;
    for hidden in &entry.shadows {
        page.line("hides", &origin(hidden))?;
    }
    page.line("model", &model(&definition.model.choice))?;
    page.line("tools", &tools(definition))?;
    if !definition.tools.denied.is_empty() {
        page.line("denied", &rules(&definition.tools.denied))?;
    }
    if !definition.tools.asked.is_empty() {
        page.line("asks", &rules(&definition.tools.asked))?;
    }
    if let Some(mode) = definition.execution.permission_mode {
        page.line("mode", permission(mode))?;
    }
    if !definition.attachments.skills.is_empty() {
        page.line("skills", &definition.attachments.skills.join(", "))?;
    }
    if let Some(observers) = &definition.execution.observers {
        page.line("observers", &observers.agents.join(", "))?;
    }
    page.line("gets", &effective_tools(effective))?;
    for limit in effective["limits"].as_array().into_iter().flatten().filter(|limit| !limit["value"].is_null()) {
        page.line("limit", &limit_line(limit))?;
    }
    page.line("prompt", &format!("{} characters", definition.prompt.chars().count()))?;
    for diagnostic in diagnostics(entry, session) {
        let line = if diagnostic.line > 0 { format!("line {}: ", diagnostic.line) } else { String::new() };
        page.line("warning", &format!("{line}{}", diagnostic.message))?;
    }
    Ok(())
}

struct Page<'a> {
    out: &'a mut dyn Write,
}

impl Page<'_> {
    fn line(&mut self, label: &str, value: &str) -> io::Result<()> {
        writeln!(self.out, "{label:<10} {}", sanitize::inert_line(value))
    }
}

/// Lists the tools of a root run; a note follows those that need approval or depend on their arguments.
fn effective_tools(effective: &Value) -> String {
    let text = |tool: &Value, key: &str| tool[key].as_str().unwrap_or_default().to_owned();
    let name = |tool: &Value| match tool["decided"].as_str() {
        Some("allowed") => text(tool, "name"),
        _ => format!("{} ({})", text(tool, "name"), text(tool, "decided")),
    };
    effective["tools"].as_array().into_iter().flatten().map(name).collect::<Vec<_>>().join(", ")
}

fn limit_line(limit: &Value) -> String {
    let value = plan::limit_value(limit);
    format!("{}: {value} ({})", limit["name"].as_str().unwrap_or_default(), limit["from"].as_str().unwrap_or_default())
}

fn origin(definition: &AgentDefinition) -> String {
    let source = &definition.source;
    match &source.path {
        None => scope(source.kind).to_owned(),
        Some(path) => format!("{}: {} ({})", scope(source.kind), path.display(), source.dialect),
    }
}

fn model(model: &ModelChoice) -> String {
    match model {
        ModelChoice::Inherit => "its parent's, or the default for a root run".to_owned(),
        ModelChoice::Named(names) => names.join(", else "),
        ModelChoice::Exact(name) => name.clone(),
        _ => "the default".to_owned(),
    }
}

fn tools(definition: &AgentDefinition) -> String {
    match &definition.tools.allowed {
        Allow::All => "not restricted by its file".to_owned(),
        Allow::Only(list) if list.is_empty() => "none (its file names no tool that exists)".to_owned(),
        Allow::Only(list) => rules(list),
    }
}

fn rules(rules: &[Rule]) -> String {
    rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn permission(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Plan => "changes nothing",
        PermissionMode::Ask => "asks before it changes anything",
        PermissionMode::Edit => "edits files without asking",
        PermissionMode::All => "does everything it is allowed to without asking",
    }
}
