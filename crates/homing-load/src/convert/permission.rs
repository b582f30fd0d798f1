//! Writes OpenCode's permissions, in which the last match wins: first what is allowed, then what needs approval, then what is
//! denied. Patterns are taken over if the loader reads them as the same rule; all others stay closed.

use homing_core::{authority::Allow, definition::AgentDefinition, rule::Rule};
use serde_json::{Map, Value, json};

use super::{
    Outcome,
    access::{AccessPlan, is_part, listed},
    authority::{CallSet, calls, is_within},
    targets::Target,
};
use crate::{
    build::{MatchTarget, OPENCODE_TOOLS},
    fields::Field,
    wildcard,
};

/// Tools of ours that OpenCode does not have.
fn is_absent(permission: &str) -> bool {
    matches!(permission, "think" | "diff" | "wait" | "tell" | "cancel" | "answer" | "todoread")
}

/// One permission with the tools that it decides about.
struct Permission {
    name: &'static str,
    target: MatchTarget,
    tools: Vec<&'static str>,
}

impl Permission {
    /// The tools that decide about it: `ls` and `tree` follow `read`, and have a permission of their own.
    fn main_tools(&self) -> &[&'static str] {
        if self.name == "read" { &self.tools[..1] } else { &self.tools }
    }
}

pub(super) fn write(definition: &AgentDefinition, target: &Target, plan: &mut AccessPlan) {
    let rules = &definition.tools;
    if rules.allowed == Allow::All && rules.denied.is_empty() && rules.asked.is_empty() {
        return;
    }
    let base = base(definition);
    let mut writer = PermissionWriter { definition, target, plan, base, lines: Map::new() };
    if let Some(action) = base {
        writer.lines.insert("*".to_owned(), json!(action));
    }
    for permission in permissions() {
        writer.permission(&permission);
    }
    writer.mcp();
    let lines = writer.lines;
    if !rules.denied.is_empty() && !plan.changes.iter().any(|change| change.field == "denied") {
        plan.note("denied", Outcome::Mapped, "part of the permissions");
    }
    if !lines.is_empty() {
        plan.values.push((Field::Permission, Value::Object(lines)));
    }
}

/// The action for all tools that are not named, if there must be one. MCP tools can be meant only in this way.
fn base(definition: &AgentDefinition) -> Option<&'static str> {
    let means_mcp = |rule: &Rule| rule.pattern.is_none() && matches!(rule.tool.as_str(), "mcp__*" | "*");
    let rules = &definition.tools;
    let is_open = match &rules.allowed {
        Allow::All => true,
        Allow::Only(allowed) => allowed.iter().any(means_mcp),
    };
    if !is_open || rules.denied.iter().any(means_mcp) {
        return Some("deny");
    }
    rules.asked.iter().any(means_mcp).then_some("ask")
}

/// All permissions, in the order of the loader's table.
fn permissions() -> Vec<Permission> {
    let mut found: Vec<Permission> = Vec::new();
    for (tool, names, target) in OPENCODE_TOOLS {
        for name in names.iter().filter(|name| !is_absent(name)) {
            match found.iter_mut().find(|permission| permission.name == *name) {
                Some(permission) => permission.tools.push(tool),
                None => found.push(Permission { name, target: *target, tools: vec![tool] }),
            }
        }
    }
    found
}

struct PermissionWriter<'a> {
    definition: &'a AgentDefinition,
    target: &'a Target,
    plan: &'a mut AccessPlan,
    base: Option<&'static str>,
    lines: Map<String, Value>,
}

impl PermissionWriter<'_> {
    /// Writes one permission: its calls that are allowed, asked about and denied.
    fn permission(&mut self, permission: &Permission) {
        let mut lines: Vec<(String, &'static str)> = Vec::new();
        match self.allowed(permission) {
            CallSet::All if self.base.is_some() => lines.push(("*".to_owned(), "allow")),
            CallSet::All => (),
            CallSet::None if self.base == Some("deny") => return,
            CallSet::None => lines.push(("*".to_owned(), "deny")),
            CallSet::Some(patterns) => {
                lines.push(("*".to_owned(), "deny"));
                lines.extend(patterns.into_iter().map(|pattern| (pattern, "allow")));
            }
        }
        if lines.last().is_some_and(|(_, action)| *action == "deny") && lines.len() == 1 {
            return self.add(permission.name, lines);
        }
        self.ask(permission, &mut lines);
        for rule in self.definition.tools.denied.clone() {
            if rule.pattern.is_some() && permission.tools.iter().any(|tool| rule.guards(tool)) {
                for rule in split(permission.target, &rule) {
                    lines.extend(self.guard(permission, &rule, "deny"));
                }
            }
        }
        self.add(permission.name, lines);
    }

    /// Adds the questions. A question must not open a call that is not allowed.
    fn ask(&mut self, permission: &Permission, lines: &mut Vec<(String, &'static str)>) {
        let is_list = lines.iter().any(|(_, action)| *action == "deny");
        for rule in self.definition.tools.asked.clone() {
            if !permission.tools.iter().any(|tool| rule.guards(tool)) {
                continue;
            }
            for (pattern, action) in
                split(permission.target, &rule).iter().filter_map(|rule| self.guard(permission, rule, "ask"))
            {
                let is_inside = |allowed: &str| wildcard::covers(allowed, &pattern);
                let is_open = |(allowed, action): &(String, &str)| *action != "deny" && is_inside(allowed);
                let fits = if is_list { lines.iter().any(is_open) } else { !wildcard::is_everything(&pattern) };
                if fits {
                    lines.push((pattern, action));
                } else {
                    // The question is wider than what is allowed, so all of that needs approval.
                    let open = lines
                        .iter_mut()
                        .filter(|(allowed, action)| *action == "allow" && wildcard::overlap(allowed, &pattern));
                    open.for_each(|(_, action)| *action = "ask");
                    if lines.is_empty() {
                        lines.push((pattern, action));
                    }
                }
            }
        }
    }

    /// Adds the lines of a permission, without those that a later one overrides.
    fn add(&mut self, name: &str, lines: Vec<(String, &str)>) {
        let is_overridden = |at: usize| lines[at + 1..].iter().any(|(later, _)| wildcard::covers(later, &lines[at].0));
        let kept: Vec<&(String, &str)> =
            (0..lines.len()).filter(|at| !is_overridden(*at)).map(|at| &lines[at]).collect();
        let value = match kept.as_slice() {
            [] => return,
            [(pattern, action)] if pattern == "*" => json!(action),
            several => {
                Value::Object(several.iter().map(|(pattern, action)| (pattern.clone(), json!(action))).collect())
            }
        };
        self.lines.insert(name.to_owned(), value);
    }

    /// The calls that a permission allows, as OpenCode's patterns.
    fn allowed(&mut self, permission: &Permission) -> CallSet {
        let Allow::Only(rules) = &self.definition.tools.allowed else { return self.not_denied(permission) };
        if self.not_denied(permission) == CallSet::None {
            return CallSet::None;
        }
        let sets: Vec<(&str, CallSet)> =
            permission.main_tools().iter().map(|tool| (*tool, calls(self.definition, tool))).collect();
        let open = |(tool, set): &(&str, CallSet)| *set == CallSet::All || is_part(rules, tool);
        if sets.iter().all(|(_, set)| *set == CallSet::None) {
            // OpenCode's `read` lists folders, too.
            let lists = permission.name == "list" && calls(self.definition, "read") == CallSet::All;
            return if lists { CallSet::All } else { CallSet::None };
        }
        if sets.iter().any(|(_, set)| *set == CallSet::All) {
            if let Some((tool, _)) = sets.iter().find(|set| !open(set)) {
                let note = format!("in {}, `{}` also decides about `{tool}`", self.target.program, permission.name);
                self.plan.note("tools", Outcome::Wider, note);
            }
            return CallSet::All;
        }
        let mut patterns = Vec::new();
        for (tool, set) in &sets {
            let CallSet::Some(theirs) = set else {
                let note = format!("in {}, `{}` also decides about `{tool}`", self.target.program, permission.name);
                self.plan.note("tools", Outcome::Wider, note);
                continue;
            };
            let theirs = theirs.iter().flat_map(|pattern| parts(permission.target, pattern));
            for pattern in theirs {
                match self.allowed_pattern(permission, &pattern) {
                    Some(found) if patterns.contains(&found) => (),
                    Some(found) => patterns.push(found),
                    None => {
                        let note =
                            format!("`{tool}({pattern})` cannot be written for {}: not allowed", self.target.program);
                        self.plan.note("tools", Outcome::Narrower, note);
                    }
                }
            }
        }
        if patterns.is_empty() { CallSet::None } else { CallSet::Some(patterns) }
    }

    /// Of tools that share a permission, one denial denies all.
    fn not_denied(&mut self, permission: &Permission) -> CallSet {
        let denials = &self.definition.tools.denied;
        let is_denied = |tool: &&&str| denials.iter().any(|rule| rule.pattern.is_none() && rule.names(tool));
        let denied: Vec<&str> = permission.main_tools().iter().filter(is_denied).copied().collect();
        if denied.is_empty() {
            return CallSet::All;
        }
        if denied.len() < permission.main_tools().len() {
            let note = format!(
                "in {}, `{}` also decides about {}",
                self.target.program,
                permission.name,
                others(permission, &denied)
            );
            self.plan.note("denied", Outcome::Narrower, note);
        }
        CallSet::None
    }

    fn allowed_pattern(&self, permission: &Permission, pattern: &str) -> Option<String> {
        let means =
            |candidate: &String| permission.target.permission(candidate).is_some_and(|rule| is_within(&rule, pattern));
        candidates(permission.target, pattern).into_iter().find(means)
    }

    /// The line for a rule that asks or denies.
    fn guard(&mut self, permission: &Permission, rule: &Rule, action: &'static str) -> Option<(String, &'static str)> {
        let Some(pattern) = &rule.pattern else { return Some(("*".to_owned(), action)) };
        let means =
            |candidate: &String| permission.target.denial(candidate).is_some_and(|found| is_within(pattern, &found));
        match candidates(permission.target, pattern).into_iter().find(means) {
            Some(pattern) => Some((pattern, action)),
            // A path of `read` that its own permission guards is not known to `grep` and `glob`.
            None if rule.tool != permission.tools[0] && permission.target == MatchTarget::Nothing => {
                let field = if action == "ask" { "asked" } else { "denied" };
                let note = format!("`{rule}` does not apply to `{}` in {}", permission.name, self.target.program);
                self.plan.note(field, Outcome::Wider, note);
                None
            }
            None => {
                let field = if action == "ask" { "asked" } else { "denied" };
                let note = format!(
                    "`{rule}` cannot be written for {}: holds for all of `{}`",
                    self.target.program, permission.name
                );
                self.plan.note(field, Outcome::Narrower, note);
                Some(("*".to_owned(), action))
            }
        }
    }

    /// Writes rules on MCP tools.
    fn mcp(&mut self) {
        let rules = self.definition.tools.clone();
        let allowed = match &rules.allowed {
            Allow::Only(allowed) if self.base == Some("deny") => allowed.as_slice(),
            Allow::All | Allow::Only(_) => &[],
        };
        let mut missing = Vec::new();
        for (list, action) in [(allowed, "allow"), (&rules.asked, "ask"), (&rules.denied, "deny")] {
            let named = list.iter().filter(|rule| rule.tool.starts_with("mcp__") && rule.tool != "mcp__*");
            for rule in named {
                let asks = action == "allow" && rules.asked.iter().any(|asked| asked.names(&rule.tool));
                match mcp_name(&rule.tool) {
                    Some(name) => _ = self.lines.insert(name, json!(if asks { "ask" } else { action })),
                    None => missing.push(rule.clone()),
                }
            }
        }
        if !missing.is_empty() {
            let note = format!("{} cannot be named in {}", listed(&missing), self.target.program);
            self.plan.note("tools", Outcome::Wider, note);
        }
    }
}

fn others(permission: &Permission, denied: &[&str]) -> String {
    let others: Vec<String> =
        permission.tools.iter().filter(|tool| !denied.contains(tool)).map(|tool| format!("`{tool}`")).collect();
    others.join(", ")
}

/// The patterns in a list of names.
fn parts(target: MatchTarget, pattern: &str) -> Vec<String> {
    match target {
        MatchTarget::Name => pattern.split(',').map(|part| part.trim().to_owned()).collect(),
        _ => vec![pattern.to_owned()],
    }
}

fn split(target: MatchTarget, rule: &Rule) -> Vec<Rule> {
    match &rule.pattern {
        None => vec![rule.clone()],
        Some(pattern) => parts(target, pattern).into_iter().map(|part| Rule::calls(rule.tool.clone(), part)).collect(),
    }
}

/// Patterns of OpenCode that may mean the same as a pattern of ours.
fn candidates(target: MatchTarget, pattern: &str) -> Vec<String> {
    let spaced = pattern.strip_suffix(":*").map(|bare| format!("{bare} *"));
    let whole = pattern.strip_prefix('=').map(str::to_owned);
    let host = pattern.strip_prefix("domain:").map(|host| format!("https://{host}/*"));
    // `git only` is a class of commands, not a command.
    let plain = (pattern != "git only").then(|| pattern.to_owned());
    let all = match target {
        MatchTarget::Command => [spaced, plain, None],
        MatchTarget::Path => [whole, plain, None],
        MatchTarget::Address => [host.clone(), host.map(|host| host.replacen("https", "*", 1)), None],
        MatchTarget::Name => [plain, None, None],
        MatchTarget::ToolName | MatchTarget::Nothing | MatchTarget::Exempt => [None, None, None],
    };
    all.into_iter().flatten().collect()
}

/// OpenCode's name of an MCP tool: the server and the tool, joined by an underscore.
fn mcp_name(tool: &str) -> Option<String> {
    let rest = tool.strip_prefix("mcp__")?;
    match rest.split_once("__") {
        Some((server, name)) => Some(format!("{server}_{name}")),
        // A pattern without a server could also match tools of OpenCode's own.
        None if rest.contains('*') => {
            rest.split('*').next().filter(|start| start.contains('_')).map(|_| rest.to_owned())
        }
        None => Some(format!("{rest}_*")),
    }
}
