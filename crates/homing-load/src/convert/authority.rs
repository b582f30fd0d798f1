//! Compares what two definitions allow. Errs on the side of "wider".

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, Isolation, OfferedTo, PermissionMode},
    rule::Rule,
    taint::TaintMode,
    tool_names::{
        self, ANSWER, BASH, CANCEL, DELEGATE, DIFF, EDIT, FETCH, GLOB, GREP, LS, READ, SKILL, TELL, THINK, TODO, TREE,
        WAIT, WEBSEARCH, WRITE,
    },
};

/// The spelling in which MCP tools are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum McpNames {
    Exact,
    /// `mcp__a__b_c` and `mcp__a_b__c` are one name, as in programs that join server and tool by one underscore.
    Joined,
}

/// The calls of one tool that a definition allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallSet {
    None,
    Some(Vec<String>),
    All,
}

/// A restriction of the first definition that the second lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LostRestriction {
    /// The field of the definition.
    pub(super) field: &'static str,
    pub(super) what: String,
}

/// Returns what `after` allows beyond `before`.
pub(super) fn widened(before: &AgentDefinition, after: &AgentDefinition, names: McpNames) -> Vec<LostRestriction> {
    let (before, after) = (&joined(before, names), &joined(after, names));
    let mut lost = Vec::new();
    let tools = tool_names::all().map(str::to_owned).chain(mcp_probes(before)).chain(mcp_probes(after));
    for tool in tools.chain(["mcp__another__tool".to_owned()]) {
        if let Some(what) = widened_tool(before, after, &tool) {
            let field = if what.asks { "asked" } else { "tools" };
            let what = what.text;
            if !lost.iter().any(|other: &LostRestriction| other.what == what) {
                lost.push(LostRestriction { field, what });
            }
        }
    }
    lost.extend(widened_settings(before, after));
    lost
}

fn widened_settings(before: &AgentDefinition, after: &AgentDefinition) -> Vec<LostRestriction> {
    let (was, is) = (&before.execution, &after.execution);
    let mut lost = Vec::new();
    let mut add = |field, what: &str| lost.push(LostRestriction { field, what: what.to_owned() });
    if was.offered_to == OfferedTo::User && is.offered_to != OfferedTo::User {
        add("offered_to", "models may start it, not only the user");
    }
    if was.isolation == Isolation::Worktree && is.isolation != Isolation::Worktree {
        add("isolation", "it works in the user's own files, not in a worktree");
    }
    if was.taint == Some(TaintMode::Deny) && is.taint != was.taint {
        add("taint", "the network stays open after untrusted content was read");
    }
    if guards_calls(before) && before.integrations.hooks != after.integrations.hooks {
        add("hooks", "hooks that check its calls do not run");
    }
    lost
}

/// Returns true if a hook may deny calls.
pub(super) fn guards_calls(definition: &AgentDefinition) -> bool {
    definition.integrations.hooks.get("PreToolUse").is_some()
}

/// A difference about one tool.
struct ToolDifference {
    text: String,
    asks: bool,
}

fn widened_tool(before: &AgentDefinition, after: &AgentDefinition, tool: &str) -> Option<ToolDifference> {
    let is = calls(after, tool);
    // Tools without effect outside of the run itself.
    let is_harmless = matches!(tool, THINK | ANSWER | TODO | WAIT | TELL | CANCEL);
    if is == CallSet::None || is_harmless || is_implied(before, tool) {
        return None;
    }
    let difference = |text: String| Some(ToolDifference { text, asks: false });
    match (calls(before, tool), &is) {
        (CallSet::All, _) => (),
        (CallSet::None, CallSet::Some(patterns)) => {
            return difference(format!("`{tool}({})` is allowed", patterns.join(", ")));
        }
        (CallSet::None, _) => return difference(format!("`{tool}` is allowed")),
        (CallSet::Some(_), CallSet::All) => return difference(format!("all calls of `{tool}` are allowed")),
        (CallSet::Some(was), CallSet::Some(is)) => {
            if let Some(more) = is.iter().find(|pattern| !was.iter().any(|other| is_within(pattern, other))) {
                return difference(format!("`{tool}({more})` is allowed"));
            }
        }
        (CallSet::Some(_), CallSet::None) => (),
    }
    if plan_forbids(before, tool) && !plan_forbids(after, tool) {
        return difference(format!("`{tool}` may change files, which plan mode does not allow"));
    }
    let denials = before.tools.denied.iter().filter(|rule| rule.guards(tool));
    if let Some(lost) = denials.clone().find(|rule| !after.tools.denied.iter().any(|other| covers(other, rule, tool))) {
        return difference(format!("`{lost}` is not denied"));
    }
    let asks = |definition: &AgentDefinition| -> Vec<Rule> {
        let mode = mode_asks(definition, tool).then(|| Rule::tool(tool));
        definition.tools.asked.iter().filter(|rule| rule.guards(tool)).cloned().chain(mode).collect()
    };
    let still = asks(after);
    let is_kept = |rule: &Rule| still.iter().chain(&after.tools.denied).any(|other| covers(other, rule, tool));
    let lost = asks(before).into_iter().find(|rule| !is_kept(rule))?;
    Some(ToolDifference { text: format!("`{lost}` needs no approval"), asks: true })
}

/// The calls of `tool` that the rules allow.
pub(super) fn calls(definition: &AgentDefinition, tool: &str) -> CallSet {
    let rules = &definition.tools;
    if rules.denied.iter().any(|rule| rule.pattern.is_none() && rule.names(tool)) {
        return CallSet::None;
    }
    let Allow::Only(allowed) = &rules.allowed else { return CallSet::All };
    let named: Vec<&Rule> = allowed.iter().filter(|rule| rule.names(tool)).collect();
    if named.iter().any(|rule| rule.pattern.is_none()) {
        return CallSet::All;
    }
    let patterns: Vec<String> = named.iter().filter_map(|rule| rule.pattern.clone()).collect();
    if patterns.is_empty() { CallSet::None } else { CallSet::Some(patterns) }
}

/// Returns true if the definition allows a tool that does the same and more: a shell reads and writes files, and what reads all
/// files also finds and lists them.
fn is_implied(definition: &AgentDefinition, tool: &str) -> bool {
    if is_of_own_server(definition, tool) {
        return true;
    }
    let stronger: &[&str] = match tool {
        GREP | GLOB | LS | TREE | DIFF => &[READ, BASH],
        READ | WRITE => &[BASH],
        EDIT => &[WRITE, BASH],
        _ => &[],
    };
    let is_free = |tool: &&&str| {
        let rules = definition.tools.denied.iter().chain(&definition.tools.asked);
        let mut guarded = rules.filter(|rule| rule.guards(tool));
        calls(definition, tool) == CallSet::All
            && guarded.next().is_none()
            && !matches!(definition.execution.permission_mode, Some(PermissionMode::Plan | PermissionMode::Ask))
    };
    // A denial by path holds for the weaker tool as well, and the stronger one does not reach it.
    let rules = definition.tools.denied.iter().chain(&definition.tools.asked);
    let has_guards = rules.into_iter().any(|rule| rule.pattern.is_some() && rule.guards(tool));
    !has_guards && stronger.iter().any(|tool| is_free(&tool))
}

/// Returns true for the tools of a server that the file names, unless its rules list some of them.
fn is_of_own_server(definition: &AgentDefinition, tool: &str) -> bool {
    let of_server = |name: &str, tool: &str| {
        let rest = tool.strip_prefix("mcp__").and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let rules = &definition.tools;
    let Allow::Only(allowed) = &rules.allowed else { return false };
    let mut servers = definition.integrations.mcp_servers.keys();
    let mut named = rules.denied.iter().chain(&rules.asked).chain(allowed);
    servers.any(|server| of_server(server, tool) && !named.any(|rule| of_server(server, &rule.tool)))
}

fn plan_forbids(definition: &AgentDefinition, tool: &str) -> bool {
    definition.execution.permission_mode == Some(PermissionMode::Plan)
        && (matches!(tool, EDIT | WRITE | BASH) || tool.starts_with("mcp__"))
}

fn mode_asks(definition: &AgentDefinition, tool: &str) -> bool {
    definition.execution.permission_mode == Some(PermissionMode::Ask) && asks_in_ask_mode(tool)
}

/// Returns true for the tools that need approval in ask mode.
pub(super) fn asks_in_ask_mode(tool: &str) -> bool {
    matches!(tool, EDIT | WRITE | BASH | FETCH | WEBSEARCH) || tool.starts_with("mcp__")
}

/// Returns true if the denial or question `outer` applies to all calls of `tool` to which `inner` applies.
fn covers(outer: &Rule, inner: &Rule, tool: &str) -> bool {
    if !outer.guards(tool) {
        return false;
    }
    match (&outer.pattern, &inner.pattern) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(outer), Some(inner)) => is_within(inner, outer),
    }
}

/// Returns true if the pattern `outer` certainly matches all that `inner` matches.
pub(super) fn is_within(inner: &str, outer: &str) -> bool {
    let (inner, outer) = (plain(inner), plain(outer));
    let whole = inner.strip_prefix('=').unwrap_or(&inner);
    inner == outer || (inner.starts_with('=') && whole == outer) || (outer.ends_with("/**") && whole == outer)
}

/// `git log:*` is `git log *`.
fn plain(pattern: &str) -> String {
    pattern.strip_suffix(":*").map_or_else(|| pattern.to_owned(), |bare| format!("{bare} *"))
}

/// A tool name that each rule on MCP tools matches.
pub(super) fn mcp_probes(definition: &AgentDefinition) -> Vec<String> {
    let allowed: &[Rule] = match &definition.tools.allowed {
        Allow::All => &[],
        Allow::Only(rules) => rules,
    };
    let all = allowed.iter().chain(&definition.tools.denied).chain(&definition.tools.asked);
    let mcp = all.map(|rule| rule.tool.as_str()).filter(|tool| tool.starts_with("mcp__"));
    mcp.map(|tool| match tool {
        _ if tool.contains('*') => tool.replace('*', "some"),
        _ if tool[5..].contains("__") => tool.to_owned(),
        server => format!("{server}__some"),
    })
    .collect()
}

/// The definition with the names of MCP tools as they are compared.
fn joined(definition: &AgentDefinition, names: McpNames) -> AgentDefinition {
    let mut definition = definition.clone();
    split_names(&mut definition);
    if names == McpNames::Joined {
        let tools = &mut definition.tools;
        let allowed: &mut [Rule] = match &mut tools.allowed {
            Allow::All => &mut [],
            Allow::Only(rules) => rules,
        };
        for rule in allowed.iter_mut().chain(&mut tools.denied).chain(&mut tools.asked) {
            if let Some(rest) = rule.tool.strip_prefix("mcp__") {
                let is_server = !rest.contains("__") && !rest.contains('*');
                rule.tool = format!("mcp__{}{}", rest.replace("__", "_"), if is_server { "_*" } else { "" });
            }
        }
    }
    definition
}

/// Splits lists of names, such as `delegate(a, b)`, into one rule each.
fn split_names(definition: &mut AgentDefinition) {
    let split = |rule: &Rule| match &rule.pattern {
        Some(pattern) if matches!(rule.tool.as_str(), DELEGATE | SKILL) => {
            pattern.split(',').map(|part| Rule::calls(rule.tool.clone(), part.trim())).collect()
        }
        Some(_) | None => vec![rule.clone()],
    };
    let tools = &mut definition.tools;
    if let Allow::Only(rules) = &mut tools.allowed {
        *rules = rules.iter().flat_map(split).collect();
    }
    tools.denied = tools.denied.iter().flat_map(split).collect();
    tools.asked = tools.asked.iter().flat_map(split).collect();
}
