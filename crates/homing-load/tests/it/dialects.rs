//! Each dialect: a file in, the definition and the diagnostics out.

use crate::show::read;
use insta::assert_snapshot;

#[test]
fn r1_r2_claude_code_with_all_fields() {
    assert_snapshot!(read(".claude/agents/reviewer.md", r#"---
name: reviewer
description: Reviews code. Use proactively.
tools: Read, Grep, Bash(git log:*), Task, mcp__github__get_issue, mcp__linear
disallowedTools: [Write, Edit]
model: sonnet
permissionMode: plan
maxTurns: 12
skills: [style, security]
mcpServers:
  - github
  - local: {command: npx, args: [server]}
hooks:
  Stop: [{hooks: [{type: command, command: "true"}]}]
memory: project
background: true
effort: high
isolation: worktree
color: cyan
initialPrompt: Go.
---

You review.
"#), @r#"
    name: "reviewer"
    description: "Reviews code. Use proactively."
    prompt: "You review."
    tools: {"only":["read","grep","bash(git log:*)","delegate","mcp__github__get_issue","mcp__linear"]}
    denied: ["write","edit"]
    model: {"named":["sonnet"]}
    effort: "high"
    skills: ["style","security"]
    limit turns: {"at":12}
    permission_mode: "plan"
    background: true
    isolation: "worktree"
    memory: "project"
    mcp_servers: {"github":null,"local":{"command":"npx","args":["server"]}}
    hooks: {"Stop":[{"hooks":[{"type":"command","command":"true"}]}]}
    initial_prompt: "Go."
    color: "cyan"
    dialect: claude-code
    "#);
}

#[test]
fn r2_tools_and_skills_as_a_string_or_a_list() {
    let list = read(
        ".claude/agents/a.md",
        "---\nname: a\ndescription: d\ntools:\n  - Read\n  - Grep\nskills:\n  - x\n  - y\n---\nP\n",
    );
    let text = read(".claude/agents/a.md", "---\nname: a\ndescription: d\ntools: Read, Grep\nskills: x, y\n---\nP\n");
    assert_eq!(list, text);
    assert_snapshot!(text, @r#"
    name: "a"
    description: "d"
    prompt: "P"
    tools: {"only":["read","grep"]}
    skills: ["x","y"]
    dialect: claude-code
    "#);
}

#[test]
fn r3_json_as_one_object_or_a_map() {
    assert_snapshot!(read("agents.json", r#"{
  // comments are welcome
  "reviewer": {"description": "Reviews", "prompt": "You review.", "tools": ["Read"], "model": "opus",},
  "tester": {"description": "Tests", "systemPrompt": "You test.", "maxTurns": "many"}
}"#), @r#"
    name: "reviewer"
    description: "Reviews"
    prompt: "You review."
    tools: {"only":["read"]}
    model: {"named":["opus"]}
    dialect: json
    ! 4:79: error: `maxTurns`: `many` is not a whole number such as 20, or none [write a whole number such as 20, or none]
    "#);
    assert_snapshot!(read("one.json", r#"{"name": "one", "description": "d", "prompt": "p", "tools": []}"#), @r#"
    name: "one"
    description: "d"
    prompt: "p"
    tools: {"only":[]}
    dialect: json
    "#);
}

#[test]
fn r5_acai_names_must_match_their_files() {
    assert_snapshot!(read(".acai/subagents/tester.md", "---\nname: tester\ndescription: Tests\ntools: Read, LS, DirectoryTree, Think, Subagent\nmodel: anthropic:sonnet\ntimeout: 600\n---\nTest {{task}}\n"), @r#"
    name: "tester"
    description: "Tests"
    prompt: "Test {{task}}"
    tools: {"only":["read","ls","tree","think","delegate"]}
    model: {"named":["anthropic:sonnet"]}
    limit wall_ms: {"at":600000}
    dialect: acai
    "#);
    assert_snapshot!(read(".acai/subagents/other.md", "---\nname: tester\ndescription: Tests\n---\nTest\n"), @"! 2:7: error: the name `tester` must match the file name `other` [rename one of them]");
}

#[test]
fn instructor_php_in_three_syntaxes() {
    let md = "---\nname: auditor\nlabel: Auditor\ndescription: Audits\nllmConfig: fast-preset\ncapabilities: [use_bash]\ntools: [read_file, search_files]\ntoolsDeny: [write_file]\nbudget:\n  maxSteps: 8\n  maxTokens: 20000\n  maxSeconds: 90\n  maxCost: 0.25\nmetadata: {team: core}\n---\nAudit.\n";
    assert_snapshot!(read(".claude/agents/auditor.md", md), @r#"
    name: "auditor"
    title: "Auditor"
    description: "Audits"
    prompt: "Audit."
    tools: {"only":["read","grep"]}
    denied: ["write"]
    model: {"named":["fast-preset"]}
    limit turns: {"at":8}
    limit tokens: {"at":20000}
    limit cost_micros: {"at":250000}
    limit wall_ms: {"at":90000}
    metadata: {"capabilities":["use_bash"],"team":"core"}
    dialect: instructor
    ! 6:1: info: `capabilities` is ignored: capabilities are code of that program
    "#);
    assert_snapshot!(read(".claude/agents/b.yaml", "name: b\ndescription: d\nsystemPrompt: You are b.\nbudget: {maxSteps: 3}\n"), @r#"
    name: "b"
    description: "d"
    prompt: "You are b."
    model: "default"
    limit turns: {"at":3}
    dialect: instructor
    "#);
}

#[test]
fn opencode_switches_and_permissions() {
    assert_snapshot!(read(".opencode/agent/docs.md", r#"---
description: Writes docs
mode: subagent
model: anthropic/claude-sonnet-4-5
temperature: 0.1
steps: 5
tools:
  bash: false
  read: true
permission:
  edit: ask
  webfetch: deny
  bash:
    "*": deny
    "git log*": allow
---
You write docs.
"#), @r#"
    name: "docs"
    description: "Writes docs"
    prompt: "You write docs."
    tools: {"only":["read","edit","write","bash(git log*)","grep","glob","ls","tree","websearch","think","todo","skill","ask","diff","delegate","wait","tell","cancel","answer","mcp__*"]}
    denied: ["bash"]
    asked: ["edit","write"]
    model: {"named":["anthropic/claude-sonnet-4-5"]}
    temperature_milli: 100
    limit turns: {"at":5}
    metadata: {"mode":"subagent"}
    dialect: opencode
    "#);
    assert_snapshot!(read("opencode.json", r#"{"$schema": "x", "agent": {"build": {"description": "Builds", "prompt": "Build.", "permission": {"edit": "deny"}}, "gone": {"disable": true}}}"#), @r#"
    name: "build"
    description: "Builds"
    prompt: "Build."
    denied: ["edit","write"]
    dialect: opencode
    "#);
    assert_snapshot!(read(".kilo/agents/k.md", "---\ndescription: A kilo agent\n---\nDo it.\n"), @r#"
    name: "k"
    description: "A kilo agent"
    prompt: "Do it."
    dialect: kilo
    "#);
}

#[test]
fn codex_toml() {
    assert_snapshot!(read(".codex/agents/scout.toml", r#"
name = "scout"
description = "Scouts"
model = "gpt-5.1"
model_reasoning_effort = "xhigh"
sandbox_mode = "read-only"
developer_instructions = """
You scout.
"""
[mcp_servers.docs]
command = "docs-server"
"#), @r#"
    name: "scout"
    description: "Scouts"
    prompt: "You scout."
    model: {"named":["gpt-5.1"]}
    effort: "xhigh"
    permission_mode: "plan"
    mcp_servers: {"docs":{"command":"docs-server"}}
    dialect: codex
    "#);
}

#[test]
fn gemini_cli() {
    assert_snapshot!(read(".gemini/agents/helper.md", "---\nname: helper\nkind: local\ndisplay_name: The Helper\ndescription: Helps\ntools:\n  - read_file\n  - run_shell_command\n  - mcp_docs_*\n  - mcp_docs_search\nmodel: inherit\ntemperature: 0.2\nmax_turns: 30\ntimeout_mins: 10\n---\nHelp.\n"), @r#"
    name: "helper"
    title: "The Helper"
    description: "Helps"
    prompt: "Help."
    tools: {"only":["read","bash","mcp__docs__*","mcp__docs__search"]}
    temperature_milli: 200
    limit turns: {"at":30}
    limit wall_ms: {"at":600000}
    dialect: gemini
    "#);
    assert_snapshot!(read(".gemini/agents/far.md", "---\nkind: remote\nname: far\ndescription: d\nagent_card_url: https://example.org/card\n---\n"), @r"
    ! 2:7: error: remote agents (A2A) are not supported [write a local agent that calls the remote one through a tool]
    ! 5:1: warning: unknown key `agent_card_url`: kept, but ignored
    ! 7:1: warning: missing prompt: using the description [write what the agent should do below the front matter]
    ");
}

#[test]
fn copilot_and_vs_code() {
    assert_snapshot!(read(".github/agents/api.agent.md", "---\nname: API Expert\ndescription: Knows APIs\ntools: ['edit', 'search', 'web/fetch', 'github/*', 'runCommands', 'vscodeAPI']\nmodel: ['Claude Sonnet 4.5 (copilot)', 'GPT-5']\nagents: [planner]\nhandoffs: []\nargument-hint: what\n---\nKnow.\n"), @r#"
    name: "api-expert"
    title: "API Expert"
    description: "Knows APIs"
    prompt: "Know."
    tools: {"only":["edit","write","grep","glob","ls","fetch","mcp__github__*","bash"]}
    model: {"named":["Claude Sonnet 4.5 (copilot)","GPT-5"]}
    metadata: {"argument-hint":"what"}
    dialect: copilot
    ! 2:7: warning: the name `API Expert` was changed to `api-expert`: names consist of lower-case letters, digits and hyphens [write `name: api-expert`]
    ! 4:67: warning: unknown tool `vscodeAPI`: ignored [known tools: read, write, edit, bash, grep, glob, ls, tree, fetch, websearch, think, todo, skill, ask, diff, delegate, wait, tell, cancel, answer, mcp__SERVER__TOOL]
    ! 8:1: info: `argument-hint` is ignored: it is shown in menus only
    "#);
    assert_snapshot!(read("chatmodes/Ask.chatmode.md", "---\ndescription: Asks\ntools: []\nmodel: GPT-4.1 | 'gpt-5'\n---\nAsk.\n"), @r#"
    name: "ask"
    title: "Ask"
    description: "Asks"
    prompt: "Ask."
    tools: {"only":[]}
    model: {"named":["GPT-4.1","gpt-5"]}
    dialect: copilot
    "#);
}

#[test]
fn cursor() {
    assert_snapshot!(read(".cursor/agents/v.md", "---\nname: v\ndescription: Verifies\nmodel: fast\nreadonly: true\nis_background: true\n---\nVerify.\n"), @r#"
    name: "v"
    description: "Verifies"
    prompt: "Verify."
    model: {"named":["fast"]}
    permission_mode: "plan"
    background: true
    dialect: cursor
    "#);
}

#[test]
fn qwen_code() {
    assert_snapshot!(read(".qwen/agents/q.md", "---\nname: q\ndescription: d\ntools: [read_file, todo_write]\napprovalMode: auto-edit\n---\nP\n"), @r#"
    name: "q"
    description: "d"
    prompt: "P"
    tools: {"only":["read","todo"]}
    permission_mode: "edit"
    dialect: qwen
    "#);
}

#[test]
fn factory_droids() {
    assert_snapshot!(read(".factory/droids/d.md", "---\nname: d\ndescription: d\nmodel: custom:x\nreasoningEffort: low\ntools: read-only\n---\nP\n"), @r#"
    name: "d"
    description: "d"
    prompt: "P"
    tools: {"only":["read","ls","grep","glob"]}
    model: {"named":["custom:x"]}
    effort: "low"
    dialect: factory
    "#);
}

#[test]
fn goose_agents_and_recipes() {
    assert_snapshot!(read(".goose/agents/g.md", "---\nname: g\ndescription: d\nmodel: gpt-5\n---\nP\n"), @r#"
    name: "g"
    description: "d"
    prompt: "P"
    model: {"named":["gpt-5"]}
    dialect: goose
    "#);
    assert_snapshot!(read(".goose/recipes/rel.yaml", r#"version: "1.0.0"
title: Release Notes
description: Writes release notes
instructions: You write release notes for {{ version }}.
prompt: Begin.
parameters:
  - {key: version, input_type: string, requirement: required}
extensions:
  - {type: builtin, name: developer}
  - {type: stdio, name: github, cmd: x, available_tools: [list_tags]}
settings: {goose_provider: anthropic, goose_model: claude-sonnet-4, max_turns: 9}
response: {json_schema: {type: object}}
retry: {max_retries: 2, checks: [{type: shell, command: "true"}]}
"#), @r#"
    name: "release-notes"
    title: "Release Notes"
    description: "Writes release notes"
    prompt: "You write release notes for {{ version }}."
    tools: {"only":["read","write","edit","bash","grep","glob","ls","tree","mcp__github__list_tags"]}
    model: {"named":["anthropic/claude-sonnet-4"]}
    limit turns: {"at":9}
    shared_context: ["version"]
    mcp_servers: {"github":{"type":"stdio","name":"github","cmd":"x","available_tools":["list_tags"]}}
    schema: {"type":"object"}
    on_failure: {"retry":2}
    initial_prompt: "Begin."
    parameters: {"version":null}
    metadata: {"parameters":[{"key":"version","input_type":"string","requirement":"required"}],"retry":{"max_retries":2,"checks":[{"type":"shell","command":"true"}]},"version":"1.0.0"}
    dialect: goose-recipe
    ! 2:8: warning: the name `Release Notes` was changed to `release-notes`: names consist of lower-case letters, digits and hyphens [write `name: release-notes`]
    "#);
}

#[test]
fn roo_modes() {
    assert_snapshot!(read(".roomodes", r#"customModes:
  - slug: docs-writer
    name: Docs Writer
    roleDefinition: You write docs.
    whenToUse: When docs are missing
    customInstructions: Be brief.
    groups: [read, [edit, {fileRegex: '\.(md|txt)$'}], command, [edit, {fileRegex: '^src/.*|x'}]]
"#), @r#"
    name: "docs-writer"
    title: "Docs Writer"
    description: "When docs are missing"
    prompt: "You write docs.\n\nBe brief."
    tools: {"only":["read","grep","glob","ls","edit(*.md)","edit(*.txt)","write(*.md)","write(*.txt)","bash"]}
    dialect: roo
    ! 7:65: warning: `fileRegex` is supported for file extensions only: the group was ignored [name the tool with a path instead, such as edit(docs/**)]
    "#);
}

#[test]
fn pi_subagents() {
    assert_snapshot!(read(".pi/agents/p.md", "---\nname: p\ndescription: d\ntools: read, grep, mcp:docs/search\nmodel: anthropic/claude-opus\nfallbackModels: openai/gpt-5, google/gemini\nthinking: high\ninheritProjectContext: false\ndefaultContext: fork\ntimeoutMs: 60000\nturnBudget: {maxTurns: 7, graceTurns: 2}\nsystemPromptMode: replace\n---\nP\n"), @r#"
    name: "p"
    description: "d"
    prompt: "P"
    tools: {"only":["read","grep","mcp__docs__search"]}
    model: {"named":["anthropic/claude-opus","openai/gpt-5","google/gemini"]}
    effort: "high"
    limit turns: {"at":7}
    limit wall_ms: {"at":60000}
    inherit: "all"
    surroundings: "environment"
    metadata: {"systemPromptMode":"replace"}
    dialect: pi
    ! 12:1: info: `systemPromptMode` is ignored: its prompt is the whole system prompt
    "#);
}

#[test]
fn homing_with_all_fields() {
    assert_snapshot!(read(".homing/agents/own.md", r#"---
name: own
description: d
tools: read, bash(git only)
delegates: read, grep
limits: {turns: 10, cost: 0.50, tool_calls: 20, children: 3, depth: 1, timeout: 5m, work: 90s, tokens: none}
shared_context: [ticket, branch]
inherit: 4
context: none
on_failure: {retry: 2}
schema: {type: object, required: [ok]}
resources: [a.txt]
---
P
"#), @r#"
    name: "own"
    description: "d"
    prompt: "P"
    tools: {"only":["read","bash(git only)"]}
    delegates: ["read","grep"]
    resources: ["a.txt"]
    limit turns: {"at":10}
    limit depth: {"at":1}
    limit tokens: "unlimited"
    limit cost_micros: {"at":500000}
    limit tool_calls: {"at":20}
    limit children: {"at":3}
    limit wall_ms: {"at":300000}
    limit work_ms: {"at":90000}
    shared_context: ["ticket","branch"]
    inherit: {"last":4}
    surroundings: "none"
    schema: {"type":"object","required":["ok"]}
    on_failure: {"retry":2}
    dialect: homing
    "#);
}

#[test]
fn vs_code_tools_are_not_mcp_servers_but_defined_servers_are() {
    let text = "---\nname: a\ndescription: d\ntools: ['execute/*', 'execute/runTests', 'docs', 'docs/find']\nmcp-servers: {docs: {url: x}}\n---\nP\n";
    assert_snapshot!(read("a.agent.md", text), @r#"
    name: "a"
    description: "d"
    prompt: "P"
    tools: {"only":["bash","mcp__docs","mcp__docs__find"]}
    mcp_servers: {"docs":{"url":"x"}}
    dialect: copilot
    ! 4:22: warning: unknown tool `execute/runTests`: ignored [known tools: read, write, edit, bash, grep, glob, ls, tree, fetch, websearch, think, todo, skill, ask, diff, delegate, wait, tell, cancel, answer, mcp__SERVER__TOOL]
    "#);
}

#[test]
fn all_and_none_are_accepted_as_words() {
    let tools = |value: &str| {
        crate::show::definition(&format!("---\nname: a\ndescription: d\ntools: {value}\n---\nP\n")).tools.allowed
    };
    assert_eq!(tools("All tools"), tools("\"*\""));
    assert_eq!(tools("inherit"), tools("\"*\""));
    assert_eq!(tools("none"), tools("[]"));
}

#[test]
fn configuration_without_agents_is_ignored() {
    for text in [r#"{"$schema": "x", "model": "y", "mcp": {}}"#, "{}"] {
        let parsed = crate::show::parsed("opencode.json", text);
        assert!(matches!(parsed.what, homing_load::FileKind::Other(_)) && parsed.diagnostics.is_empty());
    }
    for text in [r#"{"agent": {}}"#, r#"{"agent": {"build": {"model": "x"}}}"#] {
        let parsed = crate::show::parsed("opencode.json", text);
        assert!(parsed.definitions.is_empty() && parsed.diagnostics.is_empty());
    }
}

#[test]
fn r4_invalid_values_are_reported_and_the_agent_loads() {
    assert_snapshot!(read(".homing/agents/odd.md", r#"---
name: odd
description: [joined, up]
color: {a: map}
background: perhaps
effort: enormous
temperature: hot
top_p: 2
seed: lucky
inherit: some
memory: everywhere
mcp_servers: []
output_schema: text
on_failure: explode
---
Go.
"#), @r###"
name: "odd"
description: "joined, up"
prompt: "Go."
dialect: homing
! 3:14: warning: `description` must be text, not a list: its entries were joined [write a single text]
! 4:8: warning: `color` must be text, not a map: ignored
! 5:13: warning: `background` is neither true nor false: treated as false
! 6:9: warning: `enormous` is not an effort level: ignored [write none, minimal, low, medium, high, xhigh or max]
! 7:14: warning: the temperature must be a number from 0 to 2: ignored
! 8:8: warning: top_p must be a number from 0 to 1: ignored
! 9:7: warning: the seed must be a whole number: ignored
! 10:10: warning: `some` is not a valid `inherit`: no messages are inherited [write none, all or a number]
! 11:9: warning: `everywhere` is not a memory scope: the agent has no memory [write user, project or local]
! 13:16: warning: `output_schema` must be a schema, not text: ignored
! 14:13: warning: `explode` is not a valid `on_failure`: failures are reported [write report, retry, skip or fail_parent]
"###);
    assert_snapshot!(read(".homing/agents/failing.md", "---\nname: failing\ndescription: d\non_failure: {retry: 99}\nmodel: {temperature: 1}\n---\nGo.\n"), @r###"
    name: "failing"
    description: "d"
    prompt: "Go."
    dialect: homing
    ! 4:13: warning: the number of retries must be from 0 to 10: failures are reported
    ! 5:8: warning: `model` is a map without `model`: ignored
    "###);
}
