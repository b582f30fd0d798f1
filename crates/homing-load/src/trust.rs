//! Takes from a definition what only a trusted file may ask for. It decides nothing about trust itself.

use std::sync::Arc;

use homing_core::{
    definition::{AgentDefinition, PermissionMode},
    diagnostic::Diagnostic,
    limits::{Cap, Limits},
};
use serde_json::Value;

/// Takes away hooks, MCP servers, what may be handed on, modes that act without asking, and limits that were lifted;
/// says what was taken. Name, description, prompt, model and everything that narrows stay.
pub fn without_authority(definition: &mut AgentDefinition) -> Vec<Diagnostic> {
    let mut taken = Vec::new();
    if !std::mem::take(&mut definition.hooks).is_null() {
        taken.push(("hooks", "hooks do not run"));
    }
    if !std::mem::take(&mut definition.mcp_servers).is_empty() {
        taken.push(("mcpServers", "MCP servers are not started"));
    }
    if definition.delegates.take().is_some() {
        taken.push(("delegates", "nothing beyond the agent's own tools is handed on"));
    }
    if matches!(definition.permission_mode, Some(PermissionMode::Edit | PermissionMode::All)) {
        definition.permission_mode = None;
        taken.push(("permissionMode", "the default permission mode applies"));
    }
    if lower(&mut definition.limits) {
        taken.push(("limits", "limits that were lifted are the default ones"));
    }
    for key in ["base_url", "baseUrl", "env", "api_key", "apiKey"] {
        if definition.unknown.remove(key).is_some() | definition.metadata.remove(key).is_some() {
            taken.push((key, "it has no effect"));
        }
    }
    let path = definition.source.path.clone().map(Arc::new);
    let remark = |(field, what): (&str, &str)| Diagnostic {
        path: path.clone(),
        ..Diagnostic::warning(format!("`{field}` needs trust: until this file is trusted, {what}"))
            .on(field)
            .hint("look at the file, then run `homing trust`")
    };
    debug_assert_eq!(definition.hooks, Value::Null);
    taken.into_iter().map(remark).collect()
}

/// `none` in a stranger's file says nothing.
fn lower(limits: &mut Limits) -> bool {
    let caps = [
        &mut limits.turns,
        &mut limits.depth,
        &mut limits.tokens,
        &mut limits.cost_micros,
        &mut limits.tool_calls,
        &mut limits.children,
        &mut limits.wall_ms,
        &mut limits.work_ms,
    ];
    let lifted = caps.into_iter().filter(|it| **it == Cap::Unlimited);
    lifted.map(|it| *it = Cap::Default).count() > 0
}
