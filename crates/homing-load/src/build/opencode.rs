//! OpenCode's permissions: an ordered list in which the last match wins, with wildcards for the tool and for the call.
//! They become rules of ours, in which a denial always holds. What cannot be expressed stays closed, and a remark says so.

use homing_core::rule::Rule;

use super::{
    DefinitionBuilder,
    verdict::{Action, Line, Verdict},
};
use crate::{
    dialect::ToolMap,
    fields,
    node::{Node, NodeEntry, NodeKind, Position},
    tools::{self, Meaning},
    wildcard,
};

/// Each of our tools with the permissions that decide about it in OpenCode, and what patterns are held against there.
/// Its `edit` stands for every tool that changes files, and its `read` lists folders as well.
const TOOLS: &[(&str, &[&str], Compared)] = &[
    ("read", &["read"], Compared::Path),
    ("edit", &["edit"], Compared::Path),
    ("write", &["edit"], Compared::Path),
    ("bash", &["bash"], Compared::Command),
    ("grep", &["grep"], Compared::Nothing),
    ("glob", &["glob"], Compared::Nothing),
    ("ls", &["read", "list"], Compared::Path),
    ("tree", &["read", "list"], Compared::Path),
    ("fetch", &["webfetch"], Compared::Address),
    ("websearch", &["websearch"], Compared::Nothing),
    ("think", &["think"], Compared::Own),
    ("todo", &["todowrite", "todoread"], Compared::Nothing),
    ("skill", &["skill"], Compared::Name),
    ("ask", &["question"], Compared::Nothing),
    ("diff", &["diff"], Compared::Nothing),
    ("delegate", &["task"], Compared::Name),
    ("wait", &["wait"], Compared::Own),
    ("tell", &["tell"], Compared::Own),
    ("cancel", &["cancel"], Compared::Own),
    ("answer", &["answer"], Compared::Own),
];

/// More entries than this are not compared with each other; no real map comes near it.
const MOST_LINES: usize = 128;

/// What the pattern of a permission is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    Command,
    Path,
    Address,
    Name,
    /// An MCP tool's own name: the patterns are those of the names.
    Tool,
    /// Nothing that a rule of ours can speak of.
    Nothing,
    /// Tools of ours alone, which reach nothing but the run and those below it: nobody is asked about them.
    Own,
}

/// A tool of ours, or all MCP tools, with the lines that speak of it.
struct Subject {
    tool: String,
    compared: Compared,
    lines: Vec<Line>,
}

/// What came out for one tool.
enum Access {
    Whole,
    /// These calls, or these MCP tools.
    Some(Vec<Rule>),
    None,
}

impl DefinitionBuilder<'_> {
    /// OpenCode's `permission`: a word for everything, or a map of tool to a word or to patterns.
    pub(super) fn permission(&mut self, key: &str, value: &Node) {
        match (&value.kind, value.text()) {
            (NodeKind::Map(entries), _) => {
                let (lists, entries): (Vec<_>, Vec<_>) = entries.iter().partition(|it| is_list_of_calls(it));
                lists.iter().for_each(|it| self.list_of_calls(it));
                let lines = entries.iter().flat_map(|it| self.lines(key, it)).collect();
                self.permit(key, value.spot, lines);
            }
            (_, Some(word)) if matches!(fields::fold(word).as_str(), "readonly" | "plan") => {
                self.permission_mode(key, value);
            }
            (_, Some(word)) => {
                let action = self.action(key, value, word);
                self.permit(key, value.spot, vec![Line::new("*", "*", action, value.spot)]);
            }
            (NodeKind::List(_) | NodeKind::Plain(_) | NodeKind::Quoted(_), None) => {
                let message = format!("`{key}` is a list; it was read as `tools`");
                self.warn(value.spot, key, message, "write a map of tools to allow, ask or deny");
                self.tools(key, value);
            }
        }
    }

    /// OpenCode's `tools: {bash: false}`, which it reads as permissions. One switch for any tool that changes files
    /// switches all of them there; here, one that is off also stays off by its own name.
    pub(super) fn opencode_switches(&mut self, key: &str, value: &Node) {
        let mut lines = Vec::new();
        for entry in value.entries().unwrap_or_default() {
            let action = match (entry.value.text(), entry.value.truth()) {
                (Some("allow"), _) | (_, Some(true)) => Action::Allow,
                (Some("deny"), _) | (_, Some(false)) => Action::Deny,
                (_, None) => {
                    let message = format!("`{}` is neither true nor false here; the tool stays off", entry.key);
                    self.warn(entry.value.spot, key, message, "write true or false");
                    Action::Deny
                }
            };
            let changes_files = matches!(entry.key.as_str(), "write" | "edit" | "patch" | "multiedit");
            let permission = if changes_files { "edit" } else { entry.key.as_str() };
            match lines.iter_mut().find(|it: &&mut Line| it.permission == permission) {
                Some(line) => line.action = action,
                None => lines.push(Line::new(permission, "*", action, entry.spot)),
            }
        }
        self.permit(key, value.spot, lines);
        for tool in ["edit", "write"] {
            let off = |it: &NodeEntry| it.key == tool && it.value.truth() == Some(false);
            if value.entries().unwrap_or_default().iter().any(off) {
                self.deny(vec![Rule::tool(tool)]);
            }
        }
    }

    /// `allow`, `ask` or `deny` with calls, as Claude Code's settings have it.
    fn list_of_calls(&mut self, entry: &NodeEntry) {
        let (key, value) = (entry.key.as_str(), &entry.value);
        match fields::fold(key).as_str() {
            "allow" | "allowed" => self.tools(key, value),
            "ask" => {
                let items = tools::named(value, key, self.remarks);
                let rules = tools::denied(items, self.names, key, self.remarks);
                self.ask_about(rules);
            }
            _ => self.denied(key, value),
        }
    }

    fn ask_about(&mut self, rules: Vec<Rule>) {
        for rule in rules {
            if !self.definition.asked.contains(&rule) {
                self.definition.asked.push(rule);
            }
        }
    }

    /// The lines that one entry of the map stands for.
    fn lines(&mut self, key: &str, entry: &NodeEntry) -> Vec<Line> {
        let mut line = |pattern: &str, spot: Position, value: &Node| {
            let action = self.action(key, value, value.text().unwrap_or_default());
            Line::new(&entry.key, pattern, action, spot)
        };
        match &entry.value.kind {
            NodeKind::Map(patterns) => patterns.iter().map(|it| line(&it.key, it.spot, &it.value)).collect(),
            NodeKind::Plain(_) | NodeKind::Quoted(_) | NodeKind::List(_) => vec![line("*", entry.spot, &entry.value)],
        }
    }

    fn action(&mut self, key: &str, value: &Node, word: &str) -> Action {
        match word {
            "allow" => Action::Allow,
            "ask" => Action::Ask,
            "deny" => Action::Deny,
            other => {
                let message = format!("`{other}` is not a permission; it was taken for deny");
                self.warn(value.spot, key, message, "write allow, ask or deny");
                Action::Deny
            }
        }
    }

    /// Lays these permissions on the definition.
    fn permit(&mut self, key: &str, spot: Position, mut lines: Vec<Line>) {
        if lines.len() > MOST_LINES {
            let message = format!("more than {MOST_LINES} permissions are not supported, so all are denied");
            self.warn(spot, key, message, "use fewer, wider patterns");
            lines = vec![Line::new("*", "*", Action::Deny, spot)];
        }
        self.say_overruled(key, &lines);
        let rest = lines.iter().rfind(|it| wildcard::is_everything(&it.permission) && it.is_whole());
        let closed = rest.is_some_and(|it| it.action == Action::Deny);
        let subjects = self.subjects(key, &lines, closed);
        let access: Vec<(&str, Access)> = subjects.iter().map(|it| (it.tool.as_str(), self.access(key, it))).collect();
        if closed || access.iter().any(|(_, it)| matches!(it, Access::Some(_))) {
            let rules: Vec<Rule> = access.into_iter().flat_map(|(tool, it)| it.rules(tool)).collect();
            if rules.is_empty() && lines.iter().any(|it| it.action != Action::Deny) {
                let hint = "write \"*\": deny first, and what is allowed after it";
                self.warn(spot, key, format!("`{key}` leaves the agent no tools at all"), hint);
            }
            self.narrow(Some(rules));
        } else {
            let off = access.iter().filter(|(_, it)| matches!(it, Access::None));
            let off = off.map(|(tool, _)| Rule::tool(*tool)).collect();
            self.deny(off);
        }
    }

    /// A line that a later one overrules is surprising enough to be told.
    fn say_overruled(&mut self, key: &str, lines: &[Line]) {
        for (at, line) in lines.iter().enumerate() {
            let overrules = |later: &&Line| {
                later.action != line.action
                    && wildcard::covers(&later.permission, &line.permission)
                    && wildcard::covers(&later.pattern, &line.pattern)
            };
            if let Some(later) = lines[at + 1..].iter().rfind(overrules) {
                let message =
                    format!("`{line}` has no effect: the later `{later}` overrules it, because the last match wins");
                self.warn(line.spot, key, message, "write the general rule first and its exceptions after it");
            }
        }
    }

    /// Every tool with the lines that speak of it.
    fn subjects(&mut self, key: &str, lines: &[Line], closed: bool) -> Vec<Subject> {
        let ours = TOOLS.iter().map(|(tool, _, compared)| (*tool, *compared));
        let hosts = self.names.extra.iter().map(|it| (it.as_str(), Compared::Nothing));
        let all = ours.chain(hosts).chain([("mcp__*", Compared::Tool)]);
        let empty = |(tool, compared): (&str, Compared)| Subject { tool: tool.to_owned(), compared, lines: Vec::new() };
        let mut subjects: Vec<Subject> = all.map(empty).collect();
        for line in lines {
            for tool in self.reach(key, line, closed) {
                match subjects.iter_mut().find(|it| it.tool == tool) {
                    Some(subject) if subject.compared != Compared::Tool => subject.lines.push(line.clone()),
                    Some(_) | None => add_to_mcp(&mut subjects, &tool, line),
                }
            }
        }
        subjects
    }

    /// The tools that a line speaks of, by our names; MCP tools as patterns of names.
    fn reach(&mut self, key: &str, line: &Line, closed: bool) -> Vec<String> {
        let name = line.permission.as_str();
        let is_pattern = name.contains(['*', '?']);
        let speaks = |theirs: &[&str]| theirs.iter().any(|it| wildcard::matches(name, it));
        let mut tools: Vec<String> =
            TOOLS.iter().filter(|(_, theirs, _)| speaks(theirs)).map(|(tool, ..)| (*tool).to_owned()).collect();
        tools.extend(self.names.extra.iter().filter(|it| wildcard::matches(name, it)).cloned());
        if is_pattern {
            tools.extend(mcp_names(name));
        }
        if is_pattern || !tools.is_empty() {
            return tools;
        }
        // OpenCode does not know the name. Then it restricts here all the same, but in OpenCode's own files it opens nothing.
        let opens = line.action == Action::Allow;
        let only_restricts = self.dialect().tool_map == ToolMap::Switches;
        match self.names.meaning(name) {
            Meaning::Rules(rules) if rules.iter().all(|it| it.tool.starts_with("mcp__")) => {
                rules.into_iter().map(|it| it.tool).collect()
            }
            Meaning::Rules(_) | Meaning::Everything if opens && only_restricts => {
                if closed {
                    let message = format!("OpenCode has no permission `{name}`, so it allows nothing");
                    self.warn(line.spot, key, message, "");
                }
                Vec::new()
            }
            Meaning::Rules(rules) => rules.into_iter().map(|it| it.tool).collect(),
            Meaning::Everything => TOOLS.iter().map(|(tool, ..)| *tool).chain(["mcp__*"]).map(str::to_owned).collect(),
            Meaning::NoCounterpart => {
                self.remarks.info(line.spot, key, format!("`{name}` has no counterpart here; it has no effect"), "");
                Vec::new()
            }
            Meaning::Unknown => self.reach_of_unknown(key, line),
        }
    }

    /// A name that nobody knows may be an MCP tool's; where it restricts, it may also be a misspelt name.
    fn reach_of_unknown(&mut self, key: &str, line: &Line) -> Vec<String> {
        let name = line.permission.as_str();
        let near = self.names.near(name).filter(|_| line.action != Action::Allow);
        let mcp = mcp_names(name);
        if near.is_some() || mcp.is_empty() {
            let hint = near.map(|it| format!("did you mean `{it}`?")).unwrap_or_default();
            self.warn(line.spot, key, format!("there is no tool `{name}` to permit or forbid"), &hint);
        }
        mcp.into_iter().chain(near.map(str::to_owned)).collect()
    }

    /// What the lines leave of one tool; denials and questions go into the definition.
    fn access(&mut self, key: &str, subject: &Subject) -> Access {
        let verdict = Verdict::of(&subject.tool, subject.compared, &subject.lines);
        // Several of our tools may follow one line, and it is remarked on once.
        for it in verdict.remarks {
            self.remarks.once(it.severity, it.spot, key, it.message);
        }
        self.deny(verdict.denied);
        self.ask_about(verdict.asked);
        match verdict.allowed {
            None => Access::Whole,
            Some(rules) if rules.is_empty() => Access::None,
            Some(rules) => Access::Some(rules),
        }
    }
}

impl Access {
    fn rules(self, tool: &str) -> Vec<Rule> {
        match self {
            Self::Whole => vec![Rule::tool(tool)],
            Self::Some(rules) => rules,
            Self::None => Vec::new(),
        }
    }
}

/// Whether an entry is a list of calls rather than what OpenCode has: a tool with a word or with patterns.
fn is_list_of_calls(entry: &NodeEntry) -> bool {
    let key = fields::fold(&entry.key);
    let names_an_action =
        matches!(key.as_str(), "allow" | "allowed" | "ask" | "deny" | "denied" | "disallow" | "disallowed");
    let has_calls = match &entry.value.kind {
        NodeKind::List(_) => true,
        NodeKind::Plain(word) | NodeKind::Quoted(word) => !matches!(word.as_str(), "allow" | "ask" | "deny"),
        NodeKind::Map(_) => true,
    };
    names_an_action && has_calls
}

/// The line, with the name as its pattern: which MCP tools there are is not known when a file is read.
fn add_to_mcp(subjects: &mut [Subject], name: &str, line: &Line) {
    // OpenCode asks about MCP tools as a whole, so any pattern but `*` allows nothing. A denial closes the tool.
    if !line.is_whole() && line.action != Action::Deny {
        return;
    }
    let pattern = if name == "mcp__*" { "*" } else { name };
    if let Some(mcp) = subjects.iter_mut().find(|it| it.compared == Compared::Tool) {
        mcp.lines.push(Line { pattern: pattern.to_owned(), ..line.clone() });
    }
}

/// OpenCode calls an MCP tool `server_tool`, we call it `mcp__server__tool`. Any underscore may be the border.
fn mcp_names(name: &str) -> Vec<String> {
    if name.starts_with("mcp__") || wildcard::is_everything(name) {
        return vec![if name.starts_with("mcp__") { name.to_owned() } else { "mcp__*".to_owned() }];
    }
    let borders = name.match_indices('_').filter(|(at, _)| *at > 0 && at + 1 < name.len());
    let doubled = borders.map(|(at, _)| format!("mcp__{}_{}", &name[..=at], &name[at + 1..]));
    // A star may stand for the border, too.
    let starred = name.contains('*').then(|| format!("mcp__{name}"));
    doubled.chain(starred).take(8).collect()
}

#[cfg(test)]
mod tests {
    use homing_core::tool_names;

    use super::*;

    #[test]
    fn every_tool_of_ours_has_its_permission() {
        let all: Vec<&str> = TOOLS.iter().map(|(tool, ..)| *tool).collect();
        for tool in tool_names::all() {
            assert!(all.contains(&tool), "{tool}");
        }
        assert_eq!(all.len(), tool_names::all().count());
    }

    #[test]
    fn names_of_mcp_tools_are_found_at_every_border() {
        assert_eq!(mcp_names("a_b_c"), ["mcp__a__b_c", "mcp__a_b__c"]);
        assert_eq!(mcp_names("github_*"), ["mcp__github__*", "mcp__github_*"]);
        assert_eq!(mcp_names("*"), ["mcp__*"]);
        assert!(mcp_names("bsh").is_empty());
    }
}
