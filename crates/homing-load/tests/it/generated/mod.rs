//! Definitions made by dice, for round trips.
#![allow(dead_code, reason = "each test file uses its part of this")]

use std::path::{Path, PathBuf};

use homing_core::{
    authority::Allow,
    definition::{
        AgentDefinition, Inherit, Isolation, MemoryScope, ModelChoice, OfferedTo, OnFailure, PermissionMode,
        ProjectContext,
    },
    limits::{Cap, Limits},
    model::Effort,
    rule::Rule,
    taint::TaintMode,
};
use serde_json::json;

/// A small seeded generator, so that failures can be reproduced.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).expect("small")
    }

    fn one_of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.roll(items.len())].clone()
    }

    /// One of the items, or in most cases none.
    fn maybe<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        (self.roll(4) == 0).then(|| self.one_of(items))
    }
}

const RULES: &[&str] = &[
    "read",
    "write",
    "edit",
    "bash",
    "grep",
    "glob",
    "ls",
    "fetch",
    "websearch",
    "todo",
    "skill",
    "delegate",
    "think",
    "diff",
    "bash(git log *)",
    "bash(npm test)",
    "bash(git only)",
    "edit(src/**)",
    "write(src/**)",
    "edit(=README.md)",
    "edit(*.md)",
    "read(docs/**)",
    "read(.env)",
    "fetch(domain:docs.rs)",
    "delegate(scout, tester)",
    "skill(pdf)",
    "mcp__github",
    "mcp__github__get_issue",
    "mcp__*",
];

const TEXTS: &[&str] = &[
    "Reviews code.",
    "Use it: always # or never",
    "*starts* with a star, \"quotes\" and 'more'",
    "Über 日本 — dashes",
    "true",
    "12",
    "- a list",
    "two\nlines",
    "ends with colon:",
    "{braces} [brackets] & @at `tick` | pipe > gt % percent ! bang",
    "  keeps   inner   spaces",
    "null",
    "a, b",
];

const PROMPTS: &[&str] = &[
    "You review.",
    "# Title\n\nBody with `code`.\n\n---\n\nAfter a rule.",
    "Line one\n  indented\n\ttabbed\n\nlast",
    "Ends with backslash \\ and \"\"\" and ''' quotes",
    "Unicode: 日本 ü \u{2028} separators",
    "key: value\nother: value",
    "{{name}} and $ARGUMENTS and {file:x}",
];

fn rules(dice: &mut Dice, most: usize) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for _ in 0..dice.roll(most + 1) {
        let rule: Rule = dice.one_of(RULES).parse().expect("a rule");
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

pub(crate) fn definition(dice: &mut Dice) -> AgentDefinition {
    let mut agent = AgentDefinition::new(
        dice.one_of(&["plain", "code-reviewer", "a1", "3d-artist"]),
        dice.one_of(TEXTS).trim(),
        dice.one_of(PROMPTS),
    );
    agent.title = dice.maybe(&["Code Reviewer".to_owned(), "Überprüfer".to_owned()]);
    if dice.roll(2) == 0 {
        agent.tools.allowed = Allow::Only(rules(dice, 6));
    }
    if dice.roll(3) == 0 {
        agent.tools.denied = rules(dice, 3);
    }
    if dice.roll(5) == 0 {
        agent.tools.asked = rules(dice, 2);
    }
    agent.tools.delegates = dice.maybe(&[vec![Rule::tool("read")], Vec::new()]);
    let names = ["sonnet", "gpt-5.2", "gemini-2.5-pro", "openai/gpt-5.2", "mystery"].map(str::to_owned);
    agent.model.choice = match dice.roll(4) {
        0 => ModelChoice::Default,
        1 => ModelChoice::Named(vec![dice.one_of(&names)]),
        2 => ModelChoice::Named(names[..2].to_vec()),
        _ => ModelChoice::Inherit,
    };
    agent.model.effort = dice.maybe(&[Effort::None, Effort::Low, Effort::High, Effort::Max]);
    agent.model.temperature_milli = dice.maybe(&[0, 100, 700, 1_000]);
    limits(dice, &mut agent.limits);
    settings(dice, &mut agent);
    agent
}

fn limits(dice: &mut Dice, limits: &mut Limits) {
    let counts = [Cap::At(12), Cap::At(100_000), Cap::Unlimited];
    limits.turns = dice.maybe(&counts).unwrap_or_default();
    limits.tokens = dice.maybe(&counts).unwrap_or_default();
    limits.cost_micros = dice.maybe(&[Cap::At(250_000), Cap::At(1_234_567)]).unwrap_or_default();
    limits.wall_ms = dice.maybe(&[Cap::At(90_000), Cap::At(600_000), Cap::At(1_500)]).unwrap_or_default();
    limits.work_ms = dice.maybe(&[Cap::At(60_000)]).unwrap_or_default();
    limits.output = dice.maybe(&[Cap::At(4_096)]).unwrap_or_default();
}

fn settings(dice: &mut Dice, agent: &mut AgentDefinition) {
    let modes = [PermissionMode::Plan, PermissionMode::Ask, PermissionMode::Edit, PermissionMode::All];
    agent.execution.permission_mode = dice.maybe(&modes);
    agent.execution.background = dice.roll(4) == 0;
    agent.execution.isolation = dice.maybe(&[Isolation::Worktree]).unwrap_or_default();
    agent.execution.memory = dice.maybe(&[MemoryScope::User, MemoryScope::Local]);
    agent.execution.offered_to = dice.maybe(&[OfferedTo::User, OfferedTo::Models]).unwrap_or_default();
    agent.execution.taint = dice.maybe(&[TaintMode::Off, TaintMode::Deny]);
    agent.context.inherit = dice.maybe(&[Inherit::All, Inherit::Last(3)]).unwrap_or_default();
    agent.context.project_context =
        dice.maybe(&[ProjectContext::Environment, ProjectContext::None]).unwrap_or_default();
    agent.context.shared_context = dice.maybe(&[vec!["topic".to_owned()]]).unwrap_or_default();
    agent.attachments.skills = dice.maybe(&[vec!["style".to_owned(), "security".to_owned()]]).unwrap_or_default();
    agent.task.on_failure =
        dice.maybe(&[OnFailure::Retry(2), OnFailure::Skip, OnFailure::FailParent]).unwrap_or_default();
    agent.task.initial_prompt = dice.maybe(&["Go: now.".to_owned()]);
    agent.task.schema = dice.maybe(&[json!({"type": "object", "properties": {"a": {"type": "string"}}})]);
    let servers = [
        ("github", json!(null)),
        ("local", json!({"command": "npx", "args": ["server", "--x"], "env": {"A": "b: c"}})),
        ("web", json!({"type": "http", "url": "https://example.org/mcp", "headers": {"X": "y"}})),
    ];
    for (name, config) in servers {
        if dice.roll(5) == 0 {
            agent.integrations.mcp_servers.insert(name.to_owned(), config);
        }
    }
    let hook = json!([{"matcher": "Bash", "hooks": [{"type": "command", "command": "check \"x\""}]}]);
    if let Some(event) = dice.maybe(&["PreToolUse", "Stop"]) {
        agent.integrations.hooks = json!({ event: hook });
    }
    agent.extra.color = dice.maybe(&["cyan".to_owned(), "#ff8800".to_owned()]);
    if let Some(category) = dice.maybe(&["quality"]) {
        agent.extra.metadata.insert("category".to_owned(), json!(category));
    }
}

/// All files below a folder.
pub(crate) fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if entry.path().is_dir() {
            gather(&entry.path(), files);
        } else {
            files.push(entry.path());
        }
    }
}
