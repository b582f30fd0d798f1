//! Fields that restrict: what may be used, how freely, and how much.

use homing_core::{
    definition::{Isolation, PermissionMode},
    limits::Limit,
    rule::Rule,
    tool_names,
};

use super::DefinitionBuilder;
use crate::{
    dialect::ToolMap,
    fields::{self, Field, Unit},
    limit_values,
    node::{Node, NodeEntry, NodeKind},
    tools::{self, Meaning},
};

impl DefinitionBuilder<'_> {
    pub(super) fn denied(&mut self, key: &str, value: &Node) {
        let items = tools::named(value, key, self.remarks);
        let rules = tools::denied(items, self.names, key, self.remarks);
        self.deny(rules);
    }

    pub(super) fn deny(&mut self, rules: Vec<Rule>) {
        for rule in rules {
            if !self.definition.denied.contains(&rule) {
                self.definition.denied.push(rule);
            }
        }
    }

    /// `tools: {bash: false, read: true}`.
    pub(super) fn tool_switches(&mut self, key: &str, value: &Node) {
        if self.dialect().tool_map == ToolMap::Switches {
            return self.opencode_switches(key, value);
        }
        let switch = |it: &NodeEntry| match it.value.text() {
            Some("allow") => Some(true),
            Some("deny") => Some(false),
            _ => it.value.truth(),
        };
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for entry in value.entries().unwrap_or_default() {
            let item = (entry.key.clone(), entry.spot);
            match switch(entry) {
                Some(true) => on.push(item),
                Some(false) => off.push(item),
                None => {
                    let message = format!("`{}` is neither true nor false here; the tool stays off", entry.key);
                    self.warn(entry.value.spot, key, message, "write true or false");
                    off.push(item);
                }
            }
        }
        let all_off = off.iter().any(|(name, _)| name == "*");
        off.retain(|(name, _)| name != "*");
        let exact = all_off || !on.is_empty();
        let rules = tools::allowed(on, self.names, key, self.remarks).filter(|_| exact);
        self.closed(key, value.spot, rules.as_deref(), all_off);
        self.narrow(rules);
        let denied = tools::denied(off, self.names, key, self.remarks);
        self.deny(denied);
    }

    /// Of `tool` only these calls; everything else stays as it is.
    fn only(&mut self, tool: &str, calls: Vec<Rule>) {
        let mut rules: Vec<Rule> = tool_names::all().filter(|it| *it != tool).map(Rule::tool).collect();
        rules.push(Rule::tool("mcp__*"));
        rules.extend(calls);
        self.narrow(Some(rules));
    }

    /// Roo's groups: a name, or a name with a pattern of files.
    pub(super) fn groups(&mut self, key: &str, value: &Node) {
        let NodeKind::List(groups) = &value.kind else { return self.tools(key, value) };
        let mut rules = Vec::new();
        for group in groups {
            let (name, narrowed) = match &group.kind {
                NodeKind::List(pair) => (pair.first().and_then(Node::text), pair.get(1)),
                NodeKind::Plain(_) | NodeKind::Quoted(_) | NodeKind::Map(_) => (group.text(), None),
            };
            match (name.map(|it| self.names.meaning(it)), narrowed.map(endings)) {
                (Some(Meaning::Rules(found)), None) => rules.extend(found),
                (Some(Meaning::Rules(found)), Some(Some(endings))) => {
                    let each =
                        |rule: Rule| endings.iter().map(move |it| Rule::calls(rule.tool.clone(), format!("*.{it}")));
                    rules.extend(found.into_iter().flat_map(each));
                }
                (Some(Meaning::Rules(_)), Some(None)) => {
                    let message = "only file endings are understood of regular expressions; the group was left out";
                    self.warn(group.spot, key, message, "name the tool with a path instead, such as edit(docs/**)");
                }
                (Some(Meaning::Everything | Meaning::NoCounterpart | Meaning::Unknown) | None, _) => {
                    self.warn(group.spot, key, "there is no such group; it was left out", "");
                }
            }
        }
        self.closed(key, value.spot, Some(&rules), groups.is_empty());
        self.narrow(Some(rules));
    }

    /// Goose's extensions: its developer tools by our names, every other one is an MCP server.
    pub(super) fn extensions(&mut self, key: &str, value: &Node) {
        let NodeKind::List(extensions) = &value.kind else { return };
        let mut rules = Vec::new();
        for extension in extensions {
            let name = extension.get("name").and_then(Node::text).or(extension.text()).unwrap_or_default();
            if name == "developer" {
                rules.extend(["read", "write", "edit", "bash", "grep", "glob", "ls", "tree"].map(Rule::tool));
                continue;
            }
            self.definition.mcp_servers.insert(name.to_owned(), extension.to_json());
            match extension.get("available_tools").map(|it| &it.kind) {
                Some(NodeKind::List(tools)) => {
                    let tools = tools.iter().filter_map(Node::text);
                    rules.extend(tools.map(|tool| Rule::tool(format!("mcp__{name}__{tool}"))));
                }
                Some(_) | None => rules.push(Rule::tool(format!("mcp__{name}"))),
            }
        }
        self.closed(key, value.spot, Some(&rules), extensions.is_empty());
        self.narrow(Some(rules));
    }

    /// VS Code's `agents`: whom it may delegate to.
    pub(super) fn agents(&mut self, key: &str, value: &Node) {
        let names = self.list(key, value);
        if names.iter().any(|it| it == "*") {
            return;
        }
        match names.is_empty() {
            true => self.deny(vec![Rule::tool("delegate")]),
            false => self.only("delegate", vec![Rule::calls("delegate", names.join(","))]),
        }
    }

    pub(super) fn delegates(&mut self, key: &str, value: &Node) {
        let items = tools::items(value, key, self.remarks);
        let rules = tools::allowed(items, self.names, key, self.remarks);
        self.definition.delegates = Some(rules.unwrap_or_else(|| vec![Rule::tool("*")]));
    }

    pub(super) fn limit(&mut self, key: &str, value: &Node, limit: Limit, unit: Unit) {
        match limit_values::read(value, unit) {
            Ok(cap) => {
                if cap.value() == Some(0) && limit != Limit::Depth && limit != Limit::Children {
                    self.warn(value.spot, key, format!("`{key}` is 0, so the agent cannot do anything"), "");
                }
                limit_values::narrow(&mut self.definition.limits, limit, cap);
            }
            Err(message) => {
                let hint = format!("write {}", limit_values::wanted(unit));
                self.remarks.error(value.spot, key, format!("`{key}`: {message}"), &hint);
            }
        }
    }

    pub(super) fn limits(&mut self, key: &str, value: &Node) {
        let Some(entries) = value.entries() else {
            let hint = "write a map such as {turns: 20, cost: 0.50}";
            return self.remarks.error(value.spot, key, format!("{} is no set of limits", value.noun()), hint);
        };
        for entry in entries {
            match limit_named(&fields::fold(&entry.key)) {
                Some((limit, unit)) => self.limit(&entry.key, &entry.value, limit, unit),
                None if fields::fold(&entry.key) == "graceturns" => (),
                None => {
                    let message = format!("there is no limit `{}`", entry.key);
                    let hint = "limits are: turns, depth, tokens, cost, tool_calls, children, timeout, work";
                    self.remarks.error(entry.spot, &entry.key, message, hint);
                }
            }
        }
    }

    pub(super) fn permission_mode(&mut self, key: &str, value: &Node) {
        let word = value.text().unwrap_or_default().trim();
        let mode = match fields::fold(word).as_str() {
            "default" | "manual" => return,
            "plan" | "readonly" => PermissionMode::Plan,
            "ask" | "dontask" | "bubble" => PermissionMode::Ask,
            "edit" | "acceptedits" | "auto" | "autoedit" | "workspacewrite" => PermissionMode::Edit,
            "all" | "bypasspermissions" | "yolo" | "dangerfullaccess" => PermissionMode::All,
            _ => {
                let message = format!("`{word}` is not a permission mode; the agent may change nothing");
                self.warn(value.spot, key, message, "write plan, ask, acceptEdits or bypassPermissions");
                PermissionMode::Plan
            }
        };
        self.narrow_mode(mode);
    }

    pub(super) fn read_only(&mut self, key: &str, value: &Node) {
        match value.truth() {
            Some(false) => (),
            Some(true) => self.narrow_mode(PermissionMode::Plan),
            None => {
                self.warn(value.spot, key, format!("`{key}` is neither true nor false; it was taken for true"), "");
                self.narrow_mode(PermissionMode::Plan);
            }
        }
    }

    pub(super) fn isolation(&mut self, key: &str, value: &Node) {
        match value.text().unwrap_or_default() {
            "none" | "false" | "" => (),
            "worktree" => self.definition.isolation = Isolation::Worktree,
            other => {
                let message = format!("`{other}` is not known; the agent gets a worktree of its own");
                self.warn(value.spot, key, message, "write worktree or none");
                self.definition.isolation = Isolation::Worktree;
            }
        }
    }
}

/// The endings in `{fileRegex: '\\.(md|txt)$'}`; `None` where the expression says anything else.
fn endings(options: &Node) -> Option<Vec<String>> {
    let regex = options.get("fileRegex")?.text()?;
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let regex = regex.strip_prefix(".*").unwrap_or(regex).strip_prefix("\\.")?.strip_suffix('$')?;
    let inner = regex.strip_prefix('(').and_then(|it| it.strip_suffix(')')).unwrap_or(regex);
    let inner = inner.strip_prefix("?:").unwrap_or(inner);
    let ending = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric());
    // Without parentheses an alternative would end the expression, not the name.
    let plain = regex.len() != inner.len() || !inner.contains('|');
    (plain && inner.split('|').all(ending)).then(|| inner.split('|').map(str::to_owned).collect())
}

/// Inside a map of limits shorter words are clear, too.
fn limit_named(folded: &str) -> Option<(Limit, Unit)> {
    match fields::lookup(folded) {
        Some(Field::Limit(limit, unit)) => Some((limit, unit)),
        Some(_) | None => match folded {
            "seconds" | "time" => Some((Limit::Wall, Unit::Seconds)),
            "costusd" | "usd" | "maxcostusd" => Some((Limit::Cost, Unit::Dollars)),
            "calls" => Some((Limit::ToolCalls, Unit::Count)),
            _ => None,
        },
    }
}
