//! Removes from a definition what only a trusted file may ask for. It does not decide which files are trusted.

use std::{path::Path, sync::Arc};

use homing_core::{
    definition::{AgentDefinition, PermissionMode},
    diagnostic::Diagnostic,
    limits::{Limit, Limits},
    taint::TaintMode,
};
use serde_json::Value;

/// Removes hooks, MCP servers, memory, delegated authority, permission modes that act without asking, the class of service, and limits
/// above `ceiling` (the user's limits; the built-in defaults apply to those that are not set). Returns one warning per removed field. Name,
/// description, prompt, model and all restrictions stay.
pub fn without_authority(definition: &mut AgentDefinition, ceiling: Limits) -> Vec<Diagnostic> {
    let lowered = lower(&mut definition.limits, ceiling);
    let mut removed = Vec::new();
    if !std::mem::take(&mut definition.integrations.hooks).is_null() {
        removed.push(("hooks", "hooks do not run"));
    }
    if !std::mem::take(&mut definition.integrations.mcp_servers).is_empty() {
        removed.push(("mcpServers", "MCP servers are not started"));
    }
    if definition.tools.delegates.take().is_some() {
        removed.push(("delegates", "children get no tools beyond the agent's own"));
    }
    if matches!(definition.execution.permission_mode, Some(PermissionMode::Edit | PermissionMode::All)) {
        definition.execution.permission_mode = None;
        removed.push(("permissionMode", "the default permission mode applies"));
    }
    if definition.execution.taint == Some(TaintMode::Off) {
        definition.execution.taint = None;
        removed.push(("taint", "network use after untrusted content needs approval"));
    }
    if definition.execution.memory.take().is_some() {
        removed.push(("memory", "it keeps no notes between runs"));
    }
    // A faster class of service costs more than the price that limits are computed with.
    if definition.model.sampling.service_tier.take().is_some() {
        removed.push(("service_tier", "the provider's default class of service applies"));
    }
    if let Some(lowered) = &lowered {
        removed.push(("limits", lowered.as_str()));
    }
    for key in ["base_url", "baseUrl", "env", "api_key", "apiKey"] {
        if definition.extra.unknown.remove(key).is_some() | definition.extra.metadata.remove(key).is_some() {
            removed.push((key, "it is ignored"));
        }
    }
    debug_assert_eq!(definition.integrations.hooks, Value::Null);
    let path = definition.source.path.as_deref();
    removed.into_iter().map(|(field, effect)| needs_trust(path, field, effect)).collect()
}

/// The warning about a field that has no effect until its file is trusted.
pub(crate) fn needs_trust(path: Option<&Path>, field: &str, effect: &str) -> Diagnostic {
    Diagnostic::warning(format!("`{field}` needs trust: until this file is trusted, {effect}"))
        .on(field)
        .hint("review the file, then trust the project")
        .path(path.map(|path| Arc::new(path.to_owned())))
}

/// Lowers the limits that exceed the ceiling and describes the changes.
fn lower(limits: &mut Limits, ceiling: Limits) -> Option<String> {
    // A delegated run has less time by default than a root run, and the definition may be used for either.
    let work_ms = ceiling.work_ms.or(Limits::delegated().work_ms);
    let ceiling = ceiling.with(Limit::Work, work_ms).or(Limits::root());
    let before = std::mem::replace(limits, limits.within(ceiling));
    let lowered = Limit::SETTABLE.into_iter().filter(|limit| before.cap(*limit) != limits.cap(*limit));
    let describe = |limit: Limit| {
        let got = limits.cap(limit).or(ceiling.cap(limit));
        format!("{limit} {} instead of {}", limit.shown(got), limit.shown(before.cap(limit)))
    };
    let lowered: Vec<String> = lowered.map(describe).collect();
    (!lowered.is_empty()).then(|| format!("its limits cannot exceed yours: {}", lowered.join(", ")))
}
