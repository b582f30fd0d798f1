//! The public API of the library.

use std::sync::Arc;

use homing::{
    AgentDefinition, AgentFiles, BuildError, Event, Homing, JournalChoice, Limits, Permissions, Replay, Task, model_fn,
    testing::{FunctionModel, call, last_words, say},
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
        .without_commands()
        .journal(project.path().join("journal.db"))
        .own_model(Arc::new(model))
        .build()
        .unwrap();
    assert!(homing.registry().has("greeter") && homing.registry().has("explore"));
    let result = homing.spawn(Task::new("greeter", "go").model("demo/greeter")).unwrap().wait().await;
    assert!(result.output.contains("Ada"), "{result:?}");
    let tools = homing.runtime().plan(Task::new("general", "go").model("demo/greeter")).unwrap().1;
    assert!(!tools.is_empty() && tools.iter().all(|tool| tool.name != "bash"));
}

#[tokio::test]
async fn builder_is_hermetic() {
    let empty = Homing::builder().build();
    assert!(empty.is_err_and(|error| error.to_string().contains("no models are configured")));
    let model = FunctionModel::new("demo/m", |_| Ok(say("x")));
    let homing = Homing::builder().own_model(Arc::new(model)).build().unwrap();
    assert_eq!(homing.registry().len(), 0);
    assert!(homing.journal().is_none());
}

#[tokio::test]
async fn r42_agents_made_in_code_run_like_those_in_files() {
    let agent = AgentDefinition::new("smith", "Forges", "Forge.");
    let model = FunctionModel::new("demo/smith", |request| Ok(say(request.system)));
    let homing = Homing::builder().agent(agent).own_model(Arc::new(model)).build().unwrap();
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
    let homing = builder.build().unwrap();
    let output = homing.spawn(Task::new("a", "go")).unwrap().wait().await.output;
    assert!(output.contains("invalid type: integer `9`, expected a string"), "{output}");
}

#[tokio::test]
async fn several_instances_live_in_one_process() {
    let one = |name: &'static str| async move {
        let model = FunctionModel::new("demo/m", move |_| Ok(say(name)));
        let builder = Homing::builder().agent(AgentDefinition::new("a", "d", "p")).own_model(Arc::new(model));
        let homing = builder.build().unwrap();
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
    let homing = builder.workdir(project.path()).journal(data.path().join("j.db")).build().unwrap();
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

fn kinds(events: &[Event]) -> Vec<&'static str> {
    let fact = |event: &Event| match event {
        Event::Fact(record) => Some(record.fact.kind()),
        _ => None,
    };
    events.iter().filter_map(fact).collect()
}

#[tokio::test]
async fn events_begin_with_the_first_fact_whenever_they_are_read() {
    use futures_util::StreamExt;
    let folder = tempfile::tempdir().unwrap();
    for journal in [JournalChoice::Off, folder.path().join("j.db").into()] {
        let builder = Homing::builder().agent(AgentDefinition::new("a", "d", "p"));
        let homing = builder.own_model(model_fn("test/m", |_| Ok(say("x")))).journal(journal).build().unwrap();
        let run = homing.spawn(Task::new("a", "go")).unwrap();
        let early: Vec<Event> = run.events().collect().await;
        let late: Vec<Event> = run.events().collect().await;
        assert_eq!(kinds(&late).first(), Some(&"spawned"));
        assert_eq!(kinds(&late).last(), Some(&"ended"));
        assert_eq!(kinds(&early), kinds(&late));
        let rest: Vec<Event> = run.events_from(2).collect().await;
        assert_eq!(kinds(&rest), kinds(&late)[2..]);
        assert_eq!(run.position(), kinds(&late).len() as u64);
    }
}

#[tokio::test]
async fn slow_reader_gets_every_fact() {
    let look = tool_fn("look", "Looks.", Replay::Safe, |_, _: serde_json::Value| async { Ok("more".to_owned()) });
    let model = |request: homing::testing::ModelRequest<'_>| {
        let calls = (0..50).map(|at| ("look", json!({"at": (request.messages.len(), at)})));
        Ok(if request.messages.len() > 4_000 { say("done") } else { call(calls) })
    };
    let agent = AgentDefinition::new("a", "d", "p");
    let homing = Homing::builder().agent(agent).tool(look).own_model(model_fn("test/m", model)).build().unwrap();
    let limits = Limits::default().tool_calls(10_000);
    let run = homing.spawn(Task::new("a", "go").limits(limits)).unwrap();
    // Subscribed before the run starts, and read after it has ended.
    let mut events = run.events_from(0);
    let first = futures_util::future::poll_immediate(events.next()).await;
    assert!(first.is_none());
    run.wait().await;
    let mut positions = Vec::new();
    let mut missed = 0;
    while let Some(event) = events.next().await {
        match event {
            Event::Fact(record) => positions.push(record.seq),
            Event::Missed(count) => missed += count,
            _ => (),
        }
    }
    assert!(missed > 0, "the run must be longer than the backlog");
    assert_eq!(positions, (0..run.position()).collect::<Vec<_>>());
}

#[tokio::test]
async fn submitting_a_key_again_returns_the_same_run_and_pays_once() {
    let folder = tempfile::tempdir().unwrap();
    for journal in [JournalChoice::Off, folder.path().join("j.db").into()] {
        let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let log = asked.clone();
        let builder = Homing::builder().agent(AgentDefinition::new("a", "d", "p")).journal(journal);
        let model = move |_: homing::testing::ModelRequest<'_>| {
            log.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(say("an answer"))
        };
        let homing = builder.own_model(model_fn("test/m", model)).build().unwrap();
        let first = homing.submit("k", Task::new("a", "x")).await.unwrap();
        let live = homing.submit("k", Task::new("a", "x")).await.unwrap();
        assert_eq!((live.id(), live.await.output.as_str()), (first.id(), "an answer"));
        let ended = homing.submit("k", Task::new("a", "x")).await.unwrap();
        assert_eq!((ended.id(), ended.await.output.as_str()), (first.id(), "an answer"));
        let other = homing.submit("k", Task::new("a", "y")).await.unwrap_err();
        assert_eq!(other.to_string(), "the key `k` was already used for another task");
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert_eq!(homing.wait_all().await.len(), 1);
    }
}

#[tokio::test]
async fn own_models_answer_by_name_and_unknown_names_are_errors() {
    let builder = Homing::builder().agent(AgentDefinition::new("a", "d", "p"));
    let builder =
        builder.own_model(model_fn("test/z", |_| Ok(say("z")))).own_model(model_fn("test/a", |_| Ok(say("a"))));
    let homing = builder.build().unwrap();
    assert_eq!(homing.spawn(Task::new("a", "x")).unwrap().await.output, "z", "the first one is the default");
    assert_eq!(homing.spawn(Task::new("a", "x").model("test/a")).unwrap().await.output, "a");
    assert!(homing.spawn(Task::new("a", "x").model("test/b")).is_err());
}

#[test]
fn mistakes_are_reported_when_the_library_is_built() {
    let builder = || Homing::builder().own_model(model_fn("test/m", |_| Ok(say("x"))));
    let error = builder().permissions(Permissions::default().ask(["bash(("])).build().unwrap_err();
    assert!(matches!(error, BuildError::Rule(_)), "{error}");
    assert!(error.to_string().contains("bash(("), "{error}");
    let error = AgentFiles::load_json("{}").unwrap_err();
    assert!(error.to_string().starts_with("the JSON text defines no agent"), "{error}");
    let project = tempfile::tempdir().unwrap();
    // A test's `main` is the harness, so it cannot be the helper.
    let error = Homing::coding(project.path()).build().unwrap_err();
    assert!(matches!(error, BuildError::NoHelper), "{error}");
}

#[tokio::test]
async fn agents_are_loaded_from_files_folders_and_json() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("more")).unwrap();
    let file = |name: &str| format!("---\nname: {name}\ndescription: Helps\n---\nHelp.\n");
    std::fs::write(folder.path().join("one.md"), file("one")).unwrap();
    std::fs::write(folder.path().join("more/two.md"), file("two")).unwrap();
    let three = r#"{"three": {"description": "Helps", "prompt": "Help."}}"#;
    let builder = Homing::builder().own_model(model_fn("test/m", |_| Ok(say("x"))));
    let files = [
        AgentFiles::load_file(folder.path().join("one.md")).unwrap(),
        AgentFiles::load_dir(folder.path().join("more")).unwrap(),
        AgentFiles::load_json(three).unwrap(),
    ];
    let homing = files.into_iter().fold(builder, homing::HomingBuilder::agent_files).build().unwrap();
    assert_eq!(homing.registry().names().collect::<Vec<_>>(), ["one", "three", "two"]);
    assert_eq!(homing.clone().spawn(Task::new("three", "go")).unwrap().await.output, "x");
}
