//! Restrictions under unknown or misspelt keys apply and are reported.

use crate::show::parsed;
use homing_core::{
    authority::{Allow, Authority, Decision, Grant, Layer, Network, Sandbox},
    definition::{AgentDefinition, PermissionMode},
    diagnostic::Severity,
    rule::Subjects,
    tool::Effect,
};

fn agent(front: &str) -> (AgentDefinition, Vec<String>) {
    let text = format!("---\nname: a\ndescription: d\n{front}\n---\nP\n");
    let mut parsed = parsed(".claude/agents/a.md", &text);
    assert!(
        parsed.diagnostics.iter().all(|diagnostic| diagnostic.severity == Severity::Warning),
        "{front}: {:?}",
        parsed.diagnostics
    );
    assert_eq!(parsed.definitions.len(), 1, "{front}");
    (parsed.definitions.remove(0), parsed.diagnostics.iter().map(|diagnostic| diagnostic.message.clone()).collect())
}

fn may(agent: &AgentDefinition, tool: &str) -> bool {
    let policy =
        Grant::new(vec![Layer::everything("user").into()]).network(Network::Off).sandbox(Sandbox::WorkspaceWrite);
    let effect = if tool == "bash" { Effect::Commands } else { Effect::Reads };
    matches!(Authority::root(policy, agent).own.decide(tool, effect, &Subjects::None), Decision::Allow { .. })
}

#[test]
fn synonyms_of_deny_deny_tools() {
    let keys = [
        "blockedTools",
        "blocked_tools",
        "disabledTools",
        "disabled-tools",
        "forbidden_tools",
        "forbiddenTools",
        "deny",
        "denied",
        "disallow",
        "disallowed",
        "denied_tools",
        "denyTools",
        "exclude_tools",
        "excluded-tools",
        "restricted_tools",
        "prohibitedTools",
        "bannedTools",
        "disallowTools",
        "disalowedTools",
        "dissallowedTools",
        "tools_denied",
        "toolBlacklist",
        "toolsDenyList",
        "blacklist",
        "not_allowed_tools",
    ];
    for key in keys {
        for value in ["Bash", "[Bash, Write]", "\n  - Bash\n  - Write", "{Bash: true}", "[[Bash]]"] {
            let (agent, _) = agent(&format!("{key}: {value}"));
            assert!(!may(&agent, "bash"), "{key}: {value}");
            assert!(may(&agent, "read"), "{key}: {value}");
        }
    }
    let (_, diagnostics) = agent("blockedTools: Bash");
    assert_eq!(
        diagnostics,
        ["unknown key `blockedTools`: treated as `disallowedTools`, because it may be a restriction"]
    );
}

#[test]
fn synonyms_of_allow_allow_only_the_listed_tools() {
    let keys =
        ["alowedTools", "allowed-tool", "allow_tools", "allow", "permittedTools", "enabled_tools", "toolWhitelist"];
    for key in keys {
        let (agent, _) = agent(&format!("{key}: Read, Grep"));
        assert_eq!(agent.tools.allowed, Allow::Only(vec!["read".parse().unwrap(), "grep".parse().unwrap()]), "{key}");
    }
}

#[test]
fn permissions_in_all_forms_restrict() {
    let closed = [
        "permissions: {bash: deny}",
        "permissions:\n  deny: [Bash, Write]",
        "permissions:\n  deny: Bash",
        "permissions:\n  allow: [Read, Grep]",
        "permissions:\n  ask: [Bash]",
        "permissions: [Read, Grep]",
        "permissions: none of your business",
        "permissions: deny",
        "permission: [Read]",
        "permisions: {bash: deny}",
        "tool_permissions: {bash: false}",
        "permissions:\n  deny:\n    Bash: true",
    ];
    for front in closed {
        assert!(!may(&agent(front).0, "bash"), "{front}");
    }
    for front in ["permissions:\n  deny: [Bash, Write]", "permissions: [Read, Grep]", "permissions: {bash: deny}"] {
        assert!(may(&agent(front).0, "read"), "{front}");
    }
    let (agent, _) = agent("permissions: read-only");
    assert_eq!(agent.execution.permission_mode, Some(PermissionMode::Plan));
}

#[test]
fn disabled_agent_is_not_loaded() {
    let text = "---\nname: a\ndescription: d\ndisabled: true\n---\nP\n";
    assert!(parsed(".claude/agents/a.md", text).definitions.is_empty());
}
