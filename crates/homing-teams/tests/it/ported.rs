//! The examples of other systems as team files: each is valid, runs on a scripted model, and does what the original does.

use std::{path::Path, sync::Arc};

use crate::support::{AskTool, agent_names, cut_anywhere};
use homing_core::{
    BoxFuture,
    definition::AgentDefinition,
    envelope::Status,
    message::Reply,
    model::{ModelRequest, SingleModel},
    question::{Answer, Question},
    scripted_model::{FunctionModel, call, last_words, say},
};
use homing_runtime::{PermissionHandler, Runtime, RuntimeParts, Task, journal::MemoryJournal};
use homing_teams::{Team, install, load};
use serde_json::{Map, Value, json};

/// The value that a scripted member gives for a schema.
fn value_for(name: &str, schema: &Value) -> Value {
    match (schema["enum"].as_array(), schema["type"].as_str()) {
        (Some(values), _) => values.last().cloned().unwrap_or_default(),
        (None, Some("boolean")) => json!(true),
        (None, Some("array")) => json!(["one", "two"]),
        (None, Some("object")) => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields.map(|(name, schema)| (name.clone(), value_for(name, schema))).collect::<Map<_, _>>().into()
        }
        (None, _) => json!(name),
    }
}

fn reply(request: &ModelRequest<'_>) -> Reply {
    let who = request.system.strip_prefix("You are the ").and_then(|rest| rest.split('.').next()).unwrap_or("?");
    let words = last_words(request);
    let first = words.lines().next().unwrap_or_default();
    if let Some(answer) = request.tools.specs.iter().find(|spec| spec.name == "answer") {
        return call([("answer", value_for("", &answer.schema))]);
    }
    match (who, request.messages.len()) {
        ("critic", _) => say("APPROVE"),
        ("keeper", 1) => call([("memory_set", json!({"key": "legs", "value": "six"}))]),
        ("reader", 1) => call([("memory_get", json!({"key": "legs"}))]),
        ("reader", _) if words.contains("six") => say("they have six legs"),
        ("triage", _) => say("That is for @refunds; mail help@triage if not."),
        ("refunds", _) => say("Your money is on its way. DONE"),
        ("supervisor", 1) => call([
            ("delegate", json!({"agent": "researcher", "task": "find out"})),
            ("delegate", json!({"agent": "writer", "task": "write"})),
        ]),
        ("supervisor", _) => say("all done"),
        (who, _) => say(format!("{who}: {first}")),
    }
}

/// A user who says yes, and chooses the last option.
struct Willing;

impl PermissionHandler for Willing {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        let answer = question.options.last().cloned().unwrap_or_else(|| "yes".to_owned());
        Box::pin(std::future::ready(Answer::Text(answer)))
    }
}

fn host(journal: Arc<MemoryJournal>, team: Team) -> RuntimeParts {
    let models = Arc::new(SingleModel(Arc::new(FunctionModel::new("script/one", |request: ModelRequest<'_>| {
        Ok(reply(&request))
    }))));
    let mut host = RuntimeParts::new(std::iter::empty::<AgentDefinition>().collect(), models, journal);
    host.tools.push(AskTool::new());
    host.permission_handler = Some(Arc::new(Willing));
    install(&mut host, [team]).unwrap_or_else(|problems| panic!("{problems:#?}"));
    host
}

fn load_example(name: &str) -> Team {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ported").join(format!("{name}.yaml"));
    let loaded = load(&std::fs::read_to_string(&path).unwrap(), Some(&path));
    assert!(loaded.diagnostics.is_empty(), "{:#?}", loaded.diagnostics);
    loaded.ready().unwrap()
}

/// Runs an example; returns its answer and the agents that worked, in the order of the tree.
async fn example(name: &str) -> (String, String) {
    let team = load_example(name);
    let agent = team.name.clone();
    let result = Runtime::new(host(MemoryJournal::new(), team)).spawn(Task::new(agent, "ants")).unwrap().wait().await;
    assert_eq!(result.status, Status::Done, "{name}: {result:#?}");
    let agents = agent_names(&result).join(" ");
    (result.output, agents)
}

async fn check(name: &str, answer: &str, agents: &str) {
    let (output, worked) = example(name).await;
    assert_eq!((output.as_str(), worked.as_str()), (answer, agents), "{name}");
}

#[tokio::test(start_paused = true)]
async fn examples_of_crewai_run() {
    check("crewai-quickstart", "analyst: Expand each fact into a section.", "researcher analyst").await;
    check("crewai-hierarchical", "coder: ants", "manager coder manager").await;
    check("crewai-parallel", "writer: Write an article.", "researcher researcher writer").await;
    check("crewai-conditional", "writer: Write a page.", "researcher researcher writer").await;
    check("crewai-guardrail", "writer: Summarise ants.", "writer reader").await;
    check("crewai-flow", "writer: Reply with expert: ants; clerk: ants", "router expert clerk writer").await;
    let rated = "{\n  \"rating\": \"good\",\n  \"why\": \"why\"\n}";
    check("crewai-structured", rated, "writer rater").await;
    check("crewai-human-input", "writer: Write about ants.", "writer person").await;
    check("crewai-memory", "they have six legs", "keeper reader").await;
    let (lines, agents) = example("crewai-for-each").await;
    assert_eq!((lines.lines().count(), agents.as_str()), (2, "writer writer"));
}

#[tokio::test(start_paused = true)]
async fn examples_of_autogen_run() {
    let poem = "poet: You are `poet` in a conversation with critic.";
    check("autogen-round-robin", poem, "poet critic").await;
    let searched = "searcher: You are `searcher` in a conversation with planner.";
    check("autogen-selector", searched, "chooser searcher chooser searcher").await;
    check("autogen-swarm", "Your money is on its way.", "triage refunds").await;
    let ruled = "planner: You are `planner` in a conversation with searcher.";
    check("autogen-selector-rules", ruled, "planner searcher planner").await;
    let known = "writer: Answer with worker: planner: Plan for ants. Known:";
    check("autogen-magentic", known, "planner worker judge writer").await;
    check("autogen-termination", poem, "poet critic").await;
    check("autogen-nested", "writer: Write it up.", "pair poet critic writer").await;
}

#[tokio::test(start_paused = true)]
async fn examples_of_langgraph_run() {
    check("langgraph-loop", "writer: A joke about ants.", "writer judge").await;
    check("langgraph-map-reduce", "writer: Write one\nwriter: Write two", "planner writer writer").await;
    check("langgraph-subgraph", "writer: Use researcher: ants", "child researcher writer").await;
    check("langgraph-reducers", "left: ants + right: ants", "starter left right").await;
    check("langgraph-interrupt", "writer: Publish writer: Draft ants", "writer person writer").await;
    check("langgraph-supervisor", "all done", "researcher writer").await;
}

#[tokio::test(start_paused = true)]
async fn examples_of_openai_agents_and_adk_run() {
    check("openai-gate", "writer: Write writer: Outline: ants", "writer judge writer").await;
    check("openai-parallel", "picker: Pick the best.", "translator translator picker").await;
    check("openai-handoffs", "spanish: ants", "router spanish").await;
    check("openai-guardrail", "writer: ants", "gate guard writer").await;
    check("adk-loop", "poet: ants", "poet critic").await;
}

#[tokio::test(start_paused = true)]
async fn checkpoints_are_every_step() {
    let name = "langgraph-checkpoints";
    let envelope = cut_anywhere(|journal| host(journal, load_example(name)), "durable", "ants").await;
    assert_eq!(envelope.output, "writer: Polish writer: Write researcher: ants");
}

#[tokio::test(start_paused = true)]
async fn swarm_remembers_its_speaker_over_turns() {
    let runtime = Runtime::new(host(MemoryJournal::new(), load_example("langgraph-swarm-turns")));
    let first = runtime.spawn(Task::new("desk", "my order")).unwrap();
    assert_eq!(agent_names(&first.wait().await), ["triage", "refunds"]);
    let mut task = Task::new("desk", "and the other one?");
    let tree = first.tree();
    task.history = tree.get(first.id()).unwrap().messages().iter().map(|entry| entry.message.clone()).collect();
    assert_eq!(agent_names(&runtime.spawn(task).unwrap().wait().await), ["refunds"]);
}

#[test]
fn every_example_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ported");
    let tests = include_str!("ported.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        assert!(tests.contains(&format!("\"{name}\"")), "{name} is not tested");
    }
}
