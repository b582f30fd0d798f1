//! Evaluates an ordered list of permissions for one tool and expresses the result as rules. Pure functions only.

use std::fmt;

use homing_core::{diagnostic::Severity, rule::Rule};

use super::opencode::MatchTarget;
use crate::{node::Position, wildcard};

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermissionAction {
    Allow,
    Ask,
    Deny,
}

/// One permission of OpenCode: the name and the pattern may both contain wildcards.
#[derive(Clone, Debug)]
pub(super) struct PermissionLine {
    pub(super) permission: String,
    pub(super) pattern: String,
    pub(super) action: PermissionAction,
    pub(super) position: Position,
}

impl PermissionLine {
    pub(super) fn new(permission: &str, pattern: &str, action: PermissionAction, position: Position) -> Self {
        Self { permission: permission.to_owned(), pattern: pattern.to_owned(), action, position }
    }

    /// Returns true if it applies to all calls of its tools.
    pub(super) fn is_whole(&self) -> bool {
        wildcard::is_everything(&self.pattern)
    }
}

impl fmt::Display for PermissionLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            PermissionAction::Allow => "allow",
            PermissionAction::Ask => "ask",
            PermissionAction::Deny => "deny",
        };
        if self.is_whole() {
            write!(f, "{}: {action}", self.permission)
        } else {
            write!(f, "{} {}: {action}", self.permission, self.pattern)
        }
    }
}

/// A diagnostic about one line.
#[derive(Debug)]
pub(super) struct LineDiagnostic {
    pub(super) severity: Severity,
    pub(super) position: Position,
    pub(super) message: String,
}

/// The calls of a tool that are allowed, denied, or need approval.
#[derive(Debug, Default)]
pub(super) struct ToolVerdict {
    /// The allowed calls; `None` means all.
    pub(super) allowed: Option<Vec<Rule>>,
    pub(super) denied: Vec<Rule>,
    pub(super) asked: Vec<Rule>,
    pub(super) diagnostics: Vec<LineDiagnostic>,
}

impl ToolVerdict {
    /// Evaluates the lines that apply to `tool`, in order.
    pub(super) fn of(tool: &str, target: MatchTarget, lines: &[PermissionLine]) -> Self {
        let (base, exceptions) = effective(lines);
        if target == MatchTarget::Exempt {
            return Self { allowed: (base == PermissionAction::Deny).then(Vec::new), ..Self::default() };
        }
        let mut verdict = Self::default();
        let rule = |pattern: String| match target {
            MatchTarget::ToolName => Rule::tool(pattern),
            MatchTarget::Command
            | MatchTarget::Path
            | MatchTarget::Address
            | MatchTarget::Name
            | MatchTarget::Nothing
            | MatchTarget::Exempt => Rule::calls(tool, pattern),
        };
        match base {
            PermissionAction::Allow => (),
            PermissionAction::Ask => verdict.asked.push(Rule::tool(tool)),
            PermissionAction::Deny => verdict.allowed = Some(Vec::new()),
        }
        for (at, line) in exceptions.iter().enumerate() {
            let overlapping = |action: PermissionAction| {
                let hides = |other: &&PermissionLine| {
                    other.action == action && wildcard::overlap(&other.pattern, &line.pattern)
                };
                exceptions[..at].iter().copied().rfind(hides)
            };
            match line.action {
                PermissionAction::Deny => match target.denial(&line.pattern) {
                    Some(pattern) => verdict.denied.push(rule(pattern)),
                    None => return verdict.close(line),
                },
                PermissionAction::Ask | PermissionAction::Allow => {
                    verdict.report_narrowing(
                        line,
                        overlapping(PermissionAction::Deny),
                        base,
                        overlapping(PermissionAction::Ask),
                    );
                    verdict.open(target, line, &rule, tool);
                }
            }
        }
        verdict
    }

    /// Adds an exception that asks or allows.
    fn open(&mut self, target: MatchTarget, line: &PermissionLine, rule: &dyn Fn(String) -> Rule, tool: &str) {
        if line.action == PermissionAction::Ask && !self.asked.contains(&Rule::tool(tool)) {
            // If the pattern cannot be expressed, the whole tool needs approval: too many questions are the safe side.
            self.asked.push(target.denial(&line.pattern).map_or_else(|| Rule::tool(tool), rule));
        }
        let Some(allowed) = &mut self.allowed else { return };
        match target.permission(&line.pattern) {
            Some(pattern) => allowed.push(rule(pattern)),
            None => {
                let message = format!("`{line}` cannot be expressed here: it allows nothing");
                self.diagnostics.push(LineDiagnostic { severity: Severity::Warning, position: line.position, message });
            }
        }
    }

    /// Reports an exception that has less effect than in OpenCode, because denials and approvals have no exceptions here.
    fn report_narrowing(
        &mut self,
        line: &PermissionLine,
        denied: Option<&PermissionLine>,
        base: PermissionAction,
        asked: Option<&PermissionLine>,
    ) {
        if let Some(denied) = denied {
            let message = format!(
                "`{line}` is narrower here: what `{denied}` matches stays denied, because denials have no exceptions"
            );
            self.diagnostics.push(LineDiagnostic { severity: Severity::Warning, position: line.position, message });
        } else if line.action == PermissionAction::Allow && (base == PermissionAction::Ask || asked.is_some()) {
            let message =
                format!("`{line}` is narrower here: it still needs approval, because approvals have no exceptions");
            self.diagnostics.push(LineDiagnostic { severity: Severity::Info, position: line.position, message });
        }
    }

    /// Denies the whole tool, because a denial cannot be expressed.
    fn close(self, line: &PermissionLine) -> Self {
        let message = format!("`{line}` cannot be expressed here: the whole tool is denied");
        let diagnostic = LineDiagnostic { severity: Severity::Warning, position: line.position, message };
        let diagnostics = self.diagnostics.into_iter().chain([diagnostic]).collect();
        Self { allowed: Some(Vec::new()), diagnostics, ..Self::default() }
    }
}

/// The action for calls that match no pattern, and the patterns with another action. Lines without effect are left out.
fn effective(lines: &[PermissionLine]) -> (PermissionAction, Vec<&PermissionLine>) {
    let (mut base, mut exceptions) = (PermissionAction::Allow, Vec::<&PermissionLine>::new());
    for line in lines {
        if line.is_whole() {
            (base, exceptions) = (line.action, Vec::new());
        } else {
            exceptions.retain(|earlier| !wildcard::covers(&line.pattern, &earlier.pattern));
            exceptions.push(line);
        }
    }
    let mut kept: Vec<&PermissionLine> = Vec::new();
    for line in exceptions {
        let differs =
            |other: &&PermissionLine| other.action != line.action && wildcard::overlap(&other.pattern, &line.pattern);
        if line.action != base || kept.iter().any(differs) {
            kept.push(line);
        }
    }
    (base, kept)
}

impl MatchTarget {
    /// A rule pattern that matches nothing but what `pattern` matches.
    pub(crate) fn permission(self, pattern: &str) -> Option<String> {
        let plain = !pattern.is_empty() && pattern.trim() == pattern && !pattern.contains(['\\', '\n']);
        let pattern = Some(pattern).filter(|_| plain)?;
        match self {
            Self::Command => Some(colon(pattern)),
            Self::Path => path(pattern),
            Self::Address => match address(pattern)? {
                HostPattern::Host(host) => Some(format!("domain:{host}")),
                HostPattern::Part(_) => None,
            },
            Self::Name => name(pattern),
            Self::ToolName => Some(pattern.to_owned()),
            Self::Nothing | Self::Exempt => None,
        }
    }

    /// A rule pattern that matches at least what `pattern` matches.
    pub(crate) fn denial(self, pattern: &str) -> Option<String> {
        let plain = !pattern.is_empty() && pattern.trim() == pattern && !pattern.contains(['\\', '\n']);
        let pattern = Some(pattern).filter(|_| plain)?;
        match self {
            Self::Command => Some(colon(pattern)),
            Self::Path => Some(any_folder(pattern)),
            Self::Address => match address(pattern)? {
                HostPattern::Host(host) | HostPattern::Part(host) => Some(format!("domain:{host}")),
            },
            Self::Name => name(pattern),
            Self::ToolName => Some(pattern.to_owned()),
            Self::Nothing | Self::Exempt => None,
        }
    }
}

/// Escapes `:*` at the end, which has a special meaning in rules and none in OpenCode.
fn colon(pattern: &str) -> String {
    match pattern.strip_suffix(":*") {
        Some(before) => format!("{before}:**"),
        None => pattern.to_owned(),
    }
}

/// Translates a path pattern. OpenCode matches whole paths from the project folder, and its `*` crosses folders.
fn path(pattern: &str) -> Option<String> {
    // OpenCode's paths are relative, so such a pattern matches nothing.
    if pattern.starts_with(['/', '~', '$']) || pattern.ends_with(" *") {
        return None;
    }
    let folder = pattern.strip_suffix("/**").or_else(|| pattern.strip_suffix("/*"));
    Some(match folder.filter(|folder| !folder.is_empty() && !folder.contains(['*', '?'])) {
        Some(folder) => format!("{folder}/**"),
        None => format!("={pattern}"),
    })
}

/// Lets every star cross folders. A plain name with stars at its ends already matches at any depth.
fn any_folder(pattern: &str) -> String {
    if !pattern.contains(['/', '?', ' ']) && !pattern.trim_matches('*').contains('*') {
        return pattern.to_owned();
    }
    let mut wide = String::new();
    let pattern = pattern.strip_suffix(" *").map_or_else(|| pattern.to_owned(), |bare| format!("{bare}*"));
    for character in pattern.chars() {
        match character {
            '*' if wide.ends_with("**") => (),
            '*' => wide.push_str("**"),
            // In rules, `?` does not match a folder separator.
            '?' if !wide.ends_with("**") => wide.push_str("**"),
            '?' => (),
            other => wide.push(other),
        }
    }
    wide
}

fn name(pattern: &str) -> Option<String> {
    let plain = !pattern.contains(',') && !pattern.ends_with(" *");
    plain.then(|| pattern.to_owned())
}

enum HostPattern {
    /// All addresses of a host.
    Host(String),
    /// Some of them.
    Part(String),
}

/// The host of `https://docs.rs/*`. Rules on addresses are rules on hosts, for http and https alike.
fn address(pattern: &str) -> Option<HostPattern> {
    let (scheme, rest) = pattern.split_once("://")?;
    if !matches!(scheme, "https" | "http*" | "*") {
        return None;
    }
    let (host, path) = rest.split_once('/')?;
    let labels = host.strip_prefix("*.").unwrap_or(host);
    let is_host =
        labels.contains('.') && labels.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    let host = Some(host.to_ascii_lowercase()).filter(|_| is_host)?;
    Some(if wildcard::is_everything(path) { HostPattern::Host(host) } else { HostPattern::Part(host) })
}
