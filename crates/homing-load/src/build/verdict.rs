//! What an ordered list of permissions leaves of one tool, as rules of ours. Pure: it reads no files and tells nobody.

use std::fmt;

use homing_core::{diagnostic::Severity, rule::Rule};

use super::opencode::Compared;
use crate::{node::Position, wildcard};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    Ask,
    Deny,
}

/// One permission as OpenCode reads it: both parts are patterns.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) permission: String,
    pub(super) pattern: String,
    pub(super) action: Action,
    pub(super) spot: Position,
}

impl Line {
    pub(super) fn new(permission: &str, pattern: &str, action: Action, spot: Position) -> Self {
        Self { permission: permission.to_owned(), pattern: pattern.to_owned(), action, spot }
    }

    /// Whether it speaks of every call of its tools.
    pub(super) fn is_whole(&self) -> bool {
        wildcard::is_everything(&self.pattern)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Allow => "allow",
            Action::Ask => "ask",
            Action::Deny => "deny",
        };
        match self.is_whole() {
            true => write!(f, "{}: {action}", self.permission),
            false => write!(f, "{} {}: {action}", self.permission, self.pattern),
        }
    }
}

/// Something to tell the author about one line.
#[derive(Debug)]
pub(super) struct Remark {
    pub(super) severity: Severity,
    pub(super) spot: Position,
    pub(super) message: String,
}

/// What is left of a tool.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The calls that are allowed; `None` is all of them.
    pub(super) allowed: Option<Vec<Rule>>,
    pub(super) denied: Vec<Rule>,
    pub(super) asked: Vec<Rule>,
    pub(super) remarks: Vec<Remark>,
}

impl Verdict {
    /// Reads the lines that speak of `tool`, in their order.
    pub(super) fn of(tool: &str, compared: Compared, lines: &[Line]) -> Self {
        let (base, exceptions) = effective(lines);
        if compared == Compared::Own {
            return Self { allowed: (base == Action::Deny).then(Vec::new), ..Self::default() };
        }
        let mut verdict = Self::default();
        let rule = |pattern: String| match compared {
            Compared::Tool => Rule::tool(pattern),
            Compared::Command
            | Compared::Path
            | Compared::Address
            | Compared::Name
            | Compared::Nothing
            | Compared::Own => Rule::calls(tool, pattern),
        };
        match base {
            Action::Allow => (),
            Action::Ask => verdict.asked.push(Rule::tool(tool)),
            Action::Deny => verdict.allowed = Some(Vec::new()),
        }
        for (at, line) in exceptions.iter().enumerate() {
            let hidden_by = |action: Action| {
                let hides = |it: &&Line| it.action == action && wildcard::overlap(&it.pattern, &line.pattern);
                exceptions[..at].iter().copied().rfind(hides)
            };
            match line.action {
                Action::Deny => match compared.denial(&line.pattern) {
                    Some(pattern) => verdict.denied.push(rule(pattern)),
                    None => return verdict.close(line),
                },
                Action::Ask | Action::Allow => {
                    verdict.say_hidden(line, hidden_by(Action::Deny), base, hidden_by(Action::Ask));
                    verdict.open(compared, line, &rule, tool);
                }
            }
        }
        verdict
    }

    /// An exception that asks or allows.
    fn open(&mut self, compared: Compared, line: &Line, rule: &dyn Fn(String) -> Rule, tool: &str) {
        if line.action == Action::Ask && !self.asked.contains(&Rule::tool(tool)) {
            // A question too many is better than one too few.
            self.asked.push(compared.denial(&line.pattern).map_or_else(|| Rule::tool(tool), rule));
        }
        let Some(allowed) = &mut self.allowed else { return };
        match compared.permission(&line.pattern) {
            Some(pattern) => allowed.push(rule(pattern)),
            None => {
                let message = format!("`{line}` cannot be expressed here; it allows nothing");
                self.remarks.push(Remark { severity: Severity::Warning, spot: line.spot, message });
            }
        }
    }

    /// Of our rules a denial always holds, and so does a question.
    fn say_hidden(&mut self, line: &Line, denied: Option<&Line>, base: Action, asked: Option<&Line>) {
        if let Some(denied) = denied {
            let message = format!(
                "`{line}` is narrower here: what `{denied}` matches stays denied, because a denial has no exceptions"
            );
            self.remarks.push(Remark { severity: Severity::Warning, spot: line.spot, message });
        } else if line.action == Action::Allow && (base == Action::Ask || asked.is_some()) {
            let message = format!("`{line}` is narrower here: it is asked about, because a question has no exceptions");
            self.remarks.push(Remark { severity: Severity::Info, spot: line.spot, message });
        }
    }

    /// A denial that cannot be expressed takes the whole tool away.
    fn close(self, line: &Line) -> Self {
        let message = format!("`{line}` cannot be expressed here, so the whole tool is denied");
        let remark = Remark { severity: Severity::Warning, spot: line.spot, message };
        let remarks = self.remarks.into_iter().chain([remark]).collect();
        Self { allowed: Some(Vec::new()), remarks, ..Self::default() }
    }
}

/// What holds where no pattern matches, and the patterns that change it, without those that have no effect.
fn effective(lines: &[Line]) -> (Action, Vec<&Line>) {
    let (mut base, mut exceptions) = (Action::Allow, Vec::<&Line>::new());
    for line in lines {
        if line.is_whole() {
            (base, exceptions) = (line.action, Vec::new());
        } else {
            exceptions.retain(|it| !wildcard::covers(&line.pattern, &it.pattern));
            exceptions.push(line);
        }
    }
    let mut kept: Vec<&Line> = Vec::new();
    for line in exceptions {
        let repeats = |it: &&Line| it.action != line.action && wildcard::overlap(&it.pattern, &line.pattern);
        if line.action != base || kept.iter().any(repeats) {
            kept.push(line);
        }
    }
    (base, kept)
}

impl Compared {
    /// A pattern of ours that matches nothing but what `pattern` matches.
    fn permission(self, pattern: &str) -> Option<String> {
        let plain = !pattern.is_empty() && pattern.trim() == pattern && !pattern.contains(['\\', '\n']);
        let pattern = Some(pattern).filter(|_| plain)?;
        match self {
            Self::Command => Some(colon(pattern)),
            Self::Path => path(pattern),
            Self::Address => match address(pattern)? {
                Address::Host(host) => Some(format!("domain:{host}")),
                Address::Part(_) => None,
            },
            Self::Name => name(pattern),
            Self::Tool => Some(pattern.to_owned()),
            Self::Nothing | Self::Own => None,
        }
    }

    /// A pattern of ours that matches at least what `pattern` matches.
    fn denial(self, pattern: &str) -> Option<String> {
        let plain = !pattern.is_empty() && pattern.trim() == pattern && !pattern.contains(['\\', '\n']);
        let pattern = Some(pattern).filter(|_| plain)?;
        match self {
            Self::Command => Some(colon(pattern)),
            Self::Path => Some(any_folder(pattern)),
            Self::Address => match address(pattern)? {
                Address::Host(host) | Address::Part(host) => Some(format!("domain:{host}")),
            },
            Self::Name => name(pattern),
            Self::Tool => Some(pattern.to_owned()),
            Self::Nothing | Self::Own => None,
        }
    }
}

/// `:*` at the end has a meaning of its own in our rules, and none in OpenCode's.
fn colon(pattern: &str) -> String {
    match pattern.strip_suffix(":*") {
        Some(before) => format!("{before}:**"),
        None => pattern.to_owned(),
    }
}

/// OpenCode compares whole paths from the project's folder, and its `*` crosses folders.
fn path(pattern: &str) -> Option<String> {
    // No path that it compares begins so.
    if pattern.starts_with(['/', '~', '$']) || pattern.ends_with(" *") {
        return None;
    }
    let folder = pattern.strip_suffix("/**").or_else(|| pattern.strip_suffix("/*"));
    Some(match folder.filter(|it| !it.is_empty() && !it.contains(['*', '?'])) {
        Some(folder) => format!("{folder}/**"),
        None => format!("={pattern}"),
    })
}

/// Every star crosses folders. Stars at the ends of a name do so anyway, because such a pattern matches at any depth.
fn any_folder(pattern: &str) -> String {
    if !pattern.contains(['/', '?', ' ']) && !pattern.trim_matches('*').contains('*') {
        return pattern.to_owned();
    }
    let mut wide = String::new();
    for it in pattern.strip_suffix(" *").map_or_else(|| pattern.to_owned(), |bare| format!("{bare}*")).chars() {
        match it {
            '*' if wide.ends_with("**") => (),
            '*' => wide.push_str("**"),
            // One character of ours is none that separates folders.
            '?' if !wide.ends_with("**") => wide.push_str("**"),
            '?' => (),
            it => wide.push(it),
        }
    }
    wide
}

fn name(pattern: &str) -> Option<String> {
    let plain = !pattern.contains(',') && !pattern.ends_with(" *");
    plain.then(|| pattern.to_owned())
}

enum Address {
    /// Every address of a host.
    Host(String),
    /// Some of them.
    Part(String),
}

/// The host of `https://docs.rs/*`. Our rules on addresses are rules on hosts, for http and https alike.
fn address(pattern: &str) -> Option<Address> {
    let (scheme, rest) = pattern.split_once("://")?;
    if !matches!(scheme, "https" | "http*" | "*") {
        return None;
    }
    let (host, path) = rest.split_once('/')?;
    let labels = host.strip_prefix("*.").unwrap_or(host);
    let is_host =
        labels.contains('.') && labels.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'-'));
    let host = Some(host.to_ascii_lowercase()).filter(|_| is_host)?;
    Some(match wildcard::is_everything(path) {
        true => Address::Host(host),
        false => Address::Part(host),
    })
}
