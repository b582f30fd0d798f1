//! Behaviour with any set of features. `.ci/features` runs these tests with several sets.

use homing::{
    AgentDefinition, Grant, Homing, Layer, Permissions, Replay, Status, Task, model_fn,
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
    assert!(!first.tell_if_open("two"), "it has ended");
    let second = first.tell("two").unwrap();
    assert_ne!(second.id(), first.id());
    assert_eq!(second.wait().await.output, "3: two");
    assert_eq!(second.tell("three").unwrap().await.output, "5: three");
}

#[tokio::test]
async fn conversation_keeps_model_context_and_authority() {
    let model = |name: &'static str| {
        model_fn(name, move |request| {
            let asks = last_words(&request) == "push";
            Ok(if asks { call([("push", json!({}))]) } else { say(format!("{name}: {}", last_words(&request))) })
        })
    };
    let homing = Homing::builder()
        .agent(AgentDefinition::new("a", "d", "Speak {{language}}."))
        .tool(tool_fn("push", "Pushes.", Replay::Unsafe, |_, _: Value| async { Ok("pushed".to_owned()) }))
        .own_model(model("demo/first"))
        .own_model(model("demo/second"))
        .build()
        .unwrap();
    let mut layer = Layer::everything("this task");
    layer.deny = vec!["push".parse().unwrap()];
    let narrow = Grant::new(vec![layer.into()]);
    let task = Task::new("a", "hi").model("demo/second").set("language", "French").policy(narrow);
    let run = homing.spawn(task).unwrap();
    assert_eq!(run.wait().await.output, "demo/second: hi");
    let result = run.tell("push").unwrap().await;
    assert!(result.output.starts_with("demo/second: there is no tool `push` here"), "{}", result.output);
    // Without a task of its own rules, the agent's own model and the host's permissions count.
    let run = homing.spawn(Task::new("a", "hi")).unwrap();
    assert_eq!(run.wait().await.output, "demo/first: hi");
    assert_eq!(run.tell("push").unwrap().await.output, "demo/first: pushed");
}

#[cfg(not(feature = "schemas"))]
#[test]
fn schema_of_an_agent_or_a_task_names_the_missing_feature() {
    let build =
        |agent: AgentDefinition| Homing::builder().agent(agent).own_model(model_fn("demo/m", |_| Ok(say("")))).build();
    let mut agent = AgentDefinition::new("a", "d", "p");
    let homing = build(agent.clone()).unwrap();
    agent.task.schema = Some(json!({"type": "object"}));
    let text = build(agent).unwrap_err().to_string();
    assert_eq!(text, "agent a has a schema for its answer, which needs the feature `schemas` of the crate `homing`");
    let refused = homing.spawn(Task::new("a", "go").schema(json!({"type": "object"}))).unwrap_err();
    assert!(matches!(refused, homing::SpawnError::NoSchemas), "{refused}");
    assert!(refused.to_string().contains("needs the feature `schemas` of the crate `homing`"), "{refused}");
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

#[cfg(feature = "mcp")]
#[test]
fn agent_with_mcp_servers_needs_a_coding_setup_or_their_tools() {
    let mut agent = AgentDefinition::new("db", "Queries", "Query.");
    agent.integrations.mcp_servers.insert("postgres".to_owned(), json!({"command": "pg"}));
    let builder = || Homing::builder().agent(agent.clone()).own_model(model_fn("demo/m", |_| Ok(say(""))));
    let refused = builder().build().unwrap_err().to_string();
    assert!(refused.starts_with("agent db has MCP servers, which only a coding setup starts"), "{refused}");
    let query = tool_fn("mcp__postgres__query", "Queries.", Replay::Safe, |_, _: Value| async { Ok(String::new()) });
    assert!(builder().tool(query).build().is_ok());
}

#[cfg(feature = "shell")]
#[test]
fn agent_with_hooks_needs_a_coding_setup() {
    let mut agent = AgentDefinition::new("guarded", "Works", "Work.");
    agent.integrations.hooks = json!({"PreToolUse": []});
    let built = Homing::builder().agent(agent).own_model(model_fn("demo/m", |_| Ok(say("")))).build();
    let refused = built.unwrap_err().to_string();
    assert!(refused.starts_with("agent guarded has hooks, which only a coding setup starts"), "{refused}");
}

#[cfg(all(feature = "teams", not(feature = "scripts")))]
#[test]
fn workflow_script_names_the_missing_feature() {
    use homing::teams::{Script, Team, load};

    let text = "export const meta = { name: 'release', description: 'Releases' }\nawait agent('go')\n";
    let expected = "the team release is a workflow script, which needs the feature `scripts` of the crate `homing`";
    let loaded = load(text, Some(std::path::Path::new("release.js")));
    let errors = loaded.ready().unwrap_err();
    assert_eq!(errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>(), [expected]);
    let team = Team::script("release", Script::new(text));
    let built = Homing::builder().team(team).own_model(model_fn("demo/m", |_| Ok(say("")))).build();
    assert!(built.unwrap_err().to_string().contains(expected));
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
