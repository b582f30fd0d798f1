//! Writes the tools that an agent may use. Names and groups are chosen by the meaning that the loader gives them.

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, PermissionMode},
    rule::Rule,
    tool_names::{self, BASH, EDIT, WRITE},
};
use serde_json::{Value, json};

use super::{
    Change, Outcome,
    authority::{CallSet, asks_in_ask_mode, calls, mcp_probes},
    extensions, permission,
    targets::{Access, EmptyList, ListForm, McpForm, Target, ToolNames},
};
use crate::{
    fields::Field,
    tools::{Meaning, Vocabulary},
};

/// The values of the fields that restrict tools, and what was lost.
#[derive(Debug, Default)]
pub(super) struct AccessPlan {
    pub(super) values: Vec<(Field, Value)>,
    pub(super) changes: Vec<Change>,
}

impl AccessPlan {
    pub(super) fn note(&mut self, field: &str, outcome: Outcome, note: impl Into<String>) {
        self.changes.push(Change { field: field.to_owned(), outcome, note: note.into() });
    }

    fn wider(&mut self, field: &str, note: impl Into<String>) {
        self.note(field, Outcome::Wider, note);
    }
}

/// Expresses the rules and the permission mode of a definition in the form of `target`.
pub(super) fn plan(definition: &AgentDefinition, target: &'static Target) -> AccessPlan {
    let mut plan = AccessPlan::default();
    let definition = &with_mode(definition, target, &mut plan);
    match target.access {
        Access::Names(names) => NameWriter { definition, target, names }.write(&mut plan),
        Access::Permission => permission::write(definition, target, &mut plan),
        Access::Extensions => extensions::write(definition, target, &mut plan),
        Access::ReadOnly => read_only(definition, target, &mut plan),
        Access::Nothing => unrestricted(definition, target, &mut plan),
    }
    plan
}

/// Writes the permission mode. If the form has no modes, the rules to which the mode comes down are added.
fn with_mode(definition: &AgentDefinition, target: &Target, plan: &mut AccessPlan) -> AgentDefinition {
    let mut definition = definition.clone();
    let Some(mode) = definition.execution.permission_mode else { return definition };
    let word = target.modes.iter().find(|(other, _)| *other == mode).map(|(_, word)| *word);
    if let Some((word, field)) = word.zip(mode_field(target)) {
        let value = if field == Field::ReadOnly { Value::Bool(true) } else { Value::from(word) };
        plan.values.push((field, value));
        if word == "dontAsk" {
            let note = "`dontAsk` denies what would need approval, unless the user allowed it before";
            plan.note("permission_mode", Outcome::Narrower, note);
        }
        return definition;
    }
    let program = target.program;
    match mode {
        PermissionMode::Plan => {
            for rule in [Rule::tool(EDIT), Rule::tool(WRITE)] {
                if !definition.tools.denied.contains(&rule) {
                    definition.tools.denied.push(rule);
                }
            }
            let mut others = mcp_probes(&definition);
            others.extend([BASH.to_owned(), "mcp__another__tool".to_owned()]);
            if others.iter().any(|tool| calls(&definition, tool) != CallSet::None) {
                let note =
                    format!("{program} has no plan mode for an agent: commands and MCP tools could change files");
                plan.wider("permission_mode", note);
            } else {
                plan.note("permission_mode", Outcome::Mapped, "written as tools that change nothing");
            }
        }
        PermissionMode::Ask => {
            let asked = tool_names::all().filter(|tool| asks_in_ask_mode(tool)).chain(["mcp__*"]);
            definition.tools.asked.extend(asked.map(Rule::tool));
            if matches!(target.access, Access::Permission) {
                plan.note("permission_mode", Outcome::Mapped, "written as permissions that ask");
            }
        }
        PermissionMode::Edit | PermissionMode::All => {
            plan.note("permission_mode", Outcome::Narrower, format!("{program}'s user decides what needs approval"));
        }
    }
    definition
}

fn mode_field(target: &Target) -> Option<Field> {
    [Field::PermissionMode, Field::ReadOnly].into_iter().find(|field| target.key(*field).is_some())
}

/// Returns true if the rules restrict anything.
fn is_restricted(definition: &AgentDefinition) -> bool {
    let rules = &definition.tools;
    rules.allowed != Allow::All || !rules.denied.is_empty() || !rules.asked.is_empty()
}

/// A form with nothing but a switch against all changes.
fn read_only(definition: &AgentDefinition, target: &Target, plan: &mut AccessPlan) {
    if !is_restricted(definition) {
        return;
    }
    let changes_nothing = [EDIT, WRITE, BASH].iter().all(|tool| calls(definition, tool) == CallSet::None);
    let word = target.modes.iter().find(|(mode, _)| *mode == PermissionMode::Plan);
    if let (true, None, Some(field), Some((_, word))) =
        (changes_nothing, definition.execution.permission_mode, mode_field(target), word)
    {
        let value = if field == Field::ReadOnly { Value::Bool(true) } else { Value::from(*word) };
        plan.values.push((field, value));
        plan.note("permission_mode", Outcome::Narrower, "set to read-only, because its tools change nothing");
    }
    unrestricted(definition, target, plan);
}

/// A form without rules on tools.
fn unrestricted(definition: &AgentDefinition, target: &Target, plan: &mut AccessPlan) {
    let program = target.program;
    let rules = &definition.tools;
    if let Allow::Only(allowed) = &rules.allowed {
        plan.wider("tools", format!("{program} cannot limit an agent to {}", listed(allowed)));
    }
    if !rules.denied.is_empty() {
        plan.wider("denied", format!("{program} cannot deny {}", listed(&rules.denied)));
    }
    if !rules.asked.is_empty() {
        plan.wider("asked", format!("{program} cannot require approval for {}", listed(&rules.asked)));
    }
}

/// The rules as text, for messages.
pub(super) fn listed(rules: &[Rule]) -> String {
    const MOST: usize = 6;
    let mut names: Vec<String> = rules.iter().take(MOST).map(|rule| format!("`{rule}`")).collect();
    if rules.len() > MOST {
        names.push(format!("{} more", rules.len() - MOST));
    }
    if names.is_empty() { "no tools".to_owned() } else { names.join(", ") }
}

/// Writes a list of names of tools.
struct NameWriter<'a> {
    definition: &'a AgentDefinition,
    target: &'static Target,
    names: ToolNames,
}

/// A name of the other program and the tools that it means.
struct ToolName {
    name: &'static str,
    tools: Vec<String>,
}

impl NameWriter<'_> {
    fn write(&self, plan: &mut AccessPlan) {
        let rules = &self.definition.tools;
        let deny_key = self.target.key(Field::Denied);
        match (&rules.allowed, rules.denied.is_empty()) {
            (Allow::All, true) => self.write_all(plan),
            (Allow::All, false) if deny_key.is_some() => self.write_all(plan),
            (Allow::All, false) => self.write_complement(plan),
            (Allow::Only(allowed), _) => self.write_allowed(allowed, plan),
        }
        if deny_key.is_some() && !rules.denied.is_empty() {
            self.write_denied(plan);
        } else {
            self.check_denied(plan);
        }
        self.write_asked(plan);
    }

    fn field(&self) -> Field {
        if self.target.key(Field::Groups).is_some() { Field::Groups } else { Field::Tools }
    }

    fn list(&self, names: &[String]) -> Value {
        match self.names.list {
            ListForm::Commas if !names.is_empty() => Value::from(names.join(", ")),
            ListForm::Commas | ListForm::List => json!(names),
        }
    }

    fn write_all(&self, plan: &mut AccessPlan) {
        if let Some(all) = self.names.all {
            plan.values.push((self.field(), json!(all)));
        }
    }

    /// All names with their meanings, the widest first.
    fn vocabulary(&self) -> Vec<ToolName> {
        let names = Vocabulary { dialect: self.target.dialect(), extra: &[], servers: &[] };
        let own: Vec<&'static str> = tool_names::all().collect();
        let known = if self.names.names.is_empty() { own.as_slice() } else { self.names.names };
        let tools = |name: &&'static str| match names.meaning(name) {
            Meaning::Rules(rules) => ToolName { name, tools: rules.into_iter().map(|rule| rule.tool).collect() },
            Meaning::Everything | Meaning::NoCounterpart | Meaning::Unknown => ToolName { name, tools: Vec::new() },
        };
        let mut all: Vec<ToolName> = known.iter().map(tools).collect();
        all.sort_by_key(|name| std::cmp::Reverse(name.tools.len()));
        all
    }

    /// Writes all tools that are not denied, for forms that cannot deny.
    fn write_complement(&self, plan: &mut AccessPlan) {
        let is_open = |tool: &&str| calls(self.definition, tool) != CallSet::None;
        let mut rules: Vec<Rule> = tool_names::all().filter(is_open).map(Rule::tool).collect();
        let denied = &self.definition.tools.denied;
        if denied.iter().any(|rule| rule.tool.starts_with("mcp__")) {
            plan.note("tools", Outcome::Narrower, "MCP tools are left out, because some of them are denied");
        } else {
            rules.push(Rule::tool("mcp__*"));
        }
        plan.note("denied", Outcome::Mapped, "written as the list of all other tools");
        self.write_allowed(&rules, plan);
    }

    fn write_allowed(&self, allowed: &[Rule], plan: &mut AccessPlan) {
        let is_denied = |rule: &&Rule| calls(self.definition, &rule.tool) == CallSet::None && !rule.tool.contains('*');
        let open: Vec<Rule> = match self.target.key(Field::Denied) {
            Some(_) => allowed.to_vec(),
            None => allowed.iter().filter(|rule| !is_denied(rule)).cloned().collect(),
        };
        let (mut names, missing) = self.tool_names(&open, plan);
        if names.is_empty() {
            names.extend(self.instead_of_nothing(plan));
        }
        if !missing.is_empty() && matches!(self.definition.tools.allowed, Allow::Only(_)) {
            plan.note(
                "tools",
                Outcome::Narrower,
                format!("{} has no name for {}", self.target.program, listed(&missing)),
            );
        }
        plan.values.push((self.field(), self.list(&names)));
    }

    /// The entry of a list that would be empty.
    fn instead_of_nothing(&self, plan: &mut AccessPlan) -> Option<String> {
        let program = self.target.program;
        match self.names.empty {
            EmptyList::NoTools => None,
            EmptyList::Harmless(name) => {
                let note = format!("in {program}, an empty list may mean all tools: `{name}` is listed instead");
                plan.note("tools", Outcome::Mapped, note);
                Some(name.to_owned())
            }
            EmptyList::MaybeAll => {
                plan.wider("tools", format!("in {program}, an empty list may mean all tools"));
                None
            }
        }
    }

    /// The names for rules, in the order of the rules, and the rules without names.
    fn tool_names(&self, rules: &[Rule], plan: &mut AccessPlan) -> (Vec<String>, Vec<Rule>) {
        let vocabulary = self.vocabulary();
        let (mut names, mut missing): (Vec<String>, Vec<Rule>) = (Vec::new(), Vec::new());
        for rule in rules {
            let name = match &rule.pattern {
                Some(pattern) if self.names.has_patterns => Some(format!("{}({pattern})", rule.tool)),
                _ if rule.tool.starts_with("mcp__") => self.mcp_tool(rule, plan),
                _ => self.own_tool(rule, rules, &vocabulary, plan),
            };
            match name {
                Some(name) if names.contains(&name) => (),
                Some(name) => names.push(name),
                None if missing.contains(rule) => (),
                None => missing.push(rule.clone()),
            }
        }
        (names, missing)
    }

    fn own_tool(&self, rule: &Rule, rules: &[Rule], vocabulary: &[ToolName], plan: &mut AccessPlan) -> Option<String> {
        let wanted = |tool: &str| rules.iter().any(|rule| rule.tool == tool || rule.tool == "*");
        let program = self.target.program;
        let means = |name: &&ToolName| name.tools.contains(&rule.tool);
        let is_wanted = |name: &&ToolName| name.tools.iter().all(|tool| wanted(tool));
        let fits = |name: &&ToolName| name.tools.iter().all(|tool| wanted(tool) || is_part(rules, tool));
        let narrowest = || vocabulary.iter().rev().filter(means);
        let exact = vocabulary.iter().filter(means).find(is_wanted).or_else(|| narrowest().find(fits));
        let found = exact.or_else(|| narrowest().next())?;
        if rule.pattern.is_some() {
            plan.wider(
                "tools",
                format!("{program} cannot limit `{}` to `{rule}`: all its calls would be allowed", rule.tool),
            );
        }
        if exact.is_none() {
            let more: Vec<&str> = found.tools.iter().filter(|tool| !wanted(tool)).map(String::as_str).collect();
            plan.wider("tools", format!("in {program}, `{}` also stands for `{}`", found.name, more.join("`, `")));
        }
        Some(found.name.to_owned())
    }

    fn mcp_tool(&self, rule: &Rule, plan: &mut AccessPlan) -> Option<String> {
        match mcp_name(&rule.tool, self.names.mcp) {
            McpName::Exact(name) => Some(name),
            McpName::Group(name) => {
                if rule.tool != "mcp__*" {
                    let program = self.target.program;
                    plan.wider(
                        "tools",
                        format!("{program} cannot limit MCP tools to `{rule}`: `{name}` stands for all"),
                    );
                }
                Some(name)
            }
            McpName::None => None,
        }
    }

    fn write_denied(&self, plan: &mut AccessPlan) {
        let vocabulary = self.vocabulary();
        let denied = &self.definition.tools.denied;
        let mut names = Vec::new();
        for rule in denied {
            let found = vocabulary.iter().find(|name| name.tools == [rule.tool.as_str()]);
            let name = found.map_or(rule.tool.as_str(), |found| found.name);
            let program = self.target.program;
            match &rule.pattern {
                None => names.push(name.to_owned()),
                Some(pattern) if self.names.has_patterns => names.push(format!("{name}({pattern})")),
                Some(pattern) if self.names.closes_denials => {
                    names.push(format!("{name}({pattern})"));
                    plan.note(
                        "denied",
                        Outcome::Narrower,
                        format!("{program} denies all of `{name}`, not only `{rule}`"),
                    );
                }
                Some(_) if calls(self.definition, &rule.tool) == CallSet::None => (),
                Some(_) => plan.wider("denied", format!("{program} cannot deny `{rule}` alone")),
            }
        }
        if !names.is_empty() {
            plan.values.push((Field::Denied, self.list(&names)));
        }
    }

    /// Reports denials of calls that no list of names can express.
    fn check_denied(&self, plan: &mut AccessPlan) {
        let denied = &self.definition.tools.denied;
        for rule in denied.iter().filter(|rule| rule.pattern.is_some()) {
            if calls(self.definition, &rule.tool) != CallSet::None {
                plan.wider("denied", format!("{} cannot deny `{rule}` alone", self.target.program));
            }
        }
        if !denied.is_empty() && !plan.changes.iter().any(|change| change.field == "denied") {
            plan.note("denied", Outcome::Mapped, "not on the list of its tools");
        }
    }

    fn write_asked(&self, plan: &mut AccessPlan) {
        let asked = &self.definition.tools.asked;
        if asked.is_empty() {
            return;
        }
        if self.target.key(Field::Permission).is_some() {
            let names: Vec<String> = asked.iter().map(ToString::to_string).collect();
            return plan.values.push((Field::Permission, json!({"ask": names})));
        }
        let open: Vec<Rule> =
            asked.iter().filter(|rule| calls(self.definition, &rule.tool) != CallSet::None).cloned().collect();
        if !open.is_empty() {
            plan.wider("asked", format!("{} cannot require approval for {}", self.target.program, listed(&open)));
        }
    }
}

/// Returns true if one of the rules allows a tool of which this one does a part: listing and finding files is a part of reading
/// them, and editing a file a part of writing it.
pub(super) fn is_part(rules: &[Rule], tool: &str) -> bool {
    let has = |name: &str| rules.iter().any(|rule| rule.tool == name && rule.pattern.is_none());
    match tool {
        tool_names::GREP | tool_names::GLOB | tool_names::LS | tool_names::TREE | tool_names::DIFF => {
            has(tool_names::READ) || has(BASH)
        }
        tool_names::READ | WRITE => has(BASH),
        EDIT => has(WRITE) || has(BASH),
        _ => false,
    }
}

enum McpName {
    Exact(String),
    /// A name that stands for all MCP tools.
    Group(String),
    None,
}

fn mcp_name(tool: &str, form: McpForm) -> McpName {
    let rest = tool.strip_prefix("mcp__").unwrap_or(tool);
    let (server, name) = rest.split_once("__").unwrap_or((rest, "*"));
    let is_all = rest == "*";
    // A star inside of a name is understood by our own rules only.
    let is_plain = |text: &str| !text.contains('*');
    let simple = is_plain(server) && (name == "*" || is_plain(name));
    let name = match form {
        McpForm::Group(group) => return McpName::Group(group.to_owned()),
        McpForm::None => return McpName::None,
        McpForm::Ours if is_all => tool.to_owned(),
        McpForm::Gemini if is_all => "mcp_*".to_owned(),
        _ if !simple => return McpName::None,
        McpForm::Ours => tool.to_owned(),
        // The loader splits at the first underscore.
        McpForm::Gemini if server.contains('_') => return McpName::None,
        McpForm::Gemini => format!("mcp_{server}_{name}"),
        McpForm::Slash => format!("{server}/{name}"),
        McpForm::Colon => format!("mcp:{server}/{name}"),
        McpForm::At if name == "*" => format!("@{server}"),
        McpForm::At => format!("@{server}/{name}"),
    };
    McpName::Exact(name)
}
