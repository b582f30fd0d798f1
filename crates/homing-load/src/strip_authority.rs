//! Takes from a definition what only a trusted file may ask for. It decides nothing about trust itself.

use std::sync::Arc;

use homing_core::{
    definition::{AgentDefinition, PermissionMode},
    diagnostic::Diagnostic,
    limits::{Limit, Limits},
};
use serde_json::Value;

/// Takes away hooks, MCP servers, what may be handed on, modes that act without asking, and limits above `ceiling`, which
/// is what the user allows, or the built-in default where the user is silent; says what was taken. Name, description,
/// prompt, model and everything that narrows stay.
pub fn without_authority(definition: &mut AgentDefinition, ceiling: Limits) -> Vec<Diagnostic> {
    let lowered = lower(&mut definition.limits, ceiling);
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
    if let Some(lowered) = &lowered {
        taken.push(("limits", lowered.as_str()));
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

/// Lowers what lies above the ceiling; says what became of each such limit.
fn lower(limits: &mut Limits, ceiling: Limits) -> Option<String> {
    // A delegated run has less time by default than a root, and the file may be used for either.
    let work_ms = ceiling.work_ms.or(Limits::delegated().work_ms);
    let ceiling = Limits { work_ms, ..ceiling }.or(Limits::root());
    let before = std::mem::replace(limits, limits.within(ceiling));
    let lowered = Limit::SETTABLE.into_iter().filter(|it| before.cap(*it) != limits.cap(*it));
    let words = |limit: Limit| {
        let got = limits.cap(limit).or(ceiling.cap(limit));
        format!("{limit} {} instead of {}", limit.shown(got), limit.shown(before.cap(limit)))
    };
    let lowered: Vec<String> = lowered.map(words).collect();
    (!lowered.is_empty()).then(|| format!("its limits only narrow yours: {}", lowered.join(", ")))
}
