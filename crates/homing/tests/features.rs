//! Behaviour with any set of features. `.ci/features` runs these tests with several sets.

use homing::{
    AgentDefinition, Homing, Permissions, Replay, Status, Task, model_fn,
    testing::{call, last_words, say},
    tool_fn,
};
use serde_json::{Value, json};

#[tokio::test]
async fn agents_delegate_and_use_tools_without_any_feature() {
    let homing = Homing::builder()
        .agent(AgentDefinition::new("lead", "Leads", "lead"))
        .agent(AgentDefinition::new("scout", "Looks", "scout"))
        .tool(tool_fn("look", "Looks.", Replay::Safe, |_, _: Value| async { Ok("a door".to_owned()) }))
        .permissions(Permissions::default().deny(["look(nothing)"]))
        .own_model(model_fn("demo/m", |request| {
            Ok(match (request.system, request.messages.len()) {
                ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "search"}))]),
                ("scout", 1) => call([("look", json!({}))]),
                _ => say(last_words(&request)),
            })
        }))
        .build()
        .unwrap();
    let result = homing.spawn(Task::new("lead", "go")).unwrap().await;
    assert_eq!((result.status, result.children.len()), (Status::Done, 1), "{result:?}");
    assert!(result.output.contains("a door"), "{}", result.output);
}

#[tokio::test]
async fn message_reaches_a_run_or_the_run_that_continues_it() {
    let homing = Homing::builder()
        .agent(AgentDefinition::new("echo", "Repeats", "Repeat."))
        .own_model(model_fn("demo/m", |request| {
            Ok(say(format!("{}: {}", request.messages.len(), last_words(&request))))
        }))
        .build()
        .unwrap();
    let first = homing.spawn(Task::new("echo", "one")).unwrap();
    assert_eq!(first.wait().await.output, "1: one");
    assert!(!first.tell("two"), "it has ended");
    let second = first.follow_up("two").unwrap();
    assert_ne!(second.id(), first.id());
    assert_eq!(second.await.output, "3: two");
}

#[cfg(not(feature = "mcp"))]
#[test]
fn agent_with_mcp_servers_names_the_missing_feature() {
    let mut agent = AgentDefinition::new("db", "Queries", "Query.");
    agent.integrations.mcp_servers.insert("postgres".to_owned(), json!({"command": "pg"}));
    let built = Homing::builder().agent(agent).own_model(model_fn("demo/m", |_| Ok(say("")))).build();
    let text = built.unwrap_err().to_string();
    assert_eq!(text, "agent db has MCP servers, which needs the feature `mcp` of the crate `homing`");
}

#[cfg(not(feature = "shell"))]
#[test]
fn agent_with_hooks_names_the_missing_feature() {
    let mut agent = AgentDefinition::new("guarded", "Works", "Work.");
    agent.integrations.hooks = json!({"PreToolUse": []});
    let built = Homing::builder().agent(agent).own_model(model_fn("demo/m", |_| Ok(say("")))).build();
    let text = built.unwrap_err().to_string();
    assert_eq!(text, "agent guarded has hooks, which needs the feature `shell` of the crate `homing`");
}

#[cfg(all(feature = "tools", not(feature = "mcp")))]
#[test]
fn servers_in_a_users_files_are_reported_and_do_not_stop_the_host() {
    let project = tempfile::tempdir().unwrap();
    let mut setup = homing::CodingSetup::from_env(project.path());
    setup.places.home = None;
    setup.without_commands = !cfg!(feature = "shell");
    setup.helper = Some("/bin/true".into());
    setup.servers.insert("postgres".to_owned(), json!({"command": "pg"}));
    let builder = Homing::builder().coding_setup(setup).workdir(project.path());
    let homing = builder.own_model(model_fn("demo/m", |_| Ok(say("")))).build().unwrap();
    let warnings: Vec<String> = homing.diagnostics().iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|text| text.contains("needs the feature `mcp`")), "{warnings:?}");
}

#[cfg(not(feature = "providers"))]
#[test]
fn unknown_model_names_the_missing_feature() {
    let homing = Homing::builder()
        .agent(AgentDefinition::new("a", "d", "p"))
        .own_model(model_fn("demo/m", |_| Ok(say(""))))
        .build()
        .unwrap();
    let refused = homing.spawn(Task::new("a", "go").model("openai/gpt-6")).unwrap_err().to_string();
    assert!(refused.contains("feature `providers`"), "{refused}");
}
