//! Writes Goose's extensions: its developer tools as one, and MCP servers.

use homing_core::{authority::Allow, definition::AgentDefinition, rule::Rule};
use serde_json::{Value, json};

use super::{
    Outcome,
    access::{AccessPlan, is_part, listed},
    targets::Target,
};
use crate::{build::DEVELOPER_TOOLS, fields::Field};

pub(super) fn write(definition: &AgentDefinition, target: &Target, plan: &mut AccessPlan) {
    let rules = &definition.tools;
    let servers = &definition.integrations.mcp_servers;
    if !rules.denied.is_empty() {
        plan.note("denied", Outcome::Wider, format!("{} cannot deny {}", target.program, listed(&rules.denied)));
    }
    if !rules.asked.is_empty() {
        let note = format!("{} cannot require approval for {}", target.program, listed(&rules.asked));
        plan.note("asked", Outcome::Wider, note);
    }
    let Allow::Only(allowed) = &rules.allowed else {
        if !servers.is_empty() {
            let note = "left out: a list of extensions would be the list of all its tools";
            plan.note("mcp_servers", Outcome::Dropped, note);
        }
        return;
    };
    let mut extensions = Vec::new();
    if allowed.iter().any(|rule| DEVELOPER_TOOLS.contains(&rule.tool.as_str())) {
        let has = |tool: &str| allowed.iter().any(|rule| rule.tool == tool && rule.pattern.is_none());
        let more: Vec<&str> =
            DEVELOPER_TOOLS.iter().copied().filter(|tool| !has(tool) && !is_part(allowed, tool)).collect();
        if !more.is_empty() {
            let note = format!("the extension `developer` also allows `{}`", more.join("`, `"));
            plan.note("tools", Outcome::Wider, note);
        }
        extensions.push(json!({"type": "builtin", "name": "developer"}));
    }
    let others: Vec<Rule> = allowed
        .iter()
        .filter(|rule| !DEVELOPER_TOOLS.contains(&rule.tool.as_str()) && !is_of_server(rule, servers))
        .cloned()
        .collect();
    if !others.is_empty() {
        plan.note("tools", Outcome::Narrower, format!("recipes have no {}", listed(&others)));
    }
    extensions.extend(servers.iter().filter_map(|(name, config)| extension(name, config, allowed)));
    plan.values.push((Field::Extensions, Value::Array(extensions)));
}

fn is_of_server(rule: &Rule, servers: &std::collections::BTreeMap<String, Value>) -> bool {
    servers.iter().any(|(name, config)| !config.is_null() && tool_of(rule, name).is_some())
}

/// The tool of a server that a rule names; `*` for all.
fn tool_of<'a>(rule: &'a Rule, server: &str) -> Option<&'a str> {
    match rule.tool.strip_prefix("mcp__")?.strip_prefix(server)? {
        "" => Some("*"),
        rest => rest.strip_prefix("__"),
    }
}

fn extension(name: &str, config: &Value, allowed: &[Rule]) -> Option<Value> {
    let tools: Vec<&str> = allowed.iter().filter_map(|rule| tool_of(rule, name)).collect();
    let mut extension =
        match (config.get("command").or_else(|| config.get("cmd")), config.get("url").or_else(|| config.get("uri"))) {
            (Some(command), _) => json!({
                "type": "stdio", "name": name, "cmd": command,
                "args": config.get("args").cloned().unwrap_or(json!([])),
            }),
            (None, Some(url)) => json!({"type": "streamable_http", "name": name, "uri": url}),
            (None, None) => return None,
        };
    if let Some(env) = config.get("env").or_else(|| config.get("envs")) {
        extension["envs"] = env.clone();
    }
    if let Some(headers) = config.get("headers") {
        extension["headers"] = headers.clone();
    }
    if !tools.is_empty() && !tools.contains(&"*") {
        extension["available_tools"] = json!(tools);
    }
    Some(extension)
}
