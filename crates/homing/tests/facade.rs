//! The public API of the library.

use std::sync::Arc;

use homing::{
    AgentDefinition, Homing, Replay, Task,
    crates::core::scripted_model::{FunctionModel, call, last_words, say},
    tool_fn,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[tokio::test]
async fn r48_coding_finds_the_projects_agents() {
    let project = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(project.path().join(".claude/agents")).unwrap();
    let file = "---\nname: greeter\ndescription: Greets\ntools: Read\n---\nGreet.\n";
    std::fs::write(project.path().join(".claude/agents/greeter.md"), file).unwrap();
    std::fs::write(project.path().join("names.txt"), "Ada\n").unwrap();
    let model = FunctionModel::new("demo/greeter", |request| {
        Ok(match request.messages.len() {
            1 => call([("read", json!({"path": "names.txt"}))]),
            _ => say(format!("Hello {}", last_words(&request))),
        })
    });
    let homing = Homing::coding(project.path())
        .journal(project.path().join("journal.db"))
        .own_model(Arc::new(model))
        .build()
        .await
        .unwrap();
    assert!(homing.registry().has("greeter") && homing.registry().has("explore"));
    let result = homing.spawn(Task::new("greeter", "go").model("demo/greeter")).unwrap().wait().await;
    assert!(result.output.contains("Ada"), "{result:?}");
    assert!(homing.diagnostics().iter().any(|diagnostic| diagnostic.message.contains("`bash` is missing")));
}

#[tokio::test]
async fn builder_is_hermetic() {
    let empty = Homing::builder().build().await;
    assert!(empty.is_err_and(|error| error.to_string().contains("no models are configured")));
    let model = FunctionModel::new("demo/m", |_| Ok(say("x")));
    let homing = Homing::builder().own_model(Arc::new(model)).build().await.unwrap();
    assert_eq!(homing.registry().len(), 0);
    assert!(homing.journal().is_none());
}

#[tokio::test]
async fn r42_agents_made_in_code_run_like_those_in_files() {
    let agent = AgentDefinition::new("smith", "Forges", "Forge.");
    let model = FunctionModel::new("demo/smith", |request| Ok(say(request.system)));
    let homing = Homing::builder().agent(agent).own_model(Arc::new(model)).build().await.unwrap();
    assert_eq!(homing.spawn(Task::new("smith", "a nail")).unwrap().wait().await.output, "Forge.");
}

#[derive(Deserialize, JsonSchema)]
struct GreetArgs {
    /// The person to greet.
    name: String,
}

#[tokio::test]
async fn tool_from_a_function_has_a_schema_and_returns_argument_errors() {
    let greet = |_, args: GreetArgs| async move { Ok(format!("hello {}", args.name)) };
    let tool = tool_fn("greet", "Greets.", Replay::Safe, greet);
    let schema = &tool.spec().schema;
    assert_eq!(schema["properties"], json!({"name": {"type": "string", "description": "The person to greet."}}));
    assert!(schema.get("title").is_none() && schema.get("$schema").is_none());
    let model = FunctionModel::new("demo/m", |request| {
        Ok(match request.messages.len() {
            1 => call([("greet", json!({"name": "Ada"}))]),
            3 => call([("greet", json!({"name": last_words(&request).len()}))]),
            _ => say(last_words(&request)),
        })
    });
    let builder = Homing::builder().agent(AgentDefinition::new("a", "d", "p")).tool(tool).own_model(Arc::new(model));
    let homing = builder.build().await.unwrap();
    let output = homing.spawn(Task::new("a", "go")).unwrap().wait().await.output;
    assert!(output.contains("invalid type: integer `9`, expected a string"), "{output}");
}

#[tokio::test]
async fn several_instances_live_in_one_process() {
    let one = |name: &'static str| async move {
        let model = FunctionModel::new("demo/m", move |_| Ok(say(name)));
        let builder = Homing::builder().agent(AgentDefinition::new("a", "d", "p")).own_model(Arc::new(model));
        let homing = builder.build().await.unwrap();
        homing.spawn(Task::new("a", "x")).unwrap().wait().await.output
    };
    assert_eq!(tokio::join!(one("first"), one("second")), ("first".to_owned(), "second".to_owned()));
}

#[tokio::test]
async fn r47_identical_task_is_not_paid_twice() {
    use homing::Cached;
    let project = tempfile::tempdir().unwrap();
    let data = tempfile::tempdir().unwrap();
    std::fs::write(project.path().join("a.txt"), "one").unwrap();
    let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let log = asked.clone();
    let model = FunctionModel::new("demo/m", move |_| {
        log.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(say("an answer"))
    });
    let builder = Homing::builder().agent(AgentDefinition::new("a", "d", "p")).own_model(Arc::new(model));
    let homing = builder.workdir(project.path()).journal(data.path().join("j.db")).build().await.unwrap();
    let times = || asked.load(std::sync::atomic::Ordering::SeqCst);
    let Cached::Now(run, keep) = homing.spawn_cached(Task::new("a", "x")).await.unwrap() else { panic!("it is new") };
    run.wait().await;
    keep.keep().await.unwrap();
    let Cached::Before(again) = homing.spawn_cached(Task::new("a", "x")).await.unwrap() else { panic!("it is known") };
    assert_eq!((again.output.as_str(), again.run), ("an answer", run.id()));
    let before = times();
    assert!(matches!(homing.spawn_cached(Task::new("a", "x")).await.unwrap(), Cached::Before(_)));
    assert_eq!(times(), before, "nothing was asked");
    std::fs::write(project.path().join("a.txt"), "another").unwrap();
    assert!(matches!(homing.spawn_cached(Task::new("a", "x")).await.unwrap(), Cached::Now(..)));
    assert!(matches!(homing.spawn_cached(Task::new("a", "y")).await.unwrap(), Cached::Now(..)));
}
