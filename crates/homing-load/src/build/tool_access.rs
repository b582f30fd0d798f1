//! The tools that an agent may use and how freely. Restrictions that cannot be understood stay closed.

use std::collections::BTreeMap;

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, PermissionMode},
    rule::Rule,
    tool_names,
};
use serde_json::Value;

use super::{field_reader::FieldReader, opencode::PermissionMap};
use crate::{
    dialect::ToolMap,
    fields,
    node::{Node, NodeEntry, NodeKind},
    tools::{self, Meaning, Vocabulary},
};

/// The tools that Goose's extension `developer` stands for.
pub(crate) const DEVELOPER_TOOLS: &[&str] = &["read", "write", "edit", "bash", "grep", "glob", "ls", "tree"];

/// The parts of a definition that grant and restrict.
pub(super) struct ToolAccess<'a> {
    pub(super) names: Vocabulary<'a>,
    allowed: Allow,
    denied: Vec<Rule>,
    asked: Vec<Rule>,
    delegates: Option<Vec<Rule>>,
    permission_mode: Option<PermissionMode>,
    handoffs: Vec<String>,
}

impl<'a> ToolAccess<'a> {
    pub(super) fn new(names: Vocabulary<'a>) -> Self {
        Self {
            names,
            allowed: Allow::All,
            denied: Vec::new(),
            asked: Vec::new(),
            delegates: None,
            permission_mode: None,
            handoffs: Vec::new(),
        }
    }

    pub(super) fn tools(&mut self, reader: &mut FieldReader<'_>) {
        let value = reader.value;
        if value.entries().is_some() {
            return self.tool_switches(reader);
        }
        let none = value.text() == Some("none") || matches!(&value.kind, NodeKind::List(list) if list.is_empty());
        let items = if none { Vec::new() } else { tools::items(value, reader.key, reader.diagnostics) };
        let rules = tools::allowed(items, self.names, reader.key, reader.diagnostics);
        warn_if_nothing_is_left(reader, rules.as_deref(), none);
        self.narrow(rules);
    }

    pub(super) fn denied(&mut self, reader: &mut FieldReader<'_>) {
        let rules = self.denying_rules(reader);
        self.deny(rules);
    }

    /// Reads OpenCode's `permission`.
    pub(super) fn permission(&mut self, reader: &mut FieldReader<'_>) {
        PermissionMap::new(self, reader).permission();
    }

    /// Reads a list of calls that need approval.
    pub(super) fn asked(&mut self, reader: &mut FieldReader<'_>) {
        let rules = self.denying_rules(reader);
        self.ask(rules);
    }

    fn denying_rules(&self, reader: &mut FieldReader<'_>) -> Vec<Rule> {
        let items = tools::named(reader.value, reader.key, reader.diagnostics);
        tools::denied(items, self.names, reader.key, reader.diagnostics)
    }

    /// Denies the calls that these rules match.
    pub(super) fn deny(&mut self, rules: Vec<Rule>) {
        add_new(&mut self.denied, rules);
    }

    /// Requires approval for the calls that these rules match.
    pub(super) fn ask(&mut self, rules: Vec<Rule>) {
        add_new(&mut self.asked, rules);
    }

    /// Restricts the tools further: of two lists, only what both allow stays allowed.
    pub(super) fn narrow(&mut self, rules: Option<Vec<Rule>>) {
        let Some(rules) = rules else { return };
        let covers = |rule: &Rule, other: &Rule| rule == other || (rule.pattern.is_none() && rule.names(&other.tool));
        let allowed = match &self.allowed {
            Allow::All => rules,
            Allow::Only(before) => {
                let old = before.iter().filter(|old| rules.iter().any(|rule| covers(rule, old)));
                let new = rules.iter().filter(|new| before.iter().any(|rule| covers(rule, new)));
                let mut both = Vec::new();
                add_new(&mut both, old.chain(new).cloned().collect());
                both
            }
        };
        self.allowed = Allow::Only(allowed);
    }

    /// Restricts one tool to these calls and leaves the other tools as they are.
    fn narrow_tool(&mut self, tool: &str, calls: Vec<Rule>) {
        let mut rules: Vec<Rule> = tool_names::all().filter(|other| *other != tool).map(Rule::tool).collect();
        rules.push(Rule::tool("mcp__*"));
        rules.extend(calls);
        self.narrow(Some(rules));
    }

    /// Restricts how freely the agent may act: of two modes, the stricter one applies.
    fn narrow_mode(&mut self, mode: PermissionMode) {
        let freedom = |mode: &PermissionMode| match mode {
            PermissionMode::Plan => 0,
            PermissionMode::Ask => 1,
            PermissionMode::Edit => 2,
            PermissionMode::All => 3,
        };
        self.permission_mode = self.permission_mode.into_iter().chain([mode]).min_by_key(freedom);
    }

    /// Reads `tools: {bash: false, read: true}`.
    fn tool_switches(&mut self, reader: &mut FieldReader<'_>) {
        if self.names.dialect.tool_map == ToolMap::Switches {
            return PermissionMap::new(self, reader).switches();
        }
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for entry in reader.value.entries().unwrap_or_default() {
            let item = (entry.key.clone(), entry.position);
            if is_on(entry, reader) { on.push(item) } else { off.push(item) }
        }
        let all_off = off.iter().any(|(name, _)| name == "*");
        off.retain(|(name, _)| name != "*");
        let exact = all_off || !on.is_empty();
        let rules = tools::allowed(on, self.names, reader.key, reader.diagnostics).filter(|_| exact);
        warn_if_nothing_is_left(reader, rules.as_deref(), all_off);
        self.narrow(rules);
        let denied = tools::denied(off, self.names, reader.key, reader.diagnostics);
        self.deny(denied);
    }

    /// Reads Roo's groups: a name, or a name with a pattern of files.
    pub(super) fn groups(&mut self, reader: &mut FieldReader<'_>) {
        let NodeKind::List(groups) = &reader.value.kind else { return self.tools(reader) };
        let mut rules = Vec::new();
        for group in groups {
            let (name, narrowed) = match &group.kind {
                NodeKind::List(pair) => (pair.first().and_then(Node::text), pair.get(1)),
                NodeKind::Plain(_) | NodeKind::Quoted(_) | NodeKind::Map(_) => (group.text(), None),
            };
            match (name.map(|name| self.names.meaning(name)), narrowed.map(extensions_in)) {
                (Some(Meaning::Rules(found)), None) => rules.extend(found),
                (Some(Meaning::Rules(found)), Some(Some(extensions))) => {
                    for rule in found {
                        let call = |extension: &String| Rule::calls(rule.tool.clone(), format!("*.{extension}"));
                        rules.extend(extensions.iter().map(call));
                    }
                }
                (Some(Meaning::Rules(_)), Some(None)) => {
                    let message = "`fileRegex` is supported for file extensions only: the group was ignored";
                    let hint = "name the tool with a path instead, such as edit(docs/**)";
                    reader.diagnostics.warn(group.position, reader.key, message, hint);
                }
                (Some(Meaning::Everything | Meaning::NoCounterpart | Meaning::Unknown) | None, _) => {
                    reader.diagnostics.warn(group.position, reader.key, "unknown group: ignored", "");
                }
            }
        }
        warn_if_nothing_is_left(reader, Some(&rules), groups.is_empty());
        self.narrow(Some(rules));
    }

    /// Reads Goose's extensions: its developer tools have equivalents, all others are MCP servers, which are returned.
    pub(super) fn extensions(&mut self, reader: &mut FieldReader<'_>) -> BTreeMap<String, Value> {
        let mut servers = BTreeMap::new();
        let NodeKind::List(extensions) = &reader.value.kind else { return servers };
        let mut rules = Vec::new();
        for extension in extensions {
            let name = extension.get("name").and_then(Node::text).or(extension.text()).unwrap_or_default();
            if name == "developer" {
                rules.extend(DEVELOPER_TOOLS.iter().copied().map(Rule::tool));
                continue;
            }
            servers.insert(name.to_owned(), extension.to_json());
            match extension.get("available_tools").map(|tools| &tools.kind) {
                Some(NodeKind::List(tools)) => {
                    let tools = tools.iter().filter_map(Node::text);
                    rules.extend(tools.map(|tool| Rule::tool(format!("mcp__{name}__{tool}"))));
                }
                Some(_) | None => rules.push(Rule::tool(format!("mcp__{name}"))),
            }
        }
        warn_if_nothing_is_left(reader, Some(&rules), extensions.is_empty());
        self.narrow(Some(rules));
        servers
    }

    /// Reads VS Code's `agents`: the agents to which this one may delegate.
    pub(super) fn agents(&mut self, reader: &mut FieldReader<'_>) {
        let names = reader.list();
        if names.is_empty() {
            self.deny(vec![Rule::tool("delegate")]);
        } else if !names.iter().any(|name| name == "*") {
            self.narrow_tool("delegate", vec![Rule::calls("delegate", names.join(","))]);
        }
    }

    /// Reads VS Code's handoffs. There the user starts them; here the agent may delegate to them.
    pub(super) fn handoffs(&mut self, reader: &FieldReader<'_>) {
        let NodeKind::List(handoffs) = &reader.value.kind else { return };
        let agents = handoffs.iter().filter_map(|handoff| handoff.get("agent").and_then(Node::text));
        self.handoffs.extend(agents.map(|agent| agent.trim().to_owned()).filter(|agent| !agent.is_empty()));
    }

    pub(super) fn delegates(&mut self, reader: &mut FieldReader<'_>) {
        let items = tools::items(reader.value, reader.key, reader.diagnostics);
        let rules = tools::allowed(items, self.names, reader.key, reader.diagnostics);
        self.delegates = Some(rules.unwrap_or_else(|| vec![Rule::tool("*")]));
    }

    pub(super) fn permission_mode(&mut self, reader: &mut FieldReader<'_>) {
        let word = reader.word();
        let mode = match fields::fold(word).as_ref() {
            "default" | "manual" => return,
            "plan" | "readonly" => PermissionMode::Plan,
            "ask" | "dontask" | "bubble" => PermissionMode::Ask,
            "edit" | "acceptedits" | "auto" | "autoedit" | "workspacewrite" => PermissionMode::Edit,
            "all" | "bypasspermissions" | "yolo" | "dangerfullaccess" => PermissionMode::All,
            _ => {
                let message = format!("`{word}` is not a permission mode: treated as `plan`");
                reader.warn(message, "write plan, ask, acceptEdits or bypassPermissions");
                PermissionMode::Plan
            }
        };
        self.narrow_mode(mode);
    }

    pub(super) fn read_only(&mut self, reader: &mut FieldReader<'_>) {
        let read_only = reader.value.truth().unwrap_or_else(|| {
            reader.warn(format!("`{}` is neither true nor false: treated as true", reader.key), "");
            true
        });
        if read_only {
            self.narrow_mode(PermissionMode::Plan);
        }
    }

    pub(super) fn finish(mut self, definition: &mut AgentDefinition) {
        if let Allow::Only(rules) = &mut self.allowed
            && !self.handoffs.is_empty()
            && !rules.iter().any(|rule| rule.names("delegate"))
        {
            rules.push(Rule::calls("delegate", self.handoffs.join(",")));
        }
        definition.tools.allowed = self.allowed;
        definition.tools.denied = self.denied;
        definition.tools.asked = self.asked;
        definition.tools.delegates = self.delegates;
        definition.execution.permission_mode = self.permission_mode;
    }
}

fn add_new(rules: &mut Vec<Rule>, more: Vec<Rule>) {
    for rule in more {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
}

/// Reads one switch. A tool whose switch cannot be read is off.
fn is_on(entry: &NodeEntry<'_>, reader: &mut FieldReader<'_>) -> bool {
    let switch = match entry.value.text() {
        Some("allow") => Some(true),
        Some("deny") => Some(false),
        Some(_) | None => entry.value.truth(),
    };
    switch.unwrap_or_else(|| {
        let message = format!("`{}` is neither true nor false: the tool is disabled", entry.key);
        reader.diagnostics.warn(entry.value.position, reader.key, message, "write true or false");
        false
    })
}

/// Warns if a restriction leaves no tools, unless the author asked for that.
fn warn_if_nothing_is_left(reader: &mut FieldReader<'_>, rules: Option<&[Rule]>, on_purpose: bool) {
    if rules.is_some_and(<[Rule]>::is_empty) && !on_purpose {
        let hint =
            "name tools such as `read, grep`; write `[]` for no tools, `\"*\"` for all, or delete the key to inherit";
        reader.warn(format!("`{}` names no known tool, so the agent has no tools", reader.key), hint);
    }
}

/// The file extensions in `{fileRegex: '\\.(md|txt)$'}`; `None` if the expression has any other form.
fn extensions_in(options: &Node<'_>) -> Option<Vec<String>> {
    let regex = options.get("fileRegex")?.text()?;
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let regex = regex.strip_prefix(".*").unwrap_or(regex).strip_prefix("\\.")?.strip_suffix('$')?;
    let inner = regex.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(regex);
    let inner = inner.strip_prefix("?:").unwrap_or(inner);
    let is_extension = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    // Without parentheses an alternative would end the expression, not the name.
    let plain = regex.len() != inner.len() || !inner.contains('|');
    (plain && inner.split('|').all(is_extension)).then(|| inner.split('|').map(str::to_owned).collect())
}
