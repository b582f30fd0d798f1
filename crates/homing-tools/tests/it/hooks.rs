//! Hooks that run real commands.

use std::time::Duration;

use crate::command_fixture::{CommandFixture, HELPER, gone_within};
use homing_core::{
    hooks::{HookCall, HookDecision, HookEnding, HookRun, Hooks},
    tool::ToolOutput,
};
use homing_sandbox::Sandboxes;
use homing_tools::hooks::{CommandHooks, HookConfig};
use serde_json::{Value, json};

fn hooks(fixture: &CommandFixture, config: &Value) -> CommandHooks {
    let (config, warnings) = HookConfig::parse(config);
    assert_eq!(warnings, Vec::<String>::new());
    CommandHooks::new(fixture.commands.clone(), config)
}

fn run(fixture: &CommandFixture) -> HookRun {
    HookRun {
        run: uuid::Uuid::new_v4(),
        agent: "explore".into(),
        workdir: fixture.workspace.clone(),
        delegated: true,
        own_hooks: Value::Null,
    }
}

fn command(command: &str) -> Value {
    json!([{"matcher": "Bash", "hooks": [{"type": "command", "command": command, "timeout": 5}]}])
}

#[tokio::test]
async fn hook_receives_the_call_and_may_block_it() {
    let fixture = CommandFixture::with(Sandboxes::none(HELPER), |commands| commands);
    let script = r#"cat > input.json; grep -q 'rm -rf' input.json && { echo "not that" >&2; exit 2; }; exit 0"#;
    let hooks = hooks(&fixture, &json!({"PreToolUse": command(script)}));
    let run = run(&fixture);
    let call = |tool: &str, args: Value| HookCall { tool: tool.into(), args };
    let decision = hooks.before_call(&run, &call("bash", json!({"command": "rm -rf /"}))).await;
    assert_eq!(decision, HookDecision::Block { why: "not that".into() });
    let input: Value = serde_json::from_slice(&std::fs::read(fixture.workspace.join("input.json")).unwrap()).unwrap();
    assert_eq!((input["tool_name"].as_str(), input["hook_event_name"].as_str()), (Some("Bash"), Some("PreToolUse")));
    assert_eq!(input["tool_input"]["command"], "rm -rf /");
    let allow = HookDecision::Allow { args: None, notes: Default::default() };
    assert_eq!(hooks.before_call(&run, &call("bash", json!({"command": "ls"}))).await, allow);
    std::fs::remove_file(fixture.workspace.join("input.json")).unwrap();
    assert_eq!(hooks.before_call(&run, &call("read", json!({"path": "a"}))).await, allow);
    assert!(fixture.files(&fixture.workspace).is_empty(), "a hook for another tool ran");
}

#[tokio::test]
async fn hooks_add_context_and_make_a_run_continue() {
    let fixture = CommandFixture::with(Sandboxes::none(HELPER), |commands| commands);
    let config = json!({
        "SubagentStart": [{"hooks": [{"command": "echo be careful"}]}],
        "PostToolUse": [{"hooks": [{"command": "echo '{\"decision\":\"block\",\"reason\":\"run the formatter\"}'"}]}],
        "SubagentStop": [{"hooks": [{"command": "echo tests fail >&2; exit 2"}]}],
        "SessionStart": [{"hooks": [{"command": "echo wrong event"}]}],
    });
    let hooks = hooks(&fixture, &config);
    let run = run(&fixture);
    assert_eq!(hooks.run_started(&run).await.for_model, ["be careful"]);
    let call = HookCall { tool: "edit".into(), args: json!({}) };
    assert_eq!(hooks.after_call(&run, &call, &ToolOutput::text("done")).await.for_model, ["run the formatter"]);
    assert_eq!(hooks.run_ending(&run, "bye", 0).await, HookEnding::GoOn { why: "tests fail".into() });
    assert!(matches!(hooks.run_ending(&run, "bye", 8).await, HookEnding::End(notes) if notes.warnings.len() == 1));
    // The agent's own file.
    let agent_hooks = json!({"Stop": [{"hooks": [{"command": "echo more work >&2; exit 2"}]}]});
    let own = HookRun { own_hooks: agent_hooks.clone(), ..run };
    let none = CommandHooks::new(fixture.commands.clone(), HookConfig::default());
    assert!(matches!(none.run_ending(&own, "bye", 0).await, HookEnding::End(_)), "the agent file is not trusted");
    let trusted = CommandHooks::new(fixture.commands.clone(), HookConfig::default()).with_agents(vec![agent_hooks]);
    assert_eq!(trusted.run_ending(&own, "bye", 0).await, HookEnding::GoOn { why: "more work".into() });
}

#[tokio::test]
async fn inv14_failing_or_hanging_hook_does_not_stop_the_run() {
    let fixture = CommandFixture::with(Sandboxes::none(HELPER), |commands| commands);
    let marker = fixture.folder.path().display().to_string();
    let config = json!({"PreToolUse": [{"hooks": [
        {"command": "exit 1"}, {"command": "setsid sleep 300 & sleep 300", "timeout": 0.3}, {"command": "env"}]}]});
    let hooks = hooks(&fixture, &config);
    let call = HookCall { tool: "bash".into(), args: json!({"command": "ls"}) };
    let decision = hooks.before_call(&run(&fixture), &call).await;
    let HookDecision::Allow { notes, .. } = decision else { panic!("{decision:?}") };
    assert_eq!(notes.warnings.len(), 2, "{notes:?}");
    assert!(!notes.for_model.concat().contains("API_KEY"));
    assert_eq!(gone_within(&marker, Duration::from_secs(2)), Vec::<i32>::new());
}
