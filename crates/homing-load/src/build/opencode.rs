//! OpenCode's permissions: an ordered list in which the last match wins, with wildcards for the tool and for the call.
//! They are translated to rules in which a denial always holds. What cannot be expressed stays closed and is reported.

use homing_core::rule::Rule;

use super::{
    field_reader::FieldReader,
    tool_access::ToolAccess,
    verdict::{PermissionAction, PermissionLine, ToolVerdict},
};
use crate::{
    dialect::ToolMap,
    fields,
    node::{Node, NodeEntry, NodeKind, Position},
    tools::Meaning,
    wildcard,
};

/// Each tool with the permissions that apply to it in OpenCode, and the target of their patterns.
/// OpenCode's `edit` covers all tools that change files, and its `read` lists folders as well.
pub(crate) const TOOLS: &[(&str, &[&str], MatchTarget)] = &[
    ("read", &["read"], MatchTarget::Path),
    ("edit", &["edit"], MatchTarget::Path),
    ("write", &["edit"], MatchTarget::Path),
    ("bash", &["bash"], MatchTarget::Command),
    ("grep", &["grep"], MatchTarget::Nothing),
    ("glob", &["glob"], MatchTarget::Nothing),
    ("ls", &["read", "list"], MatchTarget::Path),
    ("tree", &["read", "list"], MatchTarget::Path),
    ("fetch", &["webfetch"], MatchTarget::Address),
    ("websearch", &["websearch"], MatchTarget::Nothing),
    ("think", &["think"], MatchTarget::Exempt),
    ("todo", &["todowrite", "todoread"], MatchTarget::Nothing),
    ("skill", &["skill"], MatchTarget::Name),
    ("ask", &["question"], MatchTarget::Nothing),
    ("diff", &["diff"], MatchTarget::Nothing),
    ("delegate", &["task"], MatchTarget::Name),
    ("wait", &["wait"], MatchTarget::Exempt),
    ("tell", &["tell"], MatchTarget::Exempt),
    ("cancel", &["cancel"], MatchTarget::Exempt),
    ("answer", &["answer"], MatchTarget::Exempt),
];

/// The maximum number of permissions in one map. Lines are compared with each other, so the cost grows quadratically.
const MAX_LINES: usize = 128;

/// The part of a call that the pattern of a permission is matched against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchTarget {
    Command,
    Path,
    Address,
    Name,
    /// The name of an MCP tool: the pattern is the permission's name.
    ToolName,
    /// Nothing that a rule can express.
    Nothing,
    /// Tools that OpenCode does not have and that affect only the run and its children: they never need approval.
    Exempt,
}

/// One tool, or all MCP tools, with the lines that apply to it.
struct ToolLines {
    tool: String,
    target: MatchTarget,
    lines: Vec<PermissionLine>,
}

/// The calls of one tool that stay allowed.
enum ToolOutcome {
    Whole,
    /// These calls, or these MCP tools.
    Some(Vec<Rule>),
    None,
}

/// Translates the permissions under one key and applies them to the tools of a definition.
pub(super) struct PermissionMap<'m, 'v, 'r> {
    tools: &'m mut ToolAccess<'v>,
    reader: &'m mut FieldReader<'r>,
}

impl<'m, 'v, 'r> PermissionMap<'m, 'v, 'r> {
    pub(super) fn new(tools: &'m mut ToolAccess<'v>, reader: &'m mut FieldReader<'r>) -> Self {
        Self { tools, reader }
    }

    /// Reads `permission`: a word for everything, or a map of tool to a word or to patterns.
    pub(super) fn permission(mut self) {
        let value = self.reader.value;
        match (&value.kind, value.text()) {
            (NodeKind::Map(entries), _) => {
                let (lists, entries): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_list_of_calls(entry));
                lists.iter().for_each(|entry| self.list_of_calls(entry));
                let lines = entries.iter().flat_map(|entry| self.lines(entry)).collect();
                self.apply(lines);
            }
            (_, Some(word)) if matches!(fields::fold(word).as_ref(), "readonly" | "plan") => {
                self.tools.permission_mode(self.reader);
            }
            (_, Some(word)) => {
                let action = self.action(value, word);
                self.apply(vec![PermissionLine::new("*", "*", action, value.position)]);
            }
            (NodeKind::List(_) | NodeKind::Plain(_) | NodeKind::Quoted(_), None) => {
                let message = format!("`{}` is a list: read as `tools`", self.reader.key);
                self.reader.warn(message, "write a map of tools to allow, ask or deny");
                self.tools.tools(self.reader);
            }
        }
    }

    /// Reads `tools: {bash: false}`, which OpenCode treats as permissions. There, a switch for any tool that changes
    /// files switches all of them; here, a tool that is off also stays off by its own name.
    pub(super) fn switches(mut self) {
        let entries = self.reader.value.entries().unwrap_or_default();
        let mut lines: Vec<PermissionLine> = Vec::new();
        for entry in entries {
            let action = self.switch(entry);
            let changes_files = matches!(entry.key.as_ref(), "write" | "edit" | "patch" | "multiedit");
            let permission = if changes_files { "edit" } else { entry.key.as_ref() };
            match lines.iter_mut().find(|line| line.permission == permission) {
                Some(line) => line.action = action,
                None => lines.push(PermissionLine::new(permission, "*", action, entry.position)),
            }
        }
        self.apply(lines);
        for tool in ["edit", "write"] {
            if entries.iter().any(|entry| entry.key == tool && entry.value.truth() == Some(false)) {
                self.tools.deny(vec![Rule::tool(tool)]);
            }
        }
    }

    fn switch(&mut self, entry: &NodeEntry<'_>) -> PermissionAction {
        match (entry.value.text(), entry.value.truth()) {
            (Some("allow"), _) | (_, Some(true)) => PermissionAction::Allow,
            (Some("deny"), _) | (_, Some(false)) => PermissionAction::Deny,
            (_, None) => {
                let message = format!("`{}` is neither true nor false: the tool is disabled", entry.key);
                self.warn_at(entry.value.position, message, "write true or false");
                PermissionAction::Deny
            }
        }
    }

    fn warn_at(&mut self, position: Position, message: String, hint: &str) {
        self.reader.diagnostics.warn(position, self.reader.key, message, hint);
    }

    /// Reads `allow`, `ask` or `deny` with a list of calls, as in Claude Code's settings.
    fn list_of_calls(&mut self, entry: &NodeEntry<'_>) {
        let reader = &mut self.reader.inner(&entry.key, &entry.value);
        match fields::fold(&entry.key).as_ref() {
            "allow" | "allowed" => self.tools.tools(reader),
            "ask" => self.tools.asked(reader),
            _ => self.tools.denied(reader),
        }
    }

    /// The lines of one entry of the map.
    fn lines(&mut self, entry: &NodeEntry<'_>) -> Vec<PermissionLine> {
        let mut line = |pattern: &str, position: Position, value: &Node<'_>| {
            let action = self.action(value, value.text().unwrap_or_default());
            PermissionLine::new(&entry.key, pattern, action, position)
        };
        match &entry.value.kind {
            NodeKind::Map(patterns) => {
                patterns.iter().map(|inner| line(&inner.key, inner.position, &inner.value)).collect()
            }
            NodeKind::Plain(_) | NodeKind::Quoted(_) | NodeKind::List(_) => {
                vec![line("*", entry.position, &entry.value)]
            }
        }
    }

    fn action(&mut self, value: &Node<'_>, word: &str) -> PermissionAction {
        match word {
            "allow" => PermissionAction::Allow,
            "ask" => PermissionAction::Ask,
            "deny" => PermissionAction::Deny,
            other => {
                let message = format!("`{other}` is not a permission: treated as `deny`");
                self.warn_at(value.position, message, "write allow, ask or deny");
                PermissionAction::Deny
            }
        }
    }

    /// Applies the permissions to the tools of the definition.
    fn apply(&mut self, mut lines: Vec<PermissionLine>) {
        if lines.len() > MAX_LINES {
            let message = format!("more than {MAX_LINES} permissions are not supported: everything is denied");
            self.reader.warn(message, "use fewer, wider patterns");
            lines = vec![PermissionLine::new("*", "*", PermissionAction::Deny, self.reader.value.position)];
        }
        self.warn_about_overridden(&lines);
        let rest = lines.iter().rfind(|line| wildcard::is_everything(&line.permission) && line.is_whole());
        let closed = rest.is_some_and(|line| line.action == PermissionAction::Deny);
        let tools = self.lines_by_tool(&lines, closed);
        let outcomes: Vec<(&str, ToolOutcome)> =
            tools.iter().map(|tool| (tool.tool.as_str(), self.outcome(tool))).collect();
        if closed || outcomes.iter().any(|(_, outcome)| matches!(outcome, ToolOutcome::Some(_))) {
            let rules: Vec<Rule> = outcomes.into_iter().flat_map(|(tool, outcome)| outcome.rules(tool)).collect();
            if rules.is_empty() && lines.iter().any(|line| line.action != PermissionAction::Deny) {
                let message = format!("`{}` leaves the agent without tools", self.reader.key);
                self.reader.warn(message, "write \"*\": deny first, and what is allowed after it");
            }
            self.tools.narrow(Some(rules));
        } else {
            let off = outcomes.iter().filter(|(_, outcome)| matches!(outcome, ToolOutcome::None));
            self.tools.deny(off.map(|(tool, _)| Rule::tool(*tool)).collect());
        }
    }

    /// Warns about lines that a later line overrides, because most authors expect the opposite order.
    fn warn_about_overridden(&mut self, lines: &[PermissionLine]) {
        for (at, line) in lines.iter().enumerate() {
            let overrides = |later: &&PermissionLine| {
                later.action != line.action
                    && wildcard::covers(&later.permission, &line.permission)
                    && wildcard::covers(&later.pattern, &line.pattern)
            };
            if let Some(later) = lines[at + 1..].iter().rfind(overrides) {
                let message =
                    format!("`{line}` has no effect: the later `{later}` overrides it, because the last match wins");
                self.warn_at(line.position, message, "write the general rule first and its exceptions after it");
            }
        }
    }

    /// All tools with the lines that apply to them.
    fn lines_by_tool(&mut self, lines: &[PermissionLine], closed: bool) -> Vec<ToolLines> {
        let known = TOOLS.iter().map(|(tool, _, target)| (*tool, *target));
        let extra = self.tools.names.extra.iter().map(|tool| (tool.as_str(), MatchTarget::Nothing));
        let all = known.chain(extra).chain([("mcp__*", MatchTarget::ToolName)]);
        let mut tools: Vec<ToolLines> =
            all.map(|(tool, target)| ToolLines { tool: tool.to_owned(), target, lines: Vec::new() }).collect();
        for line in lines {
            for name in self.tools_of(line, closed) {
                match tools.iter_mut().find(|tool| tool.tool == name) {
                    Some(tool) if tool.target != MatchTarget::ToolName => tool.lines.push(line.clone()),
                    Some(_) | None => add_to_mcp(&mut tools, &name, line),
                }
            }
        }
        tools
    }

    /// The canonical names of the tools to which a line applies; MCP tools as patterns of names.
    fn tools_of(&mut self, line: &PermissionLine, closed: bool) -> Vec<String> {
        let name = line.permission.as_str();
        let is_pattern = name.contains(['*', '?']);
        let applies = |permissions: &[&str]| permissions.iter().any(|permission| wildcard::matches(name, permission));
        let known =
            TOOLS.iter().filter(|(_, permissions, _)| applies(permissions)).map(|(tool, ..)| (*tool).to_owned());
        let extra = self.tools.names.extra.iter().filter(|tool| wildcard::matches(name, tool)).cloned();
        let mut tools: Vec<String> = known.chain(extra).collect();
        if is_pattern {
            tools.extend(mcp_names(name));
        }
        if is_pattern || !tools.is_empty() {
            return tools;
        }
        // OpenCode has no such permission. A restriction still applies here, but in OpenCode's own files the name
        // must not allow anything.
        let opens = line.action == PermissionAction::Allow;
        let only_restricts = self.tools.names.dialect.tool_map == ToolMap::Switches;
        match self.tools.names.meaning(name) {
            Meaning::Rules(rules) if rules.iter().all(|rule| rule.tool.starts_with("mcp__")) => {
                rules.into_iter().map(|rule| rule.tool).collect()
            }
            Meaning::Rules(_) | Meaning::Everything if opens && only_restricts => {
                if closed {
                    let message = format!("OpenCode has no permission `{name}`: it allows nothing");
                    self.warn_at(line.position, message, "");
                }
                Vec::new()
            }
            Meaning::Rules(rules) => rules.into_iter().map(|rule| rule.tool).collect(),
            Meaning::Everything => TOOLS.iter().map(|(tool, ..)| *tool).chain(["mcp__*"]).map(str::to_owned).collect(),
            Meaning::NoCounterpart => {
                let message = format!("`{name}` has no equivalent here: ignored");
                self.reader.diagnostics.info(line.position, self.reader.key, message, "");
                Vec::new()
            }
            Meaning::Unknown => self.tools_of_unknown(line),
        }
    }

    /// An unknown name may be the name of an MCP tool. If it restricts, it may also be misspelt.
    fn tools_of_unknown(&mut self, line: &PermissionLine) -> Vec<String> {
        let name = line.permission.as_str();
        let near = self.tools.names.near(name).filter(|_| line.action != PermissionAction::Allow);
        let mcp = mcp_names(name);
        if near.is_some() || mcp.is_empty() {
            let hint = near.map(|near| format!("did you mean `{near}`?")).unwrap_or_default();
            self.warn_at(line.position, format!("unknown tool `{name}`"), &hint);
        }
        mcp.into_iter().chain(near.map(str::to_owned)).collect()
    }

    /// Evaluates the lines of one tool. Denials and required approvals are applied at once.
    fn outcome(&mut self, tool: &ToolLines) -> ToolOutcome {
        let verdict = ToolVerdict::of(&tool.tool, tool.target, &tool.lines);
        // A line may apply to several tools, and is reported once.
        for found in verdict.diagnostics {
            self.reader.diagnostics.once(found.severity, found.position, self.reader.key, found.message);
        }
        self.tools.deny(verdict.denied);
        self.tools.ask(verdict.asked);
        match verdict.allowed {
            None => ToolOutcome::Whole,
            Some(rules) if rules.is_empty() => ToolOutcome::None,
            Some(rules) => ToolOutcome::Some(rules),
        }
    }
}

impl ToolOutcome {
    fn rules(self, tool: &str) -> Vec<Rule> {
        match self {
            Self::Whole => vec![Rule::tool(tool)],
            Self::Some(rules) => rules,
            Self::None => Vec::new(),
        }
    }
}

/// Returns true for an action with a list of calls, which OpenCode does not have: there, a tool has a word or patterns.
fn is_list_of_calls(entry: &NodeEntry<'_>) -> bool {
    let key = fields::fold(&entry.key);
    let names_an_action =
        matches!(key.as_ref(), "allow" | "allowed" | "ask" | "deny" | "denied" | "disallow" | "disallowed");
    let has_calls = entry.value.text().is_none_or(|word| !matches!(word, "allow" | "ask" | "deny"));
    names_an_action && has_calls
}

/// Adds the line with the name as its pattern, because the MCP tools are not known when a file is read.
fn add_to_mcp(tools: &mut [ToolLines], name: &str, line: &PermissionLine) {
    // OpenCode evaluates MCP tools as a whole, so any pattern but `*` allows nothing. A denial closes the tool.
    if !line.is_whole() && line.action != PermissionAction::Deny {
        return;
    }
    let pattern = if name == "mcp__*" { "*" } else { name };
    if let Some(mcp) = tools.iter_mut().find(|tool| tool.target == MatchTarget::ToolName) {
        mcp.lines.push(PermissionLine { pattern: pattern.to_owned(), ..line.clone() });
    }
}

/// The names `mcp__server__tool` that OpenCode's `server_tool` may stand for: any underscore may be the separator.
fn mcp_names(name: &str) -> Vec<String> {
    if name.starts_with("mcp__") || wildcard::is_everything(name) {
        return vec![if name.starts_with("mcp__") { name.to_owned() } else { "mcp__*".to_owned() }];
    }
    let separators = name.match_indices('_').filter(|(at, _)| *at > 0 && at + 1 < name.len());
    let doubled = separators.map(|(at, _)| format!("mcp__{}_{}", &name[..=at], &name[at + 1..]));
    // A star may include the separator.
    let starred = name.contains('*').then(|| format!("mcp__{name}"));
    doubled.chain(starred).take(8).collect()
}

#[cfg(test)]
mod tests {
    use homing_core::tool_names;

    use super::*;

    #[test]
    fn every_tool_has_a_permission() {
        let all: Vec<&str> = TOOLS.iter().map(|(tool, ..)| *tool).collect();
        for tool in tool_names::all() {
            assert!(all.contains(&tool), "{tool}");
        }
        assert_eq!(all.len(), tool_names::all().count());
    }

    #[test]
    fn mcp_names_split_at_every_underscore() {
        assert_eq!(mcp_names("a_b_c"), ["mcp__a__b_c", "mcp__a_b__c"]);
        assert_eq!(mcp_names("github_*"), ["mcp__github__*", "mcp__github_*"]);
        assert_eq!(mcp_names("*"), ["mcp__*"]);
        assert!(mcp_names("bsh").is_empty());
    }
}
