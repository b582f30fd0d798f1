//! The effects of trusting a project: its hooks, MCP servers and permissions, and the agents that it replaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    definition::{AgentDefinition, Scope},
    limits::Limits,
};
use homing_load::{
    Discovered, ParseOptions, Places, StrippedField, TrustPolicy, discover, discover_trusted, is_about_hidden_agent,
};
use homing_tools::{
    mcp::ServerConfig,
    trust::{
        AuthorityFiles, TrustState,
        settings::{ClaudeSettings, Trust},
    },
};
use serde_json::Value;

use crate::{columns, terminal};

/// Maximum number of lines in a group.
const MAX_LINES: usize = 20;

/// Maximum length of a command that is shown.
const MAX_COMMAND: usize = 160;

/// Maximum number of files that are named one by one.
const MAX_FILES: usize = 10;

/// An effect and the file that has it.
struct Effect {
    text: String,
    /// Relative to the project, if it is known.
    file: PathBuf,
}

/// Everything that takes effect once a project is trusted.
#[derive(Default)]
pub(super) struct Effects {
    hooks: Vec<Effect>,
    servers: Vec<Effect>,
    permissions: Vec<Effect>,
    replaced: Vec<Effect>,
}

impl Effects {
    /// Collects the effects from the bytes that are hashed, and from the agents' files.
    pub(super) fn of(files: &AuthorityFiles, places: &Places) -> Self {
        let mut effects = Self::default();
        for path in files.paths() {
            let bytes = files.get(path).unwrap_or_default();
            let name = path.file_name().unwrap_or_default();
            if name == ".mcp.json" {
                effects.add_servers(path, bytes);
            } else if path.parent().is_some_and(|folder| folder.ends_with(".claude"))
                && (name == "settings.json" || name == "settings.local.json")
            {
                effects.add_settings(path, bytes);
            }
        }
        let options = ParseOptions::default();
        let untrusted = TrustPolicy { is_trusted: &|scope, _| scope != Scope::Project, ceiling: Limits::default() };
        let (stripped, trusted) = (discover_trusted(places, &options, untrusted).stripped, discover(places, &options));
        for field in &stripped {
            effects.add_agent(field, &trusted, files.root());
        }
        for diagnostic in trusted.diagnostics.iter().filter(|diagnostic| is_about_hidden_agent(diagnostic)) {
            let path = diagnostic.path.as_ref().map(|path| path.as_path());
            let text = diagnostic.message.replace("this project's ", "");
            effects.replaced.push(Effect { text, file: relative(path, files.root()) });
        }
        effects
    }

    fn add_settings(&mut self, path: &Path, bytes: &[u8]) {
        let Ok(settings) = ClaudeSettings::parse(&path.display().to_string(), bytes) else { return };
        for text in hooks(&settings.hooks(Trust::Trusted)) {
            self.hooks.push(Effect { text, file: path.to_owned() });
        }
        for rule in settings.allowed(Trust::Trusted) {
            self.permissions.push(Effect { text: format!("allow {rule}"), file: path.to_owned() });
        }
    }

    fn add_servers(&mut self, path: &Path, bytes: &[u8]) {
        let json: Value = serde_json::from_slice(bytes).unwrap_or_default();
        for (name, value) in json.get("mcpServers").and_then(Value::as_object).into_iter().flatten() {
            self.servers.push(Effect { text: server(name, value), file: path.to_owned() });
        }
    }

    fn add_agent(&mut self, field: &StrippedField, trusted: &Discovered, root: &Path) {
        let StrippedField { agent: name, field, .. } = field;
        let is_it = |agent: &&Arc<AgentDefinition>| agent.name == *name && agent.source.kind == Scope::Project;
        let Some(agent) = trusted.registry.definitions().find(is_it) else { return };
        let effect = |text: String| Effect {
            text: format!("agent {name}: {text}"),
            file: relative(agent.source.path.as_deref(), root),
        };
        match field.as_str() {
            "hooks" => self.hooks.extend(hooks(&agent.integrations.hooks).into_iter().map(effect)),
            "mcpServers" => {
                let servers = agent.integrations.mcp_servers.iter().map(|(name, value)| server(name, value));
                self.servers.extend(servers.map(effect));
            }
            "delegates" => {
                let rules = agent.tools.delegates.iter().flatten().map(ToString::to_string);
                self.permissions.push(effect(format!("its children may use {}", rules.collect::<Vec<_>>().join(", "))));
            }
            "permissionMode" => self.permissions.push(effect("acts without asking (permissionMode)".to_owned())),
            "taint" => {
                self.permissions.push(effect("uses the network after untrusted content (taint: off)".to_owned()))
            }
            "memory" => self.permissions.push(effect("keeps notes between runs (memory)".to_owned())),
            other => self.permissions.push(effect(format!("its own `{other}`"))),
        }
    }

    /// Prints the groups; effects of files that changed since they were trusted are marked.
    pub(super) fn print(&self, state: &TrustState) {
        let (added, changed): (BTreeSet<_>, BTreeSet<_>) = match state {
            TrustState::Changed { added, changed, .. } => (added.iter().collect(), changed.iter().collect()),
            TrustState::Nothing | TrustState::Trusted | TrustState::Untrusted => Default::default(),
        };
        let mark = |file: &PathBuf| match (added.contains(file), changed.contains(file)) {
            (true, _) => " [new]",
            (false, true) => " [changed]",
            (false, false) => "",
        };
        let groups = [
            ("hooks that run as you", &self.hooks),
            ("MCP servers that may start, once their tools are approved", &self.servers),
            ("permissions", &self.permissions),
            ("replaced agents and skills", &self.replaced),
        ];
        for (title, effects) in groups.iter().filter(|(_, effects)| !effects.is_empty()) {
            terminal::say(&format!("{title}:"));
            for Effect { text, file } in effects.iter().take(MAX_LINES) {
                let text = columns::cut(&text.replace('\n', " ⏎ "), MAX_COMMAND);
                terminal::say(&format!("  {text}  ({}){}", file.display(), mark(file)));
            }
            if effects.len() > MAX_LINES {
                terminal::say(&format!("  … and {} more", effects.len() - MAX_LINES));
            }
        }
        if groups.iter().all(|(_, effects)| effects.is_empty()) {
            terminal::say("no hooks, MCP servers or wider permissions");
        }
    }
}

/// Prints the files: their names if there are few, otherwise their number in each folder.
pub(super) fn print_files(files: &AuthorityFiles, names_all: bool) {
    let paths: Vec<&Path> = files.paths().collect();
    if names_all || paths.len() <= MAX_FILES {
        paths.iter().for_each(|path| terminal::say(&format!("  {}", path.display())));
        return;
    }
    let mut folders: BTreeMap<&Path, usize> = BTreeMap::new();
    for path in &paths {
        // Deep folders, such as those of skills, are summed up.
        let depth = path.components().count();
        let folder = path.ancestors().nth(depth.saturating_sub(2).max(1)).unwrap_or(Path::new(""));
        *folders.entry(folder).or_default() += 1;
    }
    for (folder, count) in folders.iter().take(MAX_LINES) {
        let name = if folder.as_os_str().is_empty() { ".".to_owned() } else { folder.display().to_string() };
        terminal::say(&format!("  {name}: {}", crate::progress::figures::count(*count as u64, "file")));
    }
    if folders.len() > MAX_LINES {
        terminal::say(&format!("  … and {} more folders", folders.len() - MAX_LINES));
    }
}

/// Returns one line for each command in hooks: the event, the tools that it concerns, and the command.
fn hooks(hooks: &Value) -> Vec<String> {
    let Some(events) = hooks.as_object() else {
        return if hooks.is_null() { Vec::new() } else { vec![hooks.to_string()] };
    };
    let mut lines = Vec::new();
    for (event, groups) in events {
        let groups = groups.as_array().cloned().unwrap_or_else(|| vec![groups.clone()]);
        for group in &groups {
            let matcher = group["matcher"].as_str().filter(|matcher| !matcher.is_empty());
            let matcher = matcher.map(|matcher| format!(" ({matcher})")).unwrap_or_default();
            let mut commands = Vec::new();
            add_commands(group, &mut commands);
            if commands.is_empty() {
                commands.push(group.to_string());
            }
            lines.extend(commands.into_iter().map(|command| format!("{event}{matcher}: {command}")));
        }
    }
    lines
}

/// Finds the commands in a value, however deep.
fn add_commands(value: &Value, commands: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            commands.extend(fields.get("command").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| add_commands(value, commands));
        }
        Value::Array(items) => items.iter().for_each(|item| add_commands(item, commands)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

fn server(name: &str, value: &Value) -> String {
    match ServerConfig::parse(name, value) {
        Ok(config) => format!("{name}: {}", config.place),
        Err(_) if value.is_null() => format!("{name} (defined elsewhere)"),
        Err(error) => format!("{name}: {error}"),
    }
}

fn relative(path: Option<&Path>, root: &Path) -> PathBuf {
    path.map(|path| path.strip_prefix(root).unwrap_or(path).to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hooks_are_listed_with_event_tools_and_command() {
        let settings = json!({
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}, {"command": "b"}]}],
            "Stop": "x",
        });
        assert_eq!(hooks(&settings), ["PreToolUse (Bash): ./check.sh", "PreToolUse (Bash): b", "Stop: \"x\""]);
        assert!(hooks(&Value::Null).is_empty() && hooks(&json!({})).is_empty());
    }
}
