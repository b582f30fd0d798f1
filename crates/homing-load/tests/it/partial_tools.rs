//! Tools of other programs that do only a part of what a known tool does: they neither grant nor deny it.

use crate::show::{definition, parsed};
use homing_core::{
    authority::{Allow, Authority, Grant, Layer, Network, Sandbox},
    definition::AgentDefinition,
    diagnostic::Severity,
    tool::Effect,
};
use homing_load::{ParseOptions, ParsedFile, parse};

const CODE_EXPLORER: &str = "---
name: code-explorer
description: Deeply analyzes existing codebase features
tools: Glob, Grep, LS, Read, NotebookRead, WebFetch, TodoWrite, WebSearch, KillShell, BashOutput
model: sonnet
color: yellow
---

You are an expert code analyst.
";

/// Names of tools that only observe or end commands, or work only on notebooks.
const PARTIAL: [&str; 12] = [
    "BashOutput",
    "KillShell",
    "KillBash",
    "kill_shell",
    "NotebookEdit",
    "NotebookRead",
    "edit/editNotebook",
    "editNotebook",
    "write_stdin",
    "getTerminalOutput",
    "ListMcpResourcesTool",
    "read/problems",
];

fn shows(agent: &AgentDefinition, tool: &str) -> bool {
    let policy =
        Grant::new(vec![Layer::everything("user").into()]).network(Network::Off).sandbox(Sandbox::WorkspaceWrite);
    let effect = match tool {
        "bash" => Effect::Commands,
        "edit" | "write" => Effect::Changes,
        _ => Effect::Reads,
    };
    Authority::root(policy, agent).own.shows(tool, effect)
}

#[test]
fn read_only_agent_with_command_observers_gets_no_shell() {
    let parsed = parsed(".claude/agents/code-explorer.md", CODE_EXPLORER);
    let agent = &parsed.definitions[0];
    for tool in ["bash", "edit", "write"] {
        assert!(!shows(agent, tool), "{tool}");
    }
    for tool in ["glob", "grep", "ls", "read", "fetch", "todo", "websearch"] {
        assert!(shows(agent, tool), "{tool}");
    }
    let severities: Vec<Severity> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.severity).collect();
    assert_eq!(severities, [Severity::Info; 3], "{:?}", parsed.diagnostics);
    assert_eq!(parsed.diagnostics[0].message, "`NotebookRead` has no equivalent here: it grants nothing");
}

#[test]
fn partial_names_grant_nothing() {
    for name in PARTIAL {
        let agent = definition(&format!("---\nname: a\ndescription: d\ntools: Glob, {name}\n---\nP\n"));
        assert_eq!(agent.tools.allowed, Allow::Only(vec!["glob".parse().unwrap()]), "{name}");
        let alone = definition(&format!("---\nname: a\ndescription: d\ntools: [\"{name}\"]\n---\nP\n"));
        assert_eq!(alone.tools.allowed, Allow::Only(vec![]), "{name}");
    }
}

#[test]
fn denied_partial_name_denies_nothing_else() {
    for name in PARTIAL {
        let agent = definition(&format!("---\nname: a\ndescription: d\ndisallowedTools: {name}\n---\nP\n"));
        for tool in ["bash", "edit", "write", "read", "wait", "cancel"] {
            assert!(shows(&agent, tool), "{name} took {tool} away");
        }
    }
}

#[test]
fn strict_mode_accepts_names_without_an_equivalent() {
    let options = ParseOptions { strict: true, ..ParseOptions::default() };
    let path = std::path::Path::new(".claude/agents/code-explorer.md");
    let scope = homing_core::definition::Scope::Project;
    let parsed = parse(path, CODE_EXPLORER.into(), ParsedFile::Named, scope, &options);
    assert_eq!(parsed.definitions.len(), 1, "{:?}", parsed.diagnostics);
}
