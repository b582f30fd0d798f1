//! Permission rules such as `read`, `bash(git log *)`, `edit(src/**)`, `edit(=README.md)` or `mcp__github__*`: parsing and
//! matching.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::tool_names;

/// A permission rule: all calls of a tool, or those whose subject matches a pattern.
///
/// # Examples
///
/// ```
/// # use homing_core::rule as homing;
/// use homing::{Rule, RuleError};
///
/// # fn main() -> Result<(), RuleError> {
/// let rule: Rule = "bash(git log *)".parse()?;
/// assert_eq!((rule.tool.as_str(), rule.to_string().as_str()), ("bash", "bash(git log *)"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// Canonical tool name; may end in `*` (`mcp__github__*`). `*` matches every tool.
    pub tool: String,
    /// The pattern in parentheses; `None` matches every call.
    pub pattern: Option<String>,
}

/// The part of a call that a rule's pattern is matched against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One simple command of a shell line.
    Command {
        /// Its words after quote removal, joined by one space; words with special characters are quoted.
        text: String,
        /// Classes that it was found to belong to, such as `git only`.
        classes: Vec<String>,
    },
    /// A file, relative to the run's working folder if it is inside, otherwise absolute, with `/` as separator.
    Path(String),
    /// The host name of a URL, in lower case.
    Host(String),
    /// Another name: an agent to delegate to, or a skill.
    Name(String),
    /// One thing under each of its names. A rule that matches one of them matches it.
    Names(Vec<String>),
}

/// All subjects of one call.
///
/// # Examples
///
/// ```
/// # mod homing { pub mod tools { pub use homing_core::rule::{Subject, Subjects}; } pub use homing_core::rule::Rule; }
/// use homing::{Rule, tools::{Subject, Subjects}};
///
/// // What `Tool::subjects` of a tool that opens a file returns, and a rule that applies to it.
/// let opened = Subject::Path("src/lib.rs".to_owned());
/// assert!("edit(src/**)".parse::<Rule>().unwrap().matches(&opened));
/// let subjects = Subjects::Parts(vec![opened]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subjects {
    /// Calls of this tool have no subject; only rules without a pattern match them.
    None,
    /// The call involves all of these.
    Parts(Vec<Subject>),
    /// The call could not be analysed, for this reason; no pattern allows it.
    Unclear(String),
}

/// A rule that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a rule: write a tool name, or a tool name with a pattern in parentheses, such as bash(git log *)"
)]
pub struct RuleError(pub String);

impl Rule {
    /// Creates a rule for every call of `tool`, a canonical name.
    pub fn tool(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), pattern: None }
    }

    /// Creates a rule for the calls of `tool` that match `pattern`.
    pub fn calls(tool: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self { tool: tool.into(), pattern: Some(pattern.into()) }
    }

    /// Returns rules that together allow exactly a call with these subjects; none if rules cannot express it.
    pub fn exactly(tool: &str, subjects: &Subjects) -> Vec<Self> {
        let parts = match subjects {
            Subjects::None => return vec![Self::tool(tool)],
            Subjects::Unclear(_) => return Vec::new(),
            Subjects::Parts(parts) => parts,
        };
        // A star or a list in the call itself would match other calls, and some texts cannot be written as a rule.
        let rule = |part: &Subject| {
            let (text, pattern) = match part {
                Subject::Command { text, .. } => (text, text.clone()),
                Subject::Path(path) => (path, format!("={path}")),
                Subject::Host(host) => (host, format!("domain:{host}")),
                Subject::Name(name) if name.contains(',') => return None,
                Subject::Name(name) => (name, name.clone()),
                Subject::Names(names) => {
                    let name = names.first().filter(|name| !name.contains(','))?;
                    (name, name.clone())
                }
            };
            let rule = Self::calls(tool, pattern);
            let is_kept = rule.to_string().parse::<Self>().is_ok_and(|parsed| parsed == rule);
            (is_kept && !text.contains(['*', '\n'])).then_some(rule)
        };
        parts.iter().map(rule).collect::<Option<_>>().unwrap_or_default()
    }

    /// Returns whether this rule, as an allow rule, applies to `tool`.
    pub fn names(&self, tool: &str) -> bool {
        matches_name(&self.tool, tool) || (self.tool == tool_names::DELEGATE && tool_names::is_delegation(tool))
    }

    /// Returns whether this rule, as a deny or ask rule, applies to `tool`.
    ///
    /// A path pattern on `edit` also applies to `write`, and one on `read` also applies to the other tools that read files,
    /// because denying a path to one tool would be pointless if another tool could reach it.
    pub fn guards(&self, tool: &str) -> bool {
        let by_path = self.pattern.is_some()
            && match self.tool.as_str() {
                tool_names::EDIT => tool == tool_names::WRITE,
                tool_names::READ => matches!(
                    tool,
                    tool_names::GREP | tool_names::GLOB | tool_names::LS | tool_names::TREE | tool_names::DIFF
                ),
                _ => false,
            };
        by_path || self.names(tool)
    }

    /// Returns whether the pattern matches `subject`; a rule without a pattern matches everything.
    pub fn matches(&self, subject: &Subject) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        match subject {
            Subject::Command { text, classes } => {
                classes.iter().any(|class| class == pattern) || matches_command(pattern, text)
            }
            Subject::Path(path) => match pattern.strip_prefix('=') {
                Some(whole) => matches_glob(whole, path),
                None => matches_path(pattern, path),
            },
            Subject::Host(host) => pattern.strip_prefix("domain:").is_some_and(|domain| matches_host(domain, host)),
            Subject::Name(name) => matches_listed(pattern, name),
            Subject::Names(names) => names.iter().any(|name| matches_listed(pattern, name)),
        }
    }

    /// Returns whether this rule, as a deny or ask rule, matches `subject`. The program's folder and options before the
    /// subcommand are ignored: `/usr/bin/git --no-pager push` matches `git push`.
    pub(crate) fn catches(&self, subject: &Subject) -> bool {
        let respelled = match subject {
            Subject::Command { text, classes } => spellings(text)
                .into_iter()
                .any(|text| self.matches(&Subject::Command { text, classes: classes.clone() })),
            Subject::Path(_) | Subject::Host(_) | Subject::Name(_) | Subject::Names(_) => false,
        };
        respelled || self.matches(subject)
    }
}

/// Maximum number of words before the subcommand that are taken for options or their values.
const MAX_OPTION_WORDS: usize = 8;

fn spellings(text: &str) -> Vec<String> {
    let mut words = text.split(' ');
    let program = words.next().unwrap_or_default().trim_matches('\'');
    let name = program.rsplit('/').next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    let options_first = rest.first().is_some_and(|word| word.starts_with('-'));
    let most = if options_first { rest.len().min(MAX_OPTION_WORDS) } else { 0 };
    let without = |skipped: usize| [&[name], &rest[skipped..]].concat().join(" ");
    (0..=most).map(without).collect()
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let bad = || RuleError(text.to_owned());
        let text = text.trim();
        let (name, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => (name.trim(), Some(rest.strip_suffix(')').ok_or_else(bad)?.trim())),
        };
        if name.is_empty() || name.contains([')', '(', '\n']) || name.chars().any(char::is_control) {
            return Err(bad());
        }
        let tool = tool_names::canonical(name).map_or_else(|| name.to_owned(), str::to_owned);
        let pattern = pattern.filter(|text| !matches!(*text, "" | "*" | "**")).map(str::to_owned);
        Ok(Self { tool, pattern })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            None => f.write_str(&self.tool),
            Some(pattern) => write!(f, "{}({pattern})", self.tool),
        }
    }
}

impl Serialize for Rule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn matches_name(rule: &str, tool: &str) -> bool {
    if rule == tool || rule == "*" {
        return true;
    }
    // `mcp__server` matches every tool of that server.
    let server = rule.starts_with("mcp__") && !rule[5..].contains("__");
    if server && tool.strip_prefix(rule).is_some_and(|rest| rest.starts_with("__")) {
        return true;
    }
    rule.contains('*') && matches_glob(rule, tool)
}

/// Returns whether one of the listed names is `name`, ignoring case, as names of agents are looked up.
fn matches_listed(pattern: &str, name: &str) -> bool {
    let name = name.to_lowercase();
    pattern.split(',').any(|part| matches_glob(&part.trim().to_lowercase(), &name))
}

/// `git log *` also matches a bare `git log`; `:*` at the end is the same as ` *`.
fn matches_command(pattern: &str, text: &str) -> bool {
    let pattern = match pattern.strip_suffix(":*") {
        Some(prefix) => format!("{prefix} *"),
        None => pattern.to_owned(),
    };
    pattern.strip_suffix(" *").is_some_and(|bare| matches_glob(bare, text)) || matches_glob(&pattern, text)
}

/// `*.example.org` matches every host below it, not `example.org` itself.
pub(crate) fn matches_host(pattern: &str, host: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    match pattern.strip_prefix("*.") {
        Some(suffix) => host.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => pattern == "*" || pattern == host,
    }
}

/// Matches like gitignore: a pattern without a slash matches at any depth, a folder matches everything in it.
fn matches_path(pattern: &str, path: &str) -> bool {
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let is_rooted = pattern.starts_with('/');
    let pattern = match pattern.strip_prefix("//") {
        Some(absolute) => format!("/{absolute}"),
        None if pattern.starts_with('/') && !path.starts_with('/') => pattern[1..].to_owned(),
        None => pattern.to_owned(),
    };
    let pattern = pattern.strip_suffix('/').unwrap_or(&pattern);
    let anchored = is_rooted || pattern.contains('/');
    let within = format!("{pattern}/**");
    let matches = |path: &str| path_glob(pattern, path) || path_glob(&within, path);
    matches(path) || (!anchored && path.match_indices('/').any(|(at, _)| matches(&path[at + 1..])))
}

/// Matches a glob in which `*` matches any characters.
fn matches_glob(pattern: &str, text: &str) -> bool {
    glob(pattern.as_bytes(), text.as_bytes(), |_| true)
}

/// Matches a glob in which `*` matches within one path component, `**` across components, and `**/` any number of whole
/// components.
fn path_glob(pattern: &str, path: &str) -> bool {
    glob(pattern.as_bytes(), path.as_bytes(), |byte| byte != b'/')
}

/// A `**` to backtrack to: the pattern position after it, the text position it was last tried from, and whether it
/// matches whole components only.
#[derive(Clone, Copy)]
struct Crossing {
    after: usize,
    from: usize,
    whole: bool,
}

impl Crossing {
    /// Advances to the next text position to try.
    fn retry(self, text: &[u8]) -> Option<Self> {
        let from = if self.whole {
            self.from + text.get(self.from..)?.iter().position(|&byte| byte == b'/')? + 1
        } else {
            self.from + 1
        };
        (from <= text.len()).then_some(Self { from, ..self })
    }
}

/// Matches by backtracking to the last star of each kind only, so the time is bounded by pattern × text.
fn glob(pattern: &[u8], text: &[u8], star_takes: impl Fn(u8) -> bool) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut single: Option<(usize, usize)> = None;
    let mut crossing: Option<Crossing> = None;
    loop {
        match pattern.get(p) {
            Some(b'*') if pattern.get(p + 1) == Some(&b'*') => {
                let whole = pattern.get(p + 2) == Some(&b'/') && (p == 0 || pattern[p - 1] == b'/');
                p += if whole { 3 } else { 2 };
                (crossing, single) = (Some(Crossing { after: p, from: t, whole }), None);
                continue;
            }
            Some(b'*') => {
                p += 1;
                single = Some((p, t));
                continue;
            }
            Some(b'?') if text.get(t).is_some_and(|&byte| star_takes(byte)) => {
                (p, t) = (p + 1, t + 1);
                continue;
            }
            Some(byte) if text.get(t) == Some(byte) => {
                (p, t) = (p + 1, t + 1);
                continue;
            }
            None if t == text.len() => return true,
            Some(_) | None => (),
        }
        if let Some((after, from)) = single
            && text.get(from).is_some_and(|&byte| star_takes(byte))
        {
            single = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else if let Some(next) = crossing.and_then(|last| last.retry(text)) {
            (crossing, single) = (Some(next), None);
            (p, t) = (next.after, next.from);
        } else {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    fn command(text: &str) -> Subject {
        Subject::Command { text: text.to_owned(), classes: vec![] }
    }

    #[test]
    fn foreign_tool_names_become_canonical() {
        assert_eq!(rule("Bash(git log:*)").to_string(), "bash(git log:*)");
        assert_eq!(rule("run_shell_command").to_string(), "bash");
        assert_eq!(rule("Bash(*)").to_string(), "bash");
        assert_eq!(rule("Task").to_string(), "delegate");
        assert!("bash(git".parse::<Rule>().is_err());
        assert!("".parse::<Rule>().is_err());
    }

    #[test]
    fn command_patterns_respect_word_boundaries() {
        let log = rule("bash(git log *)");
        assert!(log.matches(&command("git log")));
        assert!(log.matches(&command("git log --stat")));
        assert!(!log.matches(&command("git logx")));
        assert!(rule("bash(npm run:*)").matches(&command("npm run test")));
        assert!(rule("bash(ls*)").matches(&command("lsof")));
    }

    #[test]
    fn path_patterns_match_like_gitignore() {
        let matches = |pattern: &str, path: &str| Rule::calls("edit", pattern).matches(&Subject::Path(path.into()));
        assert!(matches("src/**", "src/a/b.rs"));
        assert!(matches("src", "src/a/b.rs"));
        assert!(!matches("src/**", "srcs/a"));
        assert!(!matches("src/*.rs", "src/a/b.rs"));
        assert!(matches("*.rs", "src/a/b.rs"));
        assert!(matches("a/**/b", "a/b") && matches("a/**/b", "a/x/y/b"));
        assert!(matches("**/*.lock", "Cargo.lock"));
        assert!(!matches("/repo", "/repo-evil/x"));
        assert!(matches("//etc", "/etc/passwd"));
        assert!(matches("/.env", ".env") && !matches("/.env", "sub/.env"), "a leading slash means the working folder");
        assert!(matches(".env", "deep/.env"));
    }

    #[test]
    fn equals_sign_anchors_the_whole_path() {
        let matches = |pattern: &str, path: &str| Rule::calls("edit", pattern).matches(&Subject::Path(path.into()));
        assert!(matches("=README.md", "README.md") && !matches("=README.md", "docs/README.md"));
        assert!(!matches("=docs", "docs/a.md"));
        assert!(matches("=src/*.rs", "src/a/b.rs") && !matches("=src/*.rs", "x/src/a.rs"));
        assert_eq!(rule("edit(=README.md)").to_string(), "edit(=README.md)");
    }

    #[test]
    fn exact_rules_match_their_call() {
        let parts = vec![command("git push origin main"), command("npm test")];
        let rules = Rule::exactly("bash", &Subjects::Parts(parts.clone()));
        assert_eq!(rules, [rule("bash(git push origin main)"), rule("bash(npm test)")]);
        assert!(rules[0].matches(&parts[0]) && !rules[0].matches(&command("git push")));
        let others = [Subject::Path("src/a.rs".into()), Subject::Host("a.test".into()), Subject::Name("scout".into())];
        for part in others {
            assert!(Rule::exactly("x", &Subjects::Parts(vec![part.clone()]))[0].matches(&part));
        }
        assert_eq!(Rule::exactly("bash", &Subjects::Unclear("eval".into())), []);
    }

    #[test]
    fn hosts_match_by_whole_labels() {
        let matches = |pattern: &str, host: &str| Rule::calls("fetch", pattern).matches(&Subject::Host(host.into()));
        assert!(matches("domain:*.example.org", "a.example.org"));
        assert!(!matches("domain:*.example.org", "example.org"));
        assert!(!matches("domain:*.example.org", "evilexample.org"));
        assert!(!matches("domain:*.example.org", "a.example.org.evil.com"));
    }

    #[test]
    fn mcp_server_name_matches_its_tools() {
        assert!(rule("mcp__github").names("mcp__github__get_issue"));
        assert!(!rule("mcp__github").names("mcp__github2__get_issue"));
        assert!(rule("mcp__github__get_*").names("mcp__github__get_issue"));
    }

    #[test]
    fn hostile_globs_terminate() {
        let text = "a".repeat(5_000);
        assert!(!matches_glob(&"*a".repeat(50), &format!("{text}b")));
        assert!(!path_glob(&"**/".repeat(20), &format!("{}b", "a/".repeat(200))));
    }

    #[test]
    fn exact_rules_allow_one_call_only() {
        let command = |text: &str| Subject::Command { text: text.to_owned(), classes: Vec::new() };
        let exactly = |parts: Vec<Subject>| Rule::exactly("bash", &Subjects::Parts(parts));
        let rules = exactly(vec![command("git push origin main"), command("ls -l")]);
        assert_eq!(
            rules.iter().map(Rule::to_string).collect::<Vec<_>>(),
            ["bash(git push origin main)", "bash(ls -l)"]
        );
        assert!(!rules[0].matches(&command("git push origin main --force")));
        assert!(exactly(vec![command("ls"), command("rm *")]).is_empty(), "a star would allow more");
        let path = Rule::exactly("write", &Subjects::Parts(vec![Subject::Path("a/b.rs".to_owned())]));
        assert_eq!(path[0].to_string(), "write(=a/b.rs)");
        assert!(
            path[0].matches(&Subject::Path("a/b.rs".into())) && !path[0].matches(&Subject::Path("x/a/b.rs".into()))
        );
        assert_eq!(Rule::exactly("mcp__x__y", &Subjects::None), [Rule::tool("mcp__x__y")]);
        assert!(Rule::exactly("bash", &Subjects::Unclear("why".into())).is_empty());
    }
}
