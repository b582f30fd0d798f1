//! The JSON form of agent definitions, which existing journals contain.

use homing_core::{
    authority::Allow,
    definition::{
        AgentDefinition, Attachments, ExtraFields, Inherit, Isolation, MemoryScope, ModelChoice, OnFailure,
        PermissionMode, ProjectContext, Scope, Source, TaskDefaults,
    },
    limits::{Cap, Limit, Limits},
    model::Effort,
    rule::Rule,
};
use serde_json::json;

/// A definition with every field set, written when all fields were in one struct.
const FULL: &str = r#"{"name":"reviewer","title":"Code Reviewer","aliases":["critic"],"description":"Reviews code","prompt":"Be strict.","tools":{"only":["read","bash(git log *)"]},"denied":["read(secrets/**)"],"asked":["fetch"],"delegates":["grep"],"model":{"named":["fast","openai/gpt"]},"effort":"high","temperature_milli":250,"skills":["rust"],"resources":["style.md"],"limits":{"turns":{"at":12},"depth":"default","tokens":"default","cost_micros":"unlimited","tool_calls":"default","children":"default","wall_ms":"default","work_ms":"default"},"shared_context":["branch"],"inherit":{"last":3},"surroundings":"environment","permission_mode":"plan","background":true,"isolation":"worktree","memory":"local","mcp_servers":{"github":{"command":"gh-mcp","args":[1,-2,0.5,18446744073709551615]},"named":null},"hooks":{"PreToolUse":[{"matcher":"bash","b":null,"a":true}]},"schema":{"type":"object","required":["verdict"]},"on_failure":{"retry":2},"initial_prompt":"Review the last commit.","color":"green","metadata":{"team":"core"},"unknown":{"model":{"not":"interpreted"}},"source":{"kind":"project","path":".homing/agents/reviewer.md","dialect":"homing"}}"#;

/// A definition with defaults, written when all fields were in one struct.
const PLAIN: &str = r#"{"name":"plain","description":"Does it","prompt":"Do it.","tools":"all","model":"inherit","limits":{"turns":"default","depth":"default","tokens":"default","cost_micros":"default","tool_calls":"default","children":"default","wall_ms":"default","work_ms":"default"},"inherit":"none","surroundings":"full","isolation":"none","on_failure":"report","source":{"kind":"command_line","path":null,"dialect":""}}"#;

#[test]
fn full_definition_keeps_its_json_text() {
    let read: AgentDefinition = serde_json::from_str(FULL).unwrap();
    assert_eq!(read, full());
    assert_eq!(serde_json::to_string(&read).unwrap(), FULL);
}

#[test]
fn plain_definition_keeps_its_json_text() {
    let read: AgentDefinition = serde_json::from_str(PLAIN).unwrap();
    assert_eq!(read, AgentDefinition::new("plain", "Does it", "Do it."));
    assert_eq!(serde_json::to_string(&read).unwrap(), PLAIN);
}

#[test]
fn absent_fields_have_defaults_and_unknown_ones_are_ignored() {
    let read: AgentDefinition = serde_json::from_str(r#"{"name": "plain", "of_a_later_version": {"a": 1}}"#).unwrap();
    assert_eq!(read, AgentDefinition::new("plain", "", ""));
}

#[test]
fn invalid_field_of_a_part_is_an_error() {
    for text in [r#"{"permission_mode": "reckless"}"#, r#"{"tools": {"only": ["read("]}}"#, r#"{"denied": "bash"}"#] {
        assert!(serde_json::from_str::<AgentDefinition>(text).is_err(), "{text}");
    }
}

fn full_task() -> TaskDefaults {
    TaskDefaults {
        schema: Some(json!({"type": "object", "required": ["verdict"]})),
        schema_optional: false,
        on_failure: OnFailure::Retry(2),
        initial_prompt: Some("Review the last commit.".into()),
        ..TaskDefaults::default()
    }
}

fn full() -> AgentDefinition {
    let (skills, resources) = (vec!["rust".into()], vec!["style.md".into()]);
    let attachments = Attachments { skills, resources, ..Attachments::default() };
    let limits = Limits::default().with(Limit::Turns, Cap::At(12)).with(Limit::Cost, Cap::Unlimited);
    let github = json!({"command": "gh-mcp", "args": [1, -2, 0.5, u64::MAX]});
    let mut agent = AgentDefinition::new("reviewer", "Reviews code", "Be strict.");
    agent.title = Some("Code Reviewer".into());
    agent.aliases = vec!["critic".into()];
    agent.tools.allowed = Allow::Only(vec![Rule::tool("read"), Rule::calls("bash", "git log *")]);
    agent.tools.denied = vec![Rule::calls("read", "secrets/**")];
    agent.tools.asked = vec![Rule::tool("fetch")];
    agent.tools.delegates = Some(vec![Rule::tool("grep")]);
    agent.model.choice = ModelChoice::Named(vec!["fast".into(), "openai/gpt".into()]);
    agent.model.effort = Some(Effort::High);
    agent.model.temperature_milli = Some(250);
    agent.attachments = attachments;
    agent.limits = limits;
    agent.context.shared_context = vec!["branch".into()];
    agent.context.inherit = Inherit::Last(3);
    agent.context.project_context = ProjectContext::Environment;
    agent.execution.permission_mode = Some(PermissionMode::Plan);
    agent.execution.background = true;
    agent.execution.isolation = Isolation::Worktree;
    agent.execution.memory = Some(MemoryScope::Local);
    agent.integrations.mcp_servers = [("github".into(), github), ("named".into(), json!(null))].into();
    agent.integrations.hooks = json!({"PreToolUse": [{"matcher": "bash", "b": null, "a": true}]});
    agent.task = full_task();
    agent.extra = ExtraFields {
        color: Some("green".into()),
        metadata: [("team".into(), json!("core"))].into(),
        unknown: [("model".into(), json!({"not": "interpreted"}))].into(),
    };
    agent.source =
        Source { kind: Scope::Project, path: Some(".homing/agents/reviewer.md".into()), dialect: "homing".into() };
    agent
}
