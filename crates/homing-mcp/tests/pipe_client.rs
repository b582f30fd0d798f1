//! A client that is connected to the server over a pipe.

mod fixtures;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fixtures::*;
use homing::{
    AgentDefinition, BoxFuture, CancelledBy, Extensions, Replay, Status, ToolOutput, tool_fn,
    tools::{HookCall, HookDecision, HookEnding, HookNotes, HookRun, Hooks},
};
use homing_mcp::{ClientBudget, ElicitationHandler, ServerOptions};
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ReadResourceRequestParams, ResourceContents};
use rmcp::service::PeerRequestOptions;
use serde_json::{Value, json};

async fn connected() -> Connection {
    connect(homing().await, ServerOptions::default(), RecordingClient::default()).await.0
}

async fn resource(connection: &Connection, uri: &str) -> Option<Value> {
    let read = connection.read_resource(ReadResourceRequestParams::new(uri)).await.ok()?;
    match &read.contents[0] {
        ResourceContents::TextResourceContents { text, .. } => serde_json::from_str(text).ok(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tools_list_agents_with_sanitized_descriptions() {
    let connection = connected().await;
    let tools = connection.list_all_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, ["delegate", "wait", "tell", "cancel", "runs", "resume"]);
    assert_eq!(tools[0].input_schema["properties"]["agent"]["enum"], json!(["echo", "helper"]));
    let description = tools[0].description.as_deref().unwrap();
    assert!(description.contains("- echo: Says what it hears.\n- helper: Helps.\u{fffd}\u{fffd}"), "{description}");
    assert!(tools.iter().all(|tool| tool.output_schema.is_some()));
}

#[tokio::test]
async fn agent_of_the_user_alone_is_not_offered_to_clients() {
    let mut private = AgentDefinition::new("private", "Only for the user.", "Private.");
    private.execution.offered_to = serde_json::from_value(json!("user")).unwrap();
    let homing = Arc::new(builder().agents([private]).build().unwrap());
    let connection = connect(homing, ServerOptions::default(), RecordingClient::default()).await.0;
    let tools = connection.list_all_tools().await.unwrap();
    assert_eq!(tools[0].input_schema["properties"]["agent"]["enum"], json!(["echo", "helper"]));
    assert!(!tools[0].description.as_deref().unwrap().contains("Only for the user"));
    let result = call_tool(&connection, "delegate", json!({"agent": "private", "task": "hello"})).await;
    assert_eq!(result.is_error, Some(true));
    assert!(text(&result).contains("only the user can start"), "{}", text(&result));
}

#[tokio::test]
async fn delegate_returns_text_and_envelope() {
    let connection = connected().await;
    let result = call_tool(&connection, "delegate", json!({"agent": "echo", "task": "hello"})).await;
    assert_ne!(result.is_error, Some(true));
    let (words, data) = (text(&result), data(&result));
    assert!(words.starts_with("[echo · run ") && words.ends_with("\necho: hello"), "{words}");
    assert_eq!((&data["v"], &data["status"], &data["output"]), (&json!(1), &json!("done"), &json!("echo: hello")));
    serde_json::from_value::<homing::Envelope>(data.clone()).expect("it is an envelope");
}

#[tokio::test]
async fn results_match_their_output_schemas() {
    let connection = connected().await;
    let tools = connection.list_all_tools().await.unwrap();
    let run = start(&connection, "hang").await;
    for (name, args) in [
        ("delegate", json!({"agent": "echo", "task": "send"})),
        ("delegate", json!({"agent": "echo", "task": "fail"})),
        ("delegate", json!({"agent": "echo", "task": "hang", "limits": {"timeout": 0.2}})),
        ("wait", json!({"timeout": 0.05})),
        ("tell", json!({"run": run, "message": "more"})),
        ("runs", json!({})),
        ("cancel", json!({"run": run})),
    ] {
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        let input = Value::Object((*tool.input_schema).clone());
        let output = Value::Object((**tool.output_schema.as_ref().unwrap()).clone());
        assert!(jsonschema::validator_for(&input).unwrap().is_valid(&args), "{name} {args}");
        let result = call_tool(&connection, name, args).await;
        let validator = jsonschema::validator_for(&output).unwrap();
        let errors: Vec<_> = validator.iter_errors(data(&result)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[tokio::test]
async fn progress_is_reported_while_a_run_works() {
    let client = RecordingClient::default();
    let homing = homing().await;
    let (connection, _) = connect(homing.clone(), ServerOptions::default(), client.clone()).await;
    // rmcp's client asks for progress with every request.
    let delegates = tokio::spawn({
        let peer = connection.peer().clone();
        async move { call_tool(&peer, "delegate", json!({"agent": "echo", "task": "hang"})).await }
    });
    until("progress", || client.progress_contains("echo 1 calls hang · step 1 · 15 tokens")).await;
    homing.runtime().cancel_all(&CancelledBy::Host);
    assert_eq!(data(&delegates.await.unwrap())["status"], "cancelled");
    let received = client.received.lock().unwrap();
    assert!(received.progress.windows(2).all(|pair| pair[0].progress < pair[1].progress), "it only grows");
}

#[tokio::test]
async fn wait_returns_all_runs_or_the_first() {
    let connection = connected().await;
    let (hangs, quick) = (start(&connection, "hang").await, start(&connection, "quick").await);
    let first = call_tool(&connection, "wait", json!({"runs": [hangs, quick], "any": true})).await;
    assert_eq!(data(&first)["runs"].as_array().unwrap().len(), 1);
    assert_eq!(data(&first)["runs"][0]["output"], "echo: quick");
    let waited = call_tool(&connection, "wait", json!({"timeout": 0.05})).await;
    assert_eq!(data(&waited)["runs"][0]["run"], hangs, "without IDs: runs in progress");
    assert_eq!(data(&waited)["runs"][0]["partial"], true, "it is not over");
    let cancelled = call_tool(&connection, "cancel", json!({"run": hangs})).await;
    assert_eq!(data(&cancelled)["cancelled"], true);
    let ended = call_tool(&connection, "wait", json!({"runs": [hangs]})).await;
    assert_eq!(data(&ended)["runs"][0]["status"], "cancelled");
    let listed = call_tool(&connection, "runs", json!({"status": "cancelled"})).await;
    assert_eq!(data(&listed)["runs"].as_array().unwrap().len(), 1);
    assert_eq!(data(&listed)["runs"][0]["task"], "hang");
}

#[tokio::test]
async fn wait_without_ids_returns_runs_that_have_ended_since() {
    let connection = connected().await;
    let (one, two) = (start(&connection, "one").await, start(&connection, "two").await);
    let is_done = async || {
        let listed = call_tool(&connection, "runs", json!({"status": "done"})).await;
        data(&listed)["runs"].as_array().unwrap().len() == 2
    };
    while !is_done().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let waited = call_tool(&connection, "wait", json!({})).await;
    let ids: Vec<&Value> = data(&waited)["runs"].as_array().unwrap().iter().map(|run| &run["run"]).collect();
    assert_eq!(ids, [&one, &two], "they ended before the client waited");
    let again = call_tool(&connection, "wait", json!({})).await;
    assert_eq!(text(&again), "There is nothing to wait for.", "each result is returned once");
    call_tool(&connection, "delegate", json!({"agent": "echo", "task": "at once"})).await;
    assert_eq!(data(&call_tool(&connection, "wait", json!({})).await)["runs"], json!([]));
}

#[tokio::test]
async fn restarted_server_knows_the_ended_runs_of_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let homing = Arc::new(builder().journal(folder.path().join("journal.db")).build().unwrap());
    let (connection, server) = connect(homing.clone(), ServerOptions::default(), RecordingClient::default()).await;
    let run = start(&connection, "one").await;
    call_tool(&connection, "wait", json!({})).await;
    connection.cancel().await.unwrap();
    server.await.unwrap();
    let (connection, _) = connect(homing, ServerOptions::default(), RecordingClient::default()).await;
    let listed = call_tool(&connection, "runs", json!({})).await;
    assert_eq!(data(&listed)["runs"][0]["run"], run, "{}", text(&listed));
    let waited = call_tool(&connection, "wait", json!({"runs": [run]})).await;
    assert_eq!(data(&waited)["runs"][0]["output"], "echo: one", "{}", text(&waited));
    assert_eq!(data(&call_tool(&connection, "runs", json!({})).await)["runs"].as_array().unwrap().len(), 1);
    let told = call_tool(&connection, "tell", json!({"run": run, "message": "history"})).await;
    assert_eq!(data(&told)["continues"], run, "{}", text(&told));
    let waited = call_tool(&connection, "wait", json!({})).await;
    assert_eq!(data(&waited)["runs"][0]["output"], "3 messages");
    let resumed = call_tool(&connection, "resume", json!({"run": run})).await;
    assert!(resumed.is_error == Some(true) && text(&resumed).contains("was not interrupted"), "{}", text(&resumed));
}

#[tokio::test]
async fn earlier_runs_of_other_clients_stay_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let homing = Arc::new(builder().journal(folder.path().join("journal.db")).build().unwrap());
    let other =
        homing.spawn(homing::Task::new("echo", "private").tag("via", "mcp").tag("mcp_client", "other /")).unwrap();
    other.wait().await;
    let (connection, _) = connect(homing, ServerOptions::default(), RecordingClient::default()).await;
    assert_eq!(data(&call_tool(&connection, "runs", json!({})).await)["runs"], json!([]));
    for tool in ["wait", "tell", "cancel", "resume"] {
        let args = match tool {
            "wait" => json!({"runs": [other.id()]}),
            "tell" => json!({"run": other.id(), "message": "hello"}),
            _ => json!({"run": other.id()}),
        };
        let refused = call_tool(&connection, tool, args).await;
        assert!(refused.is_error == Some(true) && text(&refused).contains("of yours"), "{tool}: {}", text(&refused));
    }
}

#[tokio::test]
async fn cancelled_request_cancels_its_run() {
    let homing = homing().await;
    let (connection, _) = connect(homing.clone(), ServerOptions::default(), RecordingClient::default()).await;
    let args = json!({"agent": "echo", "task": "hang"}).as_object().cloned().unwrap();
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(
        CallToolRequestParams::new("delegate").with_arguments(args),
    ));
    let handle = connection.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    until("the run begins", || !homing.runtime().list(Status::Running).is_empty()).await;
    handle.cancel(Some("changed my mind".into())).await.unwrap();
    until("the run is cancelled", || !homing.runtime().list(Status::Cancelled).is_empty()).await;
}

#[tokio::test]
async fn runs_are_cancelled_when_their_client_disconnects() {
    let homing = homing().await;
    let (connection, server) = connect(homing.clone(), ServerOptions::default(), RecordingClient::default()).await;
    start(&connection, "hang").await;
    connection.cancel().await.unwrap();
    server.await.unwrap();
    assert_eq!(homing.runtime().list(Status::Cancelled).len(), 1);
}

#[tokio::test]
async fn telling_an_ended_run_continues_it_with_its_history() {
    let connection = connected().await;
    let run = start(&connection, "first").await;
    call_tool(&connection, "wait", json!({"runs": [run]})).await;
    let told = call_tool(&connection, "tell", json!({"run": run, "message": "history"})).await;
    assert_eq!(data(&told)["continues"], run);
    let ended = call_tool(&connection, "wait", json!({"runs": [data(&told)["run"]]})).await;
    assert_eq!(data(&ended)["runs"][0]["output"], "3 messages");
}

#[tokio::test]
async fn m14_runs_of_other_clients_are_invisible() {
    let homing = homing().await;
    let (one, _) = connect(homing.clone(), ServerOptions::default(), RecordingClient::default()).await;
    let (other, _) = connect(homing.clone(), ServerOptions::default(), RecordingClient::default()).await;
    let run = start(&one, "hang").await;
    let unknown_run = json!("019a0000-0000-7000-8000-000000000000");
    for (name, more) in [("tell", json!({"message": "x"})), ("cancel", json!({})), ("wait", json!({}))] {
        let ask = |run: &Value| {
            let mut args = more.clone();
            match name {
                "wait" => args["runs"] = json!([run]),
                _ => args["run"] = run.clone(),
            }
            args
        };
        let foreign = call_tool(&other, name, ask(&run)).await;
        let unknown = call_tool(&other, name, ask(&unknown_run)).await;
        assert_eq!(foreign.is_error, Some(true), "{name}");
        let without_id = |words: String, id: &Value| words.replace(id.as_str().unwrap(), "ID");
        assert_eq!(without_id(text(&foreign), &run), without_id(text(&unknown), &unknown_run), "{name}");
    }
    assert_eq!(data(&call_tool(&other, "runs", json!({})).await)["runs"], json!([]));
    let uri = format!("homing://runs/{}", run.as_str().unwrap());
    assert!(resource(&other, &uri).await.is_none() && resource(&one, &uri).await.is_some());
    assert!(
        !other.list_all_resources().await.unwrap().iter().any(|resource| resource.uri.starts_with("homing://runs/"))
    );
    assert_eq!(
        data(&call_tool(&one, "cancel", json!({"run": run})).await)["cancelled"],
        true,
        "the other client has not stopped it"
    );
}

#[tokio::test]
async fn m14_client_cannot_exceed_its_budget() {
    let mut options = ServerOptions::default();
    options.budget.cost_micros = Some(1_000_000);
    let (connection, _) = connect(homing().await, options, RecordingClient::default()).await;
    start(&connection, "hang").await;
    let refused = call_tool(&connection, "delegate", json!({"agent": "echo", "task": "more"})).await;
    assert_eq!(refused.is_error, Some(true));
    assert!(text(&refused).contains("the budget of this client is $1.00, and $1.00 of it"), "{}", text(&refused));
}

#[tokio::test]
async fn m14_client_cannot_raise_limits_of_an_agent() {
    let mut agent = AgentDefinition::new("brief", "d", "p");
    agent.limits = agent.limits.wall(Duration::from_millis(200));
    let homing = Arc::new(builder().agent(agent).build().unwrap());
    let (connection, _) = connect(homing, ServerOptions::default(), RecordingClient::default()).await;
    let args = json!({"agent": "brief", "task": "hang", "limits": {"timeout": 600}});
    let late = call_tool(&connection, "delegate", args).await;
    assert_eq!((&data(&late)["status"], &data(&late)["limit"]["limit"]), (&json!("timed_out"), &json!(200)));
}

#[tokio::test]
async fn unused_reservation_returns_to_the_budget() {
    let mut options = ServerOptions::default();
    options.budget.cost_micros = Some(1_000_000);
    let (connection, _) = connect(homing().await, options, RecordingClient::default()).await;
    for _ in 0..3 {
        let done = call_tool(&connection, "delegate", json!({"agent": "echo", "task": "hello"})).await;
        assert_eq!(data(&done)["status"], "done", "{}", text(&done));
        assert_eq!(data(&done)["subtree"]["cost_micros"], 15);
    }
}

#[tokio::test]
async fn m14_number_of_open_runs_is_limited() {
    let mut options = ServerOptions::default();
    options.budget = ClientBudget::default();
    options.budget.open = 2;
    let (connection, _) = connect(homing().await, options, RecordingClient::default()).await;
    start(&connection, "hang").await;
    start(&connection, "hang").await;
    let refused = call_tool(&connection, "delegate", json!({"agent": "echo", "task": "third"})).await;
    assert!(
        refused.is_error == Some(true) && text(&refused).starts_with("2 runs are in progress"),
        "{}",
        text(&refused)
    );
}

#[tokio::test]
async fn model_mistakes_are_error_results_with_a_message() {
    let connection = connected().await;
    for (name, args, says) in [
        ("delegate", json!({"agent": "ecko", "task": "x"}), "did you mean `echo`?"),
        ("delegate", json!({"agent": "echo", "task": " "}), "the task is empty"),
        ("delegate", json!({"agent": "echo"}), "missing field `task`"),
        ("delegate", json!({"agent": "echo", "task": "x", "limits": {"max_cots": 1}}), "unknown field `max_cots`"),
        ("wait", json!({"runs": ["not an id"]}), "invalid arguments"),
        ("tell", json!({"run": "019a0000-0000-7000-8000-000000000000", "message": ""}), "there is no run"),
    ] {
        let result = call_tool(&connection, name, args).await;
        assert!(result.is_error == Some(true) && text(&result).contains(says), "{name}: {}", text(&result));
    }
    assert!(try_call(&connection, "nonsense", json!({})).await.is_err(), "an unknown tool is a protocol error");
}

#[tokio::test]
async fn failed_run_is_an_error_and_reached_limit_is_not() {
    let connection = connected().await;
    let failed = call_tool(&connection, "delegate", json!({"agent": "echo", "task": "fail"})).await;
    assert_eq!((failed.is_error, &data(&failed)["error"]["kind"]), (Some(true), &json!("model")));
    let args = json!({"agent": "echo", "task": "hang", "limits": {"timeout": 0.2}});
    let late = call_tool(&connection, "delegate", args).await;
    assert_ne!(late.is_error, Some(true));
    assert_eq!((&data(&late)["status"], &data(&late)["limit"]["limit"]), (&json!("timed_out"), &json!(200)));
}

#[tokio::test]
async fn long_answer_is_cut_in_the_result_but_not_in_its_resource() {
    let connection = connected().await;
    let long = call_tool(&connection, "delegate", json!({"agent": "echo", "task": "long"})).await;
    assert!(text(&long).len() < 25_000 && text(&long).contains("76000 more bytes: read the resource homing://runs/"));
    assert!(data(&long).to_string().len() < 26_000, "some clients show their model this instead of the text");
    let uri = format!("homing://runs/{}", data(&long)["run"].as_str().unwrap());
    assert_eq!(resource(&connection, &uri).await.unwrap()["output"].as_str().unwrap().len(), 100_000);
}

#[tokio::test]
async fn definitions_results_and_transcripts_are_resources() {
    let connection = connected().await;
    let run = data(&call_tool(&connection, "delegate", json!({"agent": "echo", "task": "hello"})).await)["run"].clone();
    let run = run.as_str().unwrap();
    let listed: Vec<_> =
        connection.list_all_resources().await.unwrap().iter().map(|resource| resource.uri.clone()).collect();
    let ours = [format!("homing://runs/{run}"), format!("homing://runs/{run}/transcript")];
    assert_eq!(
        listed,
        ["homing://agents/echo".into(), "homing://agents/helper".into(), ours[0].clone(), ours[1].clone()]
    );
    assert_eq!(resource(&connection, "homing://agents/echo").await.unwrap()["prompt"], "You echo.");
    assert_eq!(resource(&connection, &ours[0]).await.unwrap()["output"], "echo: hello");
    let transcript = resource(&connection, &ours[1]).await.unwrap();
    assert_eq!((&transcript[0]["role"], &transcript[1]["role"]), (&json!("user"), &json!("assistant")));
    assert_eq!(connection.list_all_resource_templates().await.unwrap().len(), 3);
    for nothing in ["homing://agents/unknown", "homing://runs/x", "homing://agents/..%2f", "file:///etc/passwd", ""] {
        assert!(resource(&connection, nothing).await.is_none(), "{nothing}");
    }
}

/// Hooks of a host that has nothing to say.
struct NoHooks;

impl Hooks for NoHooks {
    fn run_started<'a>(&'a self, _: &'a HookRun) -> BoxFuture<'a, HookNotes> {
        Box::pin(async { HookNotes::default() })
    }

    fn before_call<'a>(&'a self, _: &'a HookRun, _: &'a HookCall) -> BoxFuture<'a, HookDecision> {
        Box::pin(async { HookDecision::Allow { args: None, notes: HookNotes::default() } })
    }

    fn after_call<'a>(&'a self, _: &'a HookRun, _: &'a HookCall, _: &'a ToolOutput) -> BoxFuture<'a, HookNotes> {
        Box::pin(async { HookNotes::default() })
    }

    fn run_ending<'a>(&'a self, _: &'a HookRun, _: &'a str, _: u32) -> BoxFuture<'a, HookEnding> {
        Box::pin(async { HookEnding::End(HookNotes::default()) })
    }
}

#[tokio::test]
async fn definitions_omit_secrets_of_servers_and_hooks() {
    let mut agent = AgentDefinition::new("keeper", "d", "p");
    agent.integrations.mcp_servers.insert("db".into(), json!({"env": {"PASSWORD": "hunter2"}}));
    agent.integrations.hooks = json!({"Stop": "curl -H hunter2"});
    agent.extra.unknown.insert("x".into(), json!("hunter2"));
    // Without a coding setup the host has the hooks and the server's tools itself.
    let query = tool_fn("mcp__db__query", "Queries.", Replay::Safe, |_, _: Value| async { Ok("none".to_owned()) });
    let mut extensions = Extensions::default();
    extensions.hooks = Some(Arc::new(NoHooks));
    let homing = Arc::new(builder().agent(agent).tool(query).extensions(extensions).build().unwrap());
    let (connection, _) = connect(homing, ServerOptions::default(), RecordingClient::default()).await;
    let shown = resource(&connection, "homing://agents/keeper").await.unwrap().to_string();
    assert!(shown.contains("\"db\"") && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn clients_are_notified_when_agents_change() {
    let changed = Arc::new(AtomicBool::new(false));
    let mut options = ServerOptions::default();
    options.reload_every = Duration::from_millis(20);
    let flag = changed.clone();
    options.reload = Some(Arc::new(move || {
        let flag = flag.clone();
        Box::pin(async move {
            let agent = AgentDefinition::new("newcomer", "New.", "p");
            let build = async || Arc::new(builder().agent(agent).build().unwrap());
            if flag.swap(false, Ordering::SeqCst) { Some(build().await) } else { None }
        })
    }));
    let client = RecordingClient::default();
    let (connection, _) = connect(homing().await, options, client.clone()).await;
    let before = start(&connection, "hang").await;
    changed.store(true, Ordering::SeqCst);
    until("the client is notified", || client.received.lock().unwrap().tools_changed == 1).await;
    let tools = connection.list_all_tools().await.unwrap();
    assert_eq!(tools[0].input_schema["properties"]["agent"]["enum"], json!(["echo", "helper", "newcomer"]));
    let result = call_tool(&connection, "delegate", json!({"agent": "newcomer", "task": "hi"})).await;
    assert_eq!(data(&result)["status"], "done");
    assert_eq!(
        data(&call_tool(&connection, "cancel", json!({"run": before})).await)["cancelled"],
        true,
        "older runs continue"
    );
}

async fn risk(answer: Option<Value>) -> (Value, usize) {
    let handler = Arc::new(ElicitationHandler::new());
    let homing = Arc::new(builder().on_ask(handler.clone()).build().unwrap());
    let mut options = ServerOptions::default();
    options.permission_handler = Some(handler);
    let client = RecordingClient { answer, ..RecordingClient::default() };
    let (connection, _) = connect(homing, options, client.clone()).await;
    let result = call_tool(&connection, "delegate", json!({"agent": "echo", "task": "risk"})).await;
    let asked = client.received.lock().unwrap().questions.len();
    (data(&result).clone(), asked)
}

#[tokio::test]
async fn permission_is_granted_only_by_an_explicit_yes() {
    let (done, asked) = risk(Some(json!(true))).await;
    assert_eq!((asked, &done["output"]), (1, &json!("echo: did the risky thing")));
    for no in [json!(false), json!("true"), Value::Null] {
        let (done, asked) = risk(Some(no.clone())).await;
        assert_eq!(asked, 1);
        assert!(!done["denied"].as_array().unwrap().is_empty(), "{no}: {done}");
    }
    let (done, asked) = risk(None).await;
    assert_eq!((asked, done["denied"].as_array().unwrap().len()), (0, 1), "without elicitation it is denied");
}
